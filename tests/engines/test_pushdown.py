"""What of an engine's query reaches pruning, and what does not."""

from __future__ import annotations

import datetime as dt
import pickle
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest.mock import patch

import duckdb
import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

from lamella.client import Lamella
from lamella.client.filters.arrow import Constant, read_expression
from lamella.client.filters.may_match import of_any_float_order, of_arrow
from lamella.client.scan import Scan
from lamella.client.scan.engines.datafusion import matching_rows
from lamella.snapshot.errors import FilterNotEvaluable, InvalidRequest
from lamella.snapshot.expression import read_tree, text_of
from lamella.snapshot.storage import FsspecStore
from pages.reads_counted import ReadsCounted
from scan.files import written
from scan.planning import WarehouseTable

NAN = float("nan")
FILES = 5


def rows(number: int) -> pa.Table:
    """The rows of one file: its number is in every value."""
    return pa.table(
        {
            "i": pa.array(range(number * 10, number * 10 + 10), pa.int64()),
            "x": [float(number)] * 8 + [None, NAN],
            "f": pa.array([0.1 * number] * 10, pa.float32()),
            "s": [f"k{number}"] * 10,
            "at": pa.array([number * 1_000_001] * 10, pa.timestamp("us")),
            "ok": [number > 2] * 10,
        }
    )


@pytest.fixture
def planner(tmp_path: Path) -> WarehouseTable:
    """Files whose values do not overlap but for NaN."""
    return written(tmp_path, *map(rows, range(FILES)))


def pushed(query: Callable[[], object]) -> list[str]:
    """The text of each filter that a query prunes by; ``all`` for none."""
    found: list[str] = []
    original = Scan._with

    def seen(self: Scan, request: Any, versions: Any) -> Scan:
        if request.snapshot_id is not None and self._request.snapshot_id is not None:
            found.append("all" if request.may_match is None else text_of(read_tree(request.may_match)))
        return original(self, request, versions)

    with patch.object(Scan, "_with", seen):
        query()
    return found


C = pl.col
#: Expressions of Polars, and what is known of the rows that they are true of.
POLARS: list[tuple[Any, str]] = [
    (C("i") > 31, "i > 31"),
    (C("x") > 0.1, "x > 0.1"),  # its NaN is greater too, as Spark's
    (C("f") < 0.3, f"f < {float(np.float32(0.3))!r}"),
    (C("i") > 31.5, "i > 31.5"),
    (~(C("x") < 3.3), "x >= 3.3"),
    (C("at") >= dt.datetime(1970, 1, 1, 0, 0, 3, 3), "at >= timestamp_ntz(3000003)"),  # noqa: DTZ001
    (C("ok") & (C("s").str.to_uppercase() == "K3"), "ok"),
    ((C("i") > 5) | (C("s").str.to_uppercase() == "K3"), "all"),
    (~((C("i") > 5) & (C("s").str.to_uppercase() == "K3")), "all"),
    (~((C("i") > 5) | (C("s").str.to_uppercase() == "K3")), "i <= 5"),
    (pl.when(C("ok")).then(C("i") > 30).otherwise(C("i") > 20), "(i > 30) OR (i > 20)"),
    (C("x") > NAN, "all"),
    (C("i") < C("x"), "all"),
    (C("s").is_in(["k1", "k2"]) & C("x").is_not_nan(), "s IN ('k1', 'k2') AND x <> nan"),
    (C("i").is_between(3, 5), "i >= 3 AND i <= 5"),
    (C("x").is_between(0.1, 0.3), "x >= 0.1 AND x <= 0.3"),
]


def words(text: str) -> str:
    """A filter's text without parentheses."""
    return text.replace("(", "").replace(")", "")


@pytest.mark.parametrize(("condition", "known"), POLARS)
def test_polars_hands_its_filter_to_pruning(planner: WarehouseTable, condition: Any, known: str) -> None:
    """A part that is not translated is left out of AND, and never of OR or below NOT."""
    frame = planner.scan().to_lazyframe()
    assert list(map(words, pushed(lambda: frame.filter(condition).select("s").collect()))) == [words(known)]


