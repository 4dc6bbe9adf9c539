"""TPC-H tables as Parquet files, made by ``tpchgen-cli``."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path


def generate(folder: Path, scale: float) -> None:
    """Make ``folder`` with lineitem and orders, one file each, unless it is there already."""
    if folder.exists():
        return
    partial = folder.with_name(folder.name + ".partial")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    program = str(Path(sys.executable).parent / "tpchgen-cli")
    tables = ["--tables=lineitem,orders", f"--output-dir={partial}", "--quiet"]
    subprocess.run([program, "parquet", f"--scale-factor={scale:g}", *tables], check=True, stdin=subprocess.DEVNULL)
    partial.rename(folder)  # when whole, so that an interrupted run leaves no half of a table to the next one
