"""A registration says which columns Spark will not be able to read."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

from lamella.client import Lamella
from lamella.client.cli.app import cli
from lamella.snapshot.schema import Column, Schema
from lamella.snapshot.schema.spark_types import spark_notes


@pytest.mark.parametrize(
    ("columns", "note"),
    [
        ({"a": "int64", "ts": "timestamp(us)", "at": "time(us)", "v": "variant"}, None),
        ({"ts": "timestamp(ns)"}, "Spark cannot read ts (timestamp(ns)); for Spark, write times with microseconds"),
        ({"h": "float16"}, "Spark cannot read h (float16)"),
        ({"h": "float16", "ts": "timestamp_ntz(ns)"}, "Spark cannot read h (float16), ts (timestamp_ntz(ns));"),
    ],
)
def test_only_columns_that_spark_cannot_read_are_noted(columns: dict[str, str], note: str | None) -> None:
    """One sentence, with a remedy for times."""
    found = spark_notes(Schema.assign([Column(name=name, type=kind) for name, kind in columns.items()]))
    assert (found == ()) == (note is None)
    assert note is None or found[0].startswith(note)
    assert ("see Troubleshooting" in "".join(found)) == (note is not None and "(ns)" in note)


def test_a_registration_of_nanoseconds_has_a_note(tmp_path: Path) -> None:
    """As pandas and Polars write them by default; a table of microseconds has none."""
    path = tmp_path / "ns.parquet"
    pq.write_table(pa.table({"ts": np.array([1, 2], dtype="datetime64[ns]")}), path)
    with Lamella.embedded(tmp_path / "lake") as lake:
        lake.create_namespace("db")
        lake.create_table("db.ns", schema_from=f"file://{path}")
        (note,) = lake.table("db.ns").register([f"file://{path}"]).notes
        assert note.startswith("Spark cannot read ts (timestamp_ntz(ns))")
        lake.create_table("db.us", schema={"ts": "timestamp_ntz(us)"})
        assert lake.table("db.us").register([f"file://{path}"]).notes == ()


def test_the_commands_show_the_notes(tmp_path: Path) -> None:
    """On standard error, so that data stays data."""
    path = tmp_path / "ns.parquet"
    pq.write_table(pa.table({"ts": np.array([1, 2], dtype="datetime64[ns]")}), path)
    folder = str(tmp_path / "lake")
    with Lamella.embedded(folder) as lake:
        lake.create_namespace("db")
    for command in (["tables", "create", "db.ns", "--schema-from", str(path)], ["register", "db.ns", str(path)]):
        done = CliRunner().invoke(cli, [*command, "--url", folder])
        assert done.exit_code == 0, done.output
        assert "note: Spark cannot read ts (timestamp_ntz(ns))" in done.stderr
        assert "note" not in done.stdout
