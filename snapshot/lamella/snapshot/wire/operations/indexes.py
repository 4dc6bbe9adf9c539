"""Skip indexes."""

from __future__ import annotations

from typing import Final

from lamella.snapshot.errors import (
    AlreadyExists,
    BodyTooLarge,
    DeletionPending,
    IdempotencyMismatch,
    IndexNotFound,
    InvalidFilter,
    InvalidPageToken,
    InvalidRequest,
    ManifestError,
    ObjectNotFound,
    OutcomeUnknown,
    Overloaded,
    SnapshotExpired,
    SnapshotNotFound,
    StoreError,
    Unavailable,
    UnknownColumn,
)
from lamella.snapshot.wire import (
    CreateIndex,
    IndexInfo,
    IndexKindList,
    IndexList,
    OptimiseAnswer,
    OptimiseRequest,
    PartsAnswer,
    PartsRequest,
    RefreshAnswer,
    RefreshRequest,
)
from lamella.snapshot.wire.operation import AUTHENTICATED, OF_A_TABLE, TABLE, Operation, Parameter, on_table

_INDEXES: Final = TABLE + "/indexes"
_INDEX: Final = _INDEXES + "/{index}"

_TAG: Final = "Indexes"
_OF_A_CHANGE: Final = (BodyTooLarge, IdempotencyMismatch, StoreError, Unavailable, OutcomeUnknown)

_SNAPSHOT: Final = Parameter(name="snapshot_id", description="A snapshot's id or a tag, instead of the current one.")

_OF_A_MANIFEST: Final = (ManifestError, StoreError)

LIST_INDEX_KINDS: Final = Operation(
    name="list_index_kinds",
    method="GET",
    path="/v1/index-kinds",
    permission=AUTHENTICATED,
    summary="List the kinds of skip indexes",
    tag=_TAG,
    description="Lists the kinds with their options, and the defaults and bounds of the options.",
    answer_type=IndexKindList,
)

LIST_INDEXES: Final = Operation(
    name="list_indexes",
    method="GET",
    path=_INDEXES,
    permission=on_table("read"),
    summary="List the skip indexes of a table",
    tag=_TAG,
    description="Lists the indexes with their coverage of the snapshot's blocks.",
    answer_type=IndexList,
    own_parameters=(
        Parameter(
            name="dropped",
            description="`true`: include dropped indexes.",
            schema={"type": "string", "enum": ["true", "false"], "default": "false"},
        ),
        _SNAPSHOT,
    ),
    errors=(InvalidRequest, *OF_A_TABLE, SnapshotNotFound, *_OF_A_MANIFEST),
)

CREATE_INDEX: Final = Operation(
    name="create_index",
    method="POST",
    path=_INDEXES,
    permission=on_table("maintain"),
    summary="Create a skip index",
    tag=_TAG,
    description="A new index covers no block: refresh it, or build parts elsewhere. Prunes can use it at any time; "
    "blocks that it does not cover are kept.",
    request_type=CreateIndex,
    answer_type=IndexInfo,
    errors=(InvalidRequest, InvalidFilter, UnknownColumn, *OF_A_TABLE, AlreadyExists, *_OF_A_CHANGE),
    resend="with_key",
)

SHOW_INDEX: Final = Operation(
    name="show_index",
    method="GET",
    path=_INDEX,
    permission=on_table("read"),
    summary="Get a skip index",
    tag=_TAG,
    answer_type=IndexInfo,
    own_parameters=(_SNAPSHOT,),
    errors=(*OF_A_TABLE, IndexNotFound, SnapshotNotFound, *_OF_A_MANIFEST),
)

DROP_INDEX: Final = Operation(
    name="drop_index",
    method="DELETE",
    path=_INDEX,
    permission=on_table("maintain"),
    summary="Drop a skip index",
    tag=_TAG,
    description="The index is no longer used, and can be restored with all its parts.",
    answer_type=IndexInfo,
    errors=(*OF_A_TABLE, IndexNotFound, *_OF_A_CHANGE),
    resend="with_key",
)

RESTORE_INDEX: Final = Operation(
    name="restore_index",
    method="POST",
    path=_INDEX + "/restore",
    permission=on_table("maintain"),
    summary="Restore a dropped skip index",
    tag=_TAG,
    answer_type=IndexInfo,
    errors=(*OF_A_TABLE, IndexNotFound, *_OF_A_CHANGE),
    resend="with_key",
)

VACUUM_INDEX: Final = Operation(
    name="vacuum_index",
    method="POST",
    path=_INDEX + "/vacuum",
    permission=on_table("maintain"),
    summary="Remove a dropped skip index permanently",
    tag=_TAG,
    description="Its name can be used again. Vacuum deletes its objects after the last snapshot that refers to them "
    "has expired.",
    answer_type=IndexInfo,
    errors=(*OF_A_TABLE, IndexNotFound, *_OF_A_CHANGE),
    resend="with_key",
)

REFRESH_INDEX: Final = Operation(
    name="refresh_index",
    method="POST",
    path=_INDEX + "/refresh",
    permission=on_table("maintain"),
    summary="Refresh a skip index, part by part",
    tag=_TAG,
    description="Each request commits one part, which is used from then on; repeat the request with `next_page_token` "
    "until there is none. The service keeps no state in between, so a refresh can be stopped at any time.",
    request_type=RefreshRequest,
    answer_type=RefreshAnswer,
    errors=(*OF_A_TABLE, IndexNotFound, InvalidRequest, InvalidPageToken, SnapshotExpired, Overloaded, *_OF_A_CHANGE),
    resend="with_key",
)

ADD_INDEX_PARTS: Final = Operation(
    name="add_index_parts",
    method="POST",
    path=_INDEX + "/parts",
    permission=on_table("maintain"),
    summary="Add parts of a skip index that were built elsewhere",
    tag=_TAG,
    description="Each part must be in the table's `_ix` folder under a new name, complete, and built with the index's "
    "definition. The service trusts its contents, as it trusts the statistics of committed blocks.",
    request_type=PartsRequest,
    answer_type=PartsAnswer,
    errors=(*OF_A_TABLE, IndexNotFound, InvalidRequest, ObjectNotFound, DeletionPending, Overloaded, *_OF_A_CHANGE),
    resend="with_key",
    is_large=True,
)

OPTIMISE_INDEX: Final = Operation(
    name="optimise_index",
    method="POST",
    path=_INDEX + "/optimise",
    permission=on_table("maintain"),
    summary="Regroup the parts of a skip index",
    tag=_TAG,
    description="Afterwards each part covers the blocks of one full segment, or of several small adjacent ones, and "
    "no removed blocks. No data is read. Repeat the request until `remaining` is 0.",
    request_type=OptimiseRequest,
    answer_type=OptimiseAnswer,
    errors=(*OF_A_TABLE, IndexNotFound, InvalidRequest, Overloaded, *_OF_A_CHANGE),
    resend="with_key",
)
