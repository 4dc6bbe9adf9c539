"""The checker of histories finds each anomaly in a history that has it, and none in histories that ran one by one."""

from __future__ import annotations

import random
from collections import defaultdict

import pytest

from support.list_append import Append, Outcome, Read, Transaction, components, find_anomalies

QUIET_S = 1_000.0


def ran(
    number: int,
    *operations: Append | Read,
    began_s: float = 0.0,
    ended_s: float = 100.0,
    outcome: Outcome = "committed",
) -> Transaction:
    """A transaction; by default all run at the same time."""
    return Transaction(number, operations, began_s, ended_s, outcome)


def last_reads(number: int, **lists: tuple[int, ...]) -> Transaction:
    """The reads after everything else."""
    reads = tuple(Read(key, values) for key, values in lists.items())
    return Transaction(number, reads, QUIET_S + 1, QUIET_S + 2)


def a(key: str, value: int) -> Append:
    """An append."""
    return Append(key, value)


def r(key: str, *values: int) -> Read:
    """A read."""
    return Read(key, values)


ANOMALIES: dict[str, list[Transaction]] = {
    "G0": [ran(1, a("x", 1), a("y", 1)), ran(2, a("x", 2), a("y", 2)), last_reads(3, x=(1, 2), y=(2, 1))],
    "G1a": [ran(1, a("x", 1), outcome="failed"), ran(2, r("x", 1))],
    "G1b": [ran(1, a("x", 1), a("x", 2)), ran(2, r("x", 1)), last_reads(3, x=(1, 2))],
    "G1c": [ran(1, a("x", 1), r("y", 2)), ran(2, a("y", 2), r("x", 1)), last_reads(3, x=(1,), y=(2,))],
    "G-single": [
        ran(1, a("x", 1), a("y", 1)),
        ran(2, r("x", 1), r("y")),  # half of a transaction
        last_reads(3, x=(1,), y=(1,)),
    ],
    "G2": [ran(1, r("x"), a("y", 1)), ran(2, r("y"), a("x", 2)), last_reads(3, x=(2,), y=(1,))],  # write skew
    "G0-realtime": [
        ran(1, a("x", 1), ended_s=1),
        ran(2, a("x", 2), began_s=2, ended_s=3),
        last_reads(3, x=(2, 1)),
    ],
    "G1c-realtime": [ran(1, r("x", 2), ended_s=1), ran(2, a("x", 2), began_s=2, ended_s=3), last_reads(3, x=(2,))],
    "G-single-realtime": [  # a stale read
        ran(1, a("x", 1), ended_s=1),
        ran(2, r("x"), began_s=2, ended_s=3),
        last_reads(3, x=(1,)),
    ],
    "G2-realtime": [
        ran(1, r("x"), began_s=2),
        ran(2, a("x", 2), a("z", 2)),
        ran(3, r("z", 2), r("y")),
        ran(4, a("y", 4), ended_s=1),
        last_reads(5, x=(2,), y=(4,), z=(2,)),
    ],
    "lost": [ran(1, a("x", 1)), ran(2, a("x", 2)), last_reads(3, x=(2,))],
    "torn": [ran(1, a("x", 1), a("y", 1), outcome="unknown"), last_reads(2, x=(1,), y=())],
    "doubled": [ran(1, a("x", 1)), last_reads(2, x=(1, 1))],
    "garbage": [ran(1, a("x", 1)), last_reads(2, x=(1, 7))],
    "incompatible-order": [ran(1, a("x", 1)), ran(2, a("x", 2)), ran(3, r("x", 2)), last_reads(4, x=(1, 2))],
    "internal": [ran(1, r("x"), a("x", 1), r("x", 1, 2)), ran(2, a("x", 2)), last_reads(3, x=(1, 2))],
}


#: Anomalies of a cycle that come with others.
TOGETHER = {"G1b": {"G1b", "G-single"}}


@pytest.mark.parametrize("kind", ANOMALIES)
def test_each_anomaly_is_found_and_named(kind: str) -> None:
    """In a history that has this one, and no other."""
    found = find_anomalies(ANOMALIES[kind], quiet_s=QUIET_S)
    assert {each.kind for each in found} == TOGETHER.get(kind, {kind})
    assert all(each.text for each in found)


