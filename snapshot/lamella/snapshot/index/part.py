"""Parts of an index: its data about some blocks, as one object that is read by ranges.

    sections | 16 bytes of SHA-256 for each page of them | header (JSON)

The *tail* consists of the hashes and the header; a reference records its size and its SHA-256. Opening a part reads the
tail. Afterwards only the pages that a query needs are read, each checked against its hash. Sections are arrays that
begin at multiples of 64 bytes. Data that a query reads together is stored together; see the kinds.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, Protocol, TypeVar

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lamella.snapshot.columnar.keys import Mask, split_wide
from lamella.snapshot.columnar.zones import is_wide, number_dtype
from lamella.snapshot.errors import HashMismatch, ManifestError, UnsupportedFormat
from lamella.snapshot.function.base import Vector
from lamella.snapshot.schema import DataType
from lamella.snapshot.stats.column import Int64

# Values in sections of a part, in the order of their type, without loss.
#
# Numbers are one array; decimals of more than 18 digits have two limbs each, (n, 2), the upper one signed, as its bits;
# byte strings are concatenated, with n + 1 offsets.

_LIMB: Final = 1 << 64
_Array = npt.NDArray[Any]
_Number = TypeVar("_Number", bound=np.generic)


def ascending(numbers: npt.NDArray[_Number]) -> npt.NDArray[_Number]:
    """Returns the distinct numbers, ascending; none may be NaN. Sorting is a hundred times faster than NumPy's
    ``unique``."""
    ordered = np.sort(numbers)
    first = np.ones(len(ordered), dtype=bool)
    np.not_equal(ordered[1:], ordered[:-1], out=first[1:])
    return ordered[first]


def distinct(dtype: DataType, values: Vector) -> list[Any]:
    """Returns the distinct values that are neither null nor NaN, ascending; either zero as 0.0."""
    if values.is_bytes:
        found: list[Any] = pc.unique(values.values.filter(pa.array(values.valid))).to_pylist()
        return sorted(found)
    numbers = values.values[values.valid]
    if is_wide(dtype):
        return sorted(set(numbers.tolist()))
    if dtype.order == "float":
        numbers = numbers[~np.isnan(numbers)] + 0.0
    unique: list[Any] = ascending(numbers).tolist()
    return unique


def extent(dtype: DataType, values: Vector) -> tuple[Any, Any] | None:
    """Returns the minimum and maximum that are neither null nor NaN; None if there are none."""
    if values.is_bytes:
        bounds = pc.min_max(values.values.filter(pa.array(values.valid)))
        return None if bounds["min"].as_py() is None else (bounds["min"].as_py(), bounds["max"].as_py())
    numbers = values.values[values.valid]
    if dtype.order == "float":
        numbers = numbers[~np.isnan(numbers)] + 0.0
    if not len(numbers):
        return None
    low, high = numbers.min(), numbers.max()
    return (low, high) if is_wide(dtype) else (low.item(), high.item())


def has_nan(dtype: DataType, values: Vector) -> bool:
    """Returns whether some value is NaN."""
    return dtype.order == "float" and bool(np.isnan(values.values[values.valid]).any())


def vector(dtype: DataType, values: Sequence[Any]) -> Vector:
    """Converts values to a vector, none of them null."""
    valid = np.ones(len(values), dtype=bool)
    if dtype.order == "bytes":
        return Vector(pa.array(values, pa.large_binary()), valid)
    kind = np.dtype(object) if is_wide(dtype) else number_dtype(dtype)
    array = np.empty(len(values), dtype=kind)
    array[:] = values
    return Vector(array, valid)


def picked(values: Vector, rows: _Array) -> Vector:
    """Returns some of the values, in the given order."""
    valid = values.valid[rows]
    if values.is_bytes:
        return Vector(values.values.take(pa.array(rows, pa.int64())), valid)
    return Vector(values.values[rows], valid)


def stored(name: str, dtype: DataType, values: Sequence[Any]) -> dict[str, _Array]:
    """Returns the sections of values, none of them null."""
    if dtype.order == "bytes":
        offsets = np.zeros(len(values) + 1, dtype=np.int64)
        np.cumsum([len(value) for value in values], out=offsets[1:])
        return {f"{name}.offsets": offsets, f"{name}.bytes": np.frombuffer(b"".join(values), dtype=np.uint8)}
    if is_wide(dtype):
        limbs = [split_wide(value) for value in values]
        high = np.array([upper for upper, _ in limbs], dtype=np.int64).view(np.uint64)
        return {name: np.stack([high, np.array([lower for _, lower in limbs], dtype=np.uint64)], axis=1)}
    return {name: np.array(values, dtype=number_dtype(dtype))}


def loaded(part: Part, name: str, dtype: DataType) -> Vector:
    """Returns all values of a section, in the type that they were stored with."""
    if dtype.order == "bytes":
        offsets = part.whole(f"{name}.offsets")
        data = part.whole(f"{name}.bytes")
        buffers = [None, pa.py_buffer(np.ascontiguousarray(offsets)), pa.py_buffer(data)]
        array = pa.LargeBinaryArray.from_buffers(pa.large_binary(), len(offsets) - 1, buffers)
        return Vector(array, np.ones(len(array), dtype=bool))
    raw = part.whole(name)
    if not is_wide(dtype):
        return Vector(raw, np.ones(len(raw), dtype=bool))
    high, low = raw[:, 0].view(np.int64).tolist(), raw[:, 1].tolist()
    return vector(dtype, [upper * _LIMB + lower for upper, lower in zip(high, low, strict=True)])


def listed(values: Vector) -> list[Any]:
    """Returns the values of a vector as Python objects."""
    found: list[Any] = values.values.to_pylist() if values.is_bytes else values.values.tolist()
    return found


def spans_of(offsets: _Array, rows: npt.NDArray[np.int64]) -> list[tuple[int, int]]:
    """Returns the ranges of the entries of some rows, with neighbouring rows joined."""
    found: list[tuple[int, int]] = []
    for first, last in zip(offsets[rows].tolist(), offsets[rows + 1].tolist(), strict=True):
        if found and found[-1][1] == first:
            found[-1] = (found[-1][0], last)
        else:
            found.append((first, last))
    return found


def any_by_row(hits: Mask, offsets: _Array, rows: npt.NDArray[np.int64]) -> Mask:
    """Returns per row whether one of its entries is hit; ``hits`` has the entries of these rows, one row after
    another."""
    counts = (offsets[rows + 1] - offsets[rows]).astype(np.int64)
    totals = np.concatenate([[0], np.cumsum(hits)])
    ends = np.cumsum(counts)
    return np.asarray(totals[ends] > totals[ends - counts])


PART_FORMAT: Final = 1
#: The unit of hashing, and the minimum that is read.
PAGE_BYTES: Final = 16 << 10
_HASH_BYTES: Final = 16
_ALIGNMENT: Final = 64

#: Reads ``(offset, length)`` ranges of an object, concurrently if possible; returns the bytes of each, in order.
Fetch = Callable[[Sequence[tuple[int, int]]], Sequence[bytes | memoryview]]


class PartRef(msgspec.Struct, frozen=True, kw_only=True):
    """A reference to a stored part. ``tail_sha256`` is the hash of its last ``tail_bytes``."""

    location: str
    size_bytes: Int64
    tail_bytes: Int64
    tail_sha256: str
    block_count: int


class Section(msgspec.Struct, frozen=True):
    """An array of a part: its first byte, its NumPy type (little-endian) and its shape."""

    offset: int
    dtype: str
    shape: tuple[int, ...]

    @property
    def row_bytes(self) -> int:
        """Returns the bytes of one entry of the first axis."""
        size = np.dtype(self.dtype).itemsize
        for length in self.shape[1:]:
            size *= length
        return size

    def fits(self, size_bytes: int) -> bool:
        """Returns whether it is an array of a numeric or similar type that lies within ``size_bytes``."""
        try:
            kind = np.dtype(self.dtype)
        except (TypeError, ValueError, SyntaxError):  # NumPy reports invalid type names in several ways
            return False
        if kind.hasobject or not self.shape or min(self.offset, *self.shape) < 0:
            return False
        return self.offset + self.shape[0] * self.row_bytes <= size_bytes


class PartHeader(msgspec.Struct, frozen=True, kw_only=True):
    """The description of a part. ``dtype``: the type of the term when the part was built; ``facts``: other data of the
    kind."""

    kind: str
    dtype: str
    block_count: int
    sections: dict[str, Section]
    sections_bytes: int
    options: dict[str, Any] = {}
    facts: dict[str, Any] = {}
    format_version: int = PART_FORMAT


#: Created once: two threads that decode a struct for the first time at once crash the process (msgspec 0.22).
_HEADER = msgspec.json.Decoder(PartHeader)


def pack(
    kind: str,
    dtype: str,
    block_count: int,
    sections: Mapping[str, _Array],
    *,
    options: Mapping[str, Any],
    facts: Mapping[str, Any],
) -> tuple[bytes, int]:
    """Returns a part's bytes, and the size of its tail."""
    pieces: list[bytes] = []
    by_name: dict[str, Section] = {}
    at = 0
    for name, array in sections.items():
        whole = np.ascontiguousarray(array)
        stored = whole.astype(whole.dtype.newbyteorder("<"), copy=False)
        by_name[name] = Section(at, stored.dtype.str, stored.shape)
        data = stored.tobytes()
        padding = -len(data) % _ALIGNMENT
        pieces += [data, bytes(padding)]
        at += len(data) + padding
    body = b"".join(pieces)
    hashes = b"".join(_hash(body[start : start + PAGE_BYTES]) for start in range(0, len(body), PAGE_BYTES))
    header = PartHeader(
        kind=kind,
        dtype=dtype,
        block_count=block_count,
        sections=by_name,
        sections_bytes=len(body),
        options=dict(options),
        facts=dict(facts),
    )
    tail = hashes + msgspec.json.encode(header)
    return body + tail, len(tail)


