"""Which part of a layer map is looked at: ``12-40`` some segments, ``12`` one, ``12.7`` a block of it; from 0."""

from __future__ import annotations

import re
from typing import Final

import msgspec

from lamella.snapshot.errors import InvalidRequest, SegmentNotFound

_TEXT: Final = re.compile(r"(?P<first>\d{1,9})(-(?P<last>\d{1,9})|\.(?P<block>\d{1,9}))?", re.ASCII)


class Zoom(msgspec.Struct, frozen=True):
    """``block`` None: none in particular."""

    first: int
    count: int
    block: int | None = None

    def __str__(self) -> str:
        if self.block is not None:
            return f"{self.first}.{self.block}"
        return str(self.first) if self.count == 1 else f"{self.first}-{self.first + self.count - 1}"


def zoom_of(text: str, segment_count: int) -> Zoom | None:
    """What a text says; None: the whole map. Raises InvalidRequest, SegmentNotFound."""
    if not text:
        return None
    found = _TEXT.fullmatch(text)
    if found is None:
        raise InvalidRequest(f"{text!r} is no part of a map; write 12, 12-40 or 12.7", parameter="zoom")
    first = int(found["first"])
    last = int(found["last"] or first)
    if not first <= last < segment_count:
        raise SegmentNotFound(f"the snapshot has {segment_count} segments, from 0 on, and not {text}", zoom=text)
    return Zoom(first, last - first + 1, None if found["block"] is None else int(found["block"]))
