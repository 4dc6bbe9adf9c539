"""Prunes and aggregates."""

from __future__ import annotations

from typing import Final

from lamella.snapshot.errors import InvalidPageToken, LocationRefused, NotSignable, Overloaded, SegmentNotFound
from lamella.snapshot.wire import (
    AggregateAnswer,
    AggregateRequest,
    BatchAnswer,
    BatchRequest,
    DiffAnswer,
    DiffRequest,
    PruneAnswer,
    PruneRequest,
)
from lamella.snapshot.wire.operation import ARROW, MSGPACK, OF_A_FILTER, OF_A_SNAPSHOT, TABLE, Operation, on_table

PRUNE: Final = Operation(
    name="prune",
    method="POST",
    path=TABLE + "/prune",
    permission=on_table("read"),
    summary="Ask which blocks a filter leaves",
    tag="Prune",
    description="A block that holds a matching row is always among them, under Spark SQL's semantics. "
    "`report` says how many entries each stage looked at and kept, and which predicates could not prune "
    "and why. With `sign_urls` each block has a URL that reads it without credentials. "
    "Large answers come in pieces, compressed by `Accept-Encoding`.",
    request_type=PruneRequest,
    answer_type=PruneAnswer,
    other_media_types=(ARROW, MSGPACK),
    errors=(
        *OF_A_SNAPSHOT,
        *OF_A_FILTER,
        InvalidPageToken,
        SegmentNotFound,
        LocationRefused,
        NotSignable,
        Overloaded,
    ),
    is_question=True,
    is_large=True,
)

PRUNE_BATCH: Final = Operation(
    name="prune_batch",
    method="POST",
    path=TABLE + "/prune/batch",
    permission=on_table("read"),
    summary="Ask which blocks each of many filters leaves",
    tag="Prune",
    description="As many prunes of one snapshot, but each segment is read once for all of them. "
    "`details.filter` of an error is the number of the filter, from 0. All answers together have no more "
    "blocks (or runs of them, or segments) than the setting `answer_blocks_max` says.",
    request_type=BatchRequest,
    answer_type=BatchAnswer,
    errors=(*OF_A_SNAPSHOT, *OF_A_FILTER),
    is_question=True,
    is_large=True,
)

DIFF: Final = Operation(
    name="diff",
    method="POST",
    path=TABLE + "/diff",
    permission=on_table("read"),
    summary="Ask which blocks came and went between two snapshots",
    tag="Prune",
    description="Only blocks that may match the filter, and no more than the setting `answer_blocks_max` "
    "says; `changes` has pages. Segments that both snapshots have are not read.",
    request_type=DiffRequest,
    answer_type=DiffAnswer,
    errors=(*OF_A_SNAPSHOT, *OF_A_FILTER),
    is_question=True,
    is_large=True,
)

AGGREGATE: Final = Operation(
    name="aggregate",
    method="POST",
    path=TABLE + "/aggregate",
    permission=on_table("read"),
    summary="Count rows, find least and greatest values",
    tag="Prune",
    description="`groups` hold what the statistics prove; the matching rows of the blocks in `scan` are to "
    "be added. Never from bounds that may not occur. With `mode` `bounded` nothing is to be scanned, and "
    "the answer says what the true values lie between.",
    request_type=AggregateRequest,
    answer_type=AggregateAnswer,
    errors=(*OF_A_SNAPSHOT, *OF_A_FILTER),
    is_question=True,
    is_large=True,
)
