"""Plans of scattered questions on Spark's executors (``lake.plan``), beside the service's own prune.

Questions whose matches lie in every segment of a table of a million synthetic blocks: text with a prefix, nulls, and a
key by a skip index; and a narrow range, which the service answers faster. Local clusters of one, two and four executors
with one core each (``local-cluster``); the frame is counted, so that its rows stay on the executors. The table has
milliseconds of processor time: of the executors together, and of the busiest, which a cluster waits for. Time of the
clock is only told by a machine with as many cores. The service answers each question in a new process (``first``), and
again with other literals when its columns are in memory (``again``).

    python bench/executor_plans.py [--blocks 1000000] [--executors 1 2 4] [--rounds 5] [--out build/executor_plans.json]
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import msgspec
import numpy as np
from loopback import Service
from speed import load
from speed.clock import cpu_s
from speed.over_http import PRUNE
from speed.questions import question, spark_time, sql
from speed.tables import Made, table

from lamella.client import Lamella
from lamella.service.catalog import TableRecord, open_catalog
from lamella.service.history.history import history_entry
from lamella.snapshot.function.base import Vector
from lamella.snapshot.ids import Ids
from lamella.snapshot.index import kind_named
from lamella.snapshot.index.part import pack, ref_of
from lamella.snapshot.manifest import SnapshotPointer
from lamella.snapshot.schema import parse_type
from lamella.snapshot.storage import FsspecStore, TableLayout
from lamella.snapshot.warehouse import Warehouse
from lamella.snapshot.wire import NamespaceInfo

#: Users in each block, as the index has them.
_USERS: Final = 50
_INDEX: Final = "indexed-user.json"
_RANDOM: Final = 17
#: Cores and blocks for which the figures are extrapolated.
_CORES: Final = 64
_BLOCKS: Final = (1_000_000, 10_000_000, 100_000_000)
#: What the driver takes for each segment that is left (the answer, its places, the tasks), in milliseconds.
_CALL_MS: Final = 0.015


def users_of(segment: int, blocks: int) -> np.ndarray[Any, np.dtype[np.int64]]:
    """The users in the blocks of a segment, a row for each block."""
    return np.random.default_rng((_RANDOM, segment)).integers(10**7, 10**12 - 10**7, (blocks, _USERS))


def indexed(made: Made) -> SnapshotPointer:
    """The snapshot of the table with a Bloom index over ``user_id``, made if it is not there yet."""
    entry = Path(made.folder) / _INDEX
    if entry.exists():
        return msgspec.json.decode(entry.read_bytes(), type=SnapshotPointer)
    store = FsspecStore()
    warehouse = Warehouse(store, made.root)
    pointer = warehouse.indexing.create(
        made.pointer, name="of_user", kind="bloom", expression="user_id", options=None, now_ms=10
    ).pointer
    snapshot = warehouse.snapshot(pointer)
    index = snapshot.skip_indexes[-1]
    layout, kind, dtype = TableLayout(warehouse.table_location(snapshot.table_id)), kind_named("bloom"), "int64"
    parts = []
    for number, segment in enumerate(warehouse.segments(snapshot)):
        keys = warehouse.manifests.block_keys(segment)
        builder = kind.builder(parse_type(dtype), index.options)
        for values in users_of(number, len(keys)):
            builder.add(Vector(values, np.ones(len(values), dtype=bool)))
            builder.end_block()
        sections, facts = builder.sections()
        data, tail_bytes = pack("bloom", dtype, len(keys), sections, options=index.options, facts=facts)
        location = layout.index_part(Ids().new())
        store.put(location, data)
        parts.append((ref_of(location, data, tail_bytes, len(keys)), keys))
    pointer = warehouse.indexing.add_parts(pointer, index.index_id, parts, now_ms=11).pointer
    entry.write_bytes(msgspec.json.encode(pointer))
    return pointer


def catalog_of(made: Made, pointer: SnapshotPointer, folder: Path) -> str:
    """A new catalog in which the table ``bench.t`` is at a snapshot; returns its URL."""
    url = f"sqlite:///{folder}/catalog.db"
    warehouse = Warehouse(FsspecStore(), made.root)
    snapshot = warehouse.snapshot(pointer)
    catalog = open_catalog(url)
    catalog.create_namespace(NamespaceInfo(name="bench"), now_ms=1)
    record = TableRecord(
        table_id=snapshot.table_id,
        namespace="bench",
        name="t",
        location=warehouse.table_location(snapshot.table_id),
        version=1,
        pointer=pointer,
        created_at_ms=1,
    )
    catalog.create_table(record, history_entry(1, pointer, snapshot))
    catalog.close()
    return url


def filters(number: int) -> dict[str, str]:
    """The questions, with the literals of a number."""
    users = users_of(number, 1)
    return {
        "prefix": sql(question("P5", number), spark_time),
        "nulls": sql(question("P7", number), spark_time) + f" AND user_id > {number}",  # no answer is remembered
        "key": f"user_id = {users[0, 0]}",
        "range": sql(question("P1", number), spark_time),
    }


QUESTIONS: Final = tuple(filters(0))


def asking(name: str, number: int) -> bytes:
    """A prune request as sent."""
    body = {"filter": filters(number)[name], "shape": "ranges"}
    return load.request(PRUNE, json.dumps(body).encode())


def by_service(settings: dict[str, str], rounds: int) -> dict[str, Any]:
    """Milliseconds of the clock and of the service's processor for each question, first and again."""
    found = {}
    for name in QUESTIONS:
        with tempfile.TemporaryDirectory(prefix="lamella-bench-") as folder, Service(Path(folder), settings) as service:
            load.run(service.port, [load.request("/health/live")] * 20, 1)
            taken = [_answered(service, asking(name, number)) for number in range(rounds + 1)]
        found[name] = {"first": taken[0], "again": _middle(taken[1:])}
    return found


