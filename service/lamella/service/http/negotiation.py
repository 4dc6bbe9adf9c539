"""Content negotiation (RFC 9110, sections 12.4.2 to 12.5.3), and compression of responses with gzip or zstd."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from typing import Final, Literal, Protocol

import pyarrow as pa

Coding = Literal["zstd", "gzip"]

#: The supported content codings, the cheapest first.
CODINGS: Final[tuple[Coding, ...]] = ("zstd", "gzip")


def media_type(accept: str, offered: Sequence[str]) -> str:
    """Return the media type of ``offered`` that ``Accept`` prefers; the first one on a tie or if none matches.

    An answer in another type says so in ``Content-Type``, which RFC 9110 prefers to refusing the request.
    """
    if accept in ("", "*/*", offered[0]):
        return offered[0]
    weights = _weights(accept)
    best, best_weight = offered[0], 0.0
    for kind in offered:
        ranges = (kind, kind.partition("/")[0] + "/*", "*/*")
        weight = next((weights[each] for each in ranges if each in weights), 0.0)
        if weight > best_weight:
            best, best_weight = kind, weight
    return best


def coding(accept_encoding: str) -> Coding | None:
    """Return the coding that ``Accept-Encoding`` prefers; None: no compression."""
    if accept_encoding in ("", "identity"):
        return None
    weights = _weights(accept_encoding)
    others = weights.get("*", 0.0)
    best: Coding | None = None
    best_weight = weights.get("identity", 0.0)
    for each in CODINGS:
        weight = weights.get(each, others)
        if weight > 0 and (weight > best_weight or (best is None and weight == best_weight)):
            best, best_weight = each, weight
    return best


def _weights(header: str) -> dict[str, float]:
    """Return the weight of each element, in lower case; invalid elements are left out."""
    found: dict[str, float] = {}
    for element in header.split(","):
        name, *parameters = (part.strip() for part in element.split(";"))
        weight = _weight(parameters)
        if name and weight is not None:
            found[name.lower()] = weight
    return found


def _weight(parameters: Sequence[str]) -> float | None:
    for parameter in parameters:
        name, _, value = parameter.partition("=")
        if name.strip().lower() == "q":
            digits = value.strip()
            if not (digits.isascii() and digits.replace(".", "", 1).isdigit() and len(digits) <= 5):
                return None
            return min(float(digits), 1.0)
    return 1.0


#: Smaller answers are not compressed: they fit into a few packets, and compressing takes longer.
MIN_BYTES: Final = 16 << 10

# Metadata compresses well at any level, and the lowest is as fast as a network.
_GZIP_LEVEL: Final = 1
_GZIP_WRAPPER: Final = 31  # zlib's code for: 32 KiB window, gzip header and trailer

Data = bytes | memoryview


class Compressor(Protocol):
    """A stream of compressed bytes."""

    def add(self, data: Data) -> bytes:
        """Add data; return the compressed bytes that are ready, which may be none."""

    def end(self) -> bytes:
        """End the stream; return the remaining bytes."""


def compressor(coding: Coding) -> Compressor:
    """Return a new stream in that coding."""
    return _Zstd() if coding == "zstd" else _Gzip()


def compressed(data: bytes, coding: Coding) -> bytes:
    """Compress data in one call."""
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
    """Collects written bytes until they are taken."""

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
        """Do nothing: there is no buffer."""

    def close(self) -> None:
        self.closed = True
