"""Embedded lakes with the service itself: what they answer, who else may have the folder open, and how they end."""

from __future__ import annotations

import asyncio
import os
import random
import re
import shutil
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from click.testing import CliRunner

from fixtures_server import StartServer
from lamella.client import AsyncLamella, Lamella
from lamella.client.cli.app import cli
from lamella.client.spark.lake import client_of, service
from lamella.snapshot.errors import InvalidRequest, InvalidSettings, LamellaError, UnsupportedFormat
from lamella.snapshot.schema import Column
from support.embedded_writer import ROWS, TABLE, Writer

COLUMNS = [Column(name="a", type="int64")]


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[Lamella]:
    """An embedded lake with the empty table db.t."""
    with Lamella.embedded(tmp_path / "w") as opened:
        opened.create_namespace("db")
        opened.create_table(TABLE, schema=COLUMNS)
        yield opened


def numbers(lake: Lamella, filter: str | None = None) -> list[int]:
    """The rows of db.t, sorted."""
    return sorted(lake.table(TABLE).scan(filter).to_arrow()["a"].to_pylist())


def test_rows_are_appended_and_found(lake: Lamella) -> None:
    """Both come from the same code as a service's: a prune says which blocks are skipped, and a scan reads the rest."""
    table = lake.table(TABLE)
    for first in (0, 100, 200):
        table.append(pa.table({"a": range(first, first + 10)}))
    result = table.prune("a >= 105 AND a < 108")
    assert result.block_count == 1
    assert numbers(lake, "a >= 105 AND a < 108") == [105, 106, 107]
    assert lake.table(TABLE).scan().count() == 30
    with pytest.raises(LamellaError) as caught:
        lake.table("db.missing").info()
    assert caught.value.code == "table_not_found"


