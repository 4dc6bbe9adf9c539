"""What every kind of index must do, whichever it is: run over all kinds that there are."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt
import pytest

from lamella.snapshot.columnar.keys import filled
from lamella.snapshot.errors import HashMismatch, InvalidRequest
from lamella.snapshot.expression.bound import Anything, BoundTest, leaves_of
from lamella.snapshot.function.base import Vector
from lamella.snapshot.index import Builder, Kind, PossibleOutcomes, Probe, kinds
from lamella.snapshot.index.part import PAGE_BYTES, PartHeader
from lamella.snapshot.schema import DataType
from support import generate, index_cases
from support.index_cases import Cells, built, claimed, probe, taken, vector

NAMES = sorted(kinds())
#: What makes a part built from blocks equal to one put together from others: no filter that only the former has.
PLAIN: dict[str, dict[str, Any]] = {"bloom": {"above_bytes": 0}, "ngram": {"above_bytes": 0}}


def sampled(name: str, seed: int) -> tuple[Random, Kind, DataType, list[Cells]]:
    """A kind with a type that it takes, and blocks of it."""
    rng = Random(f"{name} {seed}")
    kind = kinds()[name]
    dtype = rng.choice(index_cases.types_of(kind))
    return rng, kind, dtype, index_cases.blocks_of(rng, dtype)


def sampled_tests(rng: Random, dtype: DataType, blocks: Sequence[Cells], count: int) -> list[BoundTest]:
    """Predicates over the column."""
    found: list[BoundTest] = []
    for _ in range(count):
        node = index_cases.bound(index_cases.predicate(rng, dtype, blocks), dtype)
        found += [leaf for leaf in leaves_of(node) if isinstance(leaf, BoundTest) and leaf.term is not None]
    return found


@pytest.mark.parametrize("name", NAMES)
def test_a_kind_says_what_it_is_for(name: str) -> None:
    """Its name is a word, and one sentence says what it helps with."""
    kind = kinds()[name]
    assert kind.name == name
    assert name.replace("_", "").isalnum()
    assert 10 < len(kind.text) < 120


@pytest.mark.parametrize("name", NAMES)
def test_options_are_complete_and_checked(name: str) -> None:
    """Defaults are filled in; what is no option, of another type or out of bounds is refused; complete ones stay."""
    kind = kinds()[name]
    dtype = index_cases.types_of(kind)[0]
    whole = kind.options(dtype, {})
    assert whole.keys() == kind.known_options.keys()
    assert kind.options(dtype, whole) == whole
    assert msgspec.json.decode(msgspec.json.encode(whole)) == whole
    with pytest.raises(InvalidRequest, match="no option"):
        kind.options(dtype, {"colour": 1})
    for option, value in whole.items():
        with pytest.raises(InvalidRequest, match=option):
            kind.options(dtype, {option: [value]})
        if not isinstance(value, bool):
            for wrong in (-1, 10**30):
                with pytest.raises(InvalidRequest, match=option):
                    kind.options(dtype, {option: wrong})


@pytest.mark.parametrize("name", NAMES)
def test_types_without_an_order_are_refused(name: str) -> None:
    """Nothing can be compared in them."""
    for text in ("interval", "struct", "list", "geometry", "variant", "decimal(50,2)"):
        with pytest.raises(InvalidRequest, match=name):
            kinds()[name].options(generate.dtype_of(text), {})


@pytest.mark.parametrize("name", NAMES)
def test_what_a_kind_does_not_answer_is_not_claimed(name: str) -> None:
    """Where a kind says that it cannot help, its parts claim nothing of true rows; a reason is given in words."""
    seen = 0
    for seed in range(40):
        rng, kind, dtype, blocks = sampled(name, seed)
        made = built(kind, dtype, blocks)
        for test in sampled_tests(rng, dtype, blocks, 10):
            reason = kind.answers(test, made.part.header.options)
            if reason is None:
                continue
            assert reason
            seen += 1
            if isinstance(test, Anything):
                assert probe(made.part).possible_outcomes(test, np.arange(len(blocks))) is None
    assert seen or name in ("minmax", "value_set", "ranges")


@pytest.mark.parametrize("name", NAMES)
def test_blocks_without_values_are_known_to_have_none(name: str) -> None:
    """A block without rows, and one of nulls alone, equals nothing; a block with the value may."""
    for dtype in index_cases.types_of(kinds()[name]):
        value = b"abcdef" if dtype.is_text else index_cases.spread_value(Random(1), dtype)
        of = probe(built(kinds()[name], dtype, [[], [None, None], [value], [None, value]]).part)
        possible_outcomes = claimed(of, index_cases.equal(dtype, value), [0, 1, 2, 3])
        assert possible_outcomes.true.tolist() == [False, False, True, True]


@pytest.mark.parametrize("name", NAMES)
def test_a_part_without_blocks_can_be_queried(name: str) -> None:
    """Nothing was indexed, so nothing is claimed, of no rows."""
    for dtype in index_cases.types_of(kinds()[name]):
        of = probe(built(kinds()[name], dtype, []).part)
        value = index_cases.spread_value(Random(1), dtype)
        assert claimed(of, index_cases.equal(dtype, value), []).lists() == [[], [], []]


@pytest.mark.parametrize("name", NAMES)
def test_nan_and_both_zeros_are_values_like_others(name: str) -> None:
    """NaN equals itself and is greatest; the zeros are one value, whichever was written."""
    kind = kinds()[name]
    for text in ("float32", "float64"):
        dtype = generate.dtype_of(text)
        if dtype not in index_cases.types_of(kind):
            continue
        blocks: list[Cells] = [[0.0], [-0.0], [float("nan")], [1.0, float("nan")], [None]]
        of = probe(built(kind, dtype, blocks).part)
        rows = range(5)
        for zero in (0.0, -0.0):
            true = claimed(of, index_cases.equal(dtype, zero), rows).true
            assert true[:2].all()
        assert claimed(of, index_cases.equal(dtype, float("nan")), rows).true[2:4].all()
        assert claimed(of, index_cases.compared(dtype, "gt", 5.0), rows).true[2:4].all()
        assert claimed(of, index_cases.compared(dtype, "le", float("nan")), rows).true[:4].all()


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_taken_blocks_answer_as_they_did(name: str) -> None:
    """A part put together from blocks of several claims of them just what one built from their rows does."""
    for seed in range(25):
        rng, kind, dtype, first = sampled(name, seed)
        second = index_cases.blocks_of(rng, dtype)
        options = PLAIN.get(name)
        sources = [(built(kind, dtype, blocks, options).part, blocks) for blocks in (first, second)]
        chosen = [(part, rng.sample(range(len(blocks)), rng.randint(0, len(blocks)))) for part, blocks in sources]
        chosen[0:0] = [(chosen[1][0], chosen[1][1][:1])] if rng.random() < 0.5 else []  # a source may come twice
        blocks_of_part = {id(part): blocks for part, blocks in sources}
        merged = taken(kind, chosen)
        blocks = [blocks_of_part[id(part)][row] for part, rows in chosen for row in rows]
        anew = built(kind, dtype, blocks, options)
        everything = range(len(blocks))
        for test in sampled_tests(rng, dtype, blocks, 15):
            wanted, found = (claimed(probe(each.part), test, everything).lists() for each in (anew, merged))
            assert found == wanted, f"seed {seed}, {name} over {dtype}: {test}"


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_some_rows_are_answered_as_all_are(name: str) -> None:
    """A claim of a block does not depend on which others are asked about."""
    for seed in range(25):
        rng, kind, dtype, blocks = sampled(name, seed)
        part = built(kind, dtype, blocks).part
        rows = sorted(rng.sample(range(len(blocks)), rng.randint(0, len(blocks))))
        for test in sampled_tests(rng, dtype, blocks, 10):
            whole = claimed(probe(part), test, range(len(blocks)))
            assert claimed(probe(part), test, rows).lists() == [mask[rows].tolist() for mask in whole]


@pytest.mark.parametrize("name", NAMES)
def test_batches_and_order_do_not_matter(name: str) -> None:
    """However the rows of a block come in, the same part is built."""
    for seed in range(25):
        rng, kind, dtype, blocks = sampled(name, seed)
        if name == "ranges":  # found batch by batch: all of them are right, none is the only one
            continue
        shuffled = [rng.sample(cells, len(cells)) for cells in blocks]
        assert one_by_one(kind, dtype, shuffled) == built(kind, dtype, blocks).data


def one_by_one(kind: Kind, dtype: DataType, blocks: Sequence[Cells]) -> bytearray:
    """A part's bytes when each row is a batch, with empty batches between them."""
    options = kind.options(dtype, {})
    builder: Builder = kind.builder(dtype, options)
    empty: Vector = vector(dtype, [])
    for cells in blocks:
        for cell in cells:
            builder.add(vector(dtype, [cell]))
            builder.add(empty)
        builder.end_block()
    return index_cases.opened(kind.name, dtype, options, *builder.sections(), len(blocks)).data


