"""Views for Iceberg clients and for Lamella's: the same ones, each in its own form."""

from __future__ import annotations

import json
import threading
import uuid
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import NoSuchViewError, ViewAlreadyExistsError
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField, StringType
from pyiceberg.view.metadata import ViewVersion

from lamella.client.http import Lamella
from lamella.service.app import create_app
from lamella.service.config.settings import Settings
from lamella.service.iceberg.views import MAX_METADATA_BYTES
from lamella.snapshot.iceberg.view_definition import spark_struct
from lamella.snapshot.wire import ViewDefinition
from support.app_client import AppClient
from support.tenants import ROOT_KEY, ROOT_SHA256

ROOT = "/iceberg/v1"
SPARK = json.dumps({"type": "struct", "fields": [{"name": "id", "type": "long", "nullable": True, "metadata": {}}]})


@pytest.fixture
def app(tmp_path: Path) -> Any:
    """A service with keys and the namespace ``n``."""
    settings = Settings(warehouse=str(tmp_path / "warehouse"), auth=True, root_key_sha256=ROOT_SHA256)
    with AppClient(create_app(settings)) as app:
        app.headers["Authorization"] = f"Bearer {ROOT_KEY}"
        assert app.post("/v1/namespaces", json={"name": "n"}).status_code == 201
        yield app


def version(sql: str = "select id from t", *dialects: str, **more: Any) -> dict[str, Any]:
    """A version of a view, in the dialect trino by default."""
    found = {
        "version-id": 1,
        "schema-id": 0,
        "timestamp-ms": 1_795_000_000_000,
        "summary": {},
        "representations": [{"type": "sql", "sql": sql, "dialect": each} for each in dialects or ("trino",)],
        "default-namespace": ["n"],
    }
    return found | {key.replace("_", "-"): value for key, value in more.items()}


def schema(*names: str) -> dict[str, Any]:
    """Columns of type long."""
    fields = [{"id": at, "name": name, "type": "long", "required": False} for at, name in enumerate(names, 1)]
    return {"type": "struct", "schema-id": 0, "fields": fields}


def body(name: str = "v", sql: str = "select id from t", *dialects: str, **more: Any) -> dict[str, Any]:
    """The request that creates a view."""
    return {"name": name, "schema": schema("id"), "view-version": version(sql, *dialects), "properties": {}, **more}


def replaced(sql: str, *dialects: str, **more: Any) -> dict[str, Any]:
    """The request that replaces the query."""
    updates = [
        {"action": "add-view-version", "view-version": version(sql, *dialects, **more)},
        {"action": "set-current-view-version", "view-version-id": -1},
    ]
    return {"updates": updates}


def test_views_of_pyiceberg_are_views_of_lamella(lake: Lamella, catalog: Catalog) -> None:
    """Made, listed, loaded, registered and dropped by its catalog; read in Lamella with the query for Spark."""
    namespace = f"v{uuid.uuid4().hex[:8]}.eu"
    catalog.create_namespace(namespace)
    columns = Schema(NestedField(1, "id", LongType()), NestedField(2, "name", StringType(), doc="of it"))
    queries = [{"type": "sql", "sql": f"select {each}", "dialect": each} for each in ("trino", "Spark")]
    levels = namespace.split(".")
    made = ViewVersion.model_validate(
        version(representations=queries, default_catalog="lake", default_namespace=levels)
    )
    name = f"{namespace}.v"
    view = catalog.create_view(name, columns, made, properties={"comment": "all", "team": "a"})
    assert catalog.list_views(namespace) == [(*namespace.split("."), "v")]
    assert catalog.view_exists(name)
    assert catalog.load_view(name).current_version() == view.current_version()
    with pytest.raises(ViewAlreadyExistsError):
        catalog.create_view(name, columns, made)
    info = lake.view(name)
    assert info.view_id == str(view.uuid())
    assert info.definition == ViewDefinition(
        sql="select Spark",
        schema_json=spark_struct(json.loads(columns.model_dump_json())),
        default_catalog="lake",
        default_namespace=tuple(namespace.split(".")),
        properties={"team": "a"},
        comment="all",
    )
    location = view.metadata.location
    folder = Path(location.removeprefix("file://")) / "metadata"
    [written] = folder.iterdir()
    catalog.drop_view(name)
    assert not catalog.view_exists(name)
    with pytest.raises(NoSuchViewError):
        catalog.load_view(name)
    again = catalog.register_view(name, f"file://{written}")
    assert again.uuid() != view.uuid()
    assert again.current_version() == view.current_version()
    catalog.drop_view(name)
    catalog.drop_namespace(namespace)


