"""Page indexes that lie, and other places in a file where rows or pages are mixed up."""

from __future__ import annotations

from typing import Any

from parquet.crafted import INT64
from wrong_results.case import Case, CaseWriter, F, Query, ids
from wrong_results.parquet_bytes import Col, PageIndex, Stats, raw, write


def n(value: int) -> bytes:
    """An INT64's bytes."""
    return raw(INT64, value)


_VALUES = [1, 2, 3, 4, 5, 6, 7, 8]


def _pages(index: PageIndex, values: list[int] = _VALUES, **more: Any) -> Any:
    def make(writer: CaseWriter) -> list[str]:
        count = len(values)
        stats = [Stats(n(min(values)), n(max(values)), nulls=0)]
        honest = PageIndex([False] * 4, [n(at) for at in (0, 2, 4, 6)], [n(at) for at in (1, 3, 5, 7)], [0] * 4, 1)
        row_number = Col(
            "id",
            INT64,
            range(count),
            required=True,
            page_rows=2,
            stats=[Stats(n(0), n(count - 1), nulls=0)],
            index=[honest],
        )
        column = Col("a", INT64, values, page_rows=2, stats=stats, index=[index])
        return [write(writer.folder / "a.parquet", row_number, column, **more)]

    return make


def _bounds(*pairs: tuple[int, int], **more: Any) -> PageIndex:
    return PageIndex(
        [False] * len(pairs), [n(low) for low, _ in pairs], [n(high) for _, high in pairs], [0] * len(pairs), **more
    )


QUERIES = (
    Query("a = 6", lambda r: r["a"] == 6, F("a") == 6),
    Query("a BETWEEN 3 AND 4", lambda r: 3 <= r["a"] <= 4, (F("a") >= 3) & (F("a") <= 4)),
    Query("a > 7", lambda r: r["a"] > 7, F("a") > 7),
    Query("a <= 1", lambda r: r["a"] <= 1, F("a") <= 1),
)
_HONEST = ((1, 2), (3, 4), (5, 6), (7, 8))
_SHUFFLED = [5, 6, 1, 2, 7, 8, 3, 4]
_EDGES = [1, 3, 3, 3, 3, 5, 5, 9]

CASES = (
    Case(
        id="offset-index-shifted",
        title="the offset index counts rows from elsewhere than the row group's beginning",
        source="ClickHouse#114464 #116788, elastic#158153",
        rows={"a": _VALUES},
        make=_pages(_bounds(*_HONEST, order=1, first_rows=[8, 10, 12, 14])),
        queries=QUERIES,
    ),
    Case(
        id="column-index-stale",
        title="the column index is another row group's",
        source="parquet-java#3457, polars#26531",
        rows={"a": _VALUES},
        make=_pages(_bounds((101, 102), (103, 104), (105, 106), (107, 108), order=1)),
        queries=QUERIES,
    ),
    Case(
        id="boundary-order-wrong",
        title="pages in no order that claim to be ascending",
        source="parquet-java#2213 #2420; polars writes UNORDERED always",
        rows={"a": _SHUFFLED},
        make=_pages(_bounds((5, 6), (1, 2), (7, 8), (3, 4), order=1), _SHUFFLED),
        queries=QUERIES,
    ),
    Case(
        id="equal-page-edges",
        title="ascending pages whose edges are equal: binary search must not step over one",
        source="parquet-java#2809, arrow-rs#4459",
        rows={"a": _EDGES},
        make=_pages(_bounds((1, 3), (3, 3), (3, 5), (5, 9), order=1), _EDGES),
        queries=(
            Query("a = 3", lambda r: r["a"] == 3, F("a") == 3),
            Query("a >= 5", lambda r: r["a"] >= 5, F("a") >= 5),
            Query("a <= 3", lambda r: r["a"] <= 3, F("a") <= 3),
            Query("a != 3", lambda r: r["a"] != 3, F("a") != 3),
        ),
    ),
    Case(
        id="pages-of-two-columns",
        title="two columns whose pages end at different rows: rows must not be mixed",
        source="SPARK-34859, SPARK-36123, datafusion#4002",
        rows={"a": _VALUES, "b": [10, 20, 30, 40, 50, 60, 70, 80]},
        make=lambda writer: [
            write(
                writer.folder / "a.parquet",
                Col(
                    "id",
                    INT64,
                    range(8),
                    required=True,
                    page_rows=8,
                    stats=[Stats(n(0), n(7), nulls=0)],
                    index=[PageIndex([False], [n(0)], [n(7)], [0])],
                ),
                Col(
                    "a",
                    INT64,
                    _VALUES,
                    page_rows=2,
                    stats=[Stats(n(1), n(8), nulls=0)],
                    index=[_bounds(*_HONEST, order=1)],
                ),
                Col(
                    "b",
                    INT64,
                    [10, 20, 30, 40, 50, 60, 70, 80],
                    page_rows=3,
                    stats=[Stats(n(10), n(80), nulls=0)],
                    index=[_bounds((10, 30), (40, 60), (70, 80), order=1)],
                ),
            )
        ],
        queries=(
            Query("a = 4 AND b = 40", lambda r: r["a"] == 4, (F("a") == 4) & (F("b") == 40)),
            Query("a > 2 AND b < 60", lambda r: r["a"] > 2 and r["b"] < 60, (F("a") > 2) & (F("b") < 60)),
            Query("a = 3 OR b = 80", lambda r: r["a"] == 3 or r["b"] == 80, (F("a") == 3) | (F("b") == 80)),
        ),
    ),
    Case(
        id="sorting-claimed",
        title="sorting_columns claims an order that the rows do not have",
        source="apache/parquet-format: sorting_columns is a claim",
        rows={"a": _SHUFFLED},
        make=_pages(_bounds((5, 6), (1, 2), (7, 8), (3, 4)), _SHUFFLED, sorted_by=1),
        queries=QUERIES,
    ),
    Case(
        id="dictionary-offset-missing",
        title="a dictionary page without dictionary_page_offset",
        source="arrow#42881, polars#26531, parquet-java#2962; parquet-testing alltypes_tiny_pages",
        rows={"a": [5, 7, 5, 7]},
        make=lambda writer: [
            write(
                writer.folder / "a.parquet",
                Col(
                    "a",
                    INT64,
                    [5, 7, 5, 7],
                    dictionary=True,
                    stats=[Stats(n(5), n(7), nulls=0)],
                    meta={9: 4, 11: None},  # the first column: its dictionary begins behind the magic
                ),
                ids(4),
            )
        ],
        queries=(
            Query("a = 7", lambda r: r["a"] == 7, F("a") == 7),
            Query("a = 6", lambda r: r["a"] == 6, F("a") == 6),
        ),
    ),
)
