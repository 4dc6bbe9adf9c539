"""The file of an export: whole under its name, or not there; nothing is replaced."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import pytest

from lamella.service.backup import archive
from lamella.snapshot.errors import AlreadyExists, InvalidRequest


def entropy(count: int) -> bytes:
    """The same bytes each time."""
    return b"\x05" * count


def no_space(*_: Any) -> None:
    """A disk that is full."""
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_a_file_comes_where_there_are_no_links(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As on exFAT and on network drives; it is its owner's alone."""

    def refused(*_: Any, **__: Any) -> None:
        raise OSError(errno.EPERM, os.strerror(errno.EPERM))

    monkeypatch.setattr(os, "link", refused)
    path = tmp_path / "b.gz"
    with archive.written(str(path), entropy) as out:
        out.write(b"all of it")
        assert [each.name for each in tmp_path.iterdir()] == ["b.gz.0505050505050505.part"]
    assert path.read_bytes() == b"all of it"
    assert path.stat().st_mode & 0o777 == 0o600
    assert list(tmp_path.iterdir()) == [path]


def test_a_file_that_appeared_meanwhile_is_not_replaced(tmp_path: Path) -> None:
    """The later one is refused, and leaves nothing."""
    path = tmp_path / "b.gz"

    def write_second() -> None:
        with archive.written(str(path)) as out:
            out.write(b"late")
            path.write_bytes(b"first")

    with pytest.raises(AlreadyExists):
        write_second()
    assert path.read_bytes() == b"first"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("at", ["write", "fsync", "replace"])
def test_a_disk_that_is_full_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at: str) -> None:
    """Wherever that shows, it is said, and neither the name nor a part of the file is there."""
    if at == "fsync":
        monkeypatch.setattr(os, "fsync", no_space)
    elif at == "replace":
        monkeypatch.setattr(Path, "replace", no_space)

    def write() -> None:
        with archive.written(str(tmp_path / "b.gz")) as out:
            out.write(b"some")
            if at == "write":
                no_space()

    with pytest.raises(InvalidRequest, match="No space left"):
        write()
    assert list(tmp_path.iterdir()) == []