def test_a_view_that_spark_made_is_a_view_of_iceberg(app: AppClient) -> None:
    """With one version, whose number is that of the view; a client's change keeps what only Spark knows."""
    definition = {
        "sql": "SELECT id FROM t",
        "schema_json": SPARK,
        "query_columns": ["x"],
        "default_namespace": ["n"],
        "sql_configs": {"spark.sql.ansi.enabled": "true"},
        "schema_mode": "BINDING",
        "comment": "all",
    }
    info = app.post("/v1/namespaces/n/views", json={"name": "v", "definition": definition}).json()
    path = f"{ROOT}/namespaces/n/views/v"
    assert app.request("HEAD", path).status_code == 204
    loaded = app.get(path).json()
    metadata = loaded["metadata"]
    assert (metadata["view-uuid"], metadata["current-version-id"]) == (info["view_id"], 1)
    [only] = metadata["versions"]
    assert only["representations"] == [{"type": "sql", "sql": "SELECT id FROM t", "dialect": "spark"}]
    assert metadata["schemas"][0]["fields"] == [{"id": 1, "name": "id", "required": False, "type": "long"}]
    assert metadata["properties"] == {"comment": "all", "spark.query-column-names": "x"}
    change = {
        "requirements": [{"type": "assert-view-uuid", "uuid": info["view_id"]}],
        "updates": [{"action": "set-properties", "updates": {"team": "a"}}],
    }
    changed = app.post(path, json=change).json()
    assert changed["metadata"]["versions"] == metadata["versions"]
    assert changed["metadata-location"] != loaded["metadata-location"]
    found = app.get("/v1/namespaces/n/views/v").json()
    assert found["definition"] == {**definition, "properties": {"team": "a"}}
    assert found["version"] == 2


def test_versions_of_both_are_numbered_upwards(app: AppClient) -> None:
    """A replacement by Spark leaves one version, with a number that no other had; the id stays."""
    made = app.post(f"{ROOT}/namespaces/n/views", json=body()).json()["metadata"]
    path = f"{ROOT}/namespaces/n/views/v"
    for number in (5, 9):
        metadata = app.post(path, json=replaced(f"select {number}", version_id=number)).json()["metadata"]
        assert metadata["current-version-id"] == number
    spark = {"sql": "SELECT 1 AS id", "schema_json": SPARK}
    put = app.put("/v1/namespaces/n/views/v", json=spark)
    assert (put.status_code, put.json()["definition"]) == (200, spark)
    numbers = []
    for sql in ("SELECT 2 AS id", "SELECT 3 AS id"):
        metadata = app.get(path).json()["metadata"]
        assert metadata["view-uuid"] == made["view-uuid"]
        numbers.append([each["version-id"] for each in metadata["versions"]])
        app.put("/v1/namespaces/n/views/v", json={**spark, "sql": sql})
    assert numbers == [[10], [11]]
    metadata = app.post(path, json=replaced("select 4", "spark")).json()["metadata"]
    assert [each["version-id"] for each in metadata["versions"]] == [12, 13]
    assert app.get("/v1/namespaces/n/views/v").json()["definition"]["sql"] == "select 4"


