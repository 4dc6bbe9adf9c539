"""Deleted rows of blocks: deletion vectors, and the files that they are kept in."""

from lamella.snapshot.deletes.puffin import VectorFile
from lamella.snapshot.deletes.read import (
    MAX_VECTOR_BYTES,
    RangeReader,
    Vectors,
    checked_entry,
    deleted_rows,
    inline_entry,
    positions_of,
    read_vector,
    with_vectors,
)
from lamella.snapshot.deletes.vector import (
    BITMAP_HEADER,
    VECTOR_FRAME_BYTES,
    Positions,
    decode_bitmap,
    decode_inline_vector,
    decode_vector,
    decode_z85,
    encode_vector,
    inline_vector,
    remaining,
    union,
)

__all__ = [
    "BITMAP_HEADER",
    "MAX_VECTOR_BYTES",
    "VECTOR_FRAME_BYTES",
    "Positions",
    "RangeReader",
    "VectorFile",
    "Vectors",
    "checked_entry",
    "decode_bitmap",
    "decode_inline_vector",
    "decode_vector",
    "decode_z85",
    "deleted_rows",
    "encode_vector",
    "inline_entry",
    "inline_vector",
    "positions_of",
    "read_vector",
    "remaining",
    "union",
    "with_vectors",
]
