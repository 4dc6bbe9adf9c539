"""The project in examples/dbt, built by dbt over Spark Connect: its tables are those that plain Python computes."""

from __future__ import annotations

import datetime as dt
import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from decimal import Decimal
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pytest

from conftest import path_from_script
from fixtures_server import start_shared
from lamella.client import Lamella
from support.connect_server import connect_server

pytestmark = [pytest.mark.soak, pytest.mark.spark]

PROJECT: Final = Path(__file__).resolve().parents[2] / "examples" / "dbt"
COUNTRIES: Final = ("DE", "FR", "NO")
TODAY: Final = dt.datetime.now(dt.UTC).replace(hour=0, minute=0, second=0, microsecond=0)
ORDER: Final = pa.schema(
    {
        "order_id": pa.int64(),
        "customer_id": pa.int64(),
        "country": pa.string(),
        "amount": pa.float64(),
        "ordered_at": pa.timestamp("us", "UTC"),
    }
)


def orders(numbers: range, add: int, at: dt.datetime, **other: Any) -> list[dict[str, Any]]:
    """Orders, a minute and a second apart; ``other``: values of columns that all have."""
    return [
        {
            "order_id": number,
            "customer_id": number % 7,
            "country": COUNTRIES[number % 3],
            "amount": float(number + add),
            "ordered_at": at + dt.timedelta(seconds=61 * number),
            **other,
        }
        for number in numbers
    ]


FIRST: Final = [row for day in (3, 2, 1) for row in orders(range(day, 90, 3), 1, TODAY - dt.timedelta(days=day))]
LAST_MOMENT: Final = TODAY + dt.timedelta(days=1, microseconds=-1)
#: States of orders that are there, and of new ones.
SECOND: Final = orders(range(60, 120), 1_000, TODAY)


class Dbt:
    """Runs commands of dbt in a copy of the project. ``lake`` has its source and its tables."""

    def __init__(self, lake: Lamella, remote: str, folder: Path) -> None:
        self.lake = lake
        self.folder = folder
        shutil.copytree(PROJECT, folder, dirs_exist_ok=True)
        self._program = path_from_script("environment.py", "dbt").with_name("dbt")
        self._environment = os.environ | {
            "SPARK_CONNECT": remote,
            "DBT_PROFILES_DIR": str(folder),
            "DBT_SEND_ANONYMOUS_USAGE_STATS": "false",
            "PYTHONWARNINGS": "ignore",
        }

    def run(self, *words: str, status: int = 0) -> dict[str, str]:
        """Run a command that ends with this status; returns the status of each node by its name."""
        first = (TODAY - dt.timedelta(days=3)).date()
        done = subprocess.run(
            [self._program, "--no-use-colors", *words, "--vars", f"first_day: '{first}'"],
            check=False,
            capture_output=True,
            text=True,
            cwd=self.folder,
            env=self._environment,
            timeout=500,
        )
        assert done.returncode == status, done.stdout[-8_000:]
        name = "sources" if words[0] == "source" else "run_results"
        results = json.loads((self.folder / "target" / f"{name}.json").read_text("utf-8"))["results"]
        return {each["unique_id"].split(".")[2]: each["status"] for each in results}

    def arrive(self, rows: list[dict[str, Any]]) -> None:
        """Add orders to the source."""
        self.lake.table("raw.orders").append(pa.Table.from_pylist(rows, ORDER), create=True)

    def rows(self, name: str, *order: str) -> list[dict[str, Any]]:
        """All rows of a table of the project, in this order."""
        found: list[dict[str, Any]] = self.lake.table(f"shop.{name}").scan().to_arrow().to_pylist()
        return sorted(found, key=itemgetter(*order))

    def operations(self, name: str) -> list[str]:
        """What was done to a table since it was there, the oldest first."""
        return [each.operation for each in reversed(list(self.lake.table(f"shop.{name}").snapshots()))]


def exact(row: dict[str, Any]) -> dict[str, Any]:
    """An order with its amount as the project has it."""
    return row | {"amount": Decimal(row["amount"]).quantize(Decimal("0.01"))}


