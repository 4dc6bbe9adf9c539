"""Tables' schemas: a tree of columns that are known by id, so that a rename or a reorder moves no statistics."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec

from lamella.snapshot.errors import InvalidSchema, UnknownColumn
from lamella.snapshot.schema.types import DataType, parse_type

_CHILDREN = {"list": ("element",), "map": ("key", "value")}


class Column(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A column, or a field inside one.

    ``type`` is a type's text; ``struct``, ``list`` (one field ``element``) and ``map`` (``key``, ``value``)
    carry their parts in ``fields``. ``id`` 0 means: not yet given (:meth:`Schema.assign` gives it).
    """

    name: str
    type: str
    id: int = 0
    nullable: bool = True
    fields: tuple[Column, ...] = ()
    doc: str | None = None

    @property
    def dtype(self) -> DataType:
        """The parsed type."""
        return parse_type(self.type)


class Leaf(msgspec.Struct, frozen=True):
    """A column that holds values: its id, path, type, and whether it can repeat within a row (below a list or map)."""

    id: int
    path: tuple[str, ...]
    dtype: DataType
    nullable: bool
    repeated: bool

    @property
    def name(self) -> str:
        """The path with dots."""
        return ".".join(self.path)


class Schema(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The columns of a snapshot; ``last_column_id`` is the greatest id ever given in the table."""

    columns: tuple[Column, ...]
    schema_id: int = 0
    last_column_id: int = 0

    @classmethod
    def assign(cls, columns: Iterable[Column], *, last_column_id: int = 0) -> Schema:
        """A schema in which every column without an id gets the next free one, depth first.

        Raises:
            InvalidSchema: no columns, doubled names (without regard to case) or ids, wrong children.
        """
        columns = tuple(columns)
        taken = [c.id for c in _walk(columns) if c.id]
        counter = max([last_column_id, *taken])

        def number(column: Column) -> Column:
            nonlocal counter
            given = column.id
            if not given:
                counter += 1
                given = counter
            fields = tuple(number(f) for f in column.fields)
            return msgspec.structs.replace(column, id=given, type=str(column.dtype), fields=fields)

        numbered = tuple(number(c) for c in columns)
        schema = cls(columns=numbered, last_column_id=counter)
        schema.check()
        return schema

    def check(self) -> None:
        """Raise :class:`InvalidSchema` when the schema breaks its own rules."""
        if not self.columns:
            raise InvalidSchema("a schema needs at least one column")
        seen: set[int] = set()
        for column in _walk(self.columns):
            if column.id <= 0 or column.id in seen:
                raise InvalidSchema(f"column {column.name!r} has no id of its own", column=column.name)
            seen.add(column.id)
            if not column.name:
                raise InvalidSchema("a column needs a name")
            kind = column.dtype.name
            names = tuple(f.name for f in column.fields)
            wanted = _CHILDREN.get(kind)
            if (wanted is not None and names != wanted) or (kind == "struct") != (bool(names) and wanted is None):
                raise InvalidSchema(f"column {column.name!r} of type {kind} has fields {names}", column=column.name)
        for siblings in _levels(self.columns):
            lowered = [c.name.lower() for c in siblings]
            doubled = {c.name for c in siblings if lowered.count(c.name.lower()) > 1}
            if doubled:
                raise InvalidSchema(f"column names are not unique: {sorted(doubled)}", columns=sorted(doubled))

    def leaves(self) -> tuple[Leaf, ...]:
        """Every column that holds values, depth first."""
        return tuple(_leaves(self.columns, (), repeated=False, nullable=False))

    def leaf(self, path: str, *, case_sensitive: bool = False) -> Leaf:
        """The leaf at a dotted path.

        A column whose own name holds dots is found by its whole name first.

        Raises:
            UnknownColumn: nothing there, more than one, or a struct, list or map.
        """
        found = self.find(path, case_sensitive=case_sensitive)
        if found is None:
            raise UnknownColumn(f"column {path!r} is nested; name one of its fields", column=path)
        return found

    def find(self, path: str, *, case_sensitive: bool = False) -> Leaf | None:
        """As :meth:`leaf`, but None for a struct, list or map, and for what SQL finds inside a list or map.

        Raises:
            UnknownColumn: nothing there, or more than one.
        """
        wanted = path if case_sensitive else path.lower()
        names = [(leaf, leaf.name if case_sensitive else leaf.name.lower()) for leaf in self.leaves()]
        found = [leaf for leaf, name in names if name == wanted]
        if len(found) == 1:
            return found[0]
        if found:
            raise UnknownColumn(f"column {path!r} is ambiguous", column=path)
        if any(name.startswith(wanted + ".") for _, name in names):
            return None
        if _reaches_into(self.columns, wanted, case_sensitive=case_sensitive):
            return None  # map.key is an entry of the map, list.field the list of the elements' fields
        raise UnknownColumn(f"there is no column {path!r}", column=path, columns=[c.name for c in self.columns])

    def select(self, names: Iterable[str], *, case_sensitive: bool = False) -> tuple[int, ...]:
        """The ids of the leaves below the named columns or fields; raises UnknownColumn."""
        chosen: dict[int, None] = {}
        for name in names:
            wanted = name if case_sensitive else name.lower()
            found = [
                leaf.id
                for leaf in self.leaves()
                if ((path := leaf.name if case_sensitive else leaf.name.lower()) == wanted)
                or path.startswith(wanted + ".")
            ]
            if not found:
                raise UnknownColumn(f"there is no column {name!r}", column=name)
            chosen.update(dict.fromkeys(found))
        return tuple(chosen)

    def by_id(self) -> dict[int, Leaf]:
        """The leaves by column id."""
        return {leaf.id: leaf for leaf in self.leaves()}


def _reaches_into(columns: Iterable[Column], path: str, *, case_sensitive: bool) -> bool:
    """True when a dotted path goes on behind a list or map."""
    for column in columns:
        name = column.name if case_sensitive else column.name.lower()
        if column.dtype.is_nested and path.startswith(name + "."):
            below = path[len(name) + 1 :]
            if column.dtype.name != "struct" or _reaches_into(column.fields, below, case_sensitive=case_sensitive):
                return True
    return False


def _walk(columns: Iterable[Column]) -> Iterator[Column]:
    for column in columns:
        yield column
        yield from _walk(column.fields)


def _levels(columns: tuple[Column, ...]) -> Iterator[tuple[Column, ...]]:
    yield columns
    for column in columns:
        if column.fields:
            yield from _levels(column.fields)


def _leaves(columns: Iterable[Column], path: tuple[str, ...], *, repeated: bool, nullable: bool) -> Iterator[Leaf]:
    for column in columns:
        here = (*path, column.name)
        dtype = column.dtype
        optional = nullable or column.nullable
        if dtype.is_nested:
            below = repeated or dtype.name in ("list", "map")
            yield from _leaves(column.fields, here, repeated=below, nullable=optional)
        else:
            yield Leaf(column.id, here, dtype, optional, repeated)
