"""Column values that a file's path or a table's log gives for all rows of a file.

Manifests cannot store a value for a column that the file lacks. So a file is accepted only if its own statistics prove
the value, or if the value is null and the file lacks the column, since it then reads as null too. A file that
contradicts the value is refused as well: Spark reads the folder's value, and Lamella would read the file's.
"""

from __future__ import annotations

from typing import Final

from lamella.snapshot.errors import InvalidSchema, UnknownColumn, ValueOutsideFile
from lamella.snapshot.manifest import Block
from lamella.snapshot.schema import Leaf, Schema
from lamella.snapshot.schema.column import default_value
from lamella.snapshot.stats import from_bound
from lamella.snapshot.storage.location import parse

#: Columns with their values as text (None: null). A name may occur twice: then both values must match.
Constants = tuple[tuple[str, str | None], ...]

#: The folder name that represents null.
HIVE_NULL: Final = "__HIVE_DEFAULT_PARTITION__"
_ESCAPES: Final = "0123456789abcdefABCDEF"


def path_columns(path: str) -> Constants:
    """Returns the columns that the folders of a path name, as in Hive (``year=2020/``); the last part is a file."""
    parts = (part.partition("=") for part in path.split("/")[:-1] if "=" in part)
    return tuple(
        (_unescaped(name), None if value == HIVE_NULL else _unescaped(value)) for name, _, value in parts if name
    )


def require_path_columns(block: Block, schema: Schema) -> Block:
    """Returns the block if its file contains the values of all columns that folders of its location name.

    Every folder of the location counts, including those above the location that a caller named: otherwise the year
    would be lost if ``year=2020/`` is registered by itself.

    Raises:
        ValueOutsideFile: the file lacks such a column, or its statistics do not prove the value.
    """
    if "=" in block.location:
        require_folders(block, schema, path_columns(parse(block.location).path))
    return block


def require_folders(block: Block, schema: Schema, folders: Constants) -> None:
    """Raise ValueOutsideFile unless the block's rows are proven to have the values of these folders."""
    for name, text in folders:
        leaf = _column(schema, name)
        # Bytes in a folder's name are not written as in a default.
        is_bytes = leaf is not None and leaf.dtype.order == "bytes" and not leaf.dtype.is_text
        if leaf is None or is_bytes or not _proven(block, leaf, text):
            folder = f"{name}={HIVE_NULL if text is None else text}"
            raise ValueOutsideFile(
                f"the folder {folder!r} gives a value to column {name!r}, which {_lack(block, leaf)}; to register the "
                "file without the folder's value"
                ", set path_columns to 'ignore' (--ignore-path-columns)",
                column=name,
                folder=folder,
            )


def require_constants(block: Block, schema: Schema, constants: Constants) -> None:
    """Raise ValueOutsideFile unless the block's rows are proven to have the values of a log."""
    for name, text in constants:
        leaf = _column(schema, name)
        if leaf is None or not _proven(block, leaf, text):
            value = "null" if text is None else repr(text)
            raise ValueOutsideFile(
                f"the table's log gives {value} to column {name!r}, which {_lack(block, leaf)}", column=name
            )


def lost_above(block: Block, schema: Schema, folders: Constants) -> Constants:
    """Returns the folders above the root of a directory that name a column of the table which the file lacks.

    Other folders above the root lose nothing: readers of the directory see no column there either.
    """
    columns = ((folder, _column(schema, folder[0])) for folder in folders)
    return tuple(folder for folder, leaf in columns if leaf is not None and leaf.id not in block.col_metas)


def _column(schema: Schema, name: str) -> Leaf | None:
    """Returns the top-level column with a name, ignoring case; None if there is no such column with plain values."""
    try:
        leaf = schema.find(name)
    except UnknownColumn:
        return None
    return leaf if leaf is not None and len(leaf.path) == 1 else None


def _lack(block: Block, leaf: Leaf | None) -> str:
    if leaf is None:
        return "the table does not have"
    return (
        "is not in the file"
        if leaf.id not in block.col_metas
        else "may have other values according to the file's statistics"
    )


def _proven(block: Block, leaf: Leaf, text: str | None) -> bool:
    stats = block.col_stats.get(leaf.id)
    if stats is None or block.row_count == 0:
        return block.row_count == 0
    if text is None:
        return stats.null_count == block.row_count
    if stats.null_count != 0 or stats.min is None or stats.max is None or stats.nan != "none":
        return False
    try:
        wanted = default_value(leaf.dtype, text)
    except InvalidSchema:
        return False
    return wanted == from_bound(leaf.dtype, stats.min) == from_bound(leaf.dtype, stats.max)


def _unescaped(text: str) -> str:
    """Decodes Hive's escapes: ``%`` and two digits for characters that a folder's name cannot contain."""
    out = bytearray()
    raw = text.encode("utf-8", "surrogatepass")
    at = 0
    while at < len(raw):
        digits = raw[at + 1 : at + 3].decode("latin-1")
        if raw[at] == ord("%") and len(digits) == 2 and all(digit in _ESCAPES for digit in digits):
            out.append(int(digits, 16))
            at += 3
        else:
            out.append(raw[at])
            at += 1
    return out.decode("utf-8", "replace")
