"""JSON answers put together from the texts of segments, which are kept; without a look at single blocks."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from lamella.snapshot.cache import Resident, Shelf
from lamella.snapshot.prune.encode.segment_text import SegmentText, columns_text, records_text
from lamella.snapshot.prune.found import VERDICTS, Found
from lamella.snapshot.prune.kept_blocks import KeptBlocks
from lamella.snapshot.prune.runs import runs_of
from lamella.snapshot.prune.verdict import ALL

#: Larger answers are written piece by piece.
_MOST_BLOCKS: Final = 8_192
_MOST_BYTES: Final = 1 << 20
#: Shorter runs cost more to cut out one by one than their blocks cost to write.
_BLOCKS_A_RUN: Final = 8
#: The texts of segments are made for answers that have one of so many of their blocks.
_WORTH_PART: Final = 16
#: Texts of larger companions are not made: places in them have four bytes.
_MOST_COMPANION_BYTES: Final = 256 << 20
#: What the texts of a segment take beside their bytes, roughly.
_TEXT_BYTES: Final = 1_024

_ENCODE: Final = msgspec.json.Encoder().encode
_VERDICT_ELEMENTS: Final = tuple(b'"%b",' % name.encode() for name in VERDICTS)
#: Stands where the blocks come; no JSON text has this byte.
_PLACE: Final = msgspec.Raw(b"\0")
_RECORD_ENDS: Final = tuple(b'"verdict":"%b"}' % name.encode() for name in VERDICTS)

Data = bytes | memoryview


class _Cut(msgspec.Struct, frozen=True, gc=False):
    """A run, and the text that it is cut out of."""

    text: SegmentText
    first: int
    count: int
    code: int


class SegmentTexts:
    """The texts of segments by the content of their companions, within what ``resident`` may hold. Thread-safe."""

    def __init__(self, resident: Resident) -> None:
        self._shelf: Shelf[SegmentText] = Shelf(resident, "segment text")

    def answer(self, found: Found, *, opening: bool) -> bytes | None:
        """The whole answer as JSON, the same bytes as from values.

        None: it is large, or of another kind (``shape`` "ranges", an order, sizes of columns, older schemas, blocks
        here and there), or ``opening`` is False and a companion would have to be opened.
        """
        parts = found.parts
        if not isinstance(parts, KeptBlocks) or not _is_of_the_kind(found) or not 0 < found.block_count <= _MOST_BLOCKS:
            return None
        if len(parts) * _BLOCKS_A_RUN > found.block_count:
            return None
        runs = runs_of(parts)
        if len(runs) * _BLOCKS_A_RUN > found.block_count:
            return None
        if opening:
            opening = found.block_count * _WORTH_PART >= int(parts.block_counts[parts.segments].sum())
        texts: dict[int, SegmentText] = {}
        cuts = []
        size_bytes = 0
        for place, first, count, code in zip(runs.place, runs.first, runs.count, runs.code, strict=True):
            text = texts.get(place) or self._text(found, parts, place, opening=opening)
            if text is None or text.schema_id != found.schema_id:
                return None
            texts[place] = text
            size_bytes += text.main.span_bytes(first, count)
            cuts.append(_Cut(text, first, count, code))
        if size_bytes > _MOST_BYTES:
            return None
        is_records = found.shape == "records"
        pieces = _records(cuts) if is_records else _columns(cuts)
        answer: Any = msgspec.structs.replace(found.answer, **{"blocks" if is_records else "block_columns": _PLACE})
        before, _, after = _ENCODE(answer).partition(bytes(_PLACE))
        return b"".join([before, *pieces, after])

    def _text(self, found: Found, parts: KeptBlocks, place: int, *, opening: bool) -> SegmentText | None:
        name = (found.segments.text_at("companion.sha256", int(parts.segments[place])), found.shape)
        text = self._shelf.get(name)
        if text is None and opening:
            companion = parts[place].companion
            if companion.size_bytes > _MOST_COMPANION_BYTES:
                return None
            text = records_text(companion) if found.shape == "records" else columns_text(companion)
            self._shelf.put(name, text, text.size_bytes + _TEXT_BYTES)
        return text


def _is_of_the_kind(found: Found) -> bool:
    return found.is_plain and found.shape != "ranges" and found.column_ids is None and found.residual is None


def _records(cuts: list[_Cut]) -> list[Data]:
    pieces: list[Data] = [b"["]
    for cut in cuts:
        piece: Data = cut.text.main.cut(cut.first, cut.count)
        if cut.code != ALL:
            # Names cannot hold such an end: in a JSON string every quote has a backslash in front.
            piece = bytes(piece).replace(_RECORD_ENDS[ALL], _RECORD_ENDS[cut.code])
        pieces += [piece, b","]
    pieces[-1] = b"]"
    return pieces


def _columns(cuts: list[_Cut]) -> list[Data]:
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
