"""Idempotency keys: what is asked for twice happens once, and is answered the same."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx2
import pytest
import sqlalchemy as sa

from lamella.service.app import create_app
from lamella.service.catalog import SqlCatalog, StoredAnswer, open_catalog
from lamella.service.config.settings import Settings
from lamella.snapshot.errors import OutcomeUnknown
from support.app_client import AppClient
from support.service_api import World, fresh_name, read_problem


def is_replay(response: httpx2.Response) -> bool:
    """Whether an answer says that it is one that was stored."""
    return response.headers.get("idempotency-replayed") == "true"


def test_a_registration_is_replayed_by_its_key(world: World) -> None:
    """The same key and request answer what they answered, even when the table has moved on; one snapshot is made."""
    table, folder = world.table(), world.folder()
    world.numbers(folder, 3)
    path, body = f"{table.path}/register", {"paths": [folder]}
    first = world.api.send("POST", path, body, key="only-once")
    assert (first.status_code, is_replay(first)) == (200, False)
    table.register(world.put(f"{world.folder()}/more.parquet", a=[1], s=["x"]))
    again = world.api.send("POST", path, body, key="only-once")
    assert (again.status_code, is_replay(again)) == (200, True)
    assert again.content == first.content
    assert again.headers["content-type"] == first.headers["content-type"] == "application/json"
    assert len(table.history()) == 3


def test_a_commit_is_replayed_by_its_key(world: World) -> None:
    """A removal that was made is not a conflict when its request is repeated."""
    table, folder = world.table(), world.folder()
    files = world.numbers(folder, 2)
    table.register(folder)
    answers = [table.commit(removed=files[:1], key="k") for _ in range(3)]
    assert answers[0] == answers[1] == answers[2]
    assert len(table.history()) == 3


def test_namespaces_and_tables_are_created_and_dropped_once_by_key(world: World) -> None:
    """Every mutation takes a key; answers without a body are replayed without one."""
    name = fresh_name("ns")
    table = {"name": "t", "schema": [{"name": "x", "type": "int"}]}
    steps: list[tuple[str, str, Any, int]] = [
        ("POST", "/v1/namespaces", {"name": name}, 201),
        ("POST", f"/v1/namespaces/{name}/tables", table, 201),
        ("DELETE", f"/v1/namespaces/{name}/tables/t", None, 204),
        ("DELETE", f"/v1/namespaces/{name}", None, 204),
    ]
    for method, path, body, status in steps:
        first, again = (world.api.send(method, path, body, key=f"key of {name}") for _ in range(2))
        assert (first.status_code, is_replay(first)) == (status, False)
        assert (again.status_code, is_replay(again)) == (status, True)
        assert again.content == first.content


def test_a_key_belongs_to_one_request(world: World) -> None:
    """With another body it is a 409 and does nothing; at another path it is another key."""
    first, second = fresh_name("ns"), fresh_name("ns")
    world.api.call("POST", "/v1/namespaces", {"name": first}, key="key of one", expect=201)
    problem = world.api.problem("POST", "/v1/namespaces", {"name": second}, key="key of one")
    assert (problem.status, problem.code) == (409, "idempotency_mismatch")
    assert world.api.problem("GET", f"/v1/namespaces/{second}").code == "namespace_not_found"
    body = {"name": "t", "schema": [{"name": "x", "type": "int"}]}
    world.api.call("POST", f"/v1/namespaces/{first}/tables", body, key="key of one", expect=201)


def test_a_request_that_failed_can_be_repeated_with_its_key(world: World) -> None:
    """What storage decided is not stored: a file that was missing may be there the next time."""
    table, location = world.table(), f"{world.folder()}/late.parquet"
    body = {"paths": [location]}
    assert world.api.problem("POST", f"{table.path}/register", body, key="k").code == "blocks_refused"
    world.put(location, a=[1], s=["x"])
    assert table.register(location, key="k")["registered"] == 1


def test_a_conflict_stays_one(world: World) -> None:
    """What the table decided is answered the same for ever, byte for byte, even when it could succeed by now."""
    table, folder = world.table(), world.folder()
    files = world.numbers(folder, 2)
    table.register(files[0])
    table.commit(removed=[files[0]])
    namespace = table.namespace
    schema = [{"name": "x", "type": "int"}]
    added = {"location": files[1], "row_count": 10, "file_size": 0}
    table.register(files[1])
    refused: list[tuple[str, str, Any, str]] = [
        ("POST", f"{table.path}/commits", {"removed": files[:1]}, "commit_conflict"),
        ("POST", f"{table.path}/commits", {"added": [added]}, "duplicate_block"),
        ("POST", f"{table.path}/register", {"paths": files[1:]}, "duplicate_block"),
        ("POST", f"{table.path}/schema", {"changes": [{"change": "drop", "column": "q"}]}, "unknown_column"),
        ("POST", f"/v1/namespaces/{namespace}/tables", {"name": "t", "schema": schema}, "already_exists"),
        ("POST", f"/v1/namespaces/{namespace}/tables/u/commits", {"removed": files}, "table_not_found"),
        ("DELETE", f"/v1/namespaces/{namespace}/tables/u", None, "table_not_found"),
        ("DELETE", f"/v1/namespaces/{namespace}", None, "namespace_not_empty"),
    ]
    answers = []
    for number, (method, path, body, code) in enumerate(refused):
        answers.append(world.api.send(method, path, body, key=f"no {number}"))
        assert (read_problem(answers[-1]).code, is_replay(answers[-1])) == (code, False)
    table.register(files[0], take_replaced=True)
    table.commit(removed=files[1:])
    add = {"changes": [{"change": "add", "name": "q", "type": "string"}]}
    world.api.call("POST", f"{table.path}/schema", add)
    world.api.call("POST", f"/v1/namespaces/{namespace}/tables", {"name": "u", "schema": schema}, expect=201)
    history = table.history()
    for number, (method, path, body, _) in enumerate(refused):
        again, first = world.api.send(method, path, body, key=f"no {number}"), answers[number]
        assert (again.status_code, is_replay(again)) == (first.status_code, True)
        assert again.content == first.content
        assert again.headers["content-type"] == "application/problem+json"
    assert table.history() == history
    assert world.api.send("POST", f"{table.path}/commits", {"removed": files[:1]}, key="anew").status_code == 200


def test_how_long_keys_are_stored_can_be_queried(world: World) -> None:
    """`/v1/config` tells the lifetime of an answer, and the limits of a request."""
    config = world.api.call("GET", "/v1/config")
    defaults = Settings(warehouse="/w")
    assert config["idempotency_ttl_s"] == defaults.idempotency_ttl_s == 86_400
    assert config["max_body_bytes"] == defaults.max_body_bytes
    assert config["page_size_max"] == defaults.page_size_max
    assert config["version"]


def test_requests_with_one_key_at_once_are_answered_the_same(world: World) -> None:
    """Eight at the same moment: one is carried out, and the others get its answer, never a conflict with themselves."""
    table, folder = world.table(), world.folder()
    world.numbers(folder, 3)
    name = fresh_name("ns")
    requests: list[tuple[str, Any]] = [
        (f"{table.path}/register", {"paths": [folder]}),
        (f"{table.path}/commits", {"properties": {"k": "v"}, "operation": "set"}),
        ("/v1/namespaces", {"name": name}),
        (f"/v1/namespaces/{name}/tables", {"name": "t", "schema": [{"name": "x", "type": "int"}]}),
    ]
    for path, body in requests:
        with ThreadPoolExecutor(8) as pool:
            send = [pool.submit(world.api.send, "POST", path, body, key="at once") for _ in range(8)]
            answers = [future.result() for future in send]
        assert {answer.status_code for answer in answers} <= {200, 201}, [answer.text for answer in answers]
        assert len({answer.content for answer in answers}) == 1
        assert sum(not is_replay(answer) for answer in answers) == 1
    assert len(table.history()) == 3


@pytest.fixture
def lossy(postgres_database: str, tmp_path: Path) -> Iterator[tuple[AppClient, Callable[[], None], SqlCatalog]]:
    """An app whose database connection can be made to break right after a commit, before it is acknowledged."""
    catalog = open_catalog(postgres_database)
    engine = catalog._engine

    def commit_and_cut(connection: sa.Connection) -> None:
        driver = connection.connection.dbapi_connection
        assert driver is not None
        driver.commit()
        driver.close()

    app = create_app(Settings(warehouse=str(tmp_path / "w")), catalog=catalog)
    with AppClient(app) as client:
        yield client, lambda: sa.event.listen(engine, "commit", commit_and_cut, once=True), catalog
    catalog.close()


@pytest.mark.postgres
def test_a_commit_whose_acknowledgement_is_lost_is_found_by_its_key(
    lossy: tuple[AppClient, Callable[[], None], SqlCatalog],
) -> None:
    """The service looks the key up itself and answers as if nothing had happened."""
    client, lose_next_commit, catalog = lossy
    lose_next_commit()
    response = client.post("/v1/namespaces", json={"name": "a"}, headers={"Idempotency-Key": "k"})
    assert (response.status_code, response.json()["name"]) == (201, "a")
    assert [info.name for info in catalog.namespaces()] == ["a"]


@pytest.mark.postgres
def test_a_commit_whose_acknowledgement_is_lost_is_never_called_a_conflict(
    lossy: tuple[AppClient, Callable[[], None], SqlCatalog],
) -> None:
    """Without a key nobody can tell, and the answer says so: 503, `outcome_unknown`."""
    client, lose_next_commit, catalog = lossy
    lose_next_commit()
    problem = read_problem(client.post("/v1/namespaces", json={"name": "a"}))
    assert (problem.status, problem.code) == (503, "outcome_unknown")
    assert [info.name for info in catalog.namespaces()] == ["a"]


def test_a_conflict_that_cannot_be_stored_is_not_sent(tmp_path: Path) -> None:
    """The catalog fails between the conflict and its storing: 503 and nothing was done; asked again, it is decided."""

    class Failing(SqlCatalog):
        """Fails to store answers while it is told to."""

        fails = True

        def keep_answer(self, answer: StoredAnswer) -> None:
            if self.fails:
                raise OutcomeUnknown("the database went away in the commit")
            super().keep_answer(answer)

    opened = open_catalog(str(tmp_path / "c.db"))
    catalog = Failing(opened._engine)
    with AppClient(create_app(Settings(warehouse=str(tmp_path / "w")), catalog=catalog)) as client:
        client.post("/v1/namespaces", json={"name": "a"})
        headers = {"Idempotency-Key": "k"}
        problem = read_problem(client.post("/v1/namespaces", json={"name": "a"}, headers=headers))
        assert (problem.status, problem.code) == (503, "unavailable")
        catalog.fails = False
        problem = read_problem(client.post("/v1/namespaces", json={"name": "a"}, headers=headers))
        assert (problem.status, problem.code) == (409, "already_exists")


def test_answers_are_forgotten_when_their_time_is_over(tmp_path: Path) -> None:
    """After `idempotency_ttl_s` the key is free, and its row is gone."""
    now_ms = 1_700_000_000_000
    catalog = open_catalog(str(tmp_path / "c.db"))
    settings = Settings(warehouse=str(tmp_path / "w"), idempotency_ttl_s=3_600)
    app = create_app(settings, catalog=catalog, clock=lambda: now_ms)
    with AppClient(app) as client:
        headers = {"Idempotency-Key": "k"}
        assert client.post("/v1/namespaces", json={"name": "a"}, headers=headers).status_code == 201
        now_ms += 3_599_000
        client.post("/v1/namespaces", json={"name": "b"})
        assert catalog.answer("k", "POST /v1/namespaces") is not None
        now_ms += 601_000
        client.post("/v1/namespaces", json={"name": "c"})
        assert catalog.answer("k", "POST /v1/namespaces") is None


def test_old_answers_are_deleted_some_at_a_time(tmp_path: Path) -> None:
    """The oldest first, and no more than asked for, so that no transaction holds the database for long."""
    catalog = open_catalog(str(tmp_path / "c.db"))
    for number in range(5):
        catalog.keep_answer(
            StoredAnswer(
                key=f"k{number}", scope="s", request_sha256="0" * 64, status=409, body=b"", created_at_ms=100 + number
            )
        )
    assert catalog.forget_answers(before_ms=104, limit=3) == 3
    assert [catalog.answer(f"k{number}", "s") is not None for number in range(5)] == [False] * 3 + [True] * 2
    assert catalog.forget_answers(before_ms=104, limit=3) == 1
    assert catalog.answer("k4", "s") is not None
    catalog.close()
