"""Filters of Iceberg clients: read for pruning, and what is left of them spelled for these clients.

Both spellings of the REST specification are read; what is left is written in the older one, which all clients read.

Clients differ in which rows a predicate is true for, so each predicate has several readings. A block is kept if any of
them may be true of a row, and only what all of them decide alike is left out of a residual:

* ``not-eq``, ``not-in`` and ``not-starts-with`` hold for a null in Iceberg's own evaluators, and not in SQL;
* NaN is greater than any number for Spark and for Iceberg's comparators, and compares with nothing in Arrow, where
  ``not-nan`` does not hold for a null either;
* -0.0 is less than 0.0 for Iceberg's comparators, and equal to it in SQL;
* a 32-bit column is compared with a double, or with the double rounded to 32 bits (pyiceberg).

What no reading covers is unknown, and stays: values that clients read in more ways than these (NaN, text beside
numbers, times beside days), and numbers that the type does not have, by which they decide nulls too.

``not`` is taken away as these clients do it, by the opposite predicate, before anything is read.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from lamella.snapshot.errors import InvalidFilter, LimitExceeded
from lamella.snapshot.expression.json_literal import shown, wrong
from lamella.snapshot.expression.limits import MAX_DEPTH, MAX_IN_LITERALS, MAX_NODES
from lamella.snapshot.expression.nodes import TRUE, And, Constant, IsNan, IsNull, Not, Or, Predicate, Ref, Unknown
from lamella.snapshot.expression.tree import read_tree
from lamella.snapshot.iceberg.float_terms import for_readers
from lamella.snapshot.iceberg.value import is_doubtful_day, is_doubtful_number, is_zero, plain_value, rounded, typed
from lamella.snapshot.patience import check_patience
from lamella.snapshot.prune.residual import Atom, Shape
from lamella.snapshot.schema import DataType, Leaf, Schema

_OPPOSITES: Final = {
    **{"lt": "gt-eq", "gt": "lt-eq", "eq": "not-eq", "in": "not-in", "is-null": "not-null", "is-nan": "not-nan"},
    "starts-with": "not-starts-with",
}
_NEGATED: Final = _OPPOSITES | {other: one for one, other in _OPPOSITES.items()}
#: They hold for a null where Iceberg evaluates them.
_NULL_MATCHES: Final = frozenset({"not-eq", "not-in", "not-starts-with"})
_UNARY: Final = frozenset({"is-null", "not-null", "is-nan", "not-nan"})
_SETS: Final = frozenset({"in", "not-in"})
_RANGES: Final = frozenset({"lt", "lt-eq", "gt", "gt-eq"})
_PREFIXES: Final = frozenset({"starts-with", "not-starts-with"})


class IcebergLeaf(msgspec.Struct, frozen=True):
    """One predicate: as it is written in a residual, and everything that it may mean."""

    node: Mapping[str, Any]
    readings: tuple[Predicate, ...]


class IcebergFilter(msgspec.Struct, frozen=True):
    """A filter. ``shape``: its connectives, over numbers of ``leaves``; ``predicate``: true wherever any reading is."""

    shape: Shape
    leaves: tuple[IcebergLeaf, ...]
    predicate: Predicate

    @property
    def size_bytes(self) -> int:
        """How long the whole of it is as a residual; none is longer."""
        return len(msgspec.json.encode(self.residual(self.shape)))

    def residual(self, shape: Shape) -> bool | dict[str, Any]:
        """A part of the filter as JSON in the older spelling, connectives with two sides each."""
        if isinstance(shape, bool) or shape is None:
            return bool(shape)
        if isinstance(shape, Atom):
            return dict(self.leaves[shape.number].node)
        kind, parts = shape
        return _joined(kind, [self.residual(part) for part in parts])


def read_iceberg_filter(given: Any, schema: Schema, *, case_sensitive: bool = True) -> IcebergFilter:
    """The filter of a plan request (None: every row) over a table's columns.

    Raises:
        InvalidFilter: not of the grammar; ``position`` is a JSON path.
        UnknownColumn: it names a column that is not there.
        LimitExceeded: deeper or with more predicates or values than allowed.
    """
    reader = _Reader(schema, case_sensitive=case_sensitive)
    shape = True if given is None else reader.shape(given, "$", 1, negated=False)
    return IcebergFilter(shape, tuple(reader.leaves), predicate_of(shape, reader.leaves))


class _Reader:
    def __init__(self, schema: Schema, *, case_sensitive: bool) -> None:
        self._schema = schema
        self._case_sensitive = case_sensitive
        self._nodes = 0
        self.leaves: list[IcebergLeaf] = []

    def shape(self, node: Any, path: str, depth: int, *, negated: bool) -> Shape:
        self._count()
        if depth > MAX_DEPTH:
            raise LimitExceeded(
                f"the filter is nested deeper than {MAX_DEPTH} levels", limit="filter_depth", most=MAX_DEPTH
            )
        if isinstance(node, bool):
            return node is not negated
        if not isinstance(node, dict) or not isinstance(node.get("type"), str):
            raise wrong(path, "an expression is true, false or an object with a type")
        kind = node["type"].lower().replace("_", "-")
        if kind in ("true", "false"):
            return (kind == "true") is not negated
        if kind == "not":
            return self.shape(_member(node, "child", path), f"{path}.child", depth + 1, negated=not negated)
        if kind in ("and", "or"):
            parts = self._sides(node, path, depth, negated=negated)
            return _connected("and" if (kind == "and") is not negated else "or", parts)
        if kind not in _NEGATED:
            raise wrong(f"{path}.type", f"unknown expression type {shown(node['type'])}")
        return self._leaf(_NEGATED[kind] if negated else kind, node, path)

    def _sides(self, node: dict[str, Any], path: str, depth: int, *, negated: bool) -> list[Shape]:
        """The parts of a connective. Clients chain many of them on the left, which is no nesting."""
        rights: list[Shape] = []
        kind = node["type"]
        while True:
            rights.append(self.shape(_member(node, "right", path), f"{path}.right", depth + 1, negated=negated))
            node, path = _member(node, "left", path), f"{path}.left"
            if not isinstance(node, dict) or node.get("type") != kind:
                break
            self._count()
        return [self.shape(node, path, depth + 1, negated=negated), *reversed(rights)]

    def _count(self) -> None:
        """Connectives count too: each has a path, which is the longer the deeper in a chain it stands."""
        check_patience()
        self._nodes += 1
        if self._nodes > MAX_NODES:
            raise LimitExceeded(
                f"the filter has more than {MAX_NODES} predicates", limit="filter_predicates", most=MAX_NODES
            )

    def _leaf(self, kind: str, node: dict[str, Any], path: str) -> Atom:
        self.leaves.append(self._read(kind, node, path))
        return Atom(len(self.leaves) - 1)

    def _read(self, kind: str, node: dict[str, Any], path: str) -> IcebergLeaf:
        """One predicate, of which ``kind`` is its type after the negations around it."""
        place = next((name for name in ("term", "left", "child") if name in node), None)
        if place is None:
            raise wrong(path, f"{kind} needs 'term'")
        name = self._column(node[place], f"{path}.{place}")
        if name is None:
            text, written = f"{kind} of {shown(node[place])}", {**node, "type": kind}
            return IcebergLeaf(written, (Unknown(text, "transforms of columns are not used"),))
        leaf = self._schema.find(name, case_sensitive=self._case_sensitive)
        given = {"type": kind, "term": name}
        if kind in _UNARY:
            return IcebergLeaf(given, _readings(kind, given, leaf, ()))
        if kind in _SETS:
            values = node.get("values", node.get("right"))
            values = values.get("values") if isinstance(values, dict) else values
            if not isinstance(values, list):
                raise wrong(f"{path}.values", "a list of values is needed")
            if len(values) > MAX_IN_LITERALS:
                raise LimitExceeded(
                    f"IN lists may have {MAX_IN_LITERALS} values", limit="in_values", most=MAX_IN_LITERALS
                )
            plain = [plain_value(value, f"{path}.values[{index}]") for index, value in enumerate(values)]
            return _known({**given, "values": plain}, leaf, plain, name)
        side = "value" if "value" in node else "right"
        value = _member(node, side, path)
        if isinstance(value, dict) and value.get("type") != "literal":
            text = f"{name} {kind} another term"
            return IcebergLeaf({**node, "type": kind}, (Unknown(text, "only values are compared with", (name,)),))
        plain = [plain_value(value, f"{path}.{side}")]
        return _known({**given, "value": plain[0]}, leaf, plain, name)

    def _column(self, term: Any, path: str) -> str | None:
        """The name of the column that a term is; None for a function of one."""
        if isinstance(term, str) and term:
            return term
        if isinstance(term, dict):
            if term.get("type") != "reference":
                if isinstance(term.get("type"), str):
                    return None
            elif isinstance(term.get("name"), str):
                return str(term["name"])
            elif isinstance(term.get("term"), str):
                return str(term["term"])
            elif type(term.get("id")) is int:
                found = self._schema.paths().get(term["id"])
                if found is None:
                    raise wrong(path, f"there is no column with id {term['id']}")
                return ".".join(found)
        raise wrong(path, "a term is a column's name, a reference or a transform")


def _known(node: dict[str, Any], leaf: Leaf | None, values: list[Any], name: str) -> IcebergLeaf:
    kind = str(node["type"])
    if None in values:  # pyiceberg writes infinity so, and reads no null; it asks its own filter of the rows anyway
        reason = "a null value says nothing (infinity is written so)"
        return IcebergLeaf({"type": "not-null", "term": name}, (Unknown(f"{name} {kind} null", reason, (name,)),))
    written = node if leaf is None else for_readers(node, leaf.dtype)
    return IcebergLeaf(written, _readings(kind, node, leaf, tuple(values)))


def _readings(kind: str, node: dict[str, Any], leaf: Leaf | None, values: tuple[Any, ...]) -> tuple[Predicate, ...]:
    """Everything that a predicate on a column may mean (``leaf`` None: one that is nested)."""
    term = Ref(str(node["term"]))
    if leaf is None:
        return (read_tree(node),)
    doubt = _doubt(kind, leaf.dtype, values)
    if doubt is not None:
        return (Unknown(f"{term.path} {kind}", doubt, (term.path,)),)
    given = [typed(value, leaf.dtype) for value in values]
    found = [_test(kind, term, given)]
    if leaf.dtype.is_float:
        if leaf.dtype.bits < 64 and values:
            found.append(_test(kind, term, [rounded(value) for value in given]))
        if kind == "not-nan":  # to Arrow it is null for a null
            found += [And((Not(IsNull(term)), each)) for each in found]
        if kind in ("gt", "gt-eq"):
            found += [And((each, Not(IsNan(term)))) for each in found]
        if any(is_zero(value) for value in values):
            found.append(_with_other_zero(kind, term, given))
    if kind in _NULL_MATCHES:
        found += [Or((IsNull(term), each)) for each in found]
    return tuple(dict.fromkeys(found))


def _doubt(kind: str, dtype: DataType, values: tuple[Any, ...]) -> str | None:
    """Why clients may mean things by a predicate that no reading covers; None: they do not."""
    if dtype.name == "uuid" and kind in _RANGES:
        return "clients order values of type uuid in two ways"
    if kind in _PREFIXES and not dtype.is_text:
        return "only text has prefixes"
    if (dtype.is_float or dtype.is_integer) and any(is_doubtful_number(value, dtype) for value in values):
        return "clients differ on this number: NaN, text, or one that the type does not have"
    if dtype.name == "date" and any(map(is_doubtful_day, values)):
        return "this is not surely a day: clients cut times to days, or count microseconds"
    return None


def _test(kind: str, term: Ref, values: list[Any]) -> Predicate:
    node: dict[str, Any] = {"type": kind, "term": term.path}
    if kind in _SETS:
        node["values"] = values
    elif kind not in _UNARY:
        node["value"] = values[0]
    return read_tree(node)


def _with_other_zero(kind: str, term: Ref, values: list[Any]) -> Predicate:
    """The reading in which one zero is less than the other, so that of equal ones each may be meant or not."""
    if kind in _RANGES:
        return _test({"lt": "lt-eq", "lt-eq": "lt", "gt": "gt-eq", "gt-eq": "gt"}[kind], term, values)
    others = [value for value in values if not is_zero(value)]
    return _test("not-in" if kind in _NULL_MATCHES else "in", term, others)


def predicate_of(shape: Shape, leaves: Sequence[IcebergLeaf]) -> Predicate:
    """What may be true of a row: at least one reading of each leaf that the connectives need."""
    if shape is None or isinstance(shape, bool):
        return TRUE if shape else Constant(False)
    if isinstance(shape, Atom):
        readings = leaves[shape.number].readings
        return readings[0] if len(readings) == 1 else Or(readings)
    kind, parts = shape
    children = tuple(predicate_of(part, leaves) for part in parts)
    return And(children) if kind == "and" else Or(children)


def _connected(kind: str, parts: list[Shape]) -> Shape:
    """A connective; one inside of another of its kind is made part of that."""
    flat: list[Shape] = []
    for part in parts:
        flat += part[1] if isinstance(part, tuple) and part[0] == kind else (part,)
    return kind, tuple(flat)


def _joined(kind: str, parts: list[Any]) -> dict[str, Any]:
    """Two sides each, halves of about the same length, so that no client recurses deep."""
    if len(parts) == 1:
        return dict(parts[0])
    middle = len(parts) // 2
    left, right = parts[:middle], parts[middle:]
    return {
        "type": kind,
        "left": _joined(kind, left) if len(left) > 1 else left[0],
        "right": _joined(kind, right) if len(right) > 1 else right[0],
    }


def _member(node: dict[str, Any], name: str, path: str) -> Any:
    if name not in node:
        raise InvalidFilter(f"{node['type']} needs {name!r} (at {path})", position=path)
    return node[name]
