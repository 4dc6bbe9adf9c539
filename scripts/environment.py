"""Print the Python of an environment of its own for a client that Lamella is tested with; make it if it is not there.

Some clients need other versions of what Lamella itself is tested with: Iceberg's newest Spark runtime is for Spark 4.1,
and DuckDB's newest Iceberg extension on PyPI for DuckDB 1.5. Daft needs an older pyarrow. `environment.py
NAME` makes `build/NAME` from `requirements-NAME.lock`, hashes checked.

Only the path goes to standard output. The exit status is 1 when it cannot be made.
"""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def main(name: str) -> int:
    """Make the environment if needed, and print its Python."""
    lock, folder = ROOT / f"requirements-{name}.lock", ROOT / "build" / name
    python = folder / "bin" / "python"
    # The lock that the environment was made from; if it is missing or differs, the environment is made again.
    ready = folder / "ready.lock"
    if not lock.exists():
        print(f"environment: error: there is no {lock.name}", file=sys.stderr)
        return 1
    if not ready.exists() or ready.read_bytes() != lock.read_bytes():
        print(f"environment: making build/{name} (once)", file=sys.stderr)
        made: list[str | Path] = [sys.executable, "-m", "venv", "--clear", folder]
        pip: list[str | Path] = [python, "-m", "pip", "--disable-pip-version-check", "install", "--quiet"]
        for command in (made, [*pip, "--require-hashes", "-r", lock]):
            if subprocess.run(command, check=False, stdout=sys.stderr).returncode != 0:
                print("environment: error: see above", file=sys.stderr)
                return 1
        ready.write_bytes(lock.read_bytes())
    print(python)
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
