"""Jobs: the queue and what came of those that are over, one job with its log, and asking for more."""

from __future__ import annotations

from collections import Counter
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import Response

from lamella.service.access import ASKED
from lamella.service.catalog import JobFilter
from lamella.service.dashboard.asked import number_of
from lamella.service.dashboard.index_change import IndexChangePages
from lamella.service.dashboard.job_facts import (
    bar_of,
    end_of,
    error_facts,
    fact,
    facts_of_job,
    facts_of_result,
    line_of,
    shortened,
    shown_json,
)
from lamella.service.dashboard.job_fields import texts_of
from lamella.service.dashboard.job_new import NewJobPages
from lamella.service.dashboard.pages import ROOT, Page, Pages, link
from lamella.service.dashboard.previewing import Question
from lamella.service.job_access import require_job, require_new_job, seen_jobs
from lamella.service.services import Services
from lamella.service.upkeep import JOB_STATES, job_filter
from lamella.snapshot.errors import InvalidRequest
from lamella.snapshot.jobs import job_kinds
from lamella.snapshot.wire import JobInfo, JobList, Role

JOBS: Final = ROOT + "/jobs"
ONE_JOB: Final = JOBS + "/{job_id}"
_PAGE: Final = 50
#: Lines of a log on one page, and the room that they have there.
_LINES: Final = 200
#: Jobs of some tables that are counted one by one.
_COUNTED: Final = 1_000
_LOG_BYTES: Final = 250_000
_MOST_DETAIL: Final = 4_000
#: How often a page asks again, in seconds: while something is at work, and else.
_BUSY_S: Final = 1
_IDLE_S: Final = 3
_CHOICES: Final = (
    ("", "any state"),
    ("queued,running", "queued or running"),
    *((state, state) for state in JOB_STATES),
)