def _files(folder: Path) -> dict[str, bytes]:
    """The files of a lake, except for those of SQLite."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() and not path.name.startswith("_catalog.db")
    }


@pytest.mark.parametrize(
    ("ask", "text"),
    [
        (lambda lake: lake.table("db.tt").info(), "there is no table db.tt; did you mean db.t?"),
        (lambda lake: lake.tables("dbb"), "there is no namespace 'dbb'; did you mean db?"),
        (lambda lake: lake.table("db.n").prune("custmer = 1"), "there is no column 'custmer'; did you mean customer?"),
        (lambda lake: lake.table("db.n").scan(columns=["Custmer"]).to_arrow(), "did you mean customer?"),
        (lambda lake: lake.table("db.n").append({"custmer": [1]}), "did you mean customer?"),
        (lambda lake: lake.jobs.submit("compct", "db.n"), "did you mean compact?"),
        (lambda lake: lake.table("db.zebra").info(), "there is no table db.zebra"),
    ],
)
def test_an_error_of_a_misspelt_name_says_what_may_be_meant(
    lake: Lamella, ask: Callable[[Any], Any], text: str
) -> None:
    """In Python as on the command line: tables, namespaces, columns and kinds of jobs."""
    lake.create_table("db.n", schema={"customer": "int64"})
    with pytest.raises(LamellaError) as caught:
        ask(lake)
    assert str(caught.value).endswith(text)


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """The folder of a lake with a table of three rows and a dropped one."""
    folder = tmp_path / "first lake"
    with Lamella.embedded(folder) as opened:
        opened.create_namespace("db")
        opened.table(TABLE).append(pa.table({"a": [1, 2, 3]}), create=True)
        opened.create_table("db.dropped", schema=COLUMNS)
        opened.drop_table("db.dropped")
    return folder


def test_a_copied_lake_is_refused_so_that_it_does_not_write_into_the_original(home: Path, tmp_path: Path) -> None:
    """Locations are absolute: an append to the copy wrote its block into the folder of the original."""
    copy = tmp_path / "copy"
    shutil.copytree(home, copy)
    before = _files(home), _files(copy)
    with pytest.raises(InvalidSettings) as caught:
        Lamella.embedded(copy)
    message = caught.value.message
    assert f"2 tables in the warehouse {home}, not in {copy}" in message
    assert f"For the original, open it as {home} (setting warehouse)" in message
    assert (_files(home), _files(copy)) == before
    with Lamella.embedded(home) as lake:
        assert numbers(lake) == [1, 2, 3]


def test_a_copy_of_a_lake_with_dropped_tables_alone_is_refused_too(home: Path, tmp_path: Path) -> None:
    """They may come back until their files are deleted, and a clean-up looks at their folders."""
    with Lamella.embedded(home) as lake:
        lake.drop_table(TABLE)
    shutil.copytree(home, tmp_path / "copy")
    with pytest.raises(InvalidSettings, match="2 tables in the warehouse"):
        Lamella.embedded(tmp_path / "copy")


def test_a_moved_lake_is_opened_under_its_old_name_after_the_command_in_the_message(home: Path, tmp_path: Path) -> None:
    """The command makes a link at the old place; names with spaces are quoted."""
    moved = tmp_path / "elsewhere" / "lake"
    moved.parent.mkdir()
    home.rename(moved)
    with pytest.raises(InvalidSettings) as caught:
        Lamella.embedded(moved)
    command = re.search("run `(.*)`", caught.value.message)
    assert command is not None
    subprocess.run(["sh", "-c", command[1]], check=True)
    with Lamella.embedded(home) as lake:
        lake.table(TABLE).append(pa.table({"a": [4]}))
        assert numbers(lake) == [1, 2, 3, 4]
        assert not lake.table(TABLE).vacuum(execute=False).unknowns
    with pytest.raises(InvalidSettings, match="Both are names of one folder: open it as"):
        Lamella.embedded(moved)


def test_a_command_and_a_service_refuse_a_copy_as_well(home: Path, tmp_path: Path) -> None:
    """Whatever opens the catalog of the settings, and a check of the configuration."""
    copy = tmp_path / "copy"
    shutil.copytree(home, copy)
    for command in (
        ["append", TABLE, "rows.csv", "--url", str(copy)],
        ["serve", "--warehouse", str(copy)],
        ["serve", "--warehouse", str(copy), "--workers", "2"],
        ["config", "check", "--connect", "--warehouse", str(copy)],
    ):
        result = CliRunner().invoke(cli, command)
        assert result.exit_code != 0, command
        assert f"not in {copy}" in result.output, command


def test_what_was_written_is_there_when_it_is_opened_again(tmp_path: Path) -> None:
    """After a close, and for the asynchronous client, in one event loop after another."""
    with Lamella.embedded(tmp_path) as lake:
        lake.create_namespace("db")
        lake.create_table(TABLE, schema=COLUMNS)
        lake.table(TABLE).append(pa.table({"a": [1, 2]}))

    opened: list[AsyncLamella] = []

    async def open_it() -> int:
        opened.append(await AsyncLamella.embedded(str(tmp_path)))
        return (await opened[0].table(TABLE).info()).row_count

    async def ask_and_close() -> int:
        async with opened[0] as lake:
            return (await lake.table(TABLE).prune("a > 1")).block_count

    assert asyncio.run(open_it()) == 2
    assert asyncio.run(ask_and_close()) == 1


def test_threads_share_an_embedded_lake(lake: Lamella) -> None:
    """Appends of several threads are all there, each once."""
    threads = [threading.Thread(target=lambda n=n: lake.table(TABLE).append(pa.table({"a": [n]}))) for n in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert numbers(lake) == list(range(6))


def test_settings_are_those_that_were_given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A variable of the environment may name another warehouse; none has a say. Faults are told by name."""
    monkeypatch.setenv("LAMELLA_CATALOG", str(tmp_path / "other.db"))
    monkeypatch.setenv("LAMELLA_AUTH", "true")
    with Lamella.embedded(tmp_path / "w", settings={"quota_namespaces": 1}) as lake:
        lake.create_namespace("one")
        with pytest.raises(LamellaError) as caught:
            lake.create_namespace("two")
        assert caught.value.code == "quota_exceeded"
    assert (tmp_path / "w" / "_catalog.db").is_file()
    assert not (tmp_path / "other.db").exists()
    for settings, wrong in (
        ({"cache_byte": 1}, "cache_byte is not a setting; did you mean cache_bytes"),
        ({"cache_bytes": "much"}, "cache_bytes: must be a whole number"),
        ({"port": 1}, "port is a setting of a server"),
    ):
        with pytest.raises(InvalidSettings, match=wrong):
            Lamella.embedded(tmp_path / "v", settings=settings)
    with pytest.raises(InvalidSettings, match="local folder"):
        Lamella.embedded("s3://bucket/lake")
    assert not (tmp_path / "v").exists()


