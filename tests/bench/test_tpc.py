"""The benchmark of TPC-H and TPC-DS: its answers are compared, its blocks counted, and its ratios are of one run."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from onspark.tpc_queries import Query, compare
from onspark.tpc_report import PLAIN, markdown, merged
from page_part import replace_part
from tpch_files import generate

SCRIPT = Path(__file__).resolve().parents[2] / "bench" / "tpc.py"
QUERIES = {
    1: "SELECT l_returnflag, sum(l_quantity * l_discount) AS s FROM lineitem GROUP BY l_returnflag ORDER BY 1;",
    2: "SELECT sum(l_extendedprice * l_discount) AS s FROM lineitem WHERE l_shipdate >= DATE '1997-06-01'"
    " AND l_shipdate < DATE '1997-07-01' AND l_quantity < 30",
    3: "SELECT o_orderpriority, count(*) AS c FROM orders JOIN lineitem ON o_orderkey = l_orderkey"
    " WHERE o_orderdate < DATE '1992-02-01' GROUP BY o_orderpriority",
}


@pytest.mark.soak
@pytest.mark.spark
def test_a_run_compares_answers_and_counts_blocks(tmp_path: Path, java_home: Path) -> None:
    """A run on small tables measures every query on both sides, and no scan reads fewer blocks than it needs."""
    assert java_home
    files = tmp_path / "tables" / "0.01" / "generated" / "tpch"
    files.parent.mkdir(parents=True)
    generate(files, 0.01)
    (files / "queries.json").write_text(json.dumps(QUERIES))
    options = ["--alone", "--scale", "0.01", "--block-rows", "5000", "--rounds", "1", "--tpcds", "--unsorted"]
    paths = ["--tables", str(tmp_path / "tables"), "--out", str(tmp_path / "out.json")]
    subprocess.run([sys.executable, str(SCRIPT), *options, *paths], check=True, env=dict(os.environ), timeout=600)
    found = json.loads((tmp_path / "out.json").read_text())
    assert list(found["queries"]) == ["tpch 1", "tpch 2", "tpch 3"]
    for by_side in found["queries"].values():
        assert set(by_side) == {"plain", PLAIN, "lamella"}
        for times in by_side.values():
            assert 0 < times["planning_ms"] < times["total_ms"]
    all_of_it, month, joined = found["blocks"].values()
    lineitem = all_of_it["total"]
    assert lineitem >= 12
    assert all_of_it == dict.fromkeys(("needed", "read", "total"), lineitem)
    assert month["total"] == lineitem
    assert 1 <= month["needed"] <= month["read"] <= 2
    assert joined["total"] > lineitem
    assert 1 < joined["needed"] <= joined["read"] < joined["total"]


def test_answers_may_differ_in_their_order_and_floats_a_little() -> None:
    """Rows are compared as a multiset, floats with a tolerance, everything else exactly."""
    query = Query("tpch", 1, "")
    compare(query, {"one": [(1, 0.1 + 0.2), (2, float("nan"))], "other": [(2, float("nan")), (1, 0.3)]})
    for rows in ([(1, 0.3)], [(1, 0.3), (1, 0.3)], [(1, 0.3), (2, 0.31)], [(1, 0.3), (3, 0.5)]):
        with pytest.raises(AssertionError):
            compare(query, {"one": [(1, 0.3), (2, 0.5)], "other": rows})


def times(total_ms: float) -> dict[str, float]:
    """The medians of one side."""
    return {"planning_ms": 10, "planning_cpu_ms": 10, "total_ms": total_ms, "total_cpu_ms": total_ms}


def run(spark: str, totals: dict[str, tuple[float, float]], **more: Any) -> dict[str, Any]:
    """What an environment found: for each side, the milliseconds of two queries."""
    queries = {f"tpch {at + 1}": {side: times(each[at]) for side, each in totals.items()} for at in range(2)}
    about = {"spark": spark, "scale": 1, "block_rows": 1000, "rounds": 3, "load": 0.5}
    return {**about, "seconds_to_make": dict.fromkeys(totals, 1.0), "queries": queries, **more}


def test_ratios_are_of_one_run_and_the_summary_counts_who_is_ahead(tmp_path: Path) -> None:
    """A side is divided by the plain tables of its own run; queries that can skip are counted apart."""
    blocks = {f"tpch {at}": {"needed": needed, "read": needed, "total": 8} for at, needed in ((1, 2), (2, 8))}
    found = merged(
        [
            run("4.3.0", {PLAIN: (100, 100), "lamella": (50, 104)}, blocks=blocks),
            run("4.2.1", {PLAIN: (400, 200), "delta": (160, 220)}),
        ]
    )
    assert found["ratios"]["tpch 1"]["lamella"]["total_ms"] == 0.5
    assert found["ratios"]["tpch 1"]["delta"]["total_ms"] == 0.4
    text = markdown(found)
    assert "| TPC-H, can skip | 1 | 1.00, 0.50, 0.50 | 1.00, 0.40, 0.40 | 1 | 0 | 1 |" in text
    assert "| TPC-H, cannot skip | 1 | 1.00, 1.04, 1.04 | 1.00, 1.10, 1.10 | 0 | 1 | 1 |" in text
    assert "| H 1 | 10, 100 ms | 1.00, 0.50 | 1.00, 0.40 | 2, 2, 8 |" in text
    page = tmp_path / "page.md"
    page.write_text("before <!-- written by it: begin -->old<!-- end --> after")
    replace_part(page, "it", text)
    assert page.read_text() == f"before <!-- written by it: begin -->\n\n{text}\n\n<!-- end --> after"
    with pytest.raises(ValueError, match="written by another"):
        replace_part(page, "another", text)
