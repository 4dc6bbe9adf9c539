"""Answers as JSON: the same members with the same values as :func:`~lamella.snapshot.prune.answer.answer_of` gives."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import msgspec
import pyarrow as pa

from lamella.snapshot.prune.answer import answer_of
from lamella.snapshot.prune.encode.gathered import Gathered
from lamella.snapshot.prune.encode.json_text import joined, json_strings
from lamella.snapshot.prune.encode.record_text import VERDICT_TEXTS, record_texts
from lamella.snapshot.prune.encode.slabs import OWN_SCHEMA, slabs
from lamella.snapshot.prune.found import Found
from lamella.snapshot.wire import PruneAnswer

_ENCODE: Final = msgspec.json.Encoder().encode
_STEP: Final = 65_536

Chunk = bytes | memoryview


def json_chunks(found: Found) -> Iterator[Chunk]:
    """The answer as JSON, piece by piece."""
    if not found.is_plain or found.shape == "ranges":
        yield _ENCODE(answer_of(found))
        return
    name, blocks = ("blocks", _records(found)) if found.shape == "records" else ("block_columns", _columns(found))
    before, after = _around(found.answer, name)
    yield before
    yield from blocks
    yield after


def _around(answer: PruneAnswer, streamed: str) -> tuple[bytes, bytes]:
    """The document in front of the value of one of its members, and behind it."""
    sides: tuple[list[bytes], list[bytes]] = ([], [])
    side = sides[0]
    for name in answer.__struct_fields__:
        if name == streamed:
            side = sides[1]
        else:
            side.append(b'"%b":%b' % (name.encode(), _ENCODE(getattr(answer, name))))
    before, after = (b",".join(side) for side in sides)
    return b'{%b,"%b":' % (before, streamed.encode()), b",%b}" % after


def _columns(found: Found) -> Iterator[Chunk]:
    gathered = Gathered()
    yield b'{"location":['
    for number, slab in enumerate(slabs(found)):
        yield b',"' if number else b'"'
        yield joined(json_strings(slab.location), '","')
        yield b'"'
        gathered.add(slab.numbers)
    yield b"]"
    for name, values in gathered.columns():
        yield b',"%b":[' % name.encode()
        for begin in range(0, len(values), _STEP):
            part = values[begin : begin + _STEP]
            yield b"," if begin else b""
            if name == "verdict":
                yield joined(VERDICT_TEXTS.take(pa.array(part)), ",")
            elif name == "schema_id":
                yield _ENCODE([None if each == OWN_SCHEMA else each for each in part.tolist()])[1:-1]
            else:
                # Through Python's integers, which msgspec writes faster than Arrow casts numbers to text.
                yield _ENCODE(part.tolist())[1:-1]
        yield b"]"
    yield b"}"


def _records(found: Found) -> Iterator[Chunk]:
    yield b"["
    for number, slab in enumerate(slabs(found)):
        yield b"," if number else b""
        yield joined(record_texts(slab.location, slab.numbers), ",")
    yield b"]"
