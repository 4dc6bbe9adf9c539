"""A private PostgreSQL server for tests. A pytest plugin with the fixtures ``postgres_url`` and ``postgres_database``.

Mark tests that use it with ``postgres``. It fails, and does not skip, when the server programs are missing.
"""

from __future__ import annotations

import itertools
import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
import pytest

START_S = 60
#: PostgreSQL refuses to run as root; the first of these users that exists runs it then.
USERS = ("postgres", "nobody")


def _user() -> str | None:
    """Whom to run the server as; None: as we are."""
    if os.geteuid() != 0:
        return None
    known = {entry.pw_name for entry in pwd.getpwall()}
    return next(name for name in USERS if name in known)


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


def _run(command: list[str | Path], user: str | None, folder: Path) -> None:
    done = subprocess.run(command, check=False, capture_output=True, text=True, user=user, cwd=folder)
    if done.returncode != 0:
        pytest.fail(f"{command[0]} failed:\n{done.stdout}{done.stderr}")


@pytest.fixture(scope="session")
def postgres_url(postgres_bin: Path) -> Iterator[str]:
    """The address of an empty database, ``postgresql+psycopg://...``, on a server that ends with the session."""
    user = _user()
    # Not pytest's own temporary folder: it belongs to root alone, and the server's user could not enter it.
    folder = Path(tempfile.mkdtemp(prefix="lamella-postgres-"))
    if user is not None:
        shutil.chown(folder, user)
    data, log = folder / "data", folder / "server.log"
    process = None
    try:
        _run(
            [postgres_bin / "initdb", "-D", data, "-U", "lamella", "--auth=trust", "-E", "UTF8", "--no-sync"],
            user,
            folder,
        )
        port = _free_port()
        settings = {
            "listen_addresses": "127.0.0.1",
            "port": port,
            "unix_socket_directories": "",
            "max_connections": 200,
            "fsync": "off",  # no test pulls the plug of this server
        }
        options = [part for name, value in settings.items() for part in ("-c", f"{name}={value}")]
        with log.open("wb") as output:
            process = subprocess.Popen(
                [postgres_bin / "postgres", "-D", data, *options],
                stdout=output,
                stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
                user=user,
                cwd=folder,
            )
        url = f"postgresql://lamella@127.0.0.1:{port}/postgres"
        _wait(process, url, log)
        yield url.replace("postgresql://", "postgresql+psycopg://")
    finally:
        if process is not None:
            process.send_signal(signal.SIGINT)  # the fast way: SIGTERM would wait for clients to hang up
            process.wait(timeout=60)
        shutil.rmtree(folder)


def _wait(process: subprocess.Popen[bytes], url: str, log: Path) -> None:
    give_up = time.monotonic() + START_S
    while time.monotonic() < give_up and process.poll() is None:
        try:
            psycopg.connect(url, connect_timeout=5).close()
        except psycopg.OperationalError:
            time.sleep(0.05)
        else:
            return
    pytest.fail(f"PostgreSQL did not start:\n{log.read_text(errors='replace')}")


@pytest.fixture(scope="session")
def new_postgres_database(postgres_url: str) -> Callable[[], str]:
    """Creates one more empty database and returns its address."""
    numbers = itertools.count()

    def create() -> str:
        name = f"test_{os.getpid()}_{next(numbers)}"
        with psycopg.connect(postgres_url.replace("+psycopg", ""), autocommit=True) as connection:
            connection.execute(f'CREATE DATABASE "{name}"')
        return f"{postgres_url.rpartition('/')[0]}/{name}"

    return create


@pytest.fixture
def postgres_database(new_postgres_database: Callable[[], str]) -> str:
    """The address of an empty database of this test's own."""
    return new_postgres_database()
