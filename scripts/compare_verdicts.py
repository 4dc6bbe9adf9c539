"""Compare the verdicts of two releases: the same random tables and filters, asked of both over HTTP.

    python scripts/compare_verdicts.py OTHER_CHECKOUT [--pairs 50000] [--seed 1]

A pair is a block and a filter. Its verdict is whether the block is kept, whether all of its rows match (``ALL``), what
is left of the filter (the residual), and the row ranges of its pages. Both services run on loopback with this Python.
Each differing pair is checked against every row of the block, by DuckDB where it reads the filter as Spark does (the
grammar of the filters keeps to what both share). The exit status is 1 when a service skips a block with a matching row,
or calls one ``ALL`` that has another row.
"""

from __future__ import annotations

import argparse
import datetime as dt
import json
import math
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from decimal import Decimal
from pathlib import Path
from random import Random
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq

ROOT = Path(__file__).resolve().parent.parent
BLOCKS = 25
FILTERS = 40
ROWS = 60
_DAY = dt.date(2024, 1, 1)
_WORDS = ("", "a", "ab", "abc", "abcd", "b", "ba", "x_y", "100%", "Zürich", "zz", "日本")


class Table:
    """Random columns with clusters, nulls and special values; and random filters over them."""

    def __init__(self, rng: Random) -> None:
        self._rng = rng
        kinds = rng.sample(sorted(COLUMNS), rng.randrange(3, 7))
        self.columns = {f"{kind}{at}": kind for at, kind in enumerate(kinds)}

    def block(self) -> pa.Table:
        """One block's rows."""
        rng = self._rng
        data, fields = {}, []
        for name, kind in self.columns.items():
            dtype, value = COLUMNS[kind]
            centre, spread = rng.randrange(100), rng.choice((0, 1, 5, 40))
            nulls = rng.choice((0.0, 0.0, 0.2, 1.0))
            data[name] = [
                None if rng.random() < nulls else value(rng, centre + rng.randint(-spread, spread)) for _ in range(ROWS)
            ]
            if rng.random() < 0.3:
                data[name].sort(key=str)  # so that pages differ
            fields.append(pa.field(name, dtype))
        return pa.table(data, schema=pa.schema(fields))

    def filter(self, depth: int = 0) -> str:
        """A filter in SQL that Spark and DuckDB read alike."""
        rng = self._rng
        at = rng.random()
        if depth < 3 and at < 0.45:
            joined = f" {rng.choice(('AND', 'OR'))} ".join(self.filter(depth + 1) for _ in range(rng.randrange(2, 4)))
            return f"NOT ({joined})" if rng.random() < 0.2 else f"({joined})"
        name, kind = rng.choice(list(self.columns.items()))
        term = name
        if kind in FUNCTIONS and rng.random() < 0.35:
            term, kind = rng.choice(FUNCTIONS[kind])
            term = term.format(name)
        literal = LITERALS[kind]
        shape = rng.random()
        if shape < 0.12:
            text = f"{term} IS {rng.choice(('', 'NOT '))}NULL"
        elif shape < 0.3:
            text = (
                f"{term} {rng.choice(('', 'NOT '))}IN ({', '.join(literal(rng) for _ in range(rng.randrange(1, 5)))})"
            )
        elif shape < 0.42:
            text = f"{term} {rng.choice(('', 'NOT '))}BETWEEN {literal(rng)} AND {literal(rng)}"
        elif kind == "text" and shape < 0.62:
            patterns = ("'a%'", "'ab%'", "'%b'", "'%b%'", "'a_c'", "''", "'z%'", "'%'")
            text = f"{term} {rng.choice(('', 'NOT '))}LIKE {rng.choice(patterns)}"
        else:
            text = f"{term} {rng.choice(('=', '<>', '<', '<=', '>', '>='))} {literal(rng)}"
        return f"NOT ({text})" if rng.random() < 0.1 else text


def _float(rng: Random, at: int) -> float:
    return rng.choice((math.nan, math.inf, -math.inf, 0.0, -0.0)) if rng.random() < 0.08 else at / 4


