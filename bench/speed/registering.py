"""Registering existing Parquet files: Lamella, delta-rs and pyiceberg, each in its own process.

``python -m speed.registering WAY FOLDER`` registers the files below FOLDER once and prints what it took as JSON.
Libraries are imported before the clock starts.
"""

from __future__ import annotations

import importlib
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from loopback import serving

from lamella.snapshot.parquet import ingest_arrays, read_footer, schema_of
from lamella.snapshot.storage import FsspecStore
from lamella.snapshot.warehouse import Warehouse
from speed.clock import cpu_s, timed

ROWS: Final = 200
_KINDS: Final = ("int64", "float64", "timestamp", "date", "string", "decimal")
_COLUMNS: Final = 20


def write_files(folder: Path, count: int) -> None:
    """``count`` files of 20 columns of all kinds, unless they are there; the first column follows their order."""
    if (folder / "done").exists():
        return
    (folder / "files").mkdir(parents=True, exist_ok=True)
    random = np.random.default_rng(3)
    for number in range(count):
        columns: dict[str, Any] = {"id": np.arange(number * ROWS, (number + 1) * ROWS)}
        for index in range(1, _COLUMNS):
            columns[f"c{index:02}"] = _column(_KINDS[index % len(_KINDS)], random)
        pq.write_table(pa.table(columns), folder / "files" / f"{number:06}.parquet")
    (folder / "done").touch()


def _column(kind: str, random: np.random.Generator) -> Any:
    values = random.integers(0, 10**6, ROWS)
    if kind == "string":
        return pa.array([f"key-{value:07}" for value in values.tolist()])
    if kind == "timestamp":
        return pa.array(values * 10**6).cast(pa.timestamp("us", "UTC"))
    if kind == "date":
        return pa.array((values % 20_000).astype(np.int32)).cast(pa.date32())
    if kind == "decimal":
        return pa.array(values).cast(pa.decimal128(19, 0)).cast(pa.decimal128(21, 2))
    return pa.array(values.astype(kind))


def lamella(files: Path, work: Path) -> int:
    """In process: footers, segments, one commit."""
    store = FsspecStore()
    locations = store.expand(f"file://{files}")
    schema = schema_of(read_footer(store, locations[0]))
    blocks, refused = ingest_arrays(store, locations, schema)
    if refused:
        raise RuntimeError(refused[0].reason)
    warehouse = Warehouse(store, f"file://{work}/warehouse")
    pointer = warehouse.create("t", schema, now_ms=1)
    done = warehouse.commit(pointer, added=warehouse.prepare("t", schema, blocks), now_ms=2)
    return done.snapshot.summary.block_count


def delta_convert(files: Path, _work: Path) -> int:
    """delta-rs, ``convert_to_deltalake``: it reads the footers and writes a log beside the files, all of it in Rust."""
    from deltalake import DeltaTable, convert_to_deltalake

    convert_to_deltalake(str(files))
    return len(DeltaTable(str(files)).file_uris())


def delta_actions(files: Path, work: Path) -> int:
    """delta-rs, add actions in one transaction, with statistics that pyarrow reads from the footers, by hand."""
    import json

    from deltalake import DeltaTable, Field, Schema
    from deltalake.schema import PrimitiveType
    from deltalake.transaction import AddAction

    kinds = {"int64": "long", "double": "double", "string": "string", "date32[day]": "date"}
    arrow = pq.read_schema(next(files.glob("*.parquet")))
    fields = [
        Field(f.name, PrimitiveType(kinds.get(str(f.type), "decimal(21,2)" if "dec" in str(f.type) else "timestamp")))
        for f in arrow
    ]
    DeltaTable.create(str(work / "delta"), Schema(fields))
    actions: list[Any] = []
    for file in sorted(files.glob("*.parquet")):
        metadata = pq.read_metadata(file)
        group = metadata.row_group(0)
        stats: dict[str, Any] = {"numRecords": metadata.num_rows, "minValues": {}, "maxValues": {}, "nullCount": {}}
        for index in range(metadata.num_columns):
            column = group.column(index)
            given = column.statistics
            stats["minValues"][column.path_in_schema] = _plain(given.min)
            stats["maxValues"][column.path_in_schema] = _plain(given.max)
            stats["nullCount"][column.path_in_schema] = given.null_count
        actions.append(AddAction(str(file), file.stat().st_size, {}, 0, True, json.dumps(stats)))
    table = DeltaTable(str(work / "delta"))
    table.create_write_transaction(actions, "append", Schema(fields))
    return len(DeltaTable(str(work / "delta")).file_uris())


