"""``lamella serve``: without settings, and what it says when it cannot start."""

from __future__ import annotations

import os
import re
import signal
import socket
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy.exc import OperationalError

from lamella.client import Lamella
from lamella.client.http import NO_RETRY
from lamella.service.catalog.engine import catalog_url, open_engine, usable_file
from lamella.service.catalog.migrate import migrate_catalog
from lamella.service.config import check
from lamella.service.config.settings import Settings
from lamella.service.config.sources import load_settings
from lamella.snapshot.errors import InvalidRequest, InvalidSettings, Unavailable
from support.forked_command import folder_of_command
from support.ports import free_port

START_S = 300
#: Runs the command in the folder of the test, with these variables, and returns its status and what it wrote to stderr.
Serve = Callable[..., tuple[int, str]]


def _environment(variables: dict[str, str]) -> dict[str, str]:
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("LAMELLA_")}
    return {**inherited, **variables}


@pytest.fixture
def serve(tmp_path: Path) -> Serve:
    """It must end by itself."""

    def run(*words: str, **variables: str) -> tuple[int, str]:
        done = subprocess.run(
            [str(folder_of_command() / "lamella"), "serve", *words],
            env=_environment(variables),
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=START_S,
            check=False,
        )
        assert done.stdout == ""
        return done.returncode, done.stderr

    return run


@pytest.fixture
def occupied() -> Iterator[int]:
    """A port that another program listens on."""
    with closing(socket.create_server(("127.0.0.1", 0))) as listening:
        yield listening.getsockname()[1]


def one_line(text: str) -> str:
    """The only line, which is an error."""
    (line,) = text.splitlines()
    assert line.startswith("error: "), text
    return line


def test_serve_alone_serves_a_lake_in_the_current_folder(tmp_path: Path) -> None:
    """It says where; what is written is there when the folder is opened by another program, also at the same time."""
    port = free_port()
    log = tmp_path / "log"
    with log.open("w") as stderr:
        process = subprocess.Popen(
            [sys.executable, "-m", "lamella.client.cli", "serve", "--port", str(port)],
            env=_environment({}),
            cwd=tmp_path,
            stderr=stderr,
        )
    try:
        give_up = time.monotonic() + START_S
        with Lamella(f"http://127.0.0.1:{port}", policy=NO_RETRY) as lake:
            while True:
                try:
                    lake.create_namespace("db")
                    break
                except Unavailable:
                    assert process.poll() is None, log.read_text()
                    assert time.monotonic() < give_up
                    time.sleep(0.05)
        with Lamella.embedded(tmp_path / "lamella") as lake:
            assert [each.name for each in lake.namespaces()] == ["db"]
    finally:
        process.send_signal(signal.SIGINT)
        process.wait(START_S)
    said = log.read_text().splitlines()[0]
    assert said == f"no settings: serving the lake in {tmp_path / 'lamella'} on http://127.0.0.1:{port}"


@pytest.mark.parametrize(
    ("words", "variables"),
    [
        ((), {"LAMELLA_LOG_LEVEL": "info"}),
        (("--host", "0.0.0.0"), {}),  # noqa: S104  # refused
        (("--catalog", "c.db"), {}),
        (("--config", "lamella.toml"), {}),
    ],
    ids=["variable", "host", "catalog", "file"],
)
def test_a_forgotten_warehouse_stays_an_error_where_something_is_set(
    serve: Serve, tmp_path: Path, words: tuple[str, ...], variables: dict[str, str]
) -> None:
    """An empty lake would hide that a deployment lacks its warehouse."""
    (tmp_path / "lamella.toml").write_text("read_threads = 4\n")
    status, text = serve(*words, **variables)
    assert status == 2
    assert "the setting warehouse is missing" in one_line(text)
    assert not (tmp_path / "lamella").exists()


