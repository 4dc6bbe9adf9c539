"""Memory of several replicas behind nginx: requests in turn, and each table at one replica (deploy/nginx).

Tables of synthetic blocks with five columns, each in one warehouse, are asked for four predicates again and again in
random order, so that every replica comes to know every table that is sent to it. Each replica has a copy of the
catalog, since nothing is written. What the replicas hold is what their metrics say of the memory caches, and what the
system says of their processes, beyond idle ones (``Pss``: shared pages count in parts).

    python bench/replicas.py [--replicas 2 3] [--tables 12] [--blocks 30000] [--rounds 8]
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final

from loopback import Service
from speed import load
from speed.questions import question, spark_time, sql
from synthetic import FILTERED_COLUMNS, Model, blocks_of, schema

from lamella.service.catalog import TableRecord, open_catalog
from lamella.service.history.history import history_entry
from lamella.snapshot.ids import Ids
from lamella.snapshot.storage import FsspecStore
from lamella.snapshot.warehouse import Warehouse
from lamella.snapshot.wire import NamespaceInfo

_CONFIGURATION: Final = Path(__file__).resolve().parent.parent / "deploy" / "nginx"
_PREDICATES: Final = ("P1", "P2", "P5", "P7")
_WAYS: Final = {"in turn": "upstream.conf", "by table": "upstream-by-table.conf"}
_CACHES: Final = re.compile(r'^lamella_memory_cache_size_bytes\{kind="(.*)"\} (\S+)$', re.MULTILINE)
#: Kinds of what is kept of answers, which no two replicas have of one question in either way.
_ANSWERS: Final = frozenset({"funnel", "verdicts"})


def made_tables(folder: Path, tables: int, blocks: int) -> Path:
    """Make the tables ``bench.t0``, ``bench.t1`` and so on; returns their catalog."""
    file = folder / "catalog.db"
    catalog = open_catalog(f"sqlite:///{file}")
    catalog.create_namespace(NamespaceInfo(name="bench"), now_ms=1)
    warehouse = Warehouse(FsspecStore(), f"file://{folder}/warehouse", cache_bytes=0)
    columns = schema(FILTERED_COLUMNS)
    for number in range(tables):
        count = blocks + number  # caches keep what is equal once
        model = Model(count, FILTERED_COLUMNS)
        table_id = str(Ids().new())
        pointer = warehouse.create(table_id, columns, now_ms=1)
        added = warehouse.prepare(table_id, columns, list(blocks_of(model, 0, count, columns)))
        pointer = warehouse.commit(pointer, added=added, now_ms=2).pointer
        record = TableRecord(
            table_id=table_id,
            namespace="bench",
            name=f"t{number}",
            location=warehouse.table_location(table_id),
            version=1,
            pointer=pointer,
            created_at_ms=1,
        )
        catalog.create_table(record, history_entry(1, pointer, warehouse.snapshot(pointer)))
    catalog.close()
    return file


@contextmanager
def nginx(folder: Path, upstream: str, ports: Sequence[int]) -> Iterator[int]:
    """Yield the port of an nginx with our files before replicas at these ports."""
    program = shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin:/usr/local/sbin")
    if program is None:
        raise RuntimeError("nginx is missing: install the Debian package nginx-light")
    conf = folder / "nginx"
    shutil.copytree(_CONFIGURATION, conf)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = int(listener.getsockname()[1])
    (conf / "tmp").mkdir()
    for file in conf.glob("*.conf"):
        text = file.read_text().replace(" /tmp/", f" {conf}/tmp/")  # noqa: S108  # as it stands in the file
        text = text.replace("/etc/lamella/", f"{conf}/")
        file.write_text(text.replace("0.0.0.0:8080", f"127.0.0.1:{port}").replace("/dev/stdout", f"{conf}/access.log"))
    text = (conf / upstream).read_text()
    lines = re.findall(r"(?m)^ +server .*\n", text)
    servers = "".join(lines[0].replace("lamella-1:8181", f"127.0.0.1:{each}") for each in ports)
    (conf / "upstream.conf").write_text(text.replace("".join(lines), servers))
    if os.geteuid() == 0:
        (conf / "nginx.conf").write_text("user root;\n" + (conf / "nginx.conf").read_text())
    command = [program, "-c", str(conf / "nginx.conf"), "-g", "daemon off;"]
    process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    try:
        until = time.monotonic() + 30
        while True:
            try:
                load.run(port, [load.request("/health/live")], 1)
                break
            except (OSError, load.RefusedRequest):
                if time.monotonic() > until or process.poll() is not None:
                    raise
                time.sleep(0.05)
        yield port
    finally:
        process.terminate()
        process.wait(30)


def measured(way: str, replicas: int, given: argparse.Namespace, catalog: Path) -> dict[str, Any]:
    """Figures of so many replicas: megabytes of caches and of processes, each alone and together."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="lamella-bench-")))
        services = []
        for number in range(replicas):
            own = folder / str(number)
            own.mkdir()
            shutil.copy(catalog, own / "catalog.db")
            settings = {
                "warehouse": f"file://{catalog.parent}/warehouse",
                "catalog": f"sqlite:///{own}/catalog.db",
                "cache_bytes": str(1 << 30),
            }
            services.append(stack.enter_context(Service(own, settings)))
        idle = [_pss_mb(service.pid) for service in services]
        port = stack.enter_context(nginx(folder, _WAYS[way], [service.port for service in services]))
        draw = random.Random(7)
        for number in range(given.rounds):
            requests = [
                load.request(
                    f"/v1/namespaces/bench/tables/t{table}/prune",
                    json.dumps({"filter": sql(question(name, number), spark_time), "shape": "ranges"}).encode(),
                )
                for table in range(given.tables)
                for name in _PREDICATES
            ]
            draw.shuffle(requests)
            load.run(port, requests, 1)
        time.sleep(0.5)  # the figures are updated four times a second
        kinds = [dict(_CACHES.findall(service.text("/metrics"))) for service in services]
        caches = [sum(float(kind[name]) for name in kind.keys() - _ANSWERS) / 1e6 for kind in kinds]
        answers = sum(float(kind.get(name, 0)) for kind in kinds for name in _ANSWERS) / 1e6
        grown = [_pss_mb(service.pid) - before for service, before in zip(services, idle, strict=True)]
    return {
        "caches_mb": [round(each, 1) for each in caches],
        "caches_together_mb": round(sum(caches), 1),
        "answers_mb": round(answers, 1),
        "processes_mb": [round(each, 1) for each in grown],
        "processes_together_mb": round(sum(grown), 1),
    }