F = pc.field
#: Expressions of pyarrow, and what is known of the rows that they are true of.
ARROW: list[tuple[Any, str]] = [
    (F("i") > 31, "i > 31 AND NOT isnan(i)"),
    (F("f") == pc.scalar(pa.scalar(0.3, pa.float32())), f"f = {float(np.float32(0.3))!r}"),
    (F("f") == pc.scalar(pa.scalar(0.3, pa.float64())), "f = 0.3"),
    (F("x").isin(pa.array([0.0, 0.5, None])), "x IN (0.0, 0.5) OR x IS NULL"),
    (F("f").isin(pa.array([0.1])), "all"),
    (F("at").isin(pa.array([2**62 + 1], pa.timestamp("us"))), "at IN (timestamp_ntz(4611686018427387905))"),
    (pc.if_else(F("s").is_valid(), F("s").isin(["k1"]), pa.scalar(None, pa.bool_())), "s IN ('k1') IS TRUE"),
    (~(pc.utf8_upper(F("s")) == "K1") & (F("i") < 3), "i < 3"),
    (~((pc.utf8_upper(F("s")) == "K1") & (F("i") < 3)), "all"),
    (pc.scalar(False) | F("ok"), "ok"),
]


@pytest.mark.parametrize(("condition", "known"), ARROW)
def test_a_dataset_hands_its_filter_to_pruning(planner: WarehouseTable, condition: Any, known: str) -> None:
    """The same of pyarrow, by whose meaning NaN is above nothing."""
    dataset = planner.scan().to_pyarrow_dataset()
    assert list(map(words, pushed(lambda: dataset.to_table(["s"], filter=condition)))) == [words(known)]


#: Conditions, as expressions of pyarrow, of engines that order NaN and zeros otherwise, and what is known of the rows.
ANY_ORDER: list[tuple[Any, str]] = [
    (F("x") > 5.0, "x > 5.0"),
    (F("x") < 5.0, "x < 5.0 OR isnan(x)"),
    (~(F("x") >= 5.0), "x < 5.0 OR isnan(x)"),
    (F("x") < 0.0, "x <= 0.0 OR isnan(x)"),
    (F("x") > -0.0, "x >= -0.0"),
    (F("x") > 5, "x > 5.0"),
    (~F("s").isin(["a", "b"]), "NOT s IN ('a', 'b') OR s IS NULL"),
    (~(F("s").is_null() | F("ok")), "s IS NOT NULL AND NOT ok"),
]


@pytest.mark.parametrize(("condition", "known"), ANY_ORDER)
def test_what_is_known_holds_in_any_order_of_floats(condition: Any, known: str) -> None:
    """Of rows that any of these engines wants."""
    found = of_any_float_order(read_expression(condition), rows(0).schema)
    assert found is not None
    assert words(text_of(read_tree(found))) == words(known)


@pytest.mark.parametrize(
    "condition",
    [F("x") == NAN, F("x") != 0.0, ~F("x").isin([1.0]), F("f") == 0.3, F("x") < F("i"), pc.utf8_upper(F("s")) == "A"],
)
def test_nothing_is_known_where_engines_differ(condition: Any) -> None:
    """Then all blocks are read."""
    assert of_any_float_order(read_expression(condition), rows(0).schema) is None


def test_a_deep_expression_prunes_nothing() -> None:
    """It is the engine's to evaluate, or to refuse."""
    deep = F("i") == 0
    for number in range(3_000):
        deep = deep | ~(F("i") == number) if number % 2 else ~deep
    assert of_arrow(deep, rows(0).schema) is None


