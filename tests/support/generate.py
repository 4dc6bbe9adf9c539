"""Random tables: column types, values in clusters with every nasty one, true but weakened statistics, filters.

Everything is drawn from one ``random.Random``, so that a seed names a case; hypothesis supplies the seeds. Values are
in their type's order (see ``lamella.snapshot.schema.types``).
"""

from __future__ import annotations

import datetime as dt
import math
import struct
from collections.abc import Sequence
from decimal import Decimal
from random import Random
from typing import Any

import msgspec

from lamella.snapshot.expression import nodes as n
from lamella.snapshot.schema import Column, DataType, Schema, parse_type
from lamella.snapshot.stats import ColumnStats, to_bound
from lamella.snapshot.stats.bucket import Bucket, bucket_of, has_bucket
from lamella.snapshot.stats.column import has_sum, sum_text

TYPES = (
    "boolean",
    "int8",
    "int16",
    "int32",
    "int64",
    "uint8",
    "uint16",
    "uint32",
    "uint64",
    "float16",
    "float32",
    "float64",
    "decimal(5,2)",
    "decimal(18,4)",
    "decimal(38,10)",
    "date",
    "time(us)",
    "timestamp(ms)",
    "timestamp(us)",
    "timestamp(ns)",
    "timestamp_ntz(us)",
    "string",
    "binary",
    "fixed(4)",
    "uuid",
)
#: Types that Spark 4 writes itself.
SPARK_TYPES = (
    "boolean",
    "int8",
    "int16",
    "int32",
    "int64",
    "float32",
    "float64",
    "decimal(5,2)",
    "decimal(18,4)",
    "decimal(38,10)",
    "date",
    "timestamp(us)",
    "timestamp_ntz(us)",
    "string",
    "binary",
)

Block = dict[str, list[Any]]

_EPOCH = dt.datetime(1970, 1, 1)  # noqa: DTZ001  # wall clock on purpose
_DAY_1 = (dt.date(1, 1, 1) - dt.date(1970, 1, 1)).days
_DAY_LAST = (dt.date(9999, 12, 31) - dt.date(1970, 1, 1)).days
_DAY_US = 86_400 * 10**6
_FLOATS = (0.0, -0.0, math.nan, math.inf, -math.inf, 1.0, -1.0, 0.5, 2.0, 3.0)
_WORDS = (
    *("", "a", "aa", "ab", "abc", "abcdefgh", "abcdefghi", "abcdefghj", "b", "A", "%", "_", "a_b", "\x00"),
    *("ä", "zß", "日本", "\U0001f600", "\uffff", "\ud7ff"),
)
_BYTES = (b"", b"\0", b"\xff", b"\xff\xff\xff", b"a", b"abcdefgh", b"abcdefgh\0", b"abcdefgi")
_PER_SECOND = {"ms": 10**3, "us": 10**6, "ns": 10**9}


def value(rng: Random, dtype: DataType) -> Any:
    """A value, from a small range more often than not, an extreme one now and then."""
    if dtype.name == "boolean":
        return rng.randint(0, 1)
    if dtype.is_float:
        number = rng.choice(_FLOATS) if rng.random() < 0.7 else rng.uniform(-5, 5)
        return number if dtype.bits == 64 else single(number) if dtype.bits == 32 else half(number)
    if dtype.name == "date":
        return rng.choice([rng.randint(-3, 3), rng.randint(-3, 3), _DAY_1, -141_428, -141_427, _DAY_LAST])
    if dtype.name == "time":
        return rng.choice([0, 1, 86_400 * _PER_SECOND[dtype.unit] - 1, rng.randrange(86_400 * _PER_SECOND[dtype.unit])])
    if dtype.name in ("timestamp", "timestamp_ntz"):
        day = 86_400 * _PER_SECOND[dtype.unit]
        return rng.choice([rng.randint(-3, 3), rng.randint(-2000, 2000), day, -day, rng.randint(-9000, 9000) * day])
    if dtype.order in ("int", "uint", "decimal"):
        low, high = dtype.int_range
        if rng.random() < 0.75:
            return rng.randint(max(low, -5), min(high, 5))
        return rng.choice([low, low + 1, high - 1, high, rng.randint(low, high)])
    if dtype.is_text:
        return rng.choice(_WORDS).encode()
    size = {"fixed": dtype.length, "uuid": 16}.get(dtype.name)
    if size is None:
        return rng.choice(_BYTES)
    return rng.choice([b"\0" * size, b"\xff" * size, b"a" * size, b"a" * (size - 1) + b"b", rng.randbytes(size)])


def schema(rng: Random, types: Sequence[str] = TYPES) -> Schema:
    """One to three columns, now and then inside a struct; floats twice as often as their share."""
    columns = []
    floats = [kind for kind in types if kind.startswith("float")]
    for index in range(rng.randint(1, 3)):
        kind = rng.choice(floats) if floats and rng.random() < 0.15 else rng.choice(types)
        leaf = Column(name=f"c{index}", type=kind)
        columns.append(Column(name=f"s{index}", type="struct", fields=(leaf,)) if rng.random() < 0.15 else leaf)
    return Schema.assign(columns)


