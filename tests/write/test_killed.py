"""Programs that are killed while they change rows: the table has all of the change or nothing."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from fixtures_server import ServerProcess
from lamella.client.http import Table
from write.conftest import MakeTable

_PROGRAM = """
import os, signal, sys
from lamella.client import Lamella
from lamella.client.http.fake_transport import FakeTransport
from lamella.client.http.transport import PooledTransport

url, table, change, moment = sys.argv[1:]
service = PooledTransport(url, timeout_s=60)

def die():
    os.kill(os.getpid(), signal.SIGKILL)

def handle(request):
    is_commit = request.path.endswith("/commits")
    if is_commit and moment == "before the commit":
        die()
    answer = service.send(request)
    if is_commit:
        die()
    return answer

def rows():
    for n in range(8, 12):
        if n == 10 and moment == "while reading":
            die()
        yield {"id": n, "v": 1}

table = Lamella(url, transport=FakeTransport(handle)).table(table)
options = {"target_block_rows": 1, "memory_bytes": 1}
if change == "overwrite":
    table.overwrite(rows(), "id >= 5", **options)
elif change == "upsert":
    table.upsert(rows(), ["id"], **options)
else:
    table.delete("id >= 5")
"""
BEFORE = [(n, 0) for n in range(10)]
AFTER = {
    "overwrite": [*BEFORE[:5], *((n, 1) for n in range(8, 12))],
    "upsert": [*BEFORE[:8], *((n, 1) for n in range(8, 12))],
    "delete": BEFORE[:5],
}


def rows_of(table: Table) -> list[tuple[int, int]]:
    """All rows, by id."""
    found = table.scan().to_arrow()
    return sorted(zip(found["id"].to_pylist(), found["v"].to_pylist(), strict=True))


@pytest.mark.parametrize(
    ("change", "moment"),
    [
        (change, moment)
        for change in AFTER
        for moment in ("while reading", "before the commit", "after the commit")
        if (change, moment) != ("delete", "while reading")
    ],
)
@pytest.mark.few(3)
def test_a_killed_change_is_done_or_not_done(
    shared_server: ServerProcess, make_table: MakeTable, tmp_path: Path, change: str, moment: str
) -> None:
    """And the same change again gives the same rows as if nothing had happened."""
    table = make_table(id="int64", v="int64", cluster_key=["id"])
    table.append({"id": range(10), "v": [0] * 10}, target_block_rows=4)
    program = tmp_path / "program.py"
    program.write_text(_PROGRAM)
    done = subprocess.run([sys.executable, program, shared_server.url, str(table), change, moment], check=False)
    assert done.returncode == -9
    assert rows_of(table) == (AFTER[change] if moment == "after the commit" else BEFORE)
    assert table.verify(deep=True, sample=1.0).is_clean
    if change == "overwrite":
        table.overwrite([{"id": n, "v": 1} for n in range(8, 12)], "id >= 5")
    elif change == "upsert":
        table.upsert([{"id": n, "v": 1} for n in range(8, 12)], ["id"])
    else:
        table.delete("id >= 5")
    assert rows_of(table) == AFTER[change]
