"""Join keys: no block with a row that has a partner is left out, whatever form the keys come in."""

from __future__ import annotations

import math
from random import Random
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from lamella.snapshot.bloom import SplitBlockBloom, key_bytes, key_hashes
from lamella.snapshot.errors import InvalidFilter, InvalidRequest, LimitExceeded, UnknownColumn
from lamella.snapshot.expression import nodes as n
from lamella.snapshot.expression.text import tree_of
from lamella.snapshot.schema import Leaf
from lamella.snapshot.wire import JoinKeys, PruneRequest
from support import generate, stages

SEEDS = st.integers(0, 2**48)
JOINABLE = [kind for kind in generate.TYPES if not kind.startswith("time(")]


def literal_of(leaf: Leaf, key: Any) -> Any:
    """A key as a typed literal of the filter language, exactly."""
    kind = leaf.dtype
    if kind.name == "boolean":
        literal = n.Literal("boolean", bool(key))
    elif kind.is_float:
        literal = n.Literal("double", float(key))
    elif kind.name in ("date",):
        literal = n.Literal("date", key)
    elif kind.name in ("timestamp", "timestamp_ntz"):
        per_second = {"ms": 10**3, "us": 10**6, "ns": 10**9}[kind.unit]
        micros, rest = divmod(key * 10**6, per_second)
        if rest:
            return None
        literal = n.Literal(kind.name, micros)  # type: ignore[arg-type]  # one of the two kinds
    elif kind.is_text:
        literal = n.Literal("string", key.decode())
    elif kind.order == "bytes":
        literal = n.Literal("binary", key)
    elif kind.order == "decimal":
        digits = f"{abs(key):0{kind.scale + 1}d}"
        text = f"{digits[: len(digits) - kind.scale]}.{digits[len(digits) - kind.scale :]}".rstrip(".")
        literal = n.Literal("decimal", "-" + text if key < 0 else text)
    else:
        return int(key)
    tree: Any = tree_of(n.In(n.Ref("x"), (literal,)))
    return tree["values"][0]


def same(left: Any, right: Any) -> bool:
    """Spark's equality of join keys: NaN equals itself, zeros are equal, null equals nothing."""
    if left is None or right is None:
        return False
    if isinstance(left, float) and isinstance(right, float) and math.isnan(left):
        return math.isnan(right)
    return bool(left == right)


def ranges_of(keys: list[Any], rng: Random) -> list[tuple[Any, Any]]:
    """The keys in a few ranges, NaN in its own or at the end of one."""
    ordered = sorted(key for key in keys if key == key)
    cuts = sorted(rng.sample(range(len(ordered)), rng.randint(0, min(2, len(ordered))))) if ordered else []
    pieces = [ordered[start:end] for start, end in zip([0, *cuts], [*cuts, len(ordered)], strict=True)]
    found = [(piece[0], piece[-1]) for piece in pieces if piece]
    nans = [key for key in keys if key != key]
    return found + [(nan, nan) for nan in nans[:1]]


def check_join(seed: int, asks: int = 6) -> int:
    """Check random key sets over one random table; returns how many blocks were left out."""
    rng = Random(seed)
    schema = generate.schema(rng, JOINABLE)
    lake = stages.lake(rng, schema=schema)
    dropped = 0
    for _ in range(asks):
        leaf = rng.choice(schema.leaves())
        pool = [cell for cell in lake.seen[leaf.name] if cell is not None]
        keys = [
            rng.choice(pool) if pool and rng.random() < 0.6 else generate.value(rng, leaf.dtype)
            for _ in range(rng.randint(0, 4))
        ]
        keys = [key for key in keys if literal_of(leaf, key) is not None]
        forms: dict[str, Any] = {}
        if rng.random() < 0.5:
            forms["values"] = tuple(literal_of(leaf, key) for key in keys) + ((None,) if rng.random() < 0.2 else ())
        if rng.random() < 0.5:
            forms["ranges"] = tuple(
                (literal_of(leaf, low), literal_of(leaf, high)) for low, high in ranges_of(keys, rng)
            )
        if not forms or rng.random() < 0.3:
            bloom = SplitBlockBloom.sized(max(1, len(keys)), 0.01)
            if key_bytes(leaf.dtype) is not None and keys:
                bloom.insert(key_hashes(leaf.dtype, keys))
            forms["bloom"] = bloom.to_base64()
        predicate = n.TRUE if rng.random() < 0.5 else generate.predicate(rng, schema, lake.seen, depth=1)
        limit = rng.choice([None, None, 1])
        request = PruneRequest(join=(JoinKeys(column=leaf.name, **forms),), limit=limit)
        answer = lake.warehouse.prune_predicate(lake.pointer, predicate, request)
        assert answer.blocks is not None
        verdicts = {block.location: block.verdict for block in answer.blocks}
        assert "ALL" not in verdicts.values()
        case = f"seed {seed}: {leaf.name} {leaf.dtype} joins {keys} as {forms}"
        for location in lake.rows:
            partners = [row for row in lake.matching(predicate, location) if any(same(row[leaf.name], k) for k in keys)]
            assert location in verdicts or not partners, case
        dropped += len(lake.rows) - len(verdicts)
    return dropped


