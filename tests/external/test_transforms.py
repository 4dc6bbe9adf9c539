"""Iceberg's partition transforms bound the columns of files that have no statistics."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Sequence
from contextlib import suppress
from decimal import Decimal
from pathlib import Path
from typing import Any, Final
from uuid import UUID

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from pyiceberg import transforms, types
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema as IcebergSchema
from pyiceberg.table import Table
from pyiceberg.typedef import Record

from external.test_iceberg import Make, follow, make
from lamella.client import Lamella
from lamella.snapshot.schema import parse_type
from lamella.snapshot.schema.types import factor
from lamella.snapshot.source.transforms import transform_range
from lamella.snapshot.stats import ColumnStats
from lamella.snapshot.stats.bucket import MAX_BUCKETS, bucket_of, has_bucket
from lamella.snapshot.stats.column import widened
from support.sources import rows_of

assert make  # a fixture

_TIMES: Final[tuple[Any, ...]] = (
    transforms.YearTransform(),
    transforms.MonthTransform(),
    transforms.DayTransform(),
    transforms.HourTransform(),
)
_MICROS: Final = st.integers(-(62_135_596_800 * 10**6), 253_402_300_799 * 10**6)
_DAYS: Final = st.integers(-719_162, 2_932_896)


def check(kind: str, transform: Any, iceberg_type: Any, value: Any) -> None:
    """The range of the transformed value has the value."""
    result = transform.transform(iceberg_type)(value)
    low, high = (byte_range if kind == "binary" else int_range)(kind, str(transform), result)
    assert low is None or low <= value, (transform, value, result, low)
    assert high is None or value <= high, (transform, value, result, high)


@given(value=_MICROS)
@settings(max_examples=300)
def test_times_are_in_the_range_of_their_transform(value: int) -> None:
    """As pyiceberg transforms them; also as Iceberg's first writers did, which rounded up before 1970."""
    for transform in _TIMES:
        check("timestamp(us)", transform, types.TimestamptzType(), value)
        result = transform.transform(types.TimestamptzType())(value)
        low, high = int_range("timestamp(us)", str(transform), result)
        assert low is None or high is None or low < high
        assert result is not None
        if result < 0:
            low, _ = int_range("timestamp(us)", str(transform), result + 1)
            assert low is None or low <= value


@given(value=_DAYS)
@settings(max_examples=300)
def test_dates_are_in_the_range_of_their_transform(value: int) -> None:
    """Years, months and days."""
    for transform in _TIMES[:3]:
        check("date", transform, types.DateType(), value)


def test_ranges_are_as_narrow_as_the_transform() -> None:
    """From its first value to its last."""
    day_us, hour_us = 86_400 * 10**6, 3_600 * 10**6
    at = parse_type("timestamp_ntz(us)")
    assert transform_range(at, "day", 3) == (3 * day_us, 4 * day_us - 1)
    assert transform_range(at, "day", dt.date(1970, 1, 4)) == (3 * day_us, 4 * day_us - 1)
    assert transform_range(at, "hour", 5) == (5 * hour_us, 6 * hour_us - 1)
    assert transform_range(at, "hour", -5) == (-6 * hour_us, -4 * hour_us - 1)
    assert transform_range(parse_type("timestamp(ms)"), "hour", 5) == (5 * 3_600_000, 6 * 3_600_000 - 1)
    assert transform_range(parse_type("date"), "month", 1) == (31, 58)
    assert transform_range(parse_type("date"), "year", 2) == (730, 1095)
    assert transform_range(parse_type("int32"), "truncate[10]", -10) == (-10, -1)
    assert transform_range(parse_type("decimal(9,2)"), "truncate[50]", Decimal("-11.00")) == (-1100, -1051)
    assert transform_range(parse_type("string"), "truncate[3]", "abc") == (b"abc", b"abd")
    assert transform_range(parse_type("string"), "truncate[3]", "ab") == (b"ab", b"ab")
    assert transform_range(parse_type("string"), "identity", "ä") == ("ä".encode(), "ä".encode())
    assert transform_range(parse_type("binary"), "truncate[2]", b"\xff\xff") == (b"\xff\xff", None)


@pytest.mark.parametrize(
    ("kind", "transform", "value"),
    [
        ("int64", "bucket[16]", 3),
        ("int64", "void", None),
        ("int64", "new[3]", 3),
        ("int32", "truncate[10]", 2_147_483_646),  # of -2147483648, whose result wraps around
        ("int32", "truncate[10]", 7),
        ("int64", "day", 3),
        ("date", "hour", 3),
        ("string", "truncate[3]", 5),
        ("float64", "identity", 1.0),
        ("string", "identity", "x" * 65),
        ("string", "identity", 7),
        ("int32", "identity", 2**31),
        ("int64", "identity", dt.datetime(2024, 1, 1, tzinfo=dt.UTC)),
        ("timestamp(us)", "day", 2**40),
        ("string", "truncate[400]", "x" * 400),
        ("date", "year", 10_000),
        ("date", "month", 10**12),
    ],
)
def test_what_says_nothing_bounds_nothing(kind: str, transform: str, value: Any) -> None:
    """Hashes, unknown transforms, and values that cannot be meant."""
    assert transform_range(parse_type(kind), transform, value) == (None, None)


