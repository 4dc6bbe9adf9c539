"""A Parquet file's schema: its elements, their types, and the columns that they become."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Literal

import msgspec

from lamella.snapshot.errors import CorruptParquet
from lamella.snapshot.schema import Column, DataType
from lamella.snapshot.schema.types import collations_in, may_name_collations

BOOLEAN: Final = 0
INT32: Final = 1
INT64: Final = 2
INT96: Final = 3
FLOAT: Final = 4
DOUBLE: Final = 5
BYTE_ARRAY: Final = 6
FIXED: Final = 7

PHYSICAL: Final = (
    "BOOLEAN",
    "INT32",
    "INT64",
    "INT96",
    "FLOAT",
    "DOUBLE",
    "BYTE_ARRAY",
    "FIXED_LEN_BYTE_ARRAY",
)

# Member ids of the union LogicalType.
MAP: Final = 2
LIST: Final = 3
VARIANT: Final = 16

_BINARY: Final = (BYTE_ARRAY, FIXED)
_UNITS: Final[dict[int, Literal["ms", "us", "ns"]]] = {1: "ms", 2: "us", 3: "ns"}
_PLAIN: Final = ("boolean", "int32", "int64", "timestamp", "float32", "float64", "binary", "fixed")

#: Logical types without parameters: our name, and the physical types that may carry them.
_SIMPLE: Final[dict[int, tuple[str, tuple[int, ...]]]] = {
    1: ("string", _BINARY),
    4: ("enum", _BINARY),
    6: ("date", (INT32,)),
    11: ("null", tuple(range(8))),
    12: ("json", _BINARY),
    13: ("bson", _BINARY),
    14: ("uuid", (FIXED,)),
    15: ("float16", (FIXED,)),
    17: ("geometry", _BINARY),
    18: ("geography", _BINARY),
}
#: Widths of these types if they are of fixed length, in bytes.
_WIDTH: Final = {"uuid": 16, "float16": 2, "interval": 12}

#: Converted types by the logical type that replaced them; the rest is in :func:`_converted`.
_CONVERTED_SIMPLE: Final = {0: 1, 4: 4, 6: 6, 19: 12, 20: 13}
_CONVERTED_INTEGERS: Final = {11 + i: (8 << i, False) for i in range(4)} | {15 + i: (8 << i, True) for i in range(4)}

_Element = dict[int, Any]


def leaf_type(element: _Element, name: str) -> DataType:
    """Returns the type of a leaf. An unknown logical type gives ``unknown``: no order, hence no bounds.

    ``element`` holds the fields of a SchemaElement by id: 1 physical type, 2 type_length, 6 converted type, 7 scale, 8
    precision, 10 logical type.

    Raises:
        CorruptParquet: the annotation cannot stand on that physical type.
    """
    physical = element[1]
    length = element.get(2, 0)
    if physical == FIXED and not 0 < length < 1 << 31:
        raise CorruptParquet(f"column {name!r} has a fixed length of {length} bytes", column=name)
    logical = element.get(10)
    if isinstance(logical, dict) and len(logical) == 1:
        ((member, details),) = logical.items()
        found = _logical(member, details if isinstance(details, dict) else {}, element, name)
    elif logical is not None:
        found = DataType("unknown")
    elif element.get(6) is not None:
        found = _converted(element[6], element, name)
    elif physical == FIXED:
        found = DataType("fixed", length=length)
    else:
        found = DataType(_PLAIN[physical])
    width = _WIDTH.get(found.name)
    if width is not None and length != width:
        raise CorruptParquet(f"column {name!r}: {found} has a length of {length} bytes", column=name)
    return found


def _logical(member: int, details: _Element, element: _Element, name: str) -> DataType:
    if member in _SIMPLE:
        ours, allowed = _SIMPLE[member]
        _need(element, allowed, ours, name)
        return DataType(ours, length=16) if ours == "uuid" else DataType(ours)
    if member == 5:
        return _decimal(details.get(2), details.get(1, 0), element, name)
    if member in (7, 8):
        unit_union = details.get(2)
        unit = _UNITS.get(next(iter(unit_union))) if isinstance(unit_union, dict) and len(unit_union) == 1 else None
        if unit is None:
            return DataType("unknown")
        if member == 7:
            _need(element, (INT32,) if unit == "ms" else (INT64,), f"time({unit})", name)
            return DataType("time", unit=unit)
        _need(element, (INT64,), f"timestamp({unit})", name)
        adjusted = details.get(1)
        if not isinstance(adjusted, bool):
            return DataType("unknown")
        return DataType("timestamp" if adjusted else "timestamp_ntz", unit=unit)
    if member == 10:
        return _integer(details.get(1), details.get(2), element, name)
    return DataType("unknown")


def _converted(converted: int, element: _Element, name: str) -> DataType:
    if converted in _CONVERTED_SIMPLE:
        return _logical(_CONVERTED_SIMPLE[converted], {}, element, name)
    if converted == 5:
        return _decimal(element.get(8), element.get(7, 0), element, name)
    if converted in (7, 8):
        _need(element, (INT32,) if converted == 7 else (INT64,), "time", name)
        return DataType("time", unit="ms" if converted == 7 else "us")
    if converted in (9, 10):
        _need(element, (INT64,), "timestamp", name)
        return DataType("timestamp", unit="ms" if converted == 9 else "us")
    if converted in _CONVERTED_INTEGERS:
        return _integer(*_CONVERTED_INTEGERS[converted], element, name)
    if converted == 21:
        _need(element, (FIXED,), "interval", name)
        return DataType("interval")
    return DataType("unknown")


def _integer(bits: Any, signed: Any, element: _Element, name: str) -> DataType:
    if bits not in (8, 16, 32, 64) or not isinstance(signed, bool):
        raise CorruptParquet(f"column {name!r} is an integer of {bits} bits", column=name)
    _need(element, (INT64,) if bits == 64 else (INT32,), f"{bits}-bit integer", name)
    return DataType(f"{'int' if signed else 'uint'}{bits}")


def _decimal(precision: Any, scale: Any, element: _Element, name: str) -> DataType:
    _need(element, (INT32, INT64, *_BINARY), "decimal", name)
    if not isinstance(precision, int) or not isinstance(scale, int) or precision < 1 or not 0 <= scale <= precision:
        raise CorruptParquet(f"column {name!r} is a decimal({precision},{scale})", column=name)
    if precision > 76:  # more than our own types allow; the values stay readable, but without bounds
        return DataType("unknown")
    return DataType("decimal", precision=precision, scale=scale)


def _need(element: _Element, allowed: tuple[int, ...], what: str, name: str) -> None:
    if element[1] not in allowed:
        raise CorruptParquet(f"column {name!r}: {what} cannot be stored as {PHYSICAL[element[1]]}", column=name)


_ROW_METADATA: Final = "org.apache.spark.sql.parquet.row.metadata"


def collation_problem(properties: Mapping[str, str]) -> str | None:
    """Returns why the texts of a file with these properties must not be compared as bytes; None if they may.

    Spark writes such columns like any text, with the bounds of their bytes, and restores the collation when it reads
    the file without a schema.
    """
    text = properties.get(_ROW_METADATA)
    if text is None or not may_name_collations(text):
        return None
    try:
        found = collations_in(msgspec.json.decode(text))
    except (ValueError, RecursionError):  # msgspec's errors are ValueErrors
        return "Spark's schema in the footer has collations, and cannot be parsed"
    if not found:
        return None
    listed = ", ".join(f"{path!r} ({collation})" for path, collation in list(found.items())[:10])
    return f"Lamella compares text by its bytes, but the file has collations: {listed}"


_MAX_DEPTH: Final = 64
# A file's schema: the flat list of schema elements as a tree of columns, and its leaves in file order.
#
# Lists and maps lose the extra levels that Parquet gives them, in the current three-level form and in the legacy ones
# (LogicalTypes.md, "Backward-compatibility rules"): ``tags.list.element`` and ``tags.array`` both become the column
# ``tags`` of type list with one field ``element``.

_REQUIRED: Final = 0
_REPEATED: Final = 2


class FileLeaf(msgspec.Struct, frozen=True, kw_only=True):
    """One leaf of a file.

    ``path`` is the column's path in our form; the parts of an ``opaque`` column (a variant, or a group with an unknown
    logical type) share its path, and its type; ``stored`` is the leaf's own. ``file_path`` is the path in column
    chunks.
    """

    path: tuple[str, ...]
    file_path: tuple[bytes, ...]
    dtype: DataType
    physical: int
    type_length: int
    max_def: int
    max_rep: int
    nullable: bool
    repeated: bool  # the column is below a list or map
    opaque: bool
    stored: DataType = DataType("unknown")
    numbers: tuple[int | None, ...] = ()  # the writer's field id of each part of ``path``

    @property
    def name(self) -> str:
        """Returns the dotted path."""
        return ".".join(self.path)

    @property
    def field_id(self) -> int | None:
        """Returns the writer's field id of the column, if it has one."""
        return self.numbers[-1] if self.numbers else None