@settings(max_examples=100, deadline=None)
@given(SEEDS)
@example(0)
def test_a_block_with_a_partner_is_selected(seed: int) -> None:
    """Over random types, statistics and keys, as values, ranges and bloom filters."""
    check_join(seed)


@pytest.mark.soak
def test_many_joins_hold() -> None:
    """Tens of thousands of key sets, no partner lost."""
    dropped = sum(check_join(seed, asks=20) for seed in range(2_500))
    print(f"50000 key sets over 2500 tables: no partner lost, {dropped} blocks left out")
    assert dropped > 10_000


def selected(**forms: Any) -> list[int]:
    """The blocks of a counting table (0..9, 10..19, ...) that keys on ``a`` leave."""
    lake = stages.counting(blocks=12, rows=10, segment_blocks=3)
    answer = lake.warehouse.prune(lake.pointer, PruneRequest(join=(JoinKeys(column="a", **forms),)))
    return [stages.number_of(block.location) for block in answer.blocks or ()]


def bloom_of(*keys: int) -> str:
    """A filter of integers."""
    lake = stages.counting(blocks=1)
    bloom = SplitBlockBloom.sized(len(keys), 1e-6)
    bloom.insert(key_hashes(lake.schema.leaf("a").dtype, keys))
    return bloom.to_base64()


def test_keys_leave_the_blocks_that_may_hold_one() -> None:
    """A set, ranges with gaps (never their hull), and a bloom filter over few enough values."""
    assert selected(values=(5, 115)) == [0, 11]
    assert selected(values=(5, None)) == [0]
    assert selected(values=()) == []
    assert selected(values=(None,)) == []
    assert selected(ranges=((3, 4), (57, 62), (1000, 2000))) == [0, 5, 6]
    assert selected(ranges=((62, 57),)) == []
    assert selected(ranges=((57, 62), (3, 4), (58, 59))) == [0, 5, 6]
    assert selected(bloom=bloom_of(5, 115)) == [0, 11]
    assert selected(ranges=((0, 60),), bloom=bloom_of(5, 115)) == [0]


def test_each_side_is_a_stage_of_the_report() -> None:
    """Join keys rule out segments unopened, then blocks; both are counted."""
    lake = stages.counting(blocks=12, rows=10, segment_blocks=3)
    answer = lake.warehouse.prune(lake.pointer, PruneRequest(join=(JoinKeys(column="a", values=(5,)),)))
    counted = {stage.stage: (stage.considered, stage.kept) for stage in answer.report.stages}
    assert counted == {"snapshot": (1, 1), "segment": (4, 4), "segment-join": (4, 1), "block": (3, 3), "join": (3, 1)}


def test_a_form_that_cannot_be_used_is_reported_and_keeps() -> None:
    """Floats have no bloom filter: nothing is left out, and the report says so."""
    lake = stages.counting(blocks=2)
    join = (JoinKeys(column="x", bloom=bloom_of(1)),)
    answer = lake.warehouse.prune(lake.pointer, PruneRequest(join=join))
    assert len(answer.blocks or ()) == 2
    assert [use.predicate for use in answer.report.not_used] == ["join on x by bloom"]


@pytest.mark.parametrize(
    ("keys", "error"),
    [
        (JoinKeys(column="a"), InvalidRequest),
        (JoinKeys(column="l", values=(1,)), InvalidRequest),
        (JoinKeys(column="nowhere", values=(1,)), UnknownColumn),
        (JoinKeys(column="a", bloom="AAAA"), InvalidRequest),
        (JoinKeys(column="a", values=({"type": "what"},)), InvalidFilter),
        (JoinKeys(column="a", ranges=((1, None),)), InvalidRequest),
        (JoinKeys(column="a", ranges=((1, 2),) * 100_001), LimitExceeded),
    ],
)
def test_keys_that_make_no_sense_are_refused(keys: JoinKeys, error: type[Exception]) -> None:
    """By the error that names the mistake."""
    lake = stages.counting(blocks=1)
    with pytest.raises(error):
        lake.warehouse.prune(lake.pointer, PruneRequest(join=(keys,)))