def ref_of(location: str, data: bytes, tail_bytes: int, block_count: int) -> PartRef:
    """Returns the reference to a packed part."""
    return PartRef(
        location=location,
        size_bytes=len(data),
        tail_bytes=tail_bytes,
        tail_sha256=hashlib.sha256(data[len(data) - tail_bytes :]).hexdigest(),
        block_count=block_count,
    )


class Pages(Protocol):
    """A cache of the pages of a part. Thread-safe."""

    def get(self, page: int, /) -> bytes | memoryview | None:
        """Returns a page by its number, if it is cached."""
        ...

    def __setitem__(self, page: int, data: bytes | memoryview, /) -> None:
        """Cache a page."""
        ...


class Part:
    """An open part. May be shared between threads; two threads that need the same page may both read it."""

    def __init__(self, ref: PartRef, fetch: Fetch, pages: Pages | None = None) -> None:
        """Read the tail. ``pages``: None caches all pages that were read.

        Raises:
            HashMismatch: the content changed; UnsupportedFormat: written by a newer release; ManifestError: damaged.
            ObjectNotFound, StoreError: as for reading.
        """
        self.ref = ref
        self._fetch = fetch
        self._pages: Pages = {} if pages is None else pages
        #: Bytes read so far, including the tail.
        self.read_bytes = ref.tail_bytes
        (data,) = fetch([(ref.size_bytes - ref.tail_bytes, ref.tail_bytes)])
        tail = bytes(data)
        if hashlib.sha256(tail).hexdigest() != ref.tail_sha256:
            raise HashMismatch(f"{ref.location} is not what was written", location=ref.location)
        hashed = -(-(ref.size_bytes - ref.tail_bytes) // PAGE_BYTES) * _HASH_BYTES
        self._hashes = tail[:hashed]
        try:
            self.header = _HEADER.decode(tail[hashed:])
        except msgspec.DecodeError as error:
            raise ManifestError(f"{ref.location}: {error}", location=ref.location) from error
        if self.header.format_version > PART_FORMAT:
            raise UnsupportedFormat(
                f"{ref.location} has format {self.header.format_version}, this release can read up to {PART_FORMAT}",
                location=ref.location,
            )
        if self.header.sections_bytes != ref.size_bytes - ref.tail_bytes:
            raise ManifestError(f"{ref.location}: its header does not match its size", location=ref.location)
        if not all(section.fits(self.header.sections_bytes) for section in self.header.sections.values()):
            raise ManifestError(f"{ref.location}: one of its sections is not valid", location=ref.location)

    def shape(self, name: str) -> tuple[int, ...]:
        """Returns the shape of a section; raises ManifestError for an unknown section."""
        return self._section(name).shape

    def has(self, name: str) -> bool:
        """Returns whether the section exists."""
        return name in self.header.sections

    def whole(self, name: str) -> _Array:
        """Returns all of a section."""
        return self.rows(name, 0, self.shape(name)[0])

    def rows(self, name: str, start: int, stop: int) -> _Array:
        """Returns the entries ``start`` to before ``stop`` along the first axis of a section."""
        return self.ranges(name, [(start, stop)])[0]

    def ranges(self, name: str, spans: Sequence[tuple[int, int]]) -> list[_Array]:
        """Returns the entries of several spans, as :meth:`rows`; all missing pages are read at once."""
        section = self._section(name)
        size = section.row_bytes
        bytes_spans = [(section.offset + start * size, section.offset + stop * size) for start, stop in spans]
        pages = self._read(bytes_spans)
        return [
            np.frombuffer(_bytes(pages, first, last), dtype=section.dtype).reshape((stop - start, *section.shape[1:]))
            for (start, stop), (first, last) in zip(spans, bytes_spans, strict=True)
        ]

    def prepare(self, wanted: Iterable[tuple[str, int, int]]) -> None:
        """Read the missing pages of entries (section, start, stop) at once, so that later access reads nothing.

        Otherwise each access reads separately, which costs a round trip to a remote store.
        """
        spans = []
        for name, start, stop in wanted:
            section = self._section(name)
            spans.append((section.offset + start * section.row_bytes, section.offset + stop * section.row_bytes))
        self._read(spans)

    def _section(self, name: str) -> Section:
        section = self.header.sections.get(name)
        if section is None:
            raise ManifestError(f"{self.ref.location} has no section {name!r}", location=self.ref.location)
        return section

    def _read(self, spans: Sequence[tuple[int, int]]) -> dict[int, bytes | memoryview]:
        """Returns the pages that cover some spans of bytes; missing ones are read, neighbours together."""
        found: dict[int, bytes | memoryview] = {}
        wanted: list[int] = []
        for number in sorted({number for first, last in spans for number in _pages_of(first, last)}):
            page = self._pages.get(number)
            if page is None:
                wanted.append(number)
            else:
                found[number] = page
        if not wanted:
            return found
        runs: list[list[int]] = []
        for number in wanted:
            if runs and runs[-1][1] == number:
                runs[-1][1] = number + 1
            else:
                runs.append([number, number + 1])
        end = self.header.sections_bytes
        spans_of_runs = [(first * PAGE_BYTES, min(last * PAGE_BYTES, end) - first * PAGE_BYTES) for first, last in runs]
        for (first, last), (_, length), data in zip(runs, spans_of_runs, self._fetch(spans_of_runs), strict=True):
            view = memoryview(data)
            self.read_bytes += length
            for number in range(first, last):
                start = (number - first) * PAGE_BYTES
                page = view[start : start + PAGE_BYTES]
                if _hash(page) != self._hashes[number * _HASH_BYTES : (number + 1) * _HASH_BYTES]:
                    raise HashMismatch(f"{self.ref.location} is not what was written", location=self.ref.location)
                self._pages[number] = page
                found[number] = page
        return found


def _pages_of(first: int, last: int) -> range:
    return range(first // PAGE_BYTES, -(-last // PAGE_BYTES)) if last > first else range(0)


def _bytes(pages: Mapping[int, bytes | memoryview], first: int, last: int) -> bytes | memoryview:
    """Returns the bytes from ``first`` to before ``last``, without copying if they are in one page."""
    numbers = _pages_of(first, last)
    if not numbers:
        return b""
    start = first - numbers.start * PAGE_BYTES
    if len(numbers) == 1:
        return memoryview(pages[numbers.start])[start : start + last - first]
    return b"".join(pages[number] for number in numbers)[start : start + last - first]


def _hash(page: bytes | memoryview) -> bytes:
    return hashlib.sha256(page).digest()[:_HASH_BYTES]
