"""Schedules, policies and automatic upkeep in the catalog's database: each adds its jobs exactly once."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec
from sqlalchemy import Connection, and_, bindparam, delete, insert, select, update

from lamella.service.catalog.jobs import insert_job
from lamella.service.catalog.records import (
    AddedJob,
    AutoRecord,
    DueSchedule,
    JobRecord,
    PolicyRecord,
    RuleFired,
    ScheduleRecord,
    StoredAnswer,
)
from lamella.service.catalog.schema import auto_actions, namespaces, policies, schedules, tables
from lamella.service.catalog.session import SqlSession, StoredJson, json_text
from lamella.service.catalog.snapshots import LOCK_TABLE
from lamella.snapshot.errors import PolicyNotFound, ScheduleNotFound, TableNotFound

_FIRED: Final = StoredJson(dict[str, RuleFired], "what a policy did")
_this_schedule = and_(schedules.c.table_id == bindparam("id"), schedules.c.name == bindparam("which"))
_live = tables.c.dropped_at_ms.is_(None)
_SELECT_ONE: Final = select(schedules).where(_this_schedule)
_SELECT_ALL: Final = select(schedules).where(schedules.c.table_id == bindparam("id"))
_INSERT: Final = insert(schedules)
_DELETE: Final = delete(schedules).where(_this_schedule)
_DUE: Final = (
    select(schedules, namespaces.c.name.label("of_namespace"), tables.c.name.label("of_table"))
    .join_from(schedules, tables, tables.c.table_id == schedules.c.table_id)
    .join(namespaces, namespaces.c.namespace_id == tables.c.namespace_id)
    .where(_live, schedules.c.next_ms <= bindparam("now_ms"))
    .order_by(schedules.c.next_ms, schedules.c.table_id, schedules.c.name)
    .limit(bindparam("rows"))
)
#: Sets the next time only if the schedule still has the time that was read, so that one process wins. The other columns
#: that were read must be unchanged too.
_FIRE: Final = (
    update(schedules)
    .where(
        _this_schedule,
        schedules.c.next_ms == bindparam("seen_ms"),
        schedules.c.kind == bindparam("seen_kind"),
        schedules.c.arguments == bindparam("seen_arguments"),
    )
    .values(next_ms=bindparam("later_ms"), last_ms=bindparam("now_ms"))
)
_NOTE_JOB: Final = update(schedules).where(_this_schedule).values(last_job_id=bindparam("job"))

_this_policy = policies.c.table_id == bindparam("id")
_SELECT_POLICY: Final = select(policies).where(_this_policy)
_INSERT_POLICY: Final = insert(policies)
_DELETE_POLICY: Final = delete(policies).where(_this_policy)
_DUE_POLICIES: Final = (
    select(policies)
    .join_from(policies, tables, tables.c.table_id == policies.c.table_id)
    .where(_live, policies.c.checked_ms <= bindparam("before_ms"))
    .order_by(policies.c.checked_ms, policies.c.table_id)
    .limit(bindparam("rows"))
)
_BEGIN: Final = (
    update(policies)
    .where(_this_policy, policies.c.checked_ms == bindparam("seen_ms"), policies.c.updated_ms == bindparam("of_ms"))
    .values(checked_ms=bindparam("now_ms"))
)
_LOCK_CHECK: Final = _SELECT_POLICY.where(policies.c.checked_ms == bindparam("began_ms")).with_for_update()
_END: Final = update(policies).where(_this_policy).values(findings=bindparam("found"), fired=bindparam("now_fired"))

_of_this_table = auto_actions.c.table_id == bindparam("id")
_latest_first = (auto_actions.c.started_ms.desc(), auto_actions.c.action_id.desc())
_ACTIONS: Final = select(auto_actions).where(_of_this_table).order_by(*_latest_first).limit(bindparam("rows"))
_IS_BUSY: Final = select(auto_actions.c.action_id).where(_of_this_table, auto_actions.c.lease_expires_ms.is_not(None))
_INSERT_ACTION: Final = insert(auto_actions)
_LATEST: Final = (
    select(auto_actions.c.action_id).where(_of_this_table).order_by(*_latest_first).limit(bindparam("rows"))
)
_FORGET_ACTIONS: Final = delete(auto_actions).where(
    _of_this_table, auto_actions.c.action_id.not_in(bindparam("latest", expanding=True))
)
_PUT_ACTION: Final = (
    update(auto_actions)
    .where(
        auto_actions.c.action_id == bindparam("which"),
        auto_actions.c.runner == bindparam("by"),
        auto_actions.c.lease_expires_ms.is_not(None),
    )
    .values(runner=bindparam("now_runner"), lease_expires_ms=bindparam("until_ms"), action=bindparam("now_action"))
)


class SqlSchedules(SqlSession):
    """The part of :class:`~lamella.service.catalog.port.Catalog` for schedules, policies and automatic upkeep."""

    def put_schedule(self, schedule: ScheduleRecord) -> ScheduleRecord:
        which = {"id": schedule.table_id, "which": schedule.name}
        with self._transaction(None) as connection:
            _require_table(connection, schedule.table_id)
            before = connection.execute(_SELECT_ONE, which).mappings().first()
            if before is not None:
                unchanged = {name: before[name] for name in ("created_ms", "last_ms", "last_job_id")}
                schedule = msgspec.structs.replace(schedule, **unchanged)
                connection.execute(_DELETE, which)
            connection.execute(_INSERT, msgspec.structs.asdict(schedule))
        return schedule

    def schedules(self, table_id: str) -> list[ScheduleRecord]:
        found = [ScheduleRecord(**row) for row in self._rows(_SELECT_ALL, {"id": table_id})]
        return sorted(found, key=lambda schedule: schedule.name)  # databases differ in their collation

    def drop_schedule(self, table_id: str, name: str, *, remember: StoredAnswer | None = None) -> None:
        with self._transaction(remember) as connection:
            if connection.execute(_DELETE, {"id": table_id, "which": name}).rowcount != 1:
                raise ScheduleNotFound(f"the table has no schedule {name!r}", schedule=name)

    def due_schedules(self, *, now_ms: int, limit: int) -> list[DueSchedule]:
        due = []
        for row in self._rows(_DUE, {"now_ms": now_ms, "rows": limit}):
            values = dict(row)
            namespace, table_name = values.pop("of_namespace"), values.pop("of_table")
            due.append(DueSchedule(schedule=ScheduleRecord(**values), namespace=namespace, table_name=table_name))
        return due

    def fire_schedule(self, seen: ScheduleRecord, job: JobRecord, *, next_ms: int, now_ms: int) -> AddedJob | None:
        which = {"id": seen.table_id, "which": seen.name}
        step = {
            **which,
            "seen_ms": seen.next_ms,
            "seen_kind": seen.kind,
            "seen_arguments": seen.arguments,
            "later_ms": next_ms,
            "now_ms": now_ms,
        }
        with self._transaction(None) as connection:
            if connection.execute(_FIRE, step).rowcount != 1:
                return None
            enqueued = _enqueued(connection, job)
            connection.execute(_NOTE_JOB, {**which, "job": enqueued.job_id})
        return enqueued

    def put_policy(self, policy: PolicyRecord) -> None:
        which = {"id": policy.table_id}
        with self._transaction(None) as connection:
            _require_table(connection, policy.table_id)
            before = connection.execute(_SELECT_POLICY, which).mappings().first()
            if before is not None:  # the last runs of rules still count for their cool-downs
                policy = msgspec.structs.replace(policy, fired=_FIRED.decode(before["fired"]))
                connection.execute(_DELETE_POLICY, which)
            row = {**msgspec.structs.asdict(policy), "fired": json_text(policy.fired)}
            connection.execute(_INSERT_POLICY, row)

    def policy(self, table_id: str) -> PolicyRecord:
        for row in self._rows(_SELECT_POLICY, {"id": table_id}):
            return _policy(row)
        raise PolicyNotFound("the table has no policy", table_id=table_id)

    def drop_policy(self, table_id: str, *, remember: StoredAnswer | None = None) -> None:
        with self._transaction(remember) as connection:
            if connection.execute(_DELETE_POLICY, {"id": table_id}).rowcount != 1:
                raise PolicyNotFound("the table has no policy", table_id=table_id)

    def due_policies(self, *, checked_before_ms: int, limit: int) -> list[PolicyRecord]:
        return [_policy(row) for row in self._rows(_DUE_POLICIES, {"before_ms": checked_before_ms, "rows": limit})]

    def begin_check(self, seen: PolicyRecord, *, now_ms: int) -> bool:
        step = {"id": seen.table_id, "seen_ms": seen.checked_ms, "of_ms": seen.updated_ms, "now_ms": now_ms}
        with self._transaction(None) as connection:
            return connection.execute(_BEGIN, step).rowcount == 1

    def end_check(
        self, table_id: str, *, began_ms: int, findings: str, jobs: Mapping[str, JobRecord]
    ) -> dict[str, AddedJob]:
        done: dict[str, AddedJob] = {}
        with self._transaction(None) as connection:
            row = connection.execute(_LOCK_CHECK, {"id": table_id, "began_ms": began_ms}).mappings().first()
            if row is None:
                return {}
            fired = _FIRED.decode(row["fired"])
            for rule in sorted(jobs):
                done[rule] = _enqueued(connection, jobs[rule])
                fired[rule] = RuleFired(at_ms=began_ms, job_id=done[rule].job_id)
            connection.execute(_END, {"id": table_id, "found": findings, "now_fired": json_text(fired)})
        return done

    def begin_auto(self, record: AutoRecord, *, at_most: int) -> bool:
        which = {"id": record.table_id}
        with self._transaction(None) as connection:
            _require_table(connection, record.table_id)
            if connection.execute(_IS_BUSY, which).first() is not None:
                return False
            connection.execute(_INSERT_ACTION, msgspec.structs.asdict(record))
            latest = [row[0] for row in connection.execute(_LATEST, {**which, "rows": at_most})]
            connection.execute(_FORGET_ACTIONS, {**which, "latest": latest})
        return True

    def put_auto(self, record: AutoRecord, *, runner: str) -> bool:
        step = {
            "which": record.action_id,
            "by": runner,
            "now_runner": record.runner,
            "until_ms": record.lease_expires_ms,
            "now_action": record.action,
        }
        with self._transaction(None) as connection:
            return connection.execute(_PUT_ACTION, step).rowcount == 1

    def auto_actions(self, table_id: str, *, limit: int) -> list[AutoRecord]:
        return [AutoRecord(**row) for row in self._rows(_ACTIONS, {"id": table_id, "rows": limit})]


def _require_table(connection: Connection, table_id: str) -> None:
    """Lock a table's row, so that it is not deleted meanwhile. Raises TableNotFound for a dropped table."""
    row = connection.execute(LOCK_TABLE, {"id": table_id}).mappings().first()
    if row is None or row["dropped_at_ms"] is not None:
        raise TableNotFound("the table was dropped", table_id=table_id)


def _enqueued(connection: Connection, job: JobRecord) -> AddedJob:
    twin = insert_job(connection, job, unique=True)
    return AddedJob(job_id=job.job_id if twin is None else twin.job_id, is_new=twin is None)


def _policy(row: Mapping[Any, Any]) -> PolicyRecord:
    return PolicyRecord(**{**row, "fired": _FIRED.decode(row["fired"])})
