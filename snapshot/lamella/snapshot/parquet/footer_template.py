"""Decodes many footers that differ only in their numbers and bounds together.

Files of one writer and one schema have footers of the same shape: field after field in the same order, with other
counts, offsets and bounds. A :class:`FooterTemplate` is that shape, taken from one footer: runs of bytes that must be
equal in the other footers, and between them the numbers and byte strings that may differ. It is matched with all other
footers at once, one NumPy step for each run or number. A footer that matches from its first to its last byte has the
template's structure and its constant values, so only the values in between remain to be read; one that does not match
is decoded by :mod:`lamella.snapshot.parquet.footer` like any other.

:func:`_role` decides what is constant: everything except what it names, so that an unexpected field makes two shapes
different instead of being overlooked.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

import msgspec
import numpy as np
import numpy.typing as npt

from lamella.snapshot.parquet import thrift
from lamella.snapshot.parquet.thrift import MAX_DEPTH, ThriftError

Numbers = npt.NDArray[np.int64]
Words = npt.NDArray[np.uint64]
#: Field ids and list positions from the footer's root to a value.
Path = tuple[int, ...]

#: Footers with more values than this are rare and long; a template of them would be slow to build.
MAX_STEPS: Final = 20_000
#: Constant runs that are longer are compared by Python, footer by footer.
_LONG_RUN: Final = 96
#: No stored string of Parquet's statistics is longer in practice.
_MAX_STRING: Final = 1 << 20
_SPARK: Final = b"org.apache.spark"

_ROW_GROUPS: Final = 4
#: Of a ColumnChunk: offset_index_offset, offset_index_length, column_index_offset, column_index_length.
_OF_CHUNK: Final = frozenset((4, 5, 6, 7))
#: Of ColumnMetaData: num_values, sizes, data_page_offset, dictionary_page_offset, bloom filter.
_OF_META: Final = frozenset((5, 6, 7, 9, 11, 14, 15))
#: Of Statistics: the bounds, null_count, nan_count.
_OF_STATISTICS: Final = frozenset((1, 2, 3, 5, 6, 9))

_CONST: Final = 0
_SKIP: Final = 1
_KEEP: Final = 2


class _Step(msgspec.Struct, frozen=True):
    """A run of bytes (``run``), or a number or (``is_text``) a byte string, which is stored by its ``path``.

    ``size``: the bytes of a number in the footer that the shape was taken from. ``steps``: instead, several runs and
    ignored numbers of one byte each. They are there if ``run`` is, in the bits of ``mask``.
    """

    run: bytes = b""
    is_text: bool = False
    path: Path | None = None
    size: int = 0
    mask: bytes = b""
    steps: tuple[_Step, ...] = ()


class Texts(msgspec.Struct, frozen=True):
    """Byte strings in a common buffer."""

    starts: Numbers
    lengths: Numbers


class Reading(msgspec.Struct, frozen=True):
    """The content of the matching footers: ``rows`` are their positions in the given order.

    ``numbers`` and ``texts`` by path, an entry for each of ``rows``; ``data`` is the buffer of the texts, ``words`` the
    eight bytes from each of its positions on as a little-endian number.
    """

    rows: Numbers
    numbers: dict[Path, Numbers]
    texts: dict[Path, Texts]
    data: bytes
    words: Words

    def strings(self, texts: Texts) -> list[bytes]:
        """Returns the strings one by one."""
        data = self.data
        starts = texts.starts.tolist()
        return [data[start : start + length] for start, length in zip(starts, texts.lengths.tolist(), strict=True)]


class FooterTemplate:
    """The shape of a footer from position ``at`` on, which is after field number ``field``; raises ThriftError.

    A footer that cannot be used as a shape (a map, a double, too many values) raises ThriftError as well.
    """

    def __init__(self, footer: bytes, at: int, field: int) -> None:
        tracer = _Tracer(footer, at)
        try:
            end = tracer.struct(at, (), field, 0)
        except IndexError:
            raise ThriftError("the data ends inside a value") from None
        tracer.finish(end)
        if end != len(footer):
            raise ThriftError("there are bytes after the footer's structure")
        self._steps = tuple(_combined(tracer.steps))
        self._padding = sum(len(step.run) + 10 for step in tracer.steps) + 16
        #: The numbers and strings of a :class:`Reading`.
        self.paths = frozenset(step.path for step in tracer.steps if step.path is not None)

    def lay_over(self, footers: Sequence[bytes]) -> Reading:
        """Returns the content of those of ``footers`` that have this shape; each begins where the template does."""
        lengths = np.fromiter(map(len, footers), dtype=np.int64, count=len(footers))
        ends = np.cumsum(lengths)
        total = int(ends[-1]) if len(ends) else 0
        # Nothing reads beyond the padding after the last footer, whatever a footer contains: see _text.
        data = b"".join((*footers, bytes(self._padding)))
        words = np.ndarray((len(data) - 7,), dtype="<u8", buffer=data, strides=(1,))
        at = ends - lengths
        fits = np.ones(len(footers), dtype=bool)
        numbers: dict[Path, Numbers] = {}
        texts: dict[Path, Texts] = {}
        steps = list(reversed(self._steps))
        while steps:
            step = steps.pop()
            if step.steps:
                has_all = _has_masked(words, at, step.run, step.mask)
                if (has_all | ~fits).all():
                    at = at + len(step.run)
                else:  # a number takes several bytes in some footers
                    steps += reversed(step.steps)
                continue
            if step.run:
                fits &= _has_run(data, words, at, step.run)
                at = at + len(step.run)
                continue
            value, at, short = _varints(words, at)
            fits &= short
            if step.is_text:
                fits &= value <= _MAX_STRING
                length = np.where(fits, value, 0).astype(np.int64)
                if step.path is not None:
                    texts[step.path] = Texts(at, length)
                at = np.minimum(at + length, total)
            elif step.path is not None:
                numbers[step.path] = (value >> np.uint64(1)).astype(np.int64) ^ -(value & np.uint64(1)).astype(np.int64)
        # Positions only grow, so a footer whose last value ends at its end was never left.
        fits &= at == ends
        rows = np.flatnonzero(fits)
        if len(rows) < len(footers):
            numbers = {path: found[rows] for path, found in numbers.items()}
            texts = {path: Texts(found.starts[rows], found.lengths[rows]) for path, found in texts.items()}
        return Reading(rows, numbers, texts, data, words)


class _Tracer:
    """Walks one footer and records its steps."""

    def __init__(self, data: bytes, at: int) -> None:
        self._data = data
        self._run_from = at
        self._key = b""
        self._seen: set[Path] = set()
        self.steps: list[_Step] = []

    def finish(self, end: int) -> None:
        """Close the last run of constant bytes."""
        if end > self._run_from:
            self.steps.append(_Step(run=self._data[self._run_from : end]))

    def struct(self, p: int, path: Path, field: int, depth: int) -> int:
        """Trace the structure at ``p``; returns the position after it."""
        if depth > MAX_DEPTH or len(self.steps) > MAX_STEPS:
            raise ThriftError("too large for a template")
        b = self._data
        while h := b[p]:
            p += 1
            if h >> 4:
                field += h >> 4
            else:
                n, p = thrift.varint(b, p)
                field = (n >> 1) ^ -(n & 1)
            p = self._value(p, h & 15, (*path, field), depth)
        return p + 1

    def _value(self, p: int, wire: int, path: Path, depth: int) -> int:
        if path in self._seen:
            raise ThriftError("a field occurs twice")
        self._seen.add(path)
        role = _role(path, self._key)
        if role == _KEEP and wire not in ((8,) if _is_bound(path) else (4, 5, 6)):
            raise ThriftError("a field has a different type than in the standard")
        if wire in (1, 2):
            return p
        if wire == 3:
            return p + 1
        if 4 <= wire <= 6:
            end = thrift.varint(self._data, p)[1]
            self._note(p, end, path, role, is_text=False)
            return end
        if wire == 8:
            text, end = thrift.binary(self._data, p)
            self._note(p, end, path, role, is_text=True)
            if path[0] == 5:
                self._key = text if path[-1] == 1 else b""
            return end
        if wire == 12:
            return self.struct(p, path, 0, depth + 1)
        if wire == 9:
            return self._list(p, path, depth)
        raise ThriftError(f"no template of wire type {wire}")

    def _list(self, p: int, path: Path, depth: int) -> int:
        n, wire, p = thrift.list_header(self._data, p)
        if wire in (1, 2):
            return p + n
        if n > MAX_STEPS:
            raise ThriftError("too large for a template")
        for index in range(n):
            p = self._value(p, wire, (*path, index), depth)
        return p

    def _note(self, start: int, end: int, path: Path, role: int, *, is_text: bool) -> None:
        if role == _CONST:
            return
        self.finish(start)
        self._run_from = end
        self.steps.append(_Step(is_text=is_text, path=path if role == _KEEP else None, size=end - start))


def _combined(steps: Iterable[_Step]) -> Iterator[_Step]:
    """Yields the steps, those together that follow each other and read nothing."""
    waiting: list[_Step] = []
    for step in steps:
        is_ignored = step.path is None and not step.is_text and (bool(step.run) or step.size == 1)
        if is_ignored and sum(len(each.run) or 1 for each in (*waiting, step)) <= _LONG_RUN:
            waiting.append(step)
            continue
        yield from _together(waiting)
        waiting = [step] if is_ignored else []
        if not is_ignored:
            yield step
    yield from _together(waiting)


def _together(steps: Sequence[_Step]) -> Sequence[_Step]:
    if len(steps) < 2:
        return steps
    run = b"".join(step.run or b"\0" for step in steps)
    mask = b"".join(b"\xff" * len(step.run) or b"\x80" for step in steps)
    return [_Step(run=run, mask=mask, steps=tuple(steps))]


def _role(path: Path, key: bytes) -> int:
    """Returns whether a number or string is part of the shape, is ignored, or is to be read."""
    if path[0] != _ROW_GROUPS:
        if path == (3,):  # num_rows of the file, which is not trusted
            return _SKIP
        is_foreign = path[0] == 5 and path[2:] == (2,) and key != b"" and not key.startswith(_SPARK)
        return _SKIP if is_foreign else _CONST
    if len(path) == 3:  # of a row group: num_rows; total_byte_size, file_offset, total_compressed_size, ordinal
        return _KEEP if path[2] == 3 else _SKIP if path[2] in (2, 5, 6, 7) else _CONST
    if len(path) < 5 or path[2] != 1:
        return _CONST
    if len(path) == 5:
        return _KEEP if path[4] in _OF_CHUNK else _SKIP if path[4] == 2 else _CONST
    if path[4] != 3:
        return _CONST
    if len(path) == 6:
        return _KEEP if path[5] in _OF_META else _SKIP if path[5] == 10 else _CONST
    member = path[5]
    if member == 12 and len(path) == 7:
        return _KEEP if path[6] in _OF_STATISTICS else _SKIP if path[6] == 4 else _CONST
    if member == 13:  # encoding_stats
        return _SKIP
    if member == 16 and len(path) > 6:  # size_statistics; 3 is the histogram of definition levels
        return _SKIP if path[6] != 3 else _KEEP if len(path) == 8 else _CONST
    return _CONST


def _is_bound(path: Path) -> bool:
    """Returns whether a stored value is a byte string."""
    return path[5:6] == (12,) and path[6] not in (3, 9)


def _has_run(data: bytes, words: Words, at: Numbers, run: bytes) -> npt.NDArray[np.bool_]:
    """Returns where ``run`` occurs at the positions."""
    if len(run) > _LONG_RUN:
        return np.fromiter((data.startswith(run, p) for p in at.tolist()), dtype=bool, count=len(at))
    same = np.ones(len(at), dtype=bool)
    for start in range(0, len(run), 8):
        part = run[start : start + 8]
        found = words[at + start]
        if len(part) < 8:
            found = found & np.uint64((1 << 8 * len(part)) - 1)
        same &= found == np.uint64(int.from_bytes(part, "little"))
    return same


def _has_masked(words: Words, at: Numbers, run: bytes, mask: bytes) -> npt.NDArray[np.bool_]:
    """Returns where ``run`` occurs at the positions in the bits of ``mask``; all others of ``run`` are 0."""
    same = np.ones(len(at), dtype=bool)
    for start in range(0, len(run), 8):
        part, bits = (int.from_bytes(each[start : start + 8], "little") for each in (run, mask))
        same &= (words[at + start] & np.uint64(bits)) == np.uint64(part)
    return same


_TOPS: Final = np.uint64(0x8080808080808080)
_LOW7: Final = np.uint64(0x7F)
_ONE: Final = np.uint64(1)
_WORD_BYTES: Final = 8
#: Steps that move groups of bits together: (upper groups, shift, lower groups).
_SQUEEZE: Final = (
    (np.uint64(0x7F007F007F007F00), np.uint64(1), np.uint64(0x007F007F007F007F)),
    (np.uint64(0x3FFF00003FFF0000), np.uint64(2), np.uint64(0x00003FFF00003FFF)),
    (np.uint64(0x0FFFFFFF00000000), np.uint64(4), np.uint64(0x000000000FFFFFFF)),
)


def _varints(words: Words, at: Numbers) -> tuple[Any, Numbers, Any]:
    """Returns unsigned numbers of up to eight bytes, the positions after them, and where they are valid."""
    found = words[at]
    stops = ~found & _TOPS
    last = stops & (~stops + _ONE)  # the top bit of the first byte that is below 128; 0: there is none
    shortest, longest = (int(last.min()), int(last.max())) if len(last) else (0, 0)
    if shortest == longest != 0:
        size = longest.bit_length() >> 3
        return _squeezed(found & np.uint64((longest << 1) - 1), size), at + size, np.True_
    value = _squeezed(found & ((last << _ONE) - _ONE), longest.bit_length() >> 3 if shortest else _WORD_BYTES)
    sizes = (np.bitwise_count(last - _ONE).astype(np.int64) + 1) >> 3
    return value, at + sizes, last != 0


def _squeezed(value: Words, size: int) -> Words:
    """Returns the numbers of groups of seven bits in up to ``size`` bytes."""
    if size == 1:
        return value & _LOW7
    for width, (upper, shift, lower) in zip((1, 2, 4), _SQUEEZE, strict=True):
        if size > width:
            value = ((value & upper) >> shift) | (value & lower)
    return value
