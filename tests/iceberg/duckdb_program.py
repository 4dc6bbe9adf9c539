"""A program on a DuckDB with its Iceberg extension, run by a test as a process of its own, on a DuckDB of its own.

Reads a JSON object from standard input and prints what it found as a JSON object on the last line.
"""

from __future__ import annotations

import json
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import duckdb


def connected() -> Any:
    """A connection with the extensions, which lie in packages of their own."""
    connection = duckdb.connect()
    for name in ("avro", "iceberg"):
        spec = find_spec(f"duckdb_extension_{name}")
        assert spec is not None
        assert spec.origin is not None
        [file] = Path(spec.origin).parent.rglob(f"{name}.duckdb_extension")
        connection.execute(f"INSTALL '{file}'")
        connection.execute(f"LOAD {name}")
    connection.execute("SET TimeZone = 'UTC'")
    return connection


def main() -> None:
    """Ask each question."""
    given = json.loads(sys.stdin.read())
    connection = connected()
    for statement in given["setup"]:
        connection.execute(statement)
    found = [[[str(cell) for cell in row] for row in connection.sql(each).fetchall()] for each in given["queries"]]
    print(json.dumps(found))


if __name__ == "__main__":
    main()