def _pss_mb(pid: int) -> float:
    """Memory of a process in megabytes; pages that it shares count in parts (Linux)."""
    text = Path(f"/proc/{pid}/smaps_rollup").read_text()
    return int(re.findall(r"(?m)^Pss: +(\d+) kB$", text)[0]) / 1e3


def main() -> None:
    """Measure, print a table and JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--replicas", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--tables", type=int, default=12)
    parser.add_argument("--blocks", type=int, default=30_000)
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    found: dict[str, Any] = {"tables": given.tables, "blocks": given.blocks, "load": os.getloadavg()[0]}
    with tempfile.TemporaryDirectory(prefix="lamella-bench-") as name:
        catalog = made_tables(Path(name), given.tables, given.blocks)
        print(
            "| replicas | requests | tables in each, MB | together | answers | processes |\n|--:|---|---|--:|--:|--:|"
        )
        for replicas in given.replicas:
            for way in _WAYS:
                taken = found[f"{replicas} {way}"] = measured(way, replicas, given, catalog)
                each = ", ".join(f"{size:,.0f}" for size in taken["caches_mb"])
                together, processes = taken["caches_together_mb"], taken["processes_together_mb"]
                answers = taken["answers_mb"]
                print(
                    f"| {replicas} | {way} | {each} | {together:,.0f} | {answers:,.0f} | {processes:,.0f} |", flush=True
                )
    print(json.dumps(found, indent=1))
    if given.out:
        given.out.write_text(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
