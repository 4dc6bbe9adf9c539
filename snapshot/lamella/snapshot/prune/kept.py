"""The kept blocks of segments: what every stage takes and gives on."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt

from lamella.snapshot.columnar import Companion
from lamella.snapshot.columnar.keys import Mask

Codes = npt.NDArray[np.uint8]
Indexes = npt.NDArray[np.int64]


class Kept:
    """The kept blocks of one segment: its row in the snapshot's companion, their rows in its own, their verdicts.

    Its companion is opened when first asked for.
    """

    __slots__ = ("_companion", "codes", "rows", "segment")

    def __init__(
        self, segment: int, companion: Companion | Callable[[int], Companion], rows: Indexes, codes: Codes
    ) -> None:
        self.segment = segment
        self.rows = rows
        self.codes = codes
        self._companion = companion

    @property
    def companion(self) -> Companion:
        """The segment's companion."""
        found = self._companion
        if not isinstance(found, Companion):
            found = self._companion = found(self.segment)
        return found

    def where(self, chosen: Mask) -> Kept:
        """Only those of the kept blocks."""
        return Kept(self.segment, self._companion, self.rows[chosen], self.codes[chosen])

    def numbers(self, name: str) -> Indexes:
        """A numeric column of the companion, for the kept blocks."""
        values: Indexes = self.companion.numbers(name)[self.rows]
        return values


def joined_numbers(parts: Sequence[Kept], name: str) -> Indexes:
    """A numeric column over all parts, one after another."""
    return np.concatenate([np.zeros(0, dtype=np.int64), *(part.numbers(name) for part in parts)])


def totals(parts: Sequence[Kept]) -> tuple[int, int]:
    """How many blocks, and their file sizes in bytes, added up."""
    return sum(len(part.rows) for part in parts), int(joined_numbers(parts, "file_size").sum())


def chosen_parts(parts: Sequence[Kept], selected: Indexes) -> tuple[tuple[Kept, ...], Indexes | None]:
    """Only the ``selected`` blocks: places in the parts one after another, in any sequence.

    That sequence comes back as places in the new parts, None when it is their own.
    """
    count = sum(len(part.rows) for part in parts)
    mask = np.zeros(count, dtype=bool)
    mask[selected] = True
    places = np.cumsum(mask) - 1
    masks = np.split(mask, np.cumsum([len(part.rows) for part in parts])[:-1]) if parts else []
    left = tuple(part.where(mine) for part, mine in zip(parts, masks, strict=True))
    order = places[selected]
    return left, None if bool((order == np.arange(len(order))).all()) else order
