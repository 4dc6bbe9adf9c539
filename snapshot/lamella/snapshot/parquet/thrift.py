"""Thrift's compact protocol, read side: only what Parquet metadata needs, safe for hostile bytes.

Time and memory are linear in the input: every element of a list takes at least one byte of it, and nesting is bounded.
A structure is read by a *spec*, ``{field id: kind}``; fields that the spec does not name, and named ones of another
wire type, are skipped, as in every Thrift reader; a list of other elements is an error. Kinds:

- ``INT`` (i8..i64, zigzag), ``BINARY`` (``bytes``), ``BOOL``,
- a spec: a structure, as ``{field id: value}``,
- ``[kind]``: a list of ``INT``, ``BINARY``, ``BOOL`` or structures,
- ``(spec, spec, ...)``: a list of just so many structures,
- ``ANY``: whatever is there, structures as dictionaries (small things only, such as logical types),
- a :class:`Memo`: something that is mostly the same from file to file.
"""

from __future__ import annotations

from typing import Any, Final

INT: Final = 6
BINARY: Final = 8
BOOL: Final = 1
ANY: Final = 0
SKIP: Final = -1


class Memo:
    """A value of ``kind`` (``SKIP``: any, not stored) that is decoded again only when its bytes differ from the
    previous ones.

    The bytes of an encoded value determine its end, so equal bytes at the start give the same value. Values are shared
    and must not be changed; the last one is replaced as a whole, so threads need no lock.
    """

    __slots__ = ("kind", "last")

    def __init__(self, kind: Any) -> None:
        self.kind = kind
        self.last: tuple[int, bytes, Any] = (-1, b"", None)  # wire type, bytes, value


#: ``{field id: kind}``; see the module.
Spec = dict[int, Any]
Fields = dict[int, Any]

#: Parquet's own metadata nests about ten deep.
MAX_DEPTH: Final = 48

#: No structure in Parquet's lists is shorter, in bytes. Without this, one byte of a hostile file becomes a dictionary.
_MIN_STRUCT: Final = 3


class ThriftError(ValueError):
    """The bytes do not follow the protocol or the spec."""


def decode(data: bytes, spec: Spec, at: int = 0, field: int = 0) -> Fields:
    """Decodes the structure at the start of ``data``, or the rest of it: from position ``at``, after field number
    ``field``.

    Raises:
        ThriftError: the bytes are not such a structure.
    """
    try:
        return struct(data, at, spec, field)[0]
    except IndexError:
        raise ThriftError("the data ends inside a value") from None


def find(data: bytes, wanted: int, wire: int) -> int:
    """Returns the position of a top-level field's value; raises ThriftError if it is missing or of another wire
    type."""
    try:
        p = field = 0
        while h := data[p]:
            p += 1
            if h >> 4:
                field += h >> 4
            else:
                n, p = varint(data, p)
                field = (n >> 1) ^ -(n & 1)
            if field == wanted:
                if h & 15 != wire:
                    raise ThriftError(f"field {wanted} has wire type {h & 15}")
                return p
            p = skip(data, p, h & 15)
    except IndexError:
        raise ThriftError("the data ends inside a value") from None
    raise ThriftError(f"there is no field {wanted}")


def varint(b: bytes, p: int) -> tuple[int, int]:
    """Returns an unsigned number and the position after it. IndexError at the end of the data."""
    x = b[p]
    p += 1
    if x < 128:
        return x, p
    r = x & 127
    s = 7
    while True:
        x = b[p]
        p += 1
        r |= (x & 127) << s
        if x < 128:
            if r >> 64:
                raise ThriftError("a number is longer than 64 bits")
            return r, p
        s += 7
        if s > 63:
            raise ThriftError("a number is longer than 64 bits")


def binary(b: bytes, p: int) -> tuple[bytes, int]:
    """Reads a length and that many bytes."""
    n, p = varint(b, p)
    end = p + n
    if end > len(b):
        raise ThriftError("a string extends past the end of the data")
    return b[p:end], end


