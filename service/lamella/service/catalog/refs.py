"""Branches and tags of a table that change together with a commit to it, in its transaction.

The table is one of Iceberg clients, in whose metadata a commit may move, add and remove any number of names. The
transaction holds the locks on the rows of the table and of all branches that are named here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from sqlalchemy import Connection, bindparam, delete, insert, select
from sqlalchemy.exc import IntegrityError

from lamella.service.catalog import schema as sql
from lamella.service.catalog.branches import DROP, insert_branch
from lamella.service.catalog.cleanup import require_unswept
from lamella.service.catalog.records import NewBranch, RefChanges, TagRecord, main_name
from lamella.service.catalog.schema import tables, tags
from lamella.service.catalog.session import snapshot_row
from lamella.service.catalog.snapshots import SELECT_TAG_NAMED, require_in_history
from lamella.service.catalog.tables import TableQuota, check_quota
from lamella.snapshot.errors import CommitConflict, SnapshotExpired

_LIVE_NAME: Final = select(tables.c.namespace_id, tables.c.name).where(
    tables.c.table_id == bindparam("id"), tables.c.dropped_at_ms.is_(None)
)
_DROP_TAG: Final = delete(tags).where(
    tags.c.table_id == bindparam("id"), tags.c.name == bindparam("tag"), tags.c.seq == bindparam("at_seq")
)
_FORGET_DEAD_TAG: Final = delete(tags).where(
    tags.c.table_id == bindparam("id"), tags.c.name == bindparam("tag"), tags.c.expires_at_ms <= bindparam("now_ms")
)
_INSERT_TAG: Final = insert(tags)


def tables_to_lock(changes: Iterable[RefChanges]) -> tuple[set[str], set[str]]:
    """Return the ids of branches that the changes drop, and of tables and branches whose history they depend on."""
    dropped = {each for change in changes for each in change.dropped}
    needed = {new.source.table_id for change in changes for new in change.created}
    made = {new.branch.record.table_id for change in changes for new in change.created}
    needed |= {tag.table_id for change in changes for tag in change.tags} - made
    return dropped, needed


def change_refs(connection: Connection, change: RefChanges, quotas: Mapping[str, TableQuota]) -> None:
    """Make the changes but for the swaps of branches, which the caller has made.

    Raises:
        CommitConflict: a branch, a tag, or a snapshot is no longer as it was.
        QuotaExceeded, Unavailable: as for a commit.
    """
    for branch_id in change.dropped:
        if connection.execute(DROP, {"id": branch_id, "now_ms": change.now_ms}).rowcount != 1:
            raise _changed()
    for tag in change.dropped_tags:
        connection.execute(_DROP_TAG, {"id": tag.table_id, "tag": tag.name, "at_seq": tag.seq})
    for new in change.created:
        _create(connection, new, change.now_ms, quotas)
    for tag in change.tags:
        _put(connection, tag, change.now_ms)


def _create(connection: Connection, new: NewBranch, now_ms: int, quotas: Mapping[str, TableQuota]) -> None:
    record = new.branch.record
    main_id = record.main_id
    main = connection.execute(_LIVE_NAME, {"id": main_id}).first()
    if main is None or main.name != main_name(record.name):
        raise _changed()
    named = {"id": main_id, "tag": new.branch.name, "now_ms": now_ms}
    if connection.execute(SELECT_TAG_NAMED, named).first() is not None:
        raise _changed()
    _require(connection, new.source.table_id, new.source.seq)
    if main_id in quotas:
        check_quota(connection, main_id, new.entry, quotas[main_id])
    try:
        insert_branch(connection, new.branch, new.source, main.namespace_id)
    except IntegrityError as error:
        raise _changed() from error
    require_unswept(connection, [(main_id, new.guard)])
    connection.execute(sql.INSERT_SNAPSHOT, [snapshot_row(record.table_id, new.entry)])


def _put(connection: Connection, tag: TagRecord, now_ms: int) -> None:
    """Add a tag; one that others gave that name stays."""
    which = {"id": tag.table_id, "tag": tag.name, "now_ms": now_ms}
    _require(connection, tag.table_id, tag.seq)
    connection.execute(_FORGET_DEAD_TAG, which)
    if connection.execute(SELECT_TAG_NAMED, which).first() is not None:
        return
    row = {
        "table_id": tag.table_id,
        "name": tag.name,
        "seq": tag.seq,
        "created_at_ms": tag.created_at_ms,
        "expires_at_ms": tag.expires_at_ms,
    }
    connection.execute(_INSERT_TAG, row)


def _require(connection: Connection, table_id: str, seq: int) -> None:
    try:
        require_in_history(connection, table_id, seq)
    except SnapshotExpired as error:
        raise _changed() from error


def _changed() -> CommitConflict:
    return CommitConflict(
        "the branches or tags of the table were changed by others", blocks=[], snapshot_id="", snapshot_is="current"
    )
