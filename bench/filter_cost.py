"""The cost of the worst filters: processor time of each, and their effect on other requests when clients do not wait.

    .venv/bin/python bench/filter_cost.py            the filters, each of 250 kB, or as long as it may be
    .venv/bin/python bench/filter_cost.py --load     12 such requests whose clients leave, beside narrow prunes

Times are the processor's, of reading, binding and spelling out one filter, the least of three. "as long as it may be"
is the longest of its kind that is not refused. The load takes half a minute over a loopback port.
"""

from __future__ import annotations

import argparse
import http.client
import json
import logging
import os
import statistics
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit
from urllib.request import url2pathname

from loopback import Service, serving

from lamella.client import Lamella
from lamella.snapshot.errors import LamellaError, LimitExceeded
from lamella.snapshot.expression import bind, read_filter, sql_of, text_of
from lamella.snapshot.schema import Column, Schema

SIZE: Final = 250_000
ROUNDS: Final = 3
COLUMNS: Final = (
    *(Column(name=name, type="bigint") for name in ("id", "other")),
    *(Column(name="a", type="string"), Column(name="d", type="date"), Column(name="flag", type="boolean")),
)
CLIENTS: Final = 12
LOAD_S: Final = 25.0
_GIVEN_UP_S: Final = 1.0


