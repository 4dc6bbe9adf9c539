"""Filters that files bring answer as those built from the rows do, over every type that pyarrow makes filters of."""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lamella.snapshot.bloom.plain_encoding import domain_of, hashes_in
from lamella.snapshot.bloom.split_block import SplitBlockBloom, xxh64
from lamella.snapshot.expression.bound import Membership
from lamella.snapshot.index import kinds
from lamella.snapshot.index.file_filters import false_positives_of, read_filters, shrunk
from lamella.snapshot.index.kind import FileBuilder
from lamella.snapshot.parquet import read_footer
from lamella.snapshot.parquet.footer import Footer
from lamella.snapshot.schema import Column, DataType, Schema
from lamella.snapshot.storage import FsspecStore
from lamella.snapshot.wire import PruneRequest
from support import generate, index_cases
from support.arrow_files import arrow_table
from support.index_cases import Cells, Opened, claimed, equal, opened, probe
from support.real_tables import RealTable

replace = msgspec.structs.replace
STORE = FsspecStore()
BLOOM = kinds()["bloom"]
TYPES = [name for name in generate.TYPES if name not in ("boolean", "float16")]


def write(path: Path, dtype: DataType, cells: Cells, **options: Any) -> Footer:
    """A file of one column with a filter for each row group of 40 rows; its footer."""
    schema = Schema.assign([Column(name="c", type=str(dtype))])
    settings = {"row_group_size": 40, "bloom_filter_options": {"c": {"ndv": 40, "fpp": 0.01}}, **options}
    pq.write_table(arrow_table(schema, {"c": cells}), path, **settings)
    return read_footer(STORE, f"file://{path}")


def part_of(dtype: DataType, footers: list[Footer], given: dict[str, Any] | None = None) -> Opened:
    """A part over files, none of whose rows is read."""
    options = BLOOM.options(dtype, given or {})
    builder = BLOOM.builder(dtype, options)
    assert isinstance(builder, FileBuilder)
    for footer in footers:
        assert builder.add_file(STORE, footer, 0) is None
    sections, facts = builder.sections()
    return opened("bloom", dtype, options, sections, facts, len(footers))


def different(rng: Random, dtype: DataType, count: int) -> Cells:
    """So many different values, extreme ones among them."""
    found: dict[Any, None] = {}
    for _ in range(20 * count):
        found[index_cases.spread_value(rng, dtype)] = None
    return [value for value in found if value == value][:count]


