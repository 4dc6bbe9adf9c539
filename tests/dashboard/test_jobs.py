"""The jobs screens in a real browser, with a real worker: ask for a job, watch it, cancel it, try it again."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from fixtures_server import ServerProcess, start_shared
from lamella.client import Lamella
from support.dashboard_tables import EVENTS, LINEITEM, fill
from support.job_kinds import install_pretend
from support.ready_pages import WAITING
from support.worker_process import Ledger, WorkerProcess, until

pytestmark = pytest.mark.browser

WAIT_FOR_FILE = Path(__file__).parent.parent / "support" / "command_gate.py"
StartWorker = Callable[..., WorkerProcess]
Check = Callable[[Page], None]
Take = Callable[[Page, str], None]

#: How long a worker, its program and the page may take together on a busy machine.
TIMEOUT_MS = 60_000

#: Notes every text that an element shows, also when the element itself is replaced.
NOTE_TEXTS = """
(selector) => {
  window.noted = [];
  const note = () => {
    const text = document.querySelector(selector)?.textContent;
    if (text && text !== window.noted.at(-1)) window.noted.push(text);
  };
  note();
  new MutationObserver(note).observe(document.body, { subtree: true, childList: true, characterData: true });
}
"""


@pytest.fixture(scope="module")
def shared_server(pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """A service of this file's own, since jobs change tables; it knows the pretended kind."""
    folder = tmp_path_factory.mktemp("dashboard-jobs")
    kinds = folder / "kinds"
    kinds.mkdir()
    with pytest.MonkeyPatch.context() as patch:
        for name, value in install_pretend(kinds).items():
            patch.setenv(name, value)
        server = start_shared(pytestconfig, folder, {"warehouse": folder / "warehouse", "workers": 2})
        with Lamella(server.url) as lake:
            fill(lake, folder, scale=0.001)
        yield server
        server.stop()


