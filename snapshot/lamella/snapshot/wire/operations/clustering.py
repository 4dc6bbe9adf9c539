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
        description="Columns of another key than the table's own, with commas between them; may be repeated.",
    ),
    Parameter(
        name="kind",
        description="The kind of that key.",
        schema={"type": "string", "enum": list(get_args(ClusterKind)), "default": "linear"},
    ),
    Parameter(name="snapshot_id", description="A snapshot's id or a tag, instead of the current one."),
    Parameter(name="where", description="SQL: only blocks that may hold a row for which it is true."),
    Parameter(name="time_zone", description="Of times in `where` that have none. Default: UTC."),
    Parameter(
        name="case_sensitive",
        description="Whether letters of names in `where` count.",
        schema={"type": "string", "enum": ["true", "false"], "default": "false"},
    ),
    Parameter(
        name="recorded",
        description="So many of the recorded filters are asked again, the latest.",
        schema={"type": "integer", "minimum": 0, "maximum": MAX_RECORDED, "default": RECORDED},
    ),
)

_OF_A_CHANGE: Final = (BodyTooLarge, IdempotencyMismatch, StoreError, Unavailable, OutcomeUnknown)

SHOW_CLUSTER_KEY: Final = Operation(
    name="show_cluster_key",
    method="GET",
    path=TABLE + "/cluster-key",
    permission=on_table("read"),
    summary="Look at the cluster key of a table",
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
    description="Blocks stay as they are; jobs lay rows out by the new key from now on. Another key or "
    "kind gets an id that no key of the table had before; no `columns` take the key away. With "
    "`base_snapshot_id` it is changed only if it is still the key of that snapshot.",
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
    summary="How well a table is laid out",
    tag=_TAG,
    description="For its cluster key, or for one that it could have: in how many blocks and segments a key "
    "value lies, how many are constant, not written for the key, small; what look-ups read, and would read "
    "of the best layout; and what the filters read that were recorded of the table. From manifests alone.",
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
    summary="Put blocks into other segments",
    tag=_TAG,
    description="So that look-ups by the cluster key skip more segments as a whole. No block is read or "
    "written. Each answer is a part, which is committed; send the request again until `remaining` is 0 or "
    "nothing was replaced.",
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
    summary="What a job would rewrite",
    tag=_TAG,
    description="The blocks that a compaction or a reclustering would write anew now, in tasks that are "
    "independent of each other, with what is gained and what it costs. Nothing is changed.",
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
    description="What tells the blocks from other files that may come to stand in their places, and what "
    "they were written for; with `sign_urls` also a URL that reads it without "
    "credentials. Locations that are not in the snapshot are listed as `missing`.",
    request_type=BlocksRequest,
    answer_type=BlocksAnswer,
    errors=(InvalidRequest, LimitExceeded, LocationRefused, NotSignable, *OF_A_TABLE, SnapshotNotFound, StoreError),
    is_question=True,
    is_large=True,
)
