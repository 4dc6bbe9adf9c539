"""Maps the leaves of a file to columns of a table, and decodes their values and bounds."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final

import msgspec

from lamella.snapshot.errors import SchemaMismatch
from lamella.snapshot.parquet.iceberg_readers import unreadable
from lamella.snapshot.parquet.schema import (
    BOOLEAN,
    BYTE_ARRAY,
    DOUBLE,
    FIXED,
    FLOAT,
    INT32,
    INT64,
    PHYSICAL,
    FileLeaf,
    FileSchema,
)
from lamella.snapshot.parquet.writer import GREGORIAN_FROM_DAY, GREGORIAN_FROM_SECOND
from lamella.snapshot.schema import Column, DataType, Leaf, Schema, widens
from lamella.snapshot.schema.types import PER_SECOND, changes_kind, factor
from lamella.snapshot.stats.bound import Value

#: None: the bytes are not a value of the type.
Decoder = Callable[[bytes], Value | None]
#: Returns the nearest value of the target that is not greater (or not less), and whether it is the same value.
Converter = Callable[[Value], tuple[Value, bool] | None]

_INTEGER_CODES: Final = {(INT32, "int"): "<i", (INT32, "uint"): "<I", (INT64, "int"): "<q", (INT64, "uint"): "<Q"}
_FLOAT_CODES: Final = {"float16": "<e", "float32": "<f", "float64": "<d"}


def decoder(leaf: FileLeaf) -> Decoder | None:
    """Returns how a leaf's bounds are decoded; None if its type has no reliable order."""
    dtype = leaf.dtype
    if leaf.opaque or dtype.order is None:
        return None
    if dtype.order == "float":
        return _floats(_FLOAT_CODES[dtype.name])
    if leaf.physical == BOOLEAN:
        return lambda raw: raw[0] if len(raw) == 1 and raw[0] <= 1 else None
    if dtype.order == "decimal":
        code = _INTEGER_CODES.get((leaf.physical, "int"))
        return _integers(code, dtype) if code else _big_endian(dtype, leaf.type_length if leaf.physical == FIXED else 0)
    if dtype.order == "bytes":
        return _bytes(leaf)
    code = _INTEGER_CODES.get((leaf.physical, dtype.order))  # none for INT96, which has no defined order
    return _integers(code, dtype) if code else None


def _integers(code: str, dtype: DataType) -> Decoder:
    unpack, width = struct.Struct(code).unpack, struct.calcsize(code)
    low, high = dtype.int_range

    def read(raw: bytes) -> Value | None:
        if len(raw) != width:
            return None
        value: int = unpack(raw)[0]
        return value if low <= value <= high else None

    return read


def _floats(code: str) -> Decoder:
    unpack, width = struct.Struct(code).unpack, struct.calcsize(code)

    def read(raw: bytes) -> Value | None:
        if len(raw) != width:
            return None
        value: float = unpack(raw)[0]
        return value

    return read


def _big_endian(dtype: DataType, width: int) -> Decoder:
    low, high = dtype.int_range

    def read(raw: bytes) -> Value | None:
        if not raw or (width and len(raw) != width):
            return None
        value = int.from_bytes(raw, "big", signed=True)
        return value if low <= value <= high else None

    return read


def _bytes(leaf: FileLeaf) -> Decoder | None:
    if leaf.physical == BYTE_ARRAY:
        return lambda raw: raw
    if leaf.physical != FIXED:
        return None
    width = leaf.type_length
    if leaf.dtype.name == "fixed":  # may have been truncated
        return lambda raw: raw if len(raw) <= width else None
    return lambda raw: raw if len(raw) == width else None


