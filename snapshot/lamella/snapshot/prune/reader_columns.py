"""Whether a reader may skip inside blocks by what their Parquet footers say of a column.

Readers believe footers more than they should. Spark 4.3, for one, takes bounds without a column order, inverted bounds
and null counts of writers that count wrongly, and orders NaN above bounds that leave it out. What Lamella itself
believed when it took a block in (:mod:`lamella.snapshot.parquet.trust`) is what a reader may believe, too.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np
import numpy.typing as npt

from lamella.snapshot.columnar import Companion
from lamella.snapshot.columnar.zones import HIGH_KNOWN, LOW_KNOWN, MAY_NAN, MAY_NUMBER, NULLS_KNOWN
from lamella.snapshot.manifest import Snapshot
from lamella.snapshot.prune.kept import Kept
from lamella.snapshot.schema import Leaf
from lamella.snapshot.wire import PruneAnswer, PruneRequest

_ALL_KNOWN = LOW_KNOWN | HIGH_KNOWN | NULLS_KNOWN


def with_reader_columns(
    answer: PruneAnswer, head: Snapshot, kept: Sequence[Kept] | None, request: PruneRequest, own_blocks: str
) -> PruneAnswer:
    """The answer with its ``reader_columns``, when they were asked for; ``own_blocks``: the folder of Lamella's blocks.

    Raises:
        UnknownColumn: the request names a column that the table does not have.
    """
    if not request.reader_columns or kept is None:
        return answer
    believed = []
    for name in request.reader_columns:
        leaf = head.schema.leaf(name, case_sensitive=request.case_sensitive)
        if all(_believed(part, leaf, head.schema.schema_id, own_blocks) for part in kept):
            believed.append(name)
    return msgspec.structs.replace(answer, reader_columns=tuple(believed))


def _believed(part: Kept, leaf: Leaf, schema_id: int, own_blocks: str) -> bool:
    if leaf.repeated or any(each is not None for each in part.companion.older_schema_ids(part.rows, schema_id)):
        return False  # the name may stand for another column in the file, or for none
    flags = part.companion.zones(leaf.id, leaf.dtype).flags[part.rows]
    bounded = ((flags & _ALL_KNOWN) == _ALL_KNOWN) & ((flags & MAY_NAN) == 0)
    all_null = ((flags & NULLS_KNOWN) != 0) & ((flags & (MAY_NUMBER | MAY_NAN)) == 0)
    return bool((bounded | all_null).all()) and not _foreign_scan(part.companion, leaf, part.rows, own_blocks)


def _foreign_scan(companion: Companion, leaf: Leaf, rows: npt.NDArray[np.int64], own_blocks: str) -> bool:
    """True when a block of another writer has statistics that its footer does not have."""
    elsewhere = rows[companion.from_elsewhere(leaf.id)[rows]]
    return any(not place.startswith(own_blocks) for place in companion.texts("location", elsewhere))