def table(rng: Random, of: Schema, *, blocks: int = 6, rows: int = 5) -> list[Block]:
    """Blocks as columns of values by leaf name; every block draws from pools of its own, so that bounds differ."""
    made: list[Block] = []
    for _ in range(rng.randint(1, blocks)):
        count = 0 if rng.random() < 0.05 else rng.randint(1, rows)
        block: Block = {}
        for leaf in of.leaves():
            pool = [value(rng, leaf.dtype) for _ in range(rng.randint(1, 3))]
            null_share = rng.choice([0.0, 0.0, 0.0, 0.4, 1.0])
            block[leaf.name] = [None if rng.random() < null_share else rng.choice(pool) for _ in range(count)]
        made.append(block)
    return made


def exact_stats(dtype: DataType, cells: Sequence[Any]) -> ColumnStats:
    """The statistics that a full scan gives."""
    present = [cell for cell in cells if cell is not None]
    numbers = [cell for cell in present if cell == cell]  # NaN is no bound
    nan = "none" if len(numbers) == len(present) else "maybe" if numbers else "all"
    return ColumnStats(
        min=to_bound(dtype, min(numbers)) if numbers else None,
        max=to_bound(dtype, max(numbers)) if numbers else None,
        null_count=len(cells) - len(present),
        nan=nan,  # type: ignore[arg-type]  # one of the three words
        min_exact=bool(numbers),
        max_exact=bool(numbers),
        sum=sum_text(dtype, sum(numbers)) if has_sum(dtype) else None,
        bucket=_bucket(dtype, numbers),
        source="scan",
    )


def _bucket(dtype: DataType, values: Sequence[Any]) -> Bucket | None:
    """The bucket that all values have, of as many buckets as possible."""
    if not values or not has_bucket(dtype):
        return None
    for count in (16, 5, 3, 2):
        found = {bucket_of(dtype, value, count) for value in values}
        if len(found) == 1:
            return count, found.pop()
    return None


def weakened_stats(rng: Random, dtype: DataType, cells: Sequence[Any]) -> ColumnStats | None:
    """True but weaker statistics: looser, partly missing, or none at all."""
    stats = exact_stats(dtype, cells)
    loss = rng.choice(
        ["none", "none", "none", "all", "min", "max", "nulls", "nan", "loose", "loose", "both", "sum", "bucket"]
    )
    if loss == "all":
        return None
    if loss == "nulls":
        return msgspec.structs.replace(stats, null_count=None)
    if loss in ("sum", "bucket"):
        return msgspec.structs.replace(stats, **{loss: None})
    if loss == "nan" and dtype.is_float:
        return msgspec.structs.replace(stats, nan="maybe")
    if loss in ("min", "max", "both"):
        low = {"min": None, "min_exact": False} if loss != "max" else {}
        high = {"max": None, "max_exact": False} if loss != "min" else {}
        return msgspec.structs.replace(stats, **low, **high)
    present = [cell for cell in cells if cell is not None and cell == cell]
    if loss == "loose" and present:
        low_value, high_value = _looser(rng, dtype, min(present), max(present))
        return msgspec.structs.replace(
            stats, min=to_bound(dtype, low_value), max=to_bound(dtype, high_value), min_exact=False, max_exact=False
        )
    return stats


def _looser(rng: Random, dtype: DataType, low: Any, high: Any) -> tuple[Any, Any]:
    if dtype.order == "bytes":
        if dtype.name in ("fixed", "uuid"):
            return low, high
        return low[: rng.randint(0, 8)], high + bytes([rng.randint(0, 255)])
    if dtype.order == "float":
        return low - rng.random(), high + rng.random()
    floor, ceiling = dtype.int_range
    return max(floor, low - rng.randint(0, 3)), min(ceiling, high + rng.randint(0, 3))


