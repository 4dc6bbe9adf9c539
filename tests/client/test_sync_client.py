"""The synchronous client is what scripts/write_sync_client.py makes of the asynchronous one."""

from __future__ import annotations

import ast
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

import write_sync_client
from write_sync_client import CHECKOUT, CLIENT, NoSynchronousForm, synchronous, transform

SOURCE = CLIENT / "http" / "aio" / "notes.py"
WRITTEN = CLIENT / "http" / "sync" / "notes.py"


def check(checkout: Path) -> subprocess.CompletedProcess[str]:
    """What the check says of a checkout."""
    command = [sys.executable, "scripts/write_sync_client.py", "--check", "--checkout", str(checkout)]
    return subprocess.run(command, check=False, cwd=CHECKOUT, capture_output=True, text=True)


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """A checkout with the client alone."""
    shutil.copytree(CHECKOUT / CLIENT, tmp_path / CLIENT)
    return tmp_path


def test_the_synchronous_client_is_up_to_date() -> None:
    """What `make sync-client` would write is committed."""
    done = check(CHECKOUT)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("module", ["http/sync/layout.py", "advice/sync.py"])
def test_a_written_module_that_was_changed_by_hand_is_found(copy: Path, module: str) -> None:
    """The check names it, shows the difference, and leaves it as it is."""
    path = copy / CLIENT / module
    changed = path.read_text("utf-8").replace("raises TableNotFound", "raises nothing")
    path.write_text(changed, "utf-8")
    done = check(copy)
    assert done.returncode == 1
    assert f"{CLIENT / module} is out of date" in done.stderr
    assert "raises nothing" in done.stderr
    assert path.read_text("utf-8") == changed


def test_a_source_that_was_changed_or_removed_is_found(copy: Path) -> None:
    """Also a written module that has no source any more, and a source from which nothing is written yet."""
    source = copy / CLIENT / "http/aio/layout.py"
    source.write_text(source.read_text("utf-8").replace("async def cluster_key", "async def key"), "utf-8")
    (copy / CLIENT / "http/aio/usage.py").unlink()
    (copy / SOURCE).write_text("async def f() -> None:\n    return\n", "utf-8")
    done = check(copy)
    assert done.returncode == 1
    stale = [line.split()[0] for line in done.stderr.splitlines() if "is out of date" in line]
    assert stale == [str(CLIENT / "http/sync" / name) for name in ("layout.py", "notes.py", "usage.py")]


def test_writing_brings_all_modules_up_to_date(copy: Path) -> None:
    """New ones are made, changed ones are written again, and those without a source go."""
    (copy / CLIENT / "http/aio/usage.py").unlink()
    shutil.rmtree(copy / CLIENT / "http/sync")
    (copy / CLIENT / "http/sync").mkdir()
    (copy / CLIENT / "http/sync/orphan.py").write_text("", "utf-8")
    write_sync_client.write(copy, write_sync_client.files(copy))
    assert check(copy).returncode == 0
    names = {path.name for path in (copy / CLIENT / "http/sync").glob("*.py")}
    assert names == {path.name for path in (copy / CLIENT / "http/aio").glob("*.py")}


