"""Print the Python of an environment with a PySpark that Iceberg's Spark runtime knows; make it when it is not there.

Iceberg's newest runtime is for Spark 4.1, and Lamella's own Spark is newer: the two cannot be in one environment. This
one is in `build/iceberg-spark`, from `requirements-iceberg-spark.lock`, hashes checked.

Only the path goes to standard output. The exit status is 1 when it cannot be made.
"""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LOCK = ROOT / "requirements-iceberg-spark.lock"
FOLDER = ROOT / "build" / "iceberg-spark"
PYTHON = FOLDER / "bin" / "python"
#: What is in it; without this file, or with another lock, it is made anew.
READY = FOLDER / "ready.lock"


def main() -> int:
    """Make it if need be, and print its Python."""
    if not READY.exists() or READY.read_bytes() != LOCK.read_bytes():
        print("iceberg_spark: making build/iceberg-spark (430 MB, once)", file=sys.stderr)
        made: list[str | Path] = [sys.executable, "-m", "venv", "--clear", FOLDER]
        filled: list[str | Path] = [
            PYTHON,
            "-m",
            "pip",
            "--disable-pip-version-check",
            "install",
            "--quiet",
            "--require-hashes",
            "-r",
            LOCK,
        ]
        for command in (made, filled):
            if subprocess.run(command, check=False, stdout=sys.stderr).returncode != 0:
                print("iceberg_spark: error: see above", file=sys.stderr)
                return 1
        READY.write_bytes(LOCK.read_bytes())
    print(PYTHON)
    return 0


if __name__ == "__main__":
    sys.exit(main())
