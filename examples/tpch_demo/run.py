"""The demo from its start to its exit status: a service and a Spark session on loopback, load, compare."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from types import FrameType, TracebackType
from typing import TYPE_CHECKING, Self

import click
import msgspec
from pyspark.sql import SparkSession

from lamella.client.http import Lamella
from lamella.client.http.transport import HttpRequest, PooledTransport, TransportFailure
from lamella.client.jobs import supervisor
from lamella.snapshot.errors import LamellaError
from tpch_demo.comparison import QUERIES, Comparison, Results
from tpch_demo.data import LAYOUTS, NAMESPACE, Folder, Steps, generate, is_whole, load

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import SparkSession


START_S = 60.0
STOP_S = 20.0
_READY = HttpRequest(method="GET", target="/health/ready")


class ServiceProcess:
    """``lamella serve`` over the demo's warehouse, from ``with`` to its end."""

    def __init__(self, folder: Folder) -> None:
        self._folder = folder
        self._process: subprocess.Popen[bytes] | None = None
        self.url = ""

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()

    def start(self) -> None:
        """Start it and wait until it is ready; raises LamellaError with the end of its log when it does not."""
        self._folder.root.mkdir(parents=True, exist_ok=True)
        port = _free_port()
        self.url = f"http://127.0.0.1:{port}"
        command = [
            # it ends the service when this process is killed
            *(sys.executable, "-I", "-S", str(Path(supervisor.__file__)), str(STOP_S)),
            *(sys.executable, "-m", "lamella.client.cli", "serve"),
            *("--warehouse", str(self._folder.warehouse)),
            *("--catalog", str(self._folder.catalog)),
            *("--host", "127.0.0.1", "--port", str(port), "--workers", "1"),
        ]
        # The demo's service is what is written here, whatever LAMELLA_* says of another one.
        environment = {name: value for name, value in os.environ.items() if not name.startswith("LAMELLA_")}
        environment["LAMELLA_DRAIN_S"] = "0"  # nobody has to notice its end
        with self._folder.service_log.open("wb") as log:
            self._process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=log, stderr=subprocess.STDOUT, env=environment
            )
        try:
            self._wait_ready()
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """End it: by SIGTERM, and by SIGKILL when that takes longer than STOP_S."""
        process, self._process = self._process, None
        if process is None:
            return
        assert process.stdin is not None  # noqa: S101  # it is a pipe
        process.stdin.close()
        process.wait()

    def lake(self) -> Lamella:
        """A client of it."""
        return Lamella(self.url, timeout_s=600.0)

    def _wait_ready(self) -> None:
        transport = PooledTransport(self.url, timeout_s=5.0)
        give_up = time.monotonic() + START_S
        try:
            while time.monotonic() < give_up:
                if self._process is None or self._process.poll() is not None:
                    break
                try:
                    if transport.send(_READY).status == 200:
                        return
                except TransportFailure:
                    pass  # not listening yet
                time.sleep(0.05)
        finally:
            transport.close()
        tail = self._folder.service_log.read_text(errors="replace")[-2000:].strip()
        raise LamellaError(f"the service did not start; the end of {self._folder.service_log}: {tail}")


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
        return port


#: Read by scripts and people who have no Java; `make demo` brings one.
NO_JAVA = "Spark needs Java 17 or newer: set JAVA_HOME, or use `make demo`, which brings one"


@contextmanager
def local_session(folder: Folder) -> Iterator[SparkSession]:
    """A session on all cores of this machine, stopped at the end.

    Raises:
        LamellaError: no Java, or Spark does not start.
    """
    if not (os.environ.get("JAVA_HOME") or shutil.which("java")):
        raise LamellaError(NO_JAVA)
    # Python workers must run this very Python.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    folder.spark_dir.mkdir(parents=True, exist_ok=True)
    builder = SparkSession.builder.master("local[*]").appName("lamella-demo")
    for key, value in _conf(folder).items():
        builder = builder.config(key, value)
    with _stderr_to(folder.spark_log):
        try:
            session = builder.getOrCreate()
        except Exception as error:  # PySpark's own, py4j's or the system's, for a JVM that does not come up
            raise LamellaError(f"Spark does not start: {error}. {NO_JAVA}. Its log: {folder.spark_log}") from error
    try:
        yield session
    finally:
        session.stop()
        shutil.rmtree(folder.spark_dir, ignore_errors=True)