@pytest.mark.parametrize("name", NAMES)
def test_the_header_is_json_that_reads_back(name: str) -> None:
    """Kind, type, options and facts go through the object unchanged."""
    _, kind, dtype, blocks = sampled(name, 1)
    header = built(kind, dtype, blocks).part.header
    assert (header.kind, header.dtype, header.block_count) == (name, str(dtype), len(blocks))
    assert msgspec.json.decode(msgspec.json.encode(header), type=PartHeader) == header


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_a_damaged_page_is_noticed(name: str) -> None:
    """One flipped bit anywhere in what a question reads is an error, never an answer."""
    kind = kinds()[name]
    dtype = index_cases.types_of(kind)[-1]
    rng = Random(3)
    blocks = [[index_cases.spread_value(rng, dtype) for _ in range(30)] for _ in range(20)]
    made = built(kind, dtype, blocks)
    size = made.part.header.sections_bytes
    noticed = 0
    for at in range(0, size, max(1, size // 40)):
        damaged = built(kind, dtype, blocks)
        damaged.data[at] ^= 4
        try:
            of = probe(damaged.part)
            found = claimed(of, index_cases.equal(dtype, blocks[7][0]), range(20)).lists()
        except HashMismatch:
            noticed += 1
            continue
        assert found == claimed(probe(made.part), index_cases.equal(dtype, blocks[7][0]), range(20)).lists()
    assert noticed


@pytest.mark.parametrize(("name", "share"), [("bloom", 0.02), ("keys", 0.02), ("ngram", 0.05)])
def test_a_look_up_reads_a_small_share_of_a_large_part(name: str, share: float) -> None:
    """One value of many blocks: the piece that has it, not the part."""
    kind, rng = kinds()[name], Random(4)
    dtype = generate.dtype_of("string")
    blocks = [[rng.randbytes(6).hex().encode() for _ in range(1500)] for _ in range(40)]
    options = {**PLAIN.get(name, {}), **({"n": 5} if name == "ngram" else {})}
    made = built(kind, dtype, blocks, options)
    before = made.part.read_bytes
    predicate = index_cases.equal(dtype, blocks[17][3][: 5 if name == "ngram" else None])
    assert claimed(probe(made.part), predicate, range(40)).true.sum() < 40
    pages = -(-(made.part.read_bytes - before) // PAGE_BYTES)
    assert pages <= max(4, share * made.part.header.sections_bytes / PAGE_BYTES)
    assert len(made.reads) <= 8


@pytest.mark.parametrize("name", NAMES)
def test_a_part_that_lacks_a_row_is_found_out(name: str) -> None:
    """The property tests can fail: they notice a part that was built from fewer rows than the block has."""
    for seed in range(200):
        rng, kind, dtype, blocks = sampled(name, seed)
        of = probe(built(kind, dtype, [cells[1:] for cells in blocks]).part)
        rows = range(len(blocks))
        for _ in range(10):
            predicate = index_cases.predicate(rng, dtype, blocks)
            if index_cases.false_claims(of, dtype, blocks, predicate, rows):
                return
    raise AssertionError("a lie was believed")


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("fault", ["negated", "next block"])
def test_wrong_claims_are_found_out(name: str, fault: str) -> None:
    """The property tests can fail: they notice a claim that was negated, and one of the block before."""
    for seed in range(400):
        rng, kind, dtype, blocks = sampled(name, seed)
        of = Faulty(probe(built(kind, dtype, blocks).part), fault)
        for _ in range(10):
            predicate = index_cases.predicate(rng, dtype, blocks)
            if index_cases.false_claims(of, dtype, blocks, predicate, range(len(blocks))):
                return
    raise AssertionError("a lie was believed")


class Faulty:
    """A probe that makes a mistake."""

    def __init__(self, of: Probe, fault: str) -> None:
        self._of = of
        self._fault = fault

    def possible_outcomes(self, test: BoundTest, rows: npt.NDArray[np.int64]) -> PossibleOutcomes | None:
        """What the probe claims, spoiled."""
        possible_outcomes = self._of.possible_outcomes(test, rows)
        if possible_outcomes is None:
            return None
        true, false = filled(possible_outcomes.true, len(rows)), filled(possible_outcomes.false, len(rows))
        if self._fault == "negated":
            return PossibleOutcomes(~true, ~false, possible_outcomes.null)
        return PossibleOutcomes(np.roll(true, 1), np.roll(false, 1), possible_outcomes.null)
