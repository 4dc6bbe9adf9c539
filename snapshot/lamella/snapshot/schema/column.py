"""Table schemas: a tree of columns with ids, their default values, and the columns that can be in a cluster key."""

from __future__ import annotations

import datetime as dt
import math
import re
import struct
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from decimal import Context, Decimal, InvalidOperation
from functools import cached_property
from operator import itemgetter
from types import MappingProxyType
from typing import Annotated, Final

import msgspec
from msgspec import Meta

from lamella.snapshot.concurrency import check_deadline
from lamella.snapshot.errors import InvalidSchema, LimitExceeded, UnknownColumn
from lamella.snapshot.html_tables import html_table
from lamella.snapshot.near_names import did_you_mean
from lamella.snapshot.schema.types import PER_SECOND, DataType, TextLength, canonical_type, parse_type, text_length
from lamella.snapshot.variant.paths import path_text, variant_steps

# Default values of columns: what a row of a file that lacks the column holds there.
#
# A default is kept as text, the same in manifests and over HTTP:
#
# - booleans ``true``, ``false``; numbers in digits (``5``, ``-1.50``, ``0.1``; no NaN, no infinity);
# - dates ``2024-01-31``; times ``12:30:00.5``; timestamps ``2024-01-31T12:30:00Z`` (with a zone),
#   timestamp_ntz ``2024-01-31T12:30:00`` (without); parts of a second down to microseconds;
# - text as it is; binary, fixed and uuid as hexadecimal digits (a uuid also with dashes).

_EPOCH_DAY: Final = dt.date(1970, 1, 1)
_EPOCH: Final = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_MICROSECOND: Final = dt.timedelta(microseconds=1)
_FINE: Final = re.compile(r"\.[0-9]{7,}")
_FLOAT_CODES: Final = {16: "<e", 32: "<f", 64: "<d"}
_DIGITS: Final = Context(prec=100)
_MAX_TEXT: Final = 1_000


def default_value(dtype: DataType, text: str) -> int | float | bytes:
    """Returns the value of a default in its type's order (see :mod:`lamella.snapshot.schema.types`).

    Raises:
        InvalidSchema: the text is not a value of the type, or the type cannot have a default.
    """
    if len(text) > _MAX_TEXT:
        raise InvalidSchema(f"a default has at most {_MAX_TEXT} characters", type=str(dtype))
    try:
        value = _read(dtype, text)
    except (ValueError, InvalidOperation, OverflowError) as error:
        raise InvalidSchema(f"{text!r} is not a value of type {dtype}", type=str(dtype)) from error
    if value is None:
        raise InvalidSchema(f"a column of type {dtype} cannot have a default", type=str(dtype))
    if isinstance(value, int):
        low, high = dtype.int_range
        if not low <= value <= high:
            raise InvalidSchema(f"{text!r} is outside the range of {dtype}", type=str(dtype))
    return value


def canonical_default(dtype: DataType, text: str, column: str) -> str:
    """Returns the normalized spelling of a default that manifests store; raises InvalidSchema that names the column."""
    try:
        value = default_value(dtype, text)
    except InvalidSchema as error:
        raise InvalidSchema(f"the default of column {column!r}: {error.message}", column=column) from error
    return _written(dtype, value)


def stored_default(column: Column, text: str) -> str:
    """Returns the normalized spelling of a default of a column, padded if its type is ``char(n)``; raises InvalidSchema
    that names the column."""
    written = canonical_default(column.dtype, text, column.name)
    length = column.text_length
    fitted = written if length is None else length.fit(written)
    if fitted is None:
        raise InvalidSchema(
            f"the default of column {column.name!r}: {text!r} is too long for {column.type}", column=column.name
        )
    return fitted


