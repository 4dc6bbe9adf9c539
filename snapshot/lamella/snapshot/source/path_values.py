"""Column values that a file's path or a table's log gives for all rows of a file.

A value of a column that the file does not hold becomes a constant of the block
(:attr:`lamella.snapshot.manifest.Block.constants`). If the file holds the column, its own statistics must prove the
same value for every row: readers disagree about which of the two counts, so the file is refused otherwise.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from decimal import Decimal, InvalidOperation
from typing import Final

from lamella.snapshot.errors import InvalidSchema, SchemaMismatch, ValueOutsideFile
from lamella.snapshot.expression.spark_casts import date_days, instant_us, single, wall_us
from lamella.snapshot.manifest import Block
from lamella.snapshot.parquet.block import with_constants
from lamella.snapshot.schema import Column, DataType, Leaf, Schema
from lamella.snapshot.schema.column import default_value
from lamella.snapshot.schema.types import PER_SECOND
from lamella.snapshot.stats import Bound, from_bound
from lamella.snapshot.stats.bound import Value
from lamella.snapshot.stats.constant import from_constant, to_constant
from lamella.snapshot.storage.location import parse

#: Columns with their values as text (None: null). A name may occur twice: then both values must match.
PathValues = tuple[tuple[str, str | None], ...]

#: The folder name that represents null.
HIVE_NULL: Final = "__HIVE_DEFAULT_PARTITION__"
_ESCAPE: Final = re.compile(r"%([0-9a-fA-F]{2})")
_INTEGER: Final = re.compile(r"[+-]?[0-9]+")
#: What Java's parseDouble reads; a suffix is allowed.
_NUMBER: Final = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?[fFdD]?")
_HEX_NUMBER: Final = re.compile(r"[+-]?0[xX](?:[0-9a-fA-F]+\.?[0-9a-fA-F]*|\.[0-9a-fA-F]+)[pP][+-]?[0-9]+[fFdD]?")
_SPECIAL: Final = {"NaN": math.nan, "Infinity": math.inf, "+Infinity": math.inf, "-Infinity": -math.inf}
_DECIMAL: Final = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]{1,3})?")
_TRUTH: Final = {
    **dict.fromkeys(("t", "true", "y", "yes", "1"), 1),
    **dict.fromkeys(("f", "false", "n", "no", "0"), 0),
}


def path_columns(path: str) -> PathValues:
    """Returns the columns that the folders of a path name, as in Hive (``year=2020/``); the last part is a file."""
    parts = (part.partition("=") for part in path.split("/")[:-1] if "=" in part)
    return tuple(
        (_unescaped(name), None if value == HIVE_NULL else _unescaped(value)) for name, _, value in parts if name
    )


def location_columns(location: str) -> PathValues:
    """Returns :func:`path_columns` of a location; every folder counts, including those above what a caller named.

    Otherwise the year would be lost if ``year=2020/`` is registered by itself.
    """
    return path_columns(parse(location).path) if "=" in location else ()


def columns_named(schema: Schema, values: Iterable[tuple[str, str | None]]) -> set[int]:
    """Returns the ids of the columns that paths or a log name."""
    leaves = (_column(schema, name) for name in {name for name, _ in values})
    return {leaf.id for leaf in leaves if leaf is not None}


def with_folders(block: Block, schema: Schema, folders: PathValues, *, time_zone: str = "UTC") -> Block:
    """Returns the block with the values of the folders that its path names, as Spark casts them to the columns' types.

    ``time_zone``: of timestamps, which have none in the name of a folder.

    Raises:
        ValueOutsideFile: the table does not have such a column, the text is not a value of its type, or the file has
            the column and its statistics do not prove the value.
    """
    found: dict[int, Bound | None] = {}
    for name, text in folders:
        folder = f"{name}={HIVE_NULL if text is None else text}"
        leaf = _column(schema, name)
        if leaf is None:
            raise ValueOutsideFile(
                f"the folder {folder!r} gives a value to column {name!r}, which the table does not have; to register "
                "the file without the folder's value, set path_columns to 'ignore' (--ignore-path-columns)",
                column=name,
                folder=folder,
            )
        constant = None if text is None else _folder_constant(leaf, text, folder, time_zone)
        _add(found, block, leaf, constant, f"the folder {folder!r}", folder=folder)
    return with_constants(block, {**block.constants, **found}, schema) if found else block


def with_partition_values(block: Block, schema: Schema, values: PathValues, *, time_zone: str = "UTC") -> Block:
    """Returns the block with the values that a metastore gives to the file's partition, as Spark casts them.

    Raises:
        ValueOutsideFile: as :func:`with_folders`.
    """
    found: dict[int, Bound | None] = {}
    for name, text in values:
        leaf = _column(schema, name)
        shown = "null" if text is None else repr(text)
        if leaf is None:
            raise ValueOutsideFile(f"partition column {name!r} is not a column with plain values", column=name)
        constant = partition_constant(leaf, text, time_zone)
        if constant is None and text is not None:
            raise ValueOutsideFile(
                f"the metastore gives {shown} to partition column {leaf.name!r}, which is not a {leaf.dtype}",
                column=leaf.name,
            )
        _add(found, block, leaf, constant, f"the metastore ({shown})")
    return with_constants(block, {**block.constants, **found}, schema) if found else block


def partition_constant(leaf: Leaf, text: str | None, time_zone: str) -> Bound | None:
    """Returns the constant of a partition's value; None for null, and for text that is no value of the type."""
    value = None if text is None else folder_value(leaf.dtype, text, time_zone)
    return None if value is None else to_constant(leaf.dtype, value)