def test_files_and_columns_are_left_out(tmp_path: Path) -> None:
    """Each engine opens the files that its filter needs, and of them less than all columns."""
    planner = written(tmp_path, *map(rows, range(FILES)))
    for read in (
        lambda scan: scan.to_lazyframe().filter(C("i") >= 40).select("i").collect().height,
        lambda scan: scan.to_pyarrow_dataset().to_table(["i"], filter=F("i") >= 40).num_rows,
        lambda scan: scan.to_lazyframe().select("i").tail(10).collect().height,
        lambda scan: len(scan.to_dask()["i"].compute(scheduler="sync").tail(10)),
    ):
        store = ReadsCounted(FsspecStore())
        assert read(planner.scan(store=store)) == 10
    store, whole = ReadsCounted(FsspecStore()), ReadsCounted(FsspecStore())
    planner.scan(store=store).to_lazyframe().filter(C("i") >= 40).select("i").collect()
    assert store.files_read() == [f"file://{tmp_path}/4.parquet"]
    planner.scan("i >= 40", store=whole).to_arrow()
    assert sum(store.read_bytes.values()) <= sum(whole.read_bytes.values())


def duckdb_count(dataset: ds.Dataset, condition: str) -> Any:
    """The number of rows that DuckDB finds in a dataset."""
    with duckdb.connect() as connection:
        connection.register("t", dataset)
        return connection.sql(f"SELECT count(*) FROM t WHERE {condition}").fetchall()[0][0]  # noqa: S608


@pytest.mark.parametrize(
    ("condition", "count", "known"),
    [
        ("i > 31", 18, "i > 31 AND NOT isnan(i)"),
        ("s IN ('k1', 'k2', 'k3')", 30, "s IN ('k1', 'k2', 'k3') IS TRUE"),
        ("x > 3", 8 + FILES, "all"),  # DuckDB keeps comparisons that NaN is true of
        ("x < 1", 8, "x < 1.0"),
        ("x IN (0, 4)", 16, "x = 0.0 OR x IN (4.0) IS TRUE"),
        ("s LIKE 'k4%'", 10, "all"),
    ],
)
def test_duckdb_hands_some_filters_to_pruning(planner: WarehouseTable, condition: str, count: int, known: str) -> None:
    """By the dataset; what it keeps for itself is evaluated after the scan."""
    dataset = planner.scan().to_pyarrow_dataset()
    found: list[str] = pushed(lambda: duckdb_count(dataset, condition))
    assert [words(each) for each in found] == [words(known)]
    assert duckdb_count(dataset, condition) == count


def test_a_dataset_is_read_as_pyarrow_reads_datasets(planner: WarehouseTable) -> None:
    """Tables, batches, heads, counts, filters and projections; and pickled."""
    dataset = planner.scan().to_pyarrow_dataset()
    whole = ds.dataset(pa.concat_tables(map(rows, range(FILES))))
    assert dataset.schema == whole.schema
    assert dataset.count_rows() == 50
    assert dataset.count_rows(filter=F("i") > 31) == 18
    assert dataset.head(3).num_rows == 3
    few = dataset.filter(F("i") > 31).filter(F("ok"))
    assert few.to_table({"j": F("i") + 1}).equals(whole.to_table({"j": F("i") + 1}, filter=F("i") > 31))
    assert sum(batch.num_rows for batch in few.to_batches()) == 18
    assert dataset.take([0, 41])["i"].to_pylist() == [0, 41]


def test_what_needs_files_is_an_error_and_not_an_empty_table(planner: WarehouseTable, tmp_path: Path) -> None:
    """pyarrow would read past the dataset where it works with files."""
    dataset = planner.scan().to_pyarrow_dataset()
    attempts: list[Callable[[], object]] = [
        lambda: dataset.join(dataset, "i").to_table(),
        lambda: ds.Scanner.from_dataset(dataset).to_table(),
        lambda: list(dataset.get_fragments()),
        lambda: dataset.replace_schema(dataset.schema).to_table(),
        lambda: ds.dataset([dataset, dataset]).to_table(),
        lambda: dataset.sort_by("i").to_table(),
        lambda: dataset.children[0].count_rows(),
    ]
    for attempt in attempts:
        with pytest.raises(NotImplementedError, match="Lamella table"):
            attempt()
    with pytest.raises(TypeError, match="no argument 'colums'"):
        dataset.scanner(colums=["i"])
    ds.write_dataset(dataset, tmp_path / "copy", format="parquet")
    assert ds.dataset(tmp_path / "copy").count_rows() == 50


