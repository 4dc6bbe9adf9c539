"""A folder or glob as a source: what the store lists is what there is."""

from __future__ import annotations

from typing import Final

from lamella.snapshot.errors import InvalidRequest
from lamella.snapshot.layout import ListedObject, Places, Store
from lamella.snapshot.layout.location import Location, parse
from lamella.snapshot.layout.selection import Glob, glob_root, has_magic, is_data_file
from lamella.snapshot.source.state import HIVE_NULL, SourceFile, SourceState, outside
from lamella.snapshot.wire import ExternalSource

_ESCAPES: Final = "0123456789abcdefABCDEF"
#: Folders that say that not every file below is part of the table.
_LOGS: Final = {"_delta_log": "a Delta table", ".hoodie": "a Hudi table", "_ducklake": "a DuckLake table"}


def read_directory(store: Store, source: ExternalSource, places: Places) -> SourceState:
    """The data files of a folder, or of the files and folders that a glob matches (as ``Store.expand`` has them).

    Raises:
        LocationRefused: it does not lie in ``places``.
        InvalidRequest: it is another format's table, not all of whose files count.
        StoreError: storage failed.
    """
    places.require_all_below(source.location or "")
    at = parse(source.location or "")
    folder = at.path.rstrip("/") + "/"
    listed = list(store.list(str(at)))
    root = folder
    if listed or not has_magic(at.path):
        chosen = [found for found in listed if is_data_file(parse(found.location).path[len(folder) :])]
    else:
        root = glob_root(at.path)
        if at.scheme == "s3" and "/" not in root:
            raise InvalidRequest(f"a bucket's name cannot be a glob: {source.location!r}", location=source.location)
        glob = Glob(at.path)
        listed = list(store.list(str(Location(at.scheme, root))))
        chosen = [found for found in listed if glob.selects(parse(found.location).path)]
    _refuse_logs(listed, root)
    ignored = source.path_columns == "ignore"
    return SourceState(
        files=tuple(
            SourceFile(
                location=found.location,
                size_bytes=found.size_bytes,
                content_id=found.content_id,
                constants={} if ignored else _path_columns(parse(found.location).path[len(root) :]),
            )
            for found in chosen
            if places.allows(found.location)
        ),
        refused=outside(places, [found.location for found in chosen]),
    )


def _refuse_logs(listed: list[ListedObject], root: str) -> None:
    for found in listed:
        parts = parse(found.location).path[len(root) :].split("/")[:-1]
        name = next((part for part in parts if part in _LOGS), None)
        if name is None and found.location.endswith(".metadata.json") and parts[-1:] == ["metadata"]:
            name = "metadata"
        if name is not None:
            what = _LOGS.get(name, "an Iceberg table")
            raise InvalidRequest(
                f"{found.location} is part of {what}: not all files below count, so it is no plain directory",
                location=found.location,
            )


def _path_columns(below: str) -> dict[str, str | None]:
    """The columns that the folders on the way to a file name, as Hive writes them."""
    found: dict[str, str | None] = {}
    for part in below.split("/")[:-1]:
        name, equals, value = part.partition("=")
        if equals and name:
            found[_unescaped(name)] = None if value == HIVE_NULL else _unescaped(value)
    return found


def _unescaped(text: str) -> str:
    """Hive writes ``%`` and two digits for what a folder's name cannot hold."""
    out = bytearray()
    raw = text.encode("utf-8")
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
