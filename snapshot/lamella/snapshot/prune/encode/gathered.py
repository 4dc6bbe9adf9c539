"""Numbers of all blocks of an answer, gathered while their locations are given out."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from lamella.snapshot.prune.encode.slabs import OWN_SCHEMA, Numbers


class Gathered:
    """17 bytes a block, and 8 more for each of the members that not every answer has."""

    def __init__(self) -> None:
        self._parts: list[Numbers] = []

    def add(self, numbers: Numbers) -> None:
        """Take the numbers of the next blocks."""
        # Copies, since views would hold the whole companion.
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