def _read(dtype: DataType, text: str) -> int | float | bytes | None:
    """Returns the value, None if the type cannot have a default."""
    if dtype.order is None:
        return None
    if dtype.name == "boolean":
        return {"true": 1, "false": 0}[text.lower()] if text.lower() in ("true", "false") else _refuse()
    if dtype.is_float:
        code = _FLOAT_CODES[dtype.bits]
        rounded: float = struct.unpack(code, struct.pack(code, float(text)))[0]
        return rounded if math.isfinite(rounded) else _refuse()
    if dtype.name == "date":
        return (dt.date.fromisoformat(text) - _EPOCH_DAY).days
    if dtype.name in ("time", "timestamp", "timestamp_ntz"):
        return _moment(dtype, text)
    if dtype.is_text:
        return text.encode("utf-8")
    if dtype.order == "bytes":
        raw = bytes.fromhex(text.replace("-", "") if dtype.name == "uuid" else text)
        return raw if dtype.length in (0, len(raw)) else _refuse()
    number = Decimal(text)
    if not number.is_finite() or number.adjusted() >= _DIGITS.prec:
        return _refuse()
    scaled = _DIGITS.scaleb(number, dtype.scale)
    return int(scaled) if scaled == int(scaled) else _refuse()


def _moment(dtype: DataType, text: str) -> int:
    if _FINE.search(text):
        raise ValueError("finer than a microsecond")
    if dtype.name == "time":
        at = dt.time.fromisoformat(text)
        if at.tzinfo is not None:
            raise ValueError("a time of day has no time zone")
        micros = ((at.hour * 60 + at.minute) * 60 + at.second) * 10**6 + at.microsecond
    else:
        moment = dt.datetime.fromisoformat(text)
        if (moment.tzinfo is not None) != (dtype.name == "timestamp"):
            raise ValueError("a timestamp has a time zone, a timestamp_ntz has none")
        micros = (moment.replace(tzinfo=moment.tzinfo or dt.UTC) - _EPOCH) // _MICROSECOND
    scaled = micros * PER_SECOND[dtype.unit]
    return scaled // 10**6 if scaled % 10**6 == 0 else _refuse()


def _written(dtype: DataType, value: int | float | bytes) -> str:
    if isinstance(value, bytes):
        return value.decode("utf-8") if dtype.is_text else value.hex()
    if isinstance(value, float):
        return repr(value)
    if dtype.name == "boolean":
        return "true" if value else "false"
    if dtype.name == "date":
        return (_EPOCH_DAY + dt.timedelta(days=value)).isoformat()
    if dtype.name in ("time", "timestamp", "timestamp_ntz"):
        moment = _EPOCH + value * 10**6 // PER_SECOND[dtype.unit] * _MICROSECOND
        if dtype.name == "time":
            return moment.time().isoformat()
        naive = moment.replace(tzinfo=None).isoformat()
        return naive + "Z" if dtype.name == "timestamp" else naive
    return format(_DIGITS.scaleb(Decimal(value), -dtype.scale), "f") if dtype.scale else str(value)


def _refuse() -> int:
    raise ValueError("not a value of the type")


#: Columns of a schema, including nested ones.
MAX_COLUMNS: Final = 20_000
#: Characters of a column's name, type and comment.
MAX_CHARACTERS: Final = 1_024
MAX_DOC_CHARACTERS: Final = 65_536

_CHILDREN = {"list": ("element",), "map": ("key", "value")}
_PART: Final = re.compile(r"`((?:[^`]|``)+)`|([^`.]+)")


def quoted(name: str) -> str:
    """Returns a name as an identifier of Spark's SQL, in backquotes."""
    return "`" + name.replace("`", "``") + "`"


def quoted_path(parts: Iterable[str]) -> str:
    """Returns a path as text: parts separated by dots; a part with a dot or a backquote is quoted with backquotes."""
    return ".".join(quoted(part) if "." in part or "`" in part else part for part in parts)


