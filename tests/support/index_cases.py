"""Parts of indexes over made values, and what they claim of random filters beside what the rows really do."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from random import Random
from typing import Any, NamedTuple

import msgspec
import numpy as np
import pyarrow as pa

from lamella.snapshot.columnar.keys import Mask, filled
from lamella.snapshot.columnar.zones import is_wide, number_dtype
from lamella.snapshot.errors import InvalidRequest
from lamella.snapshot.expression import bind
from lamella.snapshot.expression import nodes as n
from lamella.snapshot.expression.bound import (
    BoundAnd,
    BoundIsTrue,
    BoundIsUnknown,
    BoundNot,
    BoundOperator,
    BoundOr,
    BoundPredicate,
    BoundTest,
    Comparison,
    Fixed,
    Membership,
    Pair,
)
from lamella.snapshot.function.base import Vector
from lamella.snapshot.index import Part, kind_named, pack
from lamella.snapshot.index.kind import Kind, PossibleOutcomes, Probe
from lamella.snapshot.index.part import ref_of
from lamella.snapshot.prune.outcome import Outcome, conjunction, flipped, resolved
from lamella.snapshot.schema import Column, DataType, Leaf, Schema
from support import generate
from support.oracle import Oracle

Cells = list[Any]
#: ... with sharp, sigma, the i with and without dot, the long s and the Kelvin sign.
_ALPHABET = "abcxyzABCXYZ019_% .iI\u00e4\u00c4\u00df\u1e9e\u03c3\u03c2\u03a3\u0131\u0130\u017f\u212a\u65e5\U0001f600\n"
EVERYTHING = Outcome(True, True, True, False)


class Opened(msgspec.Struct):
    """A part over bytes in memory, and the ranges that were read of it."""

    part: Part
    data: bytearray
    reads: list[tuple[int, int]]


def vector(dtype: DataType, cells: Sequence[Any]) -> Vector:
    """Cells, None for null, as a vector."""
    valid = np.array([cell is not None for cell in cells], dtype=bool)
    if dtype.order == "bytes":
        return Vector(pa.array([cell or b"" for cell in cells], pa.large_binary()), valid)
    kind = np.dtype(object) if is_wide(dtype) else number_dtype(dtype)
    values = np.empty(len(cells), dtype=kind)
    values[:] = [0 if cell is None else cell for cell in cells]
    return Vector(values, valid)


def opened(
    kind: str, dtype: DataType, options: Mapping[str, Any], sections: Any, facts: Mapping[str, Any], count: int
) -> Opened:
    """Sections as a part that was packed and opened again."""
    data, tail = pack(kind, str(dtype), count, sections, options=options, facts=facts)
    buffer = bytearray(data)
    reads: list[tuple[int, int]] = []

    def fetch(ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        reads.extend(ranges)
        return [bytes(buffer[start : start + length]) for start, length in ranges]

    return Opened(Part(ref_of("memory://part", data, tail, count), fetch), buffer, reads)


def built(kind: Kind, dtype: DataType, blocks: Sequence[Cells], given: Mapping[str, Any] | None = None) -> Opened:
    """A part over blocks, each handed over in two batches."""
    options = kind.options(dtype, given or {})
    builder = kind.builder(dtype, options)
    for cells in blocks:
        half = len(cells) // 2
        for batch in (cells[:half], cells[half:]):
            builder.add(vector(dtype, batch))
        builder.end_block()
    sections, facts = builder.sections()
    return opened(kind.name, dtype, options, sections, facts, len(blocks))


def taken(kind: Kind, parts: Sequence[tuple[Part, Sequence[int]]]) -> Opened:
    """One part of some blocks of several."""
    header = parts[0][0].header
    sections, facts = kind.taken([(part, np.array(rows, dtype=np.int64)) for part, rows in parts])
    count = sum(len(rows) for _, rows in parts)
    dtype = generate.dtype_of(header.dtype)
    return opened(kind.name, dtype, header.options, sections, facts, count)


def probe(part: Part) -> Probe:
    """What answers from a part."""
    return kind_named(part.header.kind).probe(part)


class Claimed(NamedTuple):
    """A claim as arrays."""

    true: Mask
    false: Mask
    null: Mask

    def lists(self) -> list[list[bool]]:
        """To compare claims by."""
        return [mask.tolist() for mask in self]


def claimed(of: Probe, test: BoundTest, rows: Sequence[int]) -> Claimed:
    """A claim as arrays; everything where the kind cannot tell."""
    possible_outcomes = of.possible_outcomes(test, np.array(rows, dtype=np.int64)) or PossibleOutcomes(True)
    return Claimed(
        *(filled(mask, len(rows)) for mask in (possible_outcomes.true, possible_outcomes.false, possible_outcomes.null))
    )


def outcome(node: BoundPredicate, of: Probe, rows: Sequence[int]) -> Outcome:
    """What a whole filter may do with rows of blocks, from claims alone."""
    match node:
        case Fixed(value):
            return Outcome(value is True, value is False, value is None, False)
        case BoundNot(child):
            return flipped(outcome(child, of, rows))
        case BoundIsTrue(child):
            inner = outcome(child, of, rows)
            return resolved(inner.true, inner.false | inner.null, False, False)
        case BoundIsUnknown(child):
            inner = outcome(child, of, rows)
            return resolved(inner.null, inner.true | inner.false, False, False)
        case BoundAnd(children):
            return conjunction([outcome(child, of, rows) for child in children])
        case BoundOr(children):
            return flipped(conjunction([flipped(outcome(child, of, rows)) for child in children]))
        case Pair():
            return EVERYTHING
        case _:
            possible_outcomes = claimed(of, node, rows)
            return Outcome(possible_outcomes.true, possible_outcomes.false, possible_outcomes.null, False)


def types_of(kind: Kind) -> list[DataType]:
    """The types that a kind can be made over."""
    found = []
    for name in (*generate.TYPES, "enum", "json"):
        try:
            kind.options(generate.dtype_of(name), {})
        except InvalidRequest:
            continue
        found.append(generate.dtype_of(name))
    return found


def schema_of(dtype: DataType) -> Schema:
    """A table of one column ``c``."""
    return Schema.assign([Column(name="c", type=str(dtype))])


def bound(predicate: n.Predicate, dtype: DataType) -> BoundPredicate:
    """A filter over the column ``c``."""
    return bind(predicate, schema_of(dtype))


def text(rng: Random) -> bytes:
    """A short text with letters of several scripts and cases."""
    return "".join(rng.choice(_ALPHABET) for _ in range(rng.choice([0, 1, 2, 3, 5, 9, 20]))).encode()


def value(rng: Random, dtype: DataType) -> Any:
    """A value; texts are longer than the common generator's."""
    return text(rng) if dtype.is_text and rng.random() < 0.7 else generate.value(rng, dtype)


