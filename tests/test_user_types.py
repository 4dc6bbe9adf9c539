"""Type checkers of a user's project read our annotations, from the wheel alone."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import venv
from pathlib import Path

import msgspec
import pytest

ROOT = Path(__file__).resolve().parent.parent

RIGHT = """
from __future__ import annotations

import asyncio
import datetime as dt
from decimal import Decimal

from lamella.client import AsyncLamella, Lamella, call, col
from lamella.client.http import PruneResult, Table
from lamella.client.scan import AsyncScan, Scan
from lamella.client.write.layout import WriteResult
from lamella.snapshot.wire import PrunedBlock


def counts(country: str) -> dict[str, int]:
    with Lamella(profile="production") as lake:
        orders: Table = lake.table("shop.orders")
        dear = (col("price") > Decimal("99.50")) & col("country").is_in([country]) & ~col("note").is_null()
        found: PruneResult = orders.prune(dear | (call("year", col("day")) == 2024), columns=["id"])
        blocks: list[PrunedBlock] = list(found)
        scan: Scan = orders.scan(col("at") >= dt.datetime(2024, 1, 1, tzinfo=dt.timezone.utc))
        orders.delete("amount < 0")
        names: tuple[str, ...] = lake.tables("shop")
        return {"blocks": len(blocks), "rows": scan.count(), "tables": len(names), "bytes": found.blocks[0].file_size}


async def main() -> int:
    async with AsyncLamella() as lake:
        orders = lake.table("shop.orders")
        scan: AsyncScan = orders.scan(col("id") > 5, columns=["id"])
        sizes = [len(row) async for row in scan.to_json_rows()]
        written: WriteResult = await orders.append([{"id": 1}], create=True)
        return len(await orders.prune(col("s")["x"].startswith("a"))) + await scan.count() + len(sizes) + written.rows


print(counts("DE"), asyncio.run(main()))
"""
#: Each line but those of the imports and the table is an error.
WRONG = """
from lamella.client import AsyncLamella, Lamella, col
orders = Lamella().table("shop.orders")
orders.delete(5)
orders.prune(col("a").startswith(5))
orders.prune(col("a") > None)
number: int = orders.prune().locations
orders.scan().count() + "1"
AsyncLamella().table("shop.orders").scan(limit="5")
AsyncLamella().table("shop.orders").append([]).rows
"""
WRONG_LINES = {4, 5, 6, 7, 8, 9, 10}


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the two programs and an environment with the wheel; of what it needs, only msgspec is there."""
    folder = tmp_path_factory.mktemp("project")
    venv.create(folder / "environment", with_pip=False)
    (packages,) = (folder / "environment").glob("lib/python*/site-packages")
    build: list[str | Path] = [
        sys.executable,
        "-m",
        "build",
        "--no-isolation",
        "--wheel",
        "--outdir",
        folder / "dist",
        ROOT,
    ]
    subprocess.run(build, check=True, cwd=folder, capture_output=True)
    (wheel,) = (folder / "dist").glob("*.whl")
    shutil.unpack_archive(wheel, packages, "zip")
    shutil.copytree(Path(msgspec.__file__).parent, packages / "msgspec")
    (folder / "right.py").write_text(RIGHT, "utf-8")
    (folder / "wrong.py").write_text(WRONG, "utf-8")
    return folder


def test_mypy_checks_a_program(project: Path) -> None:
    """Strictly: nothing of ours is untyped, and mistakes are found."""
    command: list[str | Path] = [
        sys.executable,
        "-m",
        "mypy",
        "--strict",
        "--no-error-summary",
        "--cache-dir",
        project / "cache",
    ]
    command += ["--python-executable", project / "environment" / "bin" / "python", "right.py", "wrong.py"]
    done = subprocess.run(command, check=False, cwd=project, capture_output=True, text=True)
    found = [line.split(":") for line in done.stdout.splitlines() if ": error: " in line]
    assert {name for name, *_ in found} == {"wrong.py"}, done.stdout + done.stderr
    assert {int(line) for _, line, *_ in found} == WRONG_LINES, done.stdout


@pytest.mark.skipif(shutil.which("node") is None, reason="Pyright runs in Node.js, which it would download")
def test_pyright_checks_a_program(project: Path) -> None:
    """The same."""
    settings = {"venvPath": str(project), "venv": "environment", "typeCheckingMode": "strict"}
    (project / "pyrightconfig.json").write_text(json.dumps(settings | {"include": ["right.py", "wrong.py"]}), "utf-8")
    command: list[str | Path] = [sys.executable, "-m", "pyright", "--outputjson", "-p", project]
    done = subprocess.run(command, check=False, cwd=project, capture_output=True, text=True)
    found = [
        (Path(each["file"]).name, each["range"]["start"]["line"] + 1)
        for each in json.loads(done.stdout)["generalDiagnostics"]
        if each["severity"] == "error"
    ]
    assert {name for name, _ in found} == {"wrong.py"}, done.stdout
    assert {line for _, line in found} == WRONG_LINES, done.stdout
