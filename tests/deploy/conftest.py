"""One stack for the tests of this folder: what docker-compose.yml describes, without Spark, as processes."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from pathlib import Path

import pytest

from support.stacked import Lake, RunningStack

ROOT = Path(__file__).resolve().parent.parent.parent
_STACK = pytest.StashKey[RunningStack]()
_LOG_CHARACTERS = 6_000


@pytest.fixture(scope="session")
def stack(request: pytest.FixtureRequest) -> Iterator[RunningStack]:
    """PostgreSQL, S3, two replicas behind nginx, a worker. Whoever harms one of them waits until it is well again."""
    # not below pytest's own folder, which PostgreSQL's user could not enter
    with RunningStack(ROOT / "build" / "stack-of-tests", "--moto") as running:
        request.config.stash[_STACK] = running
        yield running
        del request.config.stash[_STACK]


@pytest.fixture
def lake(stack: RunningStack) -> Iterator[Lake]:
    """The service through nginx, and files where it can find them."""
    with Lake(stack) as found:
        yield found


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Add the ends of the logs to the report of a failure."""
    report = yield
    running = item.config.stash.get(_STACK, None)
    if report.failed and running is not None:
        for name in running.services():
            report.sections.append((f"log of {name}", running.log(name)[-_LOG_CHARACTERS:]))
    return report
