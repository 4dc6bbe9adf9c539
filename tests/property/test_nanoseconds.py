"""Times in nanoseconds, against a full scan: in a column of their own type, and in one of microseconds, where they are
rounded down."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from operator import eq, ge, gt, le, lt, ne
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lamella.client import Lamella
from lamella.client.http import Table
from lamella.snapshot.schema import Column

OPERATORS: dict[str, Callable[[Any, Any], Any]] = {"=": eq, "<>": ne, "<": lt, "<=": le, ">": gt, ">=": ge}
#: Nanoseconds around the epoch, a day boundary before it, and a moment of today.
BASES = (0, -86_400_000_000_000, 1_767_225_600_000_000_000)
MOMENTS = st.builds(
    lambda base, near: base + near,
    st.sampled_from(BASES),
    st.one_of(st.integers(-3, 3).map(lambda micros: micros * 1_000), st.integers(-2_500, 2_500)),
)
NUMBERS = itertools.count()


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lamella]:
    """A lake without a server."""
    with Lamella.embedded(tmp_path_factory.mktemp("nanoseconds")) as opened:
        opened.create_namespace("db")
        yield opened


def table_of(lake: Lamella, folder: Path, kind: str, files: Sequence[Sequence[int | None]]) -> Table:
    """A table of registered files, each with a row group for two rows; ``n`` numbers the rows."""
    name = f"db.t{next(NUMBERS)}"
    lake.create_table(name, schema=[Column(name="n", type="int64"), Column(name="ts", type=kind)])
    numbers = itertools.count()
    zone = "UTC" if kind.startswith("timestamp(") else None
    for number, moments in enumerate(files):
        ts = pa.array(list(moments), pa.int64()).cast(pa.timestamp("ns", zone))
        path = folder / f"{name}-{number}.parquet"
        rows = pa.table({"n": [next(numbers) for _ in moments], "ts": ts})
        pq.write_table(rows, path, row_group_size=2, write_page_index=True)
        lake.table(name).register([f"file://{path}"])
    return lake.table(name)


@pytest.mark.parametrize("kind", ["timestamp(ns)", "timestamp_ntz(ns)", "timestamp(us)", "timestamp_ntz(us)"])
@given(
    files=st.lists(st.lists(st.none() | MOMENTS, min_size=1, max_size=4), min_size=1, max_size=3),
    operator=st.sampled_from(sorted(OPERATORS)),
    constant_us=MOMENTS.map(lambda moment: moment // 1_000),
)
def test_scans_and_counts_are_those_of_all_rows(
    lake: Lamella,
    tmp_path_factory: pytest.TempPathFactory,
    kind: str,
    files: list[list[int | None]],
    operator: str,
    constant_us: int,
) -> None:
    """A filter with microseconds finds the rows that it finds in all rows, and counts as many."""
    table = table_of(lake, tmp_path_factory.mktemp("files"), kind, files)
    unit = "ns" if "(ns)" in kind else "us"
    compares = OPERATORS[operator]
    constant = constant_us * 1_000 if unit == "ns" else constant_us
    moments = [moment if moment is None or unit == "ns" else moment // 1_000 for each in files for moment in each]
    expected = [n for n, moment in enumerate(moments) if moment is not None and compares(moment, constant)]
    word = "TIMESTAMP" if kind.startswith("timestamp(") else "TIMESTAMP_NTZ"
    text = np.datetime_as_string(np.datetime64(constant_us, "us")).replace("T", " ")
    where = f"ts {operator} {word} '{text}'"
    assert sorted(table.scan(where, ["n"]).to_arrow()["n"].to_pylist()) == expected
    assert table.scan(where).count() == len(expected)
    assert {row["n"] for row in table.scan(columns=["n"]).to_arrow().to_pylist()} == set(range(len(moments)))


@pytest.mark.parametrize("kind", ["timestamp(ns)", "timestamp(us)"])
@given(
    files=st.lists(st.lists(MOMENTS, min_size=1, max_size=3), min_size=1, max_size=3),
    operator=st.sampled_from(sorted(OPERATORS)),
    constant_ns=MOMENTS,
)
def test_a_finer_constant_keeps_what_any_reader_may_find(
    lake: Lamella,
    tmp_path_factory: pytest.TempPathFactory,
    kind: str,
    files: list[list[int]],
    operator: str,
    constant_ns: int,
) -> None:
    """Spark cuts a constant to microseconds, and other readers do not: a block that matches either way is kept."""
    table = table_of(lake, tmp_path_factory.mktemp("files"), kind, files)
    compares = OPERATORS[operator]
    text = np.datetime_as_string(np.datetime64(constant_ns, "ns")).replace("T", " ")
    left = {block.location for block in table.prune(f"ts {operator} '{text}'").blocks}
    for number, moments in enumerate(files):
        stored = moments if "(ns)" in kind else [moment // 1_000 * 1_000 for moment in moments]
        cut = constant_ns // 1_000 * 1_000
        readings = [cut] if "(us)" in kind else [cut, constant_ns]
        if any(compares(moment, constant) for moment in stored for constant in readings):
            assert any(location.endswith(f"-{number}.parquet") for location in left)
