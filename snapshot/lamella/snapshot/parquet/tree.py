"""A file's schema: the flat list of schema elements as columns of ours, and its leaves in file order.

Lists and maps lose the extra levels that Parquet gives them, in today's three-level form and in the legacy ones
(LogicalTypes.md, "Backward-compatibility rules"): ``tags.list.element`` and ``tags.array`` both become the column
``tags`` of type list with one field ``element``.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from lamella.snapshot.errors import CorruptParquet
from lamella.snapshot.parquet.logical import LIST, MAP, VARIANT, leaf_type
from lamella.snapshot.schema import Column, DataType

_MAX_DEPTH: Final = 64
_REQUIRED: Final = 0
_REPEATED: Final = 2

_Element = dict[int, Any]


class FileLeaf(msgspec.Struct, frozen=True, kw_only=True):
    """One leaf of a file.

    ``path`` is the column's path in our form; the parts of an ``opaque`` column (a variant, or a group whose logical
    type is not known) share its path. ``file_path`` is the path as column chunks give it.
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
    numbers: tuple[int | None, ...] = ()  # what the writer numbered each part of ``path``

    @property
    def name(self) -> str:
        """The path with dots."""
        return ".".join(self.path)

    @property
    def field_id(self) -> int | None:
        """What the writer numbered the column, if it did."""
        return self.numbers[-1] if self.numbers else None


class FileSchema(msgspec.Struct, frozen=True, kw_only=True):
    """``columns`` have no ids yet; ``doubled`` are names that occur twice beside each other."""

    columns: tuple[Column, ...]
    leaves: tuple[FileLeaf, ...]
    doubled: tuple[str, ...]


def build(elements: list[_Element]) -> FileSchema:
    """Read the depth-first list of SchemaElements (fields by id).

    Raises:
        CorruptParquet: counts that do not add up, unknown physical or repetition types, names that are not UTF-8,
            annotations that do not fit, nesting beyond 64 levels.
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


class _Place(msgspec.Struct, frozen=True):
    """What the way down to a node says of the leaves below it."""

    path: tuple[str, ...] = ()
    nullable: bool = False
    repeated: bool = False
    opaque: Column | None = None  # the column that hides all below it
    numbers: tuple[int | None, ...] = ()

    def below(self, name: str, optional: bool, number: int | None) -> _Place:
        """One level down; what is hidden stays at the place of the column that hides it."""
        if self.opaque is not None:
            return self
        numbers = (*self.numbers, number)
        return _Place((*self.path, name), self.nullable or optional, self.repeated, numbers=numbers)

    def in_list(self) -> _Place:
        """Inside a list or map."""
        if self.opaque is not None:
            return self
        return _Place(self.path, self.nullable, True, numbers=self.numbers)


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
        columns = self._columns(top, _Place())
        leaves = tuple(self._leaves[i] for i in range(len(self._leaf_nodes)))
        return FileSchema(columns=columns, leaves=leaves, doubled=tuple(self._doubled))

    def _bounded(self, count: int) -> int:
        if count > len(self._elements):
            raise CorruptParquet("a group counts more children than the schema has elements")
        return count

    def _node(self, above: tuple[bytes, ...], max_def: int, max_rep: int, depth: int) -> _Node:
        """The element at hand with everything below it."""
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

    def _columns(self, nodes: list[_Node], place: _Place) -> tuple[Column, ...]:
        names: set[str] = set()
        for node in nodes:
            if node.name in names:
                self._doubled.append(".".join((*place.path, node.name)))
            names.add(node.name)
        return tuple(self._column(node, node.name, place) for node in nodes)

    def _column(self, node: _Node, name: str, place: _Place, *, nullable: bool | None = None) -> Column:
        """The column that a node is, under another ``name`` inside lists and maps."""
        if node.repetition == _REPEATED and nullable is None:
            # Repeated without an annotation: a required list of required elements.
            element = self._column(node, "element", place.below(name, False, None).in_list(), nullable=False)
            return Column(name=name, type="list", nullable=False, fields=(element,))
        optional = node.repetition != _REQUIRED if nullable is None else nullable
        here = place.below(name, optional, node.element.get(9))
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
        self._columns(node.children, _Place(here.path, here.nullable, here.repeated, hidden, here.numbers))
        return column

    def _element(self, node: _Node, place: _Place) -> Column:
        """The element of a LIST group."""
        repeated = node.children[0]
        if repeated.is_leaf or len(repeated.children) > 1 or repeated.children[0].repetition == _REPEATED:
            return self._column(repeated, "element", place, nullable=False)
        if repeated.name in ("array", f"{node.name}_tuple"):
            return self._column(repeated, "element", place, nullable=False)
        return self._column(repeated.children[0], "element", place)

    def _leaf(self, node: _Node, name: str, place: _Place, optional: bool) -> Column:
        _, file_path, max_def, max_rep = self._leaf_nodes[node.leaf]
        dtype = leaf_type(node.element, ".".join(part.decode("utf-8") for part in file_path))
        self._leaves[node.leaf] = FileLeaf(
            path=place.path,
            file_path=file_path,
            dtype=place.opaque.dtype if place.opaque else dtype,
            physical=node.element[1],
            type_length=node.element.get(2, 0),
            max_def=max_def,
            max_rep=max_rep,
            nullable=place.nullable,
            repeated=place.repeated,
            opaque=place.opaque is not None,
            numbers=place.numbers,
        )
        return Column(name=name, type=str(dtype), nullable=optional)


def _group_kind(node: _Node) -> str:
    """``struct``, ``list``, ``map``, or the type of an opaque group."""
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
