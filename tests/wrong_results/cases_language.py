"""Expressions that statistics must not decide, or not alone."""

from __future__ import annotations

import pyarrow as pa

from wrong_results.case import Case, F, Query, table

_MAX = 2**63 - 1
_NO_ANSI = {"spark.sql.ansi.enabled": "false"}

CASES = (
    Case(
        id="random-part",
        title="rand() in a filter is for each row, never for a file",
        source="Delta Lake#4141",
        rows={"a": [1, 3, 3]},
        refused=("python",),
        make=lambda writer: [writer.arrow(table(a=[1, 3, 3]))],
        queries=(
            Query("a = 3 AND rand() < 2", lambda r: r["a"] == 3, None, "a = 3 AND random() < 2"),
            Query("a = 3 OR rand() < 2", lambda _: True, None, "a = 3 OR random() < 2"),
            Query("NOT (a = 3 AND rand() >= 2)", lambda _: True, None, "NOT (a = 3 AND random() >= 2)"),
        ),
    ),
    Case(
        id="overflow",
        title="a + 1 wraps around without ANSI mode: bounds of a are none of a + 1",
        source="Delta Lake's source note",
        rows={"a": [1, _MAX]},
        refused=("python",),
        make=lambda writer: [writer.arrow(table(a=pa.array([1, _MAX], pa.int64())))],
        settings=_NO_ANSI,
        queries=(
            Query("a + 1L < 0", lambda r: r["a"] == _MAX, None, "a + 1 < 0"),
            Query("a + 1L = 2", lambda r: r["a"] == 1, None, "a + 1 = 2"),
            Query("a - 1L > 5", lambda r: r["a"] == _MAX, None, "a - 1 > 5"),
        ),
    ),
    Case(
        id="boolean-and-unknown",
        title="a part that cannot be used must not switch off, or decide for, its neighbours",
        source="apache/hudi#10389",
        rows={"a": [1, 3, 5], "s": ["x", "y", None]},
        make=lambda writer: [writer.arrow(table(a=[1, 3, 5], s=["x", "y", None]))],
        queries=(
            Query("a = 3 AND upper(s) = 'Y'", lambda r: r["a"] == 3, None),
            Query("a = 3 OR upper(s) = 'X'", lambda r: r["a"] in (1, 3), None),
            Query("NOT (a = 3 AND upper(s) = 'Y')", lambda r: r["a"] != 3, None),
            Query("upper(s) IS NULL", lambda r: r["s"] is None, None),
        ),
    ),
    Case(
        id="nested-fields",
        title="a field of a struct is null where the struct is, too",
        source="arrow#51097, iceberg#17561",
        rows={"p": [{"x": 1}, None, {"x": None}, {"x": 9}]},
        make=lambda writer: [
            writer.arrow(table(p=pa.array([{"x": 1}, None, {"x": None}, {"x": 9}], pa.struct([("x", pa.int64())]))))
        ],
        queries=(
            Query("p.x = 9", lambda r: (r["p"] or {}).get("x") == 9, F("p", "x") == 9),
            Query("p.x IS NULL", lambda r: (r["p"] or {}).get("x") is None, F("p", "x").is_null()),
            Query("NOT (p.x = 9)", lambda r: (r["p"] or {}).get("x") == 1, F("p", "x") != 9),
        ),
    ),
    Case(
        id="list-elements",
        title="bounds below a list are of elements, its null count is not of rows",
        source="arrow#51097, arrow-go#887",
        rows={"l": [[1, 2], [], None, [None, 9]]},
        refused=("python",),
        make=lambda writer: [
            writer.arrow(table(l=pa.array([[1, 2], [], None, [None, 9]], pa.list_(pa.int64()))), write_page_index=True)
        ],
        queries=(
            Query("l IS NULL", lambda r: r["l"] is None, F("l").is_null()),
            Query("array_contains(l, 9)", lambda r: 9 in (r["l"] or []), None, "list_contains(l, 9)"),
            Query("size(l) = 0", lambda r: r["l"] == [], None, "len(l) = 0"),
            Query("id = 3", lambda r: r["l"] == [None, 9], F("id") == 3),
        ),
    ),
)
