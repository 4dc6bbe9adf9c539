"""The commit protocol, looked at in every order of its steps; and each of its rules is needed."""

from __future__ import annotations

import pytest

from commit.explore import Found, explore
from commit.model import Machine
from commit.state import Guards, Request


def append(tries: int = 1, service: int | None = None) -> Request:
    """A request that adds a block."""
    return Request("append", tries, service)


COMPACT = Request("compact", 1, 1)
ROLLBACK = Request("rollback", 1, 1)

#: Small machines: requests, deaths of services, and whether there is a clean-up.
SMALL = {
    "two appends, one sent twice": Machine((append(2), append(1, 0)), crashes=1),
    "an append sent three times": Machine((append(3),), crashes=1),
    "appends beside a compaction": Machine((append(1, 0), append(1, 1), COMPACT), crashes=1),
    "an append and a clean-up": Machine((append(2),), crashes=1, vacuum=True),
    "a compaction and a clean-up": Machine((append(1, 0), COMPACT), vacuum=True),
    "a rollback and a clean-up": Machine((Request("delete", 1, 0), ROLLBACK), vacuum=True),
    "a compaction that is refused": Machine((Request("compact", 2), Request("delete", 1, 0), ROLLBACK)),
}

#: Without this rule, this happens in one of the machines.
NEEDED = {
    "cas": "a commit was lost, or undone",
    "rebase": "a commit was lost, or undone",
    "conflicts": "a commit was lost, or undone",
    "snapshot_first": "a live object is gone",
    "key_with_swap": "a commit happened twice",
    "key_unique": "a commit happened twice",
    "one_per_key": "a commit happened twice",
    "refusals_stored": "an answer is not true",
    "barred": "a live object is gone",
    "look_again": "a live object is gone",
    "expire_first": "a live object is gone",
    "target_checked": "a live object is gone",
}


def check(found: Found) -> Found:
    """Nothing wrong anywhere, and the requests can all be answered."""
    assert found.wrong is None, "\n".join((found.wrong or "", *found.trace))
    assert found.resolved
    return found


@pytest.mark.slow
@pytest.mark.parametrize("name", SMALL)
def test_no_order_of_the_steps_is_wrong(name: str) -> None:
    """No acknowledged commit is lost or doubled, no live object removed, and every answer is true, in every state."""
    check(explore(SMALL[name]))


def test_every_rule_is_named() -> None:
    """A rule that is added to the machine needs its counterexample here."""
    assert set(NEEDED) == set(Guards._fields)


@pytest.mark.slow
@pytest.mark.parametrize("rule", NEEDED)
@pytest.mark.few(4)
def test_without_a_rule_something_is_wrong(rule: str) -> None:
    """The checker finds a way to what the rule is there to keep out."""
    seen = set()
    for machine in SMALL.values():
        without = Machine(
            machine.requests, crashes=machine.crashes, vacuum=machine.vacuum, guards=Guards(**{rule: False})
        )
        found = explore(without)
        if found.wrong is not None:
            assert found.trace
            seen.add(found.wrong)
    assert NEEDED[rule] in seen


@pytest.mark.soak
def test_three_writers_and_a_compaction_beside_deaths() -> None:
    """Three appends, one of them sent twice, a compaction, and one death of a service; the figures are printed."""
    found = check(explore(Machine((append(2), append(1, 0), append(1, 1), Request("compact", 1, 0)), crashes=1)))
    print(found)


@pytest.mark.soak
def test_three_writers_a_compaction_and_a_clean_up() -> None:
    """Three appends over two services, a compaction, and a clean-up without end; the figures are printed."""
    found = check(explore(Machine((append(1, 0), append(1, 0), append(1, 1), COMPACT), vacuum=True)))
    print(found)
