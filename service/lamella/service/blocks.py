"""Blocks as writers send them: what must hold before one becomes part of a table.

Statistics that contradict themselves or the schema would make pruning skip rows, so such a block is refused; what is
merely missing is fine and keeps the block in every answer.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from lamella.service.json_body import read_json
from lamella.snapshot.errors import InvalidRequest, LimitExceeded, ManifestError, SchemaMismatch, UnknownColumn
from lamella.snapshot.layout.location import normal
from lamella.snapshot.manifest import MOST_LEVEL, Block
from lamella.snapshot.schema import Leaf
from lamella.snapshot.sketch import check as check_sketch
from lamella.snapshot.stats import Bound, ColumnStats, from_bound
from lamella.snapshot.stats.ranges import problem as range_problem

#: Of one block as JSON: statistics of some ten thousand columns.
MOST_BYTES: Final = 8 << 20

_DECODER = msgspec.json.Decoder(Block)


def read_blocks(added: Sequence[msgspec.Raw]) -> list[Block]:
    """Decode ``added`` of a commit request.

    Raises:
        InvalidRequest, LimitExceeded: one of them is no block; ``details.path`` says which and where.
    """
    blocks = []
    for position, raw in enumerate(added):
        path = f"$.added[{position}]"
        if len(raw) > MOST_BYTES:
            text = f"the block at {path} has {len(raw)} bytes; one may have {MOST_BYTES}"
            raise LimitExceeded(text, limit="block_bytes", most=MOST_BYTES, path=path)
        blocks.append(read_json(_DECODER, raw, root=path))
    return blocks


def check_block(block: Block, columns: Mapping[int, Leaf], *, last_key_id: int = -1) -> Block:
    """The block with its location in the one spelling that manifests hold.

    ``columns``: the table's leaves by id. ``last_key_id``: the greatest id that a cluster key of the table ever had
    (-1: it never had one).

    Raises:
        InvalidRequest: a location, format or count that cannot be.
        UnknownColumn: statistics of a column that the table does not have.
        SchemaMismatch: statistics that do not fit the column, or each other.
    """
    location = normal(block.location)
    if block.format != "parquet":
        raise InvalidRequest(f"blocks are Parquet files, not {block.format!r}")
    for name in ("row_count", "file_size", "block_size", "bloom_filter_index_size"):
        if getattr(block, name) < 0:
            raise InvalidRequest(f"{name} is {getattr(block, name)}")
    if any(rows < 0 for rows in block.row_group_row_counts):
        raise InvalidRequest("a row group has fewer than no rows")
    if block.row_group_row_counts and sum(block.row_group_row_counts) != block.row_count:
        raise InvalidRequest(f"the row groups have {sum(block.row_group_row_counts)} rows, not {block.row_count}")
    clustered = block.cluster_stats
    if clustered is not None and not 0 <= clustered.key_id <= last_key_id:
        raise InvalidRequest(f"the table never had a cluster key with the id {clustered.key_id}")
    if clustered is not None and not 0 <= clustered.level <= MOST_LEVEL:
        raise InvalidRequest(f"a level of clustering is from 0 to {MOST_LEVEL}, not {clustered.level}")
    for column_id in sorted({*block.col_stats, *block.col_metas, *block.sketches}):
        if column_id not in columns:
            raise UnknownColumn(f"the table has no column with id {column_id}", column_id=column_id)
    for column_id, stats in block.col_stats.items():
        problem = _contradiction(columns[column_id], stats, block.row_count)
        if problem is not None:
            name = columns[column_id].name
            raise SchemaMismatch(f"column {name!r}: {problem}", column=name, column_id=column_id)
    for column_id, sketch in block.sketches.items():
        problem = check_sketch(columns[column_id].dtype, sketch)
        if problem is not None:
            name = columns[column_id].name
            raise SchemaMismatch(f"column {name!r}: {problem}", column=name, column_id=column_id)
    return msgspec.structs.replace(block, location=location)


def _contradiction(leaf: Leaf, stats: ColumnStats, row_count: int) -> str | None:
    """What is wrong with one column's statistics, None when nothing is."""
    nulls = stats.null_count
    if nulls is not None and not 0 <= nulls <= row_count:
        return f"null_count is {nulls} in {row_count} rows"
    for name in ("distinct_of_values", "in_memory_size"):
        count = getattr(stats, name)
        if count is not None and count < 0:
            return f"{name} is {count}"
    if stats.nan != "none" and not leaf.dtype.is_float:
        return f"nan is {stats.nan!r} in a column of type {leaf.dtype}"
    bounds = {name: bound for name, bound in (("min", stats.min), ("max", stats.max)) if bound is not None}
    if not bounds:
        return "there are ranges, but no bounds" if stats.ranges else None
    if leaf.dtype.order is None:
        return f"values of type {leaf.dtype} have no order, so no bounds"
    if leaf.repeated:
        return "a list or map holds several values in a row, so no bounds"
    if stats.nan == "all" or nulls == row_count:
        return "there are bounds, but no value that they could bound"
    values = {}
    for name, bound in bounds.items():
        if _tags(bound) != 1:
            return f"{name} has {_tags(bound)} values, not one"
        try:
            values[name] = from_bound(leaf.dtype, bound)
        except (ManifestError, ValueError) as error:
            return f"{name} is not a bound of type {leaf.dtype}: {error}"
    try:
        wrong = range_problem(leaf.dtype, stats.ranges, values.get("min"), values.get("max"))
    except (ManifestError, ValueError) as error:
        wrong = f"ranges are not of type {leaf.dtype}: {error}"
    if wrong is not None:
        return wrong
    if len(values) == 2 and values["min"] > values["max"]:  # type: ignore[operator]  # one order per type
        return "min is greater than max"
    return None


def _tags(bound: Bound) -> int:
    return sum(value is not None for value in msgspec.structs.astuple(bound))
