"""Random changes from Python, beside a plain list of rows to which the same is done."""

from __future__ import annotations

import datetime as dt
import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from decimal import Decimal
from typing import Any, Final

import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lamella.client import Lamella
from lamella.client.http import Table
from lamella.client.rewrite.target import arrow_schema
from lamella.snapshot.schema import Column, Schema
from support.service_api import fresh_name

Row = dict[str, Any]

_ELEMENT: Final = Column(name="element", type="int16")
#: The columns of every table; ``id`` is never null.
COLUMNS: Final = (
    Column(name="id", type="int32", nullable=False),
    Column(name="f", type="float64"),
    Column(name="t", type="string"),
    Column(name="d", type="decimal(20,3)"),
    Column(name="day", type="date"),
    Column(name="ts", type="timestamp(us)"),
    Column(name="u", type="uint64"),
    Column(name="flag", type="boolean"),
    Column(name="raw", type="binary"),
    Column(name="s", type="struct", fields=(Column(name="a", type="int8"), Column(name="b", type="string"))),
    Column(name="l", type="list", fields=(_ELEMENT,)),
    Column(
        name="m",
        type="map",
        fields=(Column(name="key", type="string", nullable=False), Column(name="value", type="float32")),
    ),
)
_FLOATS: Final = st.sampled_from([math.nan, 0.0, -0.0, math.inf, -math.inf, 1.5, -2.25])
_TEXTS: Final = st.sampled_from(["", "a", "b", "ä", "\U0001f600", "a" * 70])
_INSTANTS: Final = st.integers(-(10**15), 10**15).map(
    lambda micros: dt.datetime(1970, 1, 1, tzinfo=dt.UTC) + dt.timedelta(microseconds=micros)
)
ROWS: Final = st.fixed_dictionaries(
    {
        "id": st.integers(0, 12),
        "f": st.none() | _FLOATS,
        "t": st.none() | _TEXTS,
        "d": st.none() | st.integers(-(10**19), 10**19).map(lambda units: Decimal(units).scaleb(-3)),
        "day": st.none() | st.dates(dt.date(1, 1, 1), dt.date(9999, 12, 31)),
        "ts": st.none() | _INSTANTS,
        "u": st.none() | st.sampled_from([0, 1, 2**63, 2**64 - 1]),
        "flag": st.none() | st.booleans(),
        "raw": st.none() | st.sampled_from([b"", b"\x00", b"\xff\xff"]),
        "s": st.none() | st.fixed_dictionaries({"a": st.none() | st.integers(-128, 127), "b": st.none() | _TEXTS}),
        "l": st.none() | st.lists(st.none() | st.integers(-5, 5), max_size=3),
        "m": st.none() | st.dictionaries(_TEXTS, st.none() | st.sampled_from([0.5, math.nan]), max_size=2),
    }
)
#: Filters, and what they mean for a row: null is not true, NaN is the greatest.
FILTERS: Final[dict[str, Callable[[Row], bool]]] = {
    "id < 4": lambda row: row["id"] < 4,
    "id IN (1, 5, 7) OR t = 'a'": lambda row: row["id"] in (1, 5, 7) or row["t"] == "a",
    "f > 1": lambda row: row["f"] is not None and (math.isnan(row["f"]) or row["f"] > 1),
    "f = 0": lambda row: row["f"] == 0,
    "NOT (t = 'a')": lambda row: row["t"] is not None and row["t"] != "a",
    "s.b IS NULL": lambda row: row["s"] is None or row["s"]["b"] is None,
    "flag AND d >= 0": lambda row: bool(row["flag"]) and row["d"] is not None and row["d"] >= 0,
    "u = 18446744073709551615": lambda row: row["u"] == 2**64 - 1,
    "true": lambda _row: True,
    "false": lambda _row: False,
}
KEYS: Final = (("id",), ("id", "f"), ("t", "id"))
CLUSTER_KEYS: Final = ((), ("id",), ("f", "t"), ("d", "ts", "id"), ("s.b", "u"))


def canonical(value: Any) -> Any:
    """A value that is equal to itself, with lists and maps that can be counted."""
    if isinstance(value, float):
        return repr(value)
    if isinstance(value, dict):
        return tuple((name, canonical(part)) for name, part in sorted(value.items()))
    if isinstance(value, list | tuple):
        return tuple(canonical(part) for part in value)
    return value


def counted(rows: Iterable[Row]) -> Counter[Any]:
    """How often each row occurs; a map is its pairs, as Arrow gives them."""
    found: Counter[Any] = Counter()
    for row in rows:
        pairs = row["m"].items() if isinstance(row["m"], dict) else row["m"]
        whole = row | {"m": None if pairs is None else [list(pair) for pair in pairs]}
        found[canonical({name: whole[name] for name in sorted(whole)})] += 1
    return found


def as_batches(rows: list[Row]) -> Iterator[Any]:
    """Rows one by one and in small tables, mixed."""
    table = as_table(rows)
    for at, row in enumerate(rows):
        yield row if at % 3 else table.slice(at, 1)


def as_table(rows: list[Row]) -> pa.Table:
    """Rows in the table's own Arrow types."""
    schema = arrow_schema(Schema.assign(COLUMNS))
    plain = [row | {"m": None if row["m"] is None else list(row["m"].items())} for row in rows]
    return pa.table([pa.array([row[f.name] for row in plain], f.type) for f in schema], schema=schema)


def as_frame(rows: list[Row]) -> Any:
    """Rows as a Polars frame, which has no maps and no decimals of its own precision, where it can hold them."""
    return pl.DataFrame(as_table(rows).select(["id", "f", "t", "day", "u", "flag", "raw", "s", "l"]))


