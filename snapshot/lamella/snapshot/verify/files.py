"""A block's file: that it is there and the same, and that the statistics hold what its footer says today.

The footer is read again and taken in by this release's rules. What is recorded may be looser, never tighter.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from lamella.snapshot.errors import (
    CorruptParquet,
    LamellaError,
    ManifestError,
    SchemaMismatch,
    StoreError,
)
from lamella.snapshot.layout import Store
from lamella.snapshot.layout.store import ObjectStat
from lamella.snapshot.manifest import Block
from lamella.snapshot.parquet import block_of, read_footer
from lamella.snapshot.parquet.footer import Footer
from lamella.snapshot.schema import Leaf, Schema
from lamella.snapshot.stats import ColumnStats
from lamella.snapshot.verify.layers import Problem, value_of


class FileFound(msgspec.Struct, frozen=True):
    """What was found at a block's location; ``footer`` None: it cannot be used."""

    problems: tuple[Problem, ...]
    footer: Footer | None


def check_file(store: Store, block: Block, schema: Schema | None) -> FileFound:
    """Look at the file of a block; ``schema`` is the one that it was written with (None: not known)."""
    problems: list[Problem] = []
    footer = _footer(store, block, problems)
    if footer is not None and schema is not None:
        problems += _footer_problems(footer, block, schema)
    return FileFound(tuple(problems), footer)


def _footer(store: Store, block: Block, problems: list[Problem]) -> Footer | None:
    def wrong(code: str, message: str) -> None:
        problems.append(Problem(code, message, None, block.location))

    try:
        stat = store.stat(block.location)
    except StoreError as error:
        wrong("unreachable", error.message)
        return None
    except LamellaError as error:  # not there, or at a place that there cannot be
        wrong("block_missing", error.message)
        return None
    if stat.size_bytes != block.file_size:
        wrong("block_size", f"the file has {stat.size_bytes} bytes, not {block.file_size}")
        return None
    try:
        footer = read_footer(store, block.location, stat)
    except StoreError as error:
        wrong("unreachable", error.message)
        return None
    except LamellaError as error:
        wrong("block_replaced" if _is_another(block, stat) else "footer_unreadable", error.message)
        return None
    if block.footer_sha256 is not None and footer.sha256 != block.footer_sha256:
        wrong("block_replaced", f"the SHA-256 of its footer is {footer.sha256}, not {block.footer_sha256}")
        return None
    if _is_another(block, stat):
        wrong("block_touched", f"its content id is {stat.content_id}, not {block.content_id}")
    return footer


def _is_another(block: Block, stat: ObjectStat) -> bool:
    return block.content_id is not None and block.content_id != stat.content_id


def _footer_problems(footer: Footer, block: Block, schema: Schema) -> Iterator[Problem]:
    def wrong(code: str, message: str, column_id: int | None = None) -> Problem:
        return Problem(code, message, column_id, block.location)

    try:
        now = block_of(footer, schema)
    except SchemaMismatch as error:
        yield wrong("footer_schema", error.message)
        return
    except (CorruptParquet, ManifestError) as error:
        yield wrong("footer_unreadable", error.message)
        return
    if now.row_count != block.row_count:
        yield wrong("footer_rows", f"the footer has {now.row_count} rows, not {block.row_count}")
        return
    own = block.row_group_row_counts
    if own and sum(own) == block.row_count and now.row_group_row_counts != own:
        yield wrong("footer_rows", f"the footer's row groups are {list(now.row_group_row_counts)}")
    for column_id, metas in block.col_metas.items():
        if now.col_metas.get(column_id) != metas:
            yield wrong("footer_places", "the column's chunks are not where the footer has them", column_id)
    if block.page_index_location is not None and block.page_index_location != now.page_index_location:
        yield wrong("footer_places", f"the page index is at {now.page_index_location} by the footer")
    leaves = schema.by_id()
    for column_id, stats in block.col_stats.items():
        leaf, fresh = leaves.get(column_id), now.col_stats.get(column_id)
        if leaf is not None and fresh is not None:
            yield from _column_problems(block, leaf, stats, fresh)


def _column_problems(block: Block, leaf: Leaf, stats: ColumnStats, fresh: ColumnStats) -> Iterator[Problem]:
    def wrong(code: str, message: str) -> Problem:
        return Problem(code, message, leaf.id, block.location)

    if stats.null_count is not None and fresh.null_count is not None and stats.null_count != fresh.null_count:
        yield wrong("footer_nulls", f"the null count is {stats.null_count}, and {fresh.null_count} by the footer")
    if (stats.source == "schema") != (fresh.source == "schema"):
        if stats.source == "schema":
            yield wrong("footer_bounds", "the statistics say that the file lacks the column, and it has it")
        elif stats.source == "footer":
            yield wrong("footer_bounds", "the file lacks the column")
        return
    if stats.source == "scan":
        return  # values were read, and say more than a footer can; a deep verification reads them again
    try:
        kept, now = _bounds(leaf, stats), _bounds(leaf, fresh)
    except (ManifestError, ValueError):
        return  # reported of the manifest
    unbelieved = []
    for side, mine, other in zip(("min", "max"), kept, now, strict=True):
        if mine is None:
            continue
        if other is None:
            if not _is_empty(fresh, block.row_count):
                unbelieved.append(side)
        elif mine > other if side == "min" else mine < other:
            yield wrong("footer_bounds", f"{side} is {mine!r}, and {other!r} by the footer")
    if stats.null_count is not None and fresh.null_count is None:
        unbelieved.append("null_count")
    if unbelieved:
        reason = f": {fresh.reason}" if fresh.reason else ""
        yield wrong("footer_untrusted", f"{', '.join(unbelieved)} would not be taken from the footer today{reason}")
    elif _excludes_nan(stats, fresh):
        yield wrong("footer_nan", f"nan is {stats.nan!r}, and {fresh.nan!r} by the footer")


def _bounds(leaf: Leaf, stats: ColumnStats) -> tuple[Any, Any]:
    return value_of(leaf.dtype, stats.min), value_of(leaf.dtype, stats.max)


def _is_empty(stats: ColumnStats, row_count: int) -> bool:
    return not row_count or stats.null_count == row_count or stats.nan == "all"


def _excludes_nan(stats: ColumnStats, fresh: ColumnStats) -> bool:
    if stats.nan == "none":
        return fresh.nan != "none"
    return stats.nan == "all" and fresh.nan != "all"
