# Written by scripts/write_sync_client.py from client/lamella/client/http/aio/branches.py: change that file.
"""Methods of a table for its branches."""

from __future__ import annotations

import datetime as dt

from lamella.client.http.branches import (
    branches_call,
    cherry_pick_call,
    create_branch_call,
    drop_branch_call,
    fast_forward_call,
)
from lamella.client.http.call import TableName
from lamella.client.http.history import Time
from lamella.client.http.sync.runner import CallRunner
from lamella.snapshot import wire


class TableBranches:
    """The branches of a table; a part of :class:`lamella.client.http.Table`."""

    _lake: CallRunner
    _name: TableName

    def branches(self) -> tuple[wire.BranchInfo, ...]:
        """The branches of the table, ``main`` first.

        Example:
            >>> [branch.name for branch in table.branches()]
            ['main', 'audit']
        """
        return self._lake.run(branches_call(self._name)).branches

    def create_branch(
        self,
        name: str,
        snapshot_id: str | None = None,
        *,
        timestamp: Time | None = None,
        time_zone: str = "UTC",
        max_idle: dt.timedelta | None = None,
        replace: bool = False,
        idempotency_key: str | None = None,
    ) -> wire.BranchInfo:
        """Create a branch at a snapshot: the current one, that of an id, tag or branch, or the one of a time.

        The branch is the table ``table@name``; see :meth:`branch`. ``max_idle``: a vacuum drops it when its last commit
        is older. ``replace``: if there is a branch of that name, drop it first.

        Raises AlreadyExists (a branch or a tag has the name), SnapshotNotFound, InvalidRequest (the name).

        Example:
            >>> table.create_branch("june", max_idle=datetime.timedelta(days=30)).row_count
            15
        """
        call = create_branch_call(self._name, name, snapshot_id, timestamp, time_zone, max_idle, replace)
        return self._lake.run(call, idempotency_key)

    def drop_branch(self, name: str, *, idempotency_key: str | None = None) -> None:
        """Drop a branch. Its snapshots can be named by their ids until ``drop_grace_s`` has passed.

        Raises BranchNotFound.

        Example:
            >>> table.drop_branch("audit")
            >>> [branch.name for branch in table.branches()]
            ['main']
        """
        self._lake.run(drop_branch_call(self._name, name), idempotency_key)

    def fast_forward(self, to: str, *, idempotency_key: str | None = None) -> wire.FastForwardAnswer:
        """Give the table the snapshots of the branch ``to`` that it lacks, so that both have the same current one.

        Raises CommitConflict if the table has commits that the branch does not have; BranchNotFound.

        Example:
            >>> deleted = table.branch("audit").delete("price < 20")
            >>> table.fast_forward("audit").snapshots
            1
        """
        return self._lake.run(fast_forward_call(self._name, to), idempotency_key)

    def cherry_pick(
        self, snapshot_id: str, *, strict: bool = False, idempotency_key: str | None = None
    ) -> wire.CherryPickAnswer:
        """Repeat what a snapshot of another branch changed: an id, or a tag or branch for its current snapshot.

        ``strict``: refuse an update or a merge if the table has blocks that it had not seen.

        Raises CommitConflict (a block that it removed or changed is not in the table, or has changed), DuplicateBlock
        (the table has its blocks already), NewMatches, SchemaConflict, SnapshotNotFound.

        Example:
            >>> deleted = table.branch("audit").delete("price < 20")
            >>> picked = table.cherry_pick("audit")
            >>> picked.added, picked.removed, picked.changed
            (0, 0, 1)
        """
        return self._lake.run(cherry_pick_call(self._name, snapshot_id, strict), idempotency_key)
