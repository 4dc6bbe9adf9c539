"""What the 22 queries of TPC-H ask of ``lineitem`` and ``orders`` alone, with the validation parameters of the spec.

One entry per query and table that it narrows by itself. Queries 2, 9, 11, 16, 17, 18, 20's inner parts and 22 name
``lineitem`` or ``orders`` only in joins, sub-queries or aggregates, and have no entry for them. ``as written`` repeats
some with the arithmetic and the functions of the spec's (or of common ports') text.
"""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Final

import msgspec

from sharp.filters import And, Between, Columns, Compare, Constant, Filter, In, Like, Or, Text


class Query(msgspec.Struct, frozen=True):
    """A query's own conditions on one table."""

    name: str
    table: str
    filter: Filter


def _day(text: str) -> dt.date:
    return dt.date.fromisoformat(text)


def _from_to(column: str, start: str, end: str) -> And:
    return And((Compare(column, ">=", _day(start)), Compare(column, "<", _day(end))))


def _brand(low: int, high: int) -> And:
    return And(
        (
            Compare("l_quantity", ">=", low),
            Compare("l_quantity", "<=", high),
            In("l_shipmode", ("AIR", "AIR REG")),
            Compare("l_shipinstruct", "=", "DELIVER IN PERSON"),
        )
    )


def _years(*years: int) -> tuple[Constant, ...]:
    return tuple(dt.date(year, month, day) for year in years for month, day in ((1, 1), (12, 31)))


QUERIES: Final = (
    Query("Q1", "lineitem", Compare("l_shipdate", "<=", _day("1998-09-02"))),
    Query("Q3", "orders", Compare("o_orderdate", "<", _day("1995-03-15"))),
    Query("Q3", "lineitem", Compare("l_shipdate", ">", _day("1995-03-15"))),
    Query("Q4", "orders", _from_to("o_orderdate", "1993-07-01", "1993-10-01")),
    Query("Q4", "lineitem", Columns("l_commitdate", "<", "l_receiptdate")),
    Query("Q5", "orders", _from_to("o_orderdate", "1994-01-01", "1995-01-01")),
    Query(
        "Q6",
        "lineitem",
        And(
            (
                _from_to("l_shipdate", "1994-01-01", "1995-01-01"),
                Between("l_discount", Decimal("0.05"), Decimal("0.07")),
                Compare("l_quantity", "<", 24),
            )
        ),
    ),
    Query("Q7", "lineitem", Between("l_shipdate", _day("1995-01-01"), _day("1996-12-31"))),
    Query("Q8", "orders", Between("o_orderdate", _day("1995-01-01"), _day("1996-12-31"))),
    Query("Q10", "orders", _from_to("o_orderdate", "1993-10-01", "1994-01-01")),
    Query("Q10", "lineitem", Compare("l_returnflag", "=", "R")),
    Query(
        "Q12",
        "lineitem",
        And(
            (
                In("l_shipmode", ("MAIL", "SHIP")),
                Columns("l_commitdate", "<", "l_receiptdate"),
                Columns("l_shipdate", "<", "l_commitdate"),
                _from_to("l_receiptdate", "1994-01-01", "1995-01-01"),
            )
        ),
    ),
    Query("Q13", "orders", Like("o_comment", "%special%requests%", negated=True)),
    Query("Q14", "lineitem", _from_to("l_shipdate", "1995-09-01", "1995-10-01")),
    Query("Q15", "lineitem", _from_to("l_shipdate", "1996-01-01", "1996-04-01")),
    Query("Q19", "lineitem", Or((_brand(1, 11), _brand(10, 20), _brand(20, 30)))),
    Query("Q20", "lineitem", _from_to("l_shipdate", "1994-01-01", "1995-01-01")),
    Query("Q21", "orders", Compare("o_orderstatus", "=", "F")),
    Query("Q21", "lineitem", Columns("l_receiptdate", ">", "l_commitdate")),
)

AS_WRITTEN: Final = (
    Query(
        "Q1 as written",
        "lineitem",
        Text(
            "l_shipdate",
            "l_shipdate <= DATE '1998-12-01' - INTERVAL '90' DAY",
            "l_shipdate <= DATE '1998-12-01' - INTERVAL '90' DAY",
        ),
    ),
    Query(
        "Q4 as written",
        "orders",
        Text(
            "o_orderdate",
            "o_orderdate >= DATE '1993-07-01' AND o_orderdate < DATE '1993-07-01' + INTERVAL '3' MONTH",
            "o_orderdate >= DATE '1993-07-01' AND o_orderdate < DATE '1993-07-01' + INTERVAL '3' MONTH",
        ),
    ),
    Query(
        "Q6 as written",
        "lineitem",
        And(
            (
                Text(
                    "l_shipdate",
                    "l_shipdate >= DATE '1994-01-01' AND l_shipdate < DATE '1994-01-01' + INTERVAL '1' YEAR",
                    "l_shipdate >= DATE '1994-01-01' AND l_shipdate < DATE '1994-01-01' + INTERVAL '1' YEAR",
                ),
                Text(
                    "l_discount",
                    "l_discount BETWEEN 0.06 - 0.01 AND 0.06 + 0.01",
                    "l_discount BETWEEN 0.06 - 0.01 AND 0.06 + 0.01",
                ),
                Compare("l_quantity", "<", 24),
            )
        ),
    ),
    Query(
        "Q7 by year",
        "lineitem",
        Text(
            "l_shipdate",
            "year(l_shipdate) BETWEEN 1995 AND 1996",
            "year(l_shipdate) BETWEEN 1995 AND 1996",
            _years(1995, 1996),
        ),
    ),
    Query(
        "Q8 by extract",
        "orders",
        Text(
            "o_orderdate",
            "extract(YEAR FROM o_orderdate) IN (1995, 1996)",
            "extract(YEAR FROM o_orderdate) IN (1995, 1996)",
            _years(1995, 1996),
        ),
    ),
    Query(
        "Q14 by month",
        "lineitem",
        Text(
            "l_shipdate",
            "date_trunc('MONTH', l_shipdate) = DATE '1995-09-01'",
            "date_trunc('month', l_shipdate) = DATE '1995-09-01'",
            (_day("1995-09-01"), _day("1995-09-30")),
        ),
    ),
)
