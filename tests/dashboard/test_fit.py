"""Every page of the console on screens of all widths, light and dark: nothing is cut off, and axe finds nothing.

`make test` looks at one address of each page on the widest and the narrowest screen, with axe in the dark one, which
other tests seldom see. `make soak` looks at all addresses on all screens."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

import pytest
from playwright.sync_api import Browser, Page, expect
from starlette.routing import Route

from fixtures_server import ServerProcess, start_shared
from lamella.client import Lamella
from lamella.service.app import create_app
from lamella.service.config.settings import Settings
from support.console_pages import NO_PAGES, PAGES, PUBLIC, fill_console
from support.tenants import ROOT_KEY, ROOT_SHA256

Check = Callable[[Page], None]
Screen = tuple[int, Literal["light", "dark"]]
EXTREMES: tuple[Screen, ...] = ((1440, "light"), (390, "dark"))
SCREENS: tuple[Screen, ...] = tuple((width, scheme) for width in (1440, 1024, 390) for scheme in ("light", "dark"))
#: The last address of each page, which is mostly that of the longest names, and all.
LAST = [pytest.param(addresses[-1:], EXTREMES, EXTREMES[1:], id=name) for name, addresses in PAGES.items()]
ALL = [
    pytest.param(addresses, SCREENS, EXTREMES, id=f"{name}-all", marks=pytest.mark.soak)
    for name, addresses in PAGES.items()
]
#: Elements that stick out of the screen, and are in no part that scrolls by itself.
STICKING_OUT = """() => {
  const scrolls = (each) => each && each !== document.documentElement
    && (/(auto|scroll)/.test(getComputedStyle(each).overflowX) || scrolls(each.parentElement));
  return [...document.querySelectorAll("body *")].filter((each) => {
    const box = each.getBoundingClientRect();
    return box.width > 0 && box.height > 0 && box.right > innerWidth + 1 && box.left >= 0 && !scrolls(each);
  }).map((each) => `${each.tagName} ${each.className} ${(each.textContent || "").trim().slice(0, 40)}`).slice(0, 5);
}"""
#: Figures of tables whose text is wider than their cell.
CUT_FIGURES = """() => [...document.querySelectorAll("td.n, .facts dd")]
  .filter((each) => each.scrollWidth > each.clientWidth + 1).map((each) => each.textContent.trim()).slice(0, 5)"""
#: Tables that scroll sideways, by their names; those of a sample's values have as many columns as somebody asks for.
SCROLLED = """() => [...document.querySelectorAll(".wrap:not(:has(table.values))")]
  .filter((each) => each.scrollWidth > each.clientWidth + 1)
  .map((each) => each.getAttribute("aria-label") || each.className)"""


@pytest.fixture(scope="module")
def named(pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[ServerProcess, Any]]:
    """A service that asks for keys, with something on each page; and what stands in braces in their addresses."""
    folder = tmp_path_factory.mktemp("dashboard-fit")
    settings = {"warehouse": folder / "warehouse", "auth": "true", "root_key_sha256": ROOT_SHA256}
    settings["allowed_locations"] = f'{{"*": ["file://{folder}/"]}}'
    server = start_shared(pytestconfig, folder, settings)
    with Lamella(server.url, token=ROOT_KEY) as lake:
        names = fill_console(lake, folder)
    yield server, names
    server.stop()


@pytest.fixture(scope="module")
def shared_server(named: tuple[ServerProcess, Any]) -> ServerProcess:
    """The service."""
    return named[0]


@pytest.fixture(scope="module")
def session(named: tuple[ServerProcess, Any], browser: Browser) -> Any:
    """The cookies of one who is logged in."""
    context = browser.new_context(base_url=named[0].url)
    page = context.new_page()
    page.goto("/ui/login")
    page.get_by_label("API key").fill(ROOT_KEY)
    page.get_by_role("button", name="Log in", exact=True).click()
    expect(page.get_by_role("button", name="Log out")).to_be_visible()
    state = context.storage_state()
    context.close()
    return state


def test_every_page_is_in_the_list(tmp_path: Path) -> None:
    """A new page is added to those that are looked at here."""
    app = create_app(Settings(warehouse=str(tmp_path), auth=True, root_key_sha256=ROOT_SHA256))
    routes = [route for route in app.routes if isinstance(route, Route)]
    pages = {route.name for route in routes if route.name.startswith("ui_") and "GET" in (route.methods or ())}
    assert pages - NO_PAGES == {*PAGES, *PUBLIC}


def check_fit(page: Page, path: str, screens: Sequence[Screen], with_axe: Sequence[Screen], axe: Check) -> list[str]:
    """Look at one address on these screens, and with axe on some of them; what is wrong with it."""
    wrong = []
    page.set_viewport_size({"width": screens[0][0], "height": 900})
    page.goto(path)
    expect(page.get_by_role("heading", level=1)).to_be_visible()
    for width, scheme in screens:
        page.set_viewport_size({"width": width, "height": 900})
        page.emulate_media(color_scheme=scheme)
        wide = page.evaluate("document.documentElement.scrollWidth - innerWidth")
        found = (wide > 0, page.evaluate(STICKING_OUT), page.evaluate(CUT_FIGURES))
        if any(found):
            wrong.append(f"{path} at {width}, {scheme}: {wide} px too wide; out of it {found[1]}; cut {found[2]}")
        if page.evaluate(SCROLLED):
            wrong.append(f"{path} at {width}, {scheme}: scrolls {page.evaluate(SCROLLED)}")
        if (width, scheme) in with_axe:
            axe(page)
    return wrong


@pytest.mark.browser
@pytest.mark.parametrize(("addresses", "screens", "with_axe"), LAST + ALL)
def test_nothing_is_cut_off(
    new_page: Callable[..., Page],
    named: tuple[ServerProcess, Any],
    session: Any,
    axe: Check,
    addresses: tuple[str, ...],
    screens: tuple[Screen, ...],
    with_axe: tuple[Screen, ...],
) -> None:
    """However long names are: no page is wider than its screen, no figure wider than its place."""
    page = new_page(storage_state=session)
    wrong = [each for path in addresses for each in check_fit(page, path.format(**named[1]), screens, with_axe, axe)]
    assert wrong == []


@pytest.mark.browser
@pytest.mark.parametrize("name", list(PUBLIC))
def test_nothing_is_cut_off_before_the_log_in(new_page: Callable[..., Page], axe: Check, name: str) -> None:
    """The page that asks for a key."""
    page = new_page()
    assert [each for path in PUBLIC[name] for each in check_fit(page, path, SCREENS, EXTREMES, axe)] == []
