"""Measure how sharp pruning is, compared with an oracle that reads every row and with other planners on the same files.

``make sharpness`` prints the tables and writes ``build/sharpness.json``; ``ARGS="--docs docs/sharpness.md"`` writes the
page. Exit status 1: a block with a match was left out, one was called ALL wrongly, or the goal is not reached.
Needs the packages of the dependency group ``bench``; says which peer is missing.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import sys
import tempfile
from pathlib import Path

import msgspec
from rich.console import Console

COMMAND = 'make sharpness ARGS="--docs docs/sharpness.md"'
INSTALL = "pip install --group bench"


def main() -> int:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scale", type=float, default=0.5, help="TPC-H scale factor")
    parser.add_argument("--blocks", type=int, default=240, help="Parquet files a table and layout")
    parser.add_argument("--filters", type=int, default=10, help="random filters an operator and table")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", type=Path, default=Path("build/sharpness.json"))
    parser.add_argument("--json", action="store_true", help="print the result as JSON instead of tables")
    parser.add_argument("--docs", type=Path, help="write the page there")
    parser.add_argument("--folder", type=Path, help="keep generated data here (default: a temporary folder)")
    options = parser.parse_args()
    if importlib.util.find_spec("duckdb") is None:
        print(f"sharpness: error: duckdb is not installed, and it is the oracle; {INSTALL}", file=sys.stderr)
        return 2
    os.environ.setdefault("RUST_LOG", "error")  # delta-rs warns of every file with a binary column
    # Imported only when they are known to be installed.
    from sharp.judge import failures
    from sharp.report import page, show, totals
    from sharp.run import Options, missing_peers, run

    for name in missing_peers():
        print(f"sharpness: WARNING: {name} is NOT INSTALLED and NOT COMPARED; {INSTALL}", file=sys.stderr)
    chosen = Options(scale=options.scale, blocks=options.blocks, filters=options.filters, seed=options.seed)
    with tempfile.TemporaryDirectory(prefix="lamella-sharpness-") as temporary:
        result = run(options.folder or Path(temporary), chosen, lambda line: print(line, file=sys.stderr))
    encoded = msgspec.json.format(msgspec.json.encode(result), indent=2)
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_bytes(encoded + b"\n")
    if options.json:
        print(encoded.decode())
    else:
        show(result, Console())
    if options.docs is not None:
        options.docs.write_text(page(result, COMMAND))
    print(f"{result.seconds:.0f} s; written to {options.out}", file=sys.stderr)
    found = failures(totals(result))
    for failure in found:
        print(f"sharpness: FAILED: {failure}", file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
