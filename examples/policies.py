"""Operating with policies: a table that is written in small pieces is compacted, indexed and cleaned up by a worker.

    python examples/policies.py [FOLDER]

Needs ``lamella[service]``. The worker runs inside this program until nothing is due; in operation,
``lamella worker`` runs as a process of its own, one or more, wherever it reaches the service and the files.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pyarrow as pa

from lamella.client import Lamella
from lamella.client.http import Table

POLICY = {
    "compact": {"small_blocks": 10},
    "index_refresh": {"not_indexed_blocks": 1},
    "vacuum": {"every_s": 3600, "arguments": {"execute": True}},
}


def state(table: Table) -> str:
    """What the policy changes."""
    coverage = table.index("by_value").coverage
    return f"{table.info().block_count} blocks, {coverage.not_indexed if coverage else '?'} of them not indexed"


def main(folder: Path) -> None:
    """Write small blocks, set a policy, let a worker do what is due, and see what it did."""
    lake_folder = folder / "lake"
    with Lamella.embedded(lake_folder) as lake:
        table = lake.table("iot.readings")
        for minute in range(30):
            numbers = range(minute * 100, minute * 100 + 100)
            table.append(pa.table({"sensor": [n % 7 for n in numbers], "value": numbers}), create=True)
        table.create_index("by_value", "bloom", "value")
        print("before:", state(table))

        found = table.set_policy(POLICY)
        for finding in found.findings:
            print(f"  {finding.rule}: {'due' if finding.due else 'not due'}, {finding.reason}")

        # Jobs that are due are made and run; --once ends when none is left.
        worker = [sys.executable, "-m", "lamella", "worker", "--once", "--url", str(lake_folder)]
        subprocess.run(worker, check=True, stderr=subprocess.DEVNULL)

        print("after:", state(table))
        for job in lake.jobs.list(table="iot.readings"):
            print(f"  {job.kind}: {job.state}")
        print(f"{table.scan().count():,} rows, as before")


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "build/examples/policies").absolute())
