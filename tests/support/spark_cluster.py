"""A standalone Spark cluster of this machine: a master and workers as processes of their own, on loopback ports."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any, Final

import pyspark

import lamella.client.cli
from support.worker_process import END_S, until

_HOME: Final = Path(pyspark.__file__).parent
#: The file that ``spark-submit`` starts: the ``lamella`` command.
COMMAND: Final = Path(lamella.client.cli.__file__).with_name("__main__.py")
SUBMIT: Final = _HOME / "bin" / "spark-submit"
_WORKER_MEMORY: Final = "1g"
_EXECUTOR_MEMORY: Final = "512m"
#: Java that starts sooner, and never runs long enough to miss what that costs.
_QUICK: Final = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto")


@dataclass
class Member:
    """A master or a worker of the cluster. ``folder`` holds its log, and the work of a worker's executors."""

    folder: Path
    process: subprocess.Popen[bytes]

    @classmethod
    def started(cls, folder: Path, name: str, *arguments: str, host: str = "127.0.0.1") -> Member:
        """One more process, from a class of Spark's own jars."""
        folder.mkdir(parents=True)
        with (folder / "log").open("wb") as log:
            process = subprocess.Popen(
                [_HOME / "bin" / "spark-class", f"org.apache.spark.deploy.{name}", "--host", host, *arguments],
                env={
                    **os.environ,
                    "SPARK_HOME": str(_HOME),
                    "SPARK_LOCAL_IP": host,
                    "SPARK_DAEMON_MEMORY": "256m",
                    "SPARK_DAEMON_JAVA_OPTS": " ".join((*_QUICK, "-Dspark.master.rest.enabled=false")),
                },
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        return cls(folder, process)

    def log_text(self) -> str:
        """What it logged."""
        return (self.folder / "log").read_text("utf-8", errors="replace")

    def end(self) -> None:
        """SIGKILL: nothing that it should save."""
        self.process.kill()
        self.process.wait(END_S)


@dataclass
class SparkCluster:
    """A master and workers with one core each. A context manager."""

    folder: Path
    workers: list[Member] = field(default_factory=list)
    _numbers: Iterator[int] = field(default_factory=count)

    def __enter__(self) -> SparkCluster:
        """Start the master and two workers."""
        self.master = Member.started(self.folder / "master", "master.Master", "--port", "0", "--webui-port", "0")
        pattern = re.compile(r"Starting Spark master at (spark://\S+)")
        until(lambda: pattern.search(self.master.log_text()) is not None, "the master listens")
        found = pattern.search(self.master.log_text())
        assert found is not None
        self.url = found[1]
        for _ in range(2):
            self.add_worker()
        self.await_workers()
        return self

    def __exit__(self, *_: object) -> None:
        """End them all."""
        for member in (*self.workers, self.master):
            member.end()

    def add_worker(self) -> None:
        """One more worker, which may not be known to the master yet."""
        number = next(self._numbers)
        folder = self.folder / f"worker-{number}"
        settings = ["--cores", "1", "--memory", _WORKER_MEMORY, "--work-dir", str(folder / "work")]
        arguments = ["--port", "0", "--webui-port", "0", *settings, self.url]
        # Spark starts no second attempt of a task on the host of the first.
        host = f"127.0.0.{number + 1}"
        self.workers.append(Member.started(folder, "worker.Worker", *arguments, host=host))

    def lose_worker(self) -> None:
        """Kill a worker; its executor ends as soon as it notices."""
        self.workers.pop().end()

    def await_idle(self) -> None:
        """Return once no executor runs: none works in a folder of ours any more."""

        def busy() -> bool:
            for link in Path("/proc").glob("[0-9]*/cwd"):
                with suppress(OSError):
                    if link.readlink().is_relative_to(self.folder):
                        return True
            return False

        until(lambda: not busy(), "no executor runs")

    def await_workers(self) -> None:
        """Return once the master knows all workers that were started."""
        text = "Successfully registered with master"
        until(lambda: all(text in worker.log_text() for worker in self.workers), "the workers are known")

    def submit(self, events: Path, settings: Mapping[str, str] | None = None) -> list[str]:
        """The words that start a Python program on the cluster; Spark's events go into the folder ``events``."""
        events.mkdir(parents=True, exist_ok=True)
        given = {
            "spark.executor.memory": _EXECUTOR_MEMORY,
            "spark.driver.memory": _EXECUTOR_MEMORY,
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.ui.enabled": "false",
            # both executors are there before anything runs
            "spark.cores.max": "2",
            "spark.scheduler.minRegisteredResourcesRatio": "1.0",
            "spark.scheduler.maxRegisteredResourcesWaitingTime": "60s",
            "spark.eventLog.enabled": "true",
            "spark.eventLog.compress": "false",
            "spark.eventLog.dir": events.as_uri(),
            "spark.driver.extraJavaOptions": " ".join(_QUICK),
            "spark.executor.extraJavaOptions": " ".join(_QUICK),
            "spark.log.level": "WARN",
            **(settings or {}),
        }
        options = [word for name, value in given.items() for word in ("--conf", f"{name}={value}")]
        return [str(SUBMIT), "--master", self.url, *options]


@dataclass(frozen=True)
class Events:
    """What Spark noted of the one application whose events are in a folder."""

    lines: Sequence[Mapping[str, Any]]

    @classmethod
    def read(cls, folder: Path) -> Events:
        """All files of the folder."""
        files = [path for path in sorted(folder.rglob("*")) if path.is_file() and path.name.startswith("events_")]
        texts = [line for path in files for line in path.read_text("utf-8").splitlines()]
        return cls([json.loads(text) for text in texts])

    def of(self, name: str) -> list[Mapping[str, Any]]:
        """The events of one kind, as ``TaskEnd``."""
        return [line for line in self.lines if _is(line, name)]

    def lost_after(self) -> Mapping[str, int]:
        """Of each executor that was lost while the application ran: how many tasks of others ended after that."""
        lost = {line["Executor ID"]: at for at, line in enumerate(self.lines) if _is(line, "ExecutorRemoved")}
        ended = [(at, line["Task Info"]["Executor ID"]) for at, line in enumerate(self.lines) if _is(line, "TaskEnd")]
        return {each: sum(at > since and other != each for at, other in ended) for each, since in lost.items()}

    def tasks_by_executor(self) -> Counter[str]:
        """How many tasks each executor finished."""
        ended = [line for line in self.of("TaskEnd") if line["Task End Reason"]["Reason"] == "Success"]
        return Counter(line["Task Info"]["Executor ID"] for line in ended)


def _is(line: Mapping[str, Any], name: str) -> bool:
    return bool(line["Event"] == f"SparkListener{name}")


def run(command: Sequence[str], settings: Mapping[str, str], log: Path) -> dict[str, Any]:
    """A program that must succeed; the JSON that it wrote to standard output."""
    process = begin(command, settings, log)
    return answer(process, log)


def begin(command: Sequence[str], settings: Mapping[str, str], log: Path) -> subprocess.Popen[bytes]:
    """A program with these variables added, in a session of its own."""
    with log.open("wb") as errors:
        return subprocess.Popen(
            command,
            env={**os.environ, "PYSPARK_PYTHON": sys.executable, **settings},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=errors,
            start_new_session=True,
        )


def answer(process: subprocess.Popen[bytes], log: Path) -> dict[str, Any]:
    """The JSON of a program that was begun."""
    output, _ = process.communicate(timeout=2 * END_S)
    assert process.returncode == 0, log.read_text("utf-8", errors="replace")[-8_000:]
    found: dict[str, Any] = json.loads(output.decode().splitlines()[-1])
    return found
