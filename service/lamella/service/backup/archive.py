"""The file that a catalog is exported to: JSON lines in gzip, every table and the whole with a checksum.

A line is an object (a header) or a list (a row). The first line describes the catalog; each table is between an object
with its columns and an object with its row count and hash; the last line has the count and hash of everything. A
truncated file has no last line, and a changed file has a different hash, so both are detected.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import os
import sys
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any, Final, Literal

import msgspec

from lamella.snapshot.errors import AlreadyExists, InvalidRequest, UnsupportedFormat

#: The path that means stdout or stdin.
PIPE: Final = "-"


@contextmanager
def written(path: str, entropy: Callable[[int], bytes] = os.urandom) -> Iterator[IO[bytes]]:
    """Open a file for writing that appears under its name only when it is complete and on disk.

    ``entropy`` returns random bytes, for a unique temporary name.

    Raises:
        AlreadyExists: a file of this name exists; it is not replaced.
        InvalidRequest: the file cannot be written.
    """
    if path == PIPE:
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
        return
    target = Path(path)
    if target.exists():
        raise AlreadyExists(f"{path} is there already", path=path)
    part = target.with_name(f"{target.name}.{entropy(8).hex()}.part")
    try:
        with os.fdopen(_made(part), "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        _rename(part, target)
    except OSError as error:
        raise InvalidRequest(f"{path} cannot be written: {error.strerror or error}") from error
    finally:
        part.unlink(missing_ok=True)


def _made(target: Path) -> int:
    """Create a file and return its descriptor. Only its owner may read it: it will contain the catalog's secrets."""
    return os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)


def _rename(part: Path, target: Path) -> None:
    """Rename the file to a name that does not exist. Not with a link: some file systems do not support links."""
    try:
        os.close(_made(target))  # from now on the name is reserved, and the rename replaces an empty file
    except FileExistsError as error:
        raise AlreadyExists(f"{target} is there already", path=str(target)) from error
    try:
        part.replace(target)
    except OSError:
        target.unlink()
        raise


@contextmanager
def read(path: str) -> Iterator[IO[bytes]]:
    """Open a file for reading. Raises InvalidRequest when it cannot be read."""
    if path == PIPE:
        yield sys.stdin.buffer
        return
    if not os.access(path, os.R_OK) or Path(path).is_dir():
        raise InvalidRequest(f"{path} is no file that can be read")
    with Path(path).open("rb") as file:
        yield file


FORMAT: Final = 1

Kind = Literal["integer", "real", "text", "boolean", "bytes"]
#: The types of a column: as read from the database, and as written in a line.
_VALUES: Final[dict[Kind, tuple[type, ...]]] = {
    "integer": (int,),
    "real": (float, int),
    "text": (str,),
    "boolean": (bool, int),
    "bytes": (bytes, bytearray, memoryview),
}


#: How a value is converted for a line, if it needs to be.
_WRITERS: Final[dict[Kind, Callable[[Any], Any]]] = {
    "bytes": lambda value: base64.b64encode(value).decode(),
    "boolean": bool,
    "real": float,
}


class Header(msgspec.Struct, frozen=True, kw_only=True):
    """The first line. Times are Unix milliseconds."""

    lamella_catalog: int
    release: str
    schema_revision: str
    made_ms: int
    backend: str
    warehouse: str


