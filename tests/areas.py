"""Progress by area: a line when all tests of a folder below tests/ have run. A pytest plugin.

It speaks only where the session reports to a terminal or a log, not in the processes of pytest-xdist.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

import pytest


def area_of(nodeid: str) -> str:
    """The folder below tests/ that a test is in, or its module where it is in none."""
    parts = nodeid.partition("::")[0].split("/")
    parts = parts[1:] if parts[0] == "tests" else parts
    return parts[0].removesuffix(".py")


class Progress:
    """Counts what has run of each area."""

    def __init__(self, reporter: Any) -> None:
        self._reporter = reporter
        self._left: Counter[str] = Counter()
        self._ran: Counter[str] = Counter()
        self._failed: Counter[str] = Counter()
        self._ms: Counter[str] = Counter()

    def _begin(self, nodeids: Iterable[str]) -> None:
        if not self._left:
            self._left.update(map(area_of, nodeids))
            self._areas, self._tests = len(self._left), self._left.total()

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        self._begin(item.nodeid for item in session.items)

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_node_collection_finished(self, ids: list[str]) -> None:
        self._begin(ids)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        area = area_of(report.nodeid)
        self._ms[area] += round(report.duration * 1_000)
        self._failed[area] += report.failed
        if report.when != "teardown":
            return
        self._ran[area] += 1
        self._left[area] -= 1
        if self._left[area] == 0:
            self._report(area)

    def _report(self, area: str) -> None:
        done = sum(left <= 0 for left in self._left.values())
        failed = f", {self._failed[area]:,} FAILED" if self._failed[area] else ""
        self._reporter.write(
            f"\n{area}: {self._ran[area]:,} tests in {self._ms[area] / 1_000:,.0f} s{failed}"
            f" ({done} of {self._areas} areas, {self._ran.total():,} of {self._tests:,} tests)\n"
        )


@pytest.hookimpl(trylast=True)  # the reporter is registered in this hook
def pytest_configure(config: pytest.Config) -> None:
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    if reporter is not None and not hasattr(config, "workerinput"):
        config.pluginmanager.register(Progress(reporter))
