"""Pictures of the console: of the main pages on three screens, light and dark, and those that its documentation shows.

All are written to ``build/screenshots``. With ``LAMELLA_WRITE_DOCS=1`` those of the documentation are written to
``docs/images`` too (``make pictures``); they differ from run to run in times and ids, so nothing compares them.
"""

from __future__ import annotations

import datetime as dt
import os
import random
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final, Literal
from urllib.parse import quote

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from playwright.sync_api import Page, expect
from starlette.routing import Route

from fixtures_server import ServerProcess
from lamella.client import Lamella
from lamella.service.app import create_app
from lamella.service.config.settings import Settings
from support.console_pages import FILTER, NO_PAGES
from support.dashboard_tables import LINEITEM
from support.tenants import ROOT_SHA256

ROOT: Final = Path(__file__).resolve().parents[2]
DOCS: Final = ROOT / "docs" / "dashboard.md"
IMAGES: Final = ROOT / "docs" / "images"
MAX_IMAGE_BYTES: Final = 150_000
MAX_IMAGES: Final = 10
ORDERS: Final = "shop.orders"
_LINEITEM: Final = "/ui/tables/shop/lineitem"
#: Addresses of pages by the name of their picture.
SHOWN: Final = {
    "home": "/ui",
    "table": _LINEITEM,
    "map": f"{_LINEITEM}/map?filter={quote(FILTER)}",
    "heat-map": "/ui/tables/shop/orders/map?colour=width",
    "columns": f"{_LINEITEM}/columns",
    "indexes": f"{_LINEITEM}/indexes",
    "history": f"{_LINEITEM}/history",
    "upkeep": "/ui/tables/shop/events/upkeep",
    "lab": f"{_LINEITEM}/lab?filter={quote(FILTER)}",
    "new-job": f"/ui/jobs/new?kind=recluster&table={LINEITEM}&preview=1",
    "service": "/ui/service",
}
Scheme = Literal["light", "dark"]
SCREENS: Final[tuple[tuple[int, Scheme], ...]] = tuple(
    (width, scheme) for width in (1440, 1024, 390) for scheme in ("light", "dark")
)
#: Pictures of the documentation: of which page, how wide, in which scheme.
DOCUMENTED: Final[tuple[tuple[str, int, Scheme], ...]] = (
    *(("home", 1024, "light"), ("heat-map", 1024, "light"), ("map", 1024, "dark"), ("map", 390, "light")),
    *(("table", 1024, "light"), ("lab", 1024, "light"), ("upkeep", 1024, "light"), ("service", 1024, "dark")),
)


@pytest.fixture(scope="module")
def orders(shared_server: ServerProcess, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A table of more blocks than are drawn one by one: most of one day, some of a week, a few of any time."""
    folder = tmp_path_factory.mktemp("orders")
    draw = random.Random(5)
    first = dt.date(2024, 1, 1)
    files = []
    for number in range(720):
        wide = draw.choice((1, 1, 1, 1, 7, 7, 30)) if number % 40 else 500
        start = min(number + draw.randint(0, 2), 720 - wide)
        days = [first + dt.timedelta(days=max(start, 0) + draw.randint(0, wide)) for _ in range(4)]
        files.append(folder / f"{number:03}.parquet")
        pq.write_table(pa.table({"day": pa.array(days, pa.date32()), "amount": list(range(4))}), files[-1])
    with Lamella(shared_server.url) as lake:
        lake.create_table(ORDERS, schema_from=f"file://{files[0]}", cluster_key=["day"])
        lake.table(ORDERS).register([f"file://{file}" for file in files])
        yield ORDERS
        lake.drop_table(ORDERS)


def take(page: Page, path: str) -> bytes:
    """A picture of the upper part of a page, once all of it is measured."""
    page.goto(path)
    expect(page.get_by_role("heading", level=1)).to_be_visible()
    expect(page.locator("td, dd").filter(has_text=re.compile(r"^\s*…\s*$"))).to_have_count(0)
    expect(page.locator("main")).not_to_contain_text("checked so far")
    if "orders/map" in path or page.evaluate("innerWidth") == 390:  # the map is below the fields of its form
        page.evaluate("document.getElementById('map-heading')?.scrollIntoView()")
    return page.screenshot(animations="disabled")


@pytest.mark.browser
@pytest.mark.usefixtures("orders")
@pytest.mark.parametrize(("width", "scheme"), SCREENS)
@pytest.mark.few(1)
def test_pictures_are_taken(new_page: Callable[..., Page], width: int, scheme: Scheme) -> None:
    """Of each main page on each screen; those of the documentation are not too large for it."""
    folder = Path(os.environ.get("LAMELLA_SCREENSHOTS", ROOT / "build" / "screenshots"))
    folder.mkdir(parents=True, exist_ok=True)
    page = new_page(viewport={"width": width, "height": 844 if width == 390 else 720}, color_scheme=scheme)
    for name, path in SHOWN.items():
        picture = take(page, path)
        (folder / f"{name}-{width}-{scheme}.png").write_bytes(picture)
        if (name, width, scheme) in DOCUMENTED:
            assert len(picture) <= MAX_IMAGE_BYTES, name
            if os.environ.get("LAMELLA_WRITE_DOCS"):
                (IMAGES / image_name(name, width, scheme)).write_bytes(picture)


def image_name(name: str, width: int, scheme: str) -> str:
    """The name of a picture in the documentation."""
    return f"console-{name}-{width}-{scheme}.png"


def test_the_documentation_shows_the_pictures_that_there_are() -> None:
    """Each is shown, each that is shown exists and was taken here, and none is large."""
    shown = set(re.findall(r"\]\(images/(console-[\w-]+\.png)\)", DOCS.read_text()))
    assert shown == {image_name(*each) for each in DOCUMENTED}
    assert shown == {path.name for path in IMAGES.glob("console-*")}
    assert len(shown) <= MAX_IMAGES
    for name in shown:
        picture = (IMAGES / name).read_bytes()
        assert picture.startswith(b"\x89PNG")
        assert len(picture) <= MAX_IMAGE_BYTES


def test_the_documentation_names_every_page(tmp_path: Path) -> None:
    """By its address, in the list of pages."""
    app = create_app(Settings(warehouse=str(tmp_path), auth=True, root_key_sha256=ROOT_SHA256))
    text = DOCS.read_text()
    paths = {
        route.path
        for route in app.routes
        if isinstance(route, Route) and route.name.startswith("ui_") and "GET" in (route.methods or ())
        if route.name not in {*NO_PAGES, "ui_nothing"}
    }
    short = {path.replace("/ui/tables/{namespace}/{table}", "…") for path in paths}
    assert sorted(path for path in short if f"`{path}`" not in text) == []