def list_header(b: bytes, p: int) -> tuple[int, int, int]:
    """Returns the size of a list, the wire type of its elements, and the position of the first."""
    h = b[p]
    p += 1
    n = h >> 4
    if n == 15:
        n, p = varint(b, p)
    if n > len(b) - p:
        raise ThriftError("a list is longer than the data")
    return n, h & 15, p


def struct(b: bytes, p: int, spec: Spec, field: int = 0) -> tuple[Fields, int]:
    """Returns the structure at ``p`` and the position after it."""
    out: Fields = {}
    while h := b[p]:
        p += 1
        delta = h >> 4
        if delta:
            field += delta
        else:
            n, p = varint(b, p)
            field = (n >> 1) ^ -(n & 1)
        wire = h & 15
        kind = spec.get(field)
        if kind is None:
            p = skip(b, p, wire)
        elif kind is INT and 3 <= wire <= 6:
            n = b[p]
            p += 1
            if wire == 3:
                out[field] = n - 256 if n > 127 else n
            else:
                if n > 127:
                    n, p = varint(b, p - 1)
                out[field] = (n >> 1) ^ -(n & 1)
        elif kind is BINARY and wire == 8:
            n = b[p]
            p += 1
            if n > 127:
                n, p = varint(b, p - 1)
            end = p + n
            if end > len(b):
                raise ThriftError("a string extends past the end of the data")
            out[field] = b[p:end]
            p = end
        elif type(kind) is Memo:
            known, raw, value = kind.last
            if wire == known and b.startswith(raw, p):
                p += len(raw)
            else:
                start = p
                value, p = _memorable(b, p, wire, kind.kind)
                kind.last = (wire, b[start:p], value)
            if value is not None:
                out[field] = value
        elif kind is BOOL and wire <= 2:
            out[field] = wire == 1
        elif kind is ANY:
            out[field], p = anything(b, p, wire, 1)
        elif type(kind) is dict and wire == 12:
            out[field], p = struct(b, p, kind)
        elif type(kind) is list and wire == 9:
            out[field], p = elements(b, p, kind[0])
        elif type(kind) is tuple and wire == 9:
            out[field], p = _each(b, p, kind)
        else:
            p = skip(b, p, wire)
    return out, p + 1


def elements(b: bytes, p: int, kind: Any) -> tuple[list[Any], int]:
    """Returns the list at ``p`` and the position after it."""
    n, wire, p = list_header(b, p)
    out: list[Any] = []
    if not n:
        return out, p
    if kind is INT:
        if not 4 <= wire <= 6:
            raise ThriftError("a list has elements that are not numbers")
        for _ in range(n):
            v, p = varint(b, p)
            out.append((v >> 1) ^ -(v & 1))
    elif kind is BINARY:
        if wire != 8:
            raise ThriftError("a list has elements that are not strings")
        for _ in range(n):
            text, p = binary(b, p)
            out.append(text)
    elif kind is BOOL:
        if wire not in (1, 2):
            raise ThriftError("a list has elements that are not booleans")
        end = _within(b, p + n)
        if not set(b[p:end]) <= {0, 1, 2}:  # false is 2 in the standard, and 0 with some writers
            raise ThriftError("a list has elements that are not booleans")
        out = [byte == 1 for byte in b[p:end]]
        p = end
    else:
        if wire != 12:
            raise ThriftError("a list has elements that are not structures")
        _check_space(b, p, n)
        for _ in range(n):
            fields, p = struct(b, p, kind)
            out.append(fields)
    return out, p


def _each(b: bytes, p: int, specs: tuple[Spec, ...]) -> tuple[list[Fields], int]:
    """Returns a list of structures, each by its own spec."""
    n, wire, p = list_header(b, p)
    if n != len(specs) or (n and wire != 12):
        raise ThriftError(f"a list has {n} elements of wire type {wire}, not {len(specs)} structures")
    _check_space(b, p, n)
    out: list[Fields] = []
    for spec in specs:
        fields, p = struct(b, p, spec)
        out.append(fields)
    return out, p


