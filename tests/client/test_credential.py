"""What a client shows the service: a token, or what a file holds at the time."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from lamella.client.http import AsyncLamella, Lamella
from lamella.client.http.credential import TokenFile, credential_of, token_of
from lamella.client.http.fake_transport import json_response
from lamella.snapshot import wire
from lamella.snapshot.errors import InvalidRequest
from lamella.snapshot.tokens import key_text
from support.both_clients import ClientFor

KEY, OTHER = key_text(b"a" * 32), key_text(b"b" * 32)


class Clock:
    """Seconds that go up when a test says so."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A file with a key, as an editor leaves it."""
    file = tmp_path / "key"
    file.write_text(f"{KEY}\n")
    return file


def test_a_client_shows_what_the_file_holds(client_for: ClientFor, file: Path) -> None:
    """On each request, without the end of its line."""
    client = client_for(lambda _: json_response(wire.TableList(tables=())), token_file=file)
    client.run(lambda lake: lake.tables("db"))
    assert client.requests[0].header("Authorization") == f"Bearer {KEY}"


def test_a_file_that_is_replaced_is_noticed_in_half_a_minute(file: Path) -> None:
    """Without a restart, and without a look at the disk for each request."""
    clock = Clock()
    token = TokenFile(file, clock)
    file.write_text(f"  {OTHER}\r\n")
    clock.now = 29.9
    assert token() == KEY
    clock.now = 30.0
    assert token() == OTHER


@pytest.mark.parametrize("state", ["missing", "empty", "spaces", "two", "binary", "folder"])
def test_a_file_that_is_being_changed_does_no_harm(file: Path, state: str) -> None:
    """Until it holds a token again, the one that it held goes on; it is not looked at more often for that."""
    clock = Clock()
    token = TokenFile(file, clock)
    spoil(file, state)
    for _ in range(3):
        clock.now += 30
        assert token() == KEY
    if file.is_dir():
        file.rmdir()
    file.write_text(OTHER)
    assert token() == KEY
    clock.now += 30
    assert token() == OTHER


@pytest.mark.parametrize("state", ["missing", "empty", "spaces", "two", "binary", "folder", "huge"])
@pytest.mark.parametrize("client", [Lamella, AsyncLamella])
def test_a_client_is_not_made_with_a_file_that_holds_no_token(client: Any, file: Path, state: str) -> None:
    """The error names the file, and shows nothing of what is in it."""
    spoil(file, state)
    with pytest.raises(InvalidRequest, match=re.escape(str(file))) as caught:
        client("http://lake.test", token_file=file, transport=object())
    assert KEY not in caught.value.message


def spoil(file: Path, state: str) -> None:
    """Leave the file without a token."""
    file.unlink()
    contents = {
        "empty": b"",
        "spaces": b" \n\n",
        "two": f"{KEY}\n{OTHER}".encode(),
        "binary": b"\x00\xff",
        "huge": b"x" * 100_000,
    }
    if state == "folder":
        file.mkdir()
    elif state != "missing":
        file.write_bytes(contents[state])


def test_a_token_and_a_file_at_once_are_refused(file: Path) -> None:
    """Nobody could say which one was meant."""
    with pytest.raises(InvalidRequest, match="either"):
        Lamella("http://lake.test", token=KEY, token_file=file)
    assert credential_of(None, None) is None


def test_a_file_is_found_though_the_program_goes_elsewhere(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A relative path is of where the client was made."""
    monkeypatch.chdir(file.parent)
    clock = Clock()
    token = TokenFile("key", clock)
    monkeypatch.chdir("/")
    file.write_text(OTHER)
    clock.now = 31
    assert token() == OTHER


def test_the_environment_names_a_token_or_a_file() -> None:
    """An empty variable is as good as none; both are one too many."""
    assert token_of({}) == (None, None)
    assert token_of({"LAMELLA_TOKEN": "t", "LAMELLA_TOKEN_FILE": ""}) == ("t", None)
    assert token_of({"LAMELLA_TOKEN": "", "LAMELLA_TOKEN_FILE": "/f"}) == (None, "/f")
    with pytest.raises(InvalidRequest, match="both"):
        token_of({"LAMELLA_TOKEN": "t", "LAMELLA_TOKEN_FILE": "/f"})


def test_a_client_does_not_show_its_token_to_who_prints_it(file: Path) -> None:
    """Logs and notebooks print clients."""
    for lake in (Lamella("http://lake.test", token=KEY), Lamella("http://lake.test", token_file=file)):
        assert KEY not in f"{lake!r} {lake} {lake.keys!r} {lake.table('db.t')!r}"
