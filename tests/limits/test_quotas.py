"""Quotas: what is beyond them is refused, also when many ask at once through several processes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx2
import pytest

from fixtures_server import ServerProcess, StartServer
from lamella.service.catalog.quotas import NO_QUOTAS, Quotas, check_quotas
from lamella.service.tables.tables import Tables
from lamella.snapshot.errors import InvalidRequest, QuotaExceeded
from lamella.snapshot.storage import FsspecStore
from support.own_app import COLUMNS, NewOwn, OwnApp
from support.race import TABLE
from support.service_api import Api, World, read_problem
from support.tenants import Tenants

BACKENDS = ("sqlite", pytest.param("postgres", marks=pytest.mark.postgres))


@pytest.fixture(params=BACKENDS)
def catalog(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The address of an empty catalog."""
    if request.param == "sqlite":
        return str(tmp_path / "catalog.db")
    return str(request.getfixturevalue("postgres_database"))


@pytest.fixture
def own(tmp_path: Path) -> Iterator[NewOwn]:
    """Makes an app with a table, by settings."""
    with ExitStack() as opened:
        yield lambda **settings: OwnApp(tmp_path, opened, **settings)


def refused(answer: httpx2.Response, limit: str, maximum: int, used: int) -> None:
    """It was refused for that quota."""
    problem = read_problem(answer)
    assert (problem.status, problem.code) == (409, "quota_exceeded")
    assert problem.details == {"limit": limit, "maximum": maximum, "used": used}


def append(app: OwnApp, count: int, table: str = TABLE) -> httpx2.Response:
    """The answer to a commit of so many blocks of one byte."""
    added = [{"location": each.location, "row_count": 1, "file_size": 1} for each in app.blocks(count)]
    answer: httpx2.Response = app.app.post(f"{table}/commits", json={"added": added})
    return answer


def test_no_table_gets_more_blocks_than_one_may_have(own: NewOwn) -> None:
    """What fits is taken, what does not is refused and leaves the table as it was."""
    app = own(quota_table_blocks=5)
    assert append(app, 4).status_code == 200
    before = app.info()
    refused(append(app, 2), "quota_table_blocks", 5, 6)
    assert app.info() == before
    assert append(app, 1).status_code == 200
    refused(append(app, 1), "quota_table_blocks", 5, 6)


def test_blocks_and_bytes_count_over_all_tables_of_a_namespace(own: NewOwn) -> None:
    """Those of the current snapshots; tables of other namespaces, and dropped ones, do not count."""
    app = own(quota_blocks=6, quota_bytes=8)
    other = TABLE.rpartition("/")[0] + "/other"
    assert app.app.post(TABLE.rpartition("/")[0], json={"name": "other", "schema": COLUMNS}).status_code == 201
    assert append(app, 4).status_code == 200
    refused(append(app, 3, other), "quota_blocks", 6, 7)
    assert append(app, 2, other).status_code == 200
    use = app.app.get("/v1/namespaces/db/quota").json()
    assert use == {
        "tables": {"used": 2, "maximum": None},
        "blocks": {"used": 6, "maximum": 6},
        "bytes": {"used": 6, "maximum": 8},
    }
    assert app.app.post("/v1/namespaces", json={"name": "db2"}).status_code == 201
    assert app.app.post("/v1/namespaces/db2/tables", json={"name": "t", "schema": COLUMNS}).status_code == 201
    assert append(app, 6, "/v1/namespaces/db2/tables/t").status_code == 200
    assert app.app.delete(other).status_code == 204
    assert append(app, 2).status_code == 200
    undropped = app.app.post("/v1/namespaces/db/undrop", json={"name": "other"})
    refused(undropped, "quota_blocks", 6, 8)


