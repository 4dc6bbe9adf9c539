"""Variants of JSON documents and other values, and what ``variant_get`` returns of them, for tests without Spark."""

from __future__ import annotations

from decimal import Decimal
from random import Random
from typing import Any, Final

from lamella.snapshot.schema import DataType
from lamella.snapshot.variant.encoding import NULL, array_of, encoded, object_of

#: What stands for a row or member that is not there.
MISSING: Final = object()


def variant_of(document: Any) -> dict[str, bytes] | None:
    """A document as a variant; None is the absence of one: a variant null is ``...``."""
    if document is None:
        return None
    names = sorted(_names(document), key=lambda name: name.encode())
    encoded_names = [name.encode() for name in names]
    width = 1 if sum(map(len, encoded_names)) < 256 and len(names) < 256 else 4
    ends = [0]
    for name in encoded_names:
        ends.append(ends[-1] + len(name))
    numbers = [len(names), *ends]
    header = bytes([1 | 1 << 4 | (width - 1) << 6])
    metadata = header + b"".join(number.to_bytes(width, "little") for number in numbers) + b"".join(encoded_names)
    return {"metadata": metadata, "value": _value(document, metadata)}


def _names(document: Any) -> set[str]:
    if isinstance(document, dict):
        return set(document).union(*map(_names, document.values()))
    return set().union(*map(_names, document)) if isinstance(document, list) else set()


def _value(document: Any, metadata: bytes) -> bytes:
    if document is ...:
        return NULL
    if isinstance(document, dict):
        return object_of({name: _value(part, metadata) for name, part in document.items()}, metadata)
    if isinstance(document, list):
        return array_of([_value(part, metadata) for part in document])
    if isinstance(document, tuple):  # the name of a type, and a value
        return encoded(*document)
    if isinstance(document, str):
        return encoded("string", document.encode())
    kinds: dict[type, str] = {bool: "boolean", int: "int64", float: "float64", Decimal: "decimal", bytes: "binary"}
    return encoded(kinds[type(document)], document)


def at_path(document: Any, names: list[str]) -> Any:
    """The value at a path of names, :data:`MISSING` if there is none."""
    for name in names:
        if not isinstance(document, dict) or name not in document:
            return MISSING
        document = document[name]
    return document


def cast(value: Any, dtype: DataType) -> Any:
    """What ``variant_get`` returns: None for null, and raises ValueError where it fails; numbers, text and booleans."""
    if value is MISSING or value is ... or value is None:
        return None
    if isinstance(value, tuple) and value[0] == str(dtype):
        return value[1]
    if dtype.name == "boolean" and isinstance(value, bool):
        return value
    if dtype.name == "string" and isinstance(value, str):
        return value
    if dtype.name == "string" and isinstance(value, int):
        return str(value).lower()
    if isinstance(value, str) and dtype.is_integer:
        return _within(int(value), dtype)
    if dtype.is_integer and isinstance(value, int | Decimal) and not isinstance(value, bool):
        return _within(int(value), dtype)
    if dtype.name == "decimal" and isinstance(value, int | Decimal) and not isinstance(value, bool):
        scaled = round(Decimal(value).scaleb(dtype.scale))
        return Decimal(_within(scaled, dtype)).scaleb(-dtype.scale)
    if dtype.is_float and isinstance(value, int | float | Decimal) and not isinstance(value, bool):
        return float(value)
    raise ValueError(f"{value!r} is not a {dtype}")


def _within(number: int, dtype: DataType) -> int:
    low, high = dtype.int_range
    if not low <= number <= high:
        raise ValueError(f"{number} is not a {dtype}")
    return number


def random_variant(rng: Random) -> Any:
    """A document whose members ``a``, ``b`` and ``c`` are mostly of one type each."""
    roll = rng.random()
    if roll < 0.06:
        return rng.choice([None, ..., 5, "x", [1], {}])
    inner = {"n": rng.randrange(100), "t": f"k{rng.randrange(30):02}", "f": Decimal(rng.randrange(1000)).scaleb(-2)}
    for name in list(inner):
        if rng.random() < 0.1:
            del inner[name]
        elif rng.random() < 0.05:
            inner[name] = ...
    document: dict[str, Any] = {"a": inner, "b": rng.random() < 0.5, "d": ("date", rng.randrange(20_000)), "A": "up"}
    if rng.random() < 0.1:
        document["a"] = rng.choice([..., 7, [inner], "n"])
    if rng.random() < 0.2:
        document["rest"] = [1, {"n": "deep"}]
    return document


def spoiled(document: Any, rng: Random) -> Any:
    """The same document with a value of another type somewhere."""
    if isinstance(document, dict) and isinstance(document.get("a"), dict) and document["a"]:
        name = rng.choice(list(document["a"]))
        other = rng.choice(["7", True, 1 << 40, Decimal("1.5"), 2.5, {"x": 1}, [1]])
        return {**document, "a": {**document["a"], name: other}}
    return document
