"""Test the wheel on every Python it is for, and with the oldest packages that pyproject.toml allows (`make matrix`).

Each line of the matrix has an environment of its own in build/matrix: a Python that pyenv or uv has on this machine (or
uv installs, with --download; Python 3.14 for Linux on x86_64 also comes from Maven Central), the wheel with its extras,
and the tools of the tests. The tests are the fast ones of the areas below; they are run on the installed wheel, not on
the checkout. `locked` lines have the versions of requirements.lock, `lowest` the lower bounds of pyproject.toml on the
oldest Python.

The package does not name Python 3.14 yet: datasketches 5.2 has no wheel for it, and its source fetches
datasketches-cpp from GitHub while it is built, so this line needs a C++ compiler, git and GitHub.
A line whose Python cannot be installed is reported as not run. The exit status is 1 if a line failed, and 2 if none did
but some could not run.
"""

from __future__ import annotations

import argparse
import hashlib
import io
import os
import platform
import subprocess
import sys
import tempfile
import urllib.request
import zipfile
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


class Archive(NamedTuple):
    """A whole Python in an archive, for Linux on x86_64: `home` is its folder in the archive."""

    url: str
    sha256: str
    home: str


#: Where uv and pyenv have no such Python. Maven Central is reached from places where GitHub's releases are not.
ARCHIVES: Final = {
    "3.14": Archive(
        "https://repo1.maven.org/maven2/org/bytedeco/cpython/3.14.3-1.5.13/cpython-3.14.3-1.5.13-linux-x86_64.jar",
        "eb5f1a6fe2dc498ac18927189a37f28a47b0ba06ae6bd85112eff023fe2eb46f",
        "org/bytedeco/cpython/linux-x86_64",
    )
}


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
    interpreter = find_python(line.python, downloads=downloads)
    if interpreter is None:
        return f"not run: no Python {line.python}"
    print(f"matrix: {line.name}: {interpreter}", file=sys.stderr, flush=True)
    if not succeeds([UV, "venv", "--clear", "--quiet", "--python", interpreter, environment]):
        return f"not run: no environment for {interpreter}"
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


def find_python(version: str, *, downloads: bool) -> Path | None:
    """Return an interpreter of this version: pyenv's, one that uv finds (or installs), or one from an archive."""
    # uv looks at PATH and at what it installed itself, pyenv keeps its own.
    of_pyenv = sorted(Path.home().glob(f".pyenv/versions/{version}.*/bin/python"))
    if of_pyenv:
        return of_pyenv[-1]
    if downloads:
        succeeds([UV, "python", "install", "--quiet", version])
    found = subprocess.run(
        [UV, "python", "find", "--no-project", "--system", version],
        check=False,
        capture_output=True,
        text=True,
        env=os.environ | {"UV_PYTHON_DOWNLOADS": "never"},
    )
    if found.returncode == 0:
        return Path(found.stdout.strip())
    archive = ARCHIVES.get(version)
    return None if archive is None else unpack(archive, version)


def unpack(archive: Archive, version: str) -> Path | None:
    """Return the archive's interpreter, in build/python; brings it first where it is not there.

    None, with the reason on stderr, on another machine than the archive is for, and where it cannot be brought.
    """
    if (platform.system(), platform.machine()) != ("Linux", "x86_64"):
        return None
    folder = ROOT / "build" / "python" / archive.sha256[:12]
    python = folder / archive.home / "bin" / f"python{version}"
    if python.exists():
        return python
    print(f"matrix: downloading {archive.url}", file=sys.stderr, flush=True)
    try:
        with urllib.request.urlopen(archive.url, timeout=60) as answer:  # noqa: S310 - the addresses of ARCHIVES
            content = answer.read()
    except OSError as error:
        print(f"matrix: {archive.url}: {error}", file=sys.stderr, flush=True)
        return None
    found = hashlib.sha256(content).hexdigest()
    if found != archive.sha256:
        print(f"matrix: {archive.url} has the SHA-256 {found}, not {archive.sha256}", file=sys.stderr, flush=True)
        return None
    folder.parent.mkdir(parents=True, exist_ok=True)
    # Renamed when it is whole: an unpacking that was stopped leaves no half of a Python to be taken for one.
    with tempfile.TemporaryDirectory(dir=folder.parent) as part:
        with zipfile.ZipFile(io.BytesIO(content)) as packed:
            packed.extractall(Path(part) / "whole")
        (Path(part) / "whole" / archive.home / "bin" / f"python{version}").chmod(0o755)
        (Path(part) / "whole").rename(folder)
    return python


def succeeds(command: list[str | Path], **environment: str) -> bool:
    """Run a command; returns whether its exit status is 0."""
    return subprocess.run(command, check=False, cwd=ROOT, env=os.environ | environment).returncode == 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