def test_what_makes_a_table_smaller_is_never_refused(own: NewOwn) -> None:
    """A quota that came later than the blocks keeps nobody from removing them, or putting fewer in their place."""
    app = own(root_key_sha256=None)
    assert append(app, 6).status_code == 200
    set_quota = {"set": {"lamella.quota.blocks": "3"}}
    assert app.app.post("/v1/namespaces/db/properties", json=set_quota).status_code == 200
    refused(append(app, 1), "quota_blocks", 3, 7)
    blocks = [block["location"] for block in app.app.post(f"{TABLE}/prune", json={}).json()["blocks"]]
    info = app.info()
    added = [{"location": each.location, "row_count": 1, "file_size": 1} for each in app.blocks(1)]
    body = {"added": added, "removed": blocks[:2], "base_snapshot_id": info["snapshot_id"], "operation": "compact"}
    assert app.app.post(f"{TABLE}/commits", json=body).status_code == 200
    body = {"removed": blocks[2:], "base_snapshot_id": info["snapshot_id"], "operation": "delete"}
    assert app.app.post(f"{TABLE}/commits", json=body).status_code == 200
    assert append(app, 2).status_code == 200
    refused(append(app, 1), "quota_blocks", 3, 4)


def test_a_quota_that_is_reached_lets_nothing_be_written(own: NewOwn) -> None:
    """Once a table is known to be full, appends are refused before any object of theirs is written."""
    app = own(quota_table_blocks=1)
    assert append(app, 1).status_code == 200
    refused(append(app, 1), "quota_table_blocks", 1, 2)
    written: list[str] = []
    app.before = written.append
    for _ in range(3):
        refused(append(app, 1), "quota_table_blocks", 1, 2)
    assert written == []


def test_tables_and_namespaces_have_quotas(own: NewOwn) -> None:
    """The namespace's own goes before the one of the settings, larger or smaller."""
    app = own(quota_tables=1, quota_namespaces=2)
    tables = "/v1/namespaces/db/tables"
    refused(app.app.post(tables, json={"name": "u", "schema": COLUMNS}), "quota_tables", 1, 2)
    larger = {"set": {"lamella.quota.tables": "2"}}
    assert app.app.post("/v1/namespaces/db/properties", json=larger).status_code == 200
    assert app.app.post(tables, json={"name": "u", "schema": COLUMNS}).status_code == 201
    refused(app.app.post(tables, json={"name": "v", "schema": COLUMNS}), "quota_tables", 2, 3)
    body = {"name": "db2", "properties": {"lamella.quota.tables": "0"}}
    assert app.app.post("/v1/namespaces", json=body).status_code == 201
    refused(app.app.post("/v1/namespaces/db2/tables", json={"name": "u", "schema": COLUMNS}), "quota_tables", 0, 1)
    refused(app.app.post("/v1/namespaces", json={"name": "db3"}), "quota_namespaces", 2, 3)
    assert app.app.delete("/v1/namespaces/db2").status_code == 204
    assert app.app.post("/v1/namespaces", json={"name": "db3"}).status_code == 201


def test_a_table_has_so_many_leases_at_a_time(own: NewOwn) -> None:
    """One more is refused until one ends."""
    app = own(quota_table_leases=2)
    body = {"ttl_s": 60, "owner": "t"}
    assert append(app, 1).status_code == 200
    taken = [app.app.post(f"{TABLE}/leases", json=body).json()["lease_id"] for _ in range(2)]
    refused(app.app.post(f"{TABLE}/leases", json=body), "quota_table_leases", 2, 3)
    app.app.delete(f"{TABLE}/leases/{taken[0]}")
    assert app.app.post(f"{TABLE}/leases", json=body).status_code == 201