def _repeated(head: str, part: str, tail: str) -> Callable[[int], str]:
    return lambda size: head + part * ((size - len(head) - len(tail)) // len(part)) + tail


#: Returns a filter of about this many characters.
SHAPES: Final[dict[str, Callable[[int], Any]]] = {
    "concat(a, a, ...)": _repeated("concat(a", ",a", ") = 'x'"),
    "coalesce(a, a, ...)": _repeated("coalesce(a", ",a", ") = 'x'"),
    "a || a || ...": _repeated("a", "||a", " = 'x'"),
    "id.a.a.a...": _repeated("id", ".a", " = 1"),
    "id between 1 and 2 and ...": _repeated("id between 1 and 2", " and id between 1 and 2", ""),
    "f(id) between 1 and 2 and ...": _repeated("f(id) between 1 and 2", " and f(id) between 1 and 2", ""),
    "struct(1, 1, ...)": _repeated("struct(1", ",1", ") = 1"),
    "cast(a as struct<a: int, ...>)": _repeated("cast(a as struct<a:int", ",a:int", ">) is null"),
    "cast(a as decimal(1, 1, ...))": _repeated("cast(a as decimal(1", ",1", ")) = 1"),
    "id & 1 & 1 ...": _repeated("id", "&1", " = 1"),
    "id <=> id <=> id ...": _repeated("id", " <=> id", ""),
    "id::int::int ...": _repeated("id", "::int", " = 1"),
    "case when ... when ...": _repeated("case", " when id = 1 then 2", " end = 1"),
    "id in (f(1), f(1), ...)": _repeated("id in (1", ",f(1)", ")"),
    "id in (1, 1, ...) and year(d) = 1": _repeated("year(d) = 1 and id in (1", ",1", ")"),
    "date(date(...)), 12 levels": lambda _: "date(" * 12 + "a" + ")" * 12 + " = 1",
    "'\\'\\'\\'...'": lambda size: "a = '" + "\\'" * (min(size, 60_000) // 2),
    "JSON: ranges and excluded ends": lambda size: _both("gt-eq", "not-eq", size),
    "JSON: lower and upper bounds": lambda size: _both("gt", "lt", size),
    "JSON: ranges and a list": lambda size: {
        "type": "and",
        "children": [
            *({"type": "gt-eq", "term": "id", "value": -n} for n in range(min(2_000, size // 100))),
            {"type": "in", "term": "id", "values": list(range(size // 8))},
        ],
    },
    "JSON: %a%a%a...": lambda size: {"type": "like", "term": "a", "value": "%a" * (size // 2)},
}


def _both(one: str, other: str, size: int) -> dict[str, Any]:
    count = min(2_400, size // 100)
    return {
        "type": "and",
        "children": [{"type": op, "term": "id", "value": n} for op in (one, other) for n in range(count)],
    }


def cost(given: Any, schema: Schema) -> tuple[float, str]:
    """Return the seconds of processor time, and the result."""
    best, outcome = float("inf"), ""
    for _ in range(ROUNDS):
        began = time.process_time()
        try:
            predicate = read_filter(given)
            bind(predicate, schema)
            text_of(predicate)
            sql_of(predicate)
            outcome = "read"
        except LimitExceeded as error:
            outcome = f"refused: {error.details.get('limit')}"
        except LamellaError as error:
            outcome = f"refused: {error.code}"
        best = min(best, time.process_time() - began)
        if best > 5:
            break
    return best, outcome


def longest(shape: Callable[[int], Any]) -> int:
    """Return the maximum size, up to the usual one, that no limit refuses, within about 3 %."""
    low, high = 100, SIZE
    while high - low > max(low // 30, 100):
        middle = (low + high) // 2
        try:
            read_filter(shape(middle))
            low = middle
        except LimitExceeded as error:
            if error.details.get("limit") == "filter_depth":  # refused after it was parsed
                low = middle
            else:
                high = middle
        except LamellaError:
            low = middle
    return low


def filters(*, at_most: bool) -> dict[str, Any]:
    """The costs of all shapes."""
    schema = Schema.assign(list(COLUMNS))
    found = {}
    print(f"{'filter':<36}{'250 kB':>10}  {'':<26}" + (f"{'as long as it may be':>22}" if at_most else ""))
    for name, shape in SHAPES.items():
        whole, outcome = cost(shape(SIZE), schema)
        line = f"{name:<36}{whole:>8.3f} s  {outcome:<26}"
        found[name] = {"s": whole, "outcome": outcome}
        if at_most:
            size = longest(shape)
            max_seconds, costliest_filter = cost(shape(size), schema)
            found[name] |= {"longest": size, "longest_s": max_seconds}
            line += f"{max_seconds:>8.3f} s at {size:>7}, {costliest_filter}"
        print(line, flush=True)
    return found


def load() -> dict[str, Any]:
    """Time narrow prunes alone, and during requests whose clients disconnect after a second."""
    with serving({"request_deadline_s": "10"}) as service:
        path = _table(service)
        alone = _narrow(service, path, 5.0)
        stop = threading.Event()
        threads = [threading.Thread(target=_leave, args=(service, path, number, stop)) for number in range(CLIENTS)]
        before, began = _processor_s(service.pid), time.monotonic()
        for thread in threads:
            thread.start()
        beside = _narrow(service, path, LOAD_S)
        stop.set()
        for thread in threads:
            thread.join()
        used, took = _processor_s(service.pid) - before, time.monotonic() - began
        return {"alone": alone, "beside": beside, "processor_s": round(used, 1), "seconds": round(took, 1)}


def _table(service: Service) -> str:
    with Lamella(f"http://127.0.0.1:{service.port}", timeout_s=60) as lake:
        lake.create_namespace("n")
        table = lake.create_table("n.t", schema=COLUMNS)
        folder = Path(url2pathname(urlsplit(table.location).path))
        folder.mkdir(parents=True, exist_ok=True)
        blocks = []
        for number in range(500):
            (folder / f"{number}.parquet").write_bytes(b"x")
            stats = {"1": {"min": {"Int64": number * 1_000}, "max": {"Int64": number * 1_000 + 999}, "null_count": 0}}
            location = f"{table.location}/{number}.parquet"
            blocks.append({"location": location, "row_count": 1_000, "file_size": 1, "col_stats": stats})
        lake.table("n.t").commit(added=blocks)
    return "/v1/namespaces/n/tables/t/prune"


def _narrow(service: Service, path: str, seconds: float) -> dict[str, float]:
    """Return the milliseconds of consecutive narrow prunes, and the number of refused ones."""
    took: list[float] = []
    refused = 0
    until, number = time.monotonic() + seconds, 0
    while time.monotonic() < until:
        number += 1
        body = {"filter": f"id >= {number * 37 % 499_000} AND id < {number * 37 % 499_000 + 2_000}", "shape": "ranges"}
        began = time.monotonic()
        try:
            service.send("POST", path, json.dumps(body).encode())
        except RuntimeError:  # refused, since the process is busy
            refused += 1
        took.append((time.monotonic() - began) * 1e3)
        time.sleep(0.005)
    took.sort()
    p99 = took[min(len(took) - 1, len(took) * 99 // 100)]
    return {
        "count": len(took),
        "refused": refused,
        "p50_ms": round(statistics.median(took), 1),
        "p99_ms": round(p99, 1),
    }


def _leave(service: Service, path: str, number: int, stop: threading.Event) -> None:
    """Send costly requests one after another, each with a timeout of one second."""
    texts = [shape(240_000) for name, shape in SHAPES.items() if not name.startswith(("JSON", "date(", "'"))]
    while not stop.is_set():
        number += 1
        body = json.dumps({"filter": texts[number % len(texts)]}).encode()
        connection = http.client.HTTPConnection("127.0.0.1", service.port, timeout=_GIVEN_UP_S)
        headers = {"content-type": "application/json", "lamella-timeout-ms": "1000"}
        try:
            connection.request("POST", path, body, headers)
            connection.getresponse().read()
        except OSError:
            pass
        finally:
            connection.close()
        stop.wait(_GIVEN_UP_S)


def _processor_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def main() -> None:
    """Run and print."""
    made = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("--load", action="store_true", help="requests whose clients leave, over a loopback port")
    made.add_argument("--only-250-kb", action="store_true", help="leave out the longest filters that are not refused")
    options = made.parse_args()
    logging.disable(logging.CRITICAL)
    if options.load:
        print(json.dumps(load(), indent=2))
    else:
        filters(at_most=not options.only_250_kb)


if __name__ == "__main__":
    main()
