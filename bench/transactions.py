"""What a transaction of several tables costs, beside the commits that it is made of.

``python bench/transactions.py`` starts a service over loopback and appends one block to each of ten tables: by a
commit to each, one after another, and by one transaction. It prints the median of the slowest commit of each round, of
all ten together, and of the transaction, and how many times the slowest commit a transaction takes.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from loopback import Service

_COLUMNS = 20


def main() -> int:
    """Run the command; returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tables", type=int, default=10)
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--blocks", type=int, default=200, help="blocks of each table at the begin")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        settings = {"warehouse": f"file://{folder}/warehouse", "catalog": f"sqlite:///{folder}/catalog.db"}
        with Service(folder, settings) as service:
            print(json.dumps(measure(service, folder, given.tables, given.rounds, given.blocks), indent=1))
    return 0


def measure(service: Service, folder: Path, tables: int, rounds: int, blocks: int) -> dict[str, float]:
    """Return the medians in milliseconds, and the ratio of each round's transaction to its slowest commit."""
    rows = pa.table({f"c{number}": list(range(100)) for number in range(_COLUMNS)})
    pq.write_table(rows, folder / "block.parquet")
    data = (folder / "block.parquet").read_bytes()
    service.send("POST", "/v1/namespaces", b'{"name":"n"}')
    names = [f"t{number}" for number in range(tables)]
    for name in names:
        (folder / name).mkdir()
        for number in range(blocks):
            (folder / name / f"{number}.parquet").write_bytes(data)
        body = {"name": name, "schema_from": f"file://{folder}/{name}/0.parquet"}
        service.send("POST", "/v1/namespaces/n/tables", json.dumps(body).encode())
        paths = {"paths": [f"file://{folder}/{name}"], "strict": True}
        service.send("POST", f"/v1/namespaces/n/tables/{name}/register", json.dumps(paths).encode())

    def commit(name: str, what: str) -> dict[str, object]:
        path = folder / name / f"{what}.parquet"
        path.write_bytes(data)
        return {"added": [{"location": f"file://{path}", "row_count": 100, "file_size": 0}]}

    slowest, together, transactions = [], [], []
    for number in range(rounds):
        times = []
        for name in names:
            single = json.dumps(commit(name, f"single-{number}")).encode()
            times.append(timed(service, f"/v1/namespaces/n/tables/{name}/commits", single))
        changes = {"tables": [{"table": f"n.{name}", "commit": commit(name, f"together-{number}")} for name in names]}
        transactions.append(timed(service, "/v1/transactions", json.dumps(changes).encode()))
        slowest.append(max(times))
        together.append(sum(times))
    return {
        "slowest_commit_ms": statistics.median(slowest),
        "commits_ms": statistics.median(together),
        "transaction_ms": statistics.median(transactions),
        "to_slowest": statistics.median(one / other for one, other in zip(transactions, slowest, strict=True)),
        "to_all": statistics.median(one / other for one, other in zip(transactions, together, strict=True)),
    }


def timed(service: Service, path: str, body: bytes) -> float:
    """Send a request; returns its milliseconds."""
    began_s = time.perf_counter()
    service.send("POST", path, body)
    return 1000 * (time.perf_counter() - began_s)


if __name__ == "__main__":
    raise SystemExit(main())
