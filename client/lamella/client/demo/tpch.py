"""TPC-H tables as Parquet files, by ``tpchgen-cli``."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from lamella.snapshot.errors import LamellaError

TABLES = ("lineitem", "orders")


def generate(folder: Path, scale: float) -> None:
    """Make ``folder`` with one file a table, unless it is there already.

    Raises:
        LamellaError: the generator is not installed, or fails.
    """
    if folder.exists():
        return
    partial = folder.with_name(folder.name + ".partial")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    command = [
        _program(),
        "parquet",
        f"--scale-factor={scale:g}",
        f"--tables={','.join(TABLES)}",
        f"--output-dir={partial}",
        "--quiet",
    ]
    done = subprocess.run(command, check=False, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    if done.returncode != 0:
        raise LamellaError(f"tpchgen-cli failed with status {done.returncode}: {done.stderr.strip()[-500:]}")
    # Renamed when whole, so that an interrupted run does not leave half a table to the next one.
    partial.rename(folder)


def _program() -> str:
    """The generator of this Python environment, or else of the PATH."""
    beside = Path(sys.executable).parent / "tpchgen-cli"
    found = str(beside) if os.access(beside, os.X_OK) else shutil.which("tpchgen-cli")
    if found is None:
        raise LamellaError("tpchgen-cli is not installed; pip install 'lamella[demo]' brings it")
    return found
