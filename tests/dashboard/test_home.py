"""The home page in a browser: healed by clicks, sorted by links, and nothing cut off on three screens."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from playwright.sync_api import Locator, Page, expect

from fixtures_server import ServerProcess, start_shared
from lamella.client import Lamella
from lamella.snapshot.wire import FinishJob, JobError
from support.dashboard_tables import EVENTS, fill
from support.job_records import IDS

pytestmark = pytest.mark.browser
Check = Callable[[Page], None]
Take = Callable[[Page, str], None]
LONG = "long_" + "namespace" * 10, "a_table_whose_name_" + "has_no_end_" * 9
LONG_COLUMN = "column" * 30


@pytest.fixture(scope="module")
def shared_server(pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """A service of this file's own, with long names in it, and a table of 40 small blocks."""
    folder = tmp_path_factory.mktemp("dashboard-home")
    server = start_shared(pytestconfig, folder, {"warehouse": folder / "warehouse"})
    with Lamella(server.url) as lake:
        fill(lake, folder, scale=0.001)
        file = folder / "long.parquet"
        pq.write_table(pa.table({LONG_COLUMN: ["x" * 300], "n": [10**15]}), file)
        lake.create_namespace(LONG[0])
        lake.create_table(".".join(LONG), schema_from=f"file://{file}")
        lake.table(".".join(LONG)).register([f"file://{file}"])
    yield server
    server.stop()


@pytest.fixture(autouse=True)
def nothing_left(shared_server: ServerProcess) -> Iterator[None]:
    """No job outlives its test."""
    yield
    with Lamella(shared_server.url) as lake:
        for job in list(lake.jobs.list(states=["queued", "running"])):
            lake.jobs.cancel(job.job_id)


class Clicks:
    """Clicks, counted."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self, there: Locator) -> None:
        self.count += 1
        there.click()


def health_of(page: Page) -> Locator:
    """The part of the page about health."""
    return page.get_by_role("region", name="Health")


def test_a_table_is_healed_by_two_clicks(page: Page, lake: Lamella) -> None:
    """The button of the finding shows what would be done, and the next one starts the job."""
    click = Clicks()
    page.goto("/ui")
    click(health_of(page).get_by_role("link", name=f"Compact {EVENTS}"))
    click(page.get_by_role("button", name="Start the job"))
    expect(page.locator("#state h2")).to_have_text("State: queued")
    assert click.count <= 3
    (job,) = lake.jobs.list(states=["queued"])
    assert (job.kind, job.table) == ("compact", EVENTS)


def test_a_failed_job_is_one_click_away(page: Page, lake: Lamella) -> None:
    """The finding has the reason, and its button leads to the job."""
    job = lake.jobs.submit("verify", EVENTS)
    token = str(IDS.new())
    lake.jobs.claim("w", token, lease_s=60, kinds=["verify"])
    error = JobError(code="odd", detail="block 7 is odd")
    lake.jobs.finish(job.job_id, FinishJob(lease_token=token, outcome="failed", error=error, retry=False))
    page.goto("/ui")
    line = health_of(page).get_by_role("listitem").filter(has_text="block 7 is odd")
    expect(line).to_contain_text(f"The job verify of {EVENTS} failed")
    line.get_by_role("link", name="Show the job").click()
    expect(page).to_have_url(re.compile(f"/ui/jobs/{job.job_id}$"))


def test_tables_are_sorted_by_their_headers(new_page: Callable[..., Page], lake: Lamella) -> None:
    """By links, so without scripts too: the largest first, then the smallest; the address says so."""
    page = new_page(java_script_enabled=False)
    page.goto("/ui")
    tables = [f"shop.{name}" for name in lake.tables("shop")] + [".".join(LONG)]
    rows = {name: lake.table(name).info().row_count for name in tables}
    header = page.get_by_role("columnheader", name="Rows")
    for direction in ("descending", "ascending"):
        header.get_by_role("link").click()
        assert header.get_attribute("aria-sort") == direction
        names = [text.strip() for text in page.get_by_role("rowheader").all_text_contents()]
        assert names == sorted(rows, key=lambda name: rows[name], reverse=direction == "descending")
        assert f"sort={'-' if direction == 'descending' else ''}rows" in page.url


def test_columns_are_sorted_and_narrowed(page: Page) -> None:
    """By their names and their figures; a part of a name leaves those that contain it."""
    page.goto("/ui/tables/shop/lineitem/columns")
    names = page.get_by_role("rowheader")
    before = [text.partition(" ")[0] for text in names.all_text_contents()]
    page.get_by_role("columnheader", name="Column").get_by_role("link").click()
    assert [text.partition(" ")[0] for text in names.all_text_contents()] == sorted(before)
    page.get_by_role("columnheader", name="Distinct values").get_by_role("link").click()
    counts = page.locator("td[data-label='Distinct values']").all_text_contents()
    known = [int(text.strip("≈ ").replace(",", "")) for text in counts if text != "\N{EN DASH}"]
    assert known == sorted(known, reverse=True)
    page.get_by_label("Name holds").fill("DATE")
    page.get_by_role("button", name="Show").click()
    assert sorted(text.partition(" ")[0] for text in names.all_text_contents()) == sorted(
        name for name in before if "date" in name
    )
    assert "sort=-distinct" in page.url


@pytest.mark.parametrize(("width", "scheme"), [(390, "dark"), (1440, "light"), (1024, "dark"), (390, "light")])
@pytest.mark.few(1)
def test_no_figure_is_cut_off(
    new_page: Callable[..., Page], axe: Check, screenshot: Take, width: int, scheme: str
) -> None:
    """However long names are: no page is wider than the screen, and no list in it scrolls sideways."""
    page = new_page(viewport={"width": width, "height": 900}, color_scheme=scheme)
    columns = f"/ui/tables/{LONG[0]}/{LONG[1]}/columns"
    for name, path in (("home", "/ui"), ("health", "/ui/health"), ("search", "/ui/search?q=a"), ("columns", columns)):
        page.goto(path)
        expect(page.locator("main")).not_to_contain_text("checked so far")
        expect(page.locator("#tables td").filter(has_text="…")).to_have_count(0)
        assert page.evaluate("document.documentElement.scrollWidth") <= width, name
        for part in page.locator(".wrap").all():
            assert part.evaluate("part => part.scrollWidth - part.clientWidth") <= 0, name
        axe(page)
        screenshot(page, f"{name}-{width}-{scheme}")
