"""Each method of the client has an example in its docstring, and each example shows what happens."""

from __future__ import annotations

import ast
import asyncio
import doctest
import inspect
import io
import re
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import redirect_stdout
from importlib import import_module
from pathlib import Path
from typing import Any, Final

import pytest

from lamella.client import AsyncLamella, Lamella
from lamella.client.http import AsyncTable
from lamella.client.http.aio.jobs import AsyncJobs
from lamella.client.scan import AsyncScan
from reference.python_page import PARTS, members
from support.documented_lake import SETTINGS, make_lake, names

FLAGS: Final = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
#: What has no example, and why.
WITHOUT: Final = {
    "Scan.to_daft": "its environment is one of its own: docs/engines.md",
    "Scan.to_datafusion": "its environment is one of its own: docs/engines.md",
    "Scan.to_ray": "its environment is one of its own: docs/engines.md",
    "Table.add_index_parts": "the parts are files that Spark's executors have written",
    "Table.report_auto": "the action is one that the service begins after it has recorded many filters",
}


def docstrings(*kinds: type) -> dict[str, str]:
    """The docstrings of the members of classes by their names."""
    found = {}
    for kind in kinds:
        for name, member in members(kind):
            function = member.fget if isinstance(member, property) else member
            # A method that runs the one of the other client has its docstring.
            if function.__doc__ and not hasattr(function, "__wrapped__"):
                found[f"{kind.__name__}.{name}"] = inspect.cleandoc(function.__doc__)
    return found


def synchronous_docstrings() -> dict[str, str]:
    """Those of all that the page of reference lists, without the Spark integration and the asynchronous client."""
    found: dict[str, str] = {}
    for module, listed in PARTS:
        for name in listed:
            value = getattr(import_module(module), name)
            if module == "lamella.client.spark" or name.startswith("Async"):
                continue
            if inspect.isclass(value):
                found |= docstrings(value)
            else:
                found[name] = inspect.cleandoc(value.__doc__)
    return found


SYNCHRONOUS: Final = synchronous_docstrings()
ASYNCHRONOUS: Final = docstrings(AsyncLamella, AsyncTable, AsyncJobs, AsyncScan)


def with_example(found: dict[str, str]) -> list[str]:
    """The names that have an example, as a list for pytest."""
    return sorted(name for name, text in found.items() if ">>> " in text)


