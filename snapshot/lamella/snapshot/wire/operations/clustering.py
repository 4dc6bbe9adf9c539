"""Cluster keys, and plans of rewrites."""

from __future__ import annotations

from typing import Final, get_args

from lamella.snapshot.errors import (
    BodyTooLarge,
    CommitConflict,
    FilterTypeMismatch,
    IdempotencyMismatch,
    InvalidFilter,
    InvalidRequest,
    LimitExceeded,
    LocationRefused,
    ManifestError,
    NotSignable,
    OutcomeUnknown,
    Overloaded,
    ReaderFeatureMissing,
    SnapshotExpired,
    SnapshotNotFound,
    StoreError,
    Unavailable,
    UnknownColumn,
)
from lamella.snapshot.manifest import ClusterKind
from lamella.snapshot.wire import (
    BlocksAnswer,
    BlocksRequest,
    ClusteringAnswer,
    ClusterKeyInfo,
    ClusterKeyRequest,
    PlanAnswer,
    PlanRequest,
    RegroupAnswer,
    RegroupRequest,
)
from lamella.snapshot.wire.operation import OF_A_TABLE, TABLE, Operation, Parameter, on_table

#: Recorded filters that are asked again, unless a question says otherwise, and at most.
RECORDED: Final = 20
MAX_RECORDED: Final = 1_000
#: Locations in one request for blocks.
MAX_BLOCKS: Final = 10_000
_TAG: Final = "Layout"
_QUESTION: Final = (
    Parameter(
        name="key",
        description="Columns of another key than the table's, separated by commas; may be repeated.",
    ),
    Parameter(
        name="kind",
        # Without a default in the schema: generated clients would send it, and it is refused without a key.
        description="The kind of that key; default: `linear`.",
        schema={"type": "string", "enum": list(get_args(ClusterKind))},
    ),
    Parameter(name="snapshot_id", description="A snapshot's id or a tag, instead of the current one."),
    Parameter(name="where", description="SQL: only blocks that may hold a row for which it is true."),
    Parameter(name="time_zone", description="Time zone for timestamps in `where` without one. Default: UTC."),
    Parameter(
        name="case_sensitive",
        description="Whether names in `where` are case-sensitive.",
        schema={"type": "string", "enum": ["true", "false"], "default": "false"},
    ),
    Parameter(
        name="recorded",
        description="Number of recorded filters to evaluate again, latest first.",
        schema={"type": "integer", "minimum": 0, "maximum": MAX_RECORDED, "default": RECORDED},
    ),
)

_OF_A_CHANGE: Final = (BodyTooLarge, IdempotencyMismatch, StoreError, Unavailable, OutcomeUnknown)

SHOW_CLUSTER_KEY: Final = Operation(
    name="show_cluster_key",
    method="GET",
    path=TABLE + "/cluster-key",
    permission=on_table("read"),
    summary="Get the cluster key of a table",
    tag=_TAG,
    answer_type=ClusterKeyInfo,
    errors=OF_A_TABLE,
)

SET_CLUSTER_KEY: Final = Operation(
    name="set_cluster_key",
    method="PUT",
    path=TABLE + "/cluster-key",
    permission=on_table("maintain"),
    summary="Change the cluster key of a table",
    tag=_TAG,
    description="Existing blocks stay as they are; jobs use the new key from now on. A different key or kind gets a "
    "new id; without `columns` the key is removed. With `base_snapshot_id` the key is changed only if it is still the "
    "key of that snapshot.",
    request_type=ClusterKeyRequest,
    answer_type=ClusterKeyInfo,
    errors=(InvalidRequest, UnknownColumn, *OF_A_TABLE, SnapshotNotFound, CommitConflict, *_OF_A_CHANGE),
    resend="with_key",
)

SHOW_CLUSTERING: Final = Operation(
    name="show_clustering",
    method="GET",
    path=TABLE + "/clustering",
    permission=on_table("read"),
    summary="Get how well a table is clustered",
    tag=_TAG,
    description="For the table's cluster key or another key: how many blocks and segments overlap at a key value; how "
    "many are constant, small, or not written for the key; what look-ups read now and would read with the best "
    "layout; and what the recorded filters of the table read. Uses manifests only.",
    answer_type=ClusteringAnswer,
    own_parameters=_QUESTION,
    errors=(
        InvalidRequest,
        InvalidFilter,
        FilterTypeMismatch,
        LimitExceeded,
        UnknownColumn,
        *OF_A_TABLE,
        SnapshotNotFound,
        SnapshotExpired,
        ManifestError,
        StoreError,
        Overloaded,
        Unavailable,
    ),
)

REGROUP: Final = Operation(
    name="regroup",
    method="POST",
    path=TABLE + "/regroup",
    permission=on_table("maintain"),
    summary="Move blocks between segments",
    tag=_TAG,
    description="Afterwards filters on the cluster key skip more whole segments. No block is read or written. Each "
    "request commits one part; repeat it until `remaining` is 0 or nothing was replaced.",
    request_type=RegroupRequest,
    answer_type=RegroupAnswer,
    errors=(InvalidRequest, UnknownColumn, *OF_A_TABLE, Overloaded, *_OF_A_CHANGE),
    resend="with_key",
)


PLAN: Final = Operation(
    name="plan",
    method="POST",
    path=TABLE + "/plan",
    permission=on_table("read"),
    summary="Plan a compaction, a reclustering or a purge",
    tag=_TAG,
    description="Returns the blocks that the job would rewrite now, in independent tasks, with "
    "the gain and the cost. Changes nothing.",
    request_type=PlanRequest,
    answer_type=PlanAnswer,
    errors=(
        InvalidRequest,
        InvalidFilter,
        LimitExceeded,
        FilterTypeMismatch,
        UnknownColumn,
        *OF_A_TABLE,
        SnapshotNotFound,
        ReaderFeatureMissing,
        StoreError,
    ),
    is_question=True,
    is_large=True,
)

BLOCKS: Final = Operation(
    name="blocks",
    method="POST",
    path=TABLE + "/blocks",
    permission=on_table("read"),
    summary="Look up blocks by their locations",
    tag=_TAG,
    description="Returns for each block what identifies its file (so that a replaced file is detected) and the "
    "cluster key that it was written for; with `sign_urls` also a URL that reads it without credentials. Locations "
    "that are not in the snapshot are listed in `missing`.",
    request_type=BlocksRequest,
    answer_type=BlocksAnswer,
    errors=(
        InvalidRequest,
        LimitExceeded,
        LocationRefused,
        NotSignable,
        *OF_A_TABLE,
        SnapshotNotFound,
        ReaderFeatureMissing,
        StoreError,
    ),
    is_question=True,
    is_large=True,
)