_BUCKETED: Final[dict[str, tuple[Any, st.SearchStrategy[Any]]]] = {
    "int32": (types.IntegerType(), st.integers(-(2**31), 2**31 - 1)),
    "int64": (types.LongType(), st.integers(-(2**63), 2**63 - 1)),
    "date": (types.DateType(), _DAYS),
    "time(us)": (types.TimeType(), st.integers(0, 86_399_999_999)),
    "timestamp(us)": (types.TimestamptzType(), _MICROS),
    "timestamp_ntz(us)": (types.TimestampType(), _MICROS),
    "string": (types.StringType(), st.text(max_size=20)),
    "binary": (types.BinaryType(), st.binary(max_size=20)),
    "fixed(5)": (types.FixedType(5), st.binary(min_size=5, max_size=5)),
    "uuid": (types.UUIDType(), st.uuids()),
    "decimal(38,7)": (types.DecimalType(38, 7), st.integers(1 - 10**38, 10**38 - 1)),
}


@pytest.mark.parametrize("kind", _BUCKETED)
def test_buckets_are_those_of_iceberg(kind: str) -> None:
    """Of every type that has any, as pyiceberg computes them."""
    iceberg_type, strategy = _BUCKETED[kind]
    dtype = parse_type(kind)

    @given(value=strategy, count=st.integers(1, 2**31 - 1))
    @settings(max_examples=200)
    def check_bucket(value: Any, count: int) -> None:
        given_value = value
        if dtype.name == "decimal":
            given_value = Decimal((int(value < 0), tuple(map(int, str(abs(value)))), -dtype.scale))
        ordered = value.encode() if isinstance(value, str) else value.bytes if isinstance(value, UUID) else value
        wanted = transforms.BucketTransform(count).transform(iceberg_type)(given_value)
        assert bucket_of(dtype, ordered, count) == wanted

    assert has_bucket(dtype)
    check_bucket()


@given(data=st.data(), count=st.integers(1, 100))
@settings(max_examples=300)
def test_a_bucket_stays_where_values_keep_their_hash(data: st.DataObject, count: int) -> None:
    """As a column becomes each type that it may become; elsewhere it is unknown."""
    kinds = [*_BUCKETED, "int8", "int16", "decimal(9,2)", "decimal(12,2)", "decimal(12,4)", "timestamp_ntz(ns)", "json"]
    source, target = (parse_type(data.draw(st.sampled_from(kinds))) for _ in range(2))
    bucket = (count, 0)
    found = widened(ColumnStats(bucket=bucket), source, target).bucket
    assert found in (None, bucket)
    if found is None or source.order == "bytes":
        return
    low, high = source.int_range
    value = data.draw(st.integers(low, high))
    assert bucket_of(source, value, count) == bucket_of(target, value * factor(source, target), count)


@pytest.mark.parametrize(
    ("kind", "value", "hashed"),
    [
        ("int32", 34, 2_017_239_379),
        ("int64", 34, 2_017_239_379),
        ("decimal(9,2)", 1_420, -500_754_589),
        ("date", 17_486, -653_330_422),
        ("time(us)", 81_068_000_000, -662_762_989),
        ("timestamp_ntz(us)", 1_510_871_468_000_000, -2_047_944_441),
        ("timestamp(us)", 1_510_871_468_000_000, -2_047_944_441),
        ("string", b"iceberg", 1_210_000_089),
        ("uuid", UUID("f79c3e09-677c-4bbd-a479-3f349cb785e7").bytes, 1_488_055_340),
        ("fixed(4)", b"\0\1\2\3", -188_683_207),
        ("binary", b"\0\1\2\3", -188_683_207),
    ],
)
def test_hashes_are_those_of_the_specification(kind: str, value: Any, hashed: int) -> None:
    """Those of the examples in appendix B. With the maximum number of buckets, few hashes share a bucket."""
    assert bucket_of(parse_type(kind), value, MAX_BUCKETS) == (hashed & 0x7FFF_FFFF) % MAX_BUCKETS


@given(value=st.integers(-(2**31), 2**31 - 1), width=st.integers(1, 2**31 - 1))
@settings(max_examples=300)
def test_integers_are_in_the_range_of_a_truncation(value: int, width: int) -> None:
    """Also where Java's result wraps around."""
    result = value - (((value % width) + width) % width)
    wrapped = (result + 2**31) % 2**32 - 2**31
    low, high = int_range("int32", f"truncate[{width}]", wrapped)
    assert low is None or low <= value
    assert high is None or value <= high
    check("int64", transforms.TruncateTransform(width), types.LongType(), value)


