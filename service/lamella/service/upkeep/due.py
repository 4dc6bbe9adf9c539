"""What is to be done now: jobs that schedules and policies ask for, and old ones that are forgotten."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from lamella.service.catalog import Catalog
from lamella.service.metrics import Metrics
from lamella.service.settings import Settings
from lamella.service.time_budget import time_is_up
from lamella.service.upkeep.policies import Policies
from lamella.service.upkeep.schedules import Schedules
from lamella.snapshot.errors import LamellaError, Unavailable
from lamella.snapshot.wire import DueAnswer

#: Schedules and policies that one request looks at.
_SCHEDULES: Final = 100
_POLICIES: Final = 20
_FORGET_EVERY_MS: Final = 600_000
_FORGET_AT_ONCE: Final = 1_000


class Due:
    """Asked by workers, as often as they like and however many of them at once."""

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
        """Enqueue what is due, for a few seconds at most.

        A schedule or policy that cannot be looked at now does not hold up the others. Raises Unavailable.
        """
        scheduled, more_schedules = self._fire_schedules()
        asked, more_policies = self._check_policies()
        self._forget()
        self._metrics.jobs_waiting(self._catalog.pending_jobs())
        return DueAnswer(enqueued=(*scheduled, *asked), more=more_schedules or more_policies)

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
        """Some at a time, so that no transaction holds the database for long."""
        now_ms = self._clock()
        if now_ms < self._forget_at_ms:
            return
        before_ms = now_ms - self._settings.job_retention_s * 1000
        forgotten = self._catalog.prune_jobs(before_ms=before_ms, limit=_FORGET_AT_ONCE)
        self._forget_at_ms = 0 if forgotten == _FORGET_AT_ONCE else now_ms + _FORGET_EVERY_MS