class FileSchema(msgspec.Struct, frozen=True, kw_only=True):
    """``columns`` have no ids yet; ``doubled`` are names that occur twice among siblings."""

    columns: tuple[Column, ...]
    leaves: tuple[FileLeaf, ...]
    doubled: tuple[str, ...]


def build(elements: list[_Element]) -> FileSchema:
    """Read the depth-first list of SchemaElements (fields by id).

    Raises:
        CorruptParquet: inconsistent counts, unknown physical or repetition types, names that are not UTF-8, annotations
            that do not fit, nesting beyond 64 levels.
    """
    return _Builder(elements).build()


class _Node(msgspec.Struct):
    """A schema element with its children."""

    name: str
    element: _Element
    repetition: int
    children: list[_Node]
    leaf: int = -1  # index of a leaf

    @property
    def is_leaf(self) -> bool:
        return self.leaf >= 0


class _Nesting(msgspec.Struct, frozen=True):
    """What the path to a node determines for the leaves below it."""

    path: tuple[str, ...] = ()
    nullable: bool = False
    repeated: bool = False
    opaque: Column | None = None  # the column that hides everything below it
    numbers: tuple[int | None, ...] = ()

    def below(self, name: str, optional: bool, number: int | None) -> _Nesting:
        """Returns the state one level down; below a hiding column the path stays that of the column."""
        if self.opaque is not None:
            return self
        numbers = (*self.numbers, number)
        return _Nesting((*self.path, name), self.nullable or optional, self.repeated, numbers=numbers)

    def in_list(self) -> _Nesting:
        """Returns the state inside a list or map."""
        if self.opaque is not None:
            return self
        return _Nesting(self.path, self.nullable, True, numbers=self.numbers)


