"""The effect of reclustering on reads: TPC-H and skewed events, loaded in random order, compared with Databend.

    python bench/recluster.py [--scale 1] [--blocks 200] [--rounds 20] [--target-depths 2 8] [--out FILE]

For each table: average depth, and blocks read for ranges of 0.1 % of the rows along the key (200 at random), beside the
ideal: what equal blocks in perfect order would read. Before, after reclustering, and in rounds of ten appends (each of
0.5 % of the rows that were there at first) and one run. ``rows_written`` and ``bytes_written``: of the blocks that the
run made, as shares of the table as it is then. ``written_per_appended``: the rows that all runs so far wrote after the
first sort, by the rows that were appended. Lamella runs with each of the target depths, and Databend with ``RECLUSTER``
and with ``RECLUSTER FINAL``, each on a table of its own. Databend has the same rows, in blocks of as many rows, the
same ranges and the same measures: for both, blocks that are not in the table any more do not count. A checksum of every
column must be the same before and after each run.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import xxhash
from loopback import Service
from tpch_files import generate

from lamella.client import Lamella
from lamella.client.jobs.context import JobContext, Sizes
from lamella.client.jobs.rewrite import Bounds, recluster
from lamella.client.rewrite.engine import LocalEngine

SHARE = 0.001
RANGES = 200
APPENDS = 10
APPENDED = 0.005
ROUNDS = 20
STATEMENTS = ["recluster", "recluster final"]
TABLES = ["lineitem by l_orderkey", "lineitem by l_shipdate", "events by user"]


def main() -> None:
    """Measure, print JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scale", type=float, default=1.0)
    parser.add_argument("--events", type=int, default=4_000_000)
    parser.add_argument("--blocks", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--target-depths", type=int, nargs="*", default=[2, 8])
    parser.add_argument("--source", type=Path, default=Path("build/tpch"))
    parser.add_argument("--tables", nargs="*", default=TABLES)
    parser.add_argument("--no-databend", action="store_true")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--databend", nargs=2, metavar=("FOLDER", "PLAN"), help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.databend:
        print(json.dumps(_databend(Path(given.databend[0]), json.loads(Path(given.databend[1]).read_text()))))
        return
    figures = {}
    for name in given.tables:
        table, key = name.split(" by ")
        rows = _lineitem(given.source, given.scale) if table == "lineitem" else _events(given.events)
        case = Case.of(rows, key, given.blocks, given.rounds)
        figures[name] = measured(case, given.target_depths, [] if given.no_databend else STATEMENTS)
        print(json.dumps({name: figures[name]}, indent=1), flush=True)
    if given.out:
        given.out.write_text(json.dumps(figures, indent=1))


def _lineitem(source: Path, scale: float) -> pa.Table:
    folder = source / f"{scale:g}"
    generate(folder, scale)
    rows = pq.read_table(folder / "lineitem.parquet")
    plain = [pa.string() if pa.types.is_string_view(field.type) else field.type for field in rows.schema]
    return rows.cast(pa.schema(list(zip(rows.schema.names, plain, strict=True))))


def _events(count: int) -> pa.Table:
    """Skewed events: few users have most of them; the value is distinct."""
    rng = np.random.default_rng(7)
    users = np.minimum(rng.zipf(1.3, count), 10_000_000)
    return pa.table(
        {
            "user": pa.array(users, pa.int64()),
            "ts": pa.array(np.arange(count) * 1_000 + 1_700_000_000_000_000, pa.int64()).cast(
                pa.timestamp("us", "UTC")
            ),
            "kind": pa.array([f"kind {at % 17}" for at in range(count)]),
            "value": rng.random(count),
        }
    )


class Case(NamedTuple):
    """A table to be measured. ``matching``: the share of the rows that a range matches, on average."""

    pieces: Sequence[pa.Table]
    appended: Sequence[pa.Table]
    key: str
    ranges: Sequence[tuple[Any, Any]]
    matching: float
    per_block: int

    @classmethod
    def of(cls, rows: pa.Table, key: str, blocks: int, rounds: int) -> Case:
        """Return the rows in random order: so many blocks, and what is appended later."""
        rng = np.random.default_rng(1)
        order = pa.array(rng.permutation(rows.num_rows))
        appends = rounds * APPENDS
        each = int(rows.num_rows * APPENDED / (1 + appends * APPENDED))
        first = rows.num_rows - appends * each
        per_block = -(-first // blocks)
        ranges = _ranges(rows, key, rng)
        matching = float(np.mean([_count(rows.column(key), low, high) for low, high in ranges])) / rows.num_rows
        edges = [*range(0, first, per_block), first]
        return cls(
            pieces=[rows.take(order[start:stop]) for start, stop in itertools.pairwise(edges)],
            appended=[rows.take(order[first + at * each :][:each]) for at in range(appends)],
            key=key,
            ranges=ranges,
            matching=matching,
            per_block=per_block,
        )


def measured(case: Case, target_depths: Sequence[int], statements: Sequence[str]) -> dict[str, Any]:
    """Everything about one table."""
    figures: dict[str, Any] = {
        "rows": sum(len(each) for each in case.pieces),
        "blocks": len(case.pieces),
        "rows_of_an_append": len(case.appended[0]) if case.appended else 0,
    }
    for target_depth in target_depths:
        with tempfile.TemporaryDirectory(prefix="lamella-bench-") as name:
            figures[f"lamella, target depth {target_depth}"] = _lamella(Path(name), case, target_depth)
    for statement in statements:
        with tempfile.TemporaryDirectory(prefix="lamella-bench-") as name:
            figures[f"databend, {statement}"] = _beside(Path(name), case, statement)
    return figures


def _ranges(rows: pa.Table, key: str, rng: np.random.Generator) -> list[tuple[Any, Any]]:
    """Return the first and last value of stretches of this many rows along the key."""
    ordered = rows.column(key).take(pc.sort_indices(rows.column(key)))
    count = int(rows.num_rows * SHARE)
    starts = rng.integers(0, rows.num_rows - count, RANGES)
    return [(ordered[int(start)].as_py(), ordered[int(start) + count - 1].as_py()) for start in starts]


def _count(values: Any, low: Any, high: Any) -> int:
    return int(pc.sum(pc.and_(pc.greater_equal(values, low), pc.less_equal(values, high))).as_py())


def _literal(value: Any) -> str:
    return str(value) if isinstance(value, int) else f"DATE '{value}'"


def _lamella(folder: Path, case: Case, target_depth: int) -> dict[str, Any]:
    data = folder / "data"
    data.mkdir()
    with (
        Service(folder, {"warehouse": f"file://{folder}/warehouse"}) as service,
        Lamella(f"http://127.0.0.1:{service.port}", timeout_s=600) as lake,
        LocalEngine() as engine,
    ):
        lake.create_namespace("bench")
        files = [_file(data, at, piece) for at, piece in enumerate(case.pieces)]
        lake.create_table("bench.t", schema_from=str(files[0]), cluster_key=[case.key])
        table = lake.table("bench.t")
        table.register([str(file) for file in files])
        context = JobContext(lake=lake, table="bench.t", engine=engine, sizes=Sizes(block_rows=case.per_block))
        bounds = Bounds(target_depth=target_depth)
        sums = _checksums(case.pieces)
        assert _checksums(_files(lake)) == sums
        figures: dict[str, Any] = {"before": _layout(lake, case)}
        started = time.perf_counter()
        done = recluster(context, max_runs=10)
        figures["recluster"] = {
            "seconds": round(time.perf_counter() - started, 1),
            "bytes_rewritten": done.bytes_before,
            "mb_per_s": round(done.bytes_before / 1e6 / (time.perf_counter() - started), 1),
        }
        assert _checksums(_files(lake)) == sums
        figures["after"] = _layout(lake, case)
        figures["rounds"] = rounds = []
        written = appended = 0
        for first in range(0, len(case.appended), APPENDS):
            for at, piece in enumerate(case.appended[first : first + APPENDS], first):
                table.register([str(_file(data, 10_000 + at, piece))])
                appended += len(piece)
            sums = _added(sums, _checksums(case.appended[first : first + APPENDS]))
            layout_before = _layout(lake, case)
            started = time.perf_counter()
            done = recluster(context, bounds)
            seconds = time.perf_counter() - started
            assert _checksums(_files(lake)) == sums
            info = table.info()
            written += done.rows
            rounds.append(
                {
                    "ten appends later": layout_before,
                    "one more run": {
                        "seconds": round(seconds, 1),
                        "rows_written": round(done.rows / info.row_count, 4),
                        "bytes_written": round(done.bytes_after / info.file_size_bytes, 4),
                        "written_per_appended": round(written / appended, 2),
                        **_layout(lake, case),
                    },
                }
            )
    return figures


def _file(folder: Path, number: int, rows: pa.Table) -> Path:
    path = folder / f"{number:05}.parquet"
    pq.write_table(rows, path, compression="zstd", write_page_index=True)
    return path


def _layout(lake: Lamella, case: Case) -> dict[str, Any]:
    """Depth, and what ranges read."""
    table = lake.table("bench.t")
    info = table.info()
    answers = [table.prune(f"{case.key} BETWEEN {_literal(low)} AND {_literal(high)}") for low, high in case.ranges]
    # Matching rows (more than intended where values repeat) lie in this many blocks of equal size, wherever they begin.
    ideal = 1 + case.matching * info.row_count / case.per_block
    read = float(np.mean([each.block_count for each in answers]))
    health = table.clustering()
    return {
        "blocks": info.block_count,
        "average_depth": round(health.depth.average_depth, 2),
        "max_depth": health.depth.max_depth,
        "blocks_read": round(read, 2),
        "ideal": round(ideal, 2),
        "to_ideal": round(read / ideal, 2),
        "bytes_read": round(float(np.mean([each.size_bytes for each in answers]))),
    }


def _files(lake: Lamella) -> Iterator[pa.Table]:
    for location in lake.table("bench.t").prune().locations:
        yield pq.read_table(location.removeprefix("file://"))


def _checksums(tables: Iterable[pa.Table]) -> dict[str, int]:
    """Return for every column the sum of the hashes of its values over all rows, and the number of rows."""
    sums: dict[str, int] = {}
    for rows in tables:
        own = {name: _checksum(rows.column(name).combine_chunks()) for name in rows.column_names}
        sums = _added(sums, {**own, "rows": rows.num_rows})
    return sums


def _added(one: Mapping[str, int], other: Mapping[str, int]) -> dict[str, int]:
    return {name: (one.get(name, 0) + value) % (1 << 64) for name, value in other.items()}


def _checksum(values: Any) -> int:
    if pa.types.is_decimal(values.type):
        values = values.cast(pa.decimal128(18, values.type.scale)).cast(pa.float64())
    if pa.types.is_string(values.type):
        hashes = np.array(
            [xxhash.xxh64_intdigest(each) for each in values.cast(pa.binary()).to_pylist()], dtype=np.uint64
        )
    else:
        plain = values.view(pa.int32() if values.type.bit_width == 32 else pa.int64()).to_numpy(zero_copy_only=False)
        hashes = plain.astype(np.int64).view(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
        hashes = (hashes ^ (hashes >> np.uint64(29))) * np.uint64(0xBF58476D1CE4E5B9)
    return int(np.add.reduce(hashes, dtype=np.uint64))


def _beside(folder: Path, case: Case, statement: str) -> dict[str, Any]:
    """The same in an embedded Databend, in a separate process."""
    peer_folder = folder / "databend"
    peer_folder.mkdir()
    for at, piece in enumerate([*case.pieces, *case.appended]):
        _file(peer_folder, at, piece)
    plan = folder / "plan.json"
    spelled = [[_literal(low).replace("DATE ", ""), _literal(high).replace("DATE ", "")] for low, high in case.ranges]
    counts = [len(piece) for piece in case.appended]
    plan.write_text(
        json.dumps(
            {
                "key": case.key,
                "statement": statement,
                "ranges": spelled,
                "first": len(case.pieces),
                "appended": counts,
                "per_block": case.per_block,
            }
        )
    )
    command = [sys.executable, __file__, "--databend", str(peer_folder), str(plan)]
    done = subprocess.run(command, check=True, capture_output=True, text=True, cwd=peer_folder)
    found: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    return found


def _databend(folder: Path, plan: dict[str, Any]) -> dict[str, Any]:
    import re

    os.environ["DATABEND_DATA_PATH"] = f"{folder}/peer/"
    os.environ["CACHE_TABLE_PRUNE_PARTITIONS_COUNT"] = "0"
    from databend import SessionContext

    session = SessionContext(tenant="bench")

    def ask(sql: str) -> list[Any]:
        return [row for batch in session.sql(sql).to_py_arrow() for row in batch.to_pylist()]

    key, per_block = plan["key"], plan["per_block"]
    ask("set max_threads=2")
    ask("set enable_table_lock=0")
    schema = pq.read_schema(folder / "00000.parquet")
    types = ", ".join(f"`{field.name}` {_databend_type(field.type)}" for field in schema)
    ask(f"create table t({types}) cluster by ({key}) storage_format='parquet' row_per_block={per_block}")

    def load(first: int, last: int) -> None:
        for number in range(first, last):
            session.register_parquet(f"f{number}", f"{folder}/{number:05}.parquet")
            ask(f"insert into t select * from f{number}")

    def layout() -> dict[str, Any]:
        left = []
        for low, high in plan["ranges"]:
            text = "\n".join(
                next(iter(row.values()))
                for row in ask(f"explain select `{key}` from t where `{key}` between {low} and {high}")
            )
            found = re.search(r"partitions scanned: (\d+)", text)
            left.append(int(found.group(1)) if found else 0)
        health = ask("select average_depth d, total_block_count n from clustering_information('default','t')")[0]
        return {
            "blocks": health["n"],
            "average_depth": round(health["d"], 2),
            "blocks_read": round(float(np.mean(left)), 2),
        }

    def blocks() -> dict[str, tuple[int, int]]:
        """The rows and bytes of the table's blocks."""
        found = ask("select block_location b, row_count r, file_size s from fuse_block('default','t')")
        return {row["b"]: (row["r"], row["s"]) for row in found}

    figures: dict[str, Any] = {}
    load(0, plan["first"])
    figures["before"] = layout()
    started = time.perf_counter()
    ask("alter table t recluster final")
    figures["recluster final"] = {"seconds": round(time.perf_counter() - started, 1)}
    figures["after"] = layout()
    figures["rounds"] = rounds = []
    written = appended = 0
    for first in range(0, len(plan["appended"]), APPENDS):
        load(plan["first"] + first, plan["first"] + first + APPENDS)
        appended += sum(plan["appended"][first : first + APPENDS])
        layout_before = layout()
        before, started = blocks(), time.perf_counter()
        ask(f"alter table t {plan['statement']}")
        seconds = time.perf_counter() - started
        now = blocks()
        rows, size_bytes = (sum(each) for each in zip(*now.values(), strict=True))
        new = [figures for name, figures in now.items() if name not in before]
        written += sum(each[0] for each in new)
        rounds.append(
            {
                "ten appends later": layout_before,
                "one more run": {
                    "seconds": round(seconds, 1),
                    "rows_written": round(sum(each[0] for each in new) / rows, 4),
                    "bytes_written": round(sum(each[1] for each in new) / size_bytes, 4),
                    "written_per_appended": round(written / appended, 2),
                    **layout(),
                },
            }
        )
    return figures


def _databend_type(dtype: Any) -> str:
    if pa.types.is_decimal(dtype):
        return f"decimal({dtype.precision},{dtype.scale})"
    names = {"int64": "bigint", "int32": "int", "double": "double", "date32[day]": "date", "string": "varchar"}
    return names.get(str(dtype), "timestamp" if pa.types.is_timestamp(dtype) else "varchar")


if __name__ == "__main__":
    main()
