"""Every type that an export can have, in files as other writers make them: pyiceberg reads what was written."""

from __future__ import annotations

import datetime as dt
import itertools
import uuid
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.table import StaticTable

from lamella.client.http import Lamella
from lamella.client.iceberg.export import export_iceberg
from lamella.snapshot.storage import FsspecStore

UTC = dt.UTC
DAY = dt.datetime(2020, 1, 1, tzinfo=UTC).replace(tzinfo=None)
CASES: dict[str, tuple[pa.Array, dict[str, Any]]] = {
    "time": (pa.array([dt.time(1, 2, 3), None], pa.time64("us")), {}),
    "int96": (pa.array([DAY, None], pa.timestamp("ns")), {"use_deprecated_int96_timestamps": True}),
    "local": (pa.array([DAY], pa.timestamp("us")), {}),
    "uuid": (pa.array([uuid.UUID(int=7).bytes], pa.uuid()), {}),
    "fixed": (pa.array([b"abc"], pa.binary(3)), {}),
    "small": (pa.array([-5, None], pa.int8()), {}),
    "integers for decimals": (
        pa.array([Decimal("0.05"), None], pa.decimal128(7, 2)),
        {"store_decimal_as_integer": True},
    ),
    "large text": (pa.array(["a", "b"], pa.large_string()), {}),
    "dictionary": (pa.array(["a", "b", "a"]).dictionary_encode(), {}),
    "list": (pa.array([[1], None, []], pa.list_(pa.int32())), {}),
    "list of old": (pa.array([[1], None, []], pa.list_(pa.int32())), {"use_compliant_nested_type": False}),
    "map": (pa.array([[("a", 1)], None], pa.map_(pa.string(), pa.int32())), {}),
    "list of structs": (pa.array([[{"x": 1}], [{"x": None}]], pa.list_(pa.struct([("x", pa.int32())]))), {}),
}
_NAMES = itertools.count()


@pytest.mark.parametrize("case", CASES)
def test_values_are_read_as_they_were_written(export_url: str, tmp_path: Path, case: str) -> None:
    """Instants of old files, numbers of other widths, and the two ways to name what is in a list."""
    values, options = CASES[case]
    path = tmp_path / "x.parquet"
    pq.write_table(pa.table({"v": values}), path, **options)
    with Lamella(export_url) as lake:
        if "types" not in [each.name for each in lake.namespaces()]:
            lake.create_namespace("types")
        name = f"types.t{next(_NAMES)}"
        lake.create_table(name, schema_from=str(path))
        lake.table(name).register([str(path)])
        done = export_iceberg(lake, name, FsspecStore())
    read = StaticTable.from_metadata(done.metadata_location).scan().to_arrow()["v"].to_pylist()
    wanted = pq.read_table(path)["v"].to_pylist()
    if case == "int96":
        wanted = [None if each is None else each.replace(tzinfo=UTC) for each in wanted]
    assert read == wanted