def test_names_of_the_query_are_those_that_spark_gave(app: AppClient) -> None:
    """Not after another engine has replaced the query, and not if they do not fit."""

    def names(request: dict[str, Any]) -> list[str]:
        made = app.post(f"{ROOT}/namespaces/n/views", json=request)
        assert made.status_code == 200, made.text
        found: list[str] = app.get("/v1/namespaces/n/views/v").json()["definition"].get("query_columns", [])
        app.request("DELETE", f"{ROOT}/namespaces/n/views/v")
        return found

    given = {"spark.query-column-names": "x"}
    by_spark = version("select x", "spark", summary={"engine-name": "spark"})
    assert names({**body(properties=given), "view-version": by_spark}) == ["x"]
    assert names(body(properties=given)) == []
    assert names({**body(properties={"spark.query-column-names": "x,y"}), "view-version": by_spark}) == []


def test_a_repeated_request_with_its_key_happens_once(app: AppClient) -> None:
    """The second answer is the first one, also of a commit that changes nothing, of a refusal and of a rename."""
    path = f"{ROOT}/namespaces/n/views"
    for number, (where, sent) in enumerate(
        [
            (path, body()),
            (f"{path}/v", replaced("select 2")),
            (f"{path}/v", {"updates": []}),
            (f"{path}/v", {"requirements": [{"type": "assert-view-uuid", "uuid": "x"}], "updates": []}),
        ]
    ):
        key = {"Idempotency-Key": f"k{number}"}
        one, two = (app.post(where, json=sent, headers=key) for _ in range(2))
        assert (one.status_code, one.json()) == (two.status_code, two.json())
        assert one.status_code == (409 if number == 3 else 200)
    assert len(app.get(f"{path}/v").json()["metadata"]["versions"]) == 2
    names = [{"namespace": ["n"], "name": name} for name in ("v", "w")]
    for _ in range(2):
        answer = app.post(
            f"{ROOT}/views/rename",
            json={"source": names[0], "destination": names[1]},
            headers={"Idempotency-Key": "r"},
        )
        assert answer.status_code == 204


