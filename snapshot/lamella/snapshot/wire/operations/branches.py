"""Branches of a table."""

from __future__ import annotations

from typing import Final

from lamella.snapshot.errors import (
    AlreadyExists,
    BodyTooLarge,
    BranchNotFound,
    CommitConflict,
    DuplicateBlock,
    IdempotencyMismatch,
    InvalidRequest,
    ManifestError,
    NewMatches,
    OutcomeUnknown,
    QuotaExceeded,
    SchemaConflict,
    SnapshotExpired,
    SnapshotNotFound,
    StoreError,
    Unavailable,
)
from lamella.snapshot.wire.branches import (
    BranchInfo,
    BranchList,
    BranchRequest,
    CherryPickAnswer,
    CherryPickRequest,
    FastForwardAnswer,
    FastForwardRequest,
)
from lamella.snapshot.wire.operation import OF_A_TABLE, TABLE, Nothing, Operation, on_table

_OF_A_CHANGE: Final = (IdempotencyMismatch, Unavailable, OutcomeUnknown)

LIST_BRANCHES: Final = Operation(
    name="list_branches",
    method="GET",
    path=TABLE + "/branches",
    permission=on_table("read"),
    summary="List the branches of a table",
    tag="Branches",
    description="`main` is the table itself.",
    answer_type=BranchList,
    errors=OF_A_TABLE,
)

CREATE_BRANCH: Final = Operation(
    name="create_branch",
    method="POST",
    path=TABLE + "/branches",
    permission=on_table("write"),
    summary="Create a branch",
    tag="Branches",
    description="The branch is read and written under the name `table@branch`. No file is copied.",
    request_type=BranchRequest,
    answer_type=BranchInfo,
    status=201,
    errors=(
        InvalidRequest,
        BodyTooLarge,
        *OF_A_TABLE,
        SnapshotNotFound,
        SnapshotExpired,
        AlreadyExists,
        *_OF_A_CHANGE,
    ),
    resend="with_key",
)

DROP_BRANCH: Final = Operation(
    name="drop_branch",
    method="DELETE",
    path=TABLE + "/branches/{branch}",
    permission=on_table("write"),
    summary="Drop a branch",
    tag="Branches",
    description="Its snapshots can be named by their ids until `drop_grace_s` has passed and a vacuum runs.",
    answer_type=Nothing,
    status=204,
    errors=(InvalidRequest, *OF_A_TABLE, BranchNotFound, *_OF_A_CHANGE),
    resend="with_key",
)

FAST_FORWARD: Final = Operation(
    name="fast_forward",
    method="POST",
    path=TABLE + "/fast-forward",
    permission=on_table("write"),
    summary="Make the current snapshot of a branch that of the table",
    tag="Branches",
    description="The table, or the branch `table@branch` in the path, gets the snapshots that it lacks. If it has "
    "commits that the other branch does not have, nothing is changed: `commit_conflict`.",
    request_type=FastForwardRequest,
    answer_type=FastForwardAnswer,
    errors=(
        InvalidRequest,
        BodyTooLarge,
        *OF_A_TABLE,
        BranchNotFound,
        CommitConflict,
        QuotaExceeded,
        *_OF_A_CHANGE,
    ),
    resend="with_key",
)

CHERRY_PICK: Final = Operation(
    name="cherry_pick",
    method="POST",
    path=TABLE + "/cherry-pick",
    permission=on_table("write"),
    summary="Repeat the changes of a snapshot of another branch",
    tag="Branches",
    description="Creates a new snapshot of the table, or of the branch in the path, with the blocks that the other one "
    "added, and without those that it removed. Blocks that it removed, or of which it deleted rows, must be unchanged.",
    request_type=CherryPickRequest,
    answer_type=CherryPickAnswer,
    errors=(
        InvalidRequest,
        BodyTooLarge,
        *OF_A_TABLE,
        SnapshotNotFound,
        SnapshotExpired,
        CommitConflict,
        DuplicateBlock,
        NewMatches,
        SchemaConflict,
        QuotaExceeded,
        ManifestError,
        StoreError,
        *_OF_A_CHANGE,
    ),
    resend="with_key",
)
