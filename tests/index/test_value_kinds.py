"""Value sets, zone maps, keys and stacks: caps, gaps, large parts and filters of very different sizes."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest

from lamella.snapshot.bloom.split_block import SplitBlockBloom
from lamella.snapshot.expression.bound import Membership, NanTest, NonNull, NullTest, Prefix
from lamella.snapshot.index import kinds
from lamella.snapshot.index.keys import sections_of
from lamella.snapshot.index.stacked_filters import OURS, Stack, StackBuilder, filled, number_keys
from lamella.snapshot.schema import parse_type
from support import index_cases
from support.index_cases import Cells, built, claimed, compared, equal, listed, opened, probe

INT = parse_type("int64")
FLOAT = parse_type("float64")
TEXT = parse_type("string")
LEAF = index_cases.leaf_of(INT)


def test_a_value_set_knows_what_rows_do_and_what_they_do_not() -> None:
    """True, false and null are claimed just where a row is so, for ranges, lists and tests of null."""
    of = probe(built(kinds()["value_set"], INT, [[1, 5], [5, None], [7], []]).part)
    rows = range(4)
    above = claimed(of, compared(INT, "gt", 4), rows)
    assert above.lists() == [[True, True, True, False], [True, False, False, False], [False, True, False, False]]
    inside = claimed(of, listed(INT, [1, 5]), rows)
    assert inside.lists() == [[True, True, False, False], [False, False, True, False], [False, True, False, False]]
    null = claimed(of, NullTest(LEAF, "c IS NULL"), rows)
    assert null.lists() == [[False, True, False, False], [True, True, True, False], [False] * 4]
    with_null = claimed(of, Membership(LEAF, (7,), False, True, "c IN (7, NULL)"), rows)
    assert with_null.lists() == [[False, False, True, False], [False] * 4, [True, True, False, False]]


def test_beyond_the_cap_nulls_and_nan_are_still_known() -> None:
    """Of too many values nothing is said, but whether there are nulls and NaN, and what does not depend on values."""
    nan = float("nan")
    blocks: list[Cells] = [[1.0, 2.0, 3.0], [1.0, 2.0, 3.0, None], [1.0, 2.0, 3.0, nan]]
    of = probe(built(kinds()["value_set"], FLOAT, blocks, {"values": 2}).part)
    leaf, rows = index_cases.leaf_of(FLOAT), range(3)
    assert claimed(of, equal(FLOAT, 9.0), rows).lists() == [[True] * 3, [True] * 3, [False, True, False]]
    assert claimed(of, NanTest(leaf, "isnan(c)"), rows).true.tolist() == [False, False, True]
    assert claimed(of, NonNull(leaf, False, "c < -inf"), rows).true.tolist() == [False] * 3
    assert claimed(of, equal(FLOAT, nan), rows).true.tolist() == [False, False, True]
    assert claimed(of, compared(FLOAT, "lt", nan), rows).false.tolist() == [False, False, True]
    short = probe(built(kinds()["value_set"], TEXT, [[b"x" * 17], [b"x" * 16]], {"bytes": 16}).part)
    assert claimed(short, equal(TEXT, b"y"), range(2)).true.tolist() == [True, False]


def test_values_that_cannot_be_decided_may_be_anything() -> None:
    """A pattern is not matched against bytes that are no text: a reader fails there, so nothing is settled."""
    of = probe(built(kinds()["value_set"], TEXT, [[b"ab"], [b"a\xff"], [b"ab", None]]).part)
    test = Prefix(index_cases.leaf_of(TEXT), b"", False, "c LIKE '%b'", (0, "b"))
    assert claimed(of, test, range(3)).lists() == [[True, True, True], [False, True, False], [False, True, True]]


def test_ranges_leave_gaps_open() -> None:
    """A sentinel far away does not hide that nothing lies between; least and greatest alone would."""
    blocks: list[Cells] = [[*range(100), 10**9], [*range(50), *range(1000, 1050)]]
    gaps = probe(built(kinds()["ranges"], INT, blocks).part)
    plain = probe(built(kinds()["minmax"], INT, blocks).part)
    for value, there in ((50, [True, False]), (500, [False, False]), (10**9, [True, False]), (1020, [False, True])):
        assert claimed(gaps, equal(INT, value), range(2)).true.tolist() == there
    assert claimed(plain, equal(INT, 500), range(2)).true.tolist() == [True, True]
    assert claimed(gaps, compared(INT, "ge", 0), range(2)).false.tolist() == [False, False]


def test_long_texts_have_short_bounds() -> None:
    """What is kept of a text is cut, downwards and upwards, and still holds it."""
    long = [b"m" * 500, b"m" * 499 + b"n", b"\xff" * 300]
    of = built(kinds()["minmax"], TEXT, [long[:1], long[:2], long])
    assert of.part.header.sections_bytes < 1500
    for at, value in enumerate(long):
        assert claimed(probe(of.part), equal(TEXT, value), range(3)).true.tolist()[at:] == [True] * (3 - at)
    assert claimed(probe(of.part), equal(TEXT, b"l"), range(3)).true.tolist() == [False] * 3


@pytest.mark.slow
def test_keys_name_just_the_blocks_that_have_a_value() -> None:
    """Every value in its blocks and in no other, also when it lies at a fence or in many blocks."""
    rng = Random(8)
    blocks: list[Cells] = [[rng.randrange(3000) for _ in range(200)] + [-1] for _ in range(100)]
    of = probe(built(kinds()["keys"], INT, blocks, {"records": 16}).part)
    for value in range(-1, 3000):
        wanted = [value in block for block in blocks]
        assert claimed(of, equal(INT, value), range(100)).true.tolist() == wanted
    some = listed(INT, range(-5, 400))
    assert claimed(of, some, range(100)).true.all()
    few = listed(INT, [blocks[3][0], 10**6])
    assert claimed(of, few, range(100)).true.tolist() == [blocks[3][0] in block for block in blocks]


def test_keys_of_more_blocks_than_sixteen_bits_count_are_found() -> None:
    """The record grows where it must."""
    count = (1 << 16) + 10
    numbers = np.arange(count, dtype=np.int64)
    sections = sections_of(number_keys(numbers), numbers, count, 1024)
    part = opened("keys", INT, {"records": 1024}, sections, {}, count).part
    assert part.shape("records") == (count, 6)
    rows = range(count)
    for value in (0, 65_535, 65_536, count - 1):
        assert np.flatnonzero(claimed(probe(part), equal(INT, value), rows).true).tolist() == [value]


def key_sets(rng: Random, sizes: list[int]) -> list[np.ndarray[tuple[int], np.dtype[np.uint64]]]:
    """Keys of blocks, some of them shared."""
    return [
        np.unique(np.array([rng.randrange(5000) if rng.random() < 0.1 else rng.getrandbits(64) for _ in range(size)],
                           dtype=np.uint64))
        for size in sizes
    ]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(6))
def test_a_stack_answers_as_its_filters_one_by_one(seed: int) -> None:
    """Whatever the sizes, from one slot to hundreds, each filter is asked in its own slot."""
    rng = Random(seed)
    sizes = [rng.choice([0, 1, 5, 40, 300, 301, 305, 310, 900, 5000]) for _ in range(rng.randint(1, 40))]
    blocks = key_sets(rng, sizes)
    builder = StackBuilder(0.05, 0)
    for keys in blocks:
        builder.add_block(keys)
    sections, facts = builder.sections()
    made = opened("bloom", INT, {}, sections, facts, len(blocks))
    stack = Stack(made.part)
    probes = np.concatenate([*(keys[:20] for keys in blocks), np.array([rng.getrandbits(64)] * 5, dtype=np.uint64)])
    rows = np.array(sorted(rng.sample(range(len(blocks)), rng.randint(0, len(blocks)))), dtype=np.int64)
    single = {}
    for number, (_, power) in enumerate(facts["classes"]):
        for row, size in zip(sections[f"members.{number}"], sections[f"sizes.{number}"], strict=True):
            assert 1 << power <= size < 2 << power
            single[int(row)] = SplitBlockBloom(filled(blocks[row], int(size)))
    yes = [
        single[row].contains(probes) if row in single else np.zeros(len(probes), dtype=bool) for row in rows.tolist()
    ]
    for at in range(len(probes)):
        some = probes[at : at + 1]
        assert stack.any_of({OURS: some}, rows).tolist() == [bool(each[at]) for each in yes]
    for first in range(0, len(probes), 7):
        several = probes[first : first + 7]
        assert stack.any_of({OURS: several}, rows).tolist() == [bool(each[first : first + 7].any()) for each in yes]
        assert stack.all_of(several, rows).tolist() == [bool(each[first : first + 7].all()) for each in yes]


def test_one_key_reads_one_piece_of_each_stack() -> None:
    """Blocks of equal size: 32 bytes each, in one piece; of unequal ones little more, all in one request."""
    rng = Random(9)
    for sizes, max_bytes in (([2000] * 400, 40), ([rng.randint(1100, 2100) for _ in range(400)], 90)):
        builder = StackBuilder(0.01, 0)
        for keys in key_sets(rng, sizes):
            builder.add_block(keys)
        sections, facts = builder.sections()
        made = opened("bloom", INT, {}, sections, facts, len(sizes))
        stack, rows = Stack(made.part), np.arange(len(sizes))
        stack.any_of({OURS: np.array([1], dtype=np.uint64)}, rows)
        made.reads.clear()
        before = made.part.read_bytes
        stack.any_of({OURS: np.array([1 << 63], dtype=np.uint64)}, rows)
        assert made.part.read_bytes - before <= max_bytes * len(sizes) + 2 * 2 * 16_384
        assert len(made.reads) <= len(facts["classes"])