def test_errors_are_those_of_iceberg(app: AppClient) -> None:
    """With the names and texts that its clients act on; nothing is left behind of what was refused."""
    path = f"{ROOT}/namespaces/n/views"
    app.post("/v1/namespaces/n/tables", json={"name": "t", "schema": [{"name": "id", "type": "int64"}]})
    assert app.post(path, json=body()).status_code == 200

    def refused(method: str, where: str, sent: Any = None) -> tuple[int, str, str]:
        answer = app.request(method, ROOT + where, json=sent)
        error = answer.json()["error"]
        return answer.status_code, error["type"], error["message"]

    def rename(source: str, to: str) -> dict[str, Any]:
        return {
            "source": {"namespace": ["n"], "name": source},
            "destination": {"namespace": [to.split(".")[0]], "name": to.split(".")[1]},
        }

    assert refused("POST", "/namespaces/n/views", body()) == (
        409,
        "AlreadyExistsException",
        "View already exists: n.v",
    )
    assert refused("POST", "/namespaces/n/views", body("t"))[1:] == (
        "AlreadyExistsException",
        "Table with same name already exists: n.t",
    )
    table = {"name": "v", "schema": schema("id")}
    assert refused("POST", "/namespaces/n/tables", table)[1:] == (
        "AlreadyExistsException",
        "View with same name already exists: n.v",
    )
    assert refused("POST", "/views/rename", rename("v", "n.t"))[1:] == (
        "AlreadyExistsException",
        "Cannot rename n.v to n.t. Table already exists",
    )
    assert refused("POST", "/views/rename", rename("v", "m.w"))[:2] == (404, "NoSuchNamespaceException")
    assert refused("POST", "/views/rename", rename("u", "n.w"))[:2] == (404, "NoSuchViewException")
    assert refused("GET", "/namespaces/m/views/v") == (404, "NoSuchViewException", "View does not exist: m.v")
    assert refused("GET", "/namespaces/n/views/t")[:2] == (404, "NoSuchViewException")
    assert refused("DELETE", "/namespaces/n/views/u")[:2] == (404, "NoSuchViewException")
    assert refused("GET", "/namespaces/m/views")[:2] == (404, "NoSuchNamespaceException")
    assert refused("POST", "/namespaces/m/views", body())[:2] == (404, "NoSuchNamespaceException")
    assert refused("POST", "/namespaces/n/views", body("a b"))[:2] == (400, "BadRequestException")
    assert refused("POST", "/namespaces/n/views", body("w", "x" * 300_000))[:2] == (400, "BadRequestException")
    assert refused("POST", "/namespaces/n/views", body("w", "x", "spark", "SPARK"))[1] == "IllegalArgumentException"
    statuses = []
    for part in range(MAX_METADATA_BYTES // 600_000 + 1):
        long = {f"k{part}_{at}": "x" * 60_000 for at in range(10)}
        sent = {"updates": [{"action": "set-properties", "updates": long}]}
        statuses.append(app.post(f"{path}/v", json=sent).status_code)
    assert statuses == [200] * (len(statuses) - 1) + [400]
    assert len(app.get(f"{path}/v").json()["metadata"]["properties"]) == 10 * (len(statuses) - 1)
    assert [each["name"] for each in app.get(path).json()["identifiers"]] == ["v"]


def test_a_key_changes_views_only_where_it_may(app: AppClient) -> None:
    """A reader reads; nobody has files where they may not be, or in the folder of a table."""
    path = f"{ROOT}/namespaces/n/views"
    assert app.post(path, json=body()).status_code == 200
    grants = [{"role": "read", "namespace": "n"}]
    key = app.post("/v1/keys", json={"name": "reader", "grants": grants}).json()["key"]
    reader = {"Authorization": f"Bearer {key}"}
    names = {"source": {"namespace": ["n"], "name": "v"}, "destination": {"namespace": ["n"], "name": "w"}}
    assert app.request("GET", f"{path}/v", headers=reader).status_code == 200
    assert app.request("GET", path, headers=reader).json()["identifiers"] == [names["source"]]
    for method, where, sent in (
        ("POST", path, body("w")),
        ("POST", f"{path}/v", replaced("select 2")),
        ("DELETE", f"{path}/v", None),
        ("POST", f"{ROOT}/views/rename", names),
        ("POST", f"{ROOT}/namespaces/n/register-view", {"name": "w", "metadata-location": "file:///x"}),
    ):
        answer = app.request(method, where, headers=reader, json=sent)
        assert (answer.status_code, answer.json()["error"]["type"]) == (403, "ForbiddenException"), where
    elsewhere: list[dict[str, Any]] = [
        {"location": "file:///elsewhere/v"},
        {"properties": {"write.metadata.path": "file:///elsewhere"}},
    ]
    for more in elsewhere:
        assert app.post(path, json=body("w", **more)).status_code == 403
    moved = {"updates": [{"action": "set-location", "location": "file:///elsewhere"}]}
    assert app.post(f"{path}/v", json=moved).status_code == 403
    stolen = {"name": "w", "metadata-location": "file:///etc/passwd"}
    assert app.post(f"{ROOT}/namespaces/n/register-view", json=stolen).status_code == 403
    entries = app.get("/v1/audit").json()["entries"]
    assert "create_iceberg_view" in {entry["operation"] for entry in entries}


def test_a_view_is_not_in_the_folder_of_a_table(tmp_path: Path) -> None:
    """Its clean-up would delete the view's files; a registered view whose file is in such a folder gets its own."""
    with AppClient(create_app(Settings(warehouse=str(tmp_path / "warehouse")))) as app:
        app.post("/v1/namespaces", json={"name": "n"})
        table = {"name": "t", "schema": [{"name": "id", "type": "int64"}]}
        folder = app.post("/v1/namespaces/n/tables", json=table).json()["location"]
        path = f"{ROOT}/namespaces/n/views"
        assert app.post(path, json=body(location=f"{folder}/v")).status_code == 400
        made = app.post(path, json=body()).json()
        request = {"name": "w", "metadata-location": made["metadata-location"]}
        again = app.post(f"{ROOT}/namespaces/n/register-view", json=request).json()
        assert again["metadata"]["location"] != made["metadata"]["location"]
        assert again["metadata"]["view-uuid"] != made["metadata"]["view-uuid"]
        assert again["metadata"]["versions"] == made["metadata"]["versions"]
        for text in ("{", "[]", "{}"):
            (tmp_path / "x.json").write_text(text)
            bad = {"name": "x", "metadata-location": f"file://{tmp_path}/x.json"}
            assert app.post(f"{ROOT}/namespaces/n/register-view", json=bad).status_code >= 400
        assert app.request("HEAD", f"{path}/x").status_code == 404


def test_commits_at_once_lose_nothing(lake: Lamella, rest_url: str) -> None:
    """Each is checked again on what the other left; the files of lost races are gone."""
    import httpx2

    namespace = f"c{uuid.uuid4().hex[:8]}"
    lake.create_namespace(namespace)
    path = f"{rest_url}{ROOT}/namespaces/{namespace}/views"
    made = httpx2.post(path, json=body(properties={"version.history.num-entries": "100"})).json()
    statuses: list[int] = []

    def change(writer: int) -> None:
        for step in range(5):
            answer = httpx2.post(f"{path}/v", json=replaced(f"select {writer}, {step}"), timeout=60)
            statuses.append(answer.status_code)

    threads = [threading.Thread(target=change, args=(writer,)) for writer in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert statuses == [200] * 20
    metadata = httpx2.get(f"{path}/v").json()["metadata"]
    assert [each["version-id"] for each in metadata["versions"]] == list(range(1, 22))
    assert [each["version-id"] for each in metadata["version-log"]] == list(range(1, 22))
    folder = Path(made["metadata"]["location"].removeprefix("file://")) / "metadata"
    assert len(list(folder.iterdir())) == 21


def test_columns_of_every_type_have_one_in_spark() -> None:
    """A type that Spark does not have is binary, and the comment says so."""
    types = {
        "a": ("int", "integer"),
        "b": ("timestamptz", "timestamp"),
        "c": ("timestamp", "timestamp_ntz"),
        "d": ("decimal(10, 2)", "decimal(10,2)"),
        "e": ("fixed[4]", "binary"),
        "f": ("timestamp_ns", "binary"),
        "g": (
            {"type": "list", "element-id": 20, "element-required": False, "element": "time"},
            {"type": "array", "elementType": "time(6)", "containsNull": True},
        ),
        "h": (
            {"type": "map", "key-id": 21, "key": "string", "value-id": 22, "value-required": True, "value": "double"},
            {"type": "map", "keyType": "string", "valueType": "double", "valueContainsNull": True},
        ),
        "i": ({"type": "list", "element-id": 23, "element-required": False, "element": "timestamp_ns"}, "binary"),
    }
    fields = [
        {"id": at, "name": name, "required": True, "type": given}
        for at, (name, (given, _)) in enumerate(types.items(), 1)
    ]
    found = json.loads(spark_struct({"type": "struct", "fields": fields}))["fields"]
    assert {each["name"]: each["type"] for each in found} == {name: kind for name, (_, kind) in types.items()}
    assert [each["name"] for each in found if each["metadata"]] == ["f", "i"]


def test_a_type_that_iceberg_does_not_have_is_named(app: AppClient) -> None:
    """Only Spark reads such a view."""
    definition = {"sql": "SELECT 1", "schema_json": SPARK.replace('"long"', '"interval year"')}
    app.post("/v1/namespaces/n/views", json={"name": "v", "definition": definition})
    answer = app.get(f"{ROOT}/namespaces/n/views/v")
    assert (answer.status_code, answer.json()["error"]["type"]) == (406, "UnsupportedOperationException")
    assert app.get("/v1/namespaces/n/views/v").status_code == 200
