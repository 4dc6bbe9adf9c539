"""NaN and signed zero."""

from __future__ import annotations

import math
import struct
from typing import Any

import duckdb
import pyarrow as pa

from parquet.crafted import DOUBLE
from wrong_results.case import Case, CaseWriter, F, Query, Row, ids, table
from wrong_results.parquet_bytes import IEEE_754_ORDER, Col, PageIndex, Stats, raw, write

NAN = math.nan


def above(row: Row, bound: float) -> bool:
    """Spark's order: NaN is above every number."""
    x = row["x"]
    return x is not None and (math.isnan(x) or x > bound)


def is_nan(row: Row) -> bool:
    """The value is NaN, which equals itself in Spark."""
    return row["x"] is not None and math.isnan(row["x"])


NAN_QUERIES = (
    Query("x > 5", lambda r: above(r, 5), F("x") > 5),
    Query("x != 1", lambda r: r["x"] is not None and r["x"] != 1, F("x") != 1),
    Query("NOT (x <= 5)", lambda r: above(r, 5), ~(F("x") <= 5)),
    Query("x = double('NaN')", is_nan, F("x") == NAN, "x = 'NaN'::DOUBLE"),
    Query("x <=> double('NaN')", is_nan, None, "x IS NOT DISTINCT FROM 'NaN'::DOUBLE"),
    Query("x IN (double('NaN'))", is_nan, F("x").isin([NAN]), "x IN ('NaN'::DOUBLE)"),
)

ZERO_QUERIES = (
    Query("x = 0.0D", lambda r: r["x"] == 0, F("x") == 0.0, "x = 0.0::DOUBLE"),
    Query("x = -0.0D", lambda r: r["x"] == 0, F("x") == -0.0, "x = (-0.0)::DOUBLE"),
    Query("x <= -0.0D", lambda r: r["x"] <= 0, F("x") <= -0.0, "x <= (-0.0)::DOUBLE"),
    Query("x >= 0.0D", lambda r: r["x"] >= 0, F("x") >= 0.0, "x >= 0.0::DOUBLE"),
    Query("x IN (-0.0D, 7.0D)", lambda r: r["x"] in (0, 7), F("x").isin([-0.0, 7.0]), "x IN ((-0.0)::DOUBLE, 7)"),
)


def _doubles(values: list[Any], stats: Stats | None, **more: Any) -> Any:
    def make(writer: CaseWriter) -> list[str]:
        column = Col("x", DOUBLE, values, stats=[stats], **more)
        return [write(writer.folder / "a.parquet", ids(len(values)), column)]

    return make


def d(value: float) -> bytes:
    """A double's bytes."""
    return raw(DOUBLE, value)


def _by_duckdb(values: list[float]) -> Any:
    def make(writer: CaseWriter) -> list[str]:
        path = writer.folder / "a.parquet"
        with duckdb.connect() as connection:
            connection.register("given", table(x=pa.array(values, pa.float64())))
            connection.execute(f"COPY given TO '{path}' (FORMAT parquet)")  # a path of our own
        return [str(path)]

    return make


def _arrow(values: list[Any], kind: pa.DataType, **options: Any) -> Any:
    return lambda writer: [writer.arrow(table(x=pa.array(values, kind)), **options)]


_SINGLE = struct.unpack("<f", struct.pack("<f", 0.1))[0]

