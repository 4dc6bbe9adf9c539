"""Compressing answers: gzip by zlib, zstd (RFC 8878) by the codec that Arrow brings along."""

from __future__ import annotations

import zlib
from typing import Final, Protocol

import pyarrow as pa

from lamella.service.negotiation import Coding

#: Answers of fewer bytes are sent as they are: they fit into a few packets, and compressing them takes longer.
LEAST_BYTES: Final = 16 << 10

# Metadata compresses well at any level, and the lowest keeps up with a network.
_GZIP_LEVEL: Final = 1
_GZIP_WRAPPER: Final = 31  # zlib's number for: 32 KiB window, gzip header and trailer

Data = bytes | memoryview


class Compressor(Protocol):
    """One stream of compressed bytes."""

    def add(self, data: Data) -> bytes:
        """Take data; gives what is ready, maybe nothing."""

    def end(self) -> bytes:
        """The rest, with the end of the stream."""


def compressor(coding: Coding) -> Compressor:
    """A new stream in that coding."""
    return _Zstd() if coding == "zstd" else _Gzip()


def compressed(data: bytes, coding: Coding) -> bytes:
    """All of it at once."""
    stream = compressor(coding)
    return stream.add(data) + stream.end()


class _Gzip:
    def __init__(self) -> None:
        self._stream = zlib.compressobj(_GZIP_LEVEL, zlib.DEFLATED, _GZIP_WRAPPER)

    def add(self, data: Data) -> bytes:
        return self._stream.compress(data)

    def end(self) -> bytes:
        return self._stream.flush()


class _Zstd:
    def __init__(self) -> None:
        self._sink = _Sink()
        self._stream = pa.CompressedOutputStream(pa.PythonFile(self._sink, mode="w"), "zstd")

    def add(self, data: Data) -> bytes:
        self._stream.write(data)
        return self._sink.taken()

    def end(self) -> bytes:
        self._stream.close()
        return self._sink.taken()


class _Sink:
    """What was written since it was last taken."""

    def __init__(self) -> None:
        self.closed = False
        self._written: list[bytes] = []

    def write(self, data: bytes) -> int:
        self._written.append(bytes(data))
        return len(data)

    def taken(self) -> bytes:
        written, self._written = self._written, []
        return b"".join(written)

    def flush(self) -> None:
        """Nothing waits here."""

    def close(self) -> None:
        self.closed = True
