"""Files of every kind: nested columns, codecs, units, other schemas; and files that are not what they were."""

from __future__ import annotations

import datetime as dt
import os
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lamella.snapshot.errors import (
    BlockReplaced,
    CorruptParquet,
    EvaluationFailed,
    FilterNotEvaluable,
    InvalidRequest,
    ObjectNotFound,
    SchemaMismatch,
    UnknownColumn,
)
from lamella.snapshot.parquet import read_footer
from lamella.snapshot.rows.row_groups import requests
from lamella.snapshot.schema import Column, Schema
from lamella.snapshot.storage import FsspecStore
from scan.files import RangesSeen, of_files, written

NESTED = pa.table(
    {
        "id": list(range(1000)),
        "s": [None if i % 7 == 0 else {"x": i, "y": f"y{i}", "z": None if i % 3 else {"w": i}} for i in range(1000)],
        "l": [None if i % 5 == 0 else list(range(i % 4)) for i in range(1000)],
        "m": pa.array([[(f"k{i}", i)] if i % 2 else [] for i in range(1000)], pa.map_(pa.string(), pa.int64())),
        "deep": [[{"a": [i, None]}] for i in range(1000)],
    }
)


def test_nested_columns_come_whole(tmp_path: Path) -> None:
    """Structs, lists and maps are read as they were written, for just the rows that match."""
    planner = written(tmp_path, NESTED, max_rows_per_page=50, write_batch_size=10, row_group_size=400)
    found = planner.scan("id BETWEEN 395 AND 405").to_arrow()
    assert found.to_pylist() == NESTED.slice(395, 11).to_pylist()


_OLD = {"org.apache.spark.legacyDateTime": "", "org.apache.spark.version": "3.5.0"}


@pytest.mark.parametrize(
    ("values", "kind", "is_readable"),
    [
        ([dt.date(1582, 10, 15), None], pa.date32(), True),
        ([dt.date(1582, 10, 14), None], pa.date32(), False),
        ([-2_208_988_800_000_000, None], pa.timestamp("us"), True),
        ([-2_208_988_800_000_001, None], pa.timestamp("us"), False),
        ([dt.datetime(1900, 1, 1, tzinfo=dt.UTC)], pa.timestamp("ms", "UTC"), True),
        ([[{"k": dt.date(2000, 1, 1)}]], pa.list_(pa.struct([("k", pa.date32())])), True),
        ([[{"k": dt.date(1000, 1, 1)}]], pa.list_(pa.struct([("k", pa.date32())])), False),
        ([[("k", dt.date(1000, 1, 1))]], pa.map_(pa.string(), pa.date32()), False),
    ],
)
def test_dates_of_the_old_calendar_are_read_if_they_mean_the_same(
    tmp_path: Path, values: list[Any], kind: pa.DataType, is_readable: bool
) -> None:
    """What an older date means depends on its writer, so that it is refused."""
    rows = pa.table({"a": range(len(values)), "d": pa.array(values, kind)}).replace_schema_metadata(_OLD)
    planner = written(tmp_path, rows)
    assert planner.scan(columns=("a",)).to_arrow().num_rows == len(values)
    if is_readable:
        found = planner.scan().to_arrow()["d"].to_pylist()
        assert found == rows["d"].to_pylist()
        return
    with pytest.raises(SchemaMismatch, match="old calendar"):
        planner.scan().to_arrow()


@pytest.mark.parametrize("condition", ["s.x = 500", "s.z.w = 501", "s.y = 'y502'", "s.x IS NULL AND id > 990"])
def test_fields_of_structs_are_filtered_and_read_alone(tmp_path: Path, condition: str) -> None:
    """A field of a struct is null where the struct is; it can be read without its siblings."""
    planner = written(tmp_path, NESTED, max_rows_per_page=50, write_batch_size=10)
    names = ("id", "s.x", "s.z.w")
    found = planner.scan(condition, columns=names).to_arrow()
    matching = {"s.x = 500": [500], "s.z.w = 501": [501], "s.y = 'y502'": [502]}.get(condition, [994])
    rows = [NESTED.slice(at, 1).to_pylist()[0] for at in matching]
    assert found.schema.names == list(names)
    assert found.to_pylist() == [
        {"id": row["id"], "s.x": (row["s"] or {}).get("x"), "s.z.w": ((row["s"] or {}).get("z") or {}).get("w")}
        for row in rows
    ]


