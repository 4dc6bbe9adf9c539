"""Write docs/clients.md: what Python clients of tables can do, each cell of it by code that runs.

    python scripts/client_comparison.py --write       runs the code, and writes the page
    python scripts/client_comparison.py --check lamella duckdb     runs that of two clients

The code is in ``scripts/comparison/clients.toml``. Clients that are in Lamella's own environment run there; others have
one of their own (``scripts/environment.py``).
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path
from typing import Any, Final

import msgspec

ROOT: Final = Path(__file__).resolve().parent.parent
PAGE: Final = ROOT / "docs" / "clients.md"
_SOURCE: Final = ROOT / "scripts" / "comparison" / "clients.toml"
#: The distribution of each client, and the environment that it runs in; None: Lamella's.
CLIENTS: Final = {
    "lamella": ("lamella", None),
    "pyiceberg": ("pyiceberg", None),
    "deltalake": ("deltalake", None),
    "duckdb": ("duckdb", None),
    "lance": ("pylance", "peer-lance"),
}
_TIME_LIMIT_S: Final = 300
#: Runs in the client's environment: for each code, in an empty folder, sets up, runs it, and notes how it ended.
_RUNNER: Final = """
import json, os, sys, tempfile, warnings
warnings.simplefilter("ignore")
set_up, codes = json.load(sys.stdin)
found = []
for code in codes:
    os.chdir(tempfile.mkdtemp(dir=sys.argv[1]))
    names = {}
    exec(set_up, names)
    try:
        exec(code, names)
    except BaseException as error:
        found.append({"kinds": [k.__name__ for k in type(error).__mro__], "text": f"{type(error).__name__}: {error}"})
    else:
        found.append({"kinds": [], "text": ""})
print(json.dumps(found), flush=True)
os._exit(0)
"""


class Cell(msgspec.Struct, frozen=True, kw_only=True):
    """What one client does about a feature: its code, and the class of the error that it ends with (None: none)."""

    code: str
    error: str | None


class Feature(msgspec.Struct, frozen=True, kw_only=True):
    """A row of the table."""

    title: str
    cells: dict[str, Cell]


def features() -> tuple[list[Feature], dict[str, str]]:
    """Return the rows, and what prepares each client; raises KeyError for a client without a cell."""
    read = tomllib.loads(_SOURCE.read_text("utf-8"))
    rows = []
    for feature in read["feature"]:
        cells = {}
        for client in CLIENTS:
            cell = feature[client]
            cells[client] = Cell(
                code=cell.get("yes", cell.get("no")).strip(), error=cell["error"] if "no" in cell else None
            )
        rows.append(Feature(title=feature["title"], cells=cells))
    return rows, read["set_up"]


def python_of(client: str) -> str:
    """Return the Python that has a client, after making its environment if need be."""
    environment = CLIENTS[client][1]
    if environment is None:
        return sys.executable
    command = [sys.executable, str(ROOT / "scripts" / "environment.py"), environment]
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout.strip()


def outcomes(python: str, set_up: str, codes: list[str]) -> list[dict[str, Any]]:
    """Run each code in an empty folder; returns the classes of its error (none: it ran) and its text."""
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(
            [python, "-c", _RUNNER, folder],
            check=False,
            input=json.dumps([set_up, codes]),
            capture_output=True,
            text=True,
            timeout=_TIME_LIMIT_S,
        )
    if done.returncode:
        raise RuntimeError(f"the set-up failed: {done.stderr[-2000:]}")
    found: list[dict[str, Any]] = json.loads(done.stdout.splitlines()[-1])
    return found


def differences(client: str) -> list[str]:
    """Return what the page would say wrongly of a client."""
    rows, set_ups = features()
    cells = [row.cells[client] for row in rows]
    found = outcomes(python_of(client), set_ups[client], [cell.code for cell in cells])
    wrong = []
    for row, cell, end in zip(rows, cells, found, strict=True):
        if cell.error is None and end["kinds"]:
            wrong.append(f"{client}, {row.title}: {end['text']}")
        elif cell.error is not None and cell.error not in end["kinds"]:
            wrong.append(f"{client}, {row.title}: {end['text'] or 'no error'}, not {cell.error}")
    return wrong


def version_of(client: str) -> str:
    """Return the version of a client in the lock of its environment."""
    distribution, environment = CLIENTS[client]
    lock = ROOT / ("requirements.lock" if environment is None else f"requirements-{environment}.lock")
    (version,) = re.findall(rf"^{distribution}==(\S+)", lock.read_text("utf-8"), re.MULTILINE)
    return str(version)


def page() -> str:
    """Return the page."""
    rows, _ = features()
    versions = ", ".join(f"{client} {version_of(client)}" for client in CLIENTS if client != "lamella")
    lines = [
        "# Python clients beside each other",
        "",
        "What the Python clients of five systems can do with a table. `make clients` runs the code of every cell and",
        "writes this page. With a tick the code runs; without one it is what one would try, and ends with an error.",
        "",
        f"Versions: {versions}.",
        "",
        "| | " + " | ".join(CLIENTS) + " |",
        "|---|" + "---|" * len(CLIENTS),
    ]
    lines += [
        f"| [{row.title}](#{_anchor(row.title)}) | "
        + " | ".join("✓" if row.cells[client].error is None else "" for client in CLIENTS)
        + " |"
        for row in rows
    ]
    lines += ["", "This compares interfaces. [Comparison](comparison.md) measures what the systems do.", ""]
    for row in rows:
        lines += [f"## {row.title}", "", "```text"]
        for client in CLIENTS:
            cell = row.cells[client]
            lines += [f"# {client}" + ("" if cell.error is None else f": {cell.error}"), *cell.code.splitlines()]
        lines += ["```", ""]
    return "\n".join(lines)


def _anchor(title: str) -> str:
    return "".join(c for c in title.lower().replace(" ", "-") if c.isalnum() or c in "-_")


def main() -> int:
    """The command; returns its exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help="write the page, if all code does what it says")
    parser.add_argument("--check", nargs="*", choices=list(CLIENTS), default=list(CLIENTS), help="only these clients")
    given = parser.parse_args()
    wrong = [line for client in given.check for line in differences(client)]
    for line in wrong:
        print(line, file=sys.stderr)
    if given.write and not wrong:
        PAGE.write_text(page(), "utf-8")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
