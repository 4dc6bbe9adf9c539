"""What needs attention in the whole service, in plain words, the worst first, each with what helps.

Only what the viewer may see: jobs, keys and tables of others are left out, and what concerns all of the service is for
those who may maintain all of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import islice
from typing import Final

import msgspec

from lamella.service.access.administration import AccessAdministration
from lamella.service.access.principal import Principal, Rights
from lamella.service.catalog import Catalog, JobFilter, JobRecord, StoredJson, TableVersion, current_table
from lamella.service.dashboard import words
from lamella.service.dashboard.pages import link
from lamella.service.dashboard.preview import shortened
from lamella.service.dashboard.survey import Known, Survey
from lamella.service.usage.service_rates import ServiceRates
from lamella.snapshot.errors import LamellaError
from lamella.snapshot.wire import HealthFinding, JobError, KeyInfo

_DAY_MS: Final = 86_400_000
#: Keys are named that end within this time, or ended within it.
KEYS_MS: Final = 14 * _DAY_MS
_KEY_SOON_MS: Final = 3 * _DAY_MS
#: A job that is due waits for so long before it says that no worker runs.
_WAITING_MS: Final = 60_000
#: Jobs that are read: those that failed in the last day, and those that did the same work later.
_MAX_FAILED: Final = 200
_MAX_SUCCEEDED: Final = 1_000
_MAX_PENDING: Final = 500
#: A table with less to free, as it was measured, is no finding.
_MIN_FREED_BYTES: Final = 64 << 20
_ERROR: Final = StoredJson(JobError, "the error of a job")
_REMEDIES: Final = {
    "compact": "Compact",
    "recluster": "Recluster",
    "purge": "Purge",
    "index_refresh": "Refresh the index",
    "vacuum": "Vacuum",
}

# The order of lines: what stops work, what fails, what soon will, what costs.
_STOPPED, _FAILED, _UNREADABLE, _EXPIRED, _NO_WORKER, _EXPIRES, _SHAPE, _EXPIRES_THEN, _STORAGE, _NOTE = range(10)


class Action(msgspec.Struct, frozen=True):
    """What helps: ``text`` is on the button, ``about`` is said to screen readers only."""

    text: str
    href: str
    about: str = ""


class HealthLine(msgspec.Struct, frozen=True, kw_only=True):
    """One finding. ``rank``: its place. ``tone``: how it is marked. ``table``: what the survey knew of the table
    that it is about. ``at_ms``: when it happened, or will. ``steps``: commands for a terminal, where no button helps.
    """

    rank: int
    tone: str
    text: str
    action: Action | None = None
    #: Where more is said.
    more: Action | None = None
    name: str = ""
    table: TableVersion | None = None
    at_ms: int | None = None
    steps: tuple[str, ...] = ()


class HealthReport(msgspec.Struct, frozen=True, kw_only=True):
    """The findings. ``checked``, ``tables``: how many tables were checked, of how many; ``checked_ms``: when the one
    was that was checked first, and ``now_ms`` for all else. ``not_measured``: of so many tables
    it is not known what a clean-up would free.
    """

    lines: tuple[HealthLine, ...]
    checked: int
    tables: int
    checked_ms: int | None
    now_ms: int
    not_measured: int = 0

    @property
    def is_complete(self) -> bool:
        """Return whether all tables were checked."""
        return self.checked >= self.tables


class Health:
    """Collects the findings for a viewer. Waits for the catalog, and for nothing else."""

    def __init__(
        self,
        *,
        catalog: Catalog,
        administration: AccessAdministration,
        service_rates: ServiceRates,
        survey: Survey,
        clock: Callable[[], int],
    ) -> None:
        self._catalog = catalog
        self._administration = administration
        self._service_rates = service_rates
        self._survey = survey
        self._clock = clock

    def report(self, viewer: Principal, *, table_count: int, has_keys: bool) -> HealthReport:
        """Return all findings. ``table_count``: how many tables the viewer may read; ``has_keys``: keys are in use."""
        rights, now_ms, known = viewer.rights, self._clock(), self._survey.peek()
        lines = [*self._jobs(rights, now_ms), *self._workers(rights, now_ms)]
        if has_keys:
            lines += key_lines(self._administration.expiring(viewer, before_ms=now_ms + KEYS_MS), now_ms)
        lines += table_lines(known, rights)
        lines += storage_lines(known, rights)
        seen = [each.table_id for each in known.within(rights.scopes("read"))]
        checked = [at[1] for at in map(known.checked.get, seen) if at is not None]
        return HealthReport(
            lines=tuple(sorted(lines, key=lambda line: (line.rank, -(line.at_ms or 0), line.name))),
            checked=min(len(checked), table_count),
            tables=table_count,
            checked_ms=min(checked, default=None),
            now_ms=now_ms,
            not_measured=len(seen) - sum(map(known.reclaimable.__contains__, seen)),
        )

    def current(self, lines: Iterable[HealthLine], limit: int) -> list[HealthLine]:
        """Return the first lines whose tables still exist under the names that the survey knew."""
        return list(islice((line for line in lines if self._is_current(line)), limit))

    def _is_current(self, line: HealthLine) -> bool:
        if line.table is None:
            return True
        with suppress(LamellaError):
            there = current_table(self._catalog, line.table.namespace, line.table.name)
            return there.table_id == line.table.table_id
        return False

    def _jobs(self, rights: Rights, now_ms: int) -> list[HealthLine]:
        scopes, since_ms = rights.scopes("read"), now_ms - _DAY_MS
        failed = self._catalog.jobs(
            JobFilter(states=("failed",), within=scopes, finished_since_ms=since_ms), before_id=None, limit=_MAX_FAILED
        )
        if not failed:
            return []
        redone = JobFilter(
            states=("succeeded",),
            kinds=tuple(sorted({job.kind for job in failed})),
            within=scopes,
            finished_since_ms=min(job.finished_ms or 0 for job in failed),
        )
        return failed_lines(failed, self._catalog.jobs(redone, before_id=None, limit=_MAX_SUCCEEDED))

    def _workers(self, rights: Rights, now_ms: int) -> list[HealthLine]:
        with suppress(LamellaError):
            if self._service_rates.workers_seen_ms() is not None:
                return []
        scopes = rights.scopes("read")
        pending = self._catalog.jobs(
            JobFilter(states=("queued", "running"), within=scopes), before_id=None, limit=_MAX_PENDING
        )
        if any(job.state == "running" and (job.lease_expires_ms or 0) > now_ms for job in pending):
            return []
        due = [job for job in pending if job.state == "queued" and max(job.not_before_ms, job.created_ms) <= now_ms]
        return worker_lines(due, now_ms, has_upkeep=not due and self._catalog.has_upkeep(scopes))


def failed_lines(failed: Sequence[JobRecord], succeeded: Iterable[JobRecord]) -> list[HealthLine]:
    """Return a line for each table and kind whose last job failed; ``failed``: jobs, the newest first."""
    done: dict[tuple[str | None, str], int] = {}
    for job in succeeded:
        key = (job.table_id, job.kind)
        done[key] = max(done.get(key, 0), job.finished_ms or 0)
    found: dict[tuple[str | None, str], list[JobRecord]] = {}
    for job in failed:
        if (job.finished_ms or 0) > done.get((job.table_id, job.kind), 0):
            found.setdefault((job.table_id, job.kind), []).append(job)
    lines = []
    for jobs in found.values():
        last = max(jobs, key=lambda job: job.finished_ms or 0)
        name = "" if last.table_name is None else f"{last.namespace}.{last.table_name}"
        of = f" of {name}" if name else ""
        why = ""
        if last.error is not None:
            with suppress(LamellaError):
                why = f": {shortened(_ERROR.decode(last.error).detail, 200)}"
        often = f" ({len(jobs)} times in the last day)" if len(jobs) > 1 else ""
        lines.append(
            HealthLine(
                rank=_FAILED,
                tone="bad",
                text=f"The job {last.kind}{of} failed{often}{why}",
                action=Action("Show the job", link("jobs", last.job_id), f"{last.kind}{of}"),
                name=name,
                at_ms=last.finished_ms,
            )
        )
    return lines


def worker_lines(due: Sequence[JobRecord], now_ms: int, *, has_upkeep: bool) -> list[HealthLine]:
    """Return the finding that no worker asks for jobs, if one is needed. ``due``: jobs that could run now."""
    steps = ("lamella worker --url URL-OF-THIS-SERVICE",)
    since_ms = min((max(job.not_before_ms, job.created_ms) for job in due), default=now_ms)
    if now_ms - since_ms >= _WAITING_MS:
        text = f"No worker asks for jobs: {words.plural(len(due), 'job')} {'waits' if len(due) == 1 else 'wait'}"
        show = Action("Show the jobs", link("jobs", state="queued"), "that wait")
        return [HealthLine(rank=_STOPPED, tone="bad", text=text, action=show, at_ms=since_ms, steps=steps)]
    if due or has_upkeep:
        text = "No worker has asked for a job in the last minutes, so policies, schedules and jobs do nothing"
        return [HealthLine(rank=_NO_WORKER, tone="warn", text=text, steps=steps)]
    return []


def key_lines(keys: Iterable[KeyInfo], now_ms: int) -> list[HealthLine]:
    """Return the keys that have expired or soon will."""
    lines = []
    for key in keys:
        expires_ms = key.expires_ms
        if expires_ms is None or expires_ms < now_ms - KEYS_MS:
            continue
        is_over, is_soon = expires_ms <= now_ms, expires_ms <= now_ms + _KEY_SOON_MS
        lines.append(
            HealthLine(
                rank=_EXPIRED if is_over else _EXPIRES if is_soon else _EXPIRES_THEN,
                tone="bad" if is_over else "warn" if is_soon else "",
                text=f"The key {key.name} has expired" if is_over else f"The key {key.name} expires",
                action=Action("Rotate the key", link("access", "keys", key.name, "rotate"), key.name),
                name=key.name,
                at_ms=expires_ms,
            )
        )
    return lines


def table_lines(known: Known, rights: Rights) -> Iterator[HealthLine]:
    """Yield what is out of shape in the tables that the viewer sees."""
    for table_id, problem in known.unreadable.items():
        table = _seen(table_id, known, rights)
        if table is not None:
            name = f"{table.namespace}.{table.name}"
            verify = Action("Verify", link("jobs", "new", kind="verify", table=name, preview="1"), name)
            yield HealthLine(
                rank=_UNREADABLE,
                tone="bad",
                text=f"{name} cannot be read: {shortened(problem, 200)}",
                action=verify if rights.may("maintain", table.namespace, table.name) else _show(table),
                name=name,
                table=table,
            )
    for table_id, findings in known.findings.items():
        table = _seen(table_id, known, rights)
        if table is not None:
            can_maintain = rights.may("maintain", table.namespace, table.name)
            for finding in findings:
                yield _table_line(table, finding, can_maintain=can_maintain)


def storage_lines(known: Known, rights: Rights) -> Iterator[HealthLine]:
    """Yield what a clean-up would free, as far as a trial run or the catalog tells."""
    for table_id, found in known.reclaimable.items():
        is_trial = found.job_id is not None
        table = _seen(table_id, known, rights) if found.size_bytes >= (1 if is_trial else _MIN_FREED_BYTES) else None
        if table is None:
            continue
        name = f"{table.namespace}.{table.name}"
        vacuum = link("jobs", "new", kind="vacuum", table=name, preview="1")
        yield HealthLine(
            rank=_STORAGE,
            tone="",
            text=f"A clean-up of {name} would free {words.size(found.size_bytes)}, as its last trial run found"
            if is_trial
            else f"A clean-up of {name} would free at least {words.size(found.size_bytes)}, as measured",
            action=Action("Vacuum", vacuum, name)
            if rights.may("maintain", table.namespace, table.name)
            else _show(table)
            if found.job_id is None
            else Action("Show the trial run", link("jobs", found.job_id), name),
            name=name,
            table=table,
            at_ms=found.measured_ms,
        )
    if known.dropped_tables and rights.may("maintain"):
        tables, size = words.plural(known.dropped_tables, "dropped table"), words.size(known.dropped_bytes)
        purge = link("jobs", "new", kind="vacuum_dropped", preview="1")
        yield HealthLine(
            rank=_STORAGE,
            tone="",
            text=f"{tables} can no longer be restored; their last snapshots had {size} of data",
            action=Action("Delete their files", purge),
        )


def _table_line(table: TableVersion, finding: HealthFinding, *, can_maintain: bool) -> HealthLine:
    name, remedy = f"{table.namespace}.{table.name}", finding.remedy
    action, more = _show(table), None
    if can_maintain:
        more = Action("Advice", link("tables", table.namespace, table.name, "advice"), f"for {name}")
    if remedy is not None and can_maintain:
        given = {key: value for key, value in remedy.arguments.items() if not isinstance(value, bool)}
        href = link("jobs", "new", kind=remedy.kind, table=name, **given, preview="1")
        action = Action(_REMEDIES.get(remedy.kind, remedy.kind), href, name)
    return HealthLine(
        rank=_SHAPE if finding.severity == "warn" else _NOTE,
        tone="warn" if finding.severity == "warn" else "",
        text=f"{name}: {finding.text.removesuffix('.')}",
        action=action,
        more=more,
        name=name,
        table=table,
    )


def _show(table: TableVersion) -> Action:
    return Action("Show the table", link("tables", table.namespace, table.name), f"{table.namespace}.{table.name}")


def _seen(table_id: str, known: Known, rights: Rights) -> TableVersion | None:
    """Return a table if it is there and the viewer may read it."""
    table = known.by_id.get(table_id)
    return table if table is not None and rights.may("read", table.namespace, table.name) else None
