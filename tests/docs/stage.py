"""What the blocks of one page meet: a service, a folder, a shell, and the names that Python blocks share."""

from __future__ import annotations

import gc
import os
import shlex
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from lamella.client import Lamella
from lamella.client.http import Table
from lamella.snapshot.tokens import key_text
from support.forked_command import folder_of_command
from support.ports import free_port

COMMAND_S = 300
#: The first key of services that ask for keys.
ROOT_KEY = key_text(bytes(range(32)))
READY_S = 60
#: Addresses that pages use for a service.
_EXAMPLE_URLS = ("http://127.0.0.1:8181", "http://lamella:8181", "http://lake:8181", "http://localhost:8181")


class Stage:
    """One page's world. ``swaps``: what stands in blocks and what is meant by it here."""

    def __init__(self, folder: Path, url: str | None) -> None:
        """``url``: of the service; None when the page starts one itself."""
        self.folder = folder
        self.work = folder / "work"
        self.work.mkdir()
        (folder / "home").mkdir()
        self.port = free_port()
        self.starts_service = url is None
        self.url = url or f"http://127.0.0.1:{self.port}"
        self.swaps: dict[str, str] = {
            **dict.fromkeys(_EXAMPLE_URLS, self.url),
            "file:///data/": f"file://{folder}/data/",
            " /data/": f" {folder}/data/",
            '"/data/': f'"{folder}/data/',
            "s3://bucket/": f"file://{folder}/data/",
        }
        self.names: dict[str, Any] = {"__name__": "page", "url": self.url}
        self.variables: dict[str, str] = {}
        self.clean_up: list[Callable[[], object]] = []
        self._alive: list[object] = []
        self._started: list[subprocess.Popen[bytes]] = []
        self._lake: Lamella | None = None

    @property
    def lake(self) -> Lamella:
        """A client of the service."""
        if self._lake is None:
            self._lake = Lamella(self.url, timeout_s=COMMAND_S)
        return self._lake

    def meant(self, text: str) -> str:
        """The text of a block as it is run."""
        for shown, here in self.swaps.items():
            text = text.replace(shown, here)
        return text

    def shown(self, text: str) -> str:
        """Output as a page would show it."""
        for shown, here in self.swaps.items():
            text = text.replace(here, shown)
        return text

    def become_root(self) -> None:
        """Ask with the first key from now on, in Python and in the shell."""
        self.variables["LAMELLA_TOKEN"] = ROOT_KEY
        self._lake = Lamella(self.url, token=ROOT_KEY, timeout_s=COMMAND_S)

    # Data.

    def files(self, folder: str, columns: Mapping[str, Sequence[Any] | pa.Array], *, count: int = 4) -> Path:
        """Write rows as ``count`` Parquet files, ``part-0.parquet`` and so on, of the folder that pages call so."""
        path = self.folder / "data" / folder.removeprefix("/data/")
        path.mkdir(parents=True, exist_ok=True)
        rows = pa.table(dict(columns))
        size = -(-len(rows) // count)
        for n in range(count):
            pq.write_table(rows.slice(n * size, size), path / f"part-{n}.parquet", row_group_size=max(1, size // 2))
        return path

    def namespace(self, name: str) -> None:
        """Make a namespace, unless it is there."""
        if name not in [each.name for each in self.lake.namespaces()]:
            self.lake.create_namespace(name)

    def table(
        self, name: str, columns: Mapping[str, Sequence[Any] | pa.Array], *, count: int = 4, cluster: Sequence[str] = ()
    ) -> Table:
        """A table with these rows in ``count`` registered files; answers its handle."""
        self.namespace(name.rpartition(".")[0])
        path = self.files(f"tables/{name}", columns, count=count)
        files = [f"file://{file}" for file in sorted(path.glob("*.parquet"))]
        self.lake.create_table(name, schema_from=files[0], cluster_key=cluster)
        table = self.lake.table(name)
        table.register(files)
        return table

    # Commands.

    def environment(self) -> dict[str, str]:
        """What commands see: the programs beside this Python first, and the service."""
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("LAMELLA_")}
        path = os.pathsep.join((str(folder_of_command()), str(Path(sys.executable).parent), inherited.get("PATH", "")))
        port = {"LAMELLA_PORT": str(self.port), "LAMELLA_DRAIN_S": "0"}
        return {**inherited, "PATH": path, "HOME": str(self.folder / "home"), "LAMELLA_URL": self.url, **port} | (
            self.variables
        )

    def run(self, command: str) -> subprocess.CompletedProcess[str]:
        """Run a command in a shell; what it prints comes in one text."""
        return subprocess.run(
            ["bash", "-euo", "pipefail", "-c", self.meant(command)],
            check=False,
            cwd=self.work,
            env=self.environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=COMMAND_S,
        )

    def keep_alive(self) -> None:
        """Hold what the names mean now until the page ends: a later block may give one to something else."""
        self._alive.extend(self.names.values())

    def keep(self, assignments: Sequence[str]) -> None:
        """Remember ``NAME=value`` for the commands that follow."""
        for assignment in assignments:
            name, _, value = self.meant(assignment).partition("=")
            self.variables[name] = value

    def start(self, words: Sequence[str]) -> None:
        """Start a command that does not end; a service is waited for."""
        log = self.folder / f"started-{len(self._started)}.log"
        with log.open("wb") as output:
            self._started.append(
                subprocess.Popen(
                    [Path(sys.executable).with_name(words[0]), *shlex.split(self.meant(shlex.join(words[1:])))],
                    cwd=self.work,
                    env=self.environment(),
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                )
            )
        if words[:2] == ["lamella", "serve"]:
            self._wait_ready(log)

    def _wait_ready(self, log: Path) -> None:
        give_up = time.monotonic() + READY_S
        while time.monotonic() < give_up and self._started[-1].poll() is None:
            try:
                with urllib.request.urlopen(f"{self.url}/health/ready", timeout=10):  # noqa: S310  # our own URL
                    return
            except (urllib.error.URLError, OSError):
                time.sleep(0.05)
        raise AssertionError(f"the service of the page did not become ready:\n{log.read_text()}")

    def close(self) -> list[str]:
        """End what was started, drop what was made; answers what did not live as long as the page."""
        fell = [f"{process.args!r} ended by itself" for process in self._started if process.poll() is not None]
        for process in reversed(self._started):
            process.send_signal(signal.SIGTERM)
            process.wait(timeout=READY_S)
        for undo in reversed(self.clean_up):
            undo()
        if not self.starts_service:
            self._drop_all(self.lake)
        # Pages need not close what they open: catalogs of Spark, say, stay as long as their session does.
        for made in gc.get_objects():
            if type(made) is Lamella and made.url == self.url:
                made.close()
        return fell

    def _drop_all(self, lake: Lamella) -> None:
        for namespace in lake.namespaces():
            for table in lake.tables(namespace.name):
                lake.drop_table(f"{namespace.name}.{table}", purge=True)
            lake.drop_namespace(namespace.name)
