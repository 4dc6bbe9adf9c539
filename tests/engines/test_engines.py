"""Engines read tables through their own extension points: the rows of their own full scan, of fewer files."""

from __future__ import annotations

import subprocess
import sysconfig
from pathlib import Path

import msgspec
import pytest

from conftest import path_from_script
from engines.asked import Dataset, DuckDB, Polars
from engines.engine_tables import Compared, Engine, compare, compare_vectors

PROGRAM = Path(__file__).with_name("asked_elsewhere.py")
ENGINES: dict[str, Engine] = {"Polars": Polars(), "pyarrow": Dataset(), "DuckDB": DuckDB()}
#: Engines with environments of their own, by the names of their locks, and how many tables they are asked about: a
#: query takes them 10 to 300 ms.
ELSEWHERE = {"DataFusion": ("datafusion", 2_000), "Daft": ("daft", 2_000), "Ray": ("ray", 300)}


def compare_elsewhere(engine: str, tables: int, first: int) -> Compared:
    """Compare in the engine's own environment, which is made if it is not there."""
    python = path_from_script("environment.py", ELSEWHERE[engine][0])
    done = subprocess.run(
        [python, PROGRAM, engine, str(first), str(tables), sysconfig.get_paths()["purelib"]],
        check=False,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr[-4_000:]
    return msgspec.json.decode(done.stdout.splitlines()[-1], type=Compared)


@pytest.mark.parametrize("engine", ENGINES)
def test_an_engine_compares_floats_as_in_all_rows(engine: str, tmp_path: Path) -> None:
    """NaN and zeros of both signs, alone in files and beside numbers."""
    compare_vectors(ENGINES[engine], tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("engine", ENGINES)
def test_an_engine_finds_what_it_finds_in_all_rows(engine: str, tmp_path: Path) -> None:
    """Over random tables with NaN, -0.0, decimals, times, dictionaries, constants and deleted rows."""
    compare(ENGINES[engine], tmp_path, tables=25)


@pytest.mark.slow
def test_datafusion_finds_what_it_finds_in_all_rows() -> None:
    """The same in an environment of its own."""
    assert compare_elsewhere("DataFusion", 25, first=0).queries > 25


@pytest.mark.soak
@pytest.mark.parametrize("engine", ENGINES)
def test_thousands_of_tables(engine: str, tmp_path: Path) -> None:
    """The same at length."""
    compare(ENGINES[engine], tmp_path, tables=2_000, first=1_000)


@pytest.mark.soak
@pytest.mark.parametrize("engine", ELSEWHERE)
def test_many_tables_of_engines_elsewhere(engine: str) -> None:
    """The same at length, also of engines that are too large for other runs."""
    found = compare_elsewhere(engine, ELSEWHERE[engine][1], first=1_000)
    print(f"{engine}: {found}")
