"""Requests and answers about the branches of a table."""

from __future__ import annotations

import msgspec

from lamella.snapshot.wire.limits import Moment, Word


class BranchRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``POST .../branches``: creates a branch at a snapshot, by default the current one.

    ``snapshot_id``: an id, tag, branch or number; or ``timestamp`` (Unix ms, or ISO 8601 text, without a zone in
    ``time_zone``). ``max_idle_ms``: a vacuum drops the branch when its last commit is older; None: never. ``replace``:
    if a branch has the name, it is dropped.
    """

    name: Word
    snapshot_id: Word | None = None
    timestamp: int | Moment | None = None
    time_zone: Moment = "UTC"
    max_idle_ms: int | None = None
    replace: bool = False


class BranchInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A branch and its current snapshot, whose number in the history is ``number``.

    ``fork_number``: the number of the table's snapshot where its own history begins; None for ``main``.
    ``can_fast_forward``: whether ``main`` can be fast-forwarded to it, and would change. ``iceberg_snapshot_id``: the
    snapshot of the branch of that name in the metadata of an Iceberg table, which it stands for; None: a branch of
    Lamella's own.
    """

    name: str
    snapshot_id: str
    timestamp_ms: int
    number: int
    row_count: int
    block_count: int
    created_at_ms: int
    fork_number: int | None = None
    max_idle_ms: int | None = None
    can_fast_forward: bool = False
    iceberg_snapshot_id: str | None = None


class BranchList(msgspec.Struct, frozen=True, kw_only=True):
    """``GET .../branches``: ``main`` first, the others by name."""

    branches: tuple[BranchInfo, ...]


class FastForwardRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``POST .../fast-forward``: makes the current snapshot of the branch ``to`` that of the table, or of the branch
    that the request is sent to.
    """

    to: Word


class FastForwardAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """The current snapshot, the one before the request, and how many numbers lie between: 0 if they are the same."""

    snapshot_id: str
    prev_snapshot_id: str
    snapshots: int
    row_count: int
    block_count: int


class CherryPickRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``POST .../cherry-pick``: repeats what a snapshot changed: an id, a tag, or a branch for its current one.

    ``strict``: refuse an update or a merge if the table has blocks that it had not seen, since it might have changed
    other rows then.
    """

    snapshot_id: Word
    strict: bool = False


class CherryPickAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """The new snapshot, the one before it, and the one whose changes it has.

    ``added``, ``removed``: numbers of blocks; ``changed``: of blocks of which rows were deleted.
    """

    snapshot_id: str
    prev_snapshot_id: str
    picked_snapshot_id: str
    added: int
    removed: int
    changed: int
    row_count: int
    block_count: int