def test_what_exists_is_said_to_exist_at_a_full_quota(own: NewOwn, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever makes it once more learns that it is there, also where another one made it at that moment."""
    app = own(quota_tables=1, quota_namespaces=1)
    again = read_problem(app.app.post("/v1/namespaces", json={"name": "db"}))
    assert (again.status, again.code) == (409, "already_exists")
    monkeypatch.setattr(Tables, "_refuse_existing", lambda *_: None)  # as if it had not been there yet
    name = TABLE.rpartition("/")[2]
    again = read_problem(app.app.post("/v1/namespaces/db/tables", json={"name": name, "schema": COLUMNS}))
    assert (again.status, again.code) == (409, "already_exists")


@pytest.mark.parametrize(
    "properties", [{"lamella.quota.rows": "1"}, {"lamella.quota.tables": "-1"}, {"lamella.quota.bytes": "1e9"}]
)
def test_a_quota_that_is_none_is_refused(own: NewOwn, properties: dict[str, str]) -> None:
    """An unknown one, or one that is no number, when a namespace is made and later."""
    app = own()
    for path, body in (
        ("/v1/namespaces", {"name": "x", "properties": properties}),
        ("/v1/namespaces/db/properties", {"set": properties}),
    ):
        problem = read_problem(app.app.post(path, json=body))
        assert (problem.status, problem.code) == (400, "invalid_request")
        assert problem.details == {"property": next(iter(properties))}


def test_properties_of_a_namespace_are_set_and_removed_one_by_one(own: NewOwn) -> None:
    """Others stay as they are; the same request with the same key is answered the same and does nothing again."""
    app = own()
    path, key = "/v1/namespaces/db/properties", {"Idempotency-Key": "k1"}
    first = app.app.post(path, json={"set": {"a": "1", "b": "2"}}, headers=key)
    assert first.json() == {"name": "db", "properties": {"a": "1", "b": "2"}}
    second = app.app.post(path, json={"set": {"b": "3", "c": "4"}, "remove": ["a", "none"]})
    assert second.json()["properties"] == {"b": "3", "c": "4"}
    again = app.app.post(path, json={"set": {"a": "1", "b": "2"}}, headers=key)
    assert (again.json(), again.headers["idempotency-replayed"]) == (first.json(), "true")
    assert app.app.get("/v1/namespaces/db").json()["properties"] == {"b": "3", "c": "4"}
    for body in ({}, {"set": {"a": "1"}, "remove": ["a"]}):
        assert read_problem(app.app.post(path, json=body)).code == "invalid_request"
    assert read_problem(app.app.post("/v1/namespaces/no/properties", json={"remove": ["a"]})).status == 404
    many = {"set": {f"p{number}": "" for number in range(999)}}
    assert read_problem(app.app.post(path, json=many)).details == {"limit": "properties", "maximum": 1000}


def test_only_an_admin_of_everything_sets_quotas(tmp_path: Path) -> None:
    """Who looks after a namespace sets its other properties; who reads in it sees how much there is."""
    with Tenants(tmp_path) as tenants:
        keeper = tenants.asker({"role": "admin", "namespace": "north"})
        reader = tenants.asker({"role": "read", "namespace": "north"})
        path, quota = "/v1/namespaces/north/properties", {"lamella.quota.tables": "1"}
        assert keeper.send("POST", path, {"set": {"team": "a"}}).status_code == 200
        for body in ({"set": quota}, {"remove": ["lamella.quota.tables"]}, {"set": {"team": "b", **quota}}):
            answer = keeper.send("POST", path, body)
            assert (answer.status_code, answer.json()["code"]) == (403, "permission_denied")
        assert reader.send("POST", path, {"set": {"team": "c"}}).status_code == 403
        assert tenants.root.call("POST", path, {"set": quota})["properties"]["team"] == "a"
        assert reader.call("GET", "/v1/namespaces/north/quota")["tables"] == {"used": 0, "maximum": 1}
        assert reader.send("GET", "/v1/namespaces/south/quota").status_code == 404
        namer = tenants.asker({"role": "maintain"})
        made = namer.send("POST", "/v1/namespaces", {"name": "west", "properties": quota})
        assert (made.status_code, made.json()["code"]) == (403, "permission_denied")


def test_concurrent_changes_of_properties_are_all_there(own: NewOwn) -> None:
    """Twenty that each set one."""
    app = own()
    with ThreadPoolExecutor(20) as pool:
        bodies = [{"set": {f"p{number}": str(number)}} for number in range(20)]
        answers = list(pool.map(lambda body: app.app.post("/v1/namespaces/db/properties", json=body), bodies))
    assert {answer.status_code for answer in answers} <= {200, 503}
    done = [body["set"] for body, answer in zip(bodies, answers, strict=True) if answer.status_code == 200]
    assert len(done) >= 10
    assert app.app.get("/v1/namespaces/db").json()["properties"] == {k: v for each in done for k, v in each.items()}


def two_services(start_server: StartServer, folder: Path, catalog: str, **settings: Any) -> list[ServerProcess]:
    """Two processes with the same catalog."""
    return [start_server(warehouse=folder / "warehouse", catalog=catalog, **settings) for _ in range(2)]


def test_concurrent_commits_reach_a_quota_and_never_pass_it(
    start_server: StartServer, tmp_path: Path, catalog: str
) -> None:
    """Through two processes, to three tables of a namespace: as many blocks land as there may be, and not one more."""
    servers = two_services(start_server, tmp_path, catalog)
    store = FsspecStore()
    with ExitStack() as opened:
        worlds = [opened.enter_context(World(each.url, f"file://{tmp_path}/data", store)) for each in servers]
        api = worlds[0].api
        api.call("POST", "/v1/namespaces", {"name": "n", "properties": {"lamella.quota.blocks": "40"}}, expect=201)
        for name in "abc":
            schema = [{"name": "a", "type": "int64"}, {"name": "s", "type": "string"}]
            api.call("POST", "/v1/namespaces/n/tables", {"name": name, "schema": schema}, expect=201)
        files = worlds[0].numbers(f"file://{tmp_path}/data", 66)

        def add(number: int) -> httpx2.Response:
            table = f"/v1/namespaces/n/tables/{'abc'[number % 3]}"
            return worlds[number % 2].api.send(
                "POST", f"{table}/register", {"paths": [files[number]]}, key=f"k{number}"
            )

        with ThreadPoolExecutor(22) as pool:
            answers = list(pool.map(add, range(66)))
        assert Counter(answer.status_code for answer in answers) == {200: 40, 409: 26}
        for answer in answers:
            if answer.status_code == 409:
                assert read_problem(answer).details == {"limit": "quota_blocks", "maximum": 40, "used": 41}
        counts = [api.call("GET", f"/v1/namespaces/n/tables/{name}")["block_count"] for name in "abc"]
        assert sum(counts) == 40
        assert api.call("GET", "/v1/namespaces/n/quota")["blocks"] == {"used": 40, "maximum": 40}
        # What was answered once is answered so again, although there is room by now.
        api.call("DELETE", "/v1/namespaces/n/tables/a", expect=204)
        assert [add(number).status_code for number in range(66)] == [answer.status_code for answer in answers]


def test_concurrent_creations_reach_a_quota_and_never_pass_it(
    start_server: StartServer, tmp_path: Path, catalog: str
) -> None:
    """Tables of one namespace, and namespaces, through two processes."""
    servers = two_services(start_server, tmp_path, catalog, quota_tables=7, quota_namespaces=4)
    apis = [Api(server.url) for server in servers]
    apis[0].call("POST", "/v1/namespaces", {"name": "n"}, expect=201)

    def make_table(number: int) -> int:
        body = {"name": f"t{number}", "schema": [{"name": "a", "type": "int64"}]}
        return apis[number % 2].send("POST", "/v1/namespaces/n/tables", body).status_code

    def make_namespace(number: int) -> int:
        return apis[number % 2].send("POST", "/v1/namespaces", {"name": f"n{number}"}).status_code

    with ThreadPoolExecutor(20) as pool:
        assert Counter(pool.map(make_table, range(30))) == {201: 7, 409: 23}
        assert Counter(pool.map(make_namespace, range(20))) == {201: 3, 409: 17}
    assert len(apis[0].call("GET", "/v1/namespaces/n/tables")["tables"]) == 7
    assert len(apis[1].call("GET", "/v1/namespaces")["namespaces"]) == 4
    for api in apis:
        api.close()


def test_quotas_of_a_namespace_replace_the_others() -> None:
    """Those that it does not have stay; a quota that cannot be is told of."""
    every = Quotas(tables=1, blocks=2, bytes=3, table_blocks=4)
    assert every.within({}) is every
    assert every.within({"lamella.quota.blocks": "9", "x": "y"}) == Quotas(tables=1, blocks=9, bytes=3, table_blocks=4)
    assert not NO_QUOTAS.bounds_commits
    assert NO_QUOTAS.within({"lamella.quota.bytes": "0"}).bounds_commits
    check_quotas({"lamella.quota.bytes": str((1 << 63) - 1), "other": "text"})
    with pytest.raises(InvalidRequest):
        check_quotas({"lamella.quota.bytes": str(1 << 63)})
    with pytest.raises(QuotaExceeded):
        every.check("blocks", 3)
    every.check("blocks", 3, before=3)
