"""`lamella audit` and `prune-rates` against a service."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
from click.testing import CliRunner

from fixtures_server import ServerProcess
from lamella.client import Lamella
from lamella.client.cli.app import cli
from lamella.snapshot import wire


def test_the_commands_show_what_the_service_noted(server: ServerProcess, tmp_path: Path) -> None:
    """Changes stand in the trail, the refused among them; prunes in the rates, with what they skipped."""
    files = [tmp_path / f"{number}.parquet" for number in range(4)]
    for number, file in enumerate(files):
        pq.write_table(pa.table({"n": [number]}), file)
    with Lamella(server.url) as lake:
        lake.create_namespace("db")
        lake.create_table("db.t", schema_from=f"file://{files[0]}")
        lake.table("db.t").register([f"file://{file}" for file in files])
        lake.table("db.t").prune("n = 2")

    def run(*words: str) -> str:
        done = CliRunner().invoke(cli, [*words, "--url", server.url], env={"COLUMNS": "200"})
        assert done.exit_code == 0, done.output
        return done.output

    refused = CliRunner().invoke(cli, ["tables", "drop", "db.none", "--url", server.url])
    assert refused.exit_code == 1
    shown = run("audit", "--limit", "2")
    assert "drop_table" in shown
    assert "table_not_found" in shown
    assert "create_namespace" not in shown  # it is the oldest
    of_table = msgspec.json.decode(run("audit", "db.t", "--json"), type=wire.AuditList)
    assert [each.operation for each in of_table.entries] == ["register", "create_table"]
    assert "75.0" in run("prune-rates", "db.t")
    rates = msgspec.json.decode(run("prune-rates", "db.t", "--json"), type=wire.PruneRatesAnswer)
    assert (rates.total.prunes, rates.total.kept_blocks) == (1, 1)