def test_a_folder_that_cannot_be_used_is_refused_with_the_reason(tmp_path: Path) -> None:
    """A file in its place, or a catalog of a newer release."""
    (tmp_path / "file").write_text("x")
    with pytest.raises(LamellaError, match="file"):
        Lamella.embedded(tmp_path / "file")
    Lamella.embedded(tmp_path / "w").close()
    with sqlite3.connect(tmp_path / "w" / "_catalog.db") as catalog:
        catalog.execute("UPDATE alembic_version SET version_num = '9999'")
    catalog.close()
    with pytest.raises(UnsupportedFormat, match="newer Lamella"):
        Lamella.embedded(tmp_path / "w")


def test_a_forked_child_must_open_it_itself(lake: Lamella) -> None:
    """The child has no thread that would answer, and does not wait for one; its end leaves the parent's lake alone."""
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            lake.namespaces()
            os.write(write, b"answered")
        except LamellaError as error:
            os.write(write, error.message.encode())
        finally:
            lake.close()
            os._exit(0)
    os.close(write)
    with os.fdopen(read, "rb") as message:
        assert b"forked" in message.read()
    os.waitpid(pid, 0)
    assert numbers(lake) == []


@pytest.mark.parametrize("ending", ["lake.close()", "pass", "raise SystemExit(0)", "del lake"])
def test_a_program_ends_whether_it_closes_its_lake_or_not(tmp_path: Path, ending: str) -> None:
    """Without an error, and with everything written; nothing is written to its output."""
    program = f"""
from lamella.client import Lamella
lake = Lamella.embedded({str(tmp_path)!r})
lake.create_namespace("db")
{ending}
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=300, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    with Lamella.embedded(tmp_path) as lake:
        assert [each.name for each in lake.namespaces()] == ["db"]


def test_a_service_and_embedded_lakes_have_one_folder_open(
    lake: Lamella, start_server: StartServer, tmp_path: Path
) -> None:
    """Each sees at once what another one has committed; clean-up of one leaves what the others have."""
    served = Lamella(start_server(warehouse=tmp_path / "w").url)
    with served, Lamella.embedded(tmp_path / "w") as second:
        for number, each in enumerate((lake, served, second)):
            each.table(TABLE).append(pa.table({"a": [number]}))
            for other in (lake, served, second):
                assert numbers(other) == list(range(number + 1))
        second.table(TABLE).vacuum(execute=True)
        assert numbers(lake) == numbers(served) == [0, 1, 2]


def test_a_job_of_an_embedded_lake_is_run_by_a_worker_on_its_folder(lake: Lamella) -> None:
    """The worker and the program of the job are processes of their own, which open the folder too."""
    for number in range(3):
        lake.table(TABLE).append(pa.table({"a": [number]}))
    job = lake.jobs.submit("compact", TABLE)
    command = [sys.executable, "-m", "lamella.client.cli", "worker", "--url", lake.url, "--once"]
    subprocess.run(command, check=True, capture_output=True, timeout=500)
    found = lake.jobs.get(job.job_id)
    assert (found.state, found.error) == ("succeeded", None)
    assert lake.table(TABLE).info().block_count == 1
    assert numbers(lake) == [0, 1, 2]


def test_commands_take_the_folder_of_a_lake_for_a_service(lake: Lamella, tmp_path: Path) -> None:
    """By its path or URL; a folder without a lake is not made into one."""
    for url in (str(tmp_path / "w"), lake.url):
        done = CliRunner().invoke(cli, ["tables", "list", "db", "--url", url, "--json"])
        assert (done.exit_code, done.stdout) == (0, '{"tables":["t"]}\n'), done.stderr
    done = CliRunner().invoke(cli, ["namespaces", "list", "--url", str(tmp_path / "typo")])
    assert done.exit_code == 1
    assert "there is no lake in" in done.stderr
    assert not (tmp_path / "typo").exists()


def test_spark_needs_the_url_of_a_service(lake: Lamella) -> None:
    """Its executors are other processes; the error names the command that serves the folder."""
    with pytest.raises(InvalidRequest, match="lamella serve --warehouse"):
        client_of(lake)
    with pytest.raises(InvalidRequest, match="lamella serve --warehouse"), service(None, lake):
        pass


def _wait(condition: object, writers: list[Writer], counts: int) -> None:
    give_up = time.monotonic() + 300
    while any(len(writer.numbers("done")) < counts for writer in writers):
        assert time.monotonic() < give_up, condition
        assert all(writer.process.is_alive() for writer in writers)
        time.sleep(0.02)


def _kills(folder: Path, rounds: int, seed: int) -> None:
    """Two writers at a time, killed at random moments; then every append that was message of is there once."""
    lots = random.Random(seed)
    with Lamella.embedded(folder / "w") as lake:
        lake.create_namespace("db")
        lake.create_table(TABLE, schema=COLUMNS)
    begun: set[int] = set()
    done: set[int] = set()
    for number in range(rounds):
        writers = [
            Writer(folder / "w", folder / f"log-{number}-{each}", (2 * number + each) * 1_000_000) for each in range(2)
        ]
        _wait("the writers append", writers, 2)
        for writer in writers:
            time.sleep(lots.uniform(0, 0.2))
            writer.kill()
            assert writer.process.exitcode == -signal.SIGKILL
            begun |= set(writer.numbers("begun"))
            done |= set(writer.numbers("done"))
    with Lamella.embedded(folder / "w") as lake:
        rows = Counter(numbers(lake))
        assert done <= rows.keys() <= begun
        assert set(rows.values()) == {ROWS}
        assert lake.table(TABLE).verify().findings == ()
        lake.table(TABLE).append(pa.table({"a": [-1]}))
        lake.table(TABLE).vacuum(execute=True)
        assert Counter(numbers(lake)) == rows + Counter([-1])


def test_killed_processes_lock_nobody_out_and_lose_nothing(tmp_path: Path) -> None:
    """Two processes on one folder; each of those that follow opens it at once, whatever the killed ones held."""
    _kills(tmp_path, 2, seed=1)


@pytest.mark.soak
def test_many_killed_processes_lock_nobody_out_and_lose_nothing(tmp_path: Path) -> None:
    """The same for longer."""
    _kills(tmp_path, 25, seed=2)


def test_a_command_takes_the_name_of_a_folder_that_is_a_lake(tmp_path: Path) -> None:
    """Without `./` before it, if there is a lake; another word is not taken for a folder."""
    with Lamella.embedded(tmp_path / "lake") as lake:
        lake.create_namespace("db")
    for url, status in (("lake", 0), ("lkae", 1)):
        command = [sys.executable, "-m", "lamella", "namespaces", "list", "--url", url]
        done = subprocess.run(command, check=False, cwd=tmp_path, capture_output=True, text=True)
        assert done.returncode == status, done.stderr