def _decimal(_rng: Random, at: int) -> Decimal:
    return (Decimal(at) / 8).quantize(Decimal("0.01"))


def _day(_rng: Random, at: int) -> dt.date:
    return _DAY + dt.timedelta(days=at * 9)


def _moment(rng: Random, at: int) -> dt.datetime:
    return dt.datetime(2024, 1, 1) + dt.timedelta(hours=at * 31, microseconds=rng.choice((0, 1, 999_999)))  # noqa: DTZ001


def _text(rng: Random, at: int) -> str:
    return rng.choice(_WORDS) if rng.random() < 0.3 else f"{'abz'[at % 3]}{at:03}"


COLUMNS: dict[str, tuple[pa.DataType, Any]] = {
    "int": (pa.int32(), lambda _rng, at: at),
    "long": (pa.int64(), lambda rng, at: at * rng.choice((1, 2**40, -(2**40)))),
    "double": (pa.float64(), _float),
    "decimal": (pa.decimal128(9, 2), _decimal),
    "date": (pa.date32(), _day),
    "moment": (pa.timestamp("us"), _moment),
    "text": (pa.string(), _text),
    "flag": (pa.bool_(), lambda rng, at: at % 7 == 0 if rng.random() < 0.9 else at % 2 == 0),
}
LITERALS: dict[str, Any] = {
    "int": lambda rng: str(rng.randint(-10, 110)),
    "long": lambda rng: str(rng.choice((1, 2**40, -(2**40))) * rng.randint(-10, 110)),
    "double": lambda rng: f"CAST({rng.randint(-40, 440) / 4} AS DOUBLE)",
    "decimal": lambda rng: f"{rng.randint(-100, 1400) / 100:.2f}",
    "date": lambda rng: f"DATE '{_DAY + dt.timedelta(days=rng.randint(-90, 990))}'",
    "moment": lambda rng: f"TIMESTAMP_NTZ '{_moment(rng, rng.randint(-10, 110))}'",
    "text": lambda rng: f"'{_text(rng, rng.randint(-10, 110))}'",
    "flag": lambda rng: rng.choice(("true", "false")),
}
FUNCTIONS: dict[str, tuple[tuple[str, str], ...]] = {
    "int": (("({} + 3)", "int"), ("({} - 7)", "int"), ("abs({})", "int")),
    "date": (("year({})", "int"), ("month({})", "int")),
    "moment": (("year({})", "int"), ("hour({})", "int"), ("CAST({} AS DATE)", "date")),
    "text": (("lower({})", "text"), ("upper({})", "text"), ("substring({}, 1, 2)", "text"), ("length({})", "int")),
}