FORMS: Final[dict[str, Callable[[list[Row]], Any]]] = {
    "dictionaries": list,
    "table": as_table,
    "mixed": as_batches,
    "reader": lambda rows: as_table(rows).to_reader(max_chunksize=2),
}


class Ledger:
    """A table and the rows that it must have."""

    def __init__(self, table: Table) -> None:
        self.table = table
        self.rows: list[Row] = []

    def append(self, rows: list[Row], data: Any, options: dict[str, Any]) -> None:
        """Add rows."""
        assert self.table.append(data, **options).rows == len(rows)
        self.rows += rows

    def overwrite(self, rows: list[Row], data: Any, options: dict[str, Any], where: str | None) -> None:
        """Replace rows for which a filter is true."""
        matches = (lambda _row: True) if where is None else FILTERS[where]
        left = [row for row in self.rows if not matches(row)]
        result = self.table.overwrite(data, where, **options)
        assert (result.rows, result.rows_removed) == (len(rows), len(self.rows) - len(left))
        self.rows = left + rows

    def delete(self, where: str) -> None:
        """Remove rows."""
        left = [row for row in self.rows if not FILTERS[where](row)]
        assert self.table.delete(where).rows == len(self.rows) - len(left)
        self.rows = left

    def upsert(self, rows: list[Row], form: str, options: dict[str, Any], on: tuple[str, ...]) -> None:
        """Replace and insert rows; of rows with one key, and of those with a null in it, none is sent."""
        new = {key: row for row in rows if None not in (key := key_of(row, on))}
        sent = list(new.values())
        left = [row for row in self.rows if key_of(row, on) not in new]
        matched = {key_of(row, on) for row in self.rows} & set(new)
        result = self.table.upsert(FORMS[form](sent), on, **options)
        assert result.rows_removed == len(self.rows) - len(left)
        assert (result.rows_updated, result.rows_inserted) == (len(matched), len(sent) - len(matched))
        self.rows = left + sent

    def check(self) -> None:
        """The table has the rows, and says nothing of them that is not so."""
        assert counted(self.table.scan().to_arrow().to_pylist()) == counted(self.rows)
        for where, matches in FILTERS.items():
            assert self.table.scan(where).count() == sum(map(matches, self.rows)), where
        assert self.table.verify(deep=True, sample=1.0, filters=2).findings == ()


def key_of(row: Row, on: tuple[str, ...]) -> tuple[Any, ...]:
    """A row's key, equal where Spark's keys are."""
    key = tuple(row[name] for name in on)
    return tuple("NaN" if isinstance(part, float) and math.isnan(part) else part for part in key)


@pytest.fixture(scope="module")
def namespace(shared_server: Any) -> Iterator[tuple[Lamella, str]]:
    """A client, and a namespace for the tables of all examples."""
    with Lamella(shared_server.url) as lake:
        name = fresh_name("ledger")
        lake.create_namespace(name)
        yield lake, name


@settings(max_examples=60)
@given(data=st.data())
def test_random_changes_equal_those_of_a_list(namespace: tuple[Lamella, str], data: st.DataObject) -> None:
    """Whatever the cluster key, the size of blocks, the memory and the form of the data."""
    lake, name = namespace
    table_name = f"{name}.{fresh_name('t')}"
    key = data.draw(st.sampled_from(CLUSTER_KEYS), label="cluster key")
    kind = data.draw(st.sampled_from(["linear", "zorder", "hilbert"]), label="kind") if len(key) > 1 else "linear"
    mode = data.draw(st.sampled_from(["auto", "copy-on-write", "merge-on-read"]), label="how rows are deleted")
    properties = {"write.delete.mode": mode}
    lake.create_table(
        table_name,
        schema=COLUMNS,
        cluster_key=key,
        cluster_kind=kind,  # type: ignore[arg-type]
        properties=properties,
    )
    ledger = Ledger(lake.table(table_name))
    if data.draw(st.booleans(), label="with an index"):
        ledger.table.create_index("by_t", "bloom", "t")
    for _ in range(data.draw(st.integers(1, 4), label="changes")):
        change = data.draw(st.sampled_from(["append", "overwrite", "delete", "upsert"]), label="change")
        if change == "delete":
            ledger.delete(data.draw(st.sampled_from(list(FILTERS)), label="where"))
            continue
        rows = data.draw(st.lists(ROWS, max_size=14), label="rows")
        form = data.draw(st.sampled_from(list(FORMS)), label="form")
        options = {
            "target_block_rows": data.draw(st.sampled_from([1, 3, 1_000]), label="rows of a block"),
            "memory_bytes": data.draw(st.sampled_from([1, 2_000, 1 << 20]), label="memory"),
            "workers": data.draw(st.sampled_from([1, 3]), label="workers"),
        }
        if change == "append":
            ledger.append(rows, FORMS[form](rows), options)
        elif change == "upsert":
            ledger.upsert(rows, form, options, data.draw(st.sampled_from(KEYS), label="on"))
        else:
            where = data.draw(st.none() | st.sampled_from(list(FILTERS)), label="where")
            ledger.overwrite(rows, FORMS[form](rows), options, where)
    ledger.check()


@settings(max_examples=40)
@given(rows=st.lists(ROWS, min_size=1, max_size=10))
def test_polars_frames_keep_every_value(namespace: tuple[Lamella, str], rows: list[Row]) -> None:
    """With views of text, large lists and structs."""
    lake, name = namespace
    table = lake.table(f"{name}.{fresh_name('p')}")
    frame = as_frame(rows)
    table.append(frame, create=True, memory_bytes=500, target_block_rows=2)
    names = frame.columns
    wanted = Counter(canonical([row[each] for each in names]) for row in rows)
    assert Counter(canonical([row[each] for each in names]) for row in table.scan().to_arrow().to_pylist()) == wanted
