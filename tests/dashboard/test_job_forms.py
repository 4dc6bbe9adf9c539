"""The forms by which jobs and indexes are asked for, over plain HTTP: what they say, what they refuse, what they do."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from fixtures_server import ServerProcess, start_shared
from lamella.client import Lamella
from lamella.service.app import create_app
from lamella.service.config.settings import Settings
from lamella.service.dashboard import indexes as indexes_module
from lamella.service.dashboard import preview as preview_module
from lamella.service.dashboard.preview import CHEAP_BYTES, cheap_sample
from lamella.snapshot.ids import Ids
from lamella.snapshot.job_kinds import job_kinds
from lamella.snapshot.wire import FinishJob, Heartbeat, JobError, JobInfo, JobLine, Progress
from support.app_client import AppClient
from support.dashboard_tables import EVENTS, LINEITEM, fill, fill_tickets
from support.posted_forms import Form, Screens
from support.ready_pages import when_ready

NEW = "/ui/jobs/new"
INDEXES = "/ui/tables/shop/lineitem/indexes"
FAR_S = 86_000
IDS = Ids()
MARKUP = "<script>alert('&amp;')</script>"


@pytest.fixture(scope="module")
def shared_server(pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """A service of this file's own, whose queue is empty."""
    folder = tmp_path_factory.mktemp("dashboard-forms")
    server = start_shared(pytestconfig, folder, {"warehouse": folder / "warehouse", "vacuum_min_age_s": 1})
    with Lamella(server.url) as lake:
        fill(lake, folder, scale=0.001)
    yield server
    server.stop()


@pytest.fixture(autouse=True)
def nothing_left(shared_server: ServerProcess) -> Iterator[None]:
    """No job outlives its test."""
    yield
    with Lamella(shared_server.url) as lake:
        for job in list(lake.jobs.list(states=["queued", "running"])):
            lake.jobs.cancel(job.job_id)


def preview(screens: Screens, kind: str, **texts: Any) -> Form:
    """What a form says that was filled so."""
    return screens.get(NEW, kind=kind, preview="1", **texts)


def submitted(screens: Screens, form: Form, lake: Lamella, **more: Any) -> JobInfo:
    """The job that comes of a form."""
    target = screens.post(NEW, form, **more).headers["location"]
    return lake.jobs.get(target.removeprefix("/ui/jobs/").partition("?")[0])


def jobs_of(lake: Lamella) -> list[str]:
    """All there are."""
    return [job.job_id for job in lake.jobs.list()]


def taken(lake: Lamella) -> tuple[str, str]:
    """A compact job that a worker took, and the token of that."""
    made = lake.jobs.submit("compact", EVENTS, priority=1_000)
    token = str(IDS.new())
    claimed = lake.jobs.claim("tester", token, lease_s=60)
    assert claimed.job is not None
    assert claimed.job.job_id == made.job_id
    return made.job_id, token


def ended(lake: Lamella, lines: Sequence[str] = (), **ending: Any) -> JobInfo:
    """Such a job that told of its work, and is over."""
    job_id, token = taken(lake)
    log = tuple(JobLine(number=number, at_ms=1_700_000_000_000, text=text) for number, text in enumerate(lines, 1))
    return lake.jobs.finish(job_id, FinishJob(lease_token=token, log=log, **ending))


@pytest.mark.parametrize("name", sorted(job_kinds()))
def test_every_kind_has_a_form_with_all_of_its_arguments(screens: Screens, name: str) -> None:
    """Made from what the kind takes: each argument has a field with a label; what executes is asked for at the end."""
    kind = job_kinds()[name]
    form = screens.get(NEW, kind=name, table=EVENTS)
    wanted = [field.name for field in msgspec.structs.fields(kind.arguments) if field.name != "execute"]
    for argument in wanted:
        assert {argument, f"arg_{argument}"} & form.names, argument
        assert any(label.strip().lower().startswith(argument.replace("_", " ")) for label in form.labels), argument
    assert "execute" not in form.names
    assert form.alerts == []