def literals(dtype: DataType, at: Any) -> list[n.Literal]:
    """Ways to write a value, and places beside it, as literals that the type may be compared with."""
    if dtype.name == "boolean":
        return [n.Literal("boolean", bool(at))]
    if dtype.name == "date":
        day = (dt.date(1970, 1, 1) + dt.timedelta(days=at)).isoformat()
        stamp = [n.Literal("timestamp", at * _DAY_US), n.Literal("timestamp", at * _DAY_US + 1)]
        return [n.Literal("date", at), n.Literal("string", day), *stamp]
    if dtype.name in ("timestamp", "timestamp_ntz"):
        micros = at * 10**6 // _PER_SECOND[dtype.unit]
        text = (_EPOCH + dt.timedelta(microseconds=micros)).isoformat(sep=" ", timespec="microseconds")
        kind: Any = dtype.name
        near = [n.Literal(kind, micros + beside) for beside in (-1, 0, 1)]
        return [*near, n.Literal("string", text), n.Literal("date", micros // _DAY_US)]
    if dtype.is_text:
        text = at.decode()
        return [n.Literal("string", text), n.Literal("string", text + "a"), n.Literal("string", text[:1])]
    if dtype.order == "bytes":
        return [n.Literal("binary", at), n.Literal("binary", at[:2])]
    if dtype.is_float:
        return _float_literals(float(at))
    found: list[n.Literal] = []
    if not dtype.scale:
        found += [n.Literal("integer", at + beside) for beside in (-1, 0, 1)]
    if abs(at) < 10**27:
        exact = Decimal(at).scaleb(-dtype.scale)
        found += [n.Literal("decimal", format(exact + beside, "f")) for beside in (Decimal(0), Decimal("0.5"))]
    return [*found, n.Literal("double", float(Decimal(at).scaleb(-dtype.scale)))]


def _float_literals(number: float) -> list[n.Literal]:
    doubles = [n.Literal("double", number), n.Literal("double", number + 0.5)]
    if math.isnan(number) or math.isinf(number):
        return doubles[:1]
    spelled = format(Decimal(number), "f")
    whole = [n.Literal("integer", int(number))] if abs(number) < 1e15 else []
    return [*doubles, *whole, *([n.Literal("decimal", spelled)] if len(spelled) < 30 else [])]


def seen_values(of: Schema, blocks: Sequence[Block]) -> Block:
    """Every value of every leaf."""
    return {leaf.name: [cell for block in blocks for cell in block[leaf.name]] for leaf in of.leaves()}


def predicate(rng: Random, of: Schema, seen: Block, depth: int = 3) -> n.Predicate:
    """A filter whose literals lie at, beside and between the values seen."""
    if depth > 0 and rng.random() < 0.35:
        kind = rng.choice(["and", "or", "not", "is true"])
        if kind == "not":
            return n.Not(predicate(rng, of, seen, depth - 1))
        if kind == "is true":
            return rng.choice((n.IsTrue, n.IsUnknown))(predicate(rng, of, seen, depth - 1))
        parts = tuple(predicate(rng, of, seen, depth - 1) for _ in range(rng.randint(1, 3)))
        return n.And(parts) if kind == "and" else n.Or(parts)
    leaf = rng.choice(of.leaves())
    ref, dtype = n.Ref(leaf.name), leaf.dtype
    kinds = ["null", "compare", "compare", "compare", "compare", "in", "in", "null safe"]
    kinds += ["like", "prefix"] if dtype.is_text else []
    kinds += ["nan"] if dtype.is_float else []
    kinds += ["truth"] if dtype.name == "boolean" else []
    kind = rng.choice(kinds)
    if dtype.name == "time" or kind == "null":
        return n.IsNull(ref)
    if kind == "nan":
        return n.IsNan(ref)
    if kind == "truth":
        return n.Truth(ref)
    pool = [cell for cell in seen.get(leaf.name, []) if cell is not None]

    def near() -> Any:
        return rng.choice(pool) if pool and rng.random() < 0.75 else value(rng, dtype)

    if kind in ("like", "prefix"):
        start = near().decode()[: rng.randint(0, 3)]
        if kind == "prefix":
            return n.StartsWith(ref, n.Literal("string", start))
        escaped = "".join("\\" + c if c in "%_\\" else c for c in start)
        return n.Like(ref, escaped + rng.choice(["%", "", "_%", "%a", "_"]))
    if kind == "in":
        return _in(rng, ref, dtype, [rng.choice(literals(dtype, near())) for _ in range(rng.randint(1, 4))])
    literal = rng.choice(literals(dtype, near()))
    if kind == "null safe":
        return n.NullSafeEqual(ref, rng.choice([literal, literal, n.Literal("null")]))
    return n.Compare(rng.choice(["lt", "le", "gt", "ge", "eq", "ne"]), ref, literal)


def _in(rng: Random, ref: n.Ref, dtype: DataType, chosen: list[n.Literal]) -> n.Predicate:
    """One spelling per list: Spark brings a mixed list to a common type first, and text lists to text."""
    usable = [c for c in chosen if c.kind == chosen[0].kind and (c.kind != "string" or dtype.is_text)]
    if dtype.name in ("date", "timestamp", "timestamp_ntz"):
        usable = [c for c in usable if c.kind == dtype.name]
    nulls = [n.Literal("null")] if rng.random() < 0.25 else []
    return n.In(ref, (*usable, *nulls)) if usable or nulls else n.IsNull(ref)


def rows_of(block: Block) -> list[dict[str, Any]]:
    """A block's columns as rows."""
    return [dict(zip(block, cells, strict=True)) for cells in zip(*block.values(), strict=True)]


def single(number: float) -> float:
    """Nearest 32-bit float."""
    return float(struct.unpack("<f", struct.pack("<f", number))[0])


def half(number: float) -> float:
    """Nearest 16-bit float."""
    return float(struct.unpack("<e", struct.pack("<e", number))[0])


def dtype_of(text: str) -> DataType:
    """The type of that text."""
    return parse_type(text)
