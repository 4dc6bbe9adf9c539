"""A pytest plugin with the fixture ``real_s3``: versitygw, an S3 server that people run, on a loopback port.

It is built with ``go install`` into ``build/tools`` when it is not there yet: minutes, and Go on the machine, so only
the long tests ask for it.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import s3fs

START_S = 300
BUILD_S = 1_800
PACKAGE = "github.com/versity/versitygw/cmd/versitygw@v1.8.0"
TOOLS = Path(__file__).resolve().parent.parent / "build" / "tools"


@dataclass(frozen=True)
class RealS3Server:
    """A running server; as :class:`fixtures_s3.S3Server`, but every request is signed."""

    endpoint_url: str
    pid: int
    storage_options: dict[str, Any] = field(default_factory=dict)

    def bucket(self, name: str) -> str:
        """Create a bucket, unless it is there, and return its URL."""
        # without a region: s3fs would send it as the bucket's location, which us-east-1 must not be
        options = {name: value for name, value in self.storage_options.items() if name != "client_kwargs"}
        files = s3fs.S3FileSystem(**options, skip_instance_cache=True)
        if not files.exists(name):
            files.mkdir(name)
        return f"s3://{name}"


def _program() -> Path:
    """The server's program, built when it is missing."""
    program = TOOLS / "versitygw"
    if not program.exists():
        go = shutil.which("go")
        if go is None:
            pytest.fail("the long tests need Go to build an S3 server (versitygw)")
        TOOLS.mkdir(parents=True, exist_ok=True)
        environment = {**os.environ, "GOBIN": str(TOOLS)}
        done = subprocess.run(
            [go, "install", PACKAGE], env=environment, timeout=BUILD_S, check=False, capture_output=True, text=True
        )
        if done.returncode != 0:
            pytest.fail(f"{PACKAGE} cannot be built:\n{done.stderr[-4000:]}")
    return program


@pytest.fixture(scope="session")
def real_s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealS3Server]:
    """A server for the whole session over a folder of its own."""
    with real_s3_server(tmp_path_factory.mktemp("versitygw")) as server:
        yield server


@contextmanager
def real_s3_server(folder: Path) -> Iterator[RealS3Server]:
    """A server while the block runs, over a folder, with its log there."""
    program = _program()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    log = folder / "server.log"
    data = folder / "data"
    data.mkdir()
    with log.open("wb") as output:
        process = subprocess.Popen(
            [program, "--port", f"127.0.0.1:{port}", "--access", "test", "--secret", "testtest", "posix", str(data)],
            stdout=output,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
        )
    try:
        _wait(process, f"http://127.0.0.1:{port}", log)
        options = {
            "key": "test",
            "secret": "testtest",
            "endpoint_url": f"http://127.0.0.1:{port}",
            "client_kwargs": {"region_name": "us-east-1"},
        }
        yield RealS3Server(f"http://127.0.0.1:{port}", process.pid, options)
    finally:
        process.terminate()
        process.wait(timeout=30)


def _wait(process: subprocess.Popen[bytes], url: str, log: Path) -> None:
    give_up = time.monotonic() + START_S
    while time.monotonic() < give_up and process.poll() is None:
        try:
            urllib.request.urlopen(url, timeout=5).close()  # noqa: S310  # the server above
        except urllib.error.HTTPError:
            return  # it answers, and refuses what is not signed
        except (urllib.error.URLError, TimeoutError, OSError):
            time.sleep(0.1)
        else:
            return
    pytest.fail(f"the S3 server did not start:\n{log.read_text(errors='replace')}")