def test_all_kinds_can_be_chosen(screens: Screens) -> None:
    """The first page says what each does; one that there is not is said to be none."""
    text = screens.get(NEW).text
    for kind in job_kinds().values():
        assert kind.text in text
    assert "no job kind" in screens.get(NEW, kind="magic", expect=404).alerts[0]


def test_a_preview_of_compaction_says_what_the_plan_says(screens: Screens, lake: Lamella) -> None:
    """Tasks, blocks, bytes and what is left are those of the REST API's plan; nothing is changed by looking."""
    before, jobs = lake.table(EVENTS).info(), jobs_of(lake)
    plan = lake.table(EVENTS).plan("compact", max_blocks=10)
    blocks = sum(len(task.blocks) for task in plan.tasks)
    text = preview(screens, "compact", table=EVENTS, max_blocks="10").text
    assert f"{blocks} of {before.block_count}" in text
    assert plan.reason[1:].rstrip(".") in text  # the page begins a sentence with it
    assert "Depth now" in text
    assert (lake.table(EVENTS).info(), jobs_of(lake)) == (before, jobs)


def test_a_preview_of_reclustering_says_what_a_look_up_gains(screens: Screens, lake: Lamella) -> None:
    """The blocks that a look-up reads less are the plan's; a filter narrows it; without work there is a reason."""
    plan = lake.table(LINEITEM).plan("recluster")
    assert plan.tasks
    text = preview(screens, "recluster", table=LINEITEM).text
    assert f"{sum(task.blocks_saved for task in plan.tasks):.1f} blocks less" in text
    nothing = preview(screens, "recluster", table=LINEITEM, min_gain="1e9").text
    assert "There is nothing to do" in nothing


def test_a_preview_of_a_delete_tells_whole_blocks_from_others(screens: Screens, lake: Lamella) -> None:
    """Blocks in which every row matches go unread; their number and rows are those of the prune."""
    where = "at < 1000"
    selected = lake.table(EVENTS).prune(where, shape="records").blocks
    assert selected is not None
    whole = [block for block in selected if block.verdict == "ALL"]
    part = [block for block in selected if block.verdict != "ALL"]
    assert whole
    assert part
    text = preview(screens, "delete", table=EVENTS, where=where).text
    rows = sum(block.row_count for block in selected)
    assert f"{lake.table(EVENTS).scan(where).count():,} rows are deleted, as the table is now" in text
    assert f"{len(part)} block that may match in part were read" in text.replace("was", "were")
    assert f"{rows:,} of " in text
    assert f"{len(whole)} with {sum(block.row_count for block in whole):,} rows" in text
    assert f"{len(part)} with {sum(block.row_count for block in part):,} rows" in text
    assert "nothing would be deleted" in preview(screens, "delete", table=EVENTS, where="at < 0").text


@pytest.mark.parametrize("kind", ["delete", "update"])
def test_rows_are_counted_by_themselves_where_that_reads_little_and_else_on_request(
    screens: Screens, lake: Lamella, kind: str
) -> None:
    """A preview of many blocks reads none, says "at most", and has a button; the count is that of a scan."""
    where = "user_id = 1 AND score > 0.5"
    texts = {"table": EVENTS, "where": where, **({"set": "kind = 'x'"} if kind == "update" else {})}
    form = preview(screens, kind, **texts)
    assert "At most " in form.text
    assert "Count the rows: reads 40 blocks" in form.text
    rows = lake.table(EVENTS).scan(where).count()
    counted = preview(screens, kind, **texts, measure="1")
    assert f"{rows:,} rows are {kind}d" in counted.text.replace("changed", "updated")
    assert "40 blocks that may match in part were read" in counted.text
    assert "At most" not in counted.text
    assert "Count the rows" not in counted.text
    none = preview(screens, kind, **{**texts, "where": "at BETWEEN 100 AND 130 AND kind = 'nothing'"})
    assert f"No row is {kind}d" in none.text.replace("changed", "updated")


