"""What answers say of a segment's blocks, as JSON that is written once: a piece of it is a piece of an answer."""

from __future__ import annotations

from array import array
from typing import Any, Final

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lamella.snapshot.columnar import Companion
from lamella.snapshot.prune.encode.json_text import joined, json_strings, offsets_of
from lamella.snapshot.prune.encode.record_text import record_texts
from lamella.snapshot.prune.encode.slabs import Numbers
from lamella.snapshot.prune.kept import Indexes
from lamella.snapshot.prune.verdict import ALL

_ENCODE: Final = msgspec.json.Encoder().encode
_COMMA: Final = 0x2C


class Elements:
    """The elements of a JSON array, with commas between them. Any neighbours can be cut out."""

    __slots__ = ("_begins", "_text")

    def __init__(self, text: bytes, begins: npt.NDArray[Any]) -> None:
        """``begins``: where each element begins in ``text``, and behind them where one more would."""
        self._text = memoryview(text)
        # Four bytes each, and read as integers of Python.
        self._begins = array("I", begins.astype(np.uintc).tobytes())

    def cut(self, first: int, count: int) -> memoryview:
        """Elements from ``first`` on, at least one; not copied."""
        begins = self._begins
        return self._text[begins[first] : begins[first + count] - 1]

    def span_bytes(self, first: int, count: int) -> int:
        """How long that is, and one comma."""
        return self._begins[first + count] - self._begins[first]

    @property
    def size_bytes(self) -> int:
        """What it takes in memory, roughly."""
        return len(self._text) + len(self._begins) * self._begins.itemsize


class SegmentText(msgspec.Struct, frozen=True):
    """What answers say of each block of a segment: ``main`` is records, or else locations, with ``numbers`` by member.

    ``schema_id``: the schema that all blocks were written with, None when they have several.
    """

    schema_id: int | None
    main: Elements
    numbers: dict[str, Elements] = {}

    @property
    def size_bytes(self) -> int:
        """What it takes in memory, roughly."""
        return self.main.size_bytes + sum(elements.size_bytes for elements in self.numbers.values())


def columns_text(companion: Companion) -> SegmentText:
    """The members of :class:`~lamella.snapshot.wire.BlockColumns` that are the same in every answer."""
    numbers = {name: _numbers(companion.numbers(name)) for name in ("row_count", "file_size")}
    return SegmentText(_schema_id(companion), _strings(companion.text_array("location")), numbers)


def records_text(companion: Companion) -> SegmentText:
    """Records of all blocks with the verdict ALL, and no members that not every answer has."""
    numbers = Numbers(
        row_count=companion.numbers("row_count"),
        file_size=companion.numbers("file_size"),
        codes=np.full(len(companion), ALL, dtype=np.uint8),
        column_size_bytes=None,
        schema_id=None,
        residual=None,
    )
    texts = record_texts(companion.text_array("location"), numbers)
    return SegmentText(_schema_id(companion), Elements(bytes(joined(texts, ",")), _spread(texts, 1)))


def _schema_id(companion: Companion) -> int | None:
    written_with = companion.written_with()
    if isinstance(written_with, int):
        return written_with
    first = int(written_with[0]) if len(written_with) else None
    return first if first is not None and bool((written_with == first).all()) else None


def _strings(texts: pa.Array) -> Elements:
    escaped = json_strings(texts)
    return Elements(b'"%b"' % bytes(joined(escaped, '","')), _spread(escaped, 3))


def _spread(texts: pa.Array, between: int) -> Indexes:
    """Where texts begin, so many bytes having come in between each two."""
    offsets = offsets_of(texts)
    begins: Indexes = offsets - offsets[0] + np.arange(len(offsets)) * between
    return begins


def _numbers(values: Indexes) -> Elements:
    text = _ENCODE(values.tolist())[1:-1]
    commas = np.flatnonzero(np.frombuffer(text, dtype=np.uint8) == _COMMA)
    return Elements(text, np.concatenate([[0], commas + 1, [len(text) + 1]]))
