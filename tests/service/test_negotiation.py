"""Forms and codings of answers: what a client prefers, and what it can read."""

from __future__ import annotations

import gzip

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lamella.service.http.negotiation import CODINGS, Coding, coding, compressed, compressor, media_type

JSON, ARROW, PACK = "application/json", "application/vnd.apache.arrow.stream", "application/vnd.msgpack"


@pytest.mark.parametrize(
    ("accept", "chosen"),
    [
        ("", JSON),
        ("*/*", JSON),
        (ARROW, ARROW),
        ("APPLICATION/VND.APACHE.ARROW.STREAM", ARROW),
        (f"{JSON};q=0.5, {ARROW}", ARROW),
        (f"{ARROW}; q=0.4, {PACK};q=0.7, */*;q=0.1", PACK),
        (f"{ARROW}, {JSON}", JSON),
        ("application/*;q=0.2, text/html", JSON),
        (f"*/*, {JSON};q=0", ARROW),
        (f"{PACK};version=1;q=0.9, {JSON};q=0.8", PACK),
        ("text/html", JSON),
        (f"{ARROW};q=0", JSON),
        (f"{ARROW};q=nonsense, {PACK};q=0.1", PACK),
        (",;,;q=1,", JSON),
    ],
)
def test_the_preferred_form_is_sent(accept: str, chosen: str) -> None:
    """Of equals the first that is offered; JSON when none of them is wanted."""
    assert media_type(accept, (JSON, ARROW, PACK)) == chosen


@pytest.mark.parametrize(
    ("accept_encoding", "chosen"),
    [
        ("", None),
        ("identity", None),
        ("gzip", "gzip"),
        ("gzip, deflate, br, zstd", "zstd"),
        ("GZIP;q=1.0, zstd;q=0.5", "gzip"),
        ("zstd;q=0, gzip;q=0.1", "gzip"),
        ("*", "zstd"),
        ("*;q=0", None),
        ("zstd;q=0, *", "gzip"),
        ("identity;q=1, gzip;q=0.5", None),
        ("identity;q=0.5, gzip;q=0.5", "gzip"),
        ("br", None),
        ("gzip;q=2", "gzip"),
        ("gzip;q=x", None),
    ],
)
def test_the_preferred_coding_is_used(accept_encoding: str, chosen: Coding | None) -> None:
    """Never one that was refused or not named."""
    assert coding(accept_encoding) == chosen


@given(st.text(max_size=60))
def test_no_header_is_too_strange(header: str) -> None:
    """Whatever it says, there is a choice."""
    assert media_type(header, (JSON, ARROW)) in (JSON, ARROW)
    assert coding(header) in (None, *CODINGS)


def read(data: bytes, used: Coding) -> bytes:
    """What was compressed."""
    if used == "gzip":
        return gzip.decompress(data)
    return bytes(pa.input_stream(pa.BufferReader(data), compression="zstd").read())


@pytest.mark.parametrize("used", CODINGS)
@pytest.mark.parametrize("size", [0, 1, 70_000, 3_000_000])
def test_what_is_compressed_is_read_back(used: Coding, size: int) -> None:
    """At once, and piece by piece."""
    data = bytes(i * i % 251 for i in range(size))
    assert read(compressed(data, used), used) == data
    stream = compressor(used)
    pieces = [stream.add(memoryview(data)[i : i + 100_000]) for i in range(0, size, 100_000)]
    assert read(b"".join([*pieces, stream.end()]), used) == data
