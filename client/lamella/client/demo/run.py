"""The demo from its start to its exit status."""

from __future__ import annotations

import signal
from contextlib import ExitStack
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

import click
import msgspec

from lamella.client.demo.comparison import Comparison
from lamella.client.demo.folder import Folder
from lamella.client.demo.load import LAYOUTS, NAMESPACE, is_whole, load
from lamella.client.demo.progress import Steps
from lamella.client.demo.queries import QUERIES
from lamella.client.demo.results import Results
from lamella.client.demo.service import ServiceProcess
from lamella.client.demo.session import local_session
from lamella.client.demo.tpch import generate

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


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
