"""A stack that `make stack` runs, a client of it, and Parquet files in its bucket."""

from __future__ import annotations

import itertools
import json
import shutil
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

import httpx2
import pytest
import s3fs

from lamella.client.http import Lamella
from lamella.snapshot.schema import Column
from stack.process import members_of, send
from stack.supervisor import STATE, Stack
from stack.tools import ROOT
from support.kept_connections import LIMITS
from support.service_api import fresh_name, parquet_bytes

BUCKET = "s3://lamella"
_NUMBERS = itertools.count()


class RunningStack:
    """What `make stack` runs in a folder, as a process of its own. A context manager; at the end nothing is left."""

    def __init__(self, folder: Path, *options: str) -> None:
        self.folder = folder
        self.plan = Stack(folder)
        self.url = self.plan.url
        self._command = [sys.executable, str(ROOT / "scripts" / "run_stack.py"), "--folder", str(folder)]
        self._options = options

    def __enter__(self) -> RunningStack:
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir(parents=True)
        with (self.folder / "stack.log").open("wb") as log:
            words = [*self._command, "--rm", "--json", *self._options]
            self._process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=log)
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            self._process.wait()
            pytest.fail(f"the stack did not start:\n{(self.folder / 'stack.log').read_text('utf-8')}")
        assert json.loads(line)["url"] == self.url
        self.key = (self.folder / "secrets" / "root_key").read_text("utf-8")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._process.stdout is not None
        ended = subprocess.run([*self._command, "--down"], check=False, capture_output=True, text=True)
        assert ended.returncode == 0, ended.stderr
        assert self._process.wait(60) == 0
        self._process.stdout.close()
        assert members_of(self.folder) == []
        assert {path.name for path in self.folder.iterdir()} == {"log", "stack.log"}
        shutil.rmtree(self.folder)

    def state(self, name: str) -> dict[str, Any]:
        """What is known of a service, at most a second old."""
        found: dict[str, Any] = json.loads((self.folder / STATE).read_text("utf-8"))["services"][name]
        return found

    def services(self) -> list[str]:
        """The names of all."""
        return list(json.loads((self.folder / STATE).read_text("utf-8"))["services"])

    def replica_url(self, number: int) -> str:
        """Of one replica, past nginx."""
        return self.plan.replica_url(number)

    def log(self, name: str) -> str:
        """What a service has written."""
        return Path(self.state(name)["log"]).read_text("utf-8", errors="replace")

    def signal(self, name: str, number: signal.Signals) -> None:
        """To all processes of a service."""
        send(self.state(name)["pid"], number)

    def wait_replica(self, number: int, starts: int) -> None:
        """Return once a replica was started so often, and is ready."""
        give_up = time.monotonic() + 120
        while time.monotonic() < give_up:
            if self.state(f"lamella-{number}")["starts"] >= starts:
                try:
                    urllib.request.urlopen(f"{self.replica_url(number)}/health/ready", timeout=10).close()  # noqa: S310
                    return
                except (urllib.error.URLError, OSError):
                    pass
            time.sleep(0.1)
        pytest.fail(f"the replica did not come back:\n{self.log(f'lamella-{number}')[-4_000:]}")


class Lake:
    """``client`` asks through nginx, with the key of the stack. A context manager."""

    def __init__(self, stack: RunningStack) -> None:
        self.stack = stack
        self.client = Lamella(stack.url, token=stack.key, timeout_s=60)
        password = (stack.folder / "secrets" / "store_password").read_text("utf-8")
        self.options: dict[str, Any] = {
            "key": "lamella",
            "secret": password,
            "endpoint_url": f"http://{stack.plan.addresses.own['store']}:9000",
            "client_kwargs": {"region_name": "us-east-1"},
        }
        self.files = s3fs.S3FileSystem(**self.options, skip_instance_cache=True)

    def __enter__(self) -> Lake:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.client.close()

    def at(self, url: str) -> Lamella:
        """A client of another address."""
        return Lamella(url, token=self.stack.key, timeout_s=60)

    def put(self, columns: Mapping[str, Sequence[Any]]) -> str:
        """A Parquet file in the bucket, beside all tables; its location."""
        location = f"{BUCKET}/data/{next(_NUMBERS):06}.parquet"
        self.files.pipe_file(location, parquet_bytes(columns))
        return location

    def table(self, columns: Mapping[str, str]) -> str:
        """A new table in a namespace of its own; its full name."""
        namespace = fresh_name("deploy")
        self.client.create_namespace(namespace)
        schema = [Column(name=name, type=kind) for name, kind in columns.items()]
        self.client.create_table(f"{namespace}.t", schema=schema)
        return f"{namespace}.t"

    def http(self, url: str | None = None, *, source: str | None = None, **headers: str) -> httpx2.Client:
        """Plain HTTP with the key; ``source``: the address that it comes from."""
        return httpx2.Client(
            base_url=url or self.stack.url,
            headers={"Authorization": f"Bearer {self.stack.key}", **headers},
            transport=httpx2.HTTPTransport(local_address=source, limits=LIMITS),
            timeout=60,
        )
