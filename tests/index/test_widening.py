"""A part that was built before a column was widened answers for the wider type, exactly where that is right."""

from __future__ import annotations

from itertools import product
from random import Random
from typing import Any

import pytest

from lamella.snapshot.expression import nodes as n
from lamella.snapshot.index import kinds
from lamella.snapshot.index.widening import can_serve, narrowed, widened
from lamella.snapshot.schema import parse_type, widens
from lamella.snapshot.schema.types import factor
from support import generate, index_cases
from support.index_cases import Cells, built, claimed, equal, outcome, probe
from support.oracle import Oracle

PAIRS = (
    *(("int8", "int16"), ("int8", "int64"), ("int32", "int64"), ("uint8", "uint32"), ("uint16", "int32")),
    *(("uint32", "int64"), ("uint32", "uint64"), ("float16", "float32"), ("float32", "float64")),
    *(("decimal(5,2)", "decimal(9,2)"), ("decimal(5,2)", "decimal(9,4)"), ("decimal(5,2)", "decimal(38,10)")),
    *(("decimal(18,4)", "decimal(19,4)"), ("decimal(20,2)", "decimal(30,5)"), ("date", "date")),
    *(("timestamp(ms)", "timestamp(us)"), ("timestamp_ntz(us)", "timestamp_ntz(ns)"), ("time(us)", "time(ns)")),
    *(("string", "json"), ("enum", "string"), ("fixed(4)", "binary"), ("uuid", "binary"), ("bson", "binary")),
)
REFUSED = (
    *(("int64", "int32"), ("int8", "uint8"), ("uint64", "int64"), ("float64", "float32"), ("int32", "float64")),
    *(("decimal(9,4)", "decimal(9,2)"), ("decimal(9,2)", "decimal(9,4)"), ("timestamp(us)", "timestamp(ms)")),
    *(("timestamp(us)", "timestamp_ntz(us)"), ("date", "timestamp(us)"), ("string", "binary"), ("binary", "string")),
    *(("int32", "decimal(12,2)"), ("date", "timestamp_ntz(us)")),
    *(("binary", "fixed(4)"), ("boolean", "int8"), ("interval", "binary"), ("list", "string")),
)


@pytest.mark.parametrize(("built_as", "read_as"), PAIRS)
def test_values_go_over_one_by_one_in_order(built_as: str, read_as: str) -> None:
    """Up and down again is the same value; order and equality stay; what the built type lacks has no way down."""
    narrow, wide = parse_type(built_as), parse_type(read_as)
    assert can_serve(narrow, wide)
    rng = Random(built_as + read_as)
    cells = [index_cases.spread_value(rng, narrow) for _ in range(300)]
    cells = [cell for cell in cells if cell == cell and (narrow.name != "timestamp_ntz" or abs(cell) < 9 * 10**15)]
    over = widened(index_cases.vector(narrow, cells), narrow, wide)
    assert over is not None
    up = over.values.to_pylist() if over.is_bytes else over.values.tolist()
    assert narrowed(narrow, wide, up) == cells
    assert sorted(up) == [up[at] for at in sorted(range(len(cells)), key=cells.__getitem__)]
    others = [index_cases.spread_value(rng, wide) for _ in range(300)]
    for other in others:
        assert narrowed(narrow, wide, [other]) == [] or other in up or _is_value(narrow, wide, other)


def _is_value(narrow: Any, wide: Any, other: Any) -> bool:
    """Whether the narrower type has a value of the wider, from the definition of the types alone."""
    if wide.order == "bytes":
        return True
    if wide.order == "float":
        return bool(other == (generate.half(other) if narrow.bits == 16 else generate.single(other)))
    low, high = narrow.int_range
    return bool(other % factor(narrow, wide) == 0 and low <= other // factor(narrow, wide) <= high)


@pytest.mark.parametrize(("built_as", "read_as"), REFUSED)
def test_other_changes_of_type_are_refused(built_as: str, read_as: str) -> None:
    """Where values change, are rounded, or have another order, a part says nothing."""
    assert not can_serve(parse_type(built_as), parse_type(read_as))


def test_only_what_widens_is_served() -> None:
    """Of all pairs of types, none is served that a table's column could not become."""
    types = [*map(parse_type, generate.TYPES), *(parse_type(each) for pair in PAIRS for each in pair)]
    for one, other in product(types, types):
        assert not can_serve(one, other) or widens(one, other)


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(kinds()))
def test_a_part_built_before_a_column_was_widened_has_no_false_skip(name: str) -> None:
    """Asked about the wider type, a part rules out nothing that the rows, read in that type, do."""
    kind = kinds()[name]
    types = index_cases.types_of(kind)
    for built_as, read_as in PAIRS:
        narrow, wide = parse_type(built_as), parse_type(read_as)
        if narrow not in types or "ns" in read_as:  # the oracle's literals have microseconds
            continue
        for seed in range(6):
            rng = Random(f"{name} {built_as} {read_as} {seed}")
            blocks = index_cases.blocks_of(rng, narrow)
            of = probe(built(kind, narrow, blocks).part)
            read = [_as(narrow, wide, cells) for cells in blocks]
            for _ in range(6):
                predicate = index_cases.predicate(rng, wide, read)
                wrong = index_cases.false_claims(of, wide, read, predicate, range(len(blocks)))
                assert not wrong, f"{name}, {built_as} as {read_as}: {wrong}"


@pytest.mark.parametrize("name", ["bloom", "keys", "value_set", "minmax"])
def test_a_part_still_helps_after_widening(name: str) -> None:
    """A value that is in no row, whether the old type has it or not, is ruled out."""
    for built_as, read_as in PAIRS:
        narrow, wide = parse_type(built_as), parse_type(read_as)
        value = generate.value(Random(5), narrow)
        of = probe(built(kinds()[name], narrow, [[value], [None]], {}).part)
        (there,) = _as(narrow, wide, [value])
        assert claimed(of, equal(wide, there), [0, 1]).true.tolist() == [True, False]


def test_a_part_of_another_type_says_nothing() -> None:
    """Asked about a type that it cannot serve, a probe does not tell, and does not fail."""
    for name, kind in kinds().items():
        narrow = parse_type("string") if parse_type("string") in index_cases.types_of(kind) else parse_type("int64")
        wide = parse_type("binary") if narrow.is_text else parse_type("int32")
        value = b"abcdef" if narrow.is_text else 5
        of = probe(built(kind, narrow, [[value]]).part)
        found = outcome(equal(wide, value), of, [0])
        assert [bool(mask) for mask in (found.true, found.false, found.null)] == [True, True, True], name


def test_the_oracle_reads_the_wider_type() -> None:
    """The comparison above is with rows of the wider type: 1.50 there is 1.5000."""
    wide = parse_type("decimal(9,4)")
    assert _as(parse_type("decimal(5,2)"), wide, [150, None]) == [15000, None]
    schema = index_cases.schema_of(wide)
    node = n.Compare("eq", n.Ref("c"), generate.literals(wide, 15000)[0])
    assert Oracle(schema).decide(node, {"c": 15000}) is True


def _as(narrow: Any, wide: Any, cells: Cells) -> Cells:
    times = 1 if narrow.order in ("bytes", "float") else factor(narrow, wide)
    return [None if cell is None else cell * times if times != 1 else cell for cell in cells]