def split_key(text: str) -> tuple[str, ...]:
    """Returns the terms of a key in one text, between commas that are not inside parentheses or quotes."""
    found: list[str] = []
    start, depth, quote = 0, 0, ""
    for at, sign in enumerate(text):
        if quote:
            quote = "" if sign == quote else quote
        elif sign in "'\"`":
            quote = sign
        elif sign == "," and depth == 0:
            found.append(text[start:at].strip())
            start = at + 1
        else:
            depth += (sign == "(") - (sign == ")")
    found.append(text[start:].strip())
    return tuple(filter(None, found))


def path_parts(path: str) -> tuple[str, ...] | None:
    """Parses a path as Spark does: dots separate, backquotes quote. None for text that is not a path."""
    if "`" not in path:
        return tuple(path.split("."))
    parts: list[str] = []
    at = 0
    while match := _PART.match(path, at):
        parts.append(match[2] if match[1] is None else match[1].replace("``", "`"))
        at = match.end() + 1
        if match.end() == len(path):
            return tuple(parts)
        if path[match.end()] != ".":
            return None
    return None


class Column(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A column, or a field inside one.

    ``type`` is a type's text, of which ``varchar(n)`` and ``char(n)`` are strings of that length; ``struct``, ``list``
    (one field ``element``) and ``map`` (``key``, ``value``) have their parts in ``fields``, and ``variant`` its
    shredded fields, which are named by their paths (``$.a.b``). ``id`` 0 means not yet assigned (:meth:`Schema.assign`
    assigns it).

    ``default``: the value of every row of a file that lacks the column, as text (see docs/schema.md); None: such rows
    are null. ``write_default``: what writers put into rows that come without the column, if that is another value;
    None: nothing. Only columns of the top level have one.
    """

    name: str
    type: str
    id: int = 0
    nullable: bool = True
    fields: tuple[Column, ...] = ()
    doc: str | None = None
    default: str | None = None
    write_default: str | msgspec.UnsetType | None = msgspec.UNSET

    @property
    def dtype(self) -> DataType:
        """Returns the parsed type."""
        return parse_type(self.type)

    @property
    def text_length(self) -> TextLength | None:
        """Returns how long its text is; None: it has no text, or of any length."""
        return text_length(self.type)

    @property
    def default_of_new_rows(self) -> str | None:
        """Returns what writers put into rows that come without the column; None: nothing."""
        return self.default if self.write_default is msgspec.UNSET else self.write_default


def _with_depth(columns: Iterable[Column], depth: int) -> Iterator[tuple[Column, int]]:
    for column in columns:
        yield column, depth
        yield from _with_depth(column.fields, depth + 2)


ConstraintName = Annotated[str, Meta(max_length=255)]
ConstraintCondition = Annotated[str, Meta(max_length=65_536)]
ZoneName = Annotated[str, Meta(max_length=64)]


class Check(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """A CHECK constraint: ``condition``, SQL text in the language of filters, is not false for any row.

    ``time_zone``: of dates and times without one in the condition.
    """

    name: ConstraintName
    condition: ConstraintCondition
    time_zone: ZoneName = "UTC"


class Leaf(msgspec.Struct, frozen=True, cache_hash=True, gc=False):
    """A column with values: its id, path, type, and whether it can repeat within a row (below a list or map).

    ``default``: see :class:`Column`. ``shredded``: it is a field of a variant, whose values are in columns of their own
    only in some files; its statistics are of the values as ``variant_get`` returns them.
    """

    id: int
    path: tuple[str, ...]
    dtype: DataType
    nullable: bool
    repeated: bool
    default: str | None = None
    shredded: bool = False

    @property
    def name(self) -> str:
        """Returns the dotted path."""
        return ".".join(self.path)

    @property
    def reference(self) -> str:
        """Returns the path in a form that :meth:`Schema.find` always resolves: names with dots or backquotes are
        quoted."""
        return quoted_path(self.path)


class Schema(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, dict=True):
    """The columns of a snapshot; ``last_column_id`` is the greatest id ever assigned in the table.

    No two schemas of a table have the same ``schema_id``. ``extra_columns``: files that were written with it may have
    other columns, which readers ignore; otherwise such files are refused, except for top-level columns with one of the
    names ``ignored_columns``.

    ``checks``: what is true of all rows; every writer checks new ones.
    """

    columns: tuple[Column, ...]
    schema_id: int = 0
    last_column_id: int = 0
    extra_columns: bool = False
    ignored_columns: tuple[str, ...] = ()
    checks: tuple[Check, ...] = ()

    def _repr_html_(self) -> str:
        """Returns the columns as a table, for notebooks; fields of structs are indented."""
        rows = [
            (" " * depth + column.name, column.type, "" if column.nullable else "NOT NULL", column.doc or "")
            for column, depth in _with_depth(self.columns, 0)
        ]
        return html_table(f"Schema {self.schema_id}", ("column", "type", "", "comment"), rows)

    @classmethod
    def assign(cls, columns: Iterable[Column], *, last_column_id: int = 0) -> Schema:
        """Returns a schema in which every column without an id gets the next free one, depth first.

        Raises:
            InvalidSchema: no columns, duplicate names (ignoring case) or ids, wrong children.
            LimitExceeded: too many columns, or a name, type or comment that is too long.
        """
        columns = tuple(columns)
        _check_size(columns)
        taken = [c.id for c in _walk(columns) if c.id]
        counter = max([last_column_id, *taken])

        def number(column: Column) -> Column:
            nonlocal counter
            given = column.id
            if not given:
                counter += 1
                given = counter
            fields = tuple(number(f) for f in column.fields)
            if column.dtype.name == "variant":
                fields = tuple(_with_usual_path(f) for f in fields)
            default = column.default and stored_default(column, column.default)
            written = column.write_default
            if written:
                written = stored_default(column, written)
            return msgspec.structs.replace(
                column,
                id=given,
                type=canonical_type(column.type),
                fields=fields,
                default=default,
                write_default=msgspec.UNSET if written == default else written,
            )

        numbered = tuple(number(c) for c in columns)
        schema = cls(columns=numbered, last_column_id=counter)
        schema.check()
        return schema

    def check(self) -> None:
        """Raise :class:`InvalidSchema` if the schema is inconsistent."""
        if not self.columns:
            raise InvalidSchema("a schema needs at least one column")
        seen: set[int] = set()
        for column in _walk(self.columns):
            if column.id <= 0 or column.id in seen:
                raise InvalidSchema(f"column {column.name!r} has no unique id", column=column.name)
            seen.add(column.id)
            if not column.name:
                raise InvalidSchema("a column needs a name")
            kind = column.dtype.name
            names = tuple(f.name for f in column.fields)
            wanted = _CHILDREN.get(kind)
            if kind == "variant":
                _check_shredding(column)
            elif (wanted is not None and names != wanted) or (kind == "struct") != (bool(names) and wanted is None):
                raise InvalidSchema(f"column {column.name!r} of type {kind} has fields {names}", column=column.name)
            for default in (column.default, column.default_of_new_rows):
                if default is not None:
                    stored_default(column, default)
        below = [column for top in self.columns for column in _walk(top.fields)]
        nested = [column.name for column in below if (column.default, column.write_default) != (None, msgspec.UNSET)]
        if nested:
            raise InvalidSchema("only columns of the top level can have a default", column=nested[0])
        for siblings in _levels(self.columns):
            counts = Counter(c.name.lower() for c in siblings)
            doubled = {c.name for c in siblings if counts[c.name.lower()] > 1}
            if doubled:
                raise InvalidSchema(f"column names are not unique: {sorted(doubled)}", columns=sorted(doubled))

    def leaves(self) -> tuple[Leaf, ...]:
        """Returns every leaf column, depth first, without the shredded fields of variants."""
        return self._leaves

    def shredded_leaves(self) -> tuple[Leaf, ...]:
        """Returns the shredded fields of all variants, depth first."""
        return self._shredded_leaves

    def leaves_with_statistics(self) -> tuple[Leaf, ...]:
        """Returns every leaf column and then the shredded fields of variants: everything that has statistics."""
        return (*self._leaves, *self._shredded_leaves)

    def without_shredding(self) -> Schema:
        """Returns the schema for filters that are evaluated row by row, for which shredded fields are no columns."""
        return self._without_shredding

    def leaf(self, path: str, *, case_sensitive: bool = False) -> Leaf:
        """Returns the leaf at a path: dots separate its parts, and a part in backquotes may contain dots (as in Spark).

        A path without backquotes that names no leaf this way is matched with the full names of leaves.

        Raises:
            UnknownColumn: no such column, more than one, or a struct, list or map.
        """
        found = self.find(path, case_sensitive=case_sensitive)
        if found is None:
            raise UnknownColumn(f"column {path!r} is nested; use one of its fields", column=path)
        return found

    def find(self, path: str, *, case_sensitive: bool = False) -> Leaf | None:
        """Like :meth:`leaf`, but returns None for a struct, list or map, and for columns inside a list or map.

        Raises:
            UnknownColumn: no such column, or more than one.
        """
        names = self._names_as_written if case_sensitive else self._lowered_names
        wanted = path if case_sensitive else path.lower()
        parts = path_parts(wanted)
        if parts is not None:
            name = ".".join(parts)
            for known, leaf in names.leaves.get(name, ()):
                if known == parts:
                    return leaf
            if parts in names.above or any(parts[:end] in names.repeating for end in range(1, len(parts))):
                return None  # map.key is an entry of the map, list.field the list of the elements' fields
        if parts is None or "`" not in wanted:
            found = names.leaves.get(wanted, ())
            if len(found) == 1:
                return found[0][1]
            if found:
                raise UnknownColumn(f"column {path!r} is ambiguous", column=path)
            if wanted in names.dotted_above:
                return None
        near = did_you_mean(path, [leaf.name for leaf in self._leaves])
        raise UnknownColumn(f"there is no column {path!r}", column=path, columns=[c.name for c in self.columns], **near)

    def select(self, names: Iterable[str], *, case_sensitive: bool = False) -> tuple[int, ...]:
        """Returns the ids of the leaves below the named columns or fields; raises UnknownColumn."""
        known = self._names_as_written if case_sensitive else self._lowered_names
        chosen: dict[int, None] = {}
        for name in dict.fromkeys(names):
            check_deadline()
            wanted = name if case_sensitive else name.lower()
            parts = path_parts(wanted)
            found = [] if parts is None else known.below(parts)
            if not found and (parts is None or "`" not in wanted):
                found = known.below_text(wanted)
            if not found:
                near = did_you_mean(name, [leaf.name for leaf in self._leaves])
                raise UnknownColumn(f"there is no column {name!r}", column=name, **near)
            chosen.update((self._leaves[number].id, None) for number in found)
        return tuple(chosen)

    def by_id(self) -> Mapping[int, Leaf]:
        """Returns the leaves by column id, and the shredded fields of variants."""
        return self._by_id

    @property
    def has_constraints(self) -> bool:
        """Returns whether writers must check more than types and nulls."""
        return bool(self.checks or self.text_lengths)

    @property
    def text_lengths(self) -> Mapping[int, TextLength]:
        """Returns how long text is, by the ids of the columns of which that is given."""
        return self._text_lengths

    @property
    def required_ids(self) -> frozenset[int]:
        """Returns the ids of the columns that may not be null, also of fields in structs, lists and maps."""
        return self._required_ids

    def paths(self) -> Mapping[int, tuple[str, ...]]:
        """Returns the path of every column by its id, including structs, lists and maps."""
        return self._paths

    # A schema never changes, and a prune uses it several times: derived values are cached next to the fields.

    @cached_property
    def _leaves(self) -> tuple[Leaf, ...]:
        return tuple(_leaves(self.columns, (), repeated=False, nullable=False))

    @cached_property
    def _by_id(self) -> Mapping[int, Leaf]:
        return MappingProxyType({leaf.id: leaf for leaf in self.leaves_with_statistics()})

    @cached_property
    def _shredded_leaves(self) -> tuple[Leaf, ...]:
        return tuple(_shredded(self.columns, (), repeated=False))

    @cached_property
    def _without_shredding(self) -> Schema:
        return msgspec.structs.replace(self, columns=_whole(self.columns)) if self._shredded_leaves else self

    @cached_property
    def _required_ids(self) -> frozenset[int]:
        return frozenset(column.id for column in _walk(self.columns) if not column.nullable)

    @cached_property
    def _text_lengths(self) -> Mapping[int, TextLength]:
        lengths = {column.id: column.text_length for column in _walk(self.columns)}
        return MappingProxyType({column_id: length for column_id, length in lengths.items() if length is not None})

    @cached_property
    def _paths(self) -> Mapping[int, tuple[str, ...]]:
        return MappingProxyType(dict(_paths(self.columns, ())))

    @cached_property
    def _names_as_written(self) -> _Names:
        return _Names([leaf.path for leaf in self._leaves], self._leaves, _repeating(self.columns, ()))

    @cached_property
    def _lowered_names(self) -> _Names:
        paths = [_lowered(leaf.path) for leaf in self._leaves]
        return _Names(paths, self._leaves, map(_lowered, _repeating(self.columns, ())))


class _Names:
    """Indexes for looking columns up by name.

    ``leaves``: the leaves by dotted path; ``above``: the paths of the columns that contain them, ``repeating`` those of
    lists and maps.
    """

    def __init__(
        self, paths: Sequence[tuple[str, ...]], leaves: Iterable[Leaf], repeating: Iterable[tuple[str, ...]]
    ) -> None:
        self.leaves: dict[str, tuple[tuple[tuple[str, ...], Leaf], ...]] = {}
        self.above: set[tuple[str, ...]] = set()
        self.repeating = frozenset(repeating)
        self._paths = paths
        for path, leaf in zip(paths, leaves, strict=True):
            name = ".".join(path)
            self.leaves[name] = (*self.leaves.get(name, ()), (path, leaf))
            end = len(path) - 1
            while end and path[:end] not in self.above:
                self.above.add(path[:end])
                end -= 1

    @cached_property
    def dotted_above(self) -> frozenset[str]:
        """Returns ``above`` as dotted paths."""
        return frozenset(".".join(path) for path in self.above)

    def below(self, parts: tuple[str, ...]) -> list[int]:
        """Returns the numbers of the leaves whose paths begin with these parts, in order."""
        first = bisect_left(self._ordered, parts, key=itemgetter(0))
        behind = bisect_left(self._ordered, (*parts[:-1], parts[-1] + "\0"), lo=first, key=itemgetter(0))
        return sorted(number for _, number in self._ordered[first:behind])

    def below_text(self, text: str) -> list[int]:
        """Returns the numbers of the leaves whose dotted paths equal the text, or begin with it and a dot, in order."""
        found: list[int] = []
        for start, stop in ((text, text + "\0"), (text + ".", text + "/")):  # "/" sorts right after "."
            first = bisect_left(self._dotted, start, key=itemgetter(0))
            behind = bisect_left(self._dotted, stop, lo=first, key=itemgetter(0))
            found += [number for _, number in self._dotted[first:behind]]
        return sorted(found)

    @cached_property
    def _ordered(self) -> list[tuple[tuple[str, ...], int]]:
        return sorted((path, number) for number, path in enumerate(self._paths))

    @cached_property
    def _dotted(self) -> list[tuple[str, int]]:
        return sorted((".".join(path), number) for number, path in enumerate(self._paths))


def _lowered(path: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(part.lower() for part in path)


def _repeating(columns: Iterable[Column], above: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    """Yields the paths of the lists and maps that are in no other list or map."""
    for column in columns:
        here = (*above, column.name)
        if column.dtype.name in ("list", "map"):
            yield here
        else:
            yield from _repeating(column.fields, here)


def _paths(columns: Iterable[Column], above: tuple[str, ...]) -> Iterator[tuple[int, tuple[str, ...]]]:
    for column in columns:
        here = (*above, column.name)
        yield column.id, here
        yield from _paths(column.fields, here)


def _walk(columns: Iterable[Column]) -> Iterator[Column]:
    for column in columns:
        yield column
        yield from _walk(column.fields)


def _check_size(columns: tuple[Column, ...]) -> None:
    for number, column in enumerate(_walk(columns)):
        if number >= MAX_COLUMNS:
            raise LimitExceeded(f"a schema has at most {MAX_COLUMNS} columns", limit="columns", maximum=MAX_COLUMNS)
        for name, text, limit in (
            ("name", column.name, MAX_CHARACTERS),
            ("type", column.type, MAX_CHARACTERS),
            ("doc", column.doc or "", MAX_DOC_CHARACTERS),
        ):
            if len(text) > limit:
                what = f"the {name} of column {column.name[:100]!r}"
                raise LimitExceeded(f"{what} has more than {limit} characters", limit=f"column_{name}", maximum=limit)


def _levels(columns: tuple[Column, ...]) -> Iterator[tuple[Column, ...]]:
    yield columns
    for column in columns:
        if column.fields and column.dtype.name != "variant":  # its paths distinguish upper and lower case
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
            yield Leaf(column.id, here, dtype, optional, repeated, column.default)


def _shredded(columns: Iterable[Column], path: tuple[str, ...], *, repeated: bool) -> Iterator[Leaf]:
    for column in columns:
        here = (*path, column.name)
        kind = column.dtype.name
        if kind == "variant":
            for field in column.fields:
                yield Leaf(field.id, (*here, field.name), field.dtype, True, repeated, shredded=True)
        else:
            yield from _shredded(column.fields, here, repeated=repeated or kind in ("list", "map"))


def _whole(columns: Iterable[Column]) -> tuple[Column, ...]:
    """Returns columns without the shredded fields of variants."""
    return tuple(
        msgspec.structs.replace(column, fields=() if column.dtype.name == "variant" else _whole(column.fields))
        for column in columns
    )


def _with_usual_path(field: Column) -> Column:
    steps = variant_steps(field.name)
    return field if steps is None else msgspec.structs.replace(field, name=path_text(steps))


#: Types of shredded fields: those of Parquet's specification, without the ones that Spark's variants lack.
_SHREDDED: Final = frozenset(
    {
        *("boolean", "int8", "int16", "int32", "int64", "float32", "float64", "date", "string", "binary"),
        *("timestamp(us)", "timestamp_ntz(us)"),
    }
)


def _check_shredding(column: Column) -> None:
    """Raise InvalidSchema for shredded fields that a variant cannot have."""
    paths: set[tuple[str | int, ...]] = set()
    for field in column.fields:
        steps = variant_steps(field.name)
        if not steps or not all(isinstance(step, str) for step in steps):
            raise InvalidSchema(
                f"a shredded field of {column.name!r} is named by a path of names, such as $.a.b, not {field.name!r}",
                column=column.name,
            )
        is_decimal = field.dtype.name == "decimal" and field.dtype.order is not None
        if field.type not in _SHREDDED and not is_decimal:
            raise InvalidSchema(
                f"{field.name} of {column.name!r} cannot be shredded as {field.type}", column=column.name
            )
        if not field.nullable or field.fields or field.doc is not None:
            raise InvalidSchema(
                f"the shredded field {field.name} of {column.name!r} has a path and a type, and nothing else",
                column=column.name,
            )
        paths.add(steps)
    if len(paths) < len(column.fields):
        raise InvalidSchema(f"a shredded field of {column.name!r} is listed twice", column=column.name)
    for path in paths:
        if any(path[:end] in paths for end in range(1, len(path))):
            raise InvalidSchema(
                f"{path_text(path)} of {column.name!r} is inside another shredded field", column=column.name
            )
