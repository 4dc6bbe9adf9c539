"""Figures that are made beside the requests."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jinja2
import pytest

from lamella.service.app import create_app
from lamella.service.config.settings import Settings
from lamella.service.dashboard.preview import BackgroundFigures
from lamella.snapshot.errors import InvalidRequest, Overloaded
from support.app_client import AppClient

ENDS: list[Callable[[], None]] = []


@pytest.fixture(autouse=True)
def ended() -> Iterator[None]:
    """End what a test began, as a service does."""
    yield
    while ENDS:
        ENDS.pop()()


def test_a_value_is_made_once_and_cached() -> None:
    """However often it is asked for, and by whom, the work is done once."""
    made: list[int] = []
    figures: BackgroundFigures[int] = BackgroundFigures(ENDS.append, 4, name="test")

    def make() -> int:
        made.append(1)
        return 7

    assert [figures.peek("key", make, wait_s=60) for _ in range(3)] == [7, 7, 7]
    assert made == [1]


def test_nobody_waits_longer_than_requested() -> None:
    """While it is being made there is None; afterwards there is the value."""
    go = threading.Event()
    figures: BackgroundFigures[bool] = BackgroundFigures(ENDS.append, 4, name="test")
    assert figures.peek("key", lambda: go.wait(60)) is None
    assert figures.peek("key", lambda: go.wait(60), wait_s=0.01) is None
    go.set()
    assert figures.peek("key", lambda: go.wait(60), wait_s=60) is True


def test_a_failure_is_shown_for_a_while_and_then_tried_again() -> None:
    """A page that is loaded anew has the failure and does not begin again; what passes does not stay for ever."""
    now_s, made = [0.0], []
    figures: BackgroundFigures[int] = BackgroundFigures(ENDS.append, 4, name="test", timer=lambda: now_s[0])

    def fail() -> int:
        made.append(1)
        raise InvalidRequest("no")

    for _ in range(3):
        with pytest.raises(InvalidRequest, match="no") as caught:
            figures.peek("key", fail, wait_s=60)
        assert len(list(caught.traceback)) < 5
    assert len(made) == 1
    now_s[0] = 11
    assert figures.peek("key", lambda: 3, wait_s=60) == 3


def test_what_gets_old_is_made_anew_but_not_while_it_is_made() -> None:
    """A value is shown for its time; work that takes longer than that is waited for, and shown once."""
    now_s, made, go = [0.0], [], threading.Event()
    figures: BackgroundFigures[int] = BackgroundFigures(ENDS.append, 4, name="test", fresh_s=60, timer=lambda: now_s[0])

    def make() -> int:
        go.wait(60)
        made.append(1)
        return len(made)

    assert figures.peek("key", make) is None
    now_s[0] = 300
    assert figures.peek("key", make) is None
    go.set()
    assert figures.peek("key", make, wait_s=60) == 1
    now_s[0] = 350
    assert figures.peek("key", make, wait_s=60) == 1
    now_s[0] = 361
    assert figures.peek("key", make, wait_s=60) == 2


def test_a_time_out_of_the_work_itself_is_a_failure() -> None:
    """It is not taken for work that goes on."""
    figures: BackgroundFigures[int] = BackgroundFigures(ENDS.append, 4, name="test")

    def time_out() -> int:
        raise TimeoutError("the store")

    with pytest.raises(TimeoutError, match="the store"):
        figures.peek("key", time_out, wait_s=60)


def test_only_so_many_are_cached_and_the_latest_stay() -> None:
    """Of more keys than there is room for, those that were asked for the longest ago are forgotten."""
    made: list[str] = []
    figures: BackgroundFigures[str] = BackgroundFigures(ENDS.append, 2, name="test")

    def ask(key: str) -> None:
        def make() -> str:
            made.append(key)
            return key

        figures.peek(key, make, wait_s=60)

    for key in ("a", "b", "a", "c", "a", "b"):
        ask(key)
    assert made == ["a", "b", "c", "b"]


def test_too_many_at_once_are_refused() -> None:
    """When every place is taken by work that goes on, one more is told to come back."""
    go = threading.Event()
    figures: BackgroundFigures[bool] = BackgroundFigures(ENDS.append, 2, name="test")
    for key in ("a", "b"):
        figures.peek(key, lambda: go.wait(60))
    with pytest.raises(Overloaded):
        figures.peek("c", lambda: go.wait(60))
    go.set()


def test_the_first_request_for_the_home_page_compiles_no_template(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are compiled when the service starts; another page compiles its own."""
    with AppClient(create_app(Settings(warehouse=str(tmp_path / "w")))) as app:
        app.post("/v1/namespaces", json={"name": "db"})
        app.post("/v1/namespaces/db/tables", json={"name": "t", "schema": [{"name": "a", "type": "int64"}]})
        compiled: list[object] = []
        compile_now = jinja2.Environment.compile

        def watched(environment: jinja2.Environment, *arguments: Any, **more: Any) -> Any:
            compiled.append(arguments)
            return compile_now(environment, *arguments, **more)

        monkeypatch.setattr(jinja2.Environment, "compile", watched)
        assert app.get("/ui").status_code == 200
        assert compiled == []
        assert app.get("/ui/service").status_code == 200
        assert compiled != []