CASES = (
    Case(
        id="nan-left-out-double",
        title="pyarrow leaves NaN out of the bounds of a DOUBLE column and counts none",
        source="apache/iceberg#9130, pola-rs/polars#22289 #26805, rapidsai/cudf#22817, ClickHouse#118110",
        rows={"x": [1.0, NAN]},
        make=_arrow([1.0, NAN], pa.float64()),
        queries=NAN_QUERIES,
    ),
    Case(
        id="nan-left-out-float",
        title="the same for a FLOAT column",
        source="rapidsai/cudf#13948, parquet-go#459",
        rows={"x": [1.0, NAN]},
        make=_arrow([1.0, NAN], pa.float32(), write_page_index=True),
        queries=NAN_QUERIES[:3],
    ),
    Case(
        id="nan-fabricated-zero",
        title="one NaN beside numbers must not leave bounds of zero",
        source="apache/hudi#18754 #18792",
        rows={"x": [NAN, 5.0, 7.0]},
        make=_arrow([NAN, 5.0, 7.0], pa.float64()),
        queries=(
            Query("x = 5", lambda r: r["x"] == 5, F("x") == 5.0),
            Query("x > 6", lambda r: above(r, 6), F("x") > 6),
            Query("x < 6", lambda r: r["x"] < 6, F("x") < 6),
        ),
    ),
    Case(
        id="nan-inside-bounds",
        title="a writer puts NaN into max under the type's order",
        source="PARQUET-1225, PARQUET-1246",
        rows={"x": [1.0, 7.0, NAN]},
        make=_doubles([1.0, 7.0, NAN], Stats(d(1.0), d(NAN), nulls=0)),
        queries=(
            Query("x = 7", lambda r: r["x"] == 7, F("x") == 7.0),
            Query("x > 5", lambda r: above(r, 5), F("x") > 5),
        ),
    ),
    Case(
        id="nan-both-bounds",
        title="both bounds are NaN although numbers stand beside it",
        source="PARQUET-1225; apache/parquet-testing nan_in_stats",
        rows={"x": [NAN, 3.0]},
        make=_doubles([NAN, 3.0], Stats(d(NAN), d(NAN), nulls=0)),
        queries=(
            Query("x = 3", lambda r: r["x"] == 3, F("x") == 3.0),
            Query("x < 5", lambda r: r["x"] < 5, F("x") < 5),
        ),
    ),
    Case(
        id="nan-counted",
        title="IEEE 754 total order with nan_count above zero: bounds exclude NaN",
        source="apache/parquet-format commit 662cdac; apache/datafusion (reproduced on release 55)",
        rows={"x": [1.0, 2.0, NAN]},
        make=_doubles([1.0, 2.0, NAN], Stats(d(1.0), d(2.0), nulls=0, nans=1), order=IEEE_754_ORDER),
        queries=NAN_QUERIES[:4],
    ),
    Case(
        id="nan-counted-by-duckdb",
        title="DuckDB writes nan_count and no bounds",
        source="reproduced on DuckDB 2.0",
        rows={"x": [1.0, NAN]},
        make=_by_duckdb([1.0, NAN]),
        queries=NAN_QUERIES[:4],
    ),
    Case(
        id="zero-dictionary",
        title="-0.0 = 0.0, but a dictionary holds one of them",
        source="reproduced on Spark 4.3 (dictionary filter)",
        rows={"x": [0.0, 7.0] * 10},
        make=_arrow([0.0, 7.0] * 10, pa.float64(), use_dictionary=True),
        queries=ZERO_QUERIES,
    ),
    Case(
        id="zero-dictionary-negative",
        title="the dictionary holds -0.0",
        source="reproduced on Spark 4.3 (dictionary filter)",
        rows={"x": [-0.0, -7.0] * 10},
        make=_arrow([-0.0, -7.0] * 10, pa.float64(), use_dictionary=True),
        queries=ZERO_QUERIES,
    ),
    Case(
        id="zero-bloom",
        title="a bloom filter knows -0.0 by other bits than 0.0",
        source="duckdb#24005 #23829; reproduced on Spark 4.3",
        rows={"x": [-0.0] + [float(at) for at in range(1, 200)] + [-1.0]},
        make=_arrow(
            [-0.0] + [float(at) for at in range(1, 200)] + [-1.0],
            pa.float64(),
            use_dictionary=False,
            bloom_filter_options={"x": {"ndv": 300, "fpp": 0.0001}},
        ),
        queries=ZERO_QUERIES,
    ),
    Case(
        id="zero-bounds-not-widened",
        title="bounds of -0.0 that were not widened to both zeros",
        source="duckdb#24005",
        rows={"x": [-0.0, -0.0]},
        make=_doubles([-0.0, -0.0], Stats(d(-0.0), d(-0.0), nulls=0)),
        queries=ZERO_QUERIES,
    ),
    Case(
        id="zero-page-bounds",
        title="page bounds of -0.0 that were not widened",
        source="duckdb#24005",
        rows={"x": [-0.0, -0.0, 7.0, 8.0]},
        make=_doubles(
            [-0.0, -0.0, 7.0, 8.0],
            Stats(d(-0.0), d(8.0), nulls=0),
            page_rows=2,
            index=[PageIndex([False, False], [d(-0.0), d(7.0)], [d(-0.0), d(8.0)], [0, 0])],
        ),
        queries=ZERO_QUERIES,
    ),
    Case(
        id="float-read-as-double",
        title="a FLOAT file in a DOUBLE table: 0.1F is not 0.1",
        source="apache/iceberg type promotion; hudi#19467",
        rows={"x": [_SINGLE, 2.0]},
        make=_arrow([0.1, 2.0], pa.float32()),
        schema=pa.schema([("id", pa.int64()), ("x", pa.float64())]),
        queries=(
            Query("x = 0.10000000149011612D", lambda r: r["x"] == _SINGLE, F("x") == _SINGLE, f"x::DOUBLE = {_SINGLE}"),
            Query("x > 0.1D", lambda r: r["x"] > 0.1, F("x") > 0.1, "x::DOUBLE > 0.1::DOUBLE"),
        ),
    ),
)