def blocks_of(rng: Random, dtype: DataType, *, blocks: int = 8, rows: int = 12) -> list[Cells]:
    """Blocks that are empty, all null, of one value or of many, with values in common."""
    shared = [value(rng, dtype) for _ in range(4)]
    made: list[Cells] = []
    for _ in range(rng.randint(1, blocks)):
        count = 0 if rng.random() < 0.1 else rng.randint(1, rows)
        pool = [value(rng, dtype) for _ in range(rng.choice([1, 1, 3, rows]))] + rng.sample(shared, rng.choice([0, 1]))
        nulls = rng.choice([0.0, 0.0, 0.3, 1.0])
        made.append([None if rng.random() < nulls else rng.choice(pool) for _ in range(count)])
    return made


def predicate(rng: Random, dtype: DataType, blocks: Sequence[Cells]) -> n.Predicate:
    """A filter whose literals lie at and beside the values; over texts often LIKE."""
    seen = [cell for cells in blocks for cell in cells]
    texts = [cell for cell in seen if cell is not None]
    if dtype.is_text and rng.random() < 0.5:
        like = n.Like(n.Ref("c"), pattern(rng, rng.choice(texts).decode() if texts and rng.random() < 0.8 else "abc"))
        return n.Not(like) if rng.random() < 0.2 else like
    return generate.predicate(rng, schema_of(dtype), {"c": seen}, depth=2)


def pattern(rng: Random, of: str) -> str:
    """A pattern with pieces of a text."""
    parts: list[str] = []
    at = 0
    while at < len(of):
        size = rng.randint(1, 8)
        piece = of[at : at + size]
        parts.append("".join("\\" + c if c in "%_\\" else c for c in piece) if rng.random() < 0.7 else "%")
        if rng.random() < 0.15:
            parts[-1] = "_" * len(piece)
        at += size
    return rng.choice(["%", ""]) + "".join(parts) + rng.choice(["%", "%", ""])


def false_claims(of: Probe, dtype: DataType, blocks: Sequence[Cells], node: n.Predicate, rows: Sequence[int]) -> str:
    """What rows do that a part says they do not do; nothing when it is true."""
    found = outcome(bound(node, dtype), of, rows)
    oracle = Oracle(schema_of(dtype))
    for at, row in enumerate(rows):
        for cell in blocks[row]:
            result = oracle.decide(node, {"c": cell})
            if not filled({True: found.true, False: found.false, None: found.null}[result], len(rows))[at]:
                return f"{node} is {result} for {cell!r} in block {row}"
    return ""


def leaf_of(dtype: DataType) -> Leaf:
    """The column ``c``."""
    (leaf,) = schema_of(dtype).leaves()
    return leaf


def spread_value(rng: Random, dtype: DataType) -> Any:
    """A value from all over a type, so that many are different."""
    if rng.random() < 0.2:
        return value(rng, dtype)
    if dtype.order == "bytes":
        size = {"fixed": dtype.length, "uuid": 16}.get(dtype.name, 0)
        made = rng.randbytes(size or rng.randint(1, 40))
        return made.hex().encode() if dtype.is_text else made
    if dtype.order == "float":
        number = rng.uniform(-1e4, 1e4)
        return number if dtype.bits == 64 else generate.single(number) if dtype.bits == 32 else generate.half(number)
    if dtype.name == "time":
        return rng.randrange(86_400 * 10**6)
    if dtype.name in ("date", "timestamp", "timestamp_ntz"):
        return rng.randint(-(10**6), 10**6) if dtype.name == "date" else rng.randint(-(10**15), 10**15)
    return rng.randint(*dtype.int_range)


def compared(dtype: DataType, op: BoundOperator, value: Any) -> Comparison:
    """``c op value``."""
    return Comparison(leaf_of(dtype), op, value, f"c {op} {value!r}")


def equal(dtype: DataType, value: Any) -> Comparison:
    """``c = value``."""
    return compared(dtype, "eq", value)


def listed(dtype: DataType, values: Sequence[Any]) -> Membership:
    """``c IN (values)``."""
    return Membership(leaf_of(dtype), tuple(sorted(values)), False, False, "c IN (..)")
