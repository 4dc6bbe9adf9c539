"""The blocks of an answer as arrays and as JSON text, segment by segment, without a Python object for each.

Segments never change. So what answers say of their blocks is made once as text and kept, and an answer of neighbouring
blocks is cut out of it.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lamella.snapshot.cache import BoundedCache, CacheNamespace
from lamella.snapshot.columnar import Sidecar
from lamella.snapshot.manifest import FEATURES
from lamella.snapshot.prune.outcome import ALL
from lamella.snapshot.prune.result import VERDICTS, Codes, Indexes, PruneResult

#: Where no schema id is to be said.
OWN_SCHEMA = -1


class Slab(msgspec.Struct, frozen=True, kw_only=True):
    """Blocks of one segment, or of some that have few; arrays of equal length.

    ``schema_id``: :data:`OWN_SCHEMA` for the snapshot's own.
    """

    location: pa.Array
    numbers: Numbers
    #: "constants" and "deletes" as JSON, empty for a block without any; without members that no block has.
    members: Mapping[str, pa.Array] = {}


class Numbers(msgspec.Struct, frozen=True, kw_only=True):
    """What of blocks is no text."""

    row_count: Indexes
    file_size: Indexes
    codes: Codes
    column_size_bytes: Indexes | None
    schema_id: Indexes | None
    residual: Indexes | None


#: Segments with at most so many blocks are put together, up to a slab of so many blocks: what a slab costs beside its
#: blocks is that of forty of them.
_FEW_BLOCKS: Final = 32
_SLAB_BLOCKS: Final = 1_024


def slabs(result: PruneResult) -> Iterator[Slab]:
    """The blocks of an answer in the snapshot's sequence, segment by segment; those of segments with few blocks
    together. Segments without any are left out."""
    begin = count = 0
    locations: list[str] = []
    few: list[Numbers] = []
    for part in result.parts():
        end = begin + len(part.rows)
        if end == begin:
            continue
        sidecar = part.sidecar
        is_small = end - begin <= _FEW_BLOCKS and not result.members
        if few and (not is_small or count >= _SLAB_BLOCKS):
            yield _together(locations, few)
            locations, few, count = [], [], 0
        rows = None if end - begin == len(sidecar) and not is_small else part.rows
        sizes = None
        if result.column_ids is not None:
            sizes = _taken(sidecar.column_size_bytes(result.column_ids), rows)
        numbers = Numbers(
            row_count=_taken(sidecar.numbers("row_count"), rows),
            file_size=_taken(sidecar.numbers("file_size"), rows),
            codes=part.codes,
            column_size_bytes=sizes,
            schema_id=_older(sidecar.written_with(), part.rows, result.schema_id),
            residual=None if result.residual is None else result.residual[begin:end],
        )
        if is_small:
            locations += sidecar.texts("location", part.rows)
            few.append(numbers)
            count += end - begin
        else:
            members = _members(sidecar, result.members, rows)
            yield Slab(location=sidecar.text_array("location", rows), members=members, numbers=numbers)
        begin = end
    if few:
        yield _together(locations, few)


def _together(locations: list[str], few: list[Numbers]) -> Slab:
    return Slab(location=pa.array(locations, pa.large_string()), numbers=_joined_numbers(few))


def _joined_numbers(parts: list[Numbers]) -> Numbers:
    """The numbers of several parts, one after another."""
    ids = None
    if any(part.schema_id is not None for part in parts):
        ids = _joined(
            [
                np.full(len(part.codes), OWN_SCHEMA, dtype=np.int64) if part.schema_id is None else part.schema_id
                for part in parts
            ]
        )
    has_sizes = bool(parts) and parts[0].column_size_bytes is not None
    has_residuals = bool(parts) and parts[0].residual is not None
    return Numbers(
        row_count=_joined([part.row_count for part in parts]),
        file_size=_joined([part.file_size for part in parts]),
        codes=_joined([part.codes for part in parts]),
        column_size_bytes=_joined([part.column_size_bytes for part in parts]) if has_sizes else None,
        schema_id=ids,
        residual=_joined([part.residual for part in parts]) if has_residuals else None,
    )


def _members(sidecar: Sidecar, names: Iterable[str], rows: npt.NDArray[np.int64] | None) -> dict[str, pa.Array]:
    found = {name: sidecar.member_array(name, rows) for name in names}
    return {name: texts for name, texts in found.items() if texts is not None}


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
        self._members: list[tuple[Mapping[str, pa.Array], int]] = []

    def add(self, slab: Slab) -> None:
        """Take what is known of the next blocks, but their locations."""
        numbers = slab.numbers
        # Many blocks have the same constants, or no deletes.
        encoded = {name: texts.dictionary_encode() for name, texts in slab.members.items()}
        self._members.append((encoded, len(numbers.codes)))
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

    def member(self, name: str) -> Iterator[pa.Array] | None:
        """ "constants" or "deletes" as JSON, ``null`` for a block without any, part by part; None when no block has
        any."""
        if not any(name in encoded for encoded, _ in self._members):
            return None
        return (_json_or_null(encoded.get(name), count) for encoded, count in self._members)

    def columns(self) -> list[tuple[str, npt.NDArray[Any]]]:
        """The members of :class:`~lamella.snapshot.wire.BlockColumns` behind ``location``, without those that are None.

        ``verdict`` as codes, ``schema_id`` with :data:`OWN_SCHEMA` where it is the snapshot's.
        """
        numbers = _joined_numbers(self._parts)
        found: dict[str, npt.NDArray[Any] | None] = {
            "row_count": numbers.row_count,
            "file_size": numbers.file_size,
            "verdict": numbers.codes,
            "column_size_bytes": numbers.column_size_bytes,
            "schema_id": numbers.schema_id,
            "residual": numbers.residual,
        }
        return [(name, values) for name, values in found.items() if values is not None]


def _json_or_null(encoded: pa.DictionaryArray | None, count: int) -> pa.Array:
    if encoded is None:
        return pa.array(["null"] * count, pa.large_string())
    texts = encoded.dictionary_decode()
    return pc.if_else(pc.equal(texts, ""), "null", texts)


def _joined(arrays: list[Any]) -> npt.NDArray[Any]:
    return np.concatenate(arrays) if arrays else np.zeros(0, dtype=np.int64)


_QUOTE: Final = 0x22
_BACKSLASH: Final = 0x5C
_FIRST_PLAIN: Final = 0x20


def json_strings(texts: pa.Array) -> pa.Array:
    """The texts as they stand between the quotes of JSON strings; the array itself when none needs an escape.

    Only quotes, backslashes and control characters must be escaped (RFC 8259, section 7); the rest is UTF-8 as it is.
    """
    if not needs_escapes(texts):
        return texts
    return pa.array([msgspec.json.encode(text)[1:-1].decode() for text in texts.to_pylist()], pa.large_string())


def needs_escapes(texts: pa.Array) -> bool:
    """True when a byte of an array of large strings cannot stand in a JSON string as it is."""
    data = bytes_of(texts)
    return bool(((data < _FIRST_PLAIN) | (data == _QUOTE) | (data == _BACKSLASH)).any())


def bytes_of(texts: pa.Array) -> npt.NDArray[np.uint8]:
    """The bytes of all strings of an array without nulls, one after another; a view."""
    if not len(texts):
        return np.zeros(0, dtype=np.uint8)
    offsets = offsets_of(texts)
    data = texts.buffers()[2]
    if data is None:
        return np.zeros(0, dtype=np.uint8)
    return np.frombuffer(data, dtype=np.uint8)[offsets[0] : offsets[-1]]


def offsets_of(texts: pa.Array) -> npt.NDArray[np.int64]:
    """Where the strings of a non-empty array begin, and where the last one ends; a view."""
    return np.frombuffer(texts.buffers()[1], dtype=np.int64)[texts.offset : texts.offset + len(texts) + 1]


def joined(texts: pa.Array, separator: str) -> memoryview:
    """The texts in one, with a separator between them."""
    if not len(texts):
        return memoryview(b"")
    whole = pa.ListArray.from_arrays(pa.array([0, len(texts)], pa.int32()), texts)
    one = pc.binary_join(whole, pa.scalar(separator, pa.large_string()))
    return bytes_of(one).data


#: The verdicts as JSON strings, by code.
VERDICT_TEXTS: Final = pa.array([f'"{name}"' for name in VERDICTS], pa.large_string())


def record_texts(location: pa.Array, numbers: Numbers, members: Mapping[str, pa.Array]) -> pa.Array:
    """One JSON object a block, as :class:`~lamella.snapshot.wire.PrunedBlock` is written."""
    parts = [
        _text('{"location":"'),
        json_strings(location),
        _text('","row_count":'),
        _digits(numbers.row_count),
        _text(',"file_size":'),
        _digits(numbers.file_size),
        _text(',"verdict":'),
        VERDICT_TEXTS.take(pa.array(numbers.codes)),
    ]
    if numbers.column_size_bytes is not None:
        parts += [_text(',"column_size_bytes":'), _digits(numbers.column_size_bytes)]
    if numbers.schema_id is not None:
        member = pc.binary_join_element_wise(_text(',"schema_id":'), _digits(numbers.schema_id), _text(""))
        parts.append(pc.if_else(pa.array(numbers.schema_id == OWN_SCHEMA), _text(""), member))
    if numbers.residual is not None:
        parts += [_text(',"residual":'), _digits(numbers.residual)]
    for name, texts in members.items():
        member = pc.binary_join_element_wise(_text(f',"{name}":'), texts, _text(""))
        parts.append(pc.if_else(pc.equal(texts, ""), _text(""), member))
    return pc.binary_join_element_wise(*parts, _text("}"), _text(""))


def _digits(values: Indexes) -> pa.Array:
    return pc.cast(pa.array(np.ascontiguousarray(values)), pa.large_string())


def _text(value: str) -> pa.Scalar:
    return pa.scalar(value, pa.large_string())


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


def columns_text(sidecar: Sidecar) -> SegmentText:
    """The members of :class:`~lamella.snapshot.wire.BlockColumns` that are the same in every answer."""
    numbers = {name: _numbers(sidecar.numbers(name)) for name in ("row_count", "file_size")}
    return SegmentText(_schema_id(sidecar), _strings(sidecar.text_array("location")), numbers)


def records_text(sidecar: Sidecar) -> SegmentText:
    """Records of all blocks with the verdict ALL, and no members that not every answer has."""
    numbers = Numbers(
        row_count=sidecar.numbers("row_count"),
        file_size=sidecar.numbers("file_size"),
        codes=np.full(len(sidecar), ALL, dtype=np.uint8),
        column_size_bytes=None,
        schema_id=None,
        residual=None,
    )
    texts = record_texts(sidecar.text_array("location"), numbers, _members(sidecar, FEATURES, None))
    return SegmentText(_schema_id(sidecar), Elements(bytes(joined(texts, ",")), _spread(texts, 1)))


def _schema_id(sidecar: Sidecar) -> int | None:
    written_with = sidecar.written_with()
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


#: Larger answers are written piece by piece.
_MAX_BLOCKS: Final = 8_192
_MAX_BYTES: Final = 1 << 20
#: Shorter runs cost more to cut out one by one than their blocks cost to write.
BLOCKS_A_RUN: Final = 8
#: The texts of segments are made for answers that have one of so many of their blocks.
_WORTH_PART: Final = 16
#: Texts of larger sidecars are not made: offsets in them have four bytes.
_MAX_SIDECAR_BYTES: Final = 256 << 20
#: What the texts of a segment take beside their bytes, roughly.
_TEXT_BYTES: Final = 1_024

_VERDICT_ELEMENTS: Final = tuple(b'"%b",' % name.encode() for name in VERDICTS)
#: Stands where the blocks come; no JSON text has this byte.
_PLACEHOLDER: Final = msgspec.Raw(b"\0")
_RECORD_ENDS: Final = tuple(b'"verdict":"%b"}' % name.encode() for name in VERDICTS)

Data = bytes | memoryview


class _Cut(msgspec.Struct, frozen=True, gc=False):
    """A run, and the text that it is cut out of."""

    text: SegmentText
    first: int
    count: int
    code: int


class SegmentTexts:
    """The texts of segments by the content of their sidecars, within what ``memory_cache`` may hold. Thread-safe."""

    def __init__(self, memory_cache: BoundedCache) -> None:
        self._texts: CacheNamespace[SegmentText] = CacheNamespace(memory_cache, "segment text")

    def answer(self, result: PruneResult, *, opening: bool) -> bytes | None:
        """The whole answer as JSON, the same bytes as from values.

        None: it is large, or of another kind (``shape`` "ranges", an order, sizes of columns, older schemas, blocks
        here and there), or ``opening`` is False and a sidecar would have to be opened.
        """
        selection = result.selection
        if selection is None or not _is_of_the_kind(result) or not 0 < selection.block_count <= _MAX_BLOCKS:
            return None
        if len(selection.segments) * BLOCKS_A_RUN > selection.block_count:
            return None
        runs = selection.runs()
        if len(runs) * BLOCKS_A_RUN > selection.block_count:
            return None
        if opening:
            in_segments = int(selection.block_counts[selection.segments].sum())
            opening = selection.block_count * _WORTH_PART >= in_segments
        texts: dict[int, SegmentText] = {}
        cuts = []
        size_bytes = 0
        for ordinal, first, count, code in zip(runs.ordinal, runs.first, runs.count, runs.code, strict=True):
            text = texts.get(ordinal) or self._text(result, int(runs.segments[ordinal]), opening=opening)
            if text is None or text.schema_id != result.schema_id:
                return None
            texts[ordinal] = text
            size_bytes += text.main.span_bytes(first, count)
            cuts.append(_Cut(text, first, count, code))
        if size_bytes > _MAX_BYTES:
            return None
        is_records = result.shape == "records"
        pieces = _segment_records(cuts) if is_records else _segment_columns(cuts)
        answer: Any = msgspec.structs.replace(
            result.answer, **{"blocks" if is_records else "block_columns": _PLACEHOLDER}
        )
        before, _, after = _ENCODE(answer).partition(bytes(_PLACEHOLDER))
        return b"".join([before, *pieces, after])

    def _text(self, result: PruneResult, row: int, *, opening: bool) -> SegmentText | None:
        name = (result.segments.text_at("sidecar.sha256", row), result.shape)
        text = self._texts.get(name)
        if text is None and opening:
            sidecar = result.open_segment(row)
            has_members = any(map(sidecar.has_member, FEATURES))
            if sidecar.size_bytes > _MAX_SIDECAR_BYTES or (result.shape == "columns" and has_members):
                return None
            text = records_text(sidecar) if result.shape == "records" else columns_text(sidecar)
            self._texts.put(name, text, text.size_bytes + _TEXT_BYTES)
        return text


def _is_of_the_kind(result: PruneResult) -> bool:
    return result.is_plain and result.shape != "ranges" and result.column_ids is None and result.residual is None


def _segment_records(cuts: list[_Cut]) -> list[Data]:
    pieces: list[Data] = [b"["]
    for cut in cuts:
        piece: Data = cut.text.main.cut(cut.first, cut.count)
        if cut.code != ALL:
            # Names cannot hold such an end: in a JSON string every quote has a backslash in front.
            piece = bytes(piece).replace(_RECORD_ENDS[ALL], _RECORD_ENDS[cut.code])
        pieces += [piece, b","]
    pieces[-1] = b"]"
    return pieces


def _segment_columns(cuts: list[_Cut]) -> list[Data]:
    pieces: list[Data] = [b'{"location":[']
    for cut in cuts:
        pieces += [cut.text.main.cut(cut.first, cut.count), b","]
    for name in ("row_count", "file_size"):
        pieces[-1] = b'],"%b":[' % name.encode()
        for cut in cuts:
            pieces += [cut.text.numbers[name].cut(cut.first, cut.count), b","]
    verdicts = b"".join([_VERDICT_ELEMENTS[cut.code] * cut.count for cut in cuts])
    pieces[-1] = b'],"verdict":[%b]}' % verdicts[:-1]
    return pieces