def newest(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The last state of each order, by order."""
    last = {row["order_id"]: exact(row) for row in sorted(rows, key=itemgetter("ordered_at"))}
    return [last[number] for number in sorted(last)]


def sums(rows: list[dict[str, Any]], *by: str) -> list[tuple[Any, ...]]:
    """Number and sum of orders by columns."""
    key = itemgetter(*by)
    return [
        (*(found if len(by) > 1 else (found,)), len(listed := list(each)), sum(row["amount"] for row in listed))
        for found, each in groupby(sorted(map(exact, rows), key=key), key)
    ]


def check_tables(dbt: Dbt, arrived: list[dict[str, Any]]) -> None:
    """Each model has what follows from all rows that arrived."""
    now = newest(arrived)
    assert dbt.rows("orders", "order_id") == now
    log = sorted((row["order_id"], row["ordered_at"], exact(row)["amount"]) for row in arrived)
    found = dbt.rows("order_log", "order_id", "ordered_at")
    assert [(row["order_id"], row["ordered_at"], row["amount"]) for row in found] == log
    by_day = [row | {"day": row["ordered_at"].replace(hour=0, minute=0, second=0)} for row in arrived]
    found = dbt.rows("daily_sales", "day", "country")
    assert [tuple(row.values()) for row in found] == sums(by_day, "day", "country")
    found = dbt.rows("sales_by_country", "country")
    assert [(row["country"], row["orders"], row["amount"]) for row in found] == sums(now, "country")
    history = dbt.rows("order_history", "order_id", "ordered_at")
    assert [row["order_id"] for row in history if row["dbt_valid_to"] is None] == [row["order_id"] for row in now]
    assert len(history) == len({(row["order_id"], row["ordered_at"]) for row in arrived})
    followed = {(row["order_id"], row["dbt_valid_from"]) for row in history}
    assert all((row["order_id"], row["dbt_valid_to"]) in followed for row in history if row["dbt_valid_to"])


@pytest.fixture(scope="module")
def dbt(java_home: Path, tmp_path_factory: pytest.TempPathFactory, pytestconfig: pytest.Config) -> Iterator[Dbt]:
    """The project with a service and a Spark Connect server, built for the first time."""
    assert java_home
    folder = tmp_path_factory.mktemp("service")
    server = start_shared(pytestconfig, folder, {"warehouse": folder / "warehouse"})
    with connect_server(server.url, folder) as remote, Lamella(server.url) as lake:
        built = Dbt(lake, remote, tmp_path_factory.mktemp("project"))
        built.arrive(FIRST)
        assert set(built.run("build").values()) == {"success", "pass"}
        check_tables(built, FIRST)
        yield built
    assert server.stop() == 0


def test_a_second_build_is_incremental(dbt: Dbt) -> None:
    """Rows are merged, appended and replaced by day; nothing is written anew but the tables that are built so."""
    dbt.arrive(SECOND)
    assert set(dbt.run("build").values()) == {"success", "pass"}
    check_tables(dbt, FIRST + SECOND)
    assert dbt.operations("orders") == ["create", "overwrite", "schema", "schema", "merge"]
    assert dbt.operations("order_log") == ["create", "overwrite", "append"]
    assert dbt.operations("daily_sales")[-2:] == ["overwrite", "overwrite"]
    assert dbt.operations("order_history")[-1] == "merge"
    assert dbt.lake.table("shop.orders").info().cluster_key == ("country",)


def test_a_failed_test_stops_what_follows(dbt: Dbt) -> None:
    """An unknown country: what comes after the test is not built, and is as before."""
    before = dbt.rows("sales_by_country", "country")
    dbt.arrive(orders(range(500, 501), 0, LAST_MOMENT - dt.timedelta(seconds=61 * 501), country="XX"))
    done = dbt.run("build", status=1)
    relationships = next(name for name in done if name.startswith("relationships"))
    assert (done[relationships], done["sales_by_country"]) == ("fail", "skipped")
    assert before == dbt.rows("sales_by_country", "country")


def test_what_a_contract_excludes_is_not_merged(dbt: Dbt) -> None:
    """The service enforces the constraint: the merge does nothing."""
    before = dbt.operations("orders")
    bad = orders(range(1), 0, LAST_MOMENT)
    dbt.arrive(bad)
    assert dbt.run("build", "--select", "orders", status=1)["orders"] == "error"
    assert dbt.operations("orders") == before
    dbt.lake.table("raw.orders").delete("amount <= 0 OR country = 'XX'")


def test_a_full_refresh_replaces_tables_and_keeps_their_history(dbt: Dbt) -> None:
    """`create or replace`: the table is never missing. It is what the first build would have made."""
    before = dbt.lake.table("shop.orders").info().table_id
    assert set(dbt.run("build", "--full-refresh").values()) == {"success", "pass"}
    assert dbt.rows("orders", "order_id") == newest(FIRST + SECOND)
    assert dbt.lake.table("shop.orders").info().table_id == before
    assert "merge" in dbt.operations("orders")


def test_a_model_becomes_a_table_and_a_view_again(dbt: Dbt) -> None:
    """The macros tell tables and views apart, so dbt drops what has the name."""
    model = dbt.folder / "models" / "stg_orders.sql"
    text = model.read_text("utf-8")
    model.write_text(text.replace("'view'", "'table'"), "utf-8")
    dbt.run("run", "--select", "stg_orders")
    assert len(dbt.rows("stg_orders", "order_id")) == len(FIRST + SECOND)
    model.write_text(text, "utf-8")
    dbt.run("run", "--select", "stg_orders")
    assert list(dbt.lake.views("shop")) == ["stg_orders"]


def test_a_new_column_is_added(dbt: Dbt) -> None:
    """By `on_schema_change`: it is null in older rows."""
    model = dbt.folder / "models" / "order_log.sql"
    text = model.read_text("utf-8").replace("'append')", "'append', on_schema_change='append_new_columns')")
    model.write_text(text.replace("select order_id,", "select customer_id, order_id,"), "utf-8")
    dbt.arrive(added := orders(range(1), 5, LAST_MOMENT))
    dbt.run("run", "--select", "order_log")
    found = [row for row in dbt.rows("order_log", "ordered_at") if row["customer_id"] is not None]
    assert [(row["order_id"], row["ordered_at"]) for row in found] == [(0, added[0]["ordered_at"])]


def test_freshness_and_the_catalog_of_the_docs(dbt: Dbt) -> None:
    """Sources that are old are an error; the catalog has columns, rows and bytes."""
    assert dbt.run("source", "freshness") == {"raw": "pass"}
    source = dbt.folder / "models" / "sources.yml"
    source.write_text(source.read_text("utf-8").replace("count: 3, period: day", "count: -2, period: day"), "utf-8")
    assert dbt.run("source", "freshness", status=1) == {"raw": "error"}
    dbt.run("docs", "generate")
    catalog = json.loads((dbt.folder / "target" / "catalog.json").read_text("utf-8"))
    assert catalog["errors"] is None
    nodes = catalog["nodes"] | catalog["sources"]
    kinds = {name.split(".")[-1]: node["metadata"]["type"] for name, node in nodes.items()}
    assert kinds == {"stg_orders": "view"} | dict.fromkeys(
        ["countries", "orders", "order_log", "daily_sales", "sales_by_country", "order_history"], "table"
    ) | {"orders": "table"}
    found = nodes["model.shop.orders"]
    assert {name: column["type"] for name, column in found["columns"].items()}["amount"] == "decimal(10,2)"
    assert found["stats"]["rows"]["value"] == len(dbt.rows("orders", "order_id"))


def test_other_configurations(dbt: Dbt) -> None:
    """Merges of some columns, tables that are replaced, and snapshots by `check`; partitions and grants are refused."""

    def model(name: str, config: str, query: str) -> None:
        (dbt.folder / "models" / f"{name}.sql").write_text(f"{{{{ config({config}) }}}}\n{query}", "utf-8")

    incremental = "materialized='incremental', incremental_strategy="
    value = "{% if is_incremental() %}2{% else %}1{% endif %}"
    model("overwritten", f"{incremental}'insert_overwrite'", f"select {value} as a")
    some = f"{incremental}'merge', unique_key='k', merge_update_columns=['a']"
    model("merged", some, f"select 7 as k, {value} as a, {value} as b")
    model("partitioned", "materialized='table', partition_by='a'", "select 1 as a")
    model("granted", "materialized='table', grants={'select': ['someone']}", "select 1 as a")
    snapshot: dict[str, Any] = {"name": "checked", "relation": "ref('merged')"}
    snapshot |= {"config": {"unique_key": "k", "strategy": "check", "check_cols": ["a"]}}
    (dbt.folder / "snapshots" / "checked.yml").write_text(json.dumps({"snapshots": [snapshot]}), "utf-8")
    for _ in range(2):
        assert set(dbt.run("build", "--select", "overwritten", "merged", "checked").values()) == {"success"}
    assert dbt.rows("overwritten", "a") == [{"a": 2}]
    assert dbt.rows("merged", "k") == [{"k": 7, "a": 2, "b": 1}]
    assert [(row["a"], row["dbt_valid_to"] is None) for row in dbt.rows("checked", "a")] == [(1, False), (2, True)]
    assert set(dbt.run("run", "--select", "partitioned", "granted", status=1).values()) == {"error"}