def test_sources_are_asynchronous_and_documented() -> None:
    """A method stands in one place, with the docstring of both clients."""
    for path in write_sync_client.sources(CHECKOUT):
        tree = ast.parse((CHECKOUT / path).read_text("utf-8"))
        classes = [node for node in ast.walk(tree) if isinstance(node, ast.ClassDef)]
        assert all(node.name.startswith("Async") for node in classes)
        for node in classes:
            methods = [each for each in node.body if isinstance(each, ast.AsyncFunctionDef | ast.FunctionDef)]
            assert all(ast.get_docstring(each) for each in methods if not each.name.startswith("_"))


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("async def f(): pass", "def f(): pass"),
        ("async def f(): return await g(1)", "def f(): return g(1)"),
        ("async def f(): return (await g(1)).rows", "def f(): return g(1).rows"),
        ("async def f(): return (await g(h(1)))[0].x", "def f(): return g(h(1))[0].x"),
        ("async def f(): return (await g(1), 2)", "def f(): return (g(1), 2)"),
        ("async def f(): return (await (await g()).h()).rows", "def f(): return g().h().rows"),
        ("async def f(): return ('é', (await g('é')).x)", "def f(): return ('é', g('é').x)"),
        ("async def f():\n    async for x in g(): pass", "def f():\n    for x in g(): pass"),
        ("async def f():\n    async with g() as x: pass", "def f():\n    with g() as x: pass"),
        ("async def f(): return [x async for x in g()]", "def f(): return [x for x in g()]"),
        ("async def f(): return [await x for x in g()]", "def f(): return [x for x in g()]"),
        ("f: Callable[[float], Awaitable[None]]", "f: Callable[[float], None]"),
        ("f: Awaitable[dict[str, Awaitable[int]]]", "f: dict[str, int]"),
        ("x: AsyncIterator[AsyncTable]", "x: Iterator[Table]"),
        ("async def __aenter__(self): pass", "def __enter__(self): pass"),
        ("from lamella.client.http.aio.jobs import AsyncJobs", "from lamella.client.http.sync.jobs import Jobs"),
        ("from lamella.client.advice.aio import A", "from lamella.client.advice.sync import A"),
        ("from lamella.client.http.async_runtime import sleep", "from lamella.client.http.runtime import sleep"),
        (
            "'''As :meth:`AsyncTable.await_it`; async.'''  # AsyncJobs",
            "'''As :meth:`Table.await_it`; async.'''  # Jobs",
        ),
    ],
)
def test_asynchronous_code_becomes_synchronous(before: str, after: str) -> None:
    """Keywords go, names change, also in docstrings and comments; the rest stays as it was written."""
    assert transform(before) == after


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (">>> await table.info()\nawait", ">>> table.info()\nawait"),
        (">>> (await table.info()).name\n'await'", ">>> table.info().name\n'await'"),
        (">>> [each async for each in (await f(1)).all]\n[1]", ">>> [each for each in f(1).all]\n[1]"),
        (
            ">>> async with f() as x:\n...     await g(\n...         x)\n2",
            ">>> with f() as x:\n...     g(\n...         x)\n2",
        ),
        (">>> 'é', (await g('é')).x\n...\n>>> await h()", ">>> 'é', g('é').x\n...\n>>> h()"),
        (">>> AsyncTable.scan\nasync >>> await f()", ">>> Table.scan\nasync >>> await f()"),
    ],
)
def test_examples_in_docstrings_become_synchronous(before: str, after: str) -> None:
    """Their code does; what they show, and text around them, stays."""
    for indent in ("", "    "):
        function = 'def f():\n    """Text: await it.\n\n    Example:\n{}\n    """\n'
        given, wanted = (function.format(textwrap.indent(each, indent)) for each in (before, after))
        assert transform(given) == wanted


def test_loops_are_written_short_and_unused_imports_go() -> None:
    """What needs a loop or an import with ``async`` only does not have it without."""
    source = '''"""Notes."""

from collections.abc import AsyncIterator, Awaitable, Callable


async def f(g: Callable[[], Awaitable[list[int]]]) -> AsyncIterator[int]:
    for y in await g():
        yield y
    for x in [x async for x in h()]:
        yield x + 1
'''
    assert synchronous({SOURCE: source})[WRITTEN] == (
        "# Written by scripts/write_sync_client.py from client/lamella/client/http/aio/notes.py: change that file.\n"
        '"""Notes."""\n\n'
        "from collections.abc import Callable, Iterator\n\n\n"
        "def f(g: Callable[[], list[int]]) -> Iterator[int]:\n"
        "    yield from g()\n"
        "    for x in list(h()):\n"
        "        yield x + 1\n"
    )


@pytest.mark.parametrize(
    "source",
    [
        "import asyncio\n\n\nasync def f() -> None:\n    await asyncio.sleep(1)\n",
        "async def f(g: Awaitable) -> None:\n    await g\n",
        "async def f() -> int:\n    return await anext(g())\n",
        "from lamella.client.http.async_client import f\n\nf()\n",
    ],
)
def test_what_has_no_synchronous_form_is_refused(source: str) -> None:
    """Rather than written in a form that does not work: it belongs into a module written by hand."""
    with pytest.raises(NoSynchronousForm, match=r"aio/notes\.py uses"):
        synchronous({SOURCE: source})
