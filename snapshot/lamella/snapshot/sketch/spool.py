"""Sketches of many segments' blocks on their way into other segments, in a file for as long as that takes.

The sketches of a segment can be a thousand times as large as its summary, and blocks that go into one new segment come
from many old ones. So each old object is read once, and of a new segment only its own blocks' sketches are in memory.
"""

from __future__ import annotations

import tempfile
from types import TracebackType
from typing import IO, Final, Self

import msgspec

from lamella.snapshot.layout import Store, TableLayout
from lamella.snapshot.manifest import Block, SegmentRef
from lamella.snapshot.sketch.objects import Columns, read_blocks

_COLUMNS: Final = msgspec.msgpack.Decoder(Columns)
_ENCODER: Final = msgspec.msgpack.Encoder()


class SketchSpool:
    """A context manager; the file is gone behind it."""

    def __init__(self, store: Store, layout: TableLayout) -> None:
        self._store = store
        self._layout = layout
        self._file: IO[bytes] | None = None
        self._places: dict[str, tuple[int, int]] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._file is not None:
            self._file.close()

    def add(self, ref: SegmentRef) -> None:
        """Take in the sketches of a segment's blocks, if it has any."""
        found = read_blocks(self._store, self._layout.sketches(ref.segment_id))
        if found and self._file is None:
            self._file = tempfile.TemporaryFile(prefix="lamella-sketches-")  # noqa: SIM115  # closed at the exit
        for location, columns in found.items():
            if self._file is not None:
                data = _ENCODER.encode(columns)
                self._places[location] = (self._file.tell(), len(data))
                self._file.write(data)

    def restored(self, blocks: list[Block]) -> list[Block]:
        """Blocks as they were read from manifests, with their sketches."""
        return [msgspec.structs.replace(block, sketches=self._of(block.location)) for block in blocks]

    def _of(self, location: str) -> Columns:
        place = self._places.get(location)
        if place is None or self._file is None:
            return {}
        self._file.seek(place[0])
        found = _COLUMNS.decode(self._file.read(place[1]))
        self._file.seek(0, 2)
        return found
