"""Registering with ``verify``: what a block claims is what its values say, whatever its footer says."""

from __future__ import annotations

import datetime as dt
import struct
from decimal import Decimal
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lamella.snapshot.manifest import Block
from lamella.snapshot.parquet import ingest, read_footer, schema_of
from lamella.snapshot.parquet.file_values import Unreadable, in_file_type
from lamella.snapshot.schema import Column, Schema
from lamella.snapshot.stats import ColumnStats, from_bound
from lamella.snapshot.storage import FsspecStore
from lamella.snapshot.warehouse import Warehouse
from lamella.snapshot.wire import PruneRequest, RefusedFile
from support import generate
from support.arrow_files import write_block


def register(path: Path, schema: Schema | None = None, *, verify: bool = True) -> tuple[list[Block], list[RefusedFile]]:
    """The block of a file, and the table's schema, which by default is the file's."""
    store = FsspecStore()
    location = f"file://{path}"
    schema = schema if schema is not None else schema_of(read_footer(store, location))
    return ingest(store, [location], schema, workers=1, verify=verify)


def stats_of(path: Path, schema: Schema | None = None) -> ColumnStats:
    """The verified statistics of a file's first column."""
    ((block), refused) = register(path, schema)
    assert refused == []
    return block[0].col_stats[min(block[0].col_stats)]


def selected_blocks(path: Path, filter: str, *, verify: bool) -> int:
    """How many blocks a filter keeps of a table of one file."""
    blocks, _ = register(path, verify=verify)
    schema = schema_of(read_footer(FsspecStore(), f"file://{path}"))
    warehouse = Warehouse(FsspecStore(), "memory://verify")
    table_id = f"{path.stat().st_ino}-{verify}-{abs(hash(filter))}"
    empty = warehouse.create(table_id, schema, now_ms=1)
    pointer = warehouse.commit(empty, added=warehouse.prepare(table_id, schema, blocks), now_ms=2).pointer
    answer = warehouse.prune(pointer, PruneRequest(filter=filter))
    return len(answer.blocks or ())


def lie(path: Path, *changes: tuple[bytes, bytes]) -> None:
    """Exchange bytes of a file's footer for others of the same length."""
    data = path.read_bytes()
    start = len(data) - 8 - int.from_bytes(data[-8:-4], "little")
    footer = data[start:]
    for old, new in changes:
        assert len(old) == len(new)
        assert old in footer
        footer = footer.replace(old, new)
    path.write_bytes(data[:start] + footer)


def deny_nulls(path: Path) -> None:
    """Let the footer of four values, the least 77, say no null instead of two: null count and level histogram."""
    low = struct.pack("<q", 77)
    lie(path, (low + b"\x16\x04", low + b"\x16\x00"), (b"\x26\x04\x04", b"\x26\x00\x08"))


@settings(max_examples=150, deadline=None)
@given(seed=st.integers(0, 2**48))
def test_the_statistics_are_those_of_a_full_scan(seed: int, tmp_path_factory: pytest.TempPathFactory) -> None:
    """For random types, values, encodings and row groups: exact bounds, null counts and NaN, nothing unknown."""
    rng = Random(seed)
    wanted = generate.schema(rng)
    path = tmp_path_factory.getbasetemp() / f"{seed}.parquet"
    for columns in generate.table(rng, wanted, blocks=2, rows=12):
        write_block(rng, wanted, columns, path)
        schema = schema_of(read_footer(FsspecStore(), f"file://{path}"))
        ((block,), refused) = register(path)
        assert refused == []
        for leaf in schema.leaves():
            found = block.col_stats[leaf.id]
            true = generate.exact_stats(leaf.dtype, columns[leaf.name])
            case = f"seed {seed}: {leaf} of {columns[leaf.name]}: {found}"
            assert (found.null_count, found.nan, found.source) == (true.null_count, true.nan, "scan"), case
            assert (found.min_exact, found.max_exact) == (true.min_exact, true.max_exact), case
            for ours, theirs in ((found.min, true.min), (found.max, true.max)):
                assert (ours is None) == (theirs is None), case
                if ours is not None and theirs is not None:
                    assert from_bound(leaf.dtype, ours) == from_bound(leaf.dtype, theirs), case
        path.unlink()


def test_lying_bounds_lose_no_row(tmp_path: Path) -> None:
    """A footer that says 1..6 where 101..106 stand prunes wrongly; the values do not."""
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"a": range(101, 107), "s": [f"word{i}" for i in range(6)]}), path)
    pack = struct.Struct("<q").pack
    lie(path, (pack(101), pack(1)), (pack(106), pack(6)), (b"word0", b"xxxx0"), (b"word5", b"xxxx5"))
    assert (selected_blocks(path, "a > 50", verify=False), selected_blocks(path, "a > 50", verify=True)) == (0, 1)
    assert (selected_blocks(path, "a < 50", verify=False), selected_blocks(path, "a < 50", verify=True)) == (1, 0)
    assert (selected_blocks(path, "s = 'word3'", verify=False), selected_blocks(path, "s = 'word3'", verify=True)) == (
        0,
        1,
    )