def test_datafusion_s_floats_and_lists_are_its_own() -> None:
    """pyarrow, to which DataFusion leaves such filters, finds other rows."""
    signed = np.copysign(NAN, -1)
    batch = pa.record_batch({"x": [1.0, NAN, None, -0.0, 0.0, 7.0, signed], "s": ["a", "b", None, "c", "d", "e", "f"]})
    wanted: list[tuple[Any, list[Any]]] = [
        (F("x") > 5.0, ["b", "e"]),
        (F("x") < 5.0, ["a", "c", "d", "f"]),
        (F("x") == NAN, ["b"]),
        (F("x") <= 0.0, ["c", "d", "f"]),
        (F("x") == -0.0, ["c", "d"]),
        (~(F("x") <= 5.0), ["b", "e"]),
        (F("x").is_null(), [None]),
        (~F("s").isin(["a", "b"]), ["c", "d", "e", "f"]),
        (F("x").isin([NAN, 7.0]) & F("s").is_valid(), ["b", "e"]),
        (F("x").isin([-0.0, 7.0]), ["c", "e"]),
        (F("s").isin(["a"]) | (F("s") == "b"), ["a", "b"]),
    ]
    for condition, texts in wanted:
        assert matching_rows(batch, read_expression(condition))["s"].to_pylist() == texts, condition
    assert matching_rows(batch, Constant(pa.scalar(False))).num_rows == 0
    large = pa.record_batch({"u": pa.array([1, 2**64 - 1], pa.uint64())})  # pyarrow would make it signed
    for condition in (F("u") < 5, F("u").isin([1, 2])):
        assert matching_rows(large, read_expression(condition))["u"].to_pylist() == [1]
    with pytest.raises(NotImplementedError, match="utf8_upper"):
        matching_rows(batch, read_expression(pc.utf8_upper(F("s")) == "A"))


def test_limits_and_orders_belong_to_the_engine(planner: WarehouseTable) -> None:
    """A filter that comes after a limit finds other rows; a limit of Polars ends the reading."""
    for method in ("to_lazyframe", "to_pyarrow_dataset", "to_datafusion"):
        with pytest.raises(InvalidRequest, match="limits and orders"):
            getattr(planner.scan(limit=3), method)()
    frame = planner.scan().to_lazyframe()
    assert frame.head(3).collect().height == 3
    assert frame.filter(C("i") % 2 == 1).head(7).collect().height == 7
    assert frame.select(pl.len()).collect().item() == 50
    assert frame.filter(C("i") > 1_000).collect().schema == frame.collect_schema()


def test_fields_of_structs_are_not_columns_with_dots(tmp_path: Path) -> None:
    """Both prune, each by its own values."""
    tables = [pa.table({"s": [{"x": n}, None], "s.x": [100 - n, 1], "A b": [n, n]}) for n in range(4)]
    planner = written(tmp_path, *tables)
    frame, dataset = planner.scan().to_lazyframe(), planner.scan().to_pyarrow_dataset()
    field, dotted = C("s").struct.field("x") > 2, C("s.x") > 98
    assert pushed(lambda: frame.filter(field).collect()) == ["s.x > 2"]
    assert pushed(lambda: frame.filter(dotted).collect()) == ["`s.x` > 98"]
    assert frame.filter(field).collect()["A b"].to_list() == [3]
    assert frame.filter(dotted).collect()["A b"].to_list() == [0, 1]
    assert dataset.to_table(filter=F("s", "x") > 2)["A b"].to_pylist() == [3]
    assert dataset.to_table(filter=F("s.x") > 98)["A b"].to_pylist() == [0, 1]
    assert duckdb_count(dataset, "s.x > 2") == 1
    assert duckdb_count(dataset, '"s.x" > 98') == 2
    few = planner.scan(columns=("A b", "s.x")).to_lazyframe()
    assert few.filter(dotted).collect()["A b"].to_list() == [0, 1]
    # an output column that is a field of a struct has the same name as the column with a dot
    fields = planner.scan(columns=("A b", "s.`x`")).to_lazyframe()
    assert pushed(lambda: fields.filter(C("s.x") > 2).collect()) == ["all"]
    assert fields.filter(C("s.x") > 2).select("s.x").collect()["s.x"].to_list() == [3]
    part = next(each for each in planner.scan(columns=("A b", "s.`x`")).fragments() if "2.parquet" in each.location)
    assert part.with_columns(["s.x"]).to_arrow()["s.x"].to_pylist() == [2, None]


