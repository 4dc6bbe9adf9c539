"""The near name in the error of a missing table or namespace: only what the caller may see."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lamella.service.app import create_app
from lamella.service.catalog import open_catalog
from lamella.service.config.settings import Settings
from lamella.snapshot.near_names import MAX_NAMES, did_you_mean
from lamella.snapshot.tokens import key_sha256, key_text
from support.app_client import AppClient

ROOT_KEY = key_text(b"r" * 32)
SCHEMA = [{"name": "customer", "type": "int64"}]


@pytest.fixture
def app(tmp_path: Path) -> Iterator[AppClient]:
    """A service with the tables shop.orders, shop.order_secrets, shop.ordera and hidden.orders."""
    settings = Settings(warehouse=str(tmp_path), auth=True, root_key_sha256=key_sha256(ROOT_KEY))
    with AppClient(create_app(settings)) as opened:
        for namespace in ("shop", "hidden"):
            made(opened, "/v1/namespaces", {"name": namespace})
        for namespace, table in (
            ("shop", "orders"),
            ("shop", "order_secrets"),
            ("shop", "ordera"),
            ("hidden", "orders"),
        ):
            made(opened, f"/v1/namespaces/{namespace}/tables", {"name": table, "schema": SCHEMA})
        yield opened


def made(app: AppClient, path: str, body: dict[str, Any]) -> dict[str, Any]:
    """What the root key has made."""
    answer = app.post(path, json=body, headers={"Authorization": f"Bearer {ROOT_KEY}"})
    assert answer.status_code == 201, answer.text
    found: dict[str, Any] = answer.json()
    return found


def key(app: AppClient, name: str, **grant: str) -> str:
    """A key that may read one thing."""
    return str(made(app, "/v1/keys", {"name": name, "grants": [{"role": "read", **grant}]})["key"])


def details(app: AppClient, shown: str, path: str) -> dict[str, Any]:
    """The details of the error at a path, as a key sees it."""
    answer = app.get(f"/v1/namespaces/{path}", headers={"Authorization": f"Bearer {shown}"})
    assert answer.status_code == 404, answer.text
    found: dict[str, Any] = answer.json()["details"]
    return found


def test_a_near_table_and_a_near_namespace_are_named(app: AppClient) -> None:
    """The table with its namespace; nothing where nothing is near."""
    assert details(app, ROOT_KEY, "shop/tables/ordres")["did_you_mean"] == "shop.orders"
    assert details(app, ROOT_KEY, "shop/tables/ORDERS")["did_you_mean"] == "shop.orders"
    assert details(app, ROOT_KEY, "hiden/tables/orders")["did_you_mean"] == "hidden"
    assert details(app, ROOT_KEY, "hiden/tables")["did_you_mean"] == "hidden"
    assert "did_you_mean" not in details(app, ROOT_KEY, "shop/tables/zebra")
    assert "did_you_mean" not in details(app, ROOT_KEY, "zebra/tables")


def test_only_what_the_caller_may_read_is_named(app: AppClient) -> None:
    """A hidden table has the error of a missing one, with the same suggestion; so has a hidden namespace."""
    shown = key(app, "one", namespace="shop", table="orders")
    hidden = details(app, shown, "shop/tables/ordera")
    missing = details(app, shown, "shop/tables/orderb")
    assert hidden.pop("table") == "ordera"
    assert missing.pop("table") == "orderb"
    assert hidden == missing == {"namespace": "shop", "did_you_mean": "shop.orders"}
    assert details(app, shown, "shop/tables/order_secret").get("did_you_mean") in (None, "shop.orders")
    assert details(app, shown, "hidden/tables/order") == {"namespace": "hidden"}
    assert details(app, shown, "hiden/tables") == {"namespace": "hiden"}
    whole = key(app, "all", namespace="shop")
    assert details(app, whole, "shop/tables/order_secret")["did_you_mean"] == "shop.order_secrets"


def test_of_very_many_names_none_is_compared() -> None:
    """It would take longer than the request."""
    names = [f"name{number}" for number in range(MAX_NAMES)]
    assert did_you_mean("name7x", names) != {}
    assert did_you_mean("name7x", [*names, "one more"]) == {}
    assert did_you_mean("n" * 10_000, names) == {}


def test_the_catalog_lists_some_names(tmp_path: Path) -> None:
    """Live ones in order, as many as are wanted."""
    with AppClient(create_app(Settings(warehouse=str(tmp_path)))) as opened:
        for name in ("b", "a"):
            assert opened.post("/v1/namespaces", json={"name": name}).status_code == 201
        for name in ("y", "x", "gone"):
            assert opened.post("/v1/namespaces/a/tables", json={"name": name, "schema": SCHEMA}).status_code == 201
        assert opened.delete("/v1/namespaces/a/tables/gone").status_code == 204
    catalog = open_catalog(str(tmp_path / "_catalog.db"))
    assert catalog.some_names(None, limit=9) == ["a", "b"]
    assert catalog.some_names("a", limit=9) == ["x", "y"]
    assert catalog.some_names("a", limit=1) == ["x"]
    assert catalog.some_names("zebra", limit=9) == []
    catalog.close()