@pytest.mark.parametrize("compression", ["none", "snappy", "gzip", "brotli", "lz4", "zstd"])
@pytest.mark.parametrize("version", ["1.0", "2.0"])
def test_pages_of_every_codec_are_sliced(tmp_path: Path, compression: str, version: str) -> None:
    """Both page versions and all codecs that pyarrow writes."""
    table = pa.table({"a": np.arange(5000), "t": [f"t{at % 100}" for at in range(5000)]})
    planner = written(
        tmp_path,
        table,
        compression=compression,
        data_page_version=version,
        max_rows_per_page=100,
        write_batch_size=50,
        use_dictionary=["t"],
    )
    store = RangesSeen()
    assert planner.scan("a = 4321", store=store).to_arrow().to_pylist() == [{"a": 4321, "t": "t21"}]
    assert planner.scan("t = 't7' AND a > 4000", columns=("a",)).to_arrow().column("a").to_pylist() == [
        *range(4007, 5000, 100)
    ]


@pytest.mark.parametrize("encoding", ["DELTA_BINARY_PACKED", "BYTE_STREAM_SPLIT"])
def test_other_encodings_are_read(tmp_path: Path, encoding: str) -> None:
    """Whatever encodes a page, its own header says it."""
    table = pa.table({"a": np.arange(3000), "b": np.arange(3000)[::-1].copy()})
    options: dict[str, Any] = {"use_dictionary": False, "column_encoding": {"b": encoding}}
    planner = written(tmp_path, table, max_rows_per_page=100, write_batch_size=50, **options)
    assert planner.scan("a = 1234").to_arrow().to_pylist() == [{"a": 1234, "b": 1765}]


def test_values_come_in_the_types_of_the_table(tmp_path: Path) -> None:
    """Narrower integers and decimals, and times of other units, become what the table says: cut downwards at most."""
    table = pa.table(
        {
            "i": pa.array([1, -2], pa.int32()),
            "d": pa.array([1, -2], pa.int32()).cast(pa.decimal128(12, 2)),
            "t": pa.array([-1, 1999], pa.timestamp("ns", "UTC")),
            "f": pa.array([0.5, -0.0], pa.float32()),
            "x": pa.array([b"ab", b"cd"], pa.binary(2)),
        }
    )
    names = {"i": "int64", "d": "decimal(20,4)", "t": "timestamp(us)", "f": "float64", "x": "binary"}
    schema = Schema.assign([Column(name=name, type=kind) for name, kind in names.items()])
    planner = written(tmp_path, table, schema=schema)
    found = planner.scan().to_arrow()
    assert [str(kind) for kind in found.schema.types] == [
        "int64",
        "decimal128(20, 4)",
        "timestamp[us, tz=UTC]",
        "double",
        "binary",
    ]
    assert found.column("t").cast(pa.int64()).to_pylist() == [-1, 1]
    assert found.column("d").to_pylist() == table.column("d").to_pylist()
    assert planner.scan("t < TIMESTAMP'1970-01-01 00:00:00Z'").count() == 1


def test_old_timestamps_of_96_bits_are_read(tmp_path: Path) -> None:
    """INT96 has no order and no page index of bounds, but its rows are found."""
    values = pa.array([0, 86_400_000_000, -1], pa.timestamp("us"))
    planner = written(tmp_path, pa.table({"a": [1, 2, 3], "t": values}), use_deprecated_int96_timestamps=True)
    found = planner.scan("t >= TIMESTAMP'1970-01-02 00:00:00Z' OR a = 3").to_arrow()
    assert found.column("a").to_pylist() == [2, 3]
    assert found.column("t").cast(pa.int64()).to_pylist() == [86_400_000_000, -1]


def test_a_file_that_was_replaced_is_an_error(tmp_path: Path) -> None:
    """Same name, other bytes: whether or not the size is the same."""
    table = pa.table({"a": np.arange(100)})
    planner = written(tmp_path, table)
    path = tmp_path / "0.parquet"
    scan = planner.scan("a > 5")
    assert scan.to_arrow().num_rows == 94
    data = path.read_bytes()
    path.write_bytes(data[:4] + b"\0" + data[5:])
    os.utime(path, ns=(1, 1))
    with pytest.raises(BlockReplaced):
        scan.to_arrow()
    pq.write_table(pa.table({"a": np.arange(200)}), path)
    for use in (scan.to_arrow, lambda: list(scan.to_batches()), planner.scan("a > 50").count):
        with pytest.raises(BlockReplaced):
            use()
    path.unlink()
    with pytest.raises(ObjectNotFound):
        scan.to_arrow()


