"""The blocks of a segment as arrays, which every encoder begins with."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lamella.snapshot.prune.result import Found
from lamella.snapshot.prune.selection import Codes, Indexes

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
        sidecar = part.sidecar
        rows = None if count == len(sidecar) else part.rows
        sizes = None
        if found.column_ids is not None:
            sizes = _taken(sidecar.column_size_bytes(found.column_ids), rows)
        yield Slab(
            location=sidecar.text_array("location", rows),
            numbers=Numbers(
                row_count=_taken(sidecar.numbers("row_count"), rows),
                file_size=_taken(sidecar.numbers("file_size"), rows),
                codes=part.codes,
                column_size_bytes=sizes,
                schema_id=_older(sidecar.written_with(), part.rows, found.schema_id),
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


class Gathered:
    """17 bytes a block, and 8 more for each of the members that not every answer has."""

    def __init__(self) -> None:
        self._parts: list[Numbers] = []

    def add(self, numbers: Numbers) -> None:
        """Take the numbers of the next blocks."""
        # Copies, since views would hold the whole sidecar.
        self._parts.append(
            Numbers(
                row_count=numbers.row_count.copy(),
                file_size=numbers.file_size.copy(),
                codes=numbers.codes,
                column_size_bytes=numbers.column_size_bytes,
                schema_id=numbers.schema_id,
                residual=numbers.residual,
            )
        )

    def columns(self) -> list[tuple[str, npt.NDArray[Any]]]:
        """The members of :class:`~lamella.snapshot.wire.BlockColumns` behind ``location``, without those that are None.

        ``verdict`` as codes, ``schema_id`` with :data:`OWN_SCHEMA` where it is the snapshot's.
        """
        parts = self._parts
        found = [
            ("row_count", _joined([part.row_count for part in parts])),
            ("file_size", _joined([part.file_size for part in parts])),
            ("verdict", _joined([part.codes for part in parts])),
        ]
        if parts and parts[0].column_size_bytes is not None:
            found.append(("column_size_bytes", _joined([part.column_size_bytes for part in parts])))
        if any(part.schema_id is not None for part in parts):
            ids = [
                np.full(len(part.codes), OWN_SCHEMA, dtype=np.int64) if part.schema_id is None else part.schema_id
                for part in parts
            ]
            found.append(("schema_id", _joined(ids)))
        if parts and parts[0].residual is not None:
            found.append(("residual", _joined([part.residual for part in parts])))
        return found


def _joined(arrays: list[Any]) -> npt.NDArray[Any]:
    return np.concatenate(arrays) if arrays else np.zeros(0, dtype=np.int64)