def _check_space(b: bytes, p: int, n: int) -> None:
    """Raise if ``n`` structures cannot follow."""
    if n * _MIN_STRUCT > len(b) - p:
        raise ThriftError("a list of structures is longer than the data")


def _memorable(b: bytes, p: int, wire: int, kind: Any) -> tuple[Any, int]:
    """Returns the value of a :class:`Memo`; None if it is to be skipped or of another wire type."""
    if type(kind) is list and wire == 9:
        return elements(b, p, kind[0])
    return None, skip(b, p, wire)


def skip(b: bytes, p: int, wire: int, depth: int = 0) -> int:
    """Returns the position after a value of a wire type (as a field's: booleans take no bytes)."""
    if 4 <= wire <= 6:
        while b[p] > 127:
            p += 1
        return p + 1
    if wire == 8:
        n, p = varint(b, p)
        if p + n > len(b):
            raise ThriftError("a string extends past the end of the data")
        return p + n
    if wire == 12:
        return _skip_struct(b, p, depth)
    if wire in (9, 10):
        n, wire, p = list_header(b, p)
        if wire in (1, 2):
            return _within(b, p + n)
        if 4 <= wire <= 6:
            for _ in range(n):
                while b[p] > 127:
                    p += 1
                p += 1
            return p
        if depth >= MAX_DEPTH:
            raise ThriftError("nested too deeply")
        for _ in range(n):
            p = skip(b, p, wire, depth + 1)
        return p
    if wire in (1, 2):
        return p
    if wire == 3:
        return _within(b, p + 1)
    if wire == 7:
        return _within(b, p + 8)
    if wire == 13:
        return _within(b, p + 16)
    if wire == 11:
        return _skip_map(b, p, depth)
    raise ThriftError(f"unknown wire type {wire}")


def _skip_struct(b: bytes, p: int, depth: int) -> int:
    if depth >= MAX_DEPTH:
        raise ThriftError("nested too deeply")
    while h := b[p]:
        p += 1
        if h < 16:
            p = varint(b, p)[1]
        wire = h & 15
        if 4 <= wire <= 6:
            while b[p] > 127:
                p += 1
            p += 1
        else:
            p = skip(b, p, wire, depth + 1)
    return p + 1


def _skip_map(b: bytes, p: int, depth: int) -> int:
    n, p = varint(b, p)
    if not n:
        return p
    if depth >= MAX_DEPTH:
        raise ThriftError("nested too deeply")
    if n > len(b) - p:
        raise ThriftError("a map is longer than the data")
    kinds = b[p]
    p += 1
    for _ in range(n):
        for wire in (kinds >> 4, kinds & 15):
            p = _within(b, p + 1) if wire in (1, 2) else skip(b, p, wire, depth + 1)
    return p


def anything(b: bytes, p: int, wire: int, depth: int) -> tuple[Any, int]:
    """Returns a value of any wire type; lists as lists, structures as dictionaries; maps are refused."""
    if wire in (1, 2):
        return wire == 1, p
    if wire == 3:
        return b[p] - 256 if b[p] > 127 else b[p], p + 1
    if 4 <= wire <= 6:
        n, p = varint(b, p)
        return (n >> 1) ^ -(n & 1), p
    if wire == 8:
        return binary(b, p)
    if depth >= MAX_DEPTH:
        raise ThriftError("nested too deeply")
    if wire == 12:
        out: Fields = {}
        field = 0
        while h := b[p]:
            p += 1
            if h >> 4:
                field += h >> 4
            else:
                n, p = varint(b, p)
                field = (n >> 1) ^ -(n & 1)
            out[field], p = anything(b, p, h & 15, depth + 1)
        return out, p + 1
    end = skip(b, p, wire, depth)
    return b[p:end], end


def _within(b: bytes, p: int) -> int:
    if p > len(b):
        raise ThriftError("a value extends past the end of the data")
    return p