@given(unscaled=st.integers(-(10**38) + 1, 10**38 - 1), width=st.integers(1, 10_000))
@example(unscaled=10**38 - 1, width=3)
@example(unscaled=-(10**38) + 1, width=7)
@settings(max_examples=200)
def test_decimals_are_in_the_range_of_a_truncation(unscaled: int, width: int) -> None:
    """Of the unscaled value, exactly."""
    result = Decimal(f"{unscaled - unscaled % width}E-7")
    low, high = int_range("decimal(38,7)", f"truncate[{width}]", result)
    assert low is not None
    assert high is not None
    assert low <= unscaled <= high


@given(text=st.text(max_size=8), width=st.integers(1, 6))
@settings(max_examples=300)
def test_text_is_in_the_range_of_a_truncation(text: str, width: int) -> None:
    """By bytes, with characters of any length; the prefix counts characters, in old writers perhaps UTF-16 units."""
    units = text.encode("utf-16-le")[: 2 * width]
    prefixes = {text[:width]}
    with suppress(UnicodeDecodeError):  # a character is cut in two
        prefixes.add(units.decode("utf-16-le"))
    for prefix in prefixes:
        low, high = byte_range("string", f"truncate[{width}]", prefix)
        assert low is None or low <= text.encode()
        assert high is None or text.encode() <= high


def byte_range(kind: str, transform: str, value: Any) -> tuple[bytes | None, bytes | None]:
    """The range of a type that is ordered by bytes."""
    low, high = transform_range(parse_type(kind), transform, value)
    assert low is None or isinstance(low, bytes)
    assert high is None or isinstance(high, bytes)
    return low, high


def int_range(kind: str, transform: str, value: Any) -> tuple[int | None, int | None]:
    """The range of a type that is ordered as integers."""
    low, high = transform_range(parse_type(kind), transform, value)
    assert low is None or isinstance(low, int)
    assert high is None or isinstance(high, int)
    return low, high


@given(data=st.binary(max_size=8), width=st.integers(1, 6))
def test_bytes_are_in_the_range_of_a_truncation(data: bytes, width: int) -> None:
    """Also those that end with 0xff."""
    check("binary", transforms.TruncateTransform(width), types.BinaryType(), data)


_DAY: Final = dt.datetime(2024, 3, 1, tzinfo=dt.UTC)
_Row = dict[str, Any]


def day_rows(number: int) -> list[_Row]:
    """Rows of one day, one letter and one decade."""
    return [
        {"a": number * 10 + i, "s": f"{'kmq'[number % 3]}{i}", "t": _DAY + dt.timedelta(days=number, hours=i)}
        for i in range(4)
    ]


def data_file(source: Table, rows: list[_Row], partition: Sequence[Any], path: Path) -> DataFile:
    """A file of rows without statistics, of a partition of the table."""
    pq.write_table(pa.Table.from_pylist(rows, schema=source.schema().as_arrow()), path, write_statistics=False)
    file = DataFile.from_args(
        content=DataFileContent.DATA,
        file_path=path.as_uri(),
        file_format=FileFormat.PARQUET,
        partition=Record(*partition),
        record_count=len(rows),
        file_size_in_bytes=path.stat().st_size,
    )
    file.spec_id = source.spec().spec_id
    return file


