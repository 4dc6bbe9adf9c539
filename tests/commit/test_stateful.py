"""Random lives of tables, with faults at any step of reading and writing, beside a model of what they should hold."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

from commit import actions
from commit.subject import TABLES, Subject, matching
from support.faulty_catalog import CatalogFault
from support.faulty_store import Fault

NAMES = st.sampled_from(["t", "u"])
#: What goes wrong with a request: nothing in half of the cases, else one or two calls of the store, or the catalog.
STORE_FAULTS = st.lists(
    st.builds(
        Fault,
        how=st.sampled_from(["before", "after", "partial", "full", "denied"]),
        operation=st.sampled_from([None, None, "put", "read", "read_range", "stat"]),
        nth=st.integers(1, 8),
        times=st.sampled_from([1, 1, 2, 50]),
    ),
    min_size=1,
    max_size=2,
)
CATALOG_FAULTS = st.tuples(st.sampled_from(["statement", "before commit", "after commit"]), st.integers(1, 8))
TROUBLE = st.one_of(st.none(), STORE_FAULTS, CATALOG_FAULTS)
Trouble = None | list[Fault] | tuple[CatalogFault, int]


class Lives(RuleBasedStateMachine):
    """Two names of tables in one service."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(prefix="lamella-lives-"))
        self.subject = Subject(self.folder)
        self.min_value = 0
        actions.create(self.subject, "t")

    def teardown(self) -> None:
        """The whole history still reads, from storage."""
        self.subject.restart()
        for name in self.subject.tables:
            self.subject.check_history(name, self.min_value)
        self.subject.close()
        shutil.rmtree(self.folder)

    def _arm(self, trouble: Trouble) -> None:
        if isinstance(trouble, tuple):
            self.subject.arm(catalog=trouble)
        else:
            self.subject.arm(*(trouble or ()))

    def _some(self, name: str, picks: Sequence[int]) -> list[str]:
        """Different blocks that the table holds now, or held once."""
        ever = sorted({location for blocks in self.subject.tables[name].snapshots.values() for location in blocks})
        now = sorted(self.subject.tables[name].now)
        source = now if now and picks and picks[0] % 4 else ever
        return sorted({source[pick % len(source)] for pick in picks}) if source else []

    @rule(name=NAMES, trouble=TROUBLE)
    def create(self, name: str, trouble: Trouble) -> None:
        """A table, or a conflict."""
        self._arm(trouble)
        actions.create(self.subject, name)

    @rule(name=NAMES, trouble=TROUBLE, really=st.integers(0, 3))
    def drop(self, name: str, trouble: Trouble, really: int) -> None:
        """Rarely, since a long history finds more."""
        if really == 0:
            self._arm(trouble)
            actions.drop(self.subject, name)

    @precondition(lambda self: self.subject.tables)
    @rule(data=st.data(), new=st.integers(0, 3), doubled=st.lists(st.integers(0, 99), max_size=2), trouble=TROUBLE)
    def register(self, data: st.DataObject, new: int, doubled: list[int], trouble: Trouble) -> None:
        """Files, of which some may be there already."""
        name = data.draw(st.sampled_from(sorted(self.subject.tables)))
        now = sorted(self.subject.tables[name].now)
        again = sorted({now[pick % len(now)] for pick in doubled}) if now else []
        if new or again:
            self._arm(trouble)
            actions.register(self.subject, name, new, again)

    @precondition(lambda self: self.subject.tables)
    @rule(
        data=st.data(),
        picks=st.lists(st.integers(0, 99), max_size=4),
        new=st.integers(0, 2),
        stale=st.one_of(st.none(), st.integers(0, 99)),
        trouble=TROUBLE,
    )
    def replace(self, data: st.DataObject, picks: list[int], new: int, stale: int | None, trouble: Trouble) -> None:
        """Blocks for others, read at the current snapshot or an older one."""
        name = data.draw(st.sampled_from(sorted(self.subject.tables)))
        removed = self._some(name, picks)
        if removed or new:
            snapshots = list(self.subject.tables[name].snapshots)
            base = None if stale is None else snapshots[-1 - stale % len(snapshots)]
            self._arm(trouble)
            actions.replace(self.subject, name, removed, new, base)

    @precondition(lambda self: self.subject.tables)
    @rule(data=st.data(), column=st.sampled_from(["b", "c", "d"]), trouble=TROUBLE)
    def add_column(self, data: st.DataObject, column: str, trouble: Trouble) -> None:
        """A column more, or a refusal."""
        name = data.draw(st.sampled_from(sorted(self.subject.tables)))
        self._arm(trouble)
        actions.add_column(self.subject, name, column)

    @precondition(lambda self: self.subject.tables)
    @rule(data=st.data(), trouble=TROUBLE)
    def ask(self, data: st.DataObject, trouble: Trouble) -> None:
        """A question during faults is answered rightly, or with an error of the service; never with a wrong answer."""
        name = data.draw(st.sampled_from(sorted(self.subject.tables)))
        self._arm(trouble)
        answer = self.subject.send("POST", f"{TABLES}/{name}/prune", {"filter": f"a >= {self.min_value}"})
        faults = self.subject.disarm()
        if answer.status_code == 200:
            found = sorted(block["location"] for block in answer.json()["blocks"])
            assert found == matching(self.subject.tables[name].now, self.min_value)
        else:
            assert faults
            assert answer.status_code >= 500

    @rule()
    def restart(self) -> None:
        """A new process."""
        self.subject.restart()

    @rule(by_s=st.integers(-3_000, 3_000))
    def turn_the_clock(self, by_s: int) -> None:
        """Forward or back, up to an hour: less than keys live."""
        self.subject.now_ms += by_s * 1000

    @rule(min_value=st.integers(-5, 300))
    def ask_for_other_rows(self, min_value: int) -> None:
        """Another filter."""
        self.min_value = min_value

    @invariant()
    def tables_hold_what_they_should(self) -> None:
        """All that was acknowledged, nothing else, and every filter as a full scan would have it."""
        for name in self.subject.tables:
            self.subject.check(name, self.min_value)


_QUIET = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much]


@pytest.mark.slow
def test_tables_live_as_the_model_does() -> None:
    """A few short lives."""
    run_state_machine_as_test(
        Lives, settings=settings(max_examples=8, stateful_step_count=15, deadline=None, suppress_health_check=_QUIET)
    )


@pytest.mark.soak
def test_tables_live_long_as_the_model_does() -> None:
    """Hundreds of long lives."""
    examples = int(os.environ.get("LAMELLA_TEST_LIVES", "300"))
    run_state_machine_as_test(
        Lives,
        settings=settings(max_examples=examples, stateful_step_count=50, deadline=None, suppress_health_check=_QUIET),
    )
