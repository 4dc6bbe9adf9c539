"""What is remembered of filters is nothing that the garbage collector looks at: its full collections stop everyone."""

from __future__ import annotations

import gc
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from lamella.snapshot.prune.pipeline import Deferred
from lamella.snapshot.wire import PruneRequest
from support.guarded import SEGMENT, Table, narrow_filter

#: Prunes that are counted, each with literals that were not asked before.
PRUNES = 200
#: Objects that one of them may leave behind for the collector, beside what all of them share.
MAX_EACH = 1
FORMS: dict[str, Callable[[int], Any]] = {
    "range": narrow_filter,
    "value": lambda n: f"user_id = {10**6 + n}",
    "list": lambda n: f"user_id IN ({n}, {n + 7}, {n + 10**6})",
    "pattern": lambda n: f"country LIKE 'c%{n}' OR country LIKE 'c3{n}%'",
    "logic": lambda n: f"NOT (user_id < {n} OR (country = 'c1' AND price IS NULL)) AND user_id <=> {10**6 + n}",
    "functions": lambda n: f"date_trunc('DAY', event_time) = DATE '1970-01-01' AND abs(user_id + {n}) > {n}",
    "decimals": lambda n: f"price * 2 >= {n}.25 AND CAST(price AS DOUBLE) < {n + 0.5}",
    "choice": lambda n: f"coalesce(country, 'x{n}') = 'c2' AND user_id BETWEEN {n} AND {10**6 + n}",
    "unknown": lambda n: f"md5(country) = '{n}' AND user_id > {10**6 + n}",
    "json": lambda n: {
        "type": "and",
        "left": {"type": "gt-eq", "term": "user_id", "value": n},
        "right": {"type": "not-null", "term": "country"},
    },
}


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Table:
    """A table of 20 segments."""
    return Table(tmp_path_factory.mktemp("remembered"), 20 * SEGMENT)


@pytest.fixture(autouse=True)
def only_new() -> Iterator[None]:
    """The collector leaves alone what other tests and modules have made, so that looking takes no second."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


def tracked() -> Counter[str]:
    """The objects that a full collection looks at, by type; tuples of what it need not look at are none."""
    for _ in range(3):  # a tuple is let go of when what it holds was
        gc.collect()
    return Counter(type(each).__name__ for each in gc.get_objects())


@pytest.mark.slow
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.few(3)
def test_prunes_leave_nothing_behind_for_the_collector(table: Table, form: str) -> None:
    """What a filter was read as, what it was bound to, and what it left: all of it is remembered."""
    warehouse = table.opened()

    def ask(number: int) -> None:
        request = PruneRequest(filter=FORMS[form](number), shape="ranges")
        if isinstance(warehouse.find_now(table.pointer, request), Deferred):
            warehouse.find(table.pointer, request)

    for number in range(300, 340):
        ask(number)
    rounds: list[Counter[str]] = []
    for start in (400, 400 + PRUNES, 400 + 2 * PRUNES):  # threads of other tests may make something meanwhile
        before = tracked()
        for number in range(start, start + PRUNES):
            ask(number)
        rounds.append(tracked() - before)
        if rounds[-1].total() <= MAX_EACH * PRUNES + 100:
            break
    assert warehouse.cache_counts()["funnel"].misses >= len(rounds) * PRUNES
    grown = min(rounds, key=Counter.total)
    assert grown.total() <= MAX_EACH * PRUNES + 100, grown.most_common(10)


def test_what_is_remembered_is_answered_as_it_was(table: Table) -> None:
    """The same blocks, stages and reasons; only the times differ, and that it was remembered is said."""
    warehouse = table.opened()
    for form in ("range", "value", "pattern", "unknown"):
        request = PruneRequest(filter=FORMS[form](350), shape="columns")
        first, second = warehouse.prune(table.pointer, request), warehouse.prune(table.pointer, request)
        assert (first.report.from_cache, second.report.from_cache) == (False, True)
        assert first.block_columns == second.block_columns
        assert first.report.not_used == second.report.not_used
        for one, other in zip(first.report.stages, second.report.stages, strict=True):
            assert (one.stage, one.considered, one.kept, one.bytes) == (
                other.stage,
                other.considered,
                other.kept,
                other.bytes,
            )
