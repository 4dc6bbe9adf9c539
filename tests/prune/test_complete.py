"""Comparisons over complete statistics take a shorter way to the same result."""

from __future__ import annotations

from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from lamella.snapshot.columnar import Zones, zones_of
from lamella.snapshot.expression import bind, text_of
from lamella.snapshot.prune import evaluate
from support import generate


class Doubted(Zones):
    """Zone maps that are never taken for complete."""

    @property
    def is_complete(self) -> bool:
        """False, so that all is looked at."""
        return False


def check(seed: int) -> int:
    """Compare both ways over one random layer; how many of its columns were complete."""
    rng = Random(seed)
    schema = generate.schema(rng)
    table = generate.table(rng, schema)
    weak = rng.random() < 0.3
    known: dict[object, Zones] = {}
    for leaf in schema.leaves():
        cells = [[each for each in columns[leaf.name] if each == each] or [1] for columns in table]
        stats = generate.weakened_stats if weak else lambda _, dtype, each: generate.exact_stats(dtype, each)
        cells = [[generate.value(rng, leaf.dtype)] if each == [1] else each for each in cells]
        known[leaf] = zones_of(leaf.dtype, [(len(each), stats(rng, leaf.dtype, each)) for each in cells])
    doubted = {leaf: Doubted(zones.low, zones.high, zones.flags) for leaf, zones in known.items()}
    seen = generate.seen_values(schema, table)
    for _ in range(20):
        predicate = generate.predicate(rng, schema, seen)
        bound = bind(predicate, schema)
        one, other = (evaluate(bound, zones.__getitem__, len(table)) for zones in (known, doubted))
        for name in ("true", "false", "null", "doubt"):
            found, expected = getattr(one, name).tolist(), getattr(other, name).tolist()
            assert found == expected, f"seed {seed}: {name} of {text_of(predicate)}"
    return sum(zones.is_complete for zones in known.values())


@settings(max_examples=200, deadline=None)
@given(st.integers(0, 2**48))
def test_nothing_is_lost_where_statistics_are_complete(seed: int) -> None:
    """Over random types, statistics and filters: true, false, null and doubt are the same, entry by entry."""
    check(seed)


def test_many_columns_are_complete() -> None:
    """The random layers above do take the shorter way."""
    assert sum(check(seed) for seed in range(100)) > 50