def partition_leaves(schema: Schema, names: Iterable[str]) -> dict[str, Leaf]:
    """Returns the partition columns by their names in ``names``; those with plain values only."""
    found = {name: _column(schema, name) for name in names}
    return {name: leaf for name, leaf in found.items() if leaf is not None}


def with_log_values(block: Block, schema: Schema, values: PathValues) -> Block:
    """Returns the block with the values that a table's log gives to its columns, in the text of defaults.

    Raises:
        ValueOutsideFile: as :func:`with_folders`.
    """
    found: dict[int, Bound | None] = {}
    for name, text in values:
        leaf = _column(schema, name)
        shown = "null" if text is None else repr(text)
        if leaf is None:
            raise ValueOutsideFile(
                f"the table's log gives {shown} to column {name!r}, which the table does not have", column=name
            )
        constant = None if text is None else _log_constant(leaf, text)
        _add(found, block, leaf, constant, f"the table's log ({shown})")
    return with_constants(block, {**block.constants, **found}, schema) if found else block


def require_columns(block: Block, schema: Schema) -> None:
    """Raise SchemaMismatch for a file that lacks a required column and has no constant for it."""
    missing = [
        leaf.name
        for leaf in schema.leaves()
        if not leaf.nullable
        and not leaf.repeated
        and leaf.default is None
        and leaf.id not in block.constants
        and _is_absent(block, leaf)
    ]
    if missing:
        raise SchemaMismatch(f"the file does not have columns that the table requires: {missing}", columns=missing)


def unproven_column(block: Block, schema: Schema, name: str) -> int | None:
    """Returns the id of a column that the file has and whose statistics come from its footer; None for others."""
    leaf = _column(schema, name)
    stats = None if leaf is None else block.col_stats.get(leaf.id)
    return leaf.id if leaf is not None and stats is not None and stats.source == "footer" else None


def lacking_above(block: Block, schema: Schema, folders: PathValues) -> PathValues:
    """Returns the folders above the root of a directory that name a column of the table which the file lacks.

    Other folders above the root lose nothing: readers of the directory see no column there either.
    """
    columns = ((folder, _column(schema, folder[0])) for folder in folders)
    return tuple(folder for folder, leaf in columns if leaf is not None and _is_absent(block, leaf))


def _add(
    found: dict[int, Bound | None], block: Block, leaf: Leaf, constant: Bound | None, where: str, **details: str
) -> None:
    """Add a constant unless the file has the column, whose statistics must then prove the value."""
    if leaf.id in found and found[leaf.id] != constant:
        raise ValueOutsideFile(f"the path gives two values to column {leaf.name!r}", column=leaf.name, **details)
    if _is_absent(block, leaf):
        found[leaf.id] = constant
    elif not _proven(block, leaf, constant):
        raise ValueOutsideFile(
            f"{where} gives a value to column {leaf.name!r}, which may have other values according to the file's "
            "statistics",
            column=leaf.name,
            **details,
        )