def test_files_without_statistics_are_skipped(lake: Lamella, name: str, make: Make, tmp_path: Path) -> None:
    """By filters on the columns, with the rows of a full scan; the null partition has only nulls."""
    schema = IcebergSchema(
        types.NestedField(1, "a", types.LongType(), required=False),
        types.NestedField(2, "s", types.StringType(), required=False),
        types.NestedField(3, "t", types.TimestamptzType(), required=False),
    )
    spec = PartitionSpec(
        PartitionField(3, 1000, transforms.DayTransform(), "day"),
        PartitionField(2, 1001, transforms.TruncateTransform(1), "letter"),
        PartitionField(1, 1002, transforms.TruncateTransform(10), "decade"),
    )
    source = make(schema, partition_spec=spec)
    every: list[_Row] = []
    with source.transaction() as transaction, transaction.update_snapshot().fast_append() as append:
        for number in range(6):
            rows = day_rows(number) if number else [{"a": 7, "s": None, "t": None}]
            every += rows
            day = None if not number else (_DAY.date() - dt.date(1970, 1, 1)).days + number
            values = (day, "kmq"[number % 3] if number else None, number * 10)
            append.append_data_file(data_file(source, rows, values, tmp_path / f"{number}.parquet"))
    table = follow(lake, name, source)
    assert table.refresh().added == 6
    filters: tuple[tuple[str, int, Callable[[_Row], bool]], ...] = (
        ("a >= 30 AND a < 40", 1, lambda row: 30 <= row["a"] < 40),
        ("a = 42", 1, lambda row: row["a"] == 42),
        ("s = 'q1'", 2, lambda row: row["s"] == "q1"),
        ("s LIKE 'm%'", 2, lambda row: (row["s"] or "").startswith("m")),
        ("t >= '2024-03-05T00:00:00Z'", 2, lambda row: row["t"] is not None and row["t"] >= _DAY + dt.timedelta(4)),
        ("t IS NULL", 1, lambda row: row["t"] is None),
        ("a > 1000", 0, lambda row: row["a"] > 1000),
        ("t IS NOT NULL", 5, lambda row: row["t"] is not None),
    )
    for text, blocks, keeps in filters:
        assert len(table.prune(text).locations) == blocks, text
        wanted = [row for row in every if keeps(row)]
        found = table.scan(text).to_arrow()
        assert [row["a"] for row in rows_of(found)] == [row["a"] for row in rows_of(pa.Table.from_pylist(wanted))], text
    assert table.aggregate(["count(*)", "min(a)"], "a >= 0").complete is False
    assert table.verify().is_clean
    assert table.verify(deep=True).is_clean


def test_files_of_other_buckets_are_skipped(lake: Lamella, name: str, make: Make, tmp_path: Path) -> None:
    """By equality and lists, negated too, with the rows of a full scan; nulls have a partition of their own."""
    schema = IcebergSchema(
        types.NestedField(1, "a", types.LongType(), required=False),
        types.NestedField(2, "s", types.StringType(), required=False),
        types.NestedField(3, "d", types.DecimalType(9, 2), required=False),
    )
    spec = PartitionSpec(
        PartitionField(1, 1000, transforms.BucketTransform(5), "a_bucket"),
        PartitionField(2, 1001, transforms.BucketTransform(2), "s_bucket"),
        PartitionField(3, 1002, transforms.BucketTransform(2), "d_bucket"),
    )
    source = make(schema, partition_spec=spec)
    every: list[_Row] = [
        {
            "a": None if number % 11 == 0 else number,
            "s": None if number % 13 == 0 else f"s{number % 7}",
            "d": None if number % 17 == 0 else Decimal(number % 9).scaleb(-2),
        }
        for number in range(400)
    ]
    of_partition: dict[tuple[Any, ...], list[_Row]] = {}
    fields = [(field.transform, schema.find_field(field.source_id)) for field in spec.fields]
    for row in every:
        key = tuple(transform.transform(field.field_type)(row[field.name]) for transform, field in fields)
        of_partition.setdefault(key, []).append(row)
    with source.transaction() as transaction, transaction.update_snapshot().fast_append() as append:
        for number, (key, rows) in enumerate(of_partition.items()):
            append.append_data_file(data_file(source, rows, key, tmp_path / f"{number}.parquet"))
    table = follow(lake, name, source)
    files = table.refresh().added
    assert files == len(of_partition) > 20
    filters: tuple[tuple[str, float, Callable[[_Row], bool]], ...] = (
        ("a = 42", 1 / 4, lambda row: row["a"] == 42),
        ("a IN (42, 43, NULL)", 1 / 2, lambda row: row["a"] in (42, 43)),
        ("a = 42 AND s = 's0'", 1 / 8, lambda row: row["a"] == 42 and row["s"] == "s0"),
        ("s = 's3'", 2 / 3, lambda row: row["s"] == "s3"),
        ("d = 0.05", 2 / 3, lambda row: row["d"] == Decimal("0.05")),
        ("a = 42 OR s = 's3'", 3 / 4, lambda row: row["a"] == 42 or row["s"] == "s3"),
        ("NOT (a = 42)", 1, lambda row: row["a"] is not None and row["a"] != 42),
        ("a > 42", 1, lambda row: row["a"] is not None and row["a"] > 42),
        ("a = 1000000000000", 1 / 4, lambda row: row["a"] == 10**12),
        ("a IS NULL", 1 / 4, lambda row: row["a"] is None),
    )
    for text, share, keeps in filters:
        assert len(table.prune(text).locations) <= files * share, text
        wanted = [row for row in every if keeps(row)]
        found = table.scan(text).to_arrow()
        assert sorted(map(str, rows_of(found))) == sorted(map(str, wanted)), text
        answer = table.aggregate(["count(*)"], text)
        if answer.complete:
            assert answer.records()[0]["count(*)"] == len(wanted), text
    others = table.prune("NOT (a = 42)", shape="records").blocks
    assert others is not None
    assert sum(block.verdict == "ALL" for block in others) > files / 2
    assert table.verify(deep=True).is_clean