def iceberg(files: Path, work: Path) -> int:
    """pyiceberg, ``add_files`` with all of them at once."""
    from pyiceberg.catalog.sql import SqlCatalog

    catalog = SqlCatalog("bench", uri=f"sqlite:///{work}/catalog.db", warehouse=f"file://{work}")
    catalog.create_namespace("bench")
    locations = [str(file) for file in sorted(files.glob("*.parquet"))]
    table = catalog.create_table("bench.t", schema=pq.read_schema(locations[0]))
    table.add_files(locations, check_duplicate_files=False)
    return len(table.inspect.files())


def _plain(value: Any) -> Any:
    if isinstance(value, int | float | str):
        return value
    return value.isoformat() if hasattr(value, "isoformat") else float(value)


WAYS: Final[dict[str, Callable[[Path, Path], int]]] = {
    "lamella": lamella,
    "delta-rs convert": delta_convert,
    "delta-rs add actions by hand": delta_actions,
    "pyiceberg add_files": iceberg,
}
_SERVICE: Final = "lamella, service"
_ROUNDS: Final = 3
_LIBRARIES: Final = {
    "delta-rs convert": ("deltalake",),
    "delta-rs add actions by hand": ("deltalake", "deltalake.schema", "deltalake.transaction"),
    "pyiceberg add_files": ("pyiceberg.catalog.sql", "pyiceberg.io.pyarrow"),
}


def measure(folder: Path, count: int) -> dict[str, Any]:
    """Files a second by way, by the clock and by the processor's time; also through the service.

    All ways in turns, several times; of each the time in the middle by the processor.
    """
    write_files(folder, count)
    rounds: dict[str, list[dict[str, Any]]] = {way: [] for way in (*WAYS, _SERVICE)}
    for _ in range(_ROUNDS):
        for way, found in rounds.items():
            found.append(_service(folder / "files") if way == _SERVICE else _in_new_process(way, folder))
    return {"files": count, "columns": _COLUMNS, **{way: _middle(found) for way, found in rounds.items()}}


def _in_new_process(way: str, folder: Path) -> dict[str, Any]:
    answer = subprocess.run([sys.executable, "-m", "speed.registering", way, str(folder)], capture_output=True)
    if answer.returncode:
        return {"error": answer.stderr.decode(errors="replace").strip().splitlines()[-1][:300]}
    found: dict[str, Any] = msgspec.json.decode(answer.stdout)
    return found


def _middle(found: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the run with the median processor time; a failed one, if any failed."""
    failed = [each for each in found if "error" in each]
    return failed[0] if failed else sorted(found, key=lambda each: each["cpu_s"])[len(found) // 2]


def _service(files: Path) -> dict[str, Any]:
    with serving({}) as service:
        service.send("POST", "/v1/namespaces", b'{"name":"bench"}')
        first = next(files.glob("*.parquet"))
        table = {"name": "t", "schema_from": f"file://{first}"}
        service.send("POST", "/v1/namespaces/bench/tables", msgspec.json.encode(table))
        before = cpu_s(service.pid)
        body = msgspec.json.encode({"paths": [f"file://{files}"]})
        answer, clock, _ = timed(lambda: service.send("POST", "/v1/namespaces/bench/tables/t/register", body))
        cpu = cpu_s(service.pid) - before
    return _rates(answer["registered"], clock, cpu)


def _rates(count: int, clock: float, cpu: float) -> dict[str, Any]:
    return {
        "registered": count,
        "seconds": round(clock, 2),
        "cpu_s": round(cpu, 2),
        "per_second": round(count / clock, 1),
        "per_cpu_second": round(count / cpu, 1),
    }


def main() -> None:
    """Register once."""
    way, folder = sys.argv[1], Path(sys.argv[2])
    for library in _LIBRARIES.get(way, ()):
        importlib.import_module(library)
    with tempfile.TemporaryDirectory(prefix="lamella-bench-") as name:
        try:
            count, clock, cpu = timed(lambda: WAYS[way](folder / "files", Path(name)))
        finally:
            log = folder / "files" / "_delta_log"
            if log.exists():
                for file in log.iterdir():
                    file.unlink()
                log.rmdir()
    sys.stdout.buffer.write(msgspec.json.encode(_rates(count, clock, cpu)))


if __name__ == "__main__":
    main()