class JobPages:
    """Draws them. The pages that ask for jobs, and for indexes, are parts of their own."""

    def __init__(self, services: Services, pages: Pages) -> None:
        self._services = services
        self._pages = pages
        self._parts = (NewJobPages(services, pages), IndexChangePages(services, pages))

    async def show_all(self, request: Request) -> Response:
        values = await self._services.read(lambda: self._listing(request))
        return self._pages.html(request, "jobs.html", values, status=400 if values["problem"] else 200, title="Jobs")

    async def show(self, request: Request) -> Response:
        values = await self._services.read(lambda: self._job(request))
        job: JobInfo = values["line"].job
        return self._pages.html(request, "job.html", values, title=f"{job.kind} of {job.table or 'the service'}")

    async def ask_cancel(self, request: Request) -> Response:
        job = await self._services.read(lambda: self._theirs(request, "maintain"))
        if job.is_finished:
            return self._pages.see(link("jobs", job.job_id))  # nothing is left to cancel
        is_running = job.state == "running"
        return self._pages.question(
            request,
            Question(
                asks=f"Cancel the job {job.kind}{f' of {job.table}' if job.table else ''}?",
                says="Its worker is asked to end it. What it has committed so far stays; what it has not is lost."
                if is_running
                else "It is taken out of the queue. It can be queued again later.",
                act="Cancel the job",
                back=link("jobs", job.job_id),
                facts=(fact("Job", job.job_id), fact("State", job.state), *facts_of_job(job)),
            ),
        )

    async def cancel(self, request: Request) -> Response:
        await self._pages.form(request)
        job = await self._services.read(lambda: self._services.jobs.cancel(self._theirs(request, "maintain").job_id))
        return self._pages.see(link("jobs", job.job_id, done="cancelled"))

    async def retry(self, request: Request) -> Response:
        await self._pages.form(request)

        def again() -> JobInfo:
            job = self._theirs(request, "maintain")
            require_new_job(request, job.kind, job.arguments, job.priority, job.table)
            return self._services.jobs.retry(job.job_id)

        job = await self._services.read(again)
        return self._pages.see(link("jobs", job.job_id, done="retried"))

    def pages(self) -> tuple[Page, ...]:
        """What is asked for by a name comes before what is asked for by an id."""
        parts = [page for part in self._parts for page in part.pages()]
        return (
            Page(JOBS, self.show_all, "ui_jobs", ASKED),
            *parts,
            Page(ONE_JOB, self.show, "ui_job", ASKED),
            Page(ONE_JOB + "/cancel", self.ask_cancel, "ui_ask_cancel_job", ASKED),
            Page(ONE_JOB + "/cancel", self.cancel, "ui_cancel_job", ASKED, "POST"),
            Page(ONE_JOB + "/retry", self.retry, "ui_retry_job", ASKED, "POST"),
        )

    def _theirs(self, request: Request, role: Role) -> JobInfo:
        """The job in the path, for one who may; raises JobNotFound, PermissionDenied."""
        job = self._services.jobs.get(request.path_params["job_id"])
        require_job(request, role, job)
        return job

    def _pending(self, which: JobFilter) -> dict[str, int]:
        """How many jobs wait and run, of those that may be seen."""
        if which.within is None:
            return self._services.catalog.pending_jobs()
        asked = JobFilter(states=("queued", "running"), within=which.within)
        states = Counter(job.state for job in self._services.jobs.list(asked, page_size=_COUNTED, page_token=None).jobs)
        return {"queued": states["queued"], "running": states["running"]}

    def _listing(self, request: Request) -> dict[str, Any]:
        query = request.query_params
        asked = {name: query.get(name, "").strip() for name in ("state", "kind", "table")}
        problem: InvalidRequest | None = None
        found = JobList(jobs=())
        which = seen_jobs(request, JobFilter())
        try:
            which = seen_jobs(request, job_filter(*(asked[name] or None for name in ("state", "kind", "table"))))
            found = self._services.jobs.list(which, page_size=_PAGE, page_token=query.get("before") or None)
        except InvalidRequest as error:
            problem = error
        pending = self._pending(which)
        now_ms = self._services.clock()
        kinds = [(each.name, each.name) for each in self._services.jobs.kinds().kinds]
        return {
            "lines": [line_of(job, now_ms) for job in found.jobs],
            "next_token": found.next_page_token,
            "before": query.get("before", ""),
            "asked": asked,
            "problem": problem,
            "problem_at": None if problem is None else problem.details.get("parameter"),
            "pending": pending,
            "every_s": _BUSY_S if any(pending.values()) else _IDLE_S,
            "states": _with_choice(_CHOICES, asked["state"]),
            "kinds": _with_choice((("", "any kind"), *kinds), asked["kind"]),
        }

    def _job(self, request: Request) -> dict[str, Any]:
        job = self._theirs(request, "read")
        last = self._services.catalog.job(job.job_id).log_lines
        is_tail = "after" not in request.query_params
        after = max(last - _LINES, 0) if is_tail else number_of(request, "after")
        log = self._services.jobs.log(job.job_id, after=after, limit=_LINES)
        lines = end_of(log.lines, _LOG_BYTES)
        first = lines[0].number if lines else after + 1
        now_ms = self._services.clock()
        namespace, _, name = (job.table or "").rpartition(".")
        return {
            "line": line_of(job, now_ms),
            "bar_found": bar_of(job.progress),
            "job_facts": facts_of_job(job),
            "problem": "" if job.error is None else shortened(job.error.detail, _MOST_DETAIL),
            "namespace": namespace,
            "name": name,
            "arguments": shown_json(job.arguments) if job.arguments else "",
            "result_facts": facts_of_result(job.result),
            "result": None if job.result is None else shown_json(job.result),
            "error_facts": () if job.error is None else error_facts(job.error),
            "again": _again(job),
            "lines": lines,
            "last": last,
            "is_tail": is_tail,
            "before_first": max(first - 1 - _LINES, 0) if first > 1 else None,
            "behind_last": lines[-1].number if lines and lines[-1].number < last else None,
            "every_s": _BUSY_S,
        }


def _with_choice(choices: tuple[tuple[str, str], ...], asked: str) -> tuple[tuple[str, str], ...]:
    """The choices, and what the address asks for if it is none of them."""
    return choices if asked in {value for value, _ in choices} else (*choices, (asked, asked))


def _again(job: JobInfo) -> str:
    """The address of the form for a job like this one."""
    kind = job_kinds().get(job.kind)
    texts = {} if kind is None else texts_of(kind, job.arguments)
    return link("jobs", "new", kind=job.kind, table=job.table, **texts)