def _column(schema: Schema, name: str) -> Leaf | None:
    """Returns the top-level column with a name, ignoring case; None if there is no such column with plain values."""
    for column in schema.columns:
        if column.name.lower() == name.lower():
            leaf = schema.by_id().get(column.id)
            return leaf if leaf is not None and leaf.dtype.order is not None else None
    return None


def _is_absent(block: Block, leaf: Leaf) -> bool:
    stats = block.col_stats.get(leaf.id)
    return leaf.id not in block.col_metas and stats is not None and stats.source in ("schema", "constant")


def _proven(block: Block, leaf: Leaf, constant: Bound | None) -> bool:
    stats = block.col_stats.get(leaf.id)
    if stats is None or block.row_count == 0:
        return block.row_count == 0
    if constant is None:
        return stats.null_count == block.row_count
    value = from_constant(leaf.dtype, constant)
    if stats.null_count != 0:
        return False
    if isinstance(value, float) and math.isnan(value):
        return stats.nan == "all"
    if stats.min is None or stats.max is None or stats.nan != "none":
        return False
    return value == from_bound(leaf.dtype, stats.min) == from_bound(leaf.dtype, stats.max)


def _folder_constant(leaf: Leaf, text: str, folder: str, time_zone: str) -> Bound:
    value = folder_value(leaf.dtype, text, time_zone)
    constant = None if value is None else to_constant(leaf.dtype, value)
    if constant is None:
        raise ValueOutsideFile(
            f"the folder {folder!r} does not give a value of type {leaf.dtype} to column {leaf.name!r}; to register "
            "the file without the folder's value, set path_columns to 'ignore' (--ignore-path-columns)",
            column=leaf.name,
            folder=folder,
        )
    return constant


def _log_constant(leaf: Leaf, text: str) -> Bound:
    if leaf.dtype.is_float and text in ("nan", "inf", "-inf"):
        return to_constant(leaf.dtype, float(text)) or Bound()
    try:
        return to_constant(leaf.dtype, default_value(leaf.dtype, text)) or Bound()
    except InvalidSchema as error:
        raise ValueOutsideFile(
            f"the table's log gives {text!r} to column {leaf.name!r}: {error.message}", column=leaf.name
        ) from error


def folder_value(dtype: DataType, text: str, time_zone: str) -> Value | None:
    """Returns the value of a folder's text as Spark casts it to a type, in the domain of the type's order.

    None: it is no value of the type, or what Spark makes of it is not certain.
    """
    if dtype.is_text:
        return text.encode("utf-8")
    if dtype.order == "bytes" or not text:
        return None
    if dtype.name == "boolean":
        return _TRUTH.get(text.strip().lower())
    if dtype.is_float:
        return _float(dtype, text.strip())
    if dtype.order == "decimal":
        return _decimal(dtype, text)
    value: int | None
    if dtype.is_integer:
        value = int(text) if _INTEGER.fullmatch(text) and len(text) <= _MAX_DIGITS else None
    elif dtype.name == "date":
        value = date_days(text)
    elif dtype.name == "timestamp":
        value = _in_unit(dtype, instant_us(text, time_zone))
    elif dtype.name == "timestamp_ntz":
        value = _in_unit(dtype, wall_us(text))
    else:
        value = None
    if value is None:
        return None
    low, high = dtype.int_range
    return value if low <= value <= high else None


#: An integer of 64 bits with a sign.
_MAX_DIGITS: Final = 21

# The types of columns that only the names of folders give, as Spark infers them (``PartitioningUtils``): the first of
# int, bigint, decimal, double, timestamp and date that reads the text, else string; the types of several values are
# widened to one that holds them all, and if there is none the column is text.

_INT32: Final = range(-(1 << 31), 1 << 31)
_INT64: Final = range(-(1 << 63), 1 << 63)
_MAX_PRECISION: Final = 38
_DAY: Final = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_TIME: Final = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2} [0-9]{2}:[0-9]{2}:[0-9]{2}(?:\.[0-9])?")
_STRING: Final = "string"
_DOUBLE: Final = "float64"
_TIMESTAMP: Final = "timestamp(us)"


