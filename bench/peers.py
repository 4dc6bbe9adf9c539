"""Install the peers that ``make bench`` measures: the group ``bench`` here, others in environments of their own.

    python bench/peers.py [NAME ...]

One after another, so that one which cannot be had does not stop the others; it is named with its reason, here and by
``make bench``. Environments (``bench/speed/environments.py``) are made below ``build/peers`` of the packages of their
locks, and stay. ``NAME``: only these environments.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from speed.environments import ENVIRONMENTS, FOLDER, ROOT, Environment

_UV: Final = str(Path(sys.executable).with_name("uv"))
_LOCKED: Final = str(ROOT / "requirements.lock")


class CannotMake(Exception):
    """Why an environment cannot be made here."""


def main() -> None:
    """Make those that are named, or all."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help=", ".join(each.name for each in ENVIRONMENTS), metavar="NAME")
    given = parser.parse_args()
    FOLDER.mkdir(parents=True, exist_ok=True)
    groups = tomllib.loads((ROOT / "pyproject.toml").read_text())["dependency-groups"]
    for requirement in [] if given.names else groups["bench"]:
        try:
            install(Path(sys.executable), requirement, "-c", _LOCKED)
        except CannotMake as why:
            print(f"peers: {requirement}: {why}", file=sys.stderr)
    for environment in ENVIRONMENTS:
        if given.names and environment.name not in given.names:
            continue
        environment.reason.unlink(missing_ok=True)
        try:
            make(environment)
        except CannotMake as why:
            environment.reason.write_text(f"{why}\n")
            print(f"peers: {environment.name}: {why}", file=sys.stderr)


def make(environment: Environment) -> None:
    """Make an environment, unless it is there and of the same lock.

    Raises:
        CannotMake: there is no Python for it, or its packages cannot be installed.
    """
    if environment.is_made():
        return
    python = python_for(environment.python)
    shutil.rmtree(environment.folder, ignore_errors=True)
    _run([_UV, "venv", "--quiet", "--python", str(python), str(environment.folder)])
    lock = ROOT / environment.lock
    install(environment.interpreter, "--require-hashes", "-r", str(lock))
    install(environment.interpreter, "-e", str(ROOT), "-c", _LOCKED)
    environment.ready.write_bytes(lock.read_bytes())
    print(f"peers: {environment.name}: made", file=sys.stderr)


def install(python: Path, *what: str) -> None:
    """Install packages for an interpreter.

    Raises:
        CannotMake: they cannot be had.
    """
    _run([_UV, "pip", "install", "--quiet", "--python", str(python), *what])


def python_for(oldest: tuple[int, int]) -> Path:
    """Return a Python of that version or newer: this one, one on PATH, or one of pyenv's.

    Raises:
        CannotMake: there is none.
    """
    for candidate in _pythons(oldest):
        probe = f"import sys; sys.exit(sys.version_info[:2] < {oldest!r})"
        try:
            if not subprocess.run([candidate, "-c", probe], capture_output=True, timeout=60).returncode:
                return candidate
        except OSError:
            continue
    raise CannotMake(f"needs Python {oldest[0]}.{oldest[1]} or newer, and none was found")


def _pythons(oldest: tuple[int, int]) -> Iterator[Path]:
    """Interpreters to try, the oldest that will do first, since packages may lag behind the newest."""
    yield Path(sys.executable)
    root = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
    for minor in range(oldest[1], 20):
        found = shutil.which(f"python3.{minor}")
        if found:
            yield Path(found)
        yield from sorted(root.glob(f"versions/3.{minor}.*/bin/python3"))


def _run(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "UV_PYTHON_DOWNLOADS": "never"})
    if done.returncode:
        said = [line.strip() for line in done.stderr.splitlines() if line.strip()]
        raise CannotMake(" ".join(said[-2:])[-300:] or f"{command[1]} ended with {done.returncode}")


if __name__ == "__main__":
    main()
