"""A real service with two workers and real tables, and a real browser that talks to nobody else."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, ConsoleMessage, Page, Playwright, Request, sync_playwright

from fixtures_server import ServerProcess, start_shared
from lamella.client import Lamella
from support.dashboard_tables import fill
from support.posted_forms import Screens

ROOT = Path(__file__).resolve().parent.parent.parent
#: Chromium asks its maker for news unless it is told not to.
ARGUMENTS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-quic",
    "--no-first-run",
)
#: What Chromium says of a document that came with a status of 400 to 499.
REFUSED = "the server responded with a status of 4"
#: WCAG 2.2, levels A and AA.
RULES = {"runOnly": ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]}


@pytest.fixture(scope="session")
def chromium_path() -> str:
    """The browser; the tests fail with a message that says how to get one when there is none."""
    script = ROOT / "scripts" / "chromium_bin.py"
    done = subprocess.run([sys.executable, script, "--install"], check=False, capture_output=True, text=True)
    if done.returncode != 0:
        pytest.fail(done.stderr)
    return done.stdout.strip()


@pytest.fixture(scope="module")
def playwright() -> Iterator[Playwright]:
    """Playwright itself. Its event loop runs in this thread until it is stopped; other tests want their own."""
    with sync_playwright() as running:
        yield running


@pytest.fixture(scope="module")
def browser(playwright: Playwright, chromium_path: str) -> Iterator[Browser]:
    """One browser for all tests of a file; each has a context of its own in it."""
    running = playwright.chromium.launch(executable_path=chromium_path, args=list(ARGUMENTS))
    yield running
    running.close()


@pytest.fixture(scope="session")
def shared_server(pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """A service of two processes with ``shop.lineitem`` and ``shop.events``; tests leave these as they find them."""
    folder = tmp_path_factory.mktemp("dashboard")
    server = start_shared(pytestconfig, folder, {"warehouse": folder / "warehouse", "workers": 2})
    with Lamella(server.url) as lake:
        fill(lake, folder)
    yield server
    server.stop()


@pytest.fixture
def server_url(shared_server: ServerProcess) -> str:
    """Where the shared service is."""
    return shared_server.url


@pytest.fixture
def screens(server_url: str) -> Iterator[Screens]:
    """The pages of the shared service, for a browser that was never there."""
    found = Screens(server_url)
    yield found
    found.http.close()


@pytest.fixture
def lake(server_url: str) -> Iterator[Lamella]:
    """A client of it."""
    with Lamella(server_url) as client:
        yield client


@pytest.fixture
def new_page(browser: Browser, server_url: str) -> Iterator[Callable[..., Page]]:
    """Open pages, of a narrow screen or in the dark, say; at the end nothing may have gone wrong on any of them."""
    wrong: list[str] = []
    contexts = []

    def watched(message: ConsoleMessage) -> None:
        # a page that says what was wrong with its address has a status that says so too, which Chromium tells here
        is_problem = message.location["url"] == message.page.url and REFUSED in message.text if message.page else False
        if message.type in ("error", "warning") and not is_problem:
            wrong.append(f"console: {message.text}")

    def check_request(request: Request) -> None:
        if not request.url.startswith((f"{server_url}/", "blob:", "data:")):
            wrong.append(f"a request to {request.url}")

    def opened(**options: Any) -> Page:
        context = browser.new_context(**{"base_url": server_url, "viewport": {"width": 1280, "height": 900}, **options})
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(30_000)
        page.on("console", watched)
        page.on("pageerror", lambda error: wrong.append(f"script: {error}"))
        page.on("request", check_request)
        return page

    yield opened
    for context in contexts:
        context.close()
    assert wrong == []


@pytest.fixture
def page(new_page: Callable[..., Page]) -> Page:
    """A page of a usual screen."""
    return new_page()


@pytest.fixture
def axe() -> Callable[[Page], None]:
    """Fail when axe finds that a page is hard to use with a screen reader, a keyboard or weak eyes."""

    def check(page: Page) -> None:
        found = Axe().run(page, options=RULES)
        assert found.violations_count == 0, found.generate_report()

    return check


@pytest.fixture
def screenshot(record_property: Callable[[str, object], None]) -> Callable[[Page, str], None]:
    """Keep a picture of a page: in ``build/screenshots`` (or ``LAMELLA_SCREENSHOTS``), named in the tests' report."""
    folder = Path(os.environ.get("LAMELLA_SCREENSHOTS", ROOT / "build" / "screenshots"))

    def take(page: Page, name: str) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"{name}.png"
        page.screenshot(path=path, full_page=True)
        record_property("screenshot", str(path))

    return take