class _Builder:
    def __init__(self, elements: list[_Element]) -> None:
        self._elements = elements
        self._at = 0
        self._leaf_nodes: list[tuple[_Node, tuple[bytes, ...], int, int]] = []  # node, path, max_def, max_rep
        self._leaves: dict[int, FileLeaf] = {}
        self._doubled: list[str] = []

    def build(self) -> FileSchema:
        if not self._elements:
            raise CorruptParquet("the schema is empty")
        count = self._elements[0].get(5, 0)
        if self._elements[0].get(1) is not None or count < 0:
            raise CorruptParquet("the schema's root is not a group")
        self._at = 1
        top = [self._node((), 0, 0, 1) for _ in range(self._bounded(count))]
        if self._at != len(self._elements):
            raise CorruptParquet("the schema has elements outside its root")
        columns = self._columns(top, _Nesting())
        leaves = tuple(self._leaves[i] for i in range(len(self._leaf_nodes)))
        return FileSchema(columns=columns, leaves=leaves, doubled=tuple(self._doubled))

    def _bounded(self, count: int) -> int:
        if count > len(self._elements):
            raise CorruptParquet("a group has more children than the schema has elements")
        return count

    def _node(self, above: tuple[bytes, ...], max_def: int, max_rep: int, depth: int) -> _Node:
        """Reads the current element with everything below it."""
        if self._at >= len(self._elements):
            raise CorruptParquet("the schema ends inside a group")
        if depth > _MAX_DEPTH:
            raise CorruptParquet("the schema is nested too deeply")
        element = self._elements[self._at]
        self._at += 1
        raw = element.get(4)
        try:
            name = raw.decode("utf-8") if raw is not None else None
        except UnicodeDecodeError:
            name = None
        if raw is None or name is None:
            raise CorruptParquet(f"a column's name is not UTF-8: {raw!r}")
        repetition = element.get(3)
        if repetition not in (0, 1, 2):
            raise CorruptParquet(f"column {name!r} has repetition type {repetition}", column=name)
        path = (*above, raw)
        max_def += repetition != _REQUIRED
        max_rep += repetition == _REPEATED
        physical, count = element.get(1), element.get(5)
        node = _Node(name, element, repetition, [])
        if physical is None:
            if count is None or count <= 0:
                raise CorruptParquet(f"column {name!r} has neither a type nor children", column=name)
            node.children = [self._node(path, max_def, max_rep, depth + 1) for _ in range(self._bounded(count))]
            return node
        if not 0 <= physical <= 7 or count:
            raise CorruptParquet(f"column {name!r} has physical type {physical}, {count} children", column=name)
        node.leaf = len(self._leaf_nodes)
        self._leaf_nodes.append((node, path, max_def, max_rep))
        return node

    def _columns(self, nodes: list[_Node], nesting: _Nesting) -> tuple[Column, ...]:
        names: set[str] = set()
        for node in nodes:
            if node.name in names:
                self._doubled.append(".".join((*nesting.path, node.name)))
            names.add(node.name)
        return tuple(self._column(node, node.name, nesting) for node in nodes)

    def _column(self, node: _Node, name: str, nesting: _Nesting, *, nullable: bool | None = None) -> Column:
        """Returns the column of a node, under another ``name`` inside lists and maps."""
        if node.repetition == _REPEATED and nullable is None:
            # Repeated without an annotation: a required list of required elements.
            element = self._column(node, "element", nesting.below(name, False, None).in_list(), nullable=False)
            return Column(name=name, type="list", nullable=False, fields=(element,))
        optional = node.repetition != _REQUIRED if nullable is None else nullable
        here = nesting.below(name, optional, node.element.get(9))
        if node.is_leaf:
            return self._leaf(node, name, here, optional)
        kind = _group_kind(node)
        if kind == "list":
            return Column(name=name, type="list", nullable=optional, fields=(self._element(node, here.in_list()),))
        if kind == "map":
            key, value = node.children[0].children
            inside = here.in_list()
            fields = (self._column(key, "key", inside), self._column(value, "value", inside))
            return Column(name=name, type="map", nullable=optional, fields=fields)
        if kind == "struct":
            return Column(name=name, type="struct", nullable=optional, fields=self._columns(node.children, here))
        column = Column(name=name, type=kind, nullable=optional)
        hidden = here.opaque or column
        self._columns(node.children, _Nesting(here.path, here.nullable, here.repeated, hidden, here.numbers))
        return column

    def _element(self, node: _Node, nesting: _Nesting) -> Column:
        """Returns the element of a LIST group."""
        repeated = node.children[0]
        if repeated.is_leaf or len(repeated.children) > 1 or repeated.children[0].repetition == _REPEATED:
            return self._column(repeated, "element", nesting, nullable=False)
        if repeated.name in ("array", f"{node.name}_tuple"):
            return self._column(repeated, "element", nesting, nullable=False)
        return self._column(repeated.children[0], "element", nesting)

    def _leaf(self, node: _Node, name: str, nesting: _Nesting, optional: bool) -> Column:
        _, file_path, max_def, max_rep = self._leaf_nodes[node.leaf]
        dtype = leaf_type(node.element, ".".join(part.decode("utf-8") for part in file_path))
        self._leaves[node.leaf] = FileLeaf(
            path=nesting.path,
            file_path=file_path,
            dtype=nesting.opaque.dtype if nesting.opaque else dtype,
            physical=node.element[1],
            type_length=node.element.get(2, 0),
            max_def=max_def,
            max_rep=max_rep,
            nullable=nesting.nullable,
            repeated=nesting.repeated,
            opaque=nesting.opaque is not None,
            stored=dtype,
            numbers=nesting.numbers,
        )
        return Column(name=name, type=str(dtype), nullable=optional)


def _group_kind(node: _Node) -> str:
    """Returns ``struct``, ``list``, ``map``, or the type of an opaque group."""
    logical, converted = node.element.get(10), node.element.get(6)
    if isinstance(logical, dict) and len(logical) == 1:
        (member,) = logical
    elif logical is not None:
        member = -1
    elif converted is None:
        return "struct"
    else:
        member = {1: MAP, 2: MAP, 3: LIST}.get(converted, -1)
    if member == VARIANT:
        return "variant"
    if member in (LIST, MAP) and len(node.children) == 1 and node.children[0].repetition == _REPEATED:
        if member == LIST:
            return "list"
        if len(node.children[0].children) == 2:
            return "map"
    return "unknown"