def converters(source: DataType, target: DataType) -> tuple[Converter, Converter] | None:
    """Returns how a lower and an upper bound are converted from the file's type to the table's; None: they stay the
    same.

    ``target`` widens ``source`` (:func:`lamella.snapshot.schema.widens`).
    """
    if changes_kind(source, target) and target.is_float:
        return _as_float, _as_float
    if changes_kind(source, target) or (source.order == "decimal" and target.scale != source.scale):
        return _scaled(factor(source, target), 1, target)
    if source.name in ("time", "timestamp", "timestamp_ntz") and source.unit != target.unit:
        up, down = PER_SECOND[target.unit], PER_SECOND[source.unit]
        return _scaled(up // down, 1, target) if up > down else _scaled(1, down // up, target)
    return None


def _as_float(value: Value) -> tuple[Value, bool]:
    return float(value), True


def _scaled(times: int, divisor: int, target: DataType) -> tuple[Converter, Converter]:
    low, high = target.int_range

    def convert(value: Value, upwards: bool) -> tuple[Value, bool] | None:
        scaled = int(value) * times
        result = -(-scaled // divisor) if upwards else scaled // divisor
        return (result, result * divisor == scaled) if low <= result <= high else None

    return lambda value: convert(value, False), lambda value: convert(value, True)


_DAY_S: Final = 86_400


class PlannedColumn(msgspec.Struct, frozen=True, kw_only=True):
    """One column of the table that the file has."""

    column_id: int
    name: str
    dtype: DataType  # the table's
    index: int  # of the file's leaf
    max_def: int
    orders: tuple[int, ...]  # column orders under which bounds are trusted
    decode: Decoder | None
    no_order: str | None  # why there is no decoder
    convert: tuple[Converter, Converter] | None
    signed: bool  # legacy min/max are in the right order
    is_binary: bool
    is_float: bool
    is_bytes: bool
    gregorian_from: tuple[int, int] | None  # smallest trusted lower and upper bound in the old calendar
    repeated: bool
    opaque: bool  # the column consists of several leaves
    counts_nulls: bool  # the leaf is null exactly where the column is
    must_have_no_null: bool


class Plan(msgspec.Struct, frozen=True):
    """Everything about a pair of schemas that does not depend on the files' statistics.

    ``by_name``: see :class:`~lamella.snapshot.manifest.Block`. ``may_be_null``: the dotted paths of columns and fields
    that the table requires and that may be null in the file, with the columns of ``present`` below them; without those
    of :attr:`PlannedColumn.must_have_no_null`.
    """

    present: tuple[PlannedColumn, ...]
    absent: tuple[Leaf, ...]
    by_name: bool
    may_be_null: tuple[tuple[str, tuple[PlannedColumn, ...]], ...] = ()


def plan(file: FileSchema, table: Schema) -> Plan:
    """Matches a file's leaves with a table's by path: exactly, else ignoring case if only one fits.

    Raises:
        SchemaMismatch: a column that the table lacks (unless its schema allows extra columns), one that the file lacks
            and the table requires, a type that does not widen to the table's, duplicate names.
    """
    for entry in _PLANS.entries:
        if entry[0] is file and entry[1] is table:
            return entry[2]
    made = _plan(file, table)
    _PLANS.entries = ((file, table, made), *_PLANS.entries[:15])
    return made


class _Recent:
    """The most recent plans, found by identity; replaced as a whole, so that threads need no lock."""

    entries: tuple[tuple[FileSchema, Schema, Plan], ...] = ()


_PLANS: Final = _Recent()


def _plan(file: FileSchema, table: Schema) -> Plan:
    if file.doubled:
        raise SchemaMismatch(f"the file has columns more than once: {list(file.doubled)}", columns=list(file.doubled))
    leaves = table.leaves()
    exact = {leaf.path: leaf for leaf in leaves}
    lowered: dict[tuple[str, ...], list[Leaf]] = {}
    for leaf in leaves:
        lowered.setdefault(_lower(leaf.path), []).append(leaf)
    found: dict[int, tuple[int, FileLeaf, Leaf]] = {}
    strange: list[str] = []
    ambiguous: list[str] = []
    paths = {leaf.path for leaf in file.leaves}
    for index, file_leaf in enumerate(file.leaves):
        fits = exact.get(file_leaf.path)
        if fits is None:
            others = [leaf for leaf in lowered.get(_lower(file_leaf.path), ()) if leaf.path not in paths]
            fits = others[0] if len(others) == 1 else None
        if fits is None:
            if file_leaf.path[0] not in table.ignored_columns:
                strange.append(file_leaf.name)
                ambiguous += [file_leaf.name] if _lower(file_leaf.path) in lowered else []
        elif fits.id not in found or (file_leaf.path == found[fits.id][1].path and _is_metadata(file_leaf)):
            found[fits.id] = (index, file_leaf, fits)
        elif found[fits.id][1].path != file_leaf.path:
            strange.append(file_leaf.name)
            ambiguous.append(file_leaf.name)
    if strange and not table.extra_columns:
        names = sorted(set(strange))
        raise SchemaMismatch(f"the table has no column for {names} in the file", columns=names)
    if ambiguous:
        names = sorted(set(ambiguous))
        raise SchemaMismatch(f"the file has columns whose names differ in case only: {names}", columns=names)
    present = tuple(planned_column(index, file_leaf, leaf) for index, file_leaf, leaf in found.values())
    absent = tuple(leaf for leaf in leaves if leaf.id not in found)
    _require(leaf.name for leaf in absent if not leaf.nullable and leaf.default is None)
    by_id = {column.column_id: column for column in present}
    may_be_null = tuple(_may_be_null(file.columns, table.columns, by_id, ()))
    return Plan(present, absent, unreadable(file, table) is None, may_be_null)


def _may_be_null(
    file: Sequence[Column], table: Sequence[Column], present: Mapping[int, PlannedColumn], above: tuple[str, ...]
) -> Iterator[tuple[str, tuple[PlannedColumn, ...]]]:
    """Yields :attr:`Plan.may_be_null` of some columns. Keys of maps are never null, whatever a file declares."""
    by_name = {column.name.lower(): column for column in file}
    for column in table:
        own = by_name.get(column.name.lower())
        if own is None:
            continue
        here = (*above, column.name)
        planned = present.get(column.id)
        if own.nullable and not column.nullable and not (planned is not None and planned.must_have_no_null):
            below = [present[each.id] for each in _with_parts(column) if each.id in present]
            yield ".".join(here), tuple(below)
        is_map = column.dtype.name == "map"
        yield from _may_be_null(own.fields[is_map:], column.fields[is_map:], present, here)


def _with_parts(column: Column) -> Iterator[Column]:
    yield column
    for part in column.fields:
        yield from _with_parts(part)


def _is_metadata(leaf: FileLeaf) -> bool:
    """Returns whether a leaf is the metadata of a variant, which is null exactly where the variant is."""
    return leaf.opaque and leaf.dtype.name == "variant" and leaf.file_path[-1] == b"metadata"


def _require(missing: Iterable[str]) -> None:
    names = list(missing)
    if names:
        raise SchemaMismatch(f"the file does not have columns that the table requires: {names}", columns=names)


def _lower(path: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(part.lower() for part in path)


def planned_column(index: int, file: FileLeaf, table: Leaf) -> PlannedColumn:
    """Returns a file's leaf number ``index`` as a column of the table; raises SchemaMismatch if their types do not
    fit."""
    if not widens(file.dtype, table.dtype) or file.repeated != table.repeated:
        lists = [" in a list" if leaf.repeated else "" for leaf in (file, table)]
        raise SchemaMismatch(
            f"column {table.name!r} is {file.dtype}{lists[0]} in the file and {table.dtype}{lists[1]} in the table",
            column=table.name,
        )
    dtype = file.dtype
    decode = decoder(file) if table.dtype.order is not None else None
    no_order = None
    if decode is None:
        kind = next((str(each) for each in (dtype, table.dtype) if each.order is None), PHYSICAL[file.physical])
        no_order = f"{kind} has no reliable order"
    return PlannedColumn(
        column_id=table.id,
        name=table.name,
        dtype=table.dtype,
        index=index,
        max_def=file.max_def,
        orders=(1, 2) if dtype.is_float else (1,),
        decode=decode,
        no_order=no_order,
        convert=converters(dtype, table.dtype),
        signed=file.physical in (BOOLEAN, INT32, INT64, FLOAT, DOUBLE) and dtype.order in ("int", "float"),
        is_binary=file.physical > DOUBLE,
        is_float=dtype.is_float,
        is_bytes=dtype.order == "bytes",
        gregorian_from=_gregorian_from(dtype),
        repeated=file.repeated,
        opaque=file.opaque,
        counts_nulls=not file.opaque or _is_metadata(file),
        must_have_no_null=file.nullable and not table.nullable and not file.repeated,
    )


def _gregorian_from(dtype: DataType) -> tuple[int, int] | None:
    if dtype.name == "date":
        return GREGORIAN_FROM_DAY, GREGORIAN_FROM_DAY
    if dtype.name in ("timestamp", "timestamp_ntz"):
        # An instant just before the limit may move past it when it is read, by less than a day.
        per_second = PER_SECOND[dtype.unit]
        return GREGORIAN_FROM_SECOND * per_second, (GREGORIAN_FROM_SECOND + _DAY_S) * per_second
    return None