def test_lying_null_counts_lose_no_row(tmp_path: Path) -> None:
    """A footer that says that there is no null where there are two."""
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"a": [77, None, 78, None]}), path, column_encoding={"a": "PLAIN"}, use_dictionary=False)
    deny_nulls(path)
    assert (selected_blocks(path, "a IS NULL", verify=False), selected_blocks(path, "a IS NULL", verify=True)) == (0, 1)


def test_the_writers_own_indexes_are_not_named(tmp_path: Path) -> None:
    """A page index may lie as a footer does."""
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"a": range(10)}), path, write_page_index=True)
    ((trusted,), _), ((checked,), _) = register(path, verify=False), register(path)
    assert trusted.page_index_location is not None
    assert checked.page_index_location is None


def test_nan_is_counted_where_footers_are_silent(tmp_path: Path) -> None:
    """pyarrow's footers leave open whether there is NaN; the values do not."""
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"a": [1.0, 2.0]}), path)
    ((trusted,), _) = register(path, verify=False)
    assert trusted.col_stats[1].nan == "maybe"
    assert stats_of(path).nan == "none"
    pq.write_table(pa.table({"a": pa.array([np.nan, None])}), path)
    assert stats_of(path).nan == "all"


def test_int96_timestamps_get_bounds_far_beyond_nanoseconds(tmp_path: Path) -> None:
    """Year 1 and year 9999 do not wrap around; digits below the microsecond are rounded outwards."""
    path = tmp_path / "a.parquet"
    far = pa.array([-62_135_596_800_000_000, 0, 253_402_300_799_999_999], pa.int64()).cast(pa.timestamp("us"))
    pq.write_table(pa.table({"t": far}), path, use_deprecated_int96_timestamps=True)
    ((trusted,), _) = register(path, verify=False)
    assert trusted.col_stats[1].min is None
    stats = stats_of(path)
    assert stats.min is not None
    assert stats.max is not None
    assert stats.min.timestamp_micros == -62_135_596_800_000_000
    assert stats.max.timestamp_micros == 253_402_300_800_000_000  # it may have had more digits

    near = pa.array([1_000, 2_000], pa.int64()).cast(pa.timestamp("ns"))
    pq.write_table(pa.table({"t": near}), path, use_deprecated_int96_timestamps=True)
    stats = stats_of(path)
    assert stats.max is not None
    assert (stats.max.timestamp_micros, stats.max_exact) == (2, True)
    finer = pa.array([1_000, 2_001], pa.int64()).cast(pa.timestamp("ns"))
    pq.write_table(pa.table({"t": finer}), path, use_deprecated_int96_timestamps=True)
    stats = stats_of(path)
    assert stats.max is not None
    assert (stats.max.timestamp_micros, stats.max_exact) == (3, False)


@pytest.mark.parametrize("int96", [True, False])
def test_the_old_calendar_leaves_bounds_unknown(tmp_path: Path, int96: bool) -> None:
    """Days and instants that Spark moves when it reads them bound nothing."""
    path = tmp_path / "a.parquet"
    old = [dt.datetime(1000, 1, 1), dt.datetime(2020, 1, 1)]  # noqa: DTZ001  # wall clock
    table = pa.table({"t": pa.array(old, pa.timestamp("us"))})
    table = table.replace_schema_metadata({"org.apache.spark.legacyDateTime": "", "org.apache.spark.version": "3.5.0"})
    pq.write_table(table, path, use_deprecated_int96_timestamps=int96)
    stats = stats_of(path)
    assert stats.min is None
    assert stats.max is not None
    assert stats.reason == "dates or times of the Julian calendar"


def test_a_decimal_beyond_its_precision_bounds_nothing(tmp_path: Path) -> None:
    """A value that the type cannot hold leaves both sides unknown, and the nulls known."""
    path = tmp_path / "a.parquet"
    words = np.array([1, 0, 10**7, 0], dtype=np.int64)
    array = pa.Array.from_buffers(pa.decimal128(5, 2), 2, [None, pa.py_buffer(words)])
    pq.write_table(pa.table({"d": array}), path, store_schema=False, write_statistics=False)
    stats = stats_of(path)
    assert (stats.min, stats.max, stats.null_count) == (None, None, 0)
    assert stats.reason == "a value is outside the column's type"


