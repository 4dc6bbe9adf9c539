"""A Delta table's log as a copy that was looked through.

A log can name a part of itself, or a list of deleted rows, at any place, and the library that reads logs opens what
they name. Where a table may not use every place, it is given this copy: the newest checkpoint and the commits behind
it, whose parts all come from the log's own folder. Lists of deleted rows are not opened; that a file has one is enough.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from lamella.snapshot.errors import LocationRefused, ObjectNotFound, StoreError
from lamella.snapshot.layout import Store

_FOLDER: Final = "_delta_log"
_SIDECARS: Final = "_sidecars"
_NAME: Final = re.compile(
    r"(?P<version>[0-9]{20})"
    r"(?P<checkpoint>\.checkpoint(\.(?P<part>[0-9]{10})\.(?P<parts>[0-9]{10})|\.[0-9a-f-]{36})?)?\.(json|parquet)"
)
#: How the protocol names sidecars; nothing that leads out of their folder can be spelled so.
_SIDECAR: Final = re.compile(r"[0-9A-Za-z_-][0-9A-Za-z._-]*\.parquet")
_COLUMNS: Final = ("add.path", "add.deletionVector.storageType", "sidecar.path")


class _Add(msgspec.Struct):
    path: str | None = None
    deletionVector: dict[str, Any] | None = None  # the name that the log has


class _Sidecar(msgspec.Struct):
    path: str | None = None


class _Action(msgspec.Struct):
    """What matters of one action."""

    add: _Add | None = None
    sidecar: _Sidecar | None = None


_DECODER: Final = msgspec.json.Decoder(_Action)


class LogCopy(msgspec.Struct, frozen=True):
    """``folder`` has the table's log. ``with_deletions``: paths of files, as the log has them, that had deleted rows in
    some version."""

    folder: Path
    with_deletions: frozenset[str]


@contextmanager
def copied_log(store: Store, root: str) -> Iterator[LogCopy]:
    """The log of the table in ``root``, until the end of the ``with``.

    Raises:
        ObjectNotFound: there is none.
        LocationRefused: it names a part of itself elsewhere.
        StoreError: it cannot be read.
    """
    with tempfile.TemporaryDirectory(prefix="lamella-delta-") as folder:
        log = Path(folder) / _FOLDER
        (log / _SIDECARS).mkdir(parents=True)
        copy = _Copy(store, root, log)
        for name in _newest(store, root):
            copy.take(name)
        yield LogCopy(Path(folder), frozenset(copy.with_deletions))


class _Copy:
    def __init__(self, store: Store, root: str, log: Path) -> None:
        self._store = store
        self._root = root
        self._log = log
        self.with_deletions: set[str] = set()

    def take(self, name: str) -> None:
        """Copy an object of the log, with the sidecars that it names."""
        data = self._store.read(f"{self._root}/{_FOLDER}/{name}")
        (self._log / name).write_bytes(data)
        try:
            actions = list(_in_parquet(data) if name.endswith(".parquet") else _in_json(data))
        except (msgspec.MsgspecError, pa.ArrowException, UnicodeDecodeError) as error:
            raise StoreError(f"{name} in the log of {self._root} cannot be read", location=self._root) from error
        for action in actions:
            add, sidecar = action.add, action.sidecar
            if add is not None and add.path is not None and add.deletionVector is not None:
                self.with_deletions.add(add.path)
            if sidecar is not None and sidecar.path is not None:
                self._take_sidecar(sidecar.path)

    def _take_sidecar(self, path: str) -> None:
        if _SIDECAR.fullmatch(path) is None:
            raise LocationRefused(
                f"the log of {self._root} names a part of itself that is not in its own folder", location=self._root
            )
        name = f"{_SIDECARS}/{path}"
        if not (self._log / name).exists():
            self.take(name)


def _newest(store: Store, root: str) -> list[str]:
    """The names of the newest whole checkpoint and of the commits from it on."""
    prefix = f"{root}/{_FOLDER}/"
    found = [
        (name, named)
        for each in store.list(prefix)
        if (named := _NAME.fullmatch(name := each.location.removeprefix(prefix))) is not None
    ]
    if not found:
        raise ObjectNotFound(f"there is no Delta table at {root}", location=root)
    parts: dict[tuple[int, int], int] = {}
    whole = [-1]
    for _, named in found:
        version = int(named["version"])
        if named["part"] is not None:
            key = (version, int(named["parts"]))
            parts[key] = parts.get(key, 0) + 1
        elif named["checkpoint"] is not None:
            whole.append(version)
    last = max([*whole, *(version for (version, count), there in parts.items() if there == count)])
    return [
        name
        for name, named in found
        if (int(named["version"]) == last or (named["checkpoint"] is None and int(named["version"]) > last))
    ]


def _in_json(data: bytes) -> Iterator[_Action]:
    return (_DECODER.decode(line) for line in data.splitlines() if line.strip())


def _in_parquet(data: bytes) -> Iterator[_Action]:
    with pq.ParquetFile(pa.BufferReader(data)) as file:
        there = [column.path for column in map(file.schema.column, range(len(file.schema)))]
        wanted = [name for name in _COLUMNS if name in there]
        for batch in file.iter_batches(columns=wanted) if wanted else ():
            yield from (msgspec.convert(_without_empty(row), _Action) for row in batch.to_pylist())


def _without_empty(row: dict[str, Any]) -> dict[str, Any]:
    """A row as an action: Parquet may have an object without any value where the log has none."""
    add = row.get("add")
    if add is not None and (add.get("deletionVector") or {}).get("storageType") is None:
        row["add"] = {"path": add.get("path")}
    return row