def inferred_columns(paths: Iterable[PathValues], known: Iterable[str]) -> tuple[Column, ...]:
    """Returns the columns that folders name, in their order, without those in ``known`` (ignoring case)."""
    names: dict[str, str] = {}
    texts: dict[str, set[str]] = {}
    for values in paths:
        for name, text in values:
            names.setdefault(name.lower(), name)
            texts.setdefault(name.lower(), set()).update(() if text is None else (text,))
    skipped = {name.lower() for name in known}
    return tuple(
        Column(name=name, type=inferred_type(texts[lowered]))
        for lowered, name in names.items()
        if lowered not in skipped
    )


def inferred_type(texts: Iterable[str]) -> str:
    """Returns the type that Spark infers for a column with these values; text if there are none."""
    found: str | None = None
    for text in texts:
        mine = _type_of(text)
        found = mine if found is None else _wider(found, mine)
        if found == _STRING:
            break
    return found or _STRING


def _type_of(text: str) -> str:
    if _INTEGER.fullmatch(text):
        value = int(text) if len(text) <= 2 * _MAX_PRECISION else None
        if value is not None and value in _INT32:
            return "int32"
        if value is not None and value in _INT64:
            return "int64"
    if _DECIMAL.fullmatch(text):
        _, digits, exponent = Decimal(text).as_tuple()
        precision = len(digits) + int(exponent)
        if int(exponent) >= 0 and precision <= _MAX_PRECISION:
            return f"decimal({precision},0)"
    if _float(_PLAIN_DOUBLE, text.strip()) is not None:
        return _DOUBLE
    if _TIME.fullmatch(text) and wall_us(text) is not None:
        return _TIMESTAMP
    return "date" if _DAY.fullmatch(text) and date_days(text) is not None else _STRING


def _wider(one: str, other: str) -> str:
    """Returns the type that holds the values of both."""
    if one == other:
        return one
    pair = {one, other}
    if pair == {"int32", "int64"}:
        return "int64"
    if pair == {"int32", _DOUBLE}:
        return _DOUBLE
    if pair == {"date", _TIMESTAMP}:
        return _TIMESTAMP
    precisions = [_DIGITS_OF.get(each) or _precision(each) for each in (one, other)]
    if all(precisions):
        return f"decimal({min(max(precisions), _MAX_PRECISION)},0)"
    return _STRING


_DIGITS_OF: Final = {"int32": 10, "int64": 20}
_PLAIN_DOUBLE: Final = DataType("float64")


def _precision(type_text: str) -> int:
    return int(type_text[len("decimal(") : -len(",0)")]) if type_text.startswith("decimal(") else 0


def _float(dtype: DataType, text: str) -> float | None:
    if text in _SPECIAL:
        return _SPECIAL[text]
    if _HEX_NUMBER.fullmatch(text) is not None:
        try:
            value = float.fromhex(text.rstrip("fFdD"))
        except OverflowError:
            return None
    elif _NUMBER.fullmatch(text) is not None:
        value = float(text.rstrip("fFdD"))
    else:
        return None
    return value if dtype.bits == 64 else single(value) if dtype.bits == 32 else None


def _decimal(dtype: DataType, text: str) -> int | None:
    if _DECIMAL.fullmatch(text) is None:
        return None
    try:
        sign, digits, exponent = Decimal(text).as_tuple()
    except InvalidOperation:
        return None
    shift = int(exponent) + dtype.scale
    unscaled = int("".join(map(str, digits)))
    if shift < 0:
        unscaled, rest = divmod(unscaled, 10**-shift)
        if rest:
            return None
    elif shift > dtype.precision and unscaled:
        return None
    else:
        unscaled *= 10**shift if unscaled else 1
    low, high = dtype.int_range
    value = -unscaled if sign else unscaled
    return value if low <= value <= high else None


def _in_unit(dtype: DataType, micros: int | None) -> int | None:
    if micros is None:
        return None
    scaled = micros * PER_SECOND[dtype.unit]
    return scaled // 10**6 if scaled % 10**6 == 0 else None


def _unescaped(text: str) -> str:
    """Decodes Hive's escapes as Spark does: ``%`` and two hexadecimal digits are the character with that number."""
    return _ESCAPE.sub(lambda escape: chr(int(escape[1], 16)), text)
