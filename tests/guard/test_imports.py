"""What a program loads before it does anything: modules, never time."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Final

import pytest

_COUNT: Final = "import atexit, json, sys; atexit.register(lambda: print('\\n' + json.dumps(sorted(sys.modules))))\n"
#: What no start needs: other engines, drivers of stores and databases that the settings do not name, Spark.
_NEVER: Final = frozenset(
    ("pyiceberg", "duckdb", "polars", "deltalake", "datafusion", "pyspark", "py4j", "s3fs", "botocore", "aiobotocore")
) | {"psycopg", "grpc", "mcp", "IPython", "matplotlib"}
#: What a program that asks over HTTP, and the command line's help, do not need either.
_HEAVY: Final = frozenset(
    ("numpy", "pyarrow", "pandas", "sqlglot", "sqlalchemy", "alembic", "fastapi", "starlette", "uvicorn", "pydantic")
)


def loaded(program: str) -> list[str]:
    """The names of the modules at the end of a program, in a new process."""
    done = subprocess.run([sys.executable, "-c", _COUNT + program], check=True, capture_output=True, text=True)
    found: list[str] = json.loads(done.stdout.rsplit("\n", 2)[-2])
    return found


@pytest.mark.parametrize(
    ("program", "maximum", "unused"),
    [
        ("import lamella.client", 80, _NEVER | _HEAVY | {"click", "fsspec", "msgspec"}),
        ("import lamella.client.spark", 80, _NEVER | _HEAVY | {"click", "fsspec", "msgspec"}),
        (
            "import sys; sys.argv = ['lamella', '--help']; import lamella.client.cli as c; c.main()",
            450,
            _NEVER | _HEAVY,
        ),
        ("import lamella.service.app", 2_050, _NEVER),
    ],
    ids=["client", "spark", "help", "service"],
)
def test_a_start_loads_no_more_than_it_did(program: str, maximum: int, unused: frozenset[str]) -> None:
    """A tenth more modules than today at most, and none of a library that is not needed then."""
    names = loaded(program)
    assert {name.partition(".")[0] for name in names} & unused == set()
    assert len(names) <= maximum
