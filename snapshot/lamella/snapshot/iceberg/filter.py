"""Filters of Iceberg clients: parsed for pruning, and their residual for each block.

Both spellings of the REST specification are accepted; residuals are written in the older one, which all clients read.

Clients differ in which rows a predicate is true for, so each predicate has several readings. A block is kept if any of
them may be true of a row, and a residual omits only what all of them decide equally:

* ``not-eq``, ``not-in`` and ``not-starts-with`` hold for a null in Iceberg's own evaluators, and not in SQL;
* NaN is greater than any number for Spark and for Iceberg's comparators, and compares with nothing in Arrow, where
  ``not-nan`` does not hold for a null either;
* -0.0 is less than 0.0 for Iceberg's comparators, and equal to it in SQL;
* a 32-bit column is compared with a double, or with the double rounded to 32 bits (pyiceberg).

What no reading covers is unknown, and stays in the residual: values that clients read in more ways than these (NaN,
text compared with numbers, times compared with days), and numbers outside of the type's range, for which clients also
decide nulls.

``not`` is removed first, as in these clients, by negating predicates.
"""

from __future__ import annotations

import datetime as dt
import math
import re
import struct
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any, Final

import msgspec
import numpy as np

from lamella.snapshot.columnar import Sidecar
from lamella.snapshot.concurrency import check_deadline
from lamella.snapshot.errors import InvalidFilter, LimitExceeded
from lamella.snapshot.expression import bind
from lamella.snapshot.expression.bound import BoundPredicate
from lamella.snapshot.expression.json_filters import read_tree, shown, wrong
from lamella.snapshot.expression.nodes import (
    MAX_DEPTH,
    MAX_IN_LITERALS,
    MAX_NODES,
    TRUE,
    And,
    Constant,
    IsNan,
    IsNull,
    Not,
    Or,
    Predicate,
    Ref,
    Unknown,
)
from lamella.snapshot.prune.residual import Atom, Shape, simplified, states_of
from lamella.snapshot.prune.result import Indexes
from lamella.snapshot.schema import DataType, Leaf, Schema

_INFINITE: Final = frozenset({"Infinity", "-Infinity"})
_EXPONENT: Final = re.compile(r"[+-]?\d{1,40}(\.\d{1,40})?e[+-]?\d{1,2}", re.ASCII | re.IGNORECASE)
_DAY: Final = re.compile(r"\d{4}-\d{2}-\d{2}", re.ASCII)
_DAYS: Final = DataType("date").int_range
_INT: Final = DataType("int32")
_LONG: Final = DataType("int64")
_FLOAT_MAX: Final = (2 - 2**-23) * 2.0**127
_MIDNIGHT: Final = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_DAY_US: Final = 86_400_000_000


def plain_value(value: Any, path: str) -> Any:
    """Returns a value as a JSON scalar, as the older spelling has it; raises InvalidFilter."""
    if isinstance(value, dict) and value.get("type") == "literal":
        value = value.get("value")
    if isinstance(value, float) and not math.isfinite(value):  # JSON has no numbers for these
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if value is None or isinstance(value, bool | int | float | str):
        return value
    raise wrong(path, "a value must be a JSON scalar or a literal")


def is_doubtful_number(value: Any, dtype: DataType) -> bool:
    """Returns whether clients disagree on a value compared with a numeric column: text, including NaN, and numbers
    outside of Iceberg's type.

    A number outside of the type decides all rows at once, including nulls.
    """
    if isinstance(value, str):
        return dtype.name != "float64" or value not in _INFINITE
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    if dtype.is_float:
        return dtype.bits < 64 and abs(value) > _FLOAT_MAX
    low, high = (_LONG if dtype.bits == 64 else _INT).int_range
    return not low <= value <= high


def is_doubtful_day(value: Any) -> bool:
    """Returns whether a value may be a time: pyiceberg truncates the text of one to its day, and a large number may
    count microseconds."""
    if isinstance(value, str):
        return _DAY.fullmatch(value) is None
    return type(value) is int and not _DAYS[0] <= value <= _DAYS[1]


def is_zero(value: Any) -> bool:
    """Returns whether a value is one of the two zeros."""
    return isinstance(value, int | float) and not isinstance(value, bool) and value == 0