@contextmanager
def service(checkout: Path, folder: Path) -> Iterator[str]:
    """The address of a checkout's service over an empty warehouse; it has ended after the block."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    paths = os.pathsep.join(str(checkout / part) for part in ("snapshot", "service", "client"))
    program = "import sys; from lamella.client.cli import main; sys.exit(main())"
    arguments = ["serve", "--warehouse", f"file://{folder}/warehouse", "--catalog", f"sqlite:///{folder}/catalog.db"]
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-c", program, *arguments, "--host", "127.0.0.1", "--port", str(port)],
            env={**os.environ, "PYTHONPATH": paths},
            stdout=log,
            stderr=log,
            cwd=folder,
        )
        try:
            url = f"http://127.0.0.1:{port}"
            until_s = time.monotonic() + 60
            while not _is_ready(url):
                if process.poll() is not None or time.monotonic() > until_s:
                    raise SystemExit(
                        f"the service of {checkout} does not start:\n{(folder / 'log').read_text()[-2000:]}"
                    )
                time.sleep(0.1)
            yield url
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(30)


def _is_ready(url: str) -> bool:
    try:
        with urllib.request.urlopen(f"{url}/health/ready", timeout=5):
            return True
    except OSError:
        return False


def call(url: str, path: str, body: dict[str, Any]) -> tuple[int, Any]:
    """Status and JSON of an answer."""
    data = json.dumps(body).encode()
    request = urllib.request.Request(url + path, data=data, headers={"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=120) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)


def verdicts(url: str, table: str, text: str) -> dict[str, Any]:
    """By file name what is said of each kept block; of a refused filter its code."""
    found: dict[str, Any] = {}
    for body in ({"filter": text, "residuals": True}, {"filter": text, "level": "page"}):
        status, answer = call(url, f"/v1/namespaces/ns/tables/{table}/prune", body)
        if status != 200:
            return {"": answer["code"]}
        residuals = answer["residuals"]
        for block in answer["blocks"]:
            said = found.setdefault(block["location"].rsplit("/", 1)[1], {})
            said.update({name: block[name] for name in block if name not in ("location", "file_size", "row_count")})
            if "residual" in said and isinstance(said["residual"], int) and residuals is not None:
                said["residual"] = residuals[said["residual"]]
    return found


def truth(files: Path, name: str, text: str) -> tuple[int, int]:
    """How many rows of a block match, and how many there are, by a scan of all of them."""
    condition = text.replace("TIMESTAMP_NTZ", "TIMESTAMP")
    with duckdb.connect() as database:
        database.execute("SET threads TO 1")
        row = database.execute(
            f"SELECT count(*) FILTER (WHERE {condition}), count(*) FROM read_parquet('{files / name}')"
        ).fetchone()
    if row is None:
        raise SystemExit(f"no count of the rows of {name}")
    return row[0], row[1]


def main() -> int:
    """Print how many pairs agree, and each filter with pairs that do not."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("other", type=Path, help="a checkout of the release to compare with")
    parser.add_argument("--pairs", type=int, default=50_000, help="pairs of a block and a filter")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    counts: Counter[str] = Counter()
    with ExitStack() as stack:
        folders = [Path(stack.enter_context(tempfile.TemporaryDirectory())) for _ in range(3)]
        urls = [
            stack.enter_context(service(checkout, folder))
            for checkout, folder in ((options.other.resolve(), folders[0]), (ROOT, folders[1]))
        ]
        for url in urls:
            call(url, "/v1/namespaces", {"name": "ns"})
        for number in range(math.ceil(options.pairs / (BLOCKS * FILTERS))):
            table = Table(Random(f"{options.seed} {number}"))
            files = folders[2] / f"t{number}"
            files.mkdir()
            for part in range(BLOCKS):
                pq.write_table(table.block(), files / f"{part:03}.parquet", data_page_size=256, write_page_index=True)
            for url in urls:
                made = {"name": f"t{number}", "schema_from": f"file://{files}/000.parquet"}
                call(url, "/v1/namespaces/ns/tables", made)
                status, answer = call(
                    url, f"/v1/namespaces/ns/tables/t{number}/register", {"paths": [f"file://{files}"]}
                )
                if status != 200 or answer["refused"]:
                    raise SystemExit(f"{url} did not take the files: {answer}")
            for _ in range(FILTERS):
                text = table.filter()
                old, new = (verdicts(url, f"t{number}", text) for url in urls)
                if "" in old or "" in new:
                    counts["refused by both" if old == new else "refused by one"] += BLOCKS
                    if old != new:
                        print(f"refused: {text}: {old.get('')} before, {new.get('')} now")
                    continue
                kinds: Counter[str] = Counter()
                for name in (f"{part:03}.parquet" for part in range(BLOCKS)):
                    before, now = old.get(name), new.get(name)
                    if before == now:
                        kinds["same, kept" if now else "same, skipped"] += 1
                        continue
                    kinds[f"now {'kept' if before is None else 'skipped' if now is None else 'said otherwise'}"] += 1
                    matching, rows = truth(files, name, text)
                    for who, said in (("before", before), ("now", now)):
                        if (said is None and matching) or (said and said.get("verdict") == "ALL" and matching != rows):
                            kinds[f"wrong {who}"] += 1
                counts += kinds
                if any(not kind.startswith("same") for kind in kinds):
                    print(f"table {number}: {text}: {dict(kinds)}")
    for kind, count in sorted(counts.items()):
        print(f"{count:8,}  {kind}")
    return int(counts["wrong now"] > 0)


if __name__ == "__main__":
    sys.exit(main())
