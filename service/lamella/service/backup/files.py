"""Where an export is written to and read from: a file that only its owner reads, or a pipe."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Final

from lamella.snapshot.errors import AlreadyExists, InvalidRequest

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
