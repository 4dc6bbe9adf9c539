"""Many ``FileStatus`` objects in one call.

One py4j call per file costs 0.8 ms, so 100,000 files would take more than a minute. Instead the files are encoded as
Hadoop itself would serialise them (an ``ArrayWritable`` of ``FileStatus``, each of which is a length and a
``FileStatusProto`` message) and the JVM reads them back from one byte array.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from typing import Any, Final

from lamella.client.spark.gateway import Gateway

_FILE_STATUS = "org.apache.hadoop.fs.FileStatus"
_BLOCK_SIZE_BYTES = 128 << 20
# FileStatusProto: fileType=FT_FILE(2) in field 1; the fields between length and modification time are
# permission{0644}, owner "" and group "", all of which the message requires.
_TYPE_FILE = b"\x08\x02"
_PERMISSION_OWNER_GROUP = b"\x22\x03\x08\xa4\x03\x2a\x00\x32\x00"


def file_statuses(gateway: Gateway, files: Sequence[tuple[str, int]]) -> Any:
    """``FileStatus[]`` of ``(Hadoop path, size in bytes)``; the modification time is not known and is 0."""
    status = gateway.shared(_FILE_STATUS, lambda: gateway.java_class("java.lang.Class").forName(_FILE_STATUS))
    writable = gateway.java_class("org.apache.hadoop.io.ArrayWritable")(status)
    read = gateway.copy_bytes(writable, encode(files)).get()  # Writable[], which is not what it was asked to be
    made = gateway.new_array(_FILE_STATUS, len(files))
    gateway.static("java.lang.System", "arraycopy")(read, 0, made, 0, len(files))
    return made


def encode(files: Iterable[tuple[str, int]]) -> bytes:
    """The bytes of an ``ArrayWritable`` of ``FileStatus``."""
    count = 0
    parts = [b""]
    heads: dict[int, tuple[int, bytes]] = {}  # by length of the path
    tails: dict[int, bytes] = {}  # by size of the file
    pack = struct.Struct(">i").pack
    for path, size_bytes in files:
        text = path.encode("utf-8")
        tail = tails.get(size_bytes)
        if tail is None:
            tail = tails[size_bytes] = b"\x18" + _varint(size_bytes) + _REST
        known = heads.get(len(text))
        if known is None:
            head = _TYPE_FILE + b"\x12" + _varint(len(text))
            known = heads[len(text)] = (len(head) + len(text), head)
        parts += (pack(known[0] + len(tail)), known[1], text, tail)
        count += 1
    parts[0] = pack(count)
    return b"".join(parts)


def _varint(number: int) -> bytes:
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


#: What follows the length: modification time and access time 0, replication 1, the block size.
_REST: Final = _PERMISSION_OWNER_GROUP + b"\x38\x00\x40\x00\x50\x01\x58" + _varint(_BLOCK_SIZE_BYTES)