def _conf(folder: Folder) -> Mapping[str, str]:
    return {
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.memory": "3g",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.log.level": "WARN",
        "spark.local.dir": str(folder.spark_dir / "local"),
        "spark.sql.warehouse.dir": str(folder.spark_dir / "warehouse"),
        "spark.sql.session.timeZone": "UTC",
        # The default of 200 is for clusters.
        "spark.sql.shuffle.partitions": "8",
        # Reading a list of files must not start a job that lists them.
        "spark.sql.sources.parallelPartitionDiscovery.threshold": "100000",
    }


@contextmanager
def _stderr_to(file: Path) -> Iterator[None]:
    """Let a child process that is started here write its stderr to a file: the JVM keeps what it inherits."""
    sys.stderr.flush()
    with file.open("wb") as log:
        saved = os.dup(2)
        try:
            os.dup2(log.fileno(), 2)
            yield
        finally:
            os.dup2(saved, 2)
            with suppress(OSError):
                os.close(saved)


def run(build_dir: Path, *, scale: float = 1.0, as_json: bool = False) -> int:
    """Generate, load, query, compare, report; 0 when every answer is equal and the narrow query reads few blocks.

    Raises:
        LamellaError: something that the demo needs is missing or does not start.
    """
    # So that the child process is ended when someone ends this one.
    before = signal.signal(signal.SIGTERM, _stop)
    try:
        return _run(Folder(build_dir), scale, as_json)
    finally:
        signal.signal(signal.SIGTERM, before)


def _run(folder: Folder, scale: float, as_json: bool) -> int:
    steps = Steps()
    with steps.step(f"TPC-H tables at scale {scale:g}"):
        generate(folder.source(scale), scale)
    if folder.loaded(scale) is None:
        folder.clear()
    with ServiceProcess(folder) as service, ExitStack() as stack:
        with steps.step("Spark starts"):
            spark = stack.enter_context(local_session(folder))
        steps.say(f"service on {service.url}, its log in {folder.service_log}")
        _ensure_loaded(spark, service, folder, scale, steps)
        results = _compare(spark, service, steps)
    results.write(folder.results)
    if as_json:
        click.echo(msgspec.json.encode(results).decode())
    else:
        results.show()
    failures = results.failures()
    for failure in failures:
        steps.say(f"FAILED: {failure}")
    steps.say(f"results: {folder.results}; `make serve` keeps the service up over the same tables")
    return 1 if failures else 0


def _ensure_loaded(spark: SparkSession, service: ServiceProcess, folder: Folder, scale: float, steps: Steps) -> None:
    with service.lake() as lake:
        if is_whole(lake, folder.loaded(scale)):
            steps.say("the tables of an earlier run are still there")
            return
    if folder.loaded(scale) is not None:
        # Loaded once, but changed since: start again from nothing.
        service.stop()
        folder.clear()
        service.start()
    with service.lake() as lake:
        load(spark, lake, folder, scale, steps)


def _compare(spark: SparkSession, service: ServiceProcess, steps: Steps) -> Results:
    with service.lake() as lake:
        for name in LAYOUTS:
            info = lake.table(f"{NAMESPACE}.{name}").info()
            steps.say(f"{NAMESPACE}.{name}: {info.row_count:,} rows in {info.block_count:,} blocks")
        comparison = Comparison(spark, lake)
        with steps.step("warming up"):
            comparison.warm_up()
        found = []
        for query in QUERIES:
            with steps.step(f"query: {query.name}"):
                found.append(comparison.run(query))
    return Results(queries=tuple(found))


def _stop(_number: int, _frame: FrameType | None) -> None:
    raise SystemExit(128 + signal.SIGTERM)
