"""Prunes and aggregates."""

from __future__ import annotations

from typing import Final

from lamella.snapshot.errors import (
    InvalidPageToken,
    LocationRefused,
    NotSignable,
    Overloaded,
    ReaderFeatureMissing,
    SegmentNotFound,
)
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
    summary="Find the blocks that may match a filter",
    tag="Prune",
    description="Every block with a matching row, under Spark SQL's semantics, is in the answer. `report` has the "
    "number of entries that each stage considered and kept, and the predicates that could not prune, with the "
    "reasons. With `sign_urls` each block has a URL that reads it without credentials. Large answers are streamed, "
    "and compressed according to `Accept-Encoding`.",
    request_type=PruneRequest,
    answer_type=PruneAnswer,
    other_media_types=(ARROW, MSGPACK),
    errors=(
        *OF_A_SNAPSHOT,
        *OF_A_FILTER,
        ReaderFeatureMissing,
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
    summary="Find the blocks that may match each of several filters",
    tag="Prune",
    description="The same as several prunes of one snapshot, but each segment is read once for all filters. "
    "`details.filter` in an error is the number of the filter, from 0. All answers together have at most "
    "`answer_blocks_max` blocks (or runs of blocks, or segments), a setting of the service.",
    request_type=BatchRequest,
    answer_type=BatchAnswer,
    errors=(*OF_A_SNAPSHOT, *OF_A_FILTER, ReaderFeatureMissing),
    is_question=True,
    is_large=True,
)

DIFF: Final = Operation(
    name="diff",
    method="POST",
    path=TABLE + "/diff",
    permission=on_table("read"),
    summary="Find the blocks added and removed between two snapshots",
    tag="Prune",
    description="Returns only blocks that may match the filter, at most as many as the setting `answer_blocks_max` "
    "allows; `changes` has pages. Segments that both snapshots have are not read.",
    request_type=DiffRequest,
    answer_type=DiffAnswer,
    errors=(*OF_A_SNAPSHOT, *OF_A_FILTER, ReaderFeatureMissing),
    is_question=True,
    is_large=True,
)

AGGREGATE: Final = Operation(
    name="aggregate",
    method="POST",
    path=TABLE + "/aggregate",
    permission=on_table("read"),
    summary="Compute counts, minima and maxima",
    tag="Prune",
    description="`groups` has the values that the statistics prove; the matching rows of the blocks in `scan` must be "
    "added. Bounds that may not occur in the data are never used. With `mode` `bounded` nothing has to be scanned, "
    "and the answer has bounds of the true values.",
    request_type=AggregateRequest,
    answer_type=AggregateAnswer,
    errors=(*OF_A_SNAPSHOT, *OF_A_FILTER, ReaderFeatureMissing),
    is_question=True,
    is_large=True,
)
