"""Clients, tables and scans in other processes."""

from __future__ import annotations

import pickle
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import pytest

from fixtures_server import ServerProcess
from lamella.client import AsyncLamella, Lamella, col
from lamella.client.http import NO_RETRY
from lamella.client.http.fake_transport import FakeTransport, json_response
from lamella.client.http.recipe import ClientRecipe, client_again
from lamella.client.scan import Scan
from lamella.snapshot.errors import InvalidRequest

TOKEN = "sesame-0123456789"


def again(value: Any) -> Any:
    """A copy by way of bytes."""
    return pickle.loads(pickle.dumps(value))  # noqa: S301  # our own


def test_a_scan_is_read_by_other_processes(server: ServerProcess) -> None:
    """With the filter, and the snapshot if it was planned."""
    with Lamella(server.url) as lake:
        table = lake.table("db.t")
        table.append({"a": [1, 2, 3]}, create=True)
        planned, unplanned = table.scan(col("a") > 1), table.scan("a > 1")
        assert planned.plan.report.blocks_total == 1
        table.append({"a": [10]})
        with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as processes:
            found = list(processes.map(Scan.to_arrow, [planned, unplanned]))
        assert [sorted(rows["a"].to_pylist()) for rows in found] == [[2, 3], [2, 3, 10]]
        copy = again(table)
        assert (str(copy), copy.info(), copy.scan().count()) == ("db.t", table.info(), 4)
        assert again(table.scan(changes_since="2")).to_arrow()["a"].to_pylist() == [10]


@pytest.mark.parametrize("kind", [Lamella, AsyncLamella])
def test_a_client_connects_to_the_same_service(kind: type[Any]) -> None:
    """With its settings; a table has its client."""
    client = kind("http://lake:1/prefix", token=TOKEN, timeout_s=3.0, policy=NO_RETRY, traces=False)
    copy = again(client)
    assert type(copy) is kind
    assert copy.url == client.url
    assert copy._recipe == client._recipe
    assert repr(again(client.table("a.b"))) == repr(client.table("a.b"))
    assert TOKEN not in repr(client._recipe)


def test_a_key_is_carried_only_if_it_was_an_argument(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that was found is not in the bytes, and is found again for the same service only."""
    profiles = tmp_path / "profiles.toml"
    profiles.write_text(f'[lake]\nurl = "http://lake:1"\ntoken = "{TOKEN}"\n', "utf-8")
    monkeypatch.setenv("LAMELLA_PROFILES_FILE", str(profiles))
    monkeypatch.delenv("LAMELLA_URL", raising=False)
    assert TOKEN.encode() in pickle.dumps(Lamella("http://lake:1", token=TOKEN))
    found = Lamella(profile="lake")
    assert TOKEN.encode() not in pickle.dumps(found)
    assert again(found)._exchange._credential() == TOKEN

    made: list[tuple[str, str | None]] = []

    def client(url: str, *, token: str | None, **_: object) -> None:
        made.append((url, token))

    recipe: ClientRecipe = found._recipe
    for text in (f'[lake]\nurl = "http://other:1"\ntoken = "{TOKEN}"\n', ""):
        profiles.write_text(text, "utf-8")
        client_again(client, recipe)
    client_again(client, recipe, {"HOME": str(tmp_path)})
    assert made == [("http://lake:1", None)] * 3


def test_a_token_file_is_carried_by_its_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the other process's folder is; it reads the file itself."""
    (tmp_path / "key").write_text(TOKEN, "utf-8")
    monkeypatch.chdir(tmp_path)
    written = pickle.dumps(Lamella("http://lake:1", token_file="key"))
    assert TOKEN.encode() not in written
    monkeypatch.chdir("/")
    assert pickle.loads(written)._exchange._credential() == TOKEN  # noqa: S301  # our own
    (tmp_path / "key").unlink()
    with pytest.raises(InvalidRequest, match="cannot be read"):
        pickle.loads(written)  # noqa: S301  # our own


def test_what_cannot_be_made_again_says_so() -> None:
    """A transport of the program's own, and URLs that the service signed for this process."""
    with pytest.raises(TypeError, match="fragments"):
        pickle.dumps(Lamella("http://lake:1").table("a.b").scan(signed_urls=True))
    client = Lamella("http://lake:1", transport=FakeTransport(lambda _: json_response({})))
    with pytest.raises(TypeError, match="transport"):
        pickle.dumps(client)
