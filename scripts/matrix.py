"""Test the wheel on every Python it is for, and with the oldest packages that pyproject.toml allows (`make matrix`).

Each line of the matrix has an environment of its own in build/matrix: a Python that uv finds on this machine (or
installs, with --download), the wheel with its extras, and the tools of the tests. The tests are the fast ones of the
areas below; they are run on the installed wheel, not on the checkout. `locked` lines have the versions of
requirements.lock, `lowest` the lower bounds of pyproject.toml on the oldest Python.

The package does not name Python 3.14 yet: datasketches 5.2 has no wheel for it, so this line needs a C++ compiler.
A line whose Python cannot be installed is reported as not run. The exit status is 1 if a line failed, and 2 if none did
but some could not run.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final, NamedTuple

from releasing.artefacts import build

ROOT: Final = Path(__file__).resolve().parent.parent
FOLDER: Final = ROOT / "build" / "matrix"
UV: Final = Path(sys.executable).parent / "uv"
EXTRAS: Final = "aio,pandas,postgres,s3,service,telemetry"
TOOLS: Final = ("hypothesis", "jsonschema", "pytest<9.2", "pytest-xdist", "pyyaml")
#: What the wheel does by itself. Other areas need servers, browsers, Spark, or other engines.
AREAS: Final = (
    *("aggregate", "bloom", "cluster", "commit", "evolution", "expression", "index", "manifest", "pages"),
    *("parquet", "prune", "rewrite", "stats", "vectors", "warehouse", "upgrade"),
)


class Line(NamedTuple):
    """One line of the matrix."""

    name: str
    python: str
    is_lowest: bool = False


LINES: Final = (
    *(Line(python, python) for python in ("3.11", "3.12", "3.13", "3.14")),
    Line("lowest", "3.11", is_lowest=True),
)


def main(arguments: list[str]) -> int:
    """Run the command; returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=[line.name for line in LINES])
    parser.add_argument("--areas", nargs="+", default=AREAS, help="folders of tests/")
    parser.add_argument("--download", action="store_true", help="let uv install a Python that is missing")
    parser.add_argument("--wheel", type=Path, help="test this one instead of building one")
    given = parser.parse_args(arguments)
    results: dict[str, str] = {}
    with tempfile.TemporaryDirectory() as folder:
        wheel = given.wheel or build(ROOT, Path(folder), epoch_s=0)
        for line in LINES:
            if given.only is None or line.name in given.only:
                results[line.name] = run_line(line, wheel.resolve(), given.areas, downloads=given.download)
                print(f"matrix: {line.name}: {results[line.name]}", file=sys.stderr, flush=True)
    if "failed" in results.values():
        return 1
    return 0 if set(results.values()) == {"passed"} else 2


def run_line(line: Line, wheel: Path, areas: list[str], *, downloads: bool) -> str:
    """Return "passed", "failed" or why the line was not run."""
    environment = FOLDER / line.name
    # uv looks at PATH and at what it installed itself, pyenv keeps its own.
    of_pyenv = sorted(Path.home().glob(f".pyenv/versions/{line.python}.*/bin/python"))
    download = "automatic" if downloads else "never"
    chosen: str | Path = of_pyenv[-1] if of_pyenv else line.python
    create: list[str | Path] = [UV, "venv", "--clear", "--quiet", "--python", chosen, environment]
    if not succeeds(create, UV_PYTHON_DOWNLOADS=download):
        return f"not run: no Python {line.python}"
    python = environment / "bin" / "python"
    install: list[str | Path] = [UV, "pip", "install", "--quiet", "--python", python]
    kind = ["--resolution", "lowest-direct"] if line.is_lowest else ["--constraint", str(ROOT / "requirements.lock")]
    package = f"lamella[{EXTRAS}] @ {wheel.as_uri()}"
    if not succeeds([*install, *kind, "--reinstall-package", "lamella", package]):
        return "failed"
    # The tools must not raise what was just installed.
    pins = FOLDER / f"{line.name}.txt"
    frozen = subprocess.run([UV, "pip", "freeze", "--python", python], check=True, capture_output=True, text=True)
    pins.write_text("".join(f"{pin}\n" for pin in frozen.stdout.splitlines() if " @ " not in pin), "utf-8")
    if not succeeds([*install, "--constraint", pins, *TOOLS]):
        return "failed"
    tests = [ROOT / "tests" / area for area in areas]
    marks = "not soak and not process and not slow and not postgres and not spark"
    command: list[str | Path] = [
        python,
        "-m",
        "pytest",
        "-q",
        "-n",
        "2",
        "--dist",
        "loadgroup",
        "-m",
        marks,
        "--ignore-glob=*spark*",
        *tests,
    ]
    return "passed" if succeeds(command, HYPOTHESIS_PROFILE="check") else "failed"


def succeeds(command: list[str | Path], **environment: str) -> bool:
    """Run a command; returns whether its exit status is 0."""
    return subprocess.run(command, check=False, cwd=ROOT, env=os.environ | environment).returncode == 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
