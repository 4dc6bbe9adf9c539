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
    RollbackAnswer,
    RollbackRequest,
    SegmentBlocks,
    SnapshotList,
    TagInfo,
    TagList,
    TagRequest,
)
from lamella.snapshot.wire.operation import IF_NONE_MATCH, OF_A_TABLE, TABLE, Nothing, Operation, Parameter, on_table

#: Snapshots that one page of changes looks at; each is a difference of its own.
MAX_SNAPSHOTS: Final = 64
#: Snapshots in one answer, when the request does not say.
DEFAULT_SNAPSHOTS: Final = 100
_OF_SNAPSHOT: Final = Parameter(
    name="snapshot_id",
    description="The snapshot that the segment belongs to, by id or tag; the current one when not given.",
)

#: Blocks in one page of changes: when the request does not say, and at most.
DEFAULT_BLOCKS: Final = 10_000
MAX_PAGE: Final = 1_000_000

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
            description=f"Snapshots in one answer; {DEFAULT_SNAPSHOTS} when not given.",
            schema={"type": "integer", "minimum": 1},
            maximum_setting="page_size_max",
        ),
        Parameter(name="page_token", description="`next_page_token` of the answer before."),
        Parameter(name="snapshot_id", description="Begin with this one: its id, or a tag."),
        Parameter(
            name="timestamp",
            description="Begin with the one in force then: Unix milliseconds, or ISO 8601 text.",
        ),
        Parameter(name="time_zone", description="For a time without one; `UTC` when not given."),
        IF_NONE_MATCH,
    ),
    errors=(InvalidRequest, InvalidPageToken, *OF_A_TABLE, SnapshotNotFound, SnapshotExpired),
)

GET_SNAPSHOT: Final = Operation(
    name="get_snapshot",
    method="GET",
    path=TABLE + "/snapshots/{snapshot_id}",
    permission=on_table("read"),
    summary="Read a snapshot's manifest",
    tag="History",
    description="The JSON as it was written, after a check of its content hash. A tag may stand in place of the id.",
    answer_type=Snapshot,
    own_parameters=(IF_NONE_MATCH,),
    errors=(*OF_A_TABLE, SnapshotNotFound, SnapshotExpired, *_OF_A_MANIFEST),
)

GET_SEGMENT: Final = Operation(
    name="get_segment",
    method="GET",
    path=TABLE + "/segments/{segment_id}",
    permission=on_table("read"),
    summary="Read a segment's manifest",
    tag="History",
    description="The JSON as it was written, after a check of its content hash.",
    answer_type=Segment,
    own_parameters=(_OF_SNAPSHOT, IF_NONE_MATCH),
    errors=(*OF_A_TABLE, SnapshotNotFound, SnapshotExpired, SegmentNotFound, *_OF_A_MANIFEST),
)

GET_SEGMENT_BLOCKS: Final = Operation(
    name="get_segment_blocks",
    method="GET",
    path=TABLE + "/segments/{segment_id}/blocks",
    permission=on_table("read"),
    summary="Look up the addresses of a segment's blocks",
    tag="History",
    description="By the numbers that prune answers of `shape` `ranges` have. A segment never changes, so "
    "this can be kept for ever.",
    answer_type=SegmentBlocks,
    own_parameters=(_OF_SNAPSHOT, IF_NONE_MATCH),
    errors=(*OF_A_TABLE, SnapshotNotFound, SnapshotExpired, SegmentNotFound, *_OF_A_MANIFEST),
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
    description="Wherever a snapshot is named by its id, a tag can stand instead. As long as the tag is "
    "alive its snapshot does not expire. A tag that is there is moved only with `move`, which is answered "
    "with status 200.",
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
    description="The snapshot stays, as long as the retention of the table lets it.",
    answer_type=Nothing,
    status=204,
    errors=(*OF_A_TABLE, TagNotFound, *_OF_A_CHANGE),
    resend="with_key",
)

_TIME: Final = "Unix milliseconds, or ISO 8601 text; without a zone it is in `time_zone`."

CHANGES: Final = Operation(
    name="changes",
    method="GET",
    path=TABLE + "/changes",
    permission=on_table("read"),
    summary="Ask which blocks came and went after a snapshot",
    tag="History",
    description="Snapshot by snapshot, oldest first, those that may match the filter; names and types are "
    "those of the last snapshot. One page looks at no more than "
    f"{MAX_SNAPSHOTS} snapshots. All pages are of the snapshots of the first one.",
    answer_type=ChangesAnswer,
    own_parameters=(
        Parameter(name="since", description="A snapshot's id, or a tag. Its own blocks are not answered."),
        Parameter(name="since_timestamp", description="The same by time. " + _TIME),
        Parameter(name="until", description="A snapshot's id, or a tag; by default the current one."),
        Parameter(name="until_timestamp", description="The same by time. " + _TIME),
        Parameter(name="filter", description="SQL text in Spark's dialect, or a JSON tree as text."),
        Parameter(name="columns", description='Columns, as a JSON list, for `column_size_bytes`: `["a"]`.'),
        Parameter(
            name="net",
            description="The difference of the two ends: blocks that came and went in between are left "
            "out, and so are the snapshots in between, which may have expired.",
            schema=_FLAG,
        ),
        Parameter(
            name="append_only",
            description="Refuse where blocks were removed; what came before that is answered first.",
            schema=_FLAG,
        ),
        Parameter(name="time_zone", description="For times without one; `UTC` when not given."),
        Parameter(name="case_sensitive", description="Tell apart columns that differ in case.", schema=_FLAG),
        Parameter(
            name="page_size",
            description=f"Blocks in one answer; {DEFAULT_BLOCKS} when not given, and never more than the "
            "setting `answer_blocks_max`.",
            schema={"type": "integer", "minimum": 1, "maximum": MAX_PAGE},
        ),
        Parameter(name="page_token", description="`next_page_token` of the answer before."),
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
    description="A new snapshot gets the blocks and columns of the older one; nothing leaves the history, "
    "so a rollback can be rolled back. The files of blocks that come back are looked at first. With "
    "`base_snapshot_id` it is done only if that is the current snapshot; without, what others commit "
    "meanwhile is taken back too.",
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
