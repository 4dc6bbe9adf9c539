"""Every single read and write of a mutation fails once, in every way: it happens once or not at all, and is known."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from commit import actions
from commit.subject import Subject
from support.faulty_catalog import CatalogFault
from support.faulty_store import Fault, How

WAYS: tuple[How, ...] = ("before", "after", "partial", "full", "denied")
CATALOG_WAYS: tuple[CatalogFault, ...] = ("statement", "before commit", "after commit")


#: Lets the n-th call of the next request fail in some way.
Arm = Callable[[Subject, int], None]


def _store(way: How) -> Arm:
    return lambda subject, nth: subject.arm(Fault(how=way, nth=nth))


def _catalog(way: CatalogFault) -> Arm:
    return lambda subject, nth: subject.arm(catalog=(way, nth))


def _replace(subject: Subject, name: str) -> None:
    locations = sorted(subject.tables[name].now)
    actions.replace(subject, name, locations[:1], 1, next(reversed(subject.tables[name].snapshots)))


MUTATIONS: dict[str, Callable[[Subject, str], None]] = {
    "register": lambda subject, name: actions.register(subject, name, 1),
    "replace": _replace,
    "schema": lambda subject, name: actions.add_column(subject, name, f"c{len(subject.tables[name].columns)}"),
    "create": actions.create,
    "drop": actions.drop,
}


def _ready(subject: Subject, mutation: str) -> None:
    """What the mutation needs to find: no table, or one with some blocks."""
    if mutation == "create":
        if "t" in subject.tables:
            actions.drop(subject, "t")
        return
    if "t" not in subject.tables:
        actions.create(subject, "t")
    if len(subject.tables["t"].now) < 2:
        actions.register(subject, "t", 2)


def _fail_each(subject: Subject, mutation: str, arm: Arm, *, restart: bool) -> int:
    """Let one call after the other fail in this way, until none is left to; returns how many there were."""
    nth = 0
    while True:
        if restart:
            subject.restart()
        _ready(subject, mutation)
        nth += 1
        arm(subject, nth)
        MUTATIONS[mutation](subject, "t")
        if not (subject.store.happened or subject.catalog_faults.happened):
            return nth - 1


def _check(folder: Path, mutation: str, *, restart: bool) -> int:
    subject = Subject(folder)
    steps = 0
    for arm in (*(_store(way) for way in WAYS), *(_catalog(way) for way in CATALOG_WAYS)):
        subject.restart()
        steps += _fail_each(subject, mutation, arm, restart=restart)
        if "t" in subject.tables:
            subject.check("t", 15)
    if "t" in subject.tables:
        subject.check_history("t", 15)
    subject.close()
    return steps


@pytest.mark.slow
@pytest.mark.parametrize("mutation", MUTATIONS)
@pytest.mark.few(2)
def test_any_step_of_a_mutation_may_fail(tmp_path: Path, mutation: str) -> None:
    """One call after the other fails until none is left to; each time the table is right, before and after."""
    assert _check(tmp_path, mutation, restart=False) >= 5


@pytest.mark.soak
@pytest.mark.parametrize("mutation", MUTATIONS)
def test_any_step_of_a_mutation_may_fail_when_nothing_is_in_memory(tmp_path: Path, mutation: str) -> None:
    """The same when every manifest has to be read from storage first."""
    print(f"{mutation}: {_check(tmp_path, mutation, restart=True)} faults")