@pytest.mark.parametrize(
    ("blocks", "size_bytes", "read"),
    [
        (0, 0, 0),
        (1, 1, 1),
        (1, CHEAP_BYTES + 1, 0),
        (100, 100 << 10, 32),
        (100, 100 * (4 << 20), 16),
        (100, 100 * (8 << 20), 8),
        (100, 100 * (8 << 20) + 100, 0),
        (3, CHEAP_BYTES, 3),
    ],
)
def test_a_page_reads_by_itself_what_is_small(blocks: int, size_bytes: int, read: int) -> None:
    """At most 32 blocks and 64 MiB; none if that would be fewer than 8 blocks."""
    assert cheap_sample(blocks, size_bytes) == read
    assert read * size_bytes <= CHEAP_BYTES * max(blocks, 1)


@pytest.mark.usefixtures("tickets")
def test_an_index_over_large_blocks_is_measured_on_request(lake: Lamella, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is not known is not called no gain; the button says what it reads, and why nothing was read by itself."""
    monkeypatch.setattr(preview_module, "CHEAP_BYTES", 1)
    assert lake.table("shop.tickets").recorded_filters().filters  # the process of the service writes its notes
    warehouse = Path(lake.table("shop.tickets").info().location.removeprefix("file://")).parent
    with AppClient(create_app(Settings(warehouse=str(warehouse)))) as app:
        assert app.get("/v1/namespaces/shop/tables/tickets/recorded").json()["filters"]
        params = {"kind": "bloom", "name": "by_id", "expression": "id", "preview": "1"}
        path = "/ui/tables/shop/tickets/indexes/new"
        page = Form(when_ready(app, path, params).text)
        assert "The benefit of the index cannot be predicted" in page.text
        assert "helps none" not in page.text
        assert "no data was read" in page.text
        assert "Read 32 blocks (about " in page.text
        measured = Form(when_ready(app, path, {**params, "measure": "1"}).text)
        assert "It helps 1 of 1 recorded filter" in measured.text
        assert "over 32 blocks that were read" in measured.text
        monkeypatch.setattr(preview_module, "CHEAP_BYTES", 1 << 30)
        monkeypatch.setattr(indexes_module, "CHEAP_S", 0.0)
        slow = Form(when_ready(app, path, {**params, "name": "another"}).text)
        assert "Reading a sample of blocks took too long" in slow.text
        assert "cannot be predicted" in slow.text


@pytest.mark.parametrize(
    ("kind", "texts", "says"),
    [
        ("regroup", {"table": LINEITEM}, "There is nothing to do"),
        ("index_refresh", {"table": LINEITEM, "index": "by_part"}, "10 blocks would be indexed"),
        ("index_refresh", {"table": LINEITEM, "index": "by_part", "mode": "full"}, "read and indexed again"),
        ("update", {"table": EVENTS, "set": "kind = 'x'", "where": "at < 1000"}, "are rewritten"),
        ("vacuum", {"table": LINEITEM}, "clean up"),
        ("vacuum_dropped", {}, "There is nothing to clean up"),
        ("verify", {"table": LINEITEM, "deep": "on", "blocks": "7"}, "60 blocks of"),
    ],
)
def test_each_preview_says_what_would_be_touched(
    screens: Screens, lake: Lamella, kind: str, texts: dict[str, Any], says: str
) -> None:
    """In words, and without changing anything."""
    before = (lake.table(LINEITEM).info(), lake.table(EVENTS).info(), jobs_of(lake))
    assert says in preview(screens, kind, **texts).text
    assert (lake.table(LINEITEM).info(), lake.table(EVENTS).info(), jobs_of(lake)) == before


@pytest.mark.parametrize(
    ("kind", "texts", "said"),
    [
        ("compact", {"max_blocks": "many"}, "whole number, not 'many'"),
        ("compact", {"max_blocks": "0"}, ">= 1"),
        ("compact", {"max_bytes": "5 parsecs"}, "whole number"),
        ("compact", {"where": "at ="}, "offset"),
        ("compact", {"where": "nowhere = 1"}, "no column 'nowhere'"),
        ("compact", {"where": "at = DATE '2020-01-01'"}, "at"),
        ("compact", {"priority": "high"}, "whole number"),
        ("recluster", {"min_gain": "-1"}, ">= 0"),
        ("index_refresh", {}, "required"),
        ("index_refresh", {"index": "nowhere"}, "no index 'nowhere'"),
        ("index_refresh", {"index": "x", "mode": "all"}, "all"),
        ("delete", {}, "required"),
        ("update", {"set": "kind"}, "a name, = and a value"),
        ("update", {"set": "colour = 1", "all": "on"}, "no column 'colour'"),
        ("update", {"set": "kind = 'x'"}, "exactly one of where and all"),
        ("vacuum", {"older_than": "long"}, "not a duration"),
        ("verify", {"blocks": "3"}, "deep"),
        ("verify", {"snapshot": "nowhere"}, "nowhere"),
        ("compact", {"table": "events"}, "namespace.table"),
        ("compact", {"table": "shop.nowhere"}, "shop.nowhere"),
        ("refresh", {}, "no source"),
    ],
)
def test_a_wrong_argument_is_shown_beside_its_field(
    screens: Screens, lake: Lamella, kind: str, texts: dict[str, str], said: str
) -> None:
    """What was typed stays; nothing can be started from such a page, and nothing is, whatever is posted."""
    jobs = jobs_of(lake)
    given = {"table": EVENTS, **texts}
    answer = when_ready(screens.http, NEW, {"kind": kind, "preview": "1", **given})
    assert answer.status_code == 400
    form = Form(answer.text)
    assert any(said in alert for alert in form.alerts), form.alerts
    assert "Start the job" not in form.text
    for text in texts.values():
        assert text.replace("'", "&#39;").replace(">", "&gt;") in answer.text
    assert jobs_of(lake) == jobs


def test_a_wrong_filter_shows_its_position(screens: Screens) -> None:
    """The field knows at which character the filter cannot be read, for the caret."""
    answer = when_ready(screens.http, NEW, {"kind": "compact", "table": EVENTS, "preview": "1", "where": "at ="})
    assert 'data-error-at="3"' in answer.text


def test_a_wrong_argument_that_is_posted_starts_nothing(screens: Screens, lake: Lamella) -> None:
    """A form whose hidden fields were changed is answered with the page, its errors and what was sent."""
    jobs = jobs_of(lake)
    form = preview(screens, "compact", table=EVENTS)
    answer = screens.post(NEW, form, expect=400, max_blocks="-5")
    assert any(">= 1" in alert for alert in Form(answer.text).alerts)
    answer = screens.post(NEW, form, expect=404, table="shop.nowhere")
    assert any("shop.nowhere" in alert for alert in Form(answer.text).alerts)
    assert jobs_of(lake) == jobs


def test_the_job_is_what_was_previewed(screens: Screens, lake: Lamella) -> None:
    """Sizes with units, lines of a mapping, an argument called as the kind is: all arrive as the kind takes them."""
    texts: dict[str, Any] = {
        "table": EVENTS,
        "max_bytes": "1.5 GiB",
        "target_rows": "1,000,000",
        "where": "at < 5",
        "priority": "7",
    }
    job = submitted(screens, preview(screens, "compact", **texts), lake)
    assert job.arguments == {"max_bytes": 3 << 29, "target_rows": 1_000_000, "where": "at < 5"}
    assert (job.kind, job.table, job.priority, job.state) == ("compact", EVENTS, 7, "queued")
    form = preview(screens, "update", table=EVENTS, set="kind = 'a=b'\nscore = score + 1", all="on")
    job = submitted(screens, form, lake)
    assert job.arguments == {"set": {"kind": "'a=b'", "score": "score + 1"}, "all": True}
    job = submitted(screens, preview(screens, "regroup", table=LINEITEM, by="l_orderkey", arg_kind="linear"), lake)
    assert job.arguments == {"by": "l_orderkey", "kind": "linear"}


@pytest.mark.parametrize("execute", [False, True])
def test_a_dry_run_is_marked_as_one_to_its_end(screens: Screens, lake: Lamella, execute: bool) -> None:
    """Its page says so while it waits and when it succeeded; the same job that deletes has no such mark."""
    job = lake.jobs.submit("vacuum", EVENTS, {"execute": True} if execute else None, priority=1_000)
    assert ("dry run" in screens.get(f"/ui/jobs/{job.job_id}").text) is not execute
    token = str(IDS.new())
    claimed = lake.jobs.claim("tester", token, lease_s=60)
    assert claimed.job is not None
    assert claimed.job.job_id == job.job_id
    lake.jobs.finish(job.job_id, FinishJob(lease_token=token, outcome="succeeded", result={"deleted": 0}))
    page = screens.get(f"/ui/jobs/{job.job_id}").text
    assert ("nothing was changed or deleted" in page) is not execute


def test_only_a_tick_beside_the_preview_has_a_vacuum_execute(screens: Screens, lake: Lamella) -> None:
    """No address can say it; without the tick the job is a dry run."""
    form = preview(screens, "vacuum", table=LINEITEM, execute="on")
    assert "execute" in form.names
    assert "execute" not in form.fields
    assert submitted(screens, form, lake).arguments == {}
    form = preview(screens, "vacuum", table=LINEITEM)
    assert submitted(screens, form, lake, execute="on").arguments == {"execute": True}


def test_a_form_that_is_sent_twice_asks_for_one_job(screens: Screens, lake: Lamella) -> None:
    """Going back and pressing again does nothing more; neither does the same job while one is pending."""
    form = preview(screens, "compact", table=EVENTS, max_blocks="3", unique="no")
    first = submitted(screens, form, lake)
    assert submitted(screens, form, lake).job_id == first.job_id
    other = submitted(screens, preview(screens, "compact", table=EVENTS, max_blocks="3", unique="no"), lake)
    assert other.job_id != first.job_id
    again = screens.post(NEW, preview(screens, "compact", table=EVENTS, max_blocks="3")).headers["location"]
    assert again.endswith("?done=already_queued")
    assert "pending already" in screens.get(again).text


def test_the_listing_is_narrowed_by_its_address(screens: Screens, lake: Lamella) -> None:
    """By state, kind and table; a wrong table is told beside its field."""
    waiting = lake.jobs.submit("compact", EVENTS, delay_s=FAR_S).job_id
    over = lake.jobs.submit("verify", LINEITEM, delay_s=FAR_S).job_id
    lake.jobs.cancel(over)

    def shown(**query: Any) -> tuple[bool, bool]:
        text = screens.get("/ui/jobs", **query).text
        return waiting in text, over in text

    assert shown() == (True, True)
    assert shown(state="queued,running") == (True, False)
    assert shown(state="cancelled") == (False, True)
    assert shown(kind="compact") == (True, False)
    assert shown(table=LINEITEM) == (False, True)
    assert shown(state="queued", kind="verify") == (False, False)
    for wrong in ("table=events", "state=asleep", "before=nonsense"):
        assert screens.get(f"/ui/jobs?{wrong}", expect=400).alerts


def test_older_jobs_are_on_next_pages(screens: Screens, lake: Lamella) -> None:
    """Each job is on one page, the newest first; links lead on."""
    made = [lake.jobs.submit("compact", EVENTS, {"max_blocks": 1 + n}, delay_s=FAR_S).job_id for n in range(60)]
    seen: list[str] = []
    path = f"/ui/jobs?state=queued&table={EVENTS}"
    while path:
        html = screens.http.get(path).text
        seen += sorted((job for job in made if f'id="job-{job}"' in html), reverse=True)
        at = html.find('" id="older"')
        path = html[html.rindex('href="', 0, at) + 6 : at].replace("&amp;", "&") if at > 0 else ""
    assert seen == made[::-1]


def test_a_running_job_says_who_is_at_it(screens: Screens, lake: Lamella) -> None:
    """The worker, the attempts, and that it was asked to end."""
    job_id, token = taken(lake)
    text = screens.get("/ui/jobs", state="running").text
    assert "tester" in text
    assert "1 of 3" in text
    screens.post(f"/ui/jobs/{job_id}/cancel", screens.get(f"/ui/jobs/{job_id}"))
    assert lake.jobs.get(job_id).cancel_requested
    assert "cancelling" in screens.get("/ui/jobs").text
    assert "Cancellation was requested" in screens.get(f"/ui/jobs/{job_id}").text
    lake.jobs.finish(job_id, FinishJob(lease_token=token, outcome="cancelled"))


@pytest.mark.parametrize(
    ("progress", "words"),
    [
        (Progress(done=12, total=40, unit="blocks"), "12 of 40 blocks"),
        (Progress(done=1 << 20, total=3 << 20, unit="bytes"), "1.0 MiB of 3.0 MiB"),
        (Progress(done=1_234, unit="rows"), "1,234 rows"),
        (Progress(message=MARKUP), MARKUP),
    ],
)
def test_progress_is_shown_in_words(screens: Screens, lake: Lamella, progress: Progress, words: str) -> None:
    """Beside the bar, which has a name."""
    job_id, token = taken(lake)
    lake.jobs.heartbeat(job_id, Heartbeat(lease_token=token, lease_s=60, progress=progress))
    for path in ("/ui/jobs", f"/ui/jobs/{job_id}"):
        answer = screens.http.get(path)
        assert words in Form(answer.text).text
        assert "<progress aria-label=" in answer.text
    lake.jobs.finish(job_id, FinishJob(lease_token=token, outcome="cancelled"))


def test_a_result_is_shown_in_words(screens: Screens, lake: Lamella) -> None:
    """Blocks and bytes before and after; other names as they are; all of it as JSON too."""
    result = {
        "blocks_before": 40,
        "blocks_after": 3,
        "bytes_before": 4 << 20,
        "bytes_after": 3 << 20,
        "rows": 12_345,
        "failures": [{"blocks": ["x"], "reason": MARKUP}],
        "reason": MARKUP,
        "deep": {"is_clean": True},
    }
    job = ended(lake, outcome="succeeded", result=result)
    answer = screens.http.get(f"/ui/jobs/{job.job_id}")
    text = Form(answer.text).text
    for words in ("40 → 3", "4.0 MiB → 3.0 MiB", "12,345", "1 entry", "Deep: Is clean", MARKUP, '"blocks_before": 40'):
        assert words in text, words
    assert "<script>alert" not in answer.text
    assert 'data-live="1"' not in answer.text


def test_an_error_is_shown_and_a_click_tries_again(screens: Screens, lake: Lamella) -> None:
    """The code, the detail, its details; the listing has it too; retry queues the job again."""
    error = JobError(code="commit_conflict", detail=MARKUP, details={"snapshot_is": "current"})
    job = ended(lake, outcome="failed", error=error, retry=False)
    text = screens.get(f"/ui/jobs/{job.job_id}").text
    for words in ("commit_conflict", MARKUP, "Snapshot is", "current"):
        assert words in text
    assert "commit_conflict" in screens.get("/ui/jobs", state="failed").text
    form = screens.get(f"/ui/jobs/{job.job_id}")
    screens.post(f"/ui/jobs/{job.job_id}/retry", form)
    assert lake.jobs.get(job.job_id).state == "queued"


def test_a_job_that_is_over_cannot_be_cancelled(screens: Screens, lake: Lamella) -> None:
    """The page has no button for it; a form that is sent all the same is answered with the reason."""
    job = ended(lake, outcome="succeeded", result={})
    form = screens.get(f"/ui/jobs/{job.job_id}")
    assert "Cancel" not in form.text
    assert "has ended" in Form(screens.post(f"/ui/jobs/{job.job_id}/cancel", form, expect=409).text).text
    screens.get("/ui/jobs/nowhere", expect=404)


def test_the_end_of_a_log_is_shown_and_leads_to_what_is_before(screens: Screens, lake: Lamella) -> None:
    """The last lines, as text; links go back to the first; a page is bounded however long the lines are."""
    job = ended(lake, [f"line {number} {MARKUP}" for number in range(1, 501)], outcome="succeeded")
    path = f"/ui/jobs/{job.job_id}"
    form = screens.get(path)
    assert f"line 500 {MARKUP}" in form.text
    assert "line 301 " in form.text
    assert "line 300 " not in form.text
    before = screens.get(path, after="100")
    assert "line 101 " in before.text
    assert "line 300 " in before.text
    assert "line 301 " not in before.text
    assert "line 1 " in screens.get(path, after="0").text
    screens.get(path, after="x", expect=400)
    long = ended(lake, ["<" * 1_900 + str(number) for number in range(300)], outcome="succeeded")
    answer = screens.http.get(f"/ui/jobs/{long.job_id}")
    assert len(answer.content) < 500_000
    assert "&lt;299" in answer.text


def test_another_like_this_has_the_same_arguments(screens: Screens, lake: Lamella) -> None:
    """The link leads to a form that is filled as the job was."""
    made = lake.jobs.submit("update", EVENTS, {"set": {"kind": "'a'"}, "where": "at < 9"}, delay_s=FAR_S)
    lake.jobs.cancel(made.job_id)
    html = screens.http.get(f"/ui/jobs/{made.job_id}").text
    at = html.index('" id="again"')
    form = screens.http.get(html[html.rindex('href="', 0, at) + 6 : at].replace("&amp;", "&")).text
    assert "kind = &#39;a&#39;</textarea>" in form
    assert "at &lt; 9</textarea>" in form


def test_an_index_form_says_what_comes_of_it(screens: Screens, lake: Lamella) -> None:
    """Its size, its score and what the recorded filters would read; nothing is made by looking."""
    before = lake.table(LINEITEM).indexes(dropped=True)
    form = screens.get(INDEXES + "/new", kind="bloom", name="maybe", expression="l_partkey", preview="1")
    for words in ("Bytes per block", "Score, of 100", "A recorded filter reads now", "l_partkey (int64)"):
        assert words in form.text
    over = screens.get(INDEXES + "/new", kind="value_set", name="maybe", expression="l_quantity * 2", preview="1")
    assert "(l_quantity * 2)" in over.text or "l_quantity * 2" in over.text
    assert lake.table(LINEITEM).indexes(dropped=True) == before


@pytest.fixture(scope="module")
def tickets(shared_server: ServerProcess, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """128 blocks, each of which may have any id; nobody counted these."""
    with Lamella(shared_server.url) as lake:
        name = fill_tickets(lake, tmp_path_factory.mktemp("tickets"))
        yield name
        lake.drop_table(name)


@pytest.mark.usefixtures("tickets")
@pytest.mark.parametrize("kind", ["bloom", "keys", "value_set"])
def test_an_index_whose_gain_the_manifests_cannot_predict_is_tried_on_some_blocks(screens: Screens, kind: str) -> None:
    """An index that leaves hardly a block is not said to help nothing because nobody counted different values."""
    answer = when_ready(
        screens.http,
        "/ui/tables/shop/tickets/indexes/new",
        {"kind": kind, "name": "by_id", "expression": "id", "preview": "1"},
    )
    said = Form(answer.text).text
    assert "helps none" not in said
    assert "It helps 1 of 1 recorded filter" in said
    assert "Measured with an index in memory over 32 blocks that were read." in said
    assert "unknown from manifests" in said or " to " in said.partition("Score, of 100")[2][:40]


@pytest.mark.usefixtures("tickets")
def test_an_index_that_is_not_queried_is_still_said_to_help_nothing(screens: Screens) -> None:
    """What is known to be no gain is no guess, and no block is read for it."""
    answer = when_ready(
        screens.http,
        "/ui/tables/shop/tickets/indexes/new",
        {"kind": "bloom", "name": "by_id", "expression": "length(id)", "preview": "1"},
    )
    said = Form(answer.text).text
    assert "The index helps none of the 1 recorded filter" in said
    assert "no data was read" in said


@pytest.mark.usefixtures("tickets")
def test_the_lab_says_what_cannot_be_predicted_and_how_to_measure_it(screens: Screens) -> None:
    """Never that a filter would read as much as now; the link reads some blocks and tells."""
    params = {"with": "index", "kind": "bloom", "expression": "id", "filter": "id = '80000000'", "sample": "0"}
    path = "/ui/tables/shop/tickets/lab/compare"
    page = when_ready(screens.http, path, params)
    assert "cannot be predicted" in page.text
    assert "as many bytes as now" not in page.text
    assert "Read 32 blocks and measure" in page.text
    measured = when_ready(screens.http, path, {**params, "sample": "32"})
    assert "Measured on 32 blocks" in measured.text
    assert "fewer (" in measured.text
    assert "cannot be predicted" not in measured.text
    by_itself = when_ready(screens.http, path, {**params, "sample": ""})
    assert "Measured on 32 blocks" in by_itself.text


@pytest.mark.parametrize(
    ("texts", "said"),
    [
        ({"name": "by part", "expression": "l_partkey"}, "not a valid index name"),
        ({"name": "by_part", "expression": "l_partkey"}, "already"),
        ({"name": "x", "expression": "l_nowhere"}, "no column 'l_nowhere'"),
        ({"name": "x", "expression": "l_partkey +"}, "offset"),
        ({"name": "x", "expression": "1 + 1"}, "does not refer to a column"),
        ({"name": "x"}, "required"),
        ({"expression": "l_partkey"}, "required"),
        ({"name": "x", "expression": "l_partkey", "opt_false_positives": "2"}, "false_positives"),
        ({"name": "x", "expression": "l_partkey", "opt_false_positives": "few"}, "umber, not 'few'"),
        ({"name": "x", "expression": "l_partkey", "time_zone": "Moon"}, "time zone"),
    ],
)
def test_a_wrong_index_is_shown_beside_its_field(
    screens: Screens, lake: Lamella, texts: dict[str, str], said: str
) -> None:
    """What was typed stays, and nothing is made."""
    before = lake.table(LINEITEM).indexes(dropped=True)
    answer = when_ready(screens.http, INDEXES + "/new", {"kind": "bloom", "preview": "1", **texts})
    assert answer.status_code == 400
    form = Form(answer.text)
    assert any(said in alert for alert in form.alerts), form.alerts
    assert "Create the index" not in form.text
    for text in texts.values():
        assert f'value="{text}"' in answer.text
    assert lake.table(LINEITEM).indexes(dropped=True) == before


def test_an_index_is_made_once_with_the_job_that_fills_it(screens: Screens, lake: Lamella) -> None:
    """Also when its form is sent twice; its options are those that were typed; a taken name is told."""
    path = INDEXES + "/new"
    texts: dict[str, Any] = {
        "kind": "bloom",
        "name": "by_supplier",
        "expression": "l_suppkey",
        "opt_false_positives": "0.02",
    }
    form = screens.get(path, preview="1", **texts)
    first = screens.post(path, form).headers["location"]
    assert screens.post(path, form).headers["location"] == first
    job = lake.jobs.get(first.removeprefix("/ui/jobs/").partition("?")[0])
    assert (job.kind, job.table, job.arguments) == ("index_refresh", LINEITEM, {"index": "by_supplier"})
    assert lake.table(LINEITEM).index("by_supplier").options["false_positives"] == 0.02
    fresh = Form(when_ready(screens.http, path, {**texts, "name": "by_other", "preview": "1"}).text)
    answer = screens.post(path, fresh, expect=409, name="by_supplier")
    assert any("already" in alert for alert in Form(answer.text).alerts)


def test_an_index_is_dropped_and_restored_after_a_look(screens: Screens, lake: Lamella) -> None:
    """A page says what goes first; looking changes nothing."""
    lake.table(LINEITEM).create_index("passing", "minmax", "l_tax")
    form = screens.get(INDEXES + "/passing/drop")
    assert "l_tax" in form.text
    assert lake.table(LINEITEM).index("passing").dropped_ms is None
    assert screens.post(INDEXES + "/passing/drop", form).headers["location"] == f"{INDEXES}?done=index_dropped"
    assert lake.table(LINEITEM).index("passing").dropped_ms is not None
    form = screens.get(INDEXES + "/passing/restore")
    screens.post(INDEXES + "/passing/restore", form)
    assert lake.table(LINEITEM).index("passing").dropped_ms is None
    screens.get(INDEXES + "/nowhere/drop", expect=404)