def _answered(service: Service, request: bytes) -> dict[str, float]:
    before = cpu_s(service.pid)
    done = load.run(service.port, [request], 1)
    return {"ms": done.p50_ms, "cpu_ms": (cpu_s(service.pid) - before) * 1e3}


def _middle(taken: Sequence[dict[str, float]]) -> dict[str, float]:
    return {name: round(statistics.median(each[name] for each in taken), 1) for name in taken[0]}


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """What a process with a local cluster measures."""

    url: str
    service_pid: int
    executors: int
    rounds: int
    out: str


def by_executors(job: Job) -> dict[str, Any]:
    """Milliseconds for each question on a local cluster: of the clock, the call and all, and of processors."""
    import pyspark
    from pyspark.sql import SparkSession

    os.environ["SPARK_HOME"] = os.path.dirname(pyspark.__file__)
    os.environ["PYSPARK_PYTHON"] = sys.executable
    spark = (
        SparkSession.builder.master(f"local-cluster[{job.executors},1,1024]")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.executor.memory", "768m")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.sql.shuffle.partitions", "1")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("OFF")
    from lamella.client.spark import attach

    lake = attach(spark, "lake", job.url)
    spark.range(0, 1_000, 1, job.executors * 4).count()
    taken: dict[str, list[dict[str, float]]] = {name: [] for name in QUESTIONS}
    with Lamella(job.url) as service:
        handle = service.table("bench.t")
        for number in range(job.rounds + 1):
            for name, text in filters(100 + number).items():
                expected = sum(handle.prune(text, shape="ranges").block_ranges.block_count)  # type: ignore[union-attr]
                before, service_cpu = _cpu_by_executor(), cpu_s(job.service_pid)
                began = time.perf_counter()
                frame = lake.plan("bench.t", text)
                planned = time.perf_counter()
                count = frame.count()
                ended = time.perf_counter()
                after = _cpu_by_executor()
                spent = {pid: (after[pid] - before[pid]) * 1e3 for pid in before}
                driver_ms = spent.pop(0)
                if count != expected:
                    raise RuntimeError(f"{text}: {count} blocks by executors, {expected} by the service")
                taken[name].append(
                    {
                        "call_ms": (planned - began) * 1e3,
                        "ms": (ended - began) * 1e3,
                        "driver_cpu_ms": driver_ms,
                        "cpu_ms": sum(spent.values()),
                        "busiest_cpu_ms": max(spent.values()),
                        "service_cpu_ms": (cpu_s(job.service_pid) - service_cpu) * 1e3,
                        "blocks": count,
                    }
                )
    spark.stop()
    return {name: {"first": each[0], "again": _middle(each[1:])} for name, each in taken.items()}


def _cpu_by_executor() -> dict[int, float]:
    """Processor time of each executor with its Python workers, by its process; 0: of the driver (Linux)."""
    parents, commands = _processes()
    taken: dict[int, float] = {0: 0.0}
    for pid in parents:
        executor, at = 0, pid
        while at in parents and at != os.getpid():
            if "CoarseGrainedExecutorBackend" in commands.get(at, ""):
                executor = at
            at = parents[at]
        if at != os.getpid():
            continue
        try:
            taken[executor] = taken.get(executor, 0.0) + cpu_s(pid)
        except FileNotFoundError:  # it has ended, and its parent has its time
            continue
    return taken


