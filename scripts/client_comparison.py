"""Write docs/clients.md: what Python clients and command lines of such systems can do, each cell by code that runs.

    python scripts/client_comparison.py --write       runs all code, and writes the page
    python scripts/client_comparison.py --check lamella duckdb     runs that of two

The code is in ``scripts/comparison``. What is in Lamella's own environment runs there; others have one of their own
(``scripts/environment.py``), and gh is Debian's package.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

ROOT: Final = Path(__file__).resolve().parent.parent
PAGE: Final = ROOT / "docs" / "clients.md"
_SOURCES: Final = ROOT / "scripts" / "comparison"
#: The distribution of each client, and the environment that it runs in; None: Lamella's.
CLIENTS: Final = {
    "lamella": ("lamella", None),
    "pyiceberg": ("pyiceberg", None),
    "deltalake": ("deltalake", None),
    "duckdb": ("duckdb", None),
    "lance": ("pylance", "peer-lance"),
}
#: The distribution of each program, and its environment; the version of gh is that of Debian 12.
PROGRAMS: Final = {
    "lamella": ("lamella", None),
    "pyiceberg": ("pyiceberg", None),
    "dbt": ("dbt-core", "peer-dbt"),
    "gh": ("gh", "debian"),
}
_GH_VERSION: Final = "2.23.0"
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
    read = tomllib.loads((_SOURCES / "clients.toml").read_text("utf-8"))
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


class Run(msgspec.Struct, frozen=True, kw_only=True):
    """What a program does about a feature: words of a shell, a pattern of what they print, and the exit status."""

    run: str
    status: int
    yes: str | None = None
    no: str | None = None

    @property
    def pattern(self) -> str:
        """What the output contains."""
        return self.yes if self.yes is not None else self.no or ""


def command_features() -> tuple[list[tuple[str, dict[str, Run]]], dict[str, str]]:
    """Return the rows about command lines, and what prepares each program."""
    read = tomllib.loads((_SOURCES / "commands.toml").read_text("utf-8"))
    rows = [(row["title"], {name: msgspec.convert(row[name], Run) for name in PROGRAMS}) for row in read["feature"]]
    return rows, read["set_up"]


def command_differences(program: str) -> list[str]:
    """Return what the page would say wrongly of a program. Raises RuntimeError if it cannot be had."""
    rows, set_ups = command_features()
    set_up = set_ups[program].strip()
    exports = "\n".join(line for line in set_up.splitlines() if line.startswith("export "))
    wrong = []
    with tempfile.TemporaryDirectory() as folder:
        environment = os.environ | {"PATH": f"{_folder_of(program)}:{os.environ['PATH']}"}

        def shell(text: str) -> tuple[int, str]:
            done = subprocess.run(
                ["bash", "-c", text],
                check=False,
                cwd=folder,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                timeout=_TIME_LIMIT_S,
            )
            return done.returncode, done.stdout

        status, text = shell(f"set -e\n{set_up}")
        if status:
            raise RuntimeError(f"the set-up of {program} failed: {text[-2000:]}")
        for title, row in rows:
            cell = row[program]
            status, text = shell(f"{exports}\n{cell.run}")
            if status != cell.status or not re.search(cell.pattern, text):
                wrong.append(f"{program}, {title}: status {status}, {text[-300:]!r}")
    return wrong


def _folder_of(program: str) -> str:
    """Return the folder of an executable, which is installed if need be."""
    environment = PROGRAMS[program][1]
    if environment != "debian":
        return str(Path(_python_in(environment)).parent)
    if shutil.which(program) is None:
        subprocess.run(["apt-get", "install", "--yes", "--quiet", program], check=True, stdout=sys.stderr)
    return str(Path(shutil.which(program) or program).parent)


def python_of(client: str) -> str:
    """Return the Python that has a client, after making its environment if need be."""
    return _python_in(CLIENTS[client][1])


def _python_in(environment: str | None) -> str:
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


def version_of(distribution: str, environment: str | None) -> str:
    """Return the version of a distribution in the lock of its environment."""
    if environment == "debian":
        return _GH_VERSION
    lock = ROOT / ("requirements.lock" if environment is None else f"requirements-{environment}.lock")
    (version,) = re.findall(rf"^{distribution}(?:\[\w+\])?==(\S+)", lock.read_text("utf-8"), re.MULTILINE)
    return str(version)


def page() -> str:
    """Return the page."""
    rows, _ = features()
    commands, _ = command_features()
    lines = [
        "# Clients beside each other",
        "",
        "What the Python clients of five systems can do with a table, and what command lines do. `make clients` runs",
        "the code of every cell and writes this page. With a tick it does what the row says; without one it is what",
        "one would try.",
        "",
        f"Versions: {_versions()}. This compares interfaces; [Comparison](comparison.md) measures what the systems do.",
        "",
        "## Python",
        "",
        *_table([(row.title, {name: cell.error is None for name, cell in row.cells.items()}) for row in rows]),
        "",
        "## Command lines",
        "",
        *_table([(title, {name: cell.yes is not None for name, cell in row.items()}) for title, row in commands]),
        "",
    ]
    for row in rows:
        lines += [f"## {row.title}", "", "```text"]
        for client, cell in row.cells.items():
            lines += [f"# {client}" + ("" if cell.error is None else f": {cell.error}"), *cell.code.splitlines()]
        lines += ["```", ""]
    for title, cells in commands:
        lines += [f"## {title}", "", "```text"]
        for run in cells.values():
            lines += [f"$ {run.run}", *([f"... {run.pattern} ..."] if run.pattern else [])]
        lines += ["```", ""]
    return "\n".join(lines)


def _versions() -> str:
    named = {name: version_of(*where) for name, where in (CLIENTS | PROGRAMS).items() if name != "lamella"}
    return ", ".join(f"{name} {version}" for name, version in named.items())


def _table(rows: Sequence[tuple[str, dict[str, bool]]]) -> list[str]:
    names = list(rows[0][1])
    lines = ["| | " + " | ".join(names) + " |", "|---|" + "---|" * len(names)]
    for title, cells in rows:
        ticks = " | ".join("✓" if cells[name] else "" for name in names)
        lines.append(f"| [{title}](#{_anchor(title)}) | {ticks} |")
    return lines


def _anchor(title: str) -> str:
    return "".join(c for c in title.lower().replace(" ", "-") if c.isalnum() or c in "-_")


def main() -> int:
    """The command; returns its exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help="write the page, if all code does what it says")
    known = [*dict.fromkeys([*CLIENTS, *PROGRAMS])]
    parser.add_argument("--check", nargs="*", choices=known, default=known, help="only these")
    given = parser.parse_args()
    wrong = [line for name in given.check if name in CLIENTS for line in differences(name)]
    wrong += [line for name in given.check if name in PROGRAMS for line in command_differences(name)]
    for line in wrong:
        print(line, file=sys.stderr)
    if given.write and not wrong:
        PAGE.write_text(page(), "utf-8")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