@pytest.fixture(params=["service", "embedded"])
def lake(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Lamella]:
    """A table of files, in a service and in a folder."""
    for number in range(FILES):
        pq.write_table(rows(number), tmp_path / f"{number}.parquet")
    url = request.getfixturevalue("server").url if request.param == "service" else None
    opened = Lamella(url) if url is not None else Lamella.embedded(tmp_path / "lake")
    with opened as lake:
        lake.create_namespace("db")
        lake.create_table("db.t", schema_from=f"file://{tmp_path}/0.parquet")
        lake.table("db.t").register([str(tmp_path / f"{number}.parquet") for number in range(FILES)])
        yield lake


def test_engines_read_one_snapshot_with_the_scan_s_filter(lake: Lamella, tmp_path: Path) -> None:
    """Spark's rules decide the scan's filter, the engine's rules its own; later commits do not change the rows."""
    table = lake.table("db.t")
    scan = table.scan("x > 2", columns=["i", "x"])  # with NaN
    frame, dataset = scan.to_lazyframe(), scan.to_pyarrow_dataset()
    pq.write_table(rows(9), tmp_path / "9.parquet")
    table.register([str(tmp_path / "9.parquet")])
    assert frame.filter(C("i") < 20).select("i").collect()["i"].to_list() == [9, 19]
    assert dataset.to_table(filter=F("x") > 3)["i"].to_pylist() == list(range(40, 48))
    assert dataset.count_rows() == 2 * 8 + FILES
    assert table.scan().to_lazyframe().select(pl.len()).collect().item() == 60
    restored = pickle.loads(pickle.dumps(dataset)) if lake.url.startswith("http:") else dataset  # noqa: S301
    assert restored.count_rows() == 2 * 8 + FILES


def test_errors_of_a_scan_are_raised(lake: Lamella) -> None:
    """When it is made, or by the engine, with the same text."""
    table = lake.table("db.t")
    with pytest.raises(FilterNotEvaluable, match="RLIKE"):
        table.scan("s RLIKE 'k.'").to_lazyframe()


def test_added_rows_and_other_time_zones_reach_engines(lake: Lamella, tmp_path: Path) -> None:
    """A scan of new blocks stays one; what depends on the time zone is not pruned by in another one."""
    table = lake.table("db.t")
    before = table.info().snapshot_id
    pq.write_table(rows(9), tmp_path / "9.parquet")
    table.register([str(tmp_path / "9.parquet")])
    added = table.scan(changes_since=before).to_lazyframe()
    assert added.filter(C("i") >= 0).select("i").collect()["i"].to_list() == list(range(90, 100))
    berlin = table.scan("at >= TIMESTAMP_NTZ '1970-01-01 00:00:03'", time_zone="Europe/Berlin").to_lazyframe()
    assert pushed(lambda: berlin.filter(C("i") < 35).collect()) == ["i < 35"]
    assert berlin.filter(C("i") < 35).select("i").collect()["i"].to_list() == [30, 31, 32, 33, 34]


def test_feedback_does_not_report_what_an_engine_left_out(planner: WarehouseTable) -> None:
    """A block of which only some pages were read may hold rows that match the scan's filter."""
    scan = planner.scan("x > 100")
    scan._report = print
    few = {"type": "eq", "term": "i", "value": 5}
    assert scan.at_snapshot().narrowed(("i",))._report is not None
    assert scan.at_snapshot().narrowed(("i",), [few])._report is None