def typed(value: Any, dtype: DataType) -> Any:
    """Converts a value of a request to the form of JSON filters: Java's clients write days and microseconds as bare
    numbers."""
    if type(value) is int:
        if dtype.name == "date":
            return {"type": "literal", "data-type": "date", "value": value}
        if dtype.name in ("timestamp", "timestamp_ntz"):
            return {"type": "literal", "data-type": dtype.name, "value": value}
        if dtype.name == "time" and 0 <= value < _DAY_US:
            return (_MIDNIGHT + dt.timedelta(microseconds=value)).time().isoformat("microseconds")
    if dtype.is_float and isinstance(value, str) and value in _INFINITE:
        return {"type": "literal", "data-type": "double", "value": value}
    if (
        dtype.name == "decimal" and isinstance(value, str) and _EXPONENT.fullmatch(value)
    ):  # Python's spelling of small numbers
        return format(Decimal(value), "f")
    return value


def rounded(value: Any) -> Any:
    """Returns a number of the type's range as the nearest 32-bit number."""
    if not isinstance(value, int | float) or isinstance(value, bool):
        return value
    return float(struct.unpack("<f", struct.pack("<f", value))[0])


# Float comparisons as they are written in residuals.
#
# They contain no infinity: JSON has none, and Java's client fails on its text. The replacement is true for the same
# rows as the comparison in SQL, in Iceberg's evaluators and in Arrow. These differ in the order of NaN, and in whether
# ``not-eq`` is true for a null, so the replacement uses predicates that differ in the same way.
#
# Where NaN is greater than numbers, as in Spark, ``gt`` is true for it, but Iceberg's readers skip row groups by the
# bounds of Parquet footers, which exclude NaN: so the residual requests those rows explicitly. To Arrow ``gt`` is not
# true for NaN; pyiceberg filters rows by its own filter, whatever the residual is.

_INFINITIES: Final = ("Infinity", "-Infinity")
_DOUBLE_MAX: Final = (2 - 2**-52) * 2.0**1023

Node = dict[str, Any]


def for_readers(node: Mapping[str, Any], dtype: DataType) -> Node:
    """Returns a comparison or list of the older spelling in a form for which no reader loses a row."""
    if not dtype.is_float:
        return dict(node)
    written = without_infinity(node, dtype)
    has_nan = node["type"] in ("gt", "gt-eq") and (node["value"] in _INFINITIES or _is_in_range(node["value"], dtype))
    return _either(written, _of("is-nan", node["term"])) if has_nan else written


def _is_in_range(value: Any, dtype: DataType) -> bool:
    """Returns whether a value is a number of the type; for others, clients decide all rows at once."""
    return isinstance(value, int | float) and abs(value) <= (_DOUBLE_MAX if dtype.bits == 64 else _FLOAT_MAX)


def without_infinity(node: Mapping[str, Any], dtype: DataType) -> Node:
    """Returns the equivalent for a column of floats, as an expression whose numbers are finite."""
    term, kind = node["term"], node["type"]
    max_value = _DOUBLE_MAX if dtype.bits == 64 else _FLOAT_MAX
    if "values" in node:
        rest = [value for value in node["values"] if value not in _INFINITIES]
        if len(rest) == len(node["values"]):
            return dict(node)
        connective, single = ("or", "eq") if kind == "in" else ("and", "not-eq")
        parts = [{"type": kind, "term": term, "values": rest}] if rest else []
        parts += [_compared(single, term, sign, max_value) for sign in _INFINITIES if sign in node["values"]]
        return _chained(connective, parts)
    if node.get("value") not in _INFINITIES:
        return dict(node)
    return _compared(kind, term, node["value"], max_value)


def _compared(kind: str, term: str, infinity: str, max_value: float) -> Node:
    if infinity == "-Infinity":
        below, others = _of("lt", term, -max_value), _of("gt-eq", term, -max_value)
        return {
            "lt": _both(below, others),  # nothing is below it
            "lt-eq": below,
            "eq": below,
            "gt": others,
            "gt-eq": _either(others, below),  # including NaN if that is the greatest
            "not-eq": _either(_either(others, _of("is-nan", term)), _null(term)),
        }[kind]
    above, others = _of("gt", term, max_value), _of("lt-eq", term, max_value)
    equal = _both(above, _of("not-nan", term))
    return {
        "lt": others,
        "lt-eq": _either(others, equal),
        "eq": equal,
        "gt": _both(above, _of("is-nan", term)),
        "gt-eq": above,
        "not-eq": _either(_either(others, _of("is-nan", term)), _null(term)),
    }[kind]


