"""Every code block of README.md and docs/ does what it says."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from docs import scenes  # noqa: F401  # it registers what pages need
from docs.fenced import fences, pages
from docs.not_run import NOT_RUN
from docs.runner import Runner, stale
from docs.scene import SCENES
from docs.stage import Stage
from fixtures_server import ServerProcess, environment_of

#: More than this and the list has become a habit.
LONGEST_LIST = 25


@pytest.fixture(scope="session")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A service that pages share, one after another."""
    folder = tmp_path_factory.mktemp("pages")
    server = ServerProcess(environment_of({"warehouse": folder / "warehouse"}), folder)
    yield server.wait_ready().url
    server.stop()


def with_blocks() -> list[object]:
    """The pages that have code blocks; those that use Spark, and those that take long, are marked."""

    def marks(page: str) -> list[pytest.MarkDecorator]:
        rules = SCENES.get(page)
        named = {"spark": rules.spark, "soak": rules.soak} if rules else {}
        return [getattr(pytest.mark, name) for name, applies in named.items() if applies]

    return [pytest.param(page, marks=marks(page)) for page in pages() if fences(page)]


@pytest.mark.parametrize("page", with_blocks())
def test_the_blocks_of_a_page_run(page: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    """Python, SQL and shell blocks run in their order against a real service, data blocks are what they
    claim to be, and output looks as it is shown."""
    assert page in SCENES, f"tests/docs/scenes says nothing of {page}, which has code blocks"
    rules = SCENES[page]
    if rules.starts_service:
        url = None
    elif rules.settings is not None:
        start = request.getfixturevalue("start_server")
        url = start(**{"warehouse": tmp_path / "warehouse", **rules.settings(tmp_path)}).url
    else:
        url = request.getfixturevalue("service")
    stage = Stage(tmp_path, url)
    if rules.spark:
        stage.names["spark"] = request.getfixturevalue("spark").newSession()
    try:
        rules.set_up(stage)
        Runner(page, rules, stage).run()
    finally:
        fell = stage.close()
    assert fell == []


def test_what_is_not_run_is_little_and_is_there() -> None:
    """Each command that is excepted stands on its page; the list stays short, and says why."""
    assert list(stale()) == []
    assert len(NOT_RUN) <= LONGEST_LIST
    assert all(entry.reason for entry in NOT_RUN)


def test_no_scene_is_of_a_page_that_has_no_blocks() -> None:
    """What is set up is for a page that is there and has blocks."""
    assert [page for page in SCENES if page not in pages() or not fences(page)] == []
