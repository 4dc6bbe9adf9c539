"""Statistics in scan tasks: of the columns that a client asked for, and only what is exact."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import msgspec

from lamella.snapshot.iceberg.bounds import file_statistics
from lamella.snapshot.manifest import Block, Snapshot
from lamella.snapshot.prune.kept import Kept
from lamella.snapshot.schema.evolution import schema_at


class FileMembers:
    """Gives members of a ``data-file`` as JSON. ``blocks`` reads those of a segment by its row in the snapshot."""

    def __init__(self, head: Snapshot, column_ids: Sequence[int], blocks: Callable[[int], Sequence[Block]]) -> None:
        self._head = head
        self._ids = frozenset(column_ids)
        self._blocks = blocks
        self._read: tuple[int, Sequence[Block]] | None = None

    def __call__(self, part: Kept, row: int) -> bytes:
        """The members of one block, each behind a comma."""
        if self._read is None or self._read[0] != part.segment:
            self._read = (part.segment, self._blocks(part.segment))
        block = self._read[1][row]
        found = file_statistics(block, schema_at(self._head, block.written_with), self._ids)
        lower, upper = (
            {column: bound.hex() for column, bound in bounds.items() if is_exact(block, column)}
            for bounds, is_exact in ((found.lower_bounds, _low_is_exact), (found.upper_bounds, _high_is_exact))
        )
        return b"".join(
            b',"%b":%b' % (name, msgspec.json.encode(_member(values)))
            for name, values in (
                (b"value-counts", found.value_counts),
                (b"null-value-counts", found.null_value_counts),
                (b"nan-value-counts", found.nan_value_counts),
                (b"lower-bounds", lower),
                (b"upper-bounds", upper),
            )
            if values
        )


def _member(values: Mapping[int, int | str]) -> dict[str, list[int | str]]:
    return {"keys": list(values), "values": list(values.values())}


def _low_is_exact(block: Block, column_id: int) -> bool:
    return block.col_stats[column_id].min_exact


def _high_is_exact(block: Block, column_id: int) -> bool:
    return block.col_stats[column_id].max_exact
