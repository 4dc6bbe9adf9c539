"""Puffin files of deletion vectors: one file has those of many blocks, and Iceberg's readers take it as it is.

A file is a magic number, the vectors, and a footer: magic number, JSON about each vector, its length, flags, and the
magic number again (Iceberg's Puffin specification). The footer names the data file of each vector. Lamella reads a
vector by its offset and length, which manifests have, and never the footer.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from lamella.snapshot.deletes.vector import Positions, encode_vector
from lamella.snapshot.manifest.codec import content_hash
from lamella.snapshot.manifest.structs import DeleteFile

_MAGIC: Final = b"PFA1"
_BLOB_TYPE: Final = "deletion-vector-v1"
#: Iceberg's id of the column of row positions (``_pos``), which a vector is about.
_POSITION_FIELD: Final = 2147483645
_TAIL: Final = struct.Struct("<i4s")


class VectorFile:
    """Collects vectors for one file at ``location``."""

    def __init__(self, location: str) -> None:
        self.location = location
        self._parts: list[bytes] = [_MAGIC]
        self._blobs: list[Mapping[str, Any]] = []
        self._offset = len(_MAGIC)

    def __len__(self) -> int:
        return len(self._blobs)

    def add(self, block_location: str, positions: Positions) -> DeleteFile:
        """Add the vector of a block; returns the entry for the block."""
        data = encode_vector(positions)
        self._blobs.append(
            {
                "type": _BLOB_TYPE,
                "fields": [_POSITION_FIELD],
                "snapshot-id": -1,
                "sequence-number": -1,
                "offset": self._offset,
                "length": len(data),
                "properties": {"referenced-data-file": block_location, "cardinality": str(len(positions))},
            }
        )
        found = DeleteFile(
            kind="deletion_vector",
            location=self.location,
            offset=self._offset,
            length=len(data),
            cardinality=len(positions),
            sha256=content_hash(data),
        )
        self._parts.append(data)
        self._offset += len(data)
        return found

    def finished(self) -> bytes:
        """Returns the bytes of the file."""
        payload = msgspec.json.encode({"blobs": self._blobs, "properties": {"created-by": "Lamella"}})
        return b"".join((*self._parts, _MAGIC, payload, _TAIL.pack(len(payload), b"\0\0\0\0"), _MAGIC))
