"""Sketch objects: one for each segment (its union and its blocks' sketches), one for each snapshot (its union).

Two MessagePack parts, each compressed with Zstandard: the union by column id, then the blocks' by location. A
header gives their lengths, so that the union is read without the rest. What cannot be read is as if it were not there:
sketches are estimates, and no answer depends on them.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Final

import msgspec
import pyarrow as pa

from lamella.snapshot.errors import ManifestError, ObjectNotFound
from lamella.snapshot.layout.store import Store
from lamella.snapshot.sketch.hll import Sketch

#: Sketches by column id.
Columns = dict[int, Sketch]

_MAGIC: Final = b"LSK1"
_HEADER: Final = struct.Struct("<4sIIII")  # magic, then stored and plain length of each part
#: A first read takes in the header and, mostly, the whole union.
_FIRST_BYTES: Final = 64 << 10
_MAX_PLAIN_BYTES: Final = 1 << 30
_UNION: Final = msgspec.msgpack.Decoder(Columns)
_BLOCKS: Final = msgspec.msgpack.Decoder(dict[str, Columns])


def encode(union: Columns, blocks: Mapping[str, Columns]) -> bytes:
    """The object of a segment, or with no blocks of a snapshot."""
    codec = pa.Codec("zstd")
    plain = [msgspec.msgpack.encode(union), msgspec.msgpack.encode(blocks)]
    stored = [codec.compress(part, asbytes=True) for part in plain]
    lengths = [length for part, raw in zip(stored, plain, strict=True) for length in (len(part), len(raw))]
    return _HEADER.pack(_MAGIC, *lengths) + b"".join(stored)


def read_union(store: Store, location: str) -> Columns | None:
    """The union of a segment or snapshot; None when there is no such object, or none that can be read."""
    try:
        head = store.read_range(location, 0, _FIRST_BYTES)
        stored, plain, _, _ = _lengths(head)
        part = head[_HEADER.size : _HEADER.size + stored]
        if len(part) < stored:
            part = store.read_range(location, _HEADER.size, stored)
        return _UNION.decode(_plain(part, plain))
    except (ObjectNotFound, ManifestError, msgspec.MsgspecError, UnicodeDecodeError):
        return None


def read_blocks(store: Store, location: str) -> dict[str, Columns]:
    """The blocks' sketches of a segment by location; none when there is no such object, or none that can be read."""
    try:
        data = store.read(location)
        first, _, stored, plain = _lengths(data)
        start = _HEADER.size + first
        return _BLOCKS.decode(_plain(data[start : start + stored], plain))
    except (ObjectNotFound, ManifestError, msgspec.MsgspecError, UnicodeDecodeError):
        return {}


def _lengths(data: bytes) -> tuple[int, int, int, int]:
    if len(data) < _HEADER.size:
        raise ManifestError("a sketch object is cut off")
    magic, first, first_plain, second, second_plain = _HEADER.unpack_from(data)
    if magic != _MAGIC or max(first_plain, second_plain) > _MAX_PLAIN_BYTES:
        raise ManifestError("not a sketch object")
    return first, first_plain, second, second_plain


def _plain(part: bytes, length: int) -> bytes:
    try:
        return bytes(pa.Codec("zstd").decompress(part, decompressed_size=length, asbytes=True))
    except (pa.ArrowException, OSError) as error:
        raise ManifestError(f"a sketch object cannot be read: {error}") from error
