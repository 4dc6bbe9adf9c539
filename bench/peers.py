"""Make the environments of the peers that cannot share Lamella's (``bench/speed/environments.py``).

    python bench/peers.py [NAME ...]

One after another below ``build/peers``; what is there already stays. Packages are those of the locks. One that cannot
be made is named with its reason, here and by ``make bench``, and does not stop the others.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from speed.environments import ENVIRONMENTS, FOLDER, ROOT, Environment


class CannotMake(Exception):
    """Why an environment cannot be made here."""


def main() -> None:
    """Make those that are named, or all."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help=", ".join(each.name for each in ENVIRONMENTS), metavar="NAME")
    given = parser.parse_args()
    FOLDER.mkdir(parents=True, exist_ok=True)
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
    uv = [str(Path(sys.executable).with_name("uv"))]
    _run([*uv, "venv", "--quiet", "--python", str(python), str(environment.folder)])
    into = [*uv, "pip", "install", "--quiet", "--python", str(environment.interpreter)]
    lock = ROOT / environment.lock
    _run([*into, "--require-hashes", "-r", str(lock)])
    _run([*into, "-e", str(ROOT), "-c", str(ROOT / "requirements.lock")])
    environment.ready.write_bytes(lock.read_bytes())
    print(f"peers: {environment.name}: made", file=sys.stderr)


def python_for(oldest: tuple[int, int]) -> Path:
    """Return a Python of that version or newer: this one, one on PATH, or one of pyenv's.

    Raises:
        CannotMake: there is none.
    """
    for candidate in _pythons(oldest):
        asked = f"import sys; sys.exit(sys.version_info[:2] < {oldest!r})"
        try:
            if not subprocess.run([candidate, "-c", asked], capture_output=True, timeout=60).returncode:
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
        raise CannotMake(" ".join(said[-2:])[:300] or f"{command[1]} failed")


if __name__ == "__main__":
    main()