def test_bounds_are_in_the_tables_types(tmp_path: Path) -> None:
    """Widened decimals and coarser timestamps: converted exactly, or rounded outwards and marked so."""
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"d": pa.array([Decimal("1.5"), Decimal("2.5")], pa.decimal128(3, 1))}), path)
    stats = stats_of(path, Schema.assign([Column(name="d", type="decimal(10,3)")]))
    assert stats.min is not None
    assert stats.min.decimal == ("1500", 10, 3)
    pq.write_table(pa.table({"t": pa.array([1_500, 2_500], pa.timestamp("ns"))}), path)
    stats = stats_of(path, Schema.assign([Column(name="t", type="timestamp_ntz(us)")]))
    assert stats.min is not None
    assert stats.max is not None
    assert (stats.min.timestamp_micros, stats.min_exact) == (1, False)
    assert (stats.max.timestamp_micros, stats.max_exact) == (3, False)


@pytest.mark.parametrize(
    "array",
    [
        pa.array(["b", None, "a"]).dictionary_encode(),
        pa.array(["b", None, "a"], pa.large_string()),
        pa.array(["b", None, "a"], pa.string_view()),
    ],
)
def test_the_stored_arrow_schema_changes_nothing(tmp_path: Path, array: pa.Array) -> None:
    """Dictionaries and other layouts of the same values give the same statistics."""
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"s": array}), path)
    stats = stats_of(path)
    assert stats.min is not None
    assert stats.max is not None
    assert (stats.min.string, stats.max.string, stats.null_count) == ("a", "b", 1)


def test_nested_and_opaque_columns(tmp_path: Path) -> None:
    """A struct's leaf is null where the struct is; elements of lists say nothing; names with dots are told apart."""
    path = tmp_path / "a.parquet"
    rows = [{"x.y": 1, "x": {"y": 5, "z": [1]}}, {"x.y": 2, "x": None}, {"x.y": 3, "x": {"y": None, "z": []}}]
    schema = pa.schema([("x.y", pa.int64()), ("x", pa.struct([("y", pa.int64()), ("z", pa.list_(pa.int64()))]))])
    pq.write_table(pa.Table.from_pylist(rows, schema=schema), path)
    ((block,), refused) = register(path)
    assert refused == []
    flat, nested, element = (block.col_stats[key] for key in sorted(block.col_stats))
    assert (flat.min, flat.null_count) == (flat.min, 0)
    assert flat.max is not None
    assert nested.max is not None
    assert (flat.max.int64, nested.max.int64, nested.null_count) == (3, 5, 2)
    assert (element.min, element.null_count) == (None, None)


def test_pages_that_contradict_the_footer_are_refused(tmp_path: Path) -> None:
    """A row count that is not the pages', and bytes that were changed."""
    path = tmp_path / "a.parquet"
    count = 77_777

    def varint(number: int) -> bytes:
        return bytes([number & 127 | 128, number >> 7 & 127 | 128, number >> 14])

    table = pa.table({"a": np.arange(count)})
    pq.write_table(table, path)
    lie(path, (varint(2 * count), varint(2 * count + 2)))
    blocks, refused = register(path)
    assert blocks == []
    assert refused[0].code == "corrupt_parquet"
    pq.write_table(table, path, write_page_checksum=True, compression=None, use_dictionary=False)
    data = bytearray(path.read_bytes())
    data[5000] ^= 1
    path.write_bytes(data)
    assert register(path, verify=False)[1] == []
    assert register(path)[1][0].code == "corrupt_parquet"


def test_values_that_are_decoded_as_something_else_are_not_used(tmp_path: Path) -> None:
    """Another unit than the file's own is no ground for a bound."""
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"t": pa.array([1], pa.timestamp("us")), "n": [1]}), path)
    at, number = read_footer(FsspecStore(), f"file://{path}").metadata.schema.leaves
    for leaf, wrong in ((at, pa.array([1], pa.timestamp("ms"))), (at, pa.array([1])), (number, pa.array([1.5]))):
        with pytest.raises(Unreadable):
            in_file_type(leaf, wrong)


def test_a_required_column_with_nulls_is_refused(tmp_path: Path) -> None:
    """The footer says none, the values say otherwise."""
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"a": [77, None, 78, None]}), path, column_encoding={"a": "PLAIN"}, use_dictionary=False)
    deny_nulls(path)
    required = Schema.assign([Column(name="a", type="int64", nullable=False)])
    assert register(path, required, verify=False)[1] == []
    assert register(path, required)[1][0].code == "schema_mismatch"


def _all_claims(block: Block) -> list[Any]:
    return [(stats.min, stats.max, stats.null_count) for stats in block.col_stats.values()]


def test_an_empty_file_claims_nothing_false(tmp_path: Path) -> None:
    """No rows, no values, no nulls."""
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"a": pa.array([], pa.int64())}), path)
    ((block,), _) = register(path)
    assert _all_claims(block) == [(None, None, 0)]