class World:
    """The lake of the examples, for both clients. Each example finds it as it was made."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder / "world"
        self._saved = folder / "saved"
        self._job_id = make_lake(self._folder)
        shutil.copytree(self._folder, self._saved)
        self._runner = asyncio.Runner()
        self._lake: Lamella | None = None
        self._async_lake: AsyncLamella | None = None
        self._watch = self._connection()
        self._version = self._catalog_version()

    def names(self) -> dict[str, Any]:
        """What a synchronous example uses."""
        self._restore()
        if self._lake is None:
            self._lake = Lamella.embedded(self._folder / "lake", settings=SETTINGS)
        self._version = self._catalog_version()
        return names(self._lake, self._folder, self._job_id)

    def async_names(self) -> dict[str, Any]:
        """What an asynchronous example uses, in the loop of :meth:`run`."""
        self._restore()
        if self._async_lake is None:
            opening = AsyncLamella.embedded(self._folder / "lake", settings=SETTINGS)
            self._async_lake = self._runner.run(opening)
        self._version = self._catalog_version()
        return names(self._async_lake, self._folder, self._job_id)

    def run(self, code: Any, named: dict[str, Any]) -> None:
        """Execute code with or without ``await``."""
        done = eval(code, named)  # noqa: S307  # the example's own code is what is tested
        if inspect.iscoroutine(done):
            self._runner.run(done)

    def close(self) -> None:
        """Close what is open."""
        self._close_lakes()
        self._runner.close()

    def _restore(self) -> None:
        """Copy the folder anew if an example changed something, which a commit in the catalog tells."""
        if self._catalog_version() == self._version:
            return
        self._close_lakes()
        shutil.rmtree(self._folder)
        shutil.copytree(self._saved, self._folder)
        self._watch = self._connection()

    def _close_lakes(self) -> None:
        self._watch.close()
        if self._lake is not None:
            self._lake.close()
        if self._async_lake is not None:
            self._runner.run(self._async_lake.close())
        self._lake = self._async_lake = None

    def _connection(self) -> sqlite3.Connection:
        return sqlite3.connect(f"file:{self._folder / 'lake' / '_catalog.db'}?mode=ro", uri=True)

    def _catalog_version(self) -> int:
        """A number that the commit of another connection changes."""
        (version,) = self._watch.execute("PRAGMA data_version").fetchone()
        return int(version)


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """One lake for all examples."""
    made = World(tmp_path_factory.mktemp("examples"))
    yield made
    made.close()


def run_example(text: str, name: str, named: dict[str, Any]) -> str:
    """What is wrong with the example of a docstring, as doctest reports it; nothing if nothing is."""
    test = doctest.DocTestParser().get_doctest(text, named, name, None, None)
    report: list[str] = []
    doctest.DocTestRunner(verbose=False, optionflags=FLAGS).run(test, out=report.append)
    return "".join(report)


def run_async_example(text: str, run: Callable[[Any, dict[str, Any]], None], named: dict[str, Any]) -> str:
    """The same for an example with ``await``."""
    report = []
    for example in doctest.DocTestParser().get_examples(text):
        code = compile(example.source, "docstring", "single", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
        out = io.StringIO()
        with redirect_stdout(out):
            run(code, named)
        if not doctest.OutputChecker().check_output(example.want, out.getvalue(), FLAGS):
            report.append(f"{example.source}gives {out.getvalue()}not {example.want}")
    return "".join(report)


def test_what_has_no_example_has_a_reason() -> None:
    """Every method, property and function that users import has one, and what has none is named here."""
    for documented in (SYNCHRONOUS, ASYNCHRONOUS):
        known = {name.removeprefix("Async") for name in documented}
        missing = known - {name.removeprefix("Async") for name in with_example(documented)}
        assert missing == known & set(WITHOUT), "write an example (`Example:`) into these docstrings"
    assert all(WITHOUT.values())


@pytest.mark.parametrize("documented", [SYNCHRONOUS, ASYNCHRONOUS], ids=["sync", "async"])
def test_an_example_is_the_last_part_of_a_docstring(documented: dict[str, str]) -> None:
    """One, below the line ``Example:``, of at most four lines of code: it shows one usual use."""
    for name in with_example(documented):
        text, heading, example = documented[name].partition("\n\nExample:\n")
        assert heading, name
        assert ">>> " not in text, name
        assert all(line.startswith("    ") for line in example.splitlines()), name
        assert len(re.findall(r"^ *(?:>>>|\.\.\.) ", example, flags=re.MULTILINE)) <= 4, name


@pytest.mark.parametrize("name", with_example(SYNCHRONOUS))
def test_an_example_shows_what_happens(name: str, world: World) -> None:
    """In the synchronous client."""
    named = world.names()
    assert run_example(SYNCHRONOUS[name], name, named) == ""


@pytest.mark.parametrize("name", with_example(ASYNCHRONOUS))
def test_an_asynchronous_example_shows_what_happens(name: str, world: World) -> None:
    """With ``await``."""
    named = world.async_names()
    assert run_async_example(ASYNCHRONOUS[name], world.run, named) == ""


def test_examples_do_not_see_what_others_changed(world: World) -> None:
    """A table that one drops is there for the next; what one leaves open does not matter."""
    for _ in range(2):
        named = world.names()
        assert run_example(SYNCHRONOUS["Lamella.drop_table"], "", named) == ""
        named = world.async_names()
        assert run_async_example(ASYNCHRONOUS["AsyncLamella.drop_table"], world.run, named) == ""
    named = world.names()
    assert named["lake"].tables("shop") == ("arrivals", "orders", "rates")


def test_an_example_that_shows_something_else_is_found(world: World) -> None:
    """By either way of running them."""
    named = world.names()
    assert "Expected" in run_example(">>> table.name\n'sales'\n", "", named)
    named = world.async_names()
    assert run_async_example(">>> (await table.info()).name\n'sales'\n", world.run, named)
    assert run_async_example(">>> (await table.info()).name\n'orders'\n", world.run, named) == ""
