"""Snapshots, tags, changes and rollback."""

from __future__ import annotations

from typing import Final

from lamella.snapshot.errors import (
    AlreadyExists,
    BlocksGone,
    BodyTooLarge,
    CommitConflict,
    FilterTypeMismatch,
    IdempotencyMismatch,
    InvalidFilter,
    InvalidPageToken,
    InvalidRequest,
    LimitExceeded,
    LocationRefused,
    ManifestError,
    NamespaceNotFound,
    NotAppendOnly,
    OutcomeUnknown,
    QuotaExceeded,
    ReaderFeatureMissing,
    SegmentNotFound,
    SnapshotExpired,
    SnapshotNotFound,
    StoreError,
    TableNotFound,
    TagNotFound,
    Unavailable,
    UnknownColumn,
)
from lamella.snapshot.manifest import Segment, Snapshot
from lamella.snapshot.wire import (
    ChangesAnswer,
    CurrentSnapshots,
    CurrentSnapshotsRequest,
    RollbackAnswer,
    RollbackRequest,
    SegmentBlocks,
    SnapshotList,
    TagInfo,
    TagList,
    TagRequest,
)
from lamella.snapshot.wire.operation import (
    BY_REQUEST,
    IF_NONE_MATCH,
    OF_A_TABLE,
    TABLE,
    Nothing,
    Operation,
    Parameter,
    on_table,
)

#: Snapshots that one page of changes looks at; each is a difference of its own.
MAX_SNAPSHOTS: Final = 64
#: Snapshots in one answer, when the request does not say.
DEFAULT_SNAPSHOTS: Final = 100
_OF_SNAPSHOT: Final = Parameter(
    name="snapshot_id",
    description="The snapshot that the segment belongs to, by id, tag or number; default: the current one.",
)

#: Blocks in one page of changes: when the request does not say, and at most.
DEFAULT_BLOCKS: Final = 10_000
MAX_PAGE: Final = 1_000_000

_FEATURES: Final = Parameter(
    name="reader_features",
    description="What the reader supports, separated by commas; a table that requires more refuses the request.",
)
_FLAG: Final = {"type": "boolean"}
_OF_A_MANIFEST: Final = (ManifestError, StoreError)

LIST_SNAPSHOTS: Final = Operation(
    name="list_snapshots",
    method="GET",
    path=TABLE + "/snapshots",
    permission=on_table("read"),
    summary="List a table's snapshots, newest first",
    tag="History",
    answer_type=SnapshotList,
    own_parameters=(
        Parameter(
            name="page_size",
            description=f"Maximum number of snapshots in the answer; default: {DEFAULT_SNAPSHOTS}.",
            schema={"type": "integer", "minimum": 1},
            maximum_setting="page_size_max",
        ),
        Parameter(name="page_token", description="`next_page_token` of the previous answer."),
        Parameter(name="snapshot_id", description="Start at this snapshot: its id, or a tag."),
        Parameter(
            name="timestamp",
            description="Start at the snapshot that was current at this time: Unix milliseconds, or ISO 8601 text.",
        ),
        Parameter(name="time_zone", description="For times without a time zone; default: `UTC`."),
        IF_NONE_MATCH,
    ),
    errors=(InvalidRequest, InvalidPageToken, *OF_A_TABLE, SnapshotNotFound, SnapshotExpired),
)

CURRENT_SNAPSHOTS: Final = Operation(
    name="current_snapshots",
    method="POST",
    path="/v1/current-snapshots",
    permission=BY_REQUEST,
    summary="Get the current snapshots of several tables at one moment",
    tag="History",
    description="Requires `read` on each of the tables. There was a moment during the request at which all these "
    "snapshots were current, so a reader of them sees all changes of a transaction or none. Changes nothing.",
    request_type=CurrentSnapshotsRequest,
    answer_type=CurrentSnapshots,
    errors=(InvalidRequest, *OF_A_TABLE, Unavailable),
    is_question=True,
)

GET_SNAPSHOT: Final = Operation(
    name="get_snapshot",
    method="GET",
    path=TABLE + "/snapshots/{snapshot_id}",
    permission=on_table("read"),
    summary="Get a snapshot's manifest",
    tag="History",
    description="Returns the JSON as it was written, after checking its content hash. A tag can be given in place of "
    "the id.",
    answer_type=Snapshot,
    own_parameters=(IF_NONE_MATCH,),
    errors=(*OF_A_TABLE, SnapshotNotFound, SnapshotExpired, *_OF_A_MANIFEST),
)

GET_SEGMENT: Final = Operation(
    name="get_segment",
    method="GET",
    path=TABLE + "/segments/{segment_id}",
    permission=on_table("read"),
    summary="Get a segment's manifest",
    tag="History",
    description="Returns the JSON as it was written, after checking its content hash.",
    answer_type=Segment,
    own_parameters=(_OF_SNAPSHOT, _FEATURES, IF_NONE_MATCH),
    errors=(
        ReaderFeatureMissing,
        *OF_A_TABLE,
        SnapshotNotFound,
        SnapshotExpired,
        SegmentNotFound,
        *_OF_A_MANIFEST,
    ),
)

