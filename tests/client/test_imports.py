"""Importing the client stays cheap, and says clearly what is missing."""

from __future__ import annotations

import subprocess
import sys

import pytest

HEAVY = (
    "pyarrow",
    "sqlglot",
    "numpy",
    "pandas",
    "pyspark",
    "fsspec",
    "httpx2",
    "fastapi",
    "sqlalchemy",
    "click",
    "rich",
)


def run(program: str) -> str:
    """What a program prints in a fresh interpreter."""
    done = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
    return done.stdout.strip()


@pytest.mark.parametrize(
    "use",
    [
        "",
        "from lamella.client import Lamella; Lamella('http://127.0.0.1:1')",
        "import lamella.client.http.fake_transport",
    ],
)
def test_importing_the_client_loads_nothing_heavy(use: str) -> None:
    """Neither data libraries nor Spark, neither a web framework nor a terminal library comes with the HTTP client."""
    program = f"import sys, lamella.client\n{use}\nprint([m for m in {HEAVY!r} if m in sys.modules])"
    assert run(program) == "[]"


def test_importing_the_package_alone_loads_no_client() -> None:
    """A sibling such as the Spark part does not pay for the HTTP client."""
    assert run("import sys, lamella.client; print('lamella.client.http' in sys.modules)") == "False"


def test_the_async_client_names_its_extra() -> None:
    """Without httpx2 the error says which extra brings it."""
    program = """
import sys
sys.modules["httpx2"] = None
from lamella.client import AsyncLamella
try:
    AsyncLamella("http://127.0.0.1:1")
except ModuleNotFoundError as error:
    print(error)
"""
    assert "lamella[aio]" in run(program)
