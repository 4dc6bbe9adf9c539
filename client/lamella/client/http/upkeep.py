"""Schedules and policies of a table: the calls, and what :class:`Table` and its async twin make of them."""

from __future__ import annotations

from urllib.parse import quote

from lamella.client.http.call import Call, Nothing, TableName, encoded, mutation
from lamella.client.http.running import Runs, RunsAsync
from lamella.snapshot.errors import InvalidRequest
from lamella.snapshot.wire import Policy, PolicyInfo, PutSchedule, ScheduleInfo, ScheduleList


def schedules_call(name: TableName) -> Call[ScheduleList]:
    """The schedules of a table."""
    return Call(method="GET", path=f"{name.path}/schedules", answer=ScheduleList)


def schedule_call(name: TableName, schedule: str) -> Call[ScheduleInfo]:
    """One of them."""
    return Call(method="GET", path=_schedule(name, schedule), answer=ScheduleInfo)


def put_schedule_call(name: TableName, schedule: str, request: PutSchedule) -> Call[ScheduleInfo]:
    """Make or replace one. Doing it twice does no harm, so it needs no idempotency key."""
    return Call(method="PUT", path=_schedule(name, schedule), answer=ScheduleInfo, body=encoded(request))


def drop_schedule_call(name: TableName, schedule: str) -> Call[Nothing]:
    """Drop one."""
    return mutation("DELETE", _schedule(name, schedule), Nothing)


def policy_call(name: TableName) -> Call[PolicyInfo]:
    """A table's policy."""
    return Call(method="GET", path=f"{name.path}/policy", answer=PolicyInfo)


def put_policy_call(name: TableName, policy: Policy) -> Call[PolicyInfo]:
    """Make or replace it. Doing it twice does no harm, so it needs no idempotency key."""
    return Call(method="PUT", path=f"{name.path}/policy", answer=PolicyInfo, body=encoded(policy))


def drop_policy_call(name: TableName) -> Call[Nothing]:
    """Drop it."""
    return mutation("DELETE", f"{name.path}/policy", Nothing)


def _schedule(name: TableName, schedule: str) -> str:
    if not schedule:
        raise InvalidRequest("a schedule's name is empty")
    return f"{name.path}/schedules/{quote(schedule, safe='')}"


class TableUpkeep:
    """What asks for a table's jobs by itself; a part of :class:`lamella.client.Table`."""

    _lake: Runs
    _name: TableName

    def schedules(self) -> tuple[ScheduleInfo, ...]:
        """The schedules, by name; raises TableNotFound."""
        return self._lake.run(schedules_call(self._name)).schedules

    def schedule(self, name: str) -> ScheduleInfo:
        """One schedule; raises ScheduleNotFound, TableNotFound."""
        return self._lake.run(schedule_call(self._name, name))

    def set_schedule(self, name: str, schedule: PutSchedule) -> ScheduleInfo:
        """Make or replace a schedule; raises InvalidRequest, TableNotFound."""
        return self._lake.run(put_schedule_call(self._name, name, schedule))

    def drop_schedule(self, name: str, *, idempotency_key: str | None = None) -> None:
        """Drop a schedule; jobs that it asked for stay. Raises ScheduleNotFound, TableNotFound."""
        self._lake.run(drop_schedule_call(self._name, name), idempotency_key)

    def policy(self) -> PolicyInfo:
        """The policy, and what its last check found; raises PolicyNotFound, TableNotFound."""
        return self._lake.run(policy_call(self._name))

    def set_policy(self, policy: Policy) -> PolicyInfo:
        """Make or replace the policy, as a whole; raises InvalidRequest, TableNotFound."""
        return self._lake.run(put_policy_call(self._name, policy))

    def drop_policy(self, *, idempotency_key: str | None = None) -> None:
        """Drop the policy; jobs that it asked for stay. Raises PolicyNotFound, TableNotFound."""
        self._lake.run(drop_policy_call(self._name), idempotency_key)


class AsyncTableUpkeep:
    """The asyncio twin of :class:`TableUpkeep`."""

    _lake: RunsAsync
    _name: TableName

    async def schedules(self) -> tuple[ScheduleInfo, ...]:
        """As :meth:`TableUpkeep.schedules`."""
        return (await self._lake.run(schedules_call(self._name))).schedules

    async def schedule(self, name: str) -> ScheduleInfo:
        """As :meth:`TableUpkeep.schedule`."""
        return await self._lake.run(schedule_call(self._name, name))

    async def set_schedule(self, name: str, schedule: PutSchedule) -> ScheduleInfo:
        """As :meth:`TableUpkeep.set_schedule`."""
        return await self._lake.run(put_schedule_call(self._name, name, schedule))

    async def drop_schedule(self, name: str, *, idempotency_key: str | None = None) -> None:
        """As :meth:`TableUpkeep.drop_schedule`."""
        await self._lake.run(drop_schedule_call(self._name, name), idempotency_key)

    async def policy(self) -> PolicyInfo:
        """As :meth:`TableUpkeep.policy`."""
        return await self._lake.run(policy_call(self._name))

    async def set_policy(self, policy: Policy) -> PolicyInfo:
        """As :meth:`TableUpkeep.set_policy`."""
        return await self._lake.run(put_policy_call(self._name, policy))

    async def drop_policy(self, *, idempotency_key: str | None = None) -> None:
        """As :meth:`TableUpkeep.drop_policy`."""
        await self._lake.run(drop_policy_call(self._name), idempotency_key)
