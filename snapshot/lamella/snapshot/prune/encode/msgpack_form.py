"""Answers as MessagePack: the same members with the same values as the JSON form has.

Text goes through Python's strings, segment by segment: MessagePack says the length of each one, and putting those in
between costs more in Arrow than msgspec needs for all of it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import msgspec

from lamella.snapshot.prune.encode.blocks import OWN_SCHEMA, Gathered, slabs
from lamella.snapshot.prune.result import VERDICTS, Found, answer_of

_ENCODE: Final = msgspec.msgpack.Encoder().encode
_STEP: Final = 65_536

Chunk = bytes | memoryview


def msgpack_chunks(found: Found) -> Iterator[Chunk]:
    """The answer as MessagePack, piece by piece; shape "records" in one piece."""
    if not found.is_plain or found.shape != "columns":
        yield _ENCODE(answer_of(found))
        return
    names = found.answer.__struct_fields__
    yield _map_head(len(names))
    for name in names:
        yield _ENCODE(name)
        if name == "block_columns":
            yield from _columns(found)
        else:
            yield _ENCODE(getattr(found.answer, name))


def _columns(found: Found) -> Iterator[Chunk]:
    count = found.block_count
    given = {"column_size_bytes": found.column_ids is not None, "residual": found.residual is not None}
    optional = [name for name, there in given.items() if there]
    # A map says first how many members it has, so the last one, which may turn out to say nothing, is always there.
    names = ["location", "row_count", "file_size", "verdict", *optional, "schema_id"]
    yield _map_head(len(names))
    yield _ENCODE("location")
    yield _array_head(count)
    gathered = Gathered()
    for slab in slabs(found):
        yield _inside(slab.location.to_pylist())
        gathered.add(slab.numbers)
    columns = dict(gathered.columns())
    for name in names[1:]:
        yield _ENCODE(name)
        if name not in columns:
            yield _ENCODE(None)
            continue
        yield _array_head(count)
        for begin in range(0, count, _STEP):
            values = columns[name][begin : begin + _STEP].tolist()
            if name == "verdict":
                values = [VERDICTS[code] for code in values]
            elif name == "schema_id":
                values = [None if each == OWN_SCHEMA else each for each in values]
            yield _inside(values)


def _inside(values: Sequence[object]) -> memoryview:
    """The values one after another, without the head of the array that they would be."""
    count = len(values)
    return memoryview(_ENCODE(values))[1 if count < 1 << 4 else 3 if count < 1 << 16 else 5 :]


def _array_head(count: int) -> bytes:
    return b"\xdd" + count.to_bytes(4, "big")


def _map_head(count: int) -> bytes:
    return b"\xde" + count.to_bytes(2, "big")