def test_a_file_that_is_replaced_while_it_is_read_is_an_error(tmp_path: Path) -> None:
    """What was read before and after belongs to two files: no row of it comes out."""
    planner = written(tmp_path, pa.table({"a": np.arange(100), "b": np.arange(100)}))
    path = tmp_path / "0.parquet"

    class Replacing(RangesSeen):
        def read_range(self, location: str, start: int, length: int) -> bytes:
            data = super().read_range(location, start, length)
            os.utime(path, ns=(len(self.ranges), len(self.ranges)))
            return data

    with pytest.raises(BlockReplaced):
        planner.scan("a > 50", store=Replacing()).to_arrow()


def test_an_index_that_miscounts_its_pages_is_an_error(tmp_path: Path) -> None:
    """The pages' own headers are asked: an index with other rows would give other rows."""
    planner = written(
        tmp_path, pa.table({"a": np.arange(1000), "b": np.arange(1000)}), max_rows_per_page=100, write_batch_size=50
    )
    path = tmp_path / "0.parquet"
    footer = read_footer(FsspecStore(), f"file://{path}")
    location = footer.metadata.row_groups[0].chunks[1].offset_index
    assert location is not None
    data = bytearray(path.read_bytes())
    index = bytes(data[location[0] : location[0] + location[1]])
    at = index.index(b"\x16\xc8\x01\x00")  # the second page begins with row 100
    data[location[0] + at + 1] = 0xC6  # now with row 99
    before = path.stat()
    path.write_bytes(bytes(data))
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    with pytest.raises(CorruptParquet, match="index says"):
        planner.scan("a = 150").to_arrow()


def test_a_scan_that_cannot_be_exact_is_refused(tmp_path: Path) -> None:
    """An unknown function, a column that is not there, no column at all, a failing row: errors, each of its class."""
    planner = written(tmp_path, pa.table({"a": [1, 0], "l": [[1], [2]]}))
    for filter, columns, error in [
        ("a RLIKE 'x.'", None, FilterNotEvaluable),
        ("nothing = 1", None, UnknownColumn),
        (None, ("nothing",), UnknownColumn),
        (None, (), InvalidRequest),
        (None, ("a", "A"), InvalidRequest),
        (None, ("l.element",), InvalidRequest),
        ("10 / a > 1", None, EvaluationFailed),
    ]:
        with pytest.raises(error):
            planner.scan(filter, columns=columns).to_arrow()


def test_batches_come_as_they_are_read(tmp_path: Path) -> None:
    """A scan can be left in the middle; its columns are known before."""
    planner = written(tmp_path, *[pa.table({"a": np.arange(10) + 10 * at}) for at in range(6)])
    scan = planner.scan("a >= 5")
    assert scan.schema == pa.schema([pa.field("a", pa.int64())])
    batches = scan.to_batches()
    assert next(batches).num_rows == 5
    batches.close()
    assert sum(batch.num_rows for batch in scan.to_batches()) == 55
    assert planner.scan("a < 0").to_arrow().schema == scan.schema


def test_near_ranges_are_fetched_together_and_large_ones_in_parts() -> None:
    """Requests cover every range; they are few and bounded."""
    assert requests([(0, 10), (20, 10), (1 << 20, 5)]) == [(0, 30), (1 << 20, 5)]
    large = requests([(100, 20 << 20)])
    assert [size for _, size in large] == [8 << 20, 8 << 20, 4 << 20]
    assert requests([]) == []


def test_no_index_no_statistics_and_empty_files_are_read_whole(tmp_path: Path) -> None:
    """Without any help the rows are the same."""
    tables = [pa.table({"a": np.arange(100)}), pa.table({"a": pa.array([], pa.int64())})]
    planner = written(tmp_path, *tables, write_page_index=False, write_statistics=False)
    assert planner.scan("a = 7 OR a > 97").to_arrow().column("a").to_pylist() == [7, 98, 99]
    assert of_files([tmp_path / "1.parquet"]).scan().to_arrow().num_rows == 0
