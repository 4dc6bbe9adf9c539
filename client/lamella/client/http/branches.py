"""The branches of a table.

The calls. Their methods are in :mod:`lamella.client.http.aio.branches`.
"""

from __future__ import annotations

import datetime as dt

from lamella.client.http.call import Call, TableName, make_call, timestamp_of
from lamella.client.http.history import Time
from lamella.snapshot import wire
from lamella.snapshot.wire import operations
from lamella.snapshot.wire.operation import Nothing


def branches_call(name: TableName) -> Call[wire.BranchList]:
    """The branches of a table."""
    return make_call(operations.branches.LIST_BRANCHES, name)


def create_branch_call(
    name: TableName,
    branch: str,
    snapshot_id: str | None,
    timestamp: Time | None,
    time_zone: str,
    max_idle: dt.timedelta | None,
    replace: bool,
) -> Call[wire.BranchInfo]:
    """Create a branch."""
    body = wire.BranchRequest(
        name=branch,
        snapshot_id=snapshot_id,
        timestamp=timestamp_of(timestamp),
        time_zone=time_zone,
        max_idle_ms=None if max_idle is None else max_idle // dt.timedelta(milliseconds=1),
        replace=replace,
    )
    return make_call(operations.branches.CREATE_BRANCH, name, body=body)


def drop_branch_call(name: TableName, branch: str) -> Call[Nothing]:
    """Drop a branch."""
    return make_call(operations.branches.DROP_BRANCH, name, branch=branch)


def fast_forward_call(name: TableName, to: str) -> Call[wire.FastForwardAnswer]:
    """Make the current snapshot of a branch that of another one."""
    return make_call(operations.branches.FAST_FORWARD, name, body=wire.FastForwardRequest(to=to))


def cherry_pick_call(name: TableName, snapshot_id: str, strict: bool) -> Call[wire.CherryPickAnswer]:
    """Repeat the changes of a snapshot."""
    body = wire.CherryPickRequest(snapshot_id=snapshot_id, strict=strict)
    return make_call(operations.branches.CHERRY_PICK, name, body=body)


def branch_of(name: TableName, branch: str) -> TableName:
    """The name of a branch of the table that a name is of."""
    table = name.table.partition("@")[0]
    return TableName(name.namespace, table if branch == "main" else f"{table}@{branch}")