@pytest.mark.parametrize("integers", [False, True])
@pytest.mark.parametrize("name", TYPES)
def test_filters_of_pyarrow_answer_for_every_type(name: str, integers: bool, tmp_path: Path) -> None:
    """Every value of a file is found by its own filters, in whichever row group it is, and few others are."""
    dtype, rng = generate.dtype_of(name), Random(name)
    cells = different(rng, dtype, 200)
    inside, outside = cells[: len(cells) // 2], cells[len(cells) // 2 :]
    halves = inside[::2], inside[1::2]
    footers = [
        write(tmp_path / f"{at}.parquet", dtype, [*half, None, *half], store_decimal_as_integer=integers)
        for at, half in enumerate(halves)
    ]
    of = probe(part_of(dtype, footers).part)
    for at, half in enumerate(halves):
        for value in half:
            assert claimed(of, equal(dtype, value), [0, 1]).true[at], f"{value} of {name}"
    wrong = sum(int(claimed(of, equal(dtype, value), [0, 1]).true.sum()) for value in outside)
    assert wrong <= max(1, 0.1 * 2 * len(outside))
    listed = Membership(index_cases.leaf_of(dtype), tuple(sorted(outside[:2])), False, True, "c IN (..)")
    assert not claimed(of, listed, [0, 1]).true.all() or wrong


def test_both_zeros_are_found_however_they_were_written(tmp_path: Path) -> None:
    """A file that holds only -0.0 is read for ``= 0.0``, and the other way round; NaN is never looked up."""
    for name in ("float32", "float64"):
        dtype = generate.dtype_of(name)
        footers = [
            write(tmp_path / f"{name}{at}.parquet", dtype, cells)
            for at, cells in enumerate([[-0.0, 5.0], [0.0, 5.0], [7.0, float("nan")]])
        ]
        of = probe(part_of(dtype, footers).part)
        for zero in (0.0, -0.0):
            assert claimed(of, equal(dtype, zero), [0, 1, 2]).true.tolist() == [True, True, False]
        rows = np.arange(3)
        assert of.possible_outcomes(equal(dtype, float("nan")), rows) is None
        assert (
            of.possible_outcomes(Membership(index_cases.leaf_of(dtype), (5.0,), True, False, "c IN (5, NaN)"), rows)
            is None
        )


def test_values_that_a_narrower_file_cannot_hold_are_in_none_of_its_rows(tmp_path: Path) -> None:
    """A table's wider type asks the file in the file's own type; what does not fit that is not there."""
    cases: list[tuple[str, str, Cells, list[tuple[Any, bool]]]] = [
        ("int32", "int64", [1, -5], [(1, True), (-5, True), (1 << 40, False), ((1 << 32) + 1, False)]),
        ("uint8", "int64", [200, 3], [(200, True), (-56, False), (456, False)]),
        ("uint32", "int64", [(1 << 32) - 1], [((1 << 32) - 1, True), (-1, False)]),
        ("float32", "float64", [0.5, generate.single(0.1)], [(0.5, True), (generate.single(0.1), True), (0.1, False)]),
        ("decimal(5,2)", "decimal(20,4)", [150, -1], [(15000, True), (-100, True), (15001, False), (10**19, False)]),
        ("timestamp(ms)", "timestamp(us)", [5], [(5000, True), (5001, False)]),
    ]
    for built, read_as, cells, expected in cases:
        footer = write(tmp_path / "file.parquet", generate.dtype_of(built), cells)
        wide = generate.dtype_of(read_as)
        of = probe(part_of(wide, [footer]).part)
        for value, there in expected:
            assert claimed(of, equal(wide, value), [0]).true.tolist() == [there], f"{value} as {read_as} in {built}"


def test_a_file_whose_times_are_finer_than_the_tables_is_not_taken(tmp_path: Path) -> None:
    """Reading rounds them, so the filter has other values than the rows."""
    footer = write(tmp_path / "file.parquet", generate.dtype_of("timestamp(ns)"), [1_500])
    dtype = generate.dtype_of("timestamp(us)")
    builder = BLOOM.builder(dtype, BLOOM.options(dtype, {}))
    assert isinstance(builder, FileBuilder)
    assert builder.add_file(STORE, footer, 0) == "the file has timestamp(ns), the term is timestamp(us)"
    assert builder.sections()[0]["counts"].tolist() == []


def test_filters_shrink_to_the_rate_that_was_requested() -> None:
    """A filter that is far too large is folded: no key is lost, and the rate stays below the one asked for."""
    domain = "int64/INT64/0"
    large = SplitBlockBloom.sized(1_000_000, 0.001)
    large.insert(hashes_in(domain, list(range(1000))))
    small = shrunk(large.words, 0.01)
    assert len(small) <= 64 < len(large.words) / 100
    assert false_positives_of(small) <= 0.01
    assert SplitBlockBloom(small).contains(hashes_in(domain, list(range(1000)))).all()
    others = SplitBlockBloom(small).contains(hashes_in(domain, list(range(1000, 101_000)))).mean()
    assert others == pytest.approx(false_positives_of(small), rel=0.15)
    assert shrunk(small, 1e-9) is small


def test_blocks_with_files_filters_and_with_ours_lie_in_one_part(tmp_path: Path) -> None:
    """Some blocks bring filters, the rows of others were read; both answer, also after blocks were taken."""
    dtype = generate.dtype_of("int64")
    footer = write(
        tmp_path / "file.parquet", dtype, list(range(100)), bloom_filter_options={"c": {"ndv": 40, "fpp": 1e-9}}
    )
    options = BLOOM.options(dtype, {"false_positives": 1e-6})
    builder = BLOOM.builder(dtype, options)
    assert isinstance(builder, FileBuilder)
    builder.add(index_cases.vector(dtype, list(range(100, 200))))
    builder.end_block()
    assert builder.add_file(STORE, footer, 0) is None
    builder.end_block()  # one without rows
    made = opened("bloom", dtype, options, *builder.sections(), 3)
    again = index_cases.taken(BLOOM, [(made.part, [1]), (made.part, [2, 0])])
    for value in range(0, 200, 7):
        in_file = value < 100
        assert claimed(probe(made.part), equal(dtype, value), [0, 1, 2]).true.tolist() == [not in_file, in_file, False]
        assert claimed(probe(again.part), equal(dtype, value), [0, 1, 2]).true.tolist() == [in_file, False, not in_file]


def spoiled(footer: Footer, change: Callable[[bytearray], None], path: Path) -> None:
    """Overwrite the first filter's bytes in the file."""
    location = footer.metadata.row_groups[0].chunks[0].bloom_filter
    assert location is not None
    data = bytearray(path.read_bytes())
    piece = data[location[0] : location[0] + 32]
    change(piece)
    data[location[0] : location[0] + 32] = piece
    path.write_bytes(data)


@pytest.mark.parametrize(
    ("at", "byte"),
    [
        (2, 0xFF),  # the size
        (3, 0x2C),  # the algorithm's field: an integer instead of a union
        (4, 0x2C),  # the algorithm: another member
        (0, 0xFF),  # the first field
    ],
)
def test_a_filter_with_an_odd_header_says_nothing(at: int, byte: int, tmp_path: Path) -> None:
    """Another algorithm, a size that cannot be, a header that is none: a reason, and the block is read as before."""
    path = tmp_path / "file.parquet"
    footer = write(path, generate.dtype_of("int64"), list(range(10)))
    assert not isinstance(read_filters(STORE, footer, 0), str)
    spoiled(footer, lambda piece: piece.__setitem__(at, byte), path)
    assert isinstance(read_filters(STORE, footer, 0), str)


def test_damaged_headers_never_fail_otherwise(tmp_path: Path) -> None:
    """Whatever stands where a header should be: filters of the size that was asked for, or a reason."""
    path, rng = tmp_path / "file.parquet", Random(13)
    footer = write(path, generate.dtype_of("int64"), list(range(30)))
    whole = path.read_bytes()
    reasons = set()
    for _ in range(400):
        flips = [
            (rng.randrange(20), rng.choice([0, 1, 0x15, 0x1C, 0x7F, 0x80, 0xFF])) for _ in range(rng.randint(1, 4))
        ]

        def spoil(piece: bytearray, flips: list[tuple[int, int]] = flips) -> None:
            for at, byte in flips:
                piece[at] = byte

        spoiled(footer, spoil, path)
        found = read_filters(STORE, footer, 0)
        assert isinstance(found, str) or sum(words.nbytes for _, words in found) < len(whole)
        reasons.add(found if isinstance(found, str) else "")
        path.write_bytes(whole)
    assert len(reasons) >= 3


def test_one_row_group_without_a_filter_makes_the_block_unknown(tmp_path: Path) -> None:
    """A filter speaks for its own row group and for no other."""
    path = tmp_path / "file.parquet"
    footer = write(path, generate.dtype_of("int64"), list(range(100)))
    first, second, third = footer.metadata.row_groups
    lacking = replace(second, chunks=(replace(second.chunks[0], bloom_filter=None),))
    metadata = replace(footer.metadata, row_groups=(first, lacking, third))
    assert read_filters(STORE, replace(footer, metadata=metadata), 0) == "a row group has no filter"
    unmeasured = [
        replace(group, chunks=(replace(group.chunks[0], bloom_filter=(location[0], 0)),))
        for group in (first, second, third)
        if (location := group.chunks[0].bloom_filter) is not None
    ]
    metadata = replace(footer.metadata, row_groups=tuple(unmeasured))
    with_length, without = (read_filters(STORE, each, 0) for each in (footer, replace(footer, metadata=metadata)))
    assert not isinstance(with_length, str)
    assert not isinstance(without, str)
    assert [words.tobytes() for _, words in with_length] == [words.tobytes() for _, words in without]


@pytest.mark.parametrize(
    ("name", "physical", "length"),
    [
        ("boolean", "BOOLEAN", 0),
        ("timestamp(us)", "INT96", 0),
        ("decimal(9,2)", "BYTE_ARRAY", 0),
        ("interval", "FIXED_LEN_BYTE_ARRAY", 12),
        ("float64", "FLOAT", 0),
    ],
)
def test_what_cannot_be_hashed_as_the_writer_did_has_no_domain(name: str, physical: str, length: int) -> None:
    """Booleans, INT96, decimals of any length of bytes: nothing is known."""
    assert domain_of(generate.dtype_of(name), physical, length) is None


@pytest.mark.parametrize(
    ("domain", "value", "encoded"),
    [
        ("decimal(9,2)/INT32/0", -5, [struct.pack("<i", -5)]),
        ("decimal(9,2)/INT64/0", -5, [struct.pack("<q", -5)]),
        ("decimal(9,2)/FIXED_LEN_BYTE_ARRAY/4", -5, [struct.pack(">i", -5)]),
        ("decimal(30,2)/FIXED_LEN_BYTE_ARRAY/16", 1 << 70, [(1 << 70).to_bytes(16, "big")]),
        ("uint8/INT32/0", 200, [struct.pack("<i", 200)]),
        ("uint32/INT32/0", (1 << 32) - 1, [struct.pack("<i", -1)]),
        ("uint64/INT64/0", (1 << 64) - 1, [struct.pack("<q", -1)]),
        ("int8/INT32/0", -3, [struct.pack("<i", -3)]),
        ("float16/FIXED_LEN_BYTE_ARRAY/2", 0.0, [struct.pack("<e", 0.0), struct.pack("<e", -0.0)]),
        ("float32/FLOAT/0", 1.5, [struct.pack("<f", 1.5)]),
        ("uuid/FIXED_LEN_BYTE_ARRAY/16", b"a" * 16, [b"a" * 16]),
    ],
)
def test_values_are_hashed_in_the_files_own_encoding(domain: str, value: Any, encoded: list[bytes]) -> None:
    """By the file's physical type, whatever the table's type is."""
    assert hashes_in(domain, [value]).tolist() == [xxh64(each) for each in encoded]


# --- filters that cannot be those of their chunks ---


def cleared(
    footer: Footer, path: Path, group: int, keep: Callable[[np.ndarray[Any, Any]], np.ndarray[Any, Any]]
) -> None:
    """Write other words into a row group's filter, made of those that are there."""
    location = footer.metadata.row_groups[group].chunks[0].bloom_filter
    assert location is not None
    data = bytearray(path.read_bytes())
    stop = location[0] + location[1]
    size = len(np.frombuffer(data[location[0] : stop], dtype=np.uint8)) // 32 * 32
    words = np.frombuffer(bytes(data[stop - size : stop]), dtype="<u4")
    data[stop - size : stop] = keep(words).astype("<u4").tobytes()
    path.write_bytes(data)


def test_an_empty_filter_beside_values_is_not_believed(tmp_path: Path) -> None:
    """A writer that forgot the values, or wrote what was freed: nothing is known, also without other statistics."""
    path = tmp_path / "file.parquet"
    for options in ({}, {"write_statistics": False}):
        for cells in (list(range(100)), [None, *range(99)]):
            footer = write(path, generate.dtype_of("int64"), cells, **options)
            for group in range(3):
                before = path.read_bytes()
                cleared(footer, path, group, np.zeros_like)
                assert read_filters(STORE, footer, 0) == "a filter has no bit set, and there may be values"
                path.write_bytes(before)
            assert not isinstance(read_filters(STORE, footer, 0), str)


def test_an_empty_filter_of_nulls_is_believed(tmp_path: Path) -> None:
    """No value, no bit; but only where the number of nulls is known, from a writer that counts them rightly."""
    footer = write(tmp_path / "file.parquet", generate.dtype_of("int64"), [None] * 50)
    found = read_filters(STORE, footer, 0)
    assert not isinstance(found, str)
    assert not any(words.any() for _, words in found)
    of = probe(part_of(generate.dtype_of("int64"), [footer]).part)
    assert not claimed(of, equal(generate.dtype_of("int64"), 5), [0]).true.any()
    for created_by in ("parquet-cpp version 1.5.1", "Polars"):
        metadata = replace(footer.metadata, created_by=created_by)
        assert isinstance(read_filters(STORE, replace(footer, metadata=metadata), 0), str), created_by
    footer = write(tmp_path / "file.parquet", generate.dtype_of("int64"), [None] * 50, write_statistics=False)
    assert isinstance(read_filters(STORE, footer, 0), str)


@settings(max_examples=100, deadline=None)
@given(seed=st.integers(0, 2**48))
def test_a_filter_that_lacks_a_bound_of_its_footer_is_not_believed(
    seed: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Whatever bits it has lost: a number that the footer names is found in it, or the filter is not taken."""
    rng = Random(seed)
    name = rng.choice([name for name in TYPES if name not in ("string", "binary", "enum", "json", "bson")])
    dtype, path = generate.dtype_of(name), tmp_path_factory.getbasetemp() / f"{seed}.parquet"
    cells = [value for value in different(rng, dtype, rng.randint(1, 60)) if value != 0]
    if not cells:
        return
    footer = write(path, dtype, cells, row_group_size=1000)
    lost = rng.choice([0.0, 0.02, 0.3, 0.9])
    random = np.random.default_rng(seed)
    cleared(footer, path, 0, lambda words: words & random.choice([0, 0xFFFFFFFF], len(words), p=[lost, 1 - lost]))
    found = read_filters(STORE, footer, 0)
    path.unlink()
    if isinstance(found, str):
        assert lost
        return
    if dtype.name in ("fixed", "uuid"):  # whose bounds may be cut
        return
    (domain, words), *_ = found
    assert SplitBlockBloom(words).contains(hashes_in(domain, [min(cells), max(cells)])).all()


def test_a_filter_of_other_values_is_not_believed(tmp_path: Path) -> None:
    """As when a writer mixes up two columns; bounds that need not be values prove nothing."""
    dtype = generate.dtype_of("string")
    path, other = tmp_path / "file.parquet", tmp_path / "other.parquet"
    footer = write(path, dtype, [b"a", b"b"])
    write(other, dtype, [b"x", b"y"])
    size = footer.metadata.row_groups[0].chunks[0].bloom_filter
    assert size is not None
    data, wrong = bytearray(path.read_bytes()), other.read_bytes()
    data[size[0] : sum(size)] = wrong[size[0] : sum(size)]
    path.write_bytes(data)
    group = footer.metadata.row_groups[0]
    for exact, believed in ((True, False), (False, True), (None, True)):
        statistics = {**(group.chunks[0].statistics or {}), 7: exact, 8: exact}
        given_ = {key: value for key, value in statistics.items() if value is not None}
        chunk = replace(group.chunks[0], statistics=given_)
        metadata = replace(footer.metadata, row_groups=(replace(group, chunks=(chunk,)),))
        found = read_filters(STORE, replace(footer, metadata=metadata), 0)
        assert isinstance(found, str) != believed
    assert read_filters(STORE, read_footer(STORE, f"file://{path}"), 0) == (
        "a filter does not contain the minimum or maximum of the footer"
    )


@pytest.mark.parametrize(
    ("created_by", "believed"),
    [
        ("parquet-go version 18.4.0", False),
        ("parquet-go version 18.5.0", False),
        ("parquet-go version 18.7.0-SNAPSHOT", False),
        ("parquet-go version 19.0.0", False),
        ("parquet-go", False),
        ("github.com/segmentio/parquet-go version 0.0.0(build 6dc5e4bb634a)", False),
        ("github.com/segmentio/parquet-go", False),
        ("github.com/parquet-go/parquet-go version 0.25.1(build )", True),
        ("parquet-mr version 1.17.0 (build fac0c746532e133beb928a7f6a7e57b510b477a1)", True),
        ("parquet-cpp-arrow version 26.0.1", True),
        ("DuckDB version v2.0.0 (build 1234567890)", True),
        ("parquet-rs version 57.0.0", True),
        ("something else", True),
        (None, True),
    ],
)
def test_writers_that_are_known_for_wrong_filters_are_not_believed(
    created_by: str | None, believed: bool, tmp_path: Path
) -> None:
    """None of theirs is read, however it looks, in all versions that cannot be told from a wrong one."""
    footer = write(tmp_path / "file.parquet", generate.dtype_of("int64"), list(range(10)))
    metadata = replace(footer.metadata, created_by=created_by)
    found = read_filters(STORE, replace(footer, metadata=metadata), 0)
    assert isinstance(found, str) != believed
    assert believed or "arrow-go#" in str(found) or "parquet-go#" in str(found)


def test_a_name_that_two_columns_share_with_dots_has_no_filter(tmp_path: Path) -> None:
    """``a.b`` and the field ``b`` of ``a``: writers that know columns by such names write one filter for both."""
    path = tmp_path / "file.parquet"
    wanted = {"ndv": 10, "fpp": 0.01}
    table = pa.table({"a.b": [1], "a": [{"b": 2, "c": 3}]})
    pq.write_table(table, path, bloom_filter_options={"a.b": wanted, "a.c": wanted})
    footer = read_footer(STORE, f"file://{path}")
    found = [read_filters(STORE, footer, leaf) for leaf in range(3)]
    assert [isinstance(each, str) for each in found] == [True, True, False]
    assert "two columns of the file are called 'a.b'" in str(found[0])


@pytest.mark.parametrize("verify", [False, True])
def test_an_index_over_files_with_empty_filters_loses_no_row(verify: bool, tmp_path: Path) -> None:
    """The values are read instead; so they are, whatever the filters, where the footers were not to be believed."""

    def write_empty(table: pa.Table, path: Path) -> None:
        pq.write_table(table, path, bloom_filter_options={"a": {"ndv": 9, "fpp": 0.01}}, write_statistics=False)
        footer = read_footer(STORE, f"file://{path}")
        keep = np.zeros_like if not verify else (lambda words: words & np.uint32(0x0000_0101))
        cleared(footer, path, 0, keep)

    table = RealTable(tmp_path, [pa.table({"a": [1, 2, 3]}), pa.table({"a": [7]})], verify=verify, write=write_empty)
    table.add_index("x", "bloom", "a")
    for value, selected in ((1, 1), (2, 1), (3, 1), (7, 1), (5, 0)):
        answer = table.warehouse.prune(table.pointer, PruneRequest(filter=f"a = {value}"))
        assert len(answer.blocks or ()) == selected, value
