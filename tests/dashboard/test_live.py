"""Parts of pages that renew themselves say when they do not, why, since when, and what can be done."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from playwright.sync_api import Browser, Page, Route, expect

from fixtures_server import ServerProcess, start_shared
from lamella.client import Lamella
from lamella.snapshot.wire import Grant
from support.tenants import ROOT_KEY, ROOT_SHA256

pytestmark = pytest.mark.browser
#: What a page, a service and a browser may take together on a busy machine.
TIMEOUT_MS = 90_000
Check = Callable[[Page], None]


@pytest.fixture(scope="module")
def guarded(pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """A service that asks for keys, and notices at once that one is revoked."""
    folder = tmp_path_factory.mktemp("live")
    settings = {"warehouse": folder / "warehouse", "auth": "true", "root_key_sha256": ROOT_SHA256, "auth_cache_s": "0"}
    server = start_shared(pytestconfig, folder, settings)
    yield server
    server.stop()


@pytest.fixture
def visit(browser: Browser, guarded: ServerProcess) -> Iterator[Callable[[str, str], Page]]:
    """Open a page of the service, logged in with a key."""
    contexts = []

    def opened(key: str, path: str) -> Page:
        context = browser.new_context(base_url=guarded.url, viewport={"width": 1280, "height": 900})
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(TIMEOUT_MS)
        page.goto(f"/ui/login?next={path}")
        log_in(page, key)
        page.wait_for_url(f"**{path}")
        return page

    yield opened
    for context in contexts:
        context.close()


def log_in(page: Page, key: str) -> None:
    """As a person does."""
    page.get_by_label("API key").fill(key)
    page.get_by_role("button", name="Log in").click()


def test_a_page_of_a_revoked_key_says_so_and_leads_to_the_login(
    visit: Callable[[str, str], Page], guarded: ServerProcess, axe: Check
) -> None:
    """It does not stand still silently; after another login the same page is live again."""
    with Lamella(guarded.url, token=ROOT_KEY) as lake:
        made = lake.keys.create("watcher", [Grant(role="admin")])
        page = visit(made.key, "/ui/jobs?state=queued")
        live = page.locator("#live")
        expect(live).to_be_hidden()
        lake.keys.revoke("watcher")
    expect(live).to_contain_text("Not live: you are signed out. Last update", timeout=TIMEOUT_MS)
    axe(page)
    live.get_by_role("link", name="Log in again").click()
    log_in(page, ROOT_KEY)
    page.wait_for_url("**/ui/jobs?state=queued")
    expect(page.locator("#live")).to_be_hidden()


def test_a_page_of_a_service_that_is_gone_says_so_and_is_live_again_by_itself(
    visit: Callable[[str, str], Page], guarded: ServerProcess
) -> None:
    """Tried again with longer and longer pauses, or at once when somebody asks for it."""
    page = visit(ROOT_KEY, "/ui/service")
    live = page.locator("#live")
    page.context.set_offline(True)
    expect(live).to_contain_text("Not live: the service cannot be reached. Last update", timeout=TIMEOUT_MS)
    expect(live).to_contain_text("Retrying every 12 s", timeout=TIMEOUT_MS)
    page.context.set_offline(False)
    live.get_by_role("button", name="Try now").click()
    expect(live).to_be_hidden(timeout=TIMEOUT_MS)
    assert guarded.url in page.url


@pytest.mark.parametrize(
    "status", [429, pytest.param(500, marks=pytest.mark.soak), pytest.param(503, marks=pytest.mark.soak)]
)
def test_a_request_that_fails_is_shown_and_tried_again(visit: Callable[[str, str], Page], status: int) -> None:
    """Also one that is refused because there are too many: the page is not loaded anew, which would ask for more."""
    page = visit(ROOT_KEY, "/ui/service")
    live = page.locator("#live")
    page.evaluate("window.isSame = true")
    failed: list[str] = []

    def failing(route: Route) -> None:
        if "x-lamella-live" in route.request.headers and len(failed) < 2:
            failed.append(route.request.url)
            route.fulfill(status=status, body="no")
        else:
            route.continue_()

    page.route("**/ui/service", failing)
    expect(live).to_contain_text(f"Not live: the service answers with an error ({status})", timeout=TIMEOUT_MS)
    expect(live).to_be_hidden(timeout=TIMEOUT_MS)
    assert len(failed) == 2
    assert page.evaluate("window.isSame")