class TableStart(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The line before a table's rows."""

    table: str
    columns: tuple[tuple[str, Kind], ...]


class TableEnd(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The line after a table's rows. ``sha256``: of the table's lines from its start on."""

    end: str
    rows: int
    sha256: str


class End(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The last line. ``sha256``: of all lines before it."""

    tables: int
    rows: int
    sha256: str


class ArchiveWriter:
    """Writes a file; it is complete only after :meth:`finish`."""

    def __init__(self, file: IO[bytes], header: Header) -> None:
        # Without a name and a time, the same catalog gives the same bytes.
        self._file = gzip.GzipFile(filename="", mode="wb", fileobj=file, mtime=0)
        self._hash = hashlib.sha256()
        self._tables = self._rows = 0
        self._write(msgspec.json.encode(header))

    def table(self, name: str, columns: Sequence[tuple[str, Kind]], rows: Iterable[Sequence[Any]]) -> int:
        """Write a table; returns its number of rows."""
        digest = hashlib.sha256()
        count = 0

        def line(value: object) -> None:
            digest.update(self._write(msgspec.json.encode(value)))

        line(TableStart(table=name, columns=tuple(columns)))
        kinds = [kind for _, kind in columns]
        for row in rows:
            line([_written(kind, value) for kind, value in zip(kinds, row, strict=True)])
            count += 1
        self._write(msgspec.json.encode(TableEnd(end=name, rows=count, sha256=digest.hexdigest())))
        self._tables += 1
        self._rows += count
        return count

    def finish(self) -> None:
        """Write the last line."""
        self._write(msgspec.json.encode(End(tables=self._tables, rows=self._rows, sha256=self._hash.hexdigest())))
        self._file.close()

    def _write(self, text: bytes) -> bytes:
        line = text + b"\n"
        self._hash.update(line)
        self._file.write(line)
        return line


class ArchiveReader:
    """Reads a file once from start to end; its contents are verified only when :meth:`tables` has ended.

    Raises, here and while tables are read:
        InvalidRequest: the file is not an export, is truncated, or was changed.
        UnsupportedFormat: a newer release wrote it.
    """

    def __init__(self, file: IO[bytes]) -> None:
        self._lines = _lines(gzip.GzipFile(fileobj=file))
        self._hash = hashlib.sha256()
        first = self._next()
        try:
            version = msgspec.json.decode(first, type=_Version).lamella_catalog
            if version > FORMAT:
                raise UnsupportedFormat(
                    f"the export has format {version}, this release reads {FORMAT}: a newer Lamella wrote it",
                    format=version,
                )
            self.header = msgspec.json.decode(first, type=Header)
        except msgspec.MsgspecError as error:
            raise InvalidRequest("the file is no export of a catalog") from error

    def tables(self) -> Iterator[tuple[TableStart, Iterator[list[Any]]]]:
        """Iterate over the tables with their rows; read the rows of a table before the next table."""
        count = rows = 0
        while True:
            before = self._hash.hexdigest()
            line = self._next()
            if not line.startswith(b'{"table"'):
                end = _decoded(line, End)
                if (end.tables, end.rows, end.sha256) != (count, rows, before):
                    raise InvalidRequest("the export was changed since it was made: its checksum does not fit")
                if next(self._lines, None) is not None:
                    raise InvalidRequest("the export goes on behind its end")
                return
            start = _decoded(line, TableStart)
            taken = _Rows(self, start, line)
            yield start, iter(taken)
            if not taken.is_over:
                raise RuntimeError(f"the rows of {start.table} were not all taken")
            count += 1
            rows += taken.count

    def _next(self) -> bytes:
        line = next(self._lines, None)
        if line is None or not line.endswith(b"\n"):
            raise InvalidRequest("the export was cut off: its end is missing")
        self._hash.update(line)
        return line


class _Version(msgspec.Struct, frozen=True):
    lamella_catalog: int


class _Rows:
    """The rows of a table, checked against their count and hash at the end."""

    def __init__(self, reader: ArchiveReader, start: TableStart, line: bytes) -> None:
        self._reader = reader
        self._start = start
        self._digest = hashlib.sha256(line)
        self.count = 0
        self.is_over = False

    def __iter__(self) -> Iterator[list[Any]]:
        kinds = [kind for _, kind in self._start.columns]
        while True:
            line = self._reader._next()
            if not line.startswith(b"["):
                end = _decoded(line, TableEnd)
                if (end.end, end.rows, end.sha256) != (self._start.table, self.count, self._digest.hexdigest()):
                    raise InvalidRequest(f"table {self._start.table} of the export was changed since it was made")
                self.is_over = True
                return
            self._digest.update(line)
            self.count += 1
            values = _decoded(line, list[Any])
            if len(values) != len(kinds):
                raise InvalidRequest(f"a row of {self._start.table} has {len(values)} values, not {len(kinds)}")
            yield [_read(kind, value) for kind, value in zip(kinds, values, strict=True)]


def _lines(file: IO[bytes] | gzip.GzipFile) -> Iterator[bytes]:
    try:
        yield from file
    except (OSError, EOFError, zlib.error) as error:
        raise InvalidRequest("the export was cut off or damaged, or is no file of gzip") from error


def _decoded(line: bytes, kind: Any) -> Any:
    try:
        return msgspec.json.decode(line, type=kind)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise InvalidRequest("the export was changed since it was made, or is damaged") from error


def _written(kind: Kind, value: Any) -> Any:
    if value is None:
        return None
    if not isinstance(value, _VALUES[kind]):
        raise TypeError(f"a value of type {type(value).__name__} in a column of kind {kind}")
    return _WRITERS[kind](value) if kind in _WRITERS else value


def _read(kind: Kind, value: Any) -> Any:
    """The reverse of :func:`_written`; the line is not trusted."""
    if value is None:
        return None
    if kind == "bytes" and isinstance(value, str):
        with suppress(ValueError):
            return base64.b64decode(value, validate=True)
    elif kind != "bytes" and isinstance(value, bool if kind == "boolean" else _VALUES[kind]):
        return value
    raise InvalidRequest("the export was changed since it was made, or is damaged")