GET_SEGMENT_BLOCKS: Final = Operation(
    name="get_segment_blocks",
    method="GET",
    path=TABLE + "/segments/{segment_id}/blocks",
    permission=on_table("read"),
    summary="Look up the addresses of a segment's blocks",
    tag="History",
    description="Resolves the block numbers in prune answers of `shape` `ranges`. A segment never changes, so the "
    "answer can be cached without limit.",
    answer_type=SegmentBlocks,
    own_parameters=(_OF_SNAPSHOT, _FEATURES, IF_NONE_MATCH),
    errors=(
        ReaderFeatureMissing,
        *OF_A_TABLE,
        SnapshotNotFound,
        SnapshotExpired,
        SegmentNotFound,
        *_OF_A_MANIFEST,
    ),
)

_OF_A_CHANGE: Final = (IdempotencyMismatch, Unavailable, OutcomeUnknown)

LIST_TAGS: Final = Operation(
    name="list_tags",
    method="GET",
    path=TABLE + "/tags",
    permission=on_table("read"),
    summary="List the tags of a table",
    tag="History",
    answer_type=TagList,
    errors=OF_A_TABLE,
)

PUT_TAG: Final = Operation(
    name="put_tag",
    method="POST",
    path=TABLE + "/tags",
    permission=on_table("write"),
    summary="Tag a snapshot, or move a tag",
    tag="History",
    description="A tag can be used wherever a snapshot id can. The snapshot does not expire while the tag exists. An "
    "existing tag is moved only with `move`; the status is then 200.",
    request_type=TagRequest,
    answer_type=TagInfo,
    status=201,
    errors=(
        InvalidRequest,
        BodyTooLarge,
        *OF_A_TABLE,
        SnapshotNotFound,
        SnapshotExpired,
        TagNotFound,
        AlreadyExists,
        *_OF_A_CHANGE,
    ),
    resend="with_key",
)

DROP_TAG: Final = Operation(
    name="drop_tag",
    method="DELETE",
    path=TABLE + "/tags/{tag}",
    permission=on_table("write"),
    summary="Drop a tag",
    tag="History",
    description="The retention of the table decides how long the snapshot stays.",
    answer_type=Nothing,
    status=204,
    errors=(*OF_A_TABLE, TagNotFound, *_OF_A_CHANGE),
    resend="with_key",
)

_TIME: Final = "Unix milliseconds, or ISO 8601 text; without a time zone it is in `time_zone`."

CHANGES: Final = Operation(
    name="changes",
    method="GET",
    path=TABLE + "/changes",
    permission=on_table("read"),
    summary="List the blocks added and removed after a snapshot",
    tag="History",
    description="Returns the changes of each snapshot, oldest first, with the blocks that may match the filter; names "
    "and types are those of the last snapshot. A page covers at most {MAX_SNAPSHOTS} snapshots. The first page "
    "fixes the snapshots of all pages.",
    answer_type=ChangesAnswer,
    own_parameters=(
        Parameter(name="since", description="A snapshot's id, or a tag. The snapshot itself is not included."),
        Parameter(name="since_timestamp", description="The same by time. " + _TIME),
        Parameter(name="until", description="A snapshot's id, or a tag; by default the current one."),
        Parameter(name="until_timestamp", description="The same by time. " + _TIME),
        Parameter(name="filter", description="SQL text in Spark's dialect, or a JSON tree as text."),
        Parameter(name="columns", description='Columns, as a JSON list, for `column_size_bytes`: `["a"]`.'),
        Parameter(
            name="net",
            description="Return the difference between the two ends: blocks that were added and removed in between "
            "are left out, and so are the snapshots in between, which may have expired.",
            schema=_FLAG,
        ),
        Parameter(
            name="append_only",
            description="Fail at the first snapshot that removed blocks; the snapshots before it are returned first.",
            schema=_FLAG,
        ),
        Parameter(name="time_zone", description="For times without a time zone; default: `UTC`."),
        Parameter(name="case_sensitive", description="Match column names with case.", schema=_FLAG),
        Parameter(
            name="page_size",
            description=f"Maximum number of blocks in the answer; default: {DEFAULT_BLOCKS}, limit: the setting "
            "`answer_blocks_max`.",
            schema={"type": "integer", "minimum": 1, "maximum": MAX_PAGE},
        ),
        Parameter(name="page_token", description="`next_page_token` of the previous answer."),
        _FEATURES,
    ),
    errors=(
        InvalidRequest,
        InvalidFilter,
        FilterTypeMismatch,
        UnknownColumn,
        LimitExceeded,
        InvalidPageToken,
        NamespaceNotFound,
        TableNotFound,
        SnapshotNotFound,
        SnapshotExpired,
        NotAppendOnly,
        ReaderFeatureMissing,
        ManifestError,
        StoreError,
    ),
)

ROLLBACK: Final = Operation(
    name="rollback",
    method="POST",
    path=TABLE + "/rollback",
    permission=on_table("maintain"),
    summary="Roll a table back to an earlier snapshot",
    tag="History",
    description="Creates a new snapshot with the blocks and columns of the older one. The history is kept, so a "
    "rollback can be rolled back. The files of restored blocks are checked first. With `base_snapshot_id` the table "
    "is rolled back only if this is the current snapshot; without it, concurrent commits are undone too.",
    request_type=RollbackRequest,
    answer_type=RollbackAnswer,
    errors=(
        InvalidRequest,
        LocationRefused,
        BodyTooLarge,
        NamespaceNotFound,
        TableNotFound,
        SnapshotNotFound,
        SnapshotExpired,
        CommitConflict,
        BlocksGone,
        QuotaExceeded,
        IdempotencyMismatch,
        StoreError,
        Unavailable,
        OutcomeUnknown,
    ),
    resend="with_key",
)