@pytest.mark.parametrize(("given", "is_found"), [({"auth": True}, True), ({"catalog": "c.db"}, False)])
def test_a_lake_that_is_there_is_the_warehouse_of_other_settings(
    monkeypatch: pytest.MonkeyPatch, given: dict[str, Any], is_found: bool
) -> None:
    """After `lamella serve` alone, access control can be turned on in the same folder; another catalog is not its."""
    for name in [name for name in os.environ if name.startswith("LAMELLA_")]:
        monkeypatch.delenv(name)
    for name, value in given.items():
        monkeypatch.setenv(f"LAMELLA_{name.upper()}", str(value).lower())
    if is_found:
        assert load_settings(folder="lamella", lake="lamella").settings.warehouse == "lamella"
    else:
        with pytest.raises(InvalidSettings, match="the setting warehouse is missing"):
            load_settings(folder="lamella", lake="lamella")
    with pytest.raises(InvalidSettings, match="the setting warehouse is missing"):
        load_settings(folder="lamella")
    assert load_settings({"warehouse": "w"}, lake="lamella").settings.warehouse == "w"


@pytest.mark.parametrize(
    ("words", "variables", "wrong"),
    [
        (("--port", "x"), {}, "'x' is not a valid integer"),
        (("--port", "70000"), {}, "--port: must be at most 65535"),
        (("--worker", "1"), {}, "did you mean '--workers'"),
        ((), {"LAMELLA_WAREHOSE": "w"}, "did you mean LAMELLA_WAREHOUSE"),
        (("--warehouse", "w"), {"LAMELLA_CACHE_BYTES": "much"}, "LAMELLA_CACHE_BYTES: must be a whole number"),
        (("--config", "missing.toml"), {}, "missing.toml: No such file"),
        (("--warehouse", "ftp://x/y"), {}, "ftp"),
    ],
)
def test_wrong_settings_are_one_line(
    serve: Serve, words: tuple[str, ...], variables: dict[str, str], wrong: str
) -> None:
    """With the name of the setting, a status that is not zero, and no traceback."""
    status, text = serve(*words, **variables)
    assert status in (1, 2)
    assert wrong.lower() in one_line(text).lower()


def test_a_port_in_use_is_one_line(serve: Serve, tmp_path: Path, occupied: int) -> None:
    """It says which option chooses another; the lake is not made, and nothing is said of one that is served."""
    status, text = serve("--port", str(occupied), "--warehouse", "w")
    assert status == 1
    assert re.search(r"another program uses that port.*--port", one_line(text))
    assert not (tmp_path / "w" / "_catalog.db").exists()


def _of_a_newer_release(path: Path) -> None:
    migrate_catalog(str(path), to=None, timeout_s=30)
    with closing(sqlite3.connect(path)) as catalog, catalog:
        catalog.execute("UPDATE alembic_version SET version_num = '9999'")


def _of_an_older_release(path: Path) -> None:
    migrate_catalog(str(path), to="0001", timeout_s=30)


def _no_database(path: Path) -> None:
    path.write_text("no database" * 1_000)


def _of_another_program(path: Path) -> None:
    with closing(sqlite3.connect(path)) as catalog, catalog:
        catalog.execute("CREATE TABLE tables (id)")


def _folder(path: Path) -> None:
    path.mkdir()


def _content(path: Path) -> object:
    """What a file holds: of a database its statements, since opening one may change how it keeps its log."""
    if path.is_dir():
        return sorted(path.iterdir())
    try:
        with closing(sqlite3.connect(path)) as catalog:
            return list(catalog.iterdump())
    except sqlite3.DatabaseError:
        return path.read_bytes()