def _null(term: str) -> Node:
    """Returns a predicate that is true for a null if ``not-eq`` is."""
    return _both(_of("not-eq", term, 0.5), _of("is-null", term))


def _of(kind: str, term: str, value: float | None = None) -> Node:
    return {"type": kind, "term": term} | ({} if value is None else {"value": value})


def _both(left: Node, right: Node) -> Node:
    return {"type": "and", "left": left, "right": right}


def _either(left: Node, right: Node) -> Node:
    return {"type": "or", "left": left, "right": right}


def _chained(connective: str, parts: list[Node]) -> Node:
    found = parts[0]
    for part in parts[1:]:
        found = {"type": connective, "left": found, "right": part}
    return found


def filter_for(given: object, spoken: Schema, stored: Schema, *, case_sensitive: bool) -> IcebergFilter:
    """Returns the filter of a request with the names of ``spoken``, for a snapshot whose schema is ``stored``.

    A predicate on a column whose name or type differs between the two is not used, and stays in every residual. Raises
    as :func:`lamella.snapshot.iceberg.filter.read_iceberg_filter`.
    """
    read = read_iceberg_filter(given, spoken, case_sensitive=case_sensitive)
    if spoken.columns == stored.columns:
        return read
    then = stored.by_id()
    same = {
        leaf.name if case_sensitive else leaf.name.lower()
        for leaf in spoken.leaves()
        if leaf.id in then and (then[leaf.id].path, then[leaf.id].dtype) == (leaf.path, leaf.dtype)
    }
    leaves = tuple(_for(leaf, same, case_sensitive=case_sensitive) for leaf in read.leaves)
    return msgspec.structs.replace(read, leaves=leaves, predicate=predicate_of(read.shape, leaves))


def _for(leaf: IcebergLeaf, same: set[str], *, case_sensitive: bool) -> IcebergLeaf:
    name = leaf.node.get("term")
    if isinstance(name, str) and (name if case_sensitive else name.lower()) in same:
        return leaf
    text = f"{name} {leaf.node['type']}"
    return msgspec.structs.replace(leaf, readings=(Unknown(text, "the column is a different one in that snapshot"),))


_OPPOSITES: Final = {
    **{"lt": "gt-eq", "gt": "lt-eq", "eq": "not-eq", "in": "not-in", "is-null": "not-null", "is-nan": "not-nan"},
    "starts-with": "not-starts-with",
}
_NEGATED: Final = _OPPOSITES | {other: one for one, other in _OPPOSITES.items()}
#: They are true for a null in Iceberg's evaluators.
_NULL_MATCHES: Final = frozenset({"not-eq", "not-in", "not-starts-with"})
_UNARY: Final = frozenset({"is-null", "not-null", "is-nan", "not-nan"})
_SETS: Final = frozenset({"in", "not-in"})
_RANGES: Final = frozenset({"lt", "lt-eq", "gt", "gt-eq"})
_PREFIXES: Final = frozenset({"starts-with", "not-starts-with"})


class IcebergLeaf(msgspec.Struct, frozen=True):
    """One predicate: its form in a residual, and all its readings."""

    node: Mapping[str, Any]
    readings: tuple[Predicate, ...]


class IcebergFilter(msgspec.Struct, frozen=True):
    """A filter. ``shape``: its connectives, over indexes of ``leaves``; ``predicate``: true wherever any reading is."""

    shape: Shape
    leaves: tuple[IcebergLeaf, ...]
    predicate: Predicate

    @property
    def size_bytes(self) -> int:
        """Returns the length of the whole filter as a residual, which is the maximum."""
        return len(msgspec.json.encode(self.residual(self.shape)))

    def residual(self, shape: Shape) -> bool | dict[str, Any]:
        """Returns a part of the filter as JSON in the older spelling, with two sides per connective."""
        if isinstance(shape, bool) or shape is None:
            return bool(shape)
        if isinstance(shape, Atom):
            return dict(self.leaves[shape.number].node)
        kind, parts = shape
        return _joined(kind, [self.residual(part) for part in parts])


