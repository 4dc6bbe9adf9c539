"""Null counts that are missing, wrong or contradicted; null logic."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from parquet.crafted import BYTE_ARRAY, INT32, INT64
from wrong_results.case import Case, CaseWriter, F, Query, Row, ids, table
from wrong_results.parquet_bytes import Col, PageIndex, Stats, raw, write


def n(value: int) -> bytes:
    """An INT64's bytes."""
    return raw(INT64, value)


def _null(row: Row) -> bool:
    return row["a"] is None


def _ints(
    values: list[Any], stats: Stats | None, *, created_by: str = "parquet-cpp-arrow version 26.0.1", **more: Any
) -> Any:
    def make(writer: CaseWriter) -> list[str]:
        column = Col("a", INT64, values, stats=[stats], **more)
        return [write(writer.folder / "a.parquet", ids(len(values)), column, created_by=created_by)]

    return make


NULL_QUERIES = (
    Query("a IS NULL", _null, F("a").is_null()),
    Query("a <=> NULL", _null, None, "a IS NOT DISTINCT FROM NULL"),
    Query("a IS NOT NULL", lambda r: r["a"] is not None, F("a").is_valid()),
    Query("a = 5", lambda r: r["a"] == 5, F("a") == 5),
)
LOGIC_QUERIES = (
    Query("a != 5", lambda r: r["a"] is not None and r["a"] != 5, F("a") != 5),
    Query("NOT (a <=> 5)", lambda r: r["a"] != 5, None, "a IS DISTINCT FROM 5"),
    Query("a NOT IN (5, 6)", lambda r: r["a"] is not None and r["a"] not in (5, 6), ~F("a").isin([5, 6])),
    Query("a NOT IN (5, NULL)", lambda _: False, None),
    Query("a IN (5, NULL)", lambda r: r["a"] == 5, None),
    Query("NOT (a = 5) OR a IS NULL", lambda r: r["a"] != 5, (F("a") != 5) | F("a").is_null()),
    Query("(a = 5) IS NOT TRUE", lambda r: r["a"] != 5, None),
)


def _evolved(writer: CaseWriter) -> list[str]:
    old = writer.arrow(table(a=pa.array([1, 5], pa.int64())), "old.parquet")
    new = pa.table({"id": [2, 3], "a": [5, 6], "b": ["x", None]})
    return [old, writer.arrow(new, "new.parquet")]