def _processes() -> tuple[dict[int, int], dict[int, str]]:
    """The parents and the commands of all processes."""
    parents: dict[int, int] = {}
    commands: dict[int, str] = {}
    for path in Path("/proc").glob("[0-9]*"):
        try:
            fields = (path / "stat").read_text().rpartition(")")[2].split()
            commands[int(path.name)] = (path / "cmdline").read_text(errors="replace")
        except (FileNotFoundError, ProcessLookupError):
            continue
        parents[int(path.name)] = int(fields[1])
    return parents, commands


def extrapolated(found: dict[str, Any], segments: int) -> dict[str, dict[str, float]]:
    """Seconds with 64 cores of their own, from the run with one executor: what the driver takes, and more for each
    segment that is left; and the executor's processor time, divided by the cores. Reading from the store is not in it.
    """
    result: dict[str, dict[str, float]] = {}
    for name, each in found["executors"][min(found["executors"], key=int)].items():
        again = each["again"]
        if name == "range":  # how many of its segments are left does not grow with the table
            continue
        result[name] = {}
        for blocks in _BLOCKS:
            share = blocks / (segments * 1_000)
            ms = again["driver_cpu_ms"] + share * (segments * _CALL_MS + again["cpu_ms"] / _CORES)
            result[name][f"{blocks:,}"] = round(ms / 1e3, 2)
    return result


def main() -> None:
    """Measure, print a table, write JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--blocks", type=int, default=1_000_000)
    parser.add_argument("--executors", type=int, nargs="+", default=[1, 2, 4])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--tables", type=Path, default=Path("build/speed/tables"), help="kept for the next run")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--job", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.job:
        job = msgspec.json.decode(given.job.read_bytes(), type=Job)
        Path(job.out).write_bytes(msgspec.json.encode(by_executors(job)))
        return
    made = table(given.tables.absolute(), given.blocks)
    pointer = indexed(made)
    with tempfile.TemporaryDirectory(prefix="lamella-bench-") as name:
        folder = Path(name)
        settings = {"warehouse": made.root, "catalog": catalog_of(made, pointer, folder)}
        found: dict[str, Any] = {
            "blocks": made.count,
            "load": os.getloadavg()[0],
            "service": by_service(settings, given.rounds),
            "executors": {},
        }
        with Service(folder, settings) as service:
            for executors in given.executors:
                job = Job(
                    url=f"http://127.0.0.1:{service.port}",
                    service_pid=service.pid,
                    executors=executors,
                    rounds=given.rounds,
                    out=str(folder / "out.json"),
                )
                (folder / "job.json").write_bytes(msgspec.json.encode(job))
                command = [sys.executable, __file__, "--job", str(folder / "job.json")]
                subprocess.run(command, check=True, stdout=sys.stderr)
                found["executors"][str(executors)] = json.loads((folder / "out.json").read_text())
                print(_line(found, executors), file=sys.stderr, flush=True)
    found["extrapolated_s"] = extrapolated(found, -(-made.count // 1_000))
    print(_markdown(found))
    print(json.dumps(found, indent=1))
    if given.out:
        given.out.write_text(json.dumps(found, indent=1))


def _line(found: dict[str, Any], executors: int) -> str:
    taken = found["executors"][str(executors)]
    return f"{executors} executors: " + ", ".join(
        f"{name} {each['again']['ms']:,.0f} ms ({_processors(each)})" for name, each in taken.items()
    )


def _processors(taken: dict[str, Any]) -> str:
    again = taken["again"]
    return f"{again['cpu_ms']:,.0f}, {again['busiest_cpu_ms']:,.0f}"


def _markdown(found: dict[str, Any]) -> str:
    numbers = list(found["executors"])
    head = ["question", "blocks", "service: first", "again", *(f"{number} executors" for number in numbers)]
    lines = ["| " + " | ".join(head) + " |", "|---" + "|--:" * (len(head) - 1) + "|"]
    for name in QUESTIONS:
        service = found["service"][name]
        cells = [name, f"{found['executors'][numbers[0]][name]['again']['blocks']:,.0f}"]
        cells += [f"{service[when]['cpu_ms']:,.0f}" for when in ("first", "again")]
        cells += [_processors(found["executors"][number][name]) for number in numbers]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
