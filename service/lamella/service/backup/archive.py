"""The file that a catalog is exported to: JSON lines in gzip, every table and the whole with a checksum.

A line that is an object says what comes, one that is a list is a row. The first line tells of the catalog, each table
is between an object with its columns and one with its count and hash, the last line counts and hashes everything. A
file that was cut off lacks that, and one that was changed has another hash, so neither is taken for a whole one.
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

#: Stands for stdout or stdin.
PIPE: Final = "-"


@contextmanager
def written(path: str, entropy: Callable[[int], bytes] = os.urandom) -> Iterator[IO[bytes]]:
    """A file to write to, whose bytes are there under its name only when all is written and on the disk.

    ``entropy`` gives random bytes, for a name until then that nobody else has.

    Raises:
        AlreadyExists: there is one of that name; nothing is replaced.
        InvalidRequest: it cannot be written.
    """
    if path == PIPE:
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
        return
    place = Path(path)
    if place.exists():
        raise AlreadyExists(f"{path} is there already", path=path)
    part = place.with_name(f"{place.name}.{entropy(8).hex()}.part")
    try:
        with os.fdopen(_made(part), "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        _rename(part, place)
    except OSError as error:
        raise InvalidRequest(f"{path} cannot be written: {error.strerror or error}") from error
    finally:
        part.unlink(missing_ok=True)


def _made(place: Path) -> int:
    """The descriptor of a file that was not there. It will hold the catalog's secrets and the hashes of its keys."""
    return os.open(place, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)


def _rename(part: Path, place: Path) -> None:
    """Give it a name that nothing has. Not by a link: not every file system has them."""
    try:
        os.close(_made(place))  # from now on the name is taken, and what is replaced is empty
    except FileExistsError as error:
        raise AlreadyExists(f"{place} is there already", path=str(place)) from error
    try:
        part.replace(place)
    except OSError:
        place.unlink()
        raise


@contextmanager
def read(path: str) -> Iterator[IO[bytes]]:
    """A file to read from. Raises InvalidRequest when it cannot be read."""
    if path == PIPE:
        yield sys.stdin.buffer
        return
    if not os.access(path, os.R_OK) or Path(path).is_dir():
        raise InvalidRequest(f"{path} is no file that can be read")
    with Path(path).open("rb") as file:
        yield file


FORMAT: Final = 1

Kind = Literal["integer", "real", "text", "boolean", "bytes"]
#: What a column may hold, as a value comes from a database and as it stands in a line.
_VALUES: Final[dict[Kind, tuple[type, ...]]] = {
    "integer": (int,),
    "real": (float, int),
    "text": (str,),
    "boolean": (bool, int),
    "bytes": (bytes, bytearray, memoryview),
}


#: How it is made what a line can hold, where it is not that already.
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
    """What stands before a table's rows."""

    table: str
    columns: tuple[tuple[str, Kind], ...]


class TableEnd(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What stands behind them. ``sha256``: of the table's lines from its start on."""

    end: str
    rows: int
    sha256: str


class End(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The last line. ``sha256``: of all lines before it."""

    tables: int
    rows: int
    sha256: str


class ArchiveWriter:
    """Writes a file; it is whole only after :meth:`finish`."""

    def __init__(self, file: IO[bytes], header: Header) -> None:
        # No name and no time: the same catalog makes the same bytes.
        self._file = gzip.GzipFile(filename="", mode="wb", fileobj=file, mtime=0)
        self._hash = hashlib.sha256()
        self._tables = self._rows = 0
        self._write(msgspec.json.encode(header))

    def table(self, name: str, columns: Sequence[tuple[str, Kind]], rows: Iterable[Sequence[Any]]) -> int:
        """Write a table; returns how many rows it has."""
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
    """Reads a file once, from the start to its end; what it gave is to be believed only after :meth:`tables` ended.

    Raises, here and while tables are read:
        InvalidRequest: the file is none of ours, was cut off, or changed.
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
        """Each table with its rows, which are to be taken before the next table."""
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
    """The reverse of :func:`_written`, of a line that may be anybody's."""
    if value is None:
        return None
    if kind == "bytes" and isinstance(value, str):
        with suppress(ValueError):
            return base64.b64decode(value, validate=True)
    elif kind != "bytes" and isinstance(value, bool if kind == "boolean" else _VALUES[kind]):
        return value
    raise InvalidRequest("the export was changed since it was made, or is damaged")
