"""What Iceberg clients ask before they read: settings, names, metadata, tokens; what is refused has Iceberg's names."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

import pytest

from lamella.service.app import create_app
from lamella.service.config.settings import Settings
from lamella.snapshot.errors import InvalidRequest
from lamella.snapshot.tokens import key_sha256, key_text
from support.app_client import AppClient

ROOT: Final = "/iceberg/v1"
LONG: Final = [{"name": "a", "type": "int64"}]
ROOT_KEY: Final = key_text(b"r" * 32)
FORM: Final = {"Content-Type": "application/x-www-form-urlencoded"}


@pytest.fixture
def app(new_replica: Callable[[], AppClient]) -> AppClient:
    """A service with a table ``db.t`` of no rows."""
    app = new_replica()
    assert app.post("/v1/namespaces", json={"name": "db", "properties": {"owner": "x"}}).status_code == 201
    table(app, "t", LONG)
    return app


@pytest.fixture
def guarded(tmp_path: Path) -> Iterator[AppClient]:
    """A service that asks for keys, with tables ``db.t`` and ``db.u``."""
    settings = Settings(warehouse=str(tmp_path / "warehouse"), auth=True, root_key_sha256=key_sha256(ROOT_KEY))
    with ExitStack() as opened:
        app = opened.enter_context(AppClient(create_app(settings), headers={"Authorization": f"Bearer {ROOT_KEY}"}))
        assert app.post("/v1/namespaces", json={"name": "db"}).status_code == 201
        assert app.post("/v1/namespaces", json={"name": "other"}).status_code == 201
        for name in ("t", "u"):
            table(app, name, LONG)
        yield app


def table(app: AppClient, name: str, columns: list[dict[str, Any]]) -> None:
    """Make a table in ``db``."""
    answer = app.post("/v1/namespaces/db/tables", json={"name": name, "schema": columns})
    assert answer.status_code == 201, answer.text


def error(answer: Any) -> tuple[int, str]:
    """The status of an answer that failed, and the name of the exception."""
    assert answer.headers["content-type"] == "application/json"
    body = answer.json()["error"]
    assert body["code"] == answer.status_code
    assert body["message"]
    return answer.status_code, body["type"]


def test_clients_are_instructed_to_let_the_service_plan(app: AppClient) -> None:
    """By the names of both versions of pyiceberg; every endpoint that is named is there."""
    config = app.get(f"{ROOT}/config", params={"warehouse": "any"}).json()
    assert config["defaults"] == {"scan-planning-mode": "server", "rest-scan-planning-enabled": "true"}
    for endpoint in config["endpoints"]:
        method, path = endpoint.split(" ")
        names = {"namespace": "db", "table": "t", "view": "nope"}
        if method == "DELETE" and "plan-id" not in path:
            names = dict.fromkeys(names, "nope")
        path = path.replace("/v1/{prefix}", ROOT).format(**names, **{"plan-id": "nope"})
        answer = app.request(method, path, json={} if method == "POST" else None)
        if "/plan/" in path:
            assert error(answer) == (404, "NoSuchPlanIdException")
        elif method == "HEAD" and path.endswith("/nope"):
            assert answer.status_code == 404, endpoint
        elif method == "DELETE" or path.endswith("/nope"):
            assert error(answer)[0] in (400, 404), endpoint
        else:
            assert answer.status_code in (200, 204) or error(answer) == (400, "BadRequestException"), endpoint


def test_namespaces_are_listed_page_by_page(app: AppClient) -> None:
    """Each of one level and with its properties; there is none below another."""
    for name in ("a", "c"):
        assert app.post("/v1/namespaces", json={"name": name}).status_code == 201
    assert app.get(f"{ROOT}/namespaces").json() == {"namespaces": [["a"], ["c"], ["db"]]}
    found: list[Any] = []
    token: str | None = ""
    while token is not None:
        page = app.get(f"{ROOT}/namespaces", params={"pageSize": 1, "pageToken": token}).json()
        found += page["namespaces"]
        token = page.get("next-page-token")
    assert found == [["a"], ["c"], ["db"]]
    assert app.get(f"{ROOT}/namespaces/db").json() == {"namespace": ["db"], "properties": {"owner": "x"}}
    assert app.get(f"{ROOT}/namespaces", params={"parent": "db"}).json() == {"namespaces": []}
    none = (404, "NoSuchNamespaceException")
    assert error(app.get(f"{ROOT}/namespaces", params={"parent": "nope"})) == none
    assert error(app.get(f"{ROOT}/namespaces/nope")) == none
    assert app.get(f"{ROOT}/namespaces/nope").json()["error"]["message"] == "Namespace does not exist: nope"
    below = app.get(f"{ROOT}/namespaces/nope/tables/t").json()["error"]
    assert (below["type"], below["message"]) == ("NoSuchTableException", "Table does not exist: nope.t")
    assert error(app.get(f"{ROOT}/namespaces/db%1Fbelow")) == none
    assert error(app.get(f"{ROOT}/namespaces", params={"pageToken": "x"})) == (400, "BadRequestException")
    assert [app.head(f"{ROOT}/namespaces/{name}").status_code for name in ("db", "nope")] == [204, 404]


def test_tables_are_listed_page_by_page(app: AppClient) -> None:
    """By their names."""
    for name in ("u", "v"):
        table(app, name, LONG)
    page = app.get(f"{ROOT}/namespaces/db/tables", params={"pageSize": 2, "pageToken": ""}).json()
    assert page["identifiers"] == [{"namespace": ["db"], "name": "t"}, {"namespace": ["db"], "name": "u"}]
    token = page["next-page-token"]
    rest = app.get(f"{ROOT}/namespaces/db/tables", params={"pageSize": 2, "pageToken": token}).json()
    assert rest == {"identifiers": [{"namespace": ["db"], "name": "v"}]}
    whole = app.get(f"{ROOT}/namespaces/db/tables", params={"pageSize": 2}).json()  # by a client that knows no pages
    assert (len(whole["identifiers"]), "next-page-token" in whole) == (3, False)
    for size in ("0", "-1", "x"):
        wrong = app.get(f"{ROOT}/namespaces/db/tables", params={"pageSize": size, "pageToken": ""})
        assert error(wrong) == (400, "BadRequestException")
    assert error(app.get(f"{ROOT}/namespaces/nope/tables")) == (404, "NoSuchNamespaceException")
    assert [app.head(f"{ROOT}/namespaces/db/tables/{name}").status_code for name in ("t", "nope")] == [204, 404]


def test_metadata_is_that_of_the_table(app: AppClient) -> None:
    """Format version 2, no partitions, no order, a mapping from names to ids, snapshots with what they have, tags."""
    assert app.post("/v1/namespaces/db/tables/t/commits", json={"properties": {"k": "v"}}).status_code == 200
    tag = {
        "name": "before",
        "snapshot_id": app.get("/v1/namespaces/db/tables/t/snapshots").json()["snapshots"][1]["snapshot_id"],
    }
    assert app.post("/v1/namespaces/db/tables/t/tags", json=tag).status_code == 201
    info = app.get("/v1/namespaces/db/tables/t").json()
    loaded = app.get(f"{ROOT}/namespaces/db/tables/t").json()
    metadata = loaded["metadata"]
    assert loaded["config"]["scan-planning-mode"] == "server"
    assert (metadata["format-version"], metadata["table-uuid"]) == (2, info["table_id"])
    assert metadata["schemas"] == [
        {"type": "struct", "schema-id": 0, "fields": [{"id": 1, "name": "a", "required": False, "type": "long"}]}
    ]
    assert (metadata["partition-specs"], metadata["sort-orders"]) == (
        [{"spec-id": 0, "fields": []}],
        [{"order-id": 0, "fields": []}],
    )
    assert metadata["properties"]["k"] == "v"
    mapping = json.loads(metadata["properties"]["schema.name-mapping.default"])
    assert mapping == [{"field-id": 1, "names": ["a"]}]
    assert metadata["current-snapshot-id"] == metadata["last-sequence-number"] == 2
    assert [each["snapshot-id"] for each in metadata["snapshots"]] == [1, 2]
    assert metadata["snapshots"][1]["parent-snapshot-id"] == 1
    assert metadata["snapshots"][1]["summary"]["total-records"] == "0"
    assert metadata["refs"] == {
        "main": {"snapshot-id": 2, "type": "branch"},
        "before": {"snapshot-id": 1, "type": "tag"},
    }


def test_the_answers_that_create_and_commit_have_the_tag_of_the_metadata(app: AppClient) -> None:
    """A client that has just written a table need not load it again; with refs only it is another answer."""
    fields = [{"id": 1, "name": "a", "type": "long", "required": False}]
    body = {"name": "made", "schema": {"type": "struct", "fields": fields}}
    made = app.post(f"{ROOT}/namespaces/db/tables", json=body)
    path = f"{ROOT}/namespaces/db/tables/made"
    loaded = app.get(path)
    assert made.headers["etag"] == loaded.headers["etag"]
    unchanged = app.get(path, headers={"If-None-Match": made.headers["etag"]})
    assert (unchanged.status_code, unchanged.content) == (304, b"")
    updates = [{"action": "set-properties", "updates": {"k": "v"}}]
    committed = app.post(path, json={"requirements": [], "updates": updates})
    assert committed.headers["etag"] != made.headers["etag"]
    assert app.get(path, headers={"If-None-Match": made.headers["etag"]}).status_code == 200
    assert app.get(path, headers={"If-None-Match": committed.headers["etag"]}).status_code == 304
    assert app.get(path, headers={"If-None-Match": f'"x", {committed.headers["etag"]}'}).status_code == 304
    refs = app.get(path, params={"snapshots": "refs"}, headers={"If-None-Match": committed.headers["etag"]})
    assert refs.status_code == 200
    assert refs.headers["etag"] != committed.headers["etag"]
    staged = app.post(f"{ROOT}/namespaces/db/tables", json={**body, "name": "later", "stage-create": True})
    assert "etag" not in staged.headers


def test_metadata_is_not_sent_twice(app: AppClient) -> None:
    """With its tag the answer is 304, until the table or its tags change; with refs only it is another answer."""
    path = f"{ROOT}/namespaces/db/tables/t"
    first = app.get(path)
    refs = app.get(path, params={"snapshots": "refs"})
    assert app.post("/v1/namespaces/db/tables/t/commits", json={"properties": {"k": "v"}}).status_code == 200
    second = app.get(path)
    refs_now = app.get(path, params={"snapshots": "refs"})
    assert len({first.headers["etag"], second.headers["etag"], refs_now.headers["etag"]}) == 3
    assert [len(each.json()["metadata"]["snapshots"]) for each in (first, refs, second, refs_now)] == [1, 1, 2, 1]
    again = app.get(path, headers={"If-None-Match": second.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")
    assert app.get(path, headers={"If-None-Match": first.headers["etag"]}).status_code == 200
    assert error(app.get(path, params={"snapshots": "some"})) == (400, "BadRequestException")


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["uint8", "uint32", "uint64", "timestamp(ns)", "timestamp(ms)", "interval"])
def test_a_table_that_iceberg_cannot_say_is_refused(app: AppClient, kind: str) -> None:
    """Neither loaded nor planned, since its clients would read other values; the text names the column."""
    table(app, "strange", [*LONG, {"name": "odd", "type": kind}])
    path = f"{ROOT}/namespaces/db/tables/strange"
    for answer in (app.get(path), app.post(f"{path}/plan", json={})):
        assert error(answer) == (406, "UnsupportedOperationException")
        assert "odd" in answer.json()["error"]["message"]


def test_a_name_of_two_columns_leaves_the_current_snapshot(app: AppClient) -> None:
    """No mapping tells files of before from those of now; the snapshot of now has none of before, and is read."""
    table(app, "reused", [*LONG, {"name": "b", "type": "int64"}])
    for change in ({"change": "drop", "column": "b"}, {"change": "add", "name": "b", "type": "string"}):
        answer = app.post("/v1/namespaces/db/tables/reused/schema", json={"changes": [change]})
        assert answer.status_code == 200, answer.text
    path = f"{ROOT}/namespaces/db/tables/reused"
    metadata = app.get(path).json()["metadata"]
    assert [each["snapshot-id"] for each in metadata["snapshots"]] == [3]
    assert app.post(f"{path}/plan", json={}).status_code == 200
    assert error(app.post(f"{path}/plan", json={"snapshot-id": 1})) == (406, "UnsupportedOperationException")


def test_every_snapshot_has_the_schema_that_it_had(app: AppClient) -> None:
    """Through many changes, in any number of snapshots between them, and a rollback."""
    path = "/v1/namespaces/db/tables/t"
    wanted = [0]
    for at in range(1, 9):
        change = {"changes": [{"change": "add", "name": f"c{at}", "type": "int64"}]}
        answer = app.post(f"{path}/schema", json=change)
        wanted.append(answer.json()["schema"]["schema_id"])
        for _ in range(at % 4):
            assert app.post(f"{path}/commits", json={"properties": {"k": str(len(wanted))}}).status_code == 200
            wanted.append(wanted[-1])
    metadata = app.get(f"{ROOT}/namespaces/db/tables/t").json()["metadata"]
    assert [each["schema-id"] for each in metadata["snapshots"]] == wanted
    assert {each["schema-id"] for each in metadata["schemas"]} == set(wanted)


def test_what_the_service_does_not_have_is_refused_by_the_rules(app: AppClient) -> None:
    """With 406, by which Iceberg says that a service does not do that."""
    signed = app.post(f"{ROOT}/namespaces/db/tables", json={})
    assert error(signed) == (400, "BadRequestException")
    assert error(app.request("DELETE", f"{ROOT}/config")) == (406, "UnsupportedOperationException")
    assert error(app.get(f"{ROOT}/nothing")) == (404, "NotFoundException")


def test_a_key_sees_what_it_may_read(guarded: AppClient) -> None:
    """Other tables are not there, word for word; without a key nothing is answered."""
    key = guarded.post("/v1/keys", json={"name": "k", "grants": [{"role": "read", "namespace": "db", "table": "t"}]})
    mine = {"Authorization": f"Bearer {key.json()['key']}"}
    assert guarded.get(f"{ROOT}/namespaces", headers=mine).json() == {"namespaces": [["db"]]}
    listed = guarded.get(f"{ROOT}/namespaces/db/tables", headers=mine).json()["identifiers"]
    assert [each["name"] for each in listed] == ["t"]
    seen = guarded.get(f"{ROOT}/namespaces/db/tables/u", headers=mine)
    missing = guarded.get(f"{ROOT}/namespaces/db/tables/v", headers=mine)
    assert error(seen) == error(missing) == (404, "NoSuchTableException")
    assert seen.json()["error"]["message"].replace("db.u", "db.v") == missing.json()["error"]["message"]
    assert error(guarded.get(f"{ROOT}/config", headers={"Authorization": "Bearer no"})) == (
        401,
        "NotAuthorizedException",
    )


def test_client_credentials_are_a_key(guarded: AppClient) -> None:
    """The token is as good as the key and ends with it; a wrong one is refused as OAuth2 has it."""
    made = guarded.post("/v1/keys", json={"name": "k", "grants": [{"role": "read"}], "expires_s": 3_600}).json()
    form = {"grant_type": "client_credentials", "client_id": "k", "client_secret": made["key"], "scope": "catalog"}
    path = f"{ROOT}/oauth/tokens"
    answer = guarded.post(path, data=form, headers={"Authorization": ""})
    assert answer.status_code == 200, answer.text
    token = answer.json()
    assert (token["token_type"], answer.headers["cache-control"]) == ("bearer", "no-store")
    assert 3_000 < token["expires_in"] <= 3_600
    shown = {"Authorization": f"Bearer {token['access_token']}"}
    assert guarded.get(f"{ROOT}/config", headers=shown).status_code == 200
    exchange = {
        "grant_type": "urn:ietf:params:oauth:grant-type:token-exchange",
        "subject_token": token["access_token"],
        "subject_token_type": "urn:ietf:params:oauth:token-type:access_token",
    }
    assert guarded.post(path, data=exchange).json()["access_token"] == token["access_token"]
    basic = base64.b64encode(f"k:{made['key']}".encode()).decode()
    named = {"Authorization": f"Basic {basic}"}
    assert guarded.post(path, data={"grant_type": "client_credentials"}, headers=named).status_code == 200
    for data, status, name in (
        ({**form, "client_secret": "wrong"}, 401, "invalid_client"),
        ({"grant_type": "client_credentials"}, 400, "invalid_request"),
        ({"grant_type": "password"}, 400, "unsupported_grant_type"),
    ):
        refused = guarded.post(path, data=data, headers={"Authorization": ""})
        assert (refused.status_code, refused.json()["error"]) == (status, name)
    twice = guarded.post(path, content="grant_type=a&grant_type=b", headers=FORM)
    assert (twice.status_code, twice.json()["error"]) == (400, "invalid_request")
    assert guarded.post(path, json=form).json()["error"] == "invalid_request"


def test_properties_for_clients_are_no_secrets(tmp_path: Path) -> None:
    """They are sent with each table; a name of a secret keeps the service from starting."""
    public = Settings(warehouse=str(tmp_path / "w"), iceberg_properties={"s3.endpoint": "https://s3.test"})
    with AppClient(create_app(public)) as app:
        assert app.post("/v1/namespaces", json={"name": "db"}).status_code == 201
        table(app, "t", LONG)
        loaded = app.get(f"{ROOT}/namespaces/db/tables/t").json()
        assert loaded["config"]["s3.endpoint"] == "https://s3.test"
        assert app.get(f"{ROOT}/namespaces/db/tables/t/credentials").json() == {"storage-credentials": []}
    for name in (
        "s3.secret-access-key",
        "s3.access-key-id",
        "s3.session-token",
        "adls.account-key",
        "adls.connection-string",
    ):
        with pytest.raises(InvalidRequest, match="secrets"):
            create_app(Settings(warehouse=str(tmp_path / "w"), iceberg_properties={name: "x"}))
