"""Values that a source gives for all rows of a file: believed only when the file's own statistics prove them.

Nothing in a manifest says that a column has a value which the file lacks, so a file whose value stands only in its
path, or only in a log, cannot be part of a table. A null of a column that the file lacks is what the table says too.
"""

from __future__ import annotations

from collections.abc import Mapping

from lamella.snapshot.errors import InvalidSchema, UnknownColumn
from lamella.snapshot.manifest import Block
from lamella.snapshot.schema import Leaf, Schema
from lamella.snapshot.schema.default import default_value
from lamella.snapshot.stats import from_bound


def problem(block: Block, schema: Schema, constants: Mapping[str, str | None]) -> str | None:
    """Why a block must not be taken for a file with these constants; None: its rows have them, proven."""
    for name, text in constants.items():
        try:
            leaf = schema.find(name)
        except UnknownColumn:
            leaf = None
        if leaf is None:
            return f"the value of column {name!r} stands only outside of the file, and the table has no such column"
        if not _proven(block, leaf, text):
            value = "null" if text is None else repr(text)
            return f"column {name!r} should be {value} in every row, which stands outside of the file and not in it"
    return None


def _proven(block: Block, leaf: Leaf, text: str | None) -> bool:
    stats = block.col_stats.get(leaf.id)
    if stats is None or block.row_count == 0:
        return block.row_count == 0
    if text is None:
        return stats.null_count == block.row_count
    if stats.null_count != 0 or stats.min is None or stats.max is None or stats.nan != "none":
        return False
    try:
        wanted = default_value(leaf.dtype, text)
    except InvalidSchema:
        return False
    return wanted == from_bound(leaf.dtype, stats.min) == from_bound(leaf.dtype, stats.max)
