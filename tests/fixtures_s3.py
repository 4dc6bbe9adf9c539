"""A pytest plugin with the fixture ``s3``: moto's S3 server, as a process of its own on a loopback port."""

from __future__ import annotations

import asyncio
import re
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import s3fs
from fsspec.asyn import sync
from fsspec.exceptions import FSTimeoutError

START_S = 300
CLOSE_S = 10


def _close_session(loop: asyncio.AbstractEventLoop | None, session: Any) -> None:
    """As s3fs does it, which waits for a tenth of a second: on a busy machine that leaves sockets open, and whatever
    test runs then is told of them."""
    with suppress(RuntimeError):
        asyncio.get_running_loop().create_task(session.__aexit__(None, None, None))
        return
    if loop is not None and loop.is_running():
        with suppress(FSTimeoutError):
            sync(loop, session.__aexit__, None, None, None, timeout=CLOSE_S)


s3fs.S3FileSystem.close_session = staticmethod(_close_session)


@dataclass(frozen=True)
class S3Server:
    """A running server. ``storage_options`` are for s3fs, and for ``FsspecStore({"s3": storage_options})``."""

    endpoint_url: str
    pid: int
    storage_options: dict[str, Any] = field(default_factory=dict)

    def bucket(self, name: str) -> str:
        """Create a bucket, unless it is there, and return its URL."""
        request = urllib.request.Request(f"{self.endpoint_url}/{name}", method="PUT")  # noqa: S310  # always http
        with urllib.request.urlopen(request, timeout=30):  # noqa: S310  # the server below
            return f"s3://{name}"


@pytest.fixture(scope="session")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    """A server for the whole session; its buckets are in memory and end with it."""
    with s3_server(tmp_path_factory.mktemp("s3")) as server:
        yield server


@contextmanager
def s3_server(folder: Path) -> Iterator[S3Server]:
    """A server while the block runs, with its log in the folder."""
    log = folder / "server.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "support.moto_server"],
            cwd=Path(__file__).parent,
            stdout=output,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
        )
    try:
        endpoint_url = _wait(process, log)
        options = {
            "key": "test",
            "secret": "test",
            "endpoint_url": endpoint_url,
            "client_kwargs": {"region_name": "us-east-1"},
        }
        yield S3Server(endpoint_url, process.pid, options)
    finally:
        process.terminate()
        process.wait(timeout=30)


def _wait(process: subprocess.Popen[bytes], log: Path) -> str:
    """The server's URL, once it answers there."""
    give_up = time.monotonic() + START_S
    while time.monotonic() < give_up:
        found = re.search(r"Running on (http://127\.0\.0\.1:\d+)", log.read_text(errors="replace"))
        if found:
            try:
                with urllib.request.urlopen(found[1], timeout=5):  # noqa: S310  # the URL matched above
                    return found[1]
            except (urllib.error.URLError, TimeoutError):
                pass
        if process.poll() is not None:
            break
        time.sleep(0.05)
    pytest.fail(f"the S3 server did not start:\n{log.read_text(errors='replace')}")