def test_a_cycle_is_shown_by_its_edges() -> None:
    """With the transactions on it."""
    [found] = find_anomalies(ANOMALIES["G2"], quiet_s=QUIET_S)
    assert found.text.startswith(("T1 -rw-> T2 -rw-> T1; ", "T2 -rw-> T1 -rw-> T2; "))
    [found] = find_anomalies(ANOMALIES["G2-realtime"], quiet_s=QUIET_S)
    assert {"T4 -rt-> T1" in found.text, "T2 -wr-> T3" in found.text} == {True}


OUTCOMES: tuple[Outcome, ...] = ("committed", "failed", "unknown")


class SerialHistory:
    """Random transactions that ran one by one, each at a moment between its begin and its end."""

    def __init__(self, rng: random.Random, count: int) -> None:
        self.lists: dict[str, tuple[int, ...]] = defaultdict(tuple)
        self.transactions: list[Transaction] = []
        self._rng = rng
        self._values = iter(range(1_000_000))
        moments = sorted(rng.uniform(0, 100) for _ in range(count))
        for number, at_s in enumerate(moments):
            outcome: Outcome = rng.choices(OUTCOMES, (8, 1, 1))[0]
            happens = outcome == "committed" or (outcome == "unknown" and rng.random() < 0.5)
            operations = tuple(self._operations(happens=happens))
            began_s, ended_s = at_s - rng.expovariate(0.3), at_s + rng.expovariate(0.3)
            self.transactions.append(Transaction(number, operations, began_s, ended_s, outcome))
        reads = tuple(Read(key, values) for key, values in self.lists.items())
        self.transactions.append(Transaction(count, reads, QUIET_S + 1, QUIET_S + 2))

    def _operations(self, *, happens: bool) -> list[Append | Read]:
        done: list[Append | Read] = []
        before = dict(self.lists)
        for _ in range(self._rng.randint(1, 6)):
            key = f"k{self._rng.randrange(5)}"
            if self._rng.random() < 0.5:
                append = Append(key, next(self._values))
                done.append(append)
                self.lists[key] += (append.value,)
            else:
                done.append(Read(key, self.lists[key]))
        if not happens:
            self.lists.clear()
            self.lists.update(before)
        return done


@pytest.mark.parametrize("seed", range(30))
def test_a_serial_history_has_no_anomaly(seed: int) -> None:
    """Whatever failed, or was left unknown, in it."""
    rng = random.Random(seed)
    history = SerialHistory(rng, rng.choice((3, 20, 200))).transactions
    rng.shuffle(history)
    assert find_anomalies(history, quiet_s=QUIET_S) == []


@pytest.mark.parametrize("seed", range(40))
def test_a_change_of_a_serial_history_is_found(seed: int) -> None:
    """A read of a longer list that misses its end, has a value too many, or two values the other way round."""
    rng = random.Random(seed)
    history = SerialHistory(rng, 60).transactions
    long = [
        (each, position)
        for each in history[:-1]
        for position, operation in enumerate(each.operations)
        if each.outcome == "committed" and isinstance(operation, Read) and len(operation.values) > 5
    ]
    changed, position = rng.choice(long)
    key, values = changed.operations[position]
    assert isinstance(values, tuple)
    other = rng.choice((values[: len(values) // 2], (*values[:2], -1, *values[2:]), (*values[:-2], *values[:-3:-1])))
    operations = (*changed.operations[:position], Read(key, other), *changed.operations[position + 1 :])
    # It began after all others of the first half had ended, so that an old read is an anomaly.
    history[history.index(changed)] = changed._replace(operations=operations, began_s=200.0, ended_s=201.0)
    assert find_anomalies(history, quiet_s=QUIET_S)


def test_long_chains_do_not_need_recursion() -> None:
    """A cycle through ten thousand nodes is one group."""
    count = 10_000
    ring = {node: [(node + 1) % count] for node in range(count)}
    assert [len(each) for each in components(ring, range(count))] == [count]
    del ring[count - 1][:]
    assert components(ring, range(count)) == []


def test_a_value_that_is_appended_twice_is_refused() -> None:
    """The history would not say who came first."""
    with pytest.raises(ValueError, match="appended twice"):
        find_anomalies([ran(1, a("x", 1)), ran(2, a("x", 1))], quiet_s=QUIET_S)