@pytest.mark.parametrize(
    ("make", "variables", "wrong"),
    [
        (_of_a_newer_release, {}, "schema revision 9999.*newer Lamella"),
        (_of_an_older_release, {"LAMELLA_AUTO_MIGRATE": "false"}, "lamella catalog migrate"),
        (_no_database, {}, "not a database"),
        (_of_another_program, {}, "not a Lamella catalog"),
        (_folder, {}, "cannot be opened or written"),
    ],
)
def test_a_catalog_that_cannot_be_used_is_one_line(
    serve: Serve, tmp_path: Path, make: Callable[[Path], None], variables: dict[str, str], wrong: str
) -> None:
    """Of another release, no catalog, no database; and what it holds is left as it was."""
    make(tmp_path / "c.db")
    before = _content(tmp_path / "c.db")
    status, text = serve("--warehouse", "w", "--catalog", "c.db", "--port", str(free_port()), **variables)
    assert status == 1
    assert re.search(wrong, one_line(text))
    assert before == _content(tmp_path / "c.db")


@pytest.mark.parametrize("option", ["--warehouse", "--catalog"])
def test_a_folder_that_cannot_be_made_is_one_line(serve: Serve, tmp_path: Path, option: str) -> None:
    """It lies below a file."""
    (tmp_path / "file").touch()
    given = {"--warehouse": "w", option: "file/x/y"}
    words = [word for pair in given.items() for word in pair]
    status, text = serve(*words, "--port", str(free_port()))
    assert status == 1
    assert re.search(r"file/x(/y)? cannot be (written to|made)", one_line(text))


def test_a_folder_of_someone_else_is_refused_before_the_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever runs the tests may be allowed to write everywhere, so the system's answer is replaced."""
    monkeypatch.setattr("os.access", lambda path, _mode: Path(path) != tmp_path)
    with pytest.raises(InvalidRequest, match=r"warehouse: .* cannot be written to"):
        check.refuse_unwritable(Settings(warehouse=str(tmp_path)))
    with pytest.raises(InvalidRequest, match=r"cache_dir: .* cannot be written to"):
        check.refuse_unwritable(Settings(warehouse="s3://bucket/w", catalog="c.db", cache_dir=str(tmp_path / "c")))


@pytest.mark.parametrize(("code", "is_final"), [(8, True), (8 | 1 << 8, True), (14, True), (5, False), (10, False)])
def test_a_database_that_may_not_be_written_is_not_one_that_is_busy(tmp_path: Path, code: int, is_final: bool) -> None:
    """Read-only and not to be opened: no use in waiting. Locked, and a failing disk: as before."""
    engine = open_engine(catalog_url(str(tmp_path / "c.db")), timeout_s=1, connections=1)
    error = sqlite3.OperationalError("said by SQLite")
    error.sqlite_errorcode = code
    with pytest.raises(InvalidRequest if is_final else OperationalError, match="said by SQLite"), usable_file(engine):
        raise OperationalError("INSERT", {}, error)
    engine.dispose()


def test_a_folder_of_other_files_is_not_taken_for_the_lake(serve: Serve, tmp_path: Path) -> None:
    """A checkout of ours, say, has the default name; nothing is written into it."""
    (tmp_path / "lamella").mkdir()
    (tmp_path / "lamella" / "setup.py").touch()
    status, said = serve("--port", str(free_port()))
    assert status == 1
    assert "has other files and no lake; name a folder with --warehouse" in said
    assert [path.name for path in (tmp_path / "lamella").iterdir()] == ["setup.py"]


def test_commands_for_the_catalog_find_that_of_the_default_folder(tmp_path: Path) -> None:
    """That of `lamella serve` alone; they make none."""

    def status_of_the_catalog() -> subprocess.CompletedProcess[str]:
        command = [str(folder_of_command() / "lamella"), "catalog", "status"]
        environment = _environment({})
        return subprocess.run(command, check=False, cwd=tmp_path, capture_output=True, text=True, env=environment)

    assert status_of_the_catalog().returncode == 2
    assert not (tmp_path / "lamella").exists()
    Lamella.embedded(tmp_path / "lamella").close()
    done = status_of_the_catalog()
    assert (done.returncode, done.stderr) == (0, "")