CASES = (
    Case(
        id="null-pages-of-required",
        title="null_pages=[true, true] and null_counts=[-1, -1] on a REQUIRED column",
        source="apache/parquet-java#3457 #3458; parquet-testing datapage_v1-uncompressed-checksum",
        rows={"a": [1, 6, 7, 8]},
        make=_ints(
            [1, 6, 7, 8],
            None,
            required=True,
            page_rows=2,
            index=[PageIndex([True, True], [b"", b""], [b"", b""], [-1, -1])],
        ),
        queries=(
            Query("a > 5", lambda r: r["a"] > 5, F("a") > 5),
            Query("a = 6", lambda r: r["a"] == 6, F("a") == 6),
            Query("a IS NOT NULL", lambda _: True, F("a").is_valid()),
        ),
    ),
    Case(
        id="null-pages-of-optional",
        title="null_pages claims nulls where values stand; statistics were switched off",
        source="arrow#34326, arrow-rs#6010 #6310, parquet-java#3585",
        rows={"a": [1, 6, None, 8]},
        make=_ints([1, 6, None, 8], None, page_rows=2, index=[PageIndex([True, True], [b"", b""], [b"", b""], None)]),
        queries=(Query("a > 5", lambda r: (r["a"] or 0) > 5, F("a") > 5), *NULL_QUERIES[:3]),
    ),
    Case(
        id="null-count-missing",
        title="bounds without a null count: missing is not zero",
        source="arrow-rs#9451, datafusion#25239 #18241, delta-kernel-rs#1914, parquet-java#3639 #3574",
        rows={"a": [5, None, 7]},
        make=_ints([5, None, 7], Stats(n(5), n(7))),
        queries=(*NULL_QUERIES, LOGIC_QUERIES[1]),
    ),
    Case(
        id="null-count-missing-one-value",
        title="min = max and no null count: not every row is that value",
        source="parquet-java#3639, datafusion#18241",
        rows={"a": [5, None, 5]},
        make=_ints([5, None, 5], Stats(n(5), n(5)), dictionary=True),
        queries=(*NULL_QUERIES, *LOGIC_QUERIES),
    ),
    Case(
        id="no-statistics",
        title="no statistics at all: IS NULL with an unknown count",
        source="apache/hudi#19645 #10389",
        rows={"a": [5, None, 7]},
        make=_ints([5, None, 7], None),
        queries=NULL_QUERIES,
    ),
    Case(
        id="null-count-negative",
        title="a null count of -1",
        source="bolt#795, arrow#47662",
        rows={"a": [5, None, 7]},
        make=_ints([5, None, 7], Stats(n(5), n(7), nulls=-1)),
        queries=NULL_QUERIES,
    ),
    Case(
        id="null-count-too-low",
        title="an old Arrow counted no nulls in dictionary columns",
        source="apache/doris#67573, StarRocks#78329",
        rows={"a": [5, None, 7]},
        make=_ints(
            [5, None, 7], Stats(n(5), n(7), nulls=0), created_by="parquet-cpp-arrow version 5.0.0", dictionary=True
        ),
        queries=(*NULL_QUERIES, LOGIC_QUERIES[1], LOGIC_QUERIES[6]),
    ),
    Case(
        id="null-count-per-page",
        title="an old Polars multiplied the null count by the number of pages",
        source="pola-rs/polars#29321",
        rows={"a": [5, None, None, 7]},
        make=_ints([5, None, None, 7], Stats(n(5), n(7), nulls=4), created_by="Polars", page_rows=2),
        queries=NULL_QUERIES,
    ),
    Case(
        id="null-count-of-whole-chunk",
        title="null_count says that all is null, bounds say the contrary",
        source="Trino#15388, iceberg#17561",
        rows={"a": [5, None, 7]},
        make=_ints([5, None, 7], Stats(n(5), n(7), nulls=3)),
        queries=NULL_QUERIES,
    ),
    Case(
        id="bounds-absent-not-all-null",
        title="values too long for statistics: no bounds does not mean all null",
        source="apache/hudi#18755",
        rows={"a": ["x" * 5000, "y" * 5000]},
        make=lambda writer: [
            write(
                writer.folder / "a.parquet",
                ids(2),
                Col("a", BYTE_ARRAY, ["x" * 5000, "y" * 5000], logical={1: {}}, converted=0, stats=[Stats(nulls=0)]),
            )
        ],
        queries=(
            Query("a IS NOT NULL", lambda _: True, F("a").is_valid()),
            Query("a LIKE 'y%'", lambda r: r["a"].startswith("y"), F("a") > "y"),
            Query("a > 'xz'", lambda r: r["a"] > "xz", F("a") > "xz"),
        ),
    ),
    Case(
        id="null-logic",
        title="!=, NOT IN, <=> and lists with NULL over honest statistics and dictionaries",
        source="parquet-java#2742 #3639, PARQUET-645, PARQUET-1510 (SPARK-26677), iceberg#17656, deephaven#8425",
        rows={"a": [5, None, 5]},
        make=lambda writer: [writer.arrow(table(a=pa.array([5, None, 5], pa.int64())), use_dictionary=True)],
        queries=(*NULL_QUERIES, *LOGIC_QUERIES),
    ),
    Case(
        id="not-equal-inverted",
        title="<> by inverting = : a block that holds the value holds others too",
        source="Delta Lake's and Xskipper's source notes",
        rows={"a": [5, 7, 9]},
        make=lambda writer: [writer.arrow(table(a=pa.array([5, 7, 9], pa.int64())), write_page_index=True)],
        queries=(
            Query("a <> 7", lambda r: r["a"] != 7, F("a") != 7),
            Query("NOT (a BETWEEN 5 AND 7)", lambda r: not 5 <= r["a"] <= 7, ~((F("a") >= 5) & (F("a") <= 7))),
            Query("NOT (a > 6)", lambda r: r["a"] <= 6, ~(F("a") > 6)),
        ),
    ),
    Case(
        id="all-null-pages-ordered",
        title="an index of nothing but null pages that claims to be ascending",
        source="parquet-java#2809 #2213 #2420",
        rows={"a": [None, None, None, None]},
        make=_ints(
            [None] * 4,
            Stats(nulls=4),
            page_rows=2,
            index=[PageIndex([True, True], [b"", b""], [b"", b""], [2, 2], order=1)],
        ),
        queries=(*NULL_QUERIES, LOGIC_QUERIES[1]),
    ),
    Case(
        id="column-absent",
        title="a column that an older file lacks is null there",
        source="SPARK-39833, SPARK-40169, datafusion#15912, apache/hudi#19645",
        rows={"a": [1, 5, 5, 6], "b": [None, None, "x", None]},
        make=_evolved,
        schema=pa.schema([("id", pa.int64()), ("a", pa.int64()), ("b", pa.string())]),
        queries=(
            Query("b IS NULL", lambda r: r["b"] is None, F("b").is_null()),
            Query("b = 'x'", lambda r: r["b"] == "x", F("b") == "x"),
            Query("a = 5 AND b IS NULL", lambda r: r["a"] == 5 and r["b"] is None, (F("a") == 5) & F("b").is_null()),
            Query("NOT (b <=> 'x')", lambda r: r["b"] != "x", None, "b IS DISTINCT FROM 'x'"),
        ),
    ),
    Case(
        id="empty-row-group",
        title="an empty row group between full ones, with bounds of its own",
        source="missing in apache/parquet-testing",
        rows={"a": [1, 2, 8, 9]},
        make=lambda writer: [
            write(
                writer.folder / "a.parquet",
                ids(4, [2, 0, 2]),
                Col(
                    "a",
                    INT32,
                    [1, 2, 8, 9],
                    stats=[
                        Stats(raw(INT32, 1), raw(INT32, 2), nulls=0),
                        Stats(nulls=0),
                        Stats(raw(INT32, 8), raw(INT32, 9), nulls=0),
                    ],
                ),
                groups=[2, 0, 2],
            )
        ],
        queries=(
            Query("a = 8", lambda r: r["a"] == 8, F("a") == 8),
            Query("a IN (2, 9)", lambda r: r["a"] in (2, 9), F("a").isin([2, 9])),
            Query("a IS NULL", lambda _: False, F("a").is_null()),
        ),
    ),
    Case(
        id="file-claims-no-rows",
        title="FileMetaData.num_rows is 0, the row group holds rows",
        source="apache/parquet-testing repeated_no_annotation",
        rows={"a": [1, 8]},
        make=lambda writer: [
            write(
                writer.folder / "a.parquet",
                ids(2),
                Col("a", INT64, [1, 8], stats=[Stats(n(1), n(8), nulls=0)]),
                num_rows=0,
            )
        ],
        queries=(
            Query("a = 8", lambda r: r["a"] == 8, F("a") == 8),
            Query("a > 0", lambda _: True, F("a") > 0),
        ),
    ),
)
