"""Where an export is written to and read from: a file that only its owner reads, or a pipe."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Final

from lamella.snapshot.errors import AlreadyExists, InvalidRequest

#: Stands for stdout or stdin.
PIPE: Final = "-"


@contextmanager
def written(path: str) -> Iterator[IO[bytes]]:
    """A file to write to, which is there under its name only when all is written and on the disk.

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
    part = place.with_name(f"{place.name}.{os.getpid()}.part")
    try:
        # It holds the catalog's secrets and the hashes of its keys.
        number = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except OSError as error:
        raise InvalidRequest(f"{path} cannot be written: {error.strerror}") from error
    try:
        with os.fdopen(number, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.link(part, place)  # unlike a renaming, this replaces nothing
    except FileExistsError as error:
        raise AlreadyExists(f"{path} is there already", path=path) from error
    finally:
        part.unlink()


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
