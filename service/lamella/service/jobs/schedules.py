"""Schedules of tables: when they are due. Also runs everything that is due now."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from typing import Final

from cronsim import CronSim, CronSimError

from lamella.service.catalog import AddedJob, Catalog, DueSchedule, ScheduleRecord, StoredJson, TableRecord
from lamella.service.config.settings import Settings
from lamella.service.http.idempotency import IdempotencyKey, StoredResponse
from lamella.service.jobs.policies import Policies
from lamella.service.jobs.queue import LONGEST_S, MAX_ATTEMPTS, MAX_PRIORITY, arguments_text, check_range, new_job
from lamella.service.process.deadline import time_is_up
from lamella.service.tables.names import LocationRules, check_name, require_job_locations
from lamella.service.telemetry.metrics import Metrics
from lamella.snapshot.errors import InvalidRequest, LamellaError, ScheduleNotFound, Unavailable
from lamella.snapshot.expression.spark_casts import zone
from lamella.snapshot.ids import Ids
from lamella.snapshot.job_kinds import check_arguments, job_kind_named
from lamella.snapshot.near_names import did_you_mean
from lamella.snapshot.wire import DueAnswer, PutSchedule, ScheduleInfo, ScheduleList

_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)


def next_every(every_s: int, last_ms: int, now_ms: int) -> int:
    """Return the first time after now that is a whole number of intervals after ``last_ms``."""
    step_ms = every_s * 1000
    return last_ms + max(1, (now_ms - last_ms) // step_ms + 1) * step_ms


def next_cron(cron: str, time_zone: str, now_ms: int) -> int:
    """Return the first time after now that a cron expression names.

    When the clocks change, it works as in Debian's cron: a time in the skipped hour runs right after it, and a time in
    the repeated hour runs once.

    Raises:
        InvalidRequest: not five fields of cron, an unknown time zone, or a time that never comes.
    """
    found = zone(time_zone)
    if found is None:
        raise InvalidRequest(f"there is no time zone {time_zone!r}", path="$.time_zone")
    if len(cron.split()) != 5:
        raise InvalidRequest(f"{cron!r} does not have the five fields of a cron expression", path="$.cron")
    now = (_EPOCH + dt.timedelta(milliseconds=now_ms)).astimezone(found)
    try:
        at = next(CronSim(cron, now))
    except CronSimError as error:
        raise InvalidRequest(f"{cron!r} is not a cron expression: {error}", path="$.cron") from error
    except StopIteration as error:
        raise InvalidRequest(f"{cron!r} never occurs", path="$.cron") from error
    return (at.astimezone(dt.UTC) - _EPOCH) // dt.timedelta(milliseconds=1)


_ARGUMENTS: Final = StoredJson(dict[str, object], "the arguments of a schedule")
#: Ten years.
_LONGEST_EVERY_S: Final = 10 * 366 * 86_400
_LONGEST_CRON: Final = 255


class Schedules:
    """Manages schedules, and adds the jobs that are due."""

    def __init__(
        self, catalog: Catalog, rules: LocationRules, ids: Ids, clock: Callable[[], int], settings: Settings
    ) -> None:
        self._catalog = catalog
        self._rules = rules
        self._ids = ids
        self._clock = clock
        self._settings = settings

    def put(self, table: TableRecord, name: str, request: PutSchedule) -> ScheduleInfo:
        """Create or replace a schedule; its first time is in the future.

        Raises:
            InvalidRequest: the name, the kind, its arguments, the times, a number out of its range.
            LocationRefused: its jobs would write to a location that the table may not use.
            TableNotFound: it was dropped meanwhile.
        """
        now_ms = self._clock()
        check_name("schedule", name)
        kind = job_kind_named(request.kind)
        if not kind.needs_table:
            raise InvalidRequest(f"a job of kind {kind.name!r} takes no table", path="$.kind")
        if (request.every_s is None) == (request.cron is None):
            raise InvalidRequest("give exactly one of every_s and cron", path="$")
        if request.every_s is not None:
            check_range("every_s", request.every_s, 1, _LONGEST_EVERY_S)
        if request.cron is not None:
            check_range("cron", len(request.cron), 0, _LONGEST_CRON)
        if zone(request.time_zone) is None:
            raise InvalidRequest(f"there is no time zone {request.time_zone!r}", path="$.time_zone")
        check_range("priority", request.priority, -MAX_PRIORITY, MAX_PRIORITY)
        if request.max_attempts is not None:
            check_range("max_attempts", request.max_attempts, 1, MAX_ATTEMPTS)
        if request.timeout_s is not None:
            check_range("timeout_s", request.timeout_s, 1, LONGEST_S)
        checked = check_arguments(kind, request.arguments)
        require_job_locations(self._rules.of(table.namespace, table.main_id), kind, checked)
        arguments = arguments_text(checked)
        check_range("arguments", len(arguments), 0, self._settings.job_value_bytes)
        next_ms = _next(request.every_s, request.cron, request.time_zone, now_ms, now_ms)
        schedule = ScheduleRecord(
            table_id=table.table_id,
            name=name,
            kind=kind.name,
            arguments=arguments,
            time_zone=request.time_zone,
            enabled=request.enabled,
            created_ms=now_ms,
            every_s=request.every_s,
            cron=request.cron,
            priority=request.priority,
            max_attempts=request.max_attempts,
            timeout_s=request.timeout_s,
            next_ms=next_ms if request.enabled else None,
        )
        return _info(self._catalog.put_schedule(schedule))

    def list(self, table: TableRecord) -> ScheduleList:
        """Return the schedules of a table, by name."""
        return ScheduleList(schedules=tuple(_info(each) for each in self._catalog.schedules(table.table_id)))

    def get(self, table: TableRecord, name: str) -> ScheduleInfo:
        """Return a schedule. Raises ScheduleNotFound."""
        for each in self._catalog.schedules(table.table_id):
            if each.name == name:
                return _info(each)
        raise ScheduleNotFound(f"the table has no schedule {name!r}", schedule=name, **self._near_name(table, name))

    def drop(self, table: TableRecord, name: str, idempotency_key: IdempotencyKey) -> StoredResponse:
        """Delete a schedule; the jobs that it added stay. Raises ScheduleNotFound."""
        stored_response = idempotency_key.store_as(204)
        try:
            self._catalog.drop_schedule(table.table_id, name, remember=stored_response.stored)
        except ScheduleNotFound as error:
            error.details.update(self._near_name(table, name))
            raise
        return stored_response

    def _near_name(self, table: TableRecord, name: str) -> dict[str, str]:
        return did_you_mean(name, [each.name for each in self._catalog.schedules(table.table_id)])

    def fire(self, due: DueSchedule) -> AddedJob | None:
        """Add the job of a due schedule; None if another process did."""
        now_ms, schedule = self._clock(), due.schedule
        table = self._catalog.table_by_id(schedule.table_id)
        attempts = self._settings.job_max_attempts if schedule.max_attempts is None else schedule.max_attempts
        job = new_job(
            str(self._ids.new()),
            job_kind_named(schedule.kind),
            table,
            schedule.arguments,
            origin="schedule",
            now_ms=now_ms,
            max_attempts=attempts,
            origin_name=schedule.name,
            priority=schedule.priority,
            timeout_s=schedule.timeout_s,
        )
        last_ms = now_ms if schedule.next_ms is None else schedule.next_ms
        next_ms = _next(schedule.every_s, schedule.cron, schedule.time_zone, last_ms, now_ms)
        return self._catalog.fire_schedule(schedule, job, next_ms=next_ms, now_ms=now_ms)


def _next(every_s: int | None, cron: str | None, time_zone: str, last_ms: int, now_ms: int) -> int:
    if cron is not None:
        return next_cron(cron, time_zone, now_ms)
    assert every_s is not None  # noqa: S101  # a schedule has one of the two
    return next_every(every_s, last_ms, now_ms)


def _info(schedule: ScheduleRecord) -> ScheduleInfo:
    return ScheduleInfo(
        name=schedule.name,
        kind=schedule.kind,
        created_ms=schedule.created_ms,
        arguments=_ARGUMENTS.decode(schedule.arguments),
        every_s=schedule.every_s,
        cron=schedule.cron,
        time_zone=schedule.time_zone,
        enabled=schedule.enabled,
        priority=schedule.priority,
        max_attempts=schedule.max_attempts,
        timeout_s=schedule.timeout_s,
        next_ms=schedule.next_ms,
        last_ms=schedule.last_ms,
        last_job_id=schedule.last_job_id,
    )


#: Most schedules and policies in one request.
_SCHEDULES: Final = 100
_POLICIES: Final = 20
_FORGET_EVERY_MS: Final = 600_000
_FORGET_AT_ONCE: Final = 1_000


class DueJobs:
    """Runs what is due. Workers call it as often as they like, several at once."""

    def __init__(
        self,
        catalog: Catalog,
        schedules: Schedules,
        policies: Policies,
        metrics: Metrics,
        clock: Callable[[], int],
        timer: Callable[[], float],
        settings: Settings,
    ) -> None:
        self._catalog = catalog
        self._schedules = schedules
        self._policies = policies
        self._metrics = metrics
        self._clock = clock
        self._timer = timer
        self._settings = settings
        self._forget_at_ms = 0

    def run(self) -> DueAnswer:
        """Add the jobs that are due, for a few seconds at most.

        A schedule or policy that fails does not delay the others. Raises Unavailable.
        """
        scheduled, more_schedules = self._fire_schedules()
        from_policies, more_policies = self._check_policies()
        self._forget()
        self._metrics.jobs_waiting(self._catalog.pending_jobs())
        return DueAnswer(enqueued=(*scheduled, *from_policies), more=more_schedules or more_policies)

    def _fire_schedules(self) -> tuple[list[str], bool]:
        made = []
        due = self._catalog.due_schedules(now_ms=self._clock(), limit=_SCHEDULES)
        fired = 0
        for each in due:
            try:
                found = self._schedules.fire(each)
            except Unavailable:
                raise
            except LamellaError as error:
                self._metrics.upkeep_failed("schedule", error.code)
                continue
            fired += found is not None
            if found is not None and found.is_new:
                self._metrics.job_enqueued(each.schedule.kind, "schedule")
                made.append(found.job_id)
        return made, len(due) == _SCHEDULES and fired > 0

    def _check_policies(self) -> tuple[list[str], bool]:
        made: list[str] = []
        time_is_over = time_is_up(None, self._timer)
        before_ms = self._clock() - self._settings.policy_check_s * 1000
        due = self._catalog.due_policies(checked_before_ms=before_ms, limit=_POLICIES)
        for record in due:
            if time_is_over():
                return made, True
            try:
                made += self._policies.check(record)
            except Unavailable:
                raise
            except LamellaError as error:
                self._metrics.upkeep_failed("policy", error.code)
        return made, len(due) == _POLICIES

    def _forget(self) -> None:
        """Delete some rows at a time, so that no transaction locks the database for long."""
        now_ms = self._clock()
        if now_ms < self._forget_at_ms:
            return
        before_ms = now_ms - self._settings.job_retention_s * 1000
        forgotten = self._catalog.prune_jobs(before_ms=before_ms, limit=_FORGET_AT_ONCE)
        self._forget_at_ms = 0 if forgotten == _FORGET_AT_ONCE else now_ms + _FORGET_EVERY_MS
