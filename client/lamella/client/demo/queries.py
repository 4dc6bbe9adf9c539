"""The demo's queries: each once through Lamella, once over all files."""

from __future__ import annotations

import msgspec


class Query(msgspec.Struct, frozen=True, kw_only=True):
    """``sql`` has ``{lineitem}`` and ``{orders}`` where the names of the tables go; ``tables`` are those it reads."""

    name: str
    tables: tuple[str, ...]
    sql: str


#: Runs before the first query, unmeasured.
WARM_UP = "SELECT count(*), max(o_orderkey) FROM {orders} WHERE o_orderdate < DATE '1992-01-03'"

#: The query whose share of blocks decides the exit status.
NARROW = "narrow date range"

#: Small answers at every scale. Sums are of decimals, so that an answer does not depend on the order of addition.
QUERIES = (
    Query(
        name=NARROW,
        tables=("lineitem",),
        sql="""
            SELECT l_orderkey, l_linenumber, l_partkey, l_quantity, l_extendedprice, l_shipdate, l_comment
            FROM {lineitem}
            WHERE l_shipdate BETWEEN DATE '1995-03-14' AND DATE '1995-03-16'
        """,
    ),
    Query(
        name="key point",
        tables=("lineitem",),
        sql="SELECT * FROM {lineitem} WHERE l_orderkey = 1 AND l_shipdate = DATE '1996-03-13'",
    ),
    Query(
        name="IN list",
        tables=("lineitem",),
        sql="""
            SELECT l_shipdate, l_shipmode, count(*) AS lines, sum(l_quantity) AS quantity
            FROM {lineitem}
            WHERE l_shipdate IN (DATE '1992-07-04', DATE '1994-02-01', DATE '1996-02-29', DATE '1998-08-03')
            GROUP BY l_shipdate, l_shipmode
        """,
    ),
    Query(
        # Only lineitem is narrowed: order keys say nothing about the dates that orders is clustered by.
        name="join, one side narrow",
        tables=("lineitem", "orders"),
        sql="""
            SELECT o_orderpriority, count(*) AS lines, sum(l_extendedprice * (1 - l_discount)) AS revenue
            FROM {lineitem} JOIN {orders} ON o_orderkey = l_orderkey
            WHERE l_shipdate BETWEEN DATE '1994-05-02' AND DATE '1994-05-04'
            GROUP BY o_orderpriority
        """,
    ),
    Query(
        # Which dates are needed is known only when orders has been read; Spark then prunes lineitem by them.
        name="join, pruned by its keys",
        tables=("lineitem", "orders"),
        sql="""
            SELECT o_orderkey, o_orderdate, count(*) AS shipped_that_day
            FROM {orders} JOIN {lineitem} ON l_shipdate = o_orderdate
            WHERE o_orderkey IN (1, 7, 32, 66)
            GROUP BY o_orderkey, o_orderdate
        """,
    ),
    Query(
        name="count of the newest",
        tables=("lineitem",),
        sql="SELECT count(*) AS lines, max(l_shipdate) AS newest FROM {lineitem} WHERE l_shipdate >= DATE '1998-11-10'",
    ),
)
