"""The blocks of one segment as arrays: what every encoder begins with."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lamella.snapshot.prune.found import Found
from lamella.snapshot.prune.kept import Codes, Indexes

#: Where no schema id is to be said.
OWN_SCHEMA = -1


class Slab(msgspec.Struct, frozen=True, kw_only=True):
    """Blocks of one segment, arrays of equal length. ``schema_id``: :data:`OWN_SCHEMA` for the snapshot's own."""

    location: pa.Array
    numbers: Numbers


class Numbers(msgspec.Struct, frozen=True, kw_only=True):
    """What of blocks is no text."""

    row_count: Indexes
    file_size: Indexes
    codes: Codes
    column_size_bytes: Indexes | None
    schema_id: Indexes | None
    residual: Indexes | None


def slabs(found: Found) -> Iterator[Slab]:
    """The blocks of an answer in the snapshot's sequence, segment by segment; segments without any are left out."""
    begin = 0
    for part in found.parts or ():
        count = len(part.rows)
        if not count:
            continue
        companion = part.companion
        rows = None if count == len(companion) else part.rows
        sizes = None
        if found.column_ids is not None:
            sizes = _taken(companion.column_size_bytes(found.column_ids), rows)
        yield Slab(
            location=companion.text_array("location", rows),
            numbers=Numbers(
                row_count=_taken(companion.numbers("row_count"), rows),
                file_size=_taken(companion.numbers("file_size"), rows),
                codes=part.codes,
                column_size_bytes=sizes,
                schema_id=_older(companion.written_with(), part.rows, found.schema_id),
                residual=None if found.residual is None else found.residual[begin : begin + count],
            ),
        )
        begin += count


def _older(written_with: int | Indexes, rows: Indexes, current: int) -> Indexes | None:
    """The schemas of blocks that do not have the current one; None when all have."""
    if isinstance(written_with, int):
        return None if written_with == current else np.full(len(rows), written_with, dtype=np.int64)
    ids = written_with[rows]
    return None if (ids == current).all() else np.where(ids == current, OWN_SCHEMA, ids)


def _taken(values: Indexes, rows: npt.NDArray[np.int64] | None) -> Indexes:
    return values if rows is None else values[rows]
