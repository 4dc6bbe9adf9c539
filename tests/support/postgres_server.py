"""A private PostgreSQL server on a loopback port, which tests may stop and start again."""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path

import psycopg
import pytest

from support.ports import free_port

START_S = 300
STOP_S = 300
#: PostgreSQL refuses to run as root; the first of these users that exists runs it then.
USERS = ("postgres", "nobody")


class PostgresServer:
    """One server over a temporary folder. ``url`` is the address of an empty database, ``postgresql://...``."""

    def __init__(self, programs: Path) -> None:
        self._programs = programs
        self._user = _user()
        # Not pytest's own temporary folder: it belongs to root alone, and the server's user could not enter it.
        self._folder = Path(tempfile.mkdtemp(prefix="lamella-postgres-"))
        self._log = self._folder / "server.log"
        self._process: subprocess.Popen[bytes] | None = None
        try:
            if self._user is not None:
                shutil.chown(self._folder, self._user)
            self._make()
        except BaseException:
            shutil.rmtree(self._folder)
            raise
        self._port = free_port()
        self.url = f"postgresql://lamella@127.0.0.1:{self._port}/postgres"

    def start(self) -> None:
        """Start it, on the same port every time, and return when it answers."""
        settings = {
            "listen_addresses": "127.0.0.1",
            "port": self._port,
            "unix_socket_directories": "",
            "max_connections": 200,
            "fsync": "off",  # no test pulls the plug of this machine
        }
        options = [part for name, value in settings.items() for part in ("-c", f"{name}={value}")]
        with self._log.open("ab") as output:
            self._process = subprocess.Popen(
                [self._programs / "postgres", "-D", self._folder / "data", *options],
                stdout=output,
                stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
                user=self._user,
                cwd=self._folder,
            )
        self._wait()

    def stop(self, *, immediate: bool = False) -> None:
        """End it and every connection to it; ``immediate``: as in a crash, so that the next start recovers."""
        if self._process is not None:
            self._process.send_signal(signal.SIGQUIT if immediate else signal.SIGINT)
            self._process.wait(timeout=STOP_S)
            self._process = None

    def remove(self) -> None:
        """End it and delete its folder."""
        self.stop()
        shutil.rmtree(self._folder)

    def _make(self) -> None:
        command: list[str | Path] = [self._programs / "initdb", "-D", self._folder / "data", "-U", "lamella"]
        done = subprocess.run(
            [*command, "--auth=trust", "-E", "UTF8", "--no-sync"],
            check=False,
            capture_output=True,
            text=True,
            user=self._user,
            cwd=self._folder,
        )
        if done.returncode != 0:
            pytest.fail(f"initdb failed:\n{done.stdout}{done.stderr}")

    def _wait(self) -> None:
        assert self._process is not None
        give_up = time.monotonic() + START_S
        while time.monotonic() < give_up and self._process.poll() is None:
            try:
                psycopg.connect(self.url, connect_timeout=30).close()
            except psycopg.OperationalError:
                time.sleep(0.05)
            else:
                return
        pytest.fail(f"PostgreSQL did not start:\n{self._log.read_text(errors='replace')}")


def _user() -> str | None:
    """Whom to run the server as; None: as we are."""
    if os.geteuid() != 0:
        return None
    known = {entry.pw_name for entry in pwd.getpwall()}
    return next(name for name in USERS if name in known)