@pytest.fixture
def start_worker(shared_server: ServerProcess, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[StartWorker]:
    """Starts workers; they are stopped after the test, and a failure's report has their logs."""
    started: list[WorkerProcess] = []

    def start(name: str = "w", *options: str) -> WorkerProcess:
        started.append(WorkerProcess(shared_server.url, tmp_path, name, *options))
        return started[-1]

    yield start
    for worker in started:
        worker.stop()
        request.node.add_report_section("teardown", worker.log.name, worker.log.read_text("utf-8"))


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    """What pretended jobs do."""
    return Ledger(tmp_path / "ledger.jsonl")


@pytest.fixture(autouse=True)
def nothing_left(shared_server: ServerProcess) -> Iterator[None]:
    """No job outlives its test."""
    yield
    with Lamella(shared_server.url) as lake:
        for job in list(lake.jobs.list(states=["queued", "running"])):
            lake.jobs.cancel(job.job_id)


def test_a_compact_job_is_requested_seen_moving_and_changes_the_numbers(
    page: Page, lake: Lamella, start_worker: StartWorker, tmp_path: Path, axe: Check, screenshot: Take
) -> None:
    """The form says what would be done; the job is seen waiting, running and done; the table has fewer blocks then."""
    before = lake.table(EVENTS).info()
    page.goto("/ui/jobs")
    page.get_by_role("link", name="New job").click()
    page.get_by_role("link", name="compact", exact=True).click()
    page.get_by_label("Table").fill(EVENTS)
    page.get_by_role("button", name="Preview").click()
    count = before.block_count
    expect(page.get_by_role("status").filter(has_text=f"{count} blocks")).to_contain_text("about 1 block")
    expect(page.get_by_text(f"{count} of {count}").first).to_be_visible()
    axe(page)
    screenshot(page, "job_preview")
    assert lake.table(EVENTS).info().snapshot_id == before.snapshot_id
    page.get_by_role("button", name="Start the job").click()

    state = page.locator("#state h2")
    expect(state).to_have_text("State: queued")
    page.evaluate(NOTE_TEXTS, "#state h2")
    go = tmp_path / "go"
    start_worker("compactor", "--command-prefix", shlex.join([sys.executable, str(WAIT_FOR_FILE), str(go)]))
    expect(state).to_have_text("State: running", timeout=TIMEOUT_MS)
    expect(page.locator("#state")).to_contain_text("compactor")
    axe(page)
    screenshot(page, "job_running")
    go.touch()
    expect(state).to_have_text("State: succeeded", timeout=TIMEOUT_MS)
    assert page.evaluate("window.noted") == [f"State: {name}" for name in ("queued", "running", "succeeded")]
    result = page.locator("#state dl").last
    expect(result).to_contain_text(f"{count} → 1")
    axe(page)
    screenshot(page, "job_done")

    after = lake.table(EVENTS).info()
    assert (count > 1, after.block_count) == (True, 1)
    assert after.row_count == before.row_count
    page.get_by_role("link", name="Table", exact=True).click()
    expect(page.get_by_role("heading", level=1)).to_have_text("events")
    numbers = page.locator("dl").first.locator("div", has=page.get_by_text("Blocks", exact=True))
    expect(numbers.locator("dd")).to_have_text("1")


def test_a_bar_moves_and_clicks_cancel_and_retry(
    page: Page, lake: Lamella, start_worker: StartWorker, ledger: Ledger, axe: Check, screenshot: Take
) -> None:
    """In the queue a running job's bar moves by itself; a click ends it, and another has it begin again."""
    arguments = {"ledger": str(ledger.path), "steps": 2_000, "step_s": 0.05, "polls": True}
    job_id = lake.jobs.submit("pretend", LINEITEM, arguments).job_id
    start_worker("mover")
    page.goto(f"/ui/jobs?table={LINEITEM}&state=queued,running")
    row = page.get_by_role("row").filter(has_text=job_id)
    bar = row.get_by_role("progressbar")
    expect(bar).to_be_visible(timeout=TIMEOUT_MS)
    page.evaluate(NOTE_TEXTS, "progress")
    until(lambda: page.evaluate("window.noted.length") >= 3, "the bar moves")
    texts = page.evaluate("window.noted")
    done = [int(text.split(" of ")[0].replace(",", "")) for text in texts]
    assert done == sorted(done)
    assert done[0] < done[-1]
    assert texts[-1].endswith("of 2,000 steps")
    expect(row).to_contain_text("mover")
    expect(page.get_by_role("heading", level=2)).to_have_text("1 running, 0 queued")
    axe(page)
    screenshot(page, "jobs")

    row.get_by_role("link", name="Cancel").click()
    page.get_by_role("button", name="Cancel the job").click()
    expect(page.get_by_role("status").first).to_contain_text("cancelled")
    expect(page.locator("#state h2")).to_have_text("State: cancelled", timeout=TIMEOUT_MS)
    begun = len(ledger.lines("begin"))
    page.get_by_role("button", name="Retry").click()
    expect(page.locator("#state h2")).to_have_text("State: running", timeout=TIMEOUT_MS)
    ledger.await_lines("begin", begun + 1)
    expect(page.locator("#log")).to_contain_text("step", timeout=TIMEOUT_MS)
    page.get_by_role("link", name="Cancel").click()
    page.get_by_role("button", name="Cancel the job").click()
    until(lambda: lake.jobs.get(job_id).state == "cancelled", "the job is cancelled")


def test_the_queue_shows_what_comes_by_itself(page: Page, lake: Lamella) -> None:
    """A job that somebody else asks for appears on the page while it is open."""
    page.goto(f"/ui/jobs?kind=vacuum&table={EVENTS}")  # no other test asks for one of these
    expect(page.get_by_text("No job matches.")).to_be_visible()
    job_id = lake.jobs.submit("vacuum", EVENTS, delay_s=600).job_id
    expect(page.get_by_role("row").filter(has_text=job_id)).to_contain_text("queued", timeout=TIMEOUT_MS)


def test_the_keyboard_alone_asks_for_a_job(page: Page, lake: Lamella) -> None:
    """Typing and the tab and enter keys lead from the choice of a kind to a job that waits."""
    page.goto(f"/ui/jobs/new?table={LINEITEM}")
    page.get_by_role("link", name="verify", exact=True).focus()
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", level=1)).to_have_text("Verify")
    page.get_by_label("Deep").focus()
    page.keyboard.press("Space")
    page.get_by_label("Blocks").focus()
    page.keyboard.type("3")
    page.keyboard.press("Enter")
    expect(page.get_by_text("Blocks whose values are read")).to_be_visible()
    page.get_by_role("button", name="Start the job").focus()
    page.keyboard.press("Enter")
    expect(page.locator("#state h2")).to_have_text("State: queued")
    (job,) = lake.jobs.list(kinds=["verify"], states=["queued"], table=LINEITEM)
    assert job.arguments == {"deep": True, "blocks": 3}


def test_without_a_script_a_job_is_read_and_requested(new_page: Callable[..., Page]) -> None:
    """Forms, listings and jobs need no script."""
    page = new_page(java_script_enabled=False)
    page.goto(f"/ui/jobs/new?kind=vacuum&table={LINEITEM}&preview=1")
    for _ in range(200):
        if WAITING not in page.content():
            break
        page.reload()  # no script asks again
    page.get_by_role("button", name="Start the job").click()
    expect(page.locator("#state h2")).to_have_text("State: queued")
    page.goto("/ui/jobs")
    page.get_by_label("State").select_option("queued")
    page.get_by_role("button", name="Show").click()
    row = page.get_by_role("row").filter(has_text="vacuum").filter(has_text=LINEITEM)
    expect(row).to_be_visible()
    row.get_by_role("link", name="Cancel").click()
    page.get_by_role("button", name="Cancel the job").click()
    expect(page.locator("#state h2")).to_have_text("State: cancelled")


@pytest.mark.parametrize(
    "options",
    [{}, {"color_scheme": "dark", "viewport": {"width": 360, "height": 780}}],
    ids=["light", "dark-narrow"],
)
@pytest.mark.parametrize(
    "path",
    [
        "/ui/jobs",
        "/ui/jobs/new",
        f"/ui/jobs/new?kind=recluster&table={LINEITEM}&preview=1",
        f"/ui/jobs/new?kind=update&table={LINEITEM}&set=x&priority=high&preview=1",
        f"/ui/jobs/new?kind=vacuum&table={LINEITEM}&preview=1",
        "/ui/tables/shop/lineitem/indexes/new",
        "/ui/tables/shop/lineitem/indexes/new?kind=bloom&name=by_order&expression=l_orderkey&preview=1",
        "/ui/tables/shop/lineitem/indexes/by_part/drop",
    ],
)
@pytest.mark.few(5)
def test_every_screen_is_fit_for_all(
    new_page: Callable[..., Page], lake: Lamella, axe: Check, path: str, options: dict[str, object]
) -> None:
    """Roles, labels and contrasts hold in light, and in dark on a narrow screen, which nothing is wider than."""
    job = lake.jobs.submit("verify", LINEITEM, delay_s=600)
    lake.jobs.cancel(job.job_id)
    page = new_page(**options)
    page.goto(path)
    axe(page)
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_an_index_is_made_filled_dropped_and_restored_by_clicks(
    page: Page, lake: Lamella, start_worker: StartWorker, screenshot: Take
) -> None:
    """The form says what comes of it; a job fills it; it can be dropped and used again."""
    page.goto("/ui/tables/shop/lineitem/indexes")
    page.get_by_role("link", name="New index").click()
    page.get_by_role("link", name="bloom", exact=True).click()
    page.get_by_label("Name").fill("by_order")
    page.get_by_label("Over").fill("l_orderkey")
    page.get_by_role("button", name="Preview").click()
    expect(page.get_by_text("Bytes per block")).to_be_visible()
    screenshot(page, "index_preview")
    page.get_by_role("button", name="Create the index").click()
    expect(page.locator("#state h2")).to_have_text("State: queued")
    start_worker("indexer")
    expect(page.locator("#state h2")).to_have_text("State: succeeded", timeout=TIMEOUT_MS)
    coverage = lake.table(LINEITEM).index("by_order").coverage
    assert coverage is not None
    assert coverage.not_indexed == 0

    page.goto("/ui/tables/shop/lineitem/indexes")
    page.get_by_role("link", name="Drop by_order").click()
    page.get_by_role("button", name="Drop the index").click()
    expect(page.get_by_role("row").filter(has_text="by_order")).to_contain_text("dropped")
    assert lake.table(LINEITEM).index("by_order").dropped_ms is not None
    page.get_by_role("link", name="Restore by_order").click()
    page.get_by_role("button", name="Restore the index").click()
    expect(page.get_by_role("row").filter(has_text="by_order")).to_contain_text("in use")
    assert lake.table(LINEITEM).index("by_order").dropped_ms is None