def read_iceberg_filter(given: Any, schema: Schema, *, case_sensitive: bool = True) -> IcebergFilter:
    """Parses the filter of a plan request (None: every row) over a table's columns.

    Raises:
        InvalidFilter: invalid grammar; ``position`` is a JSON path.
        UnknownColumn: it names a column that does not exist.
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
                f"the filter is nested deeper than {MAX_DEPTH} levels", limit="filter_depth", maximum=MAX_DEPTH
            )
        if isinstance(node, bool):
            return node is not negated
        if not isinstance(node, dict) or not isinstance(node.get("type"), str):
            raise wrong(path, "an expression must be true, false or an object with a type")
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
        """Returns the parts of a connective. Clients chain many of them on the left, which does not count as
        nesting."""
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
        """Connectives count too: each has a path, whose length grows with its depth in a chain."""
        check_deadline()
        self._nodes += 1
        if self._nodes > MAX_NODES:
            raise LimitExceeded(
                f"the filter has more than {MAX_NODES} predicates", limit="filter_predicates", maximum=MAX_NODES
            )

    def _leaf(self, kind: str, node: dict[str, Any], path: str) -> Atom:
        self.leaves.append(self._read(kind, node, path))
        return Atom(len(self.leaves) - 1)

    def _read(self, kind: str, node: dict[str, Any], path: str) -> IcebergLeaf:
        """Reads one predicate; ``kind`` is its type after the surrounding negations."""
        operand = next((name for name in ("term", "left", "child") if name in node), None)
        if operand is None:
            raise wrong(path, f"{kind} requires 'term'")
        name = self._column(node[operand], f"{path}.{operand}")
        if name is None:
            text, written = f"{kind} of {shown(node[operand])}", {**node, "type": kind}
            return IcebergLeaf(written, (Unknown(text, "column transforms are not used"),))
        leaf = self._schema.find(name, case_sensitive=self._case_sensitive)
        given = {"type": kind, "term": name}
        if kind in _UNARY:
            return IcebergLeaf(given, _readings(kind, given, leaf, ()))
        if kind in _SETS:
            values = node.get("values", node.get("right"))
            values = values.get("values") if isinstance(values, dict) else values
            if not isinstance(values, list):
                raise wrong(f"{path}.values", "a list of values is required")
            if len(values) > MAX_IN_LITERALS:
                raise LimitExceeded(
                    f"IN lists may have {MAX_IN_LITERALS} values", limit="in_values", maximum=MAX_IN_LITERALS
                )
            plain = [plain_value(value, f"{path}.values[{index}]") for index, value in enumerate(values)]
            return _known({**given, "values": plain}, leaf, plain, name)
        side = "value" if "value" in node else "right"
        value = _member(node, side, path)
        if isinstance(value, dict) and value.get("type") != "literal":
            text = f"{name} {kind} another term"
            return IcebergLeaf(
                {**node, "type": kind}, (Unknown(text, "only comparisons with values are used", (name,)),)
            )
        plain = [plain_value(value, f"{path}.{side}")]
        return _known({**given, "value": plain[0]}, leaf, plain, name)

    def _column(self, term: Any, path: str) -> str | None:
        """Returns the name of the column that a term is; None for a function of one."""
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
        raise wrong(path, "a term must be a column name, a reference or a transform")


def _known(node: dict[str, Any], leaf: Leaf | None, values: list[Any], name: str) -> IcebergLeaf:
    kind = str(node["type"])
    if None in values:  # pyiceberg writes infinity as null; it applies its own filter to the rows anyway
        reason = "a null value cannot be compared (infinity is written as null)"
        return IcebergLeaf({"type": "not-null", "term": name}, (Unknown(f"{name} {kind} null", reason, (name,)),))
    written = node if leaf is None else for_readers(node, leaf.dtype)
    return IcebergLeaf(written, _readings(kind, node, leaf, tuple(values)))


def _readings(kind: str, node: dict[str, Any], leaf: Leaf | None, values: tuple[Any, ...]) -> tuple[Predicate, ...]:
    """Returns all readings of a predicate on a column (``leaf`` None: a nested one)."""
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
        if kind == "not-nan":  # in Arrow it is null for a null
            found += [And((Not(IsNull(term)), each)) for each in found]
        if kind in ("gt", "gt-eq"):
            found += [And((each, Not(IsNan(term)))) for each in found]
        if any(is_zero(value) for value in values):
            found.append(_with_other_zero(kind, term, given))
    if kind in _NULL_MATCHES:
        found += [Or((IsNull(term), each)) for each in found]
    return tuple(dict.fromkeys(found))


def _doubt(kind: str, dtype: DataType, values: tuple[Any, ...]) -> str | None:
    """Returns why clients may read a predicate in a way that is not covered; None if they do not."""
    if dtype.name == "uuid" and kind in _RANGES:
        return "clients differ in how they order values of type uuid"
    if kind in _PREFIXES and not dtype.is_text:
        return "prefixes are only supported for text"
    if (dtype.is_float or dtype.is_integer) and any(is_doubtful_number(value, dtype) for value in values):
        return "clients differ in how they read this number: NaN, text, or a value outside the type"
    if dtype.name == "date" and any(map(is_doubtful_day, values)):
        return "this may not be a date: clients truncate times to days, or count microseconds"
    return None


def _test(kind: str, term: Ref, values: list[Any]) -> Predicate:
    node: dict[str, Any] = {"type": kind, "term": term.path}
    if kind in _SETS:
        node["values"] = values
    elif kind not in _UNARY:
        node["value"] = values[0]
    return read_tree(node)


def _with_other_zero(kind: str, term: Ref, values: list[Any]) -> Predicate:
    """Returns the reading in which one zero is less than the other, so that for equal ones either result is
    possible."""
    if kind in _RANGES:
        return _test({"lt": "lt-eq", "lt-eq": "lt", "gt": "gt-eq", "gt-eq": "gt"}[kind], term, values)
    others = [value for value in values if not is_zero(value)]
    return _test("not-in" if kind in _NULL_MATCHES else "in", term, others)


def predicate_of(shape: Shape, leaves: Sequence[IcebergLeaf]) -> Predicate:
    """Returns what may be true of a row: at least one reading of each leaf that the connectives need."""
    if shape is None or isinstance(shape, bool):
        return TRUE if shape else Constant(False)
    if isinstance(shape, Atom):
        readings = leaves[shape.number].readings
        return readings[0] if len(readings) == 1 else Or(readings)
    kind, parts = shape
    children = tuple(predicate_of(part, leaves) for part in parts)
    return And(children) if kind == "and" else Or(children)


def _connected(kind: str, parts: list[Shape]) -> Shape:
    """Returns a connective; nested ones of the same kind are flattened."""
    flat: list[Shape] = []
    for part in parts:
        flat += part[1] if isinstance(part, tuple) and part[0] == kind else (part,)
    return kind, tuple(flat)


def _joined(kind: str, parts: list[Any]) -> dict[str, Any]:
    """Nests a connective with two sides of about the same length each, so that no client recurses deeply."""
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


class IcebergResiduals:
    """The residuals of one filter, each as JSON text that is created once."""

    def __init__(self, filter: IcebergFilter, schema: Schema, *, case_sensitive: bool = True) -> None:
        """Raises FilterTypeMismatch or UnknownColumn for a filter that does not fit the columns."""
        self._filter = filter
        self._bound: list[list[BoundPredicate]] = [
            [bind(reading, schema, case_sensitive=case_sensitive) for reading in leaf.readings]
            for leaf in filter.leaves
        ]
        self._texts: dict[Shape, msgspec.Raw] = {}

    def of(self, sidecar: Sidecar, rows: Indexes) -> list[bool | msgspec.Raw]:
        """Returns the residual of each of a sidecar's ``rows``: True nothing is left, False no row can match, or
        JSON."""
        states = states_of(self._bound, sidecar)[rows]
        vectors, inverse = np.unique(states, axis=0, return_inverse=True)
        left = [self._text(simplified(self._filter.shape, vector.tolist())) for vector in vectors]
        return [left[number] for number in inverse.reshape(-1).tolist()]

    def _text(self, shape: Shape) -> bool | msgspec.Raw:
        if shape is None or isinstance(shape, bool):
            return bool(shape)
        found = self._texts.get(shape)
        if found is None:
            found = self._texts[shape] = msgspec.Raw(msgspec.json.encode(self._filter.residual(shape)))
        return found
