"""Two replicas over one PostgreSQL catalog: what one has answered, the other knows."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from fixtures_server import StartServer
from lamella.snapshot.storage import FsspecStore
from support.service_api import Api, TableApi, World

pytestmark = pytest.mark.postgres

#: A column and its text, as :meth:`World.numbers` writes them.
FILTERS = (None, "a < 25", "a >= 10 AND s <> 'v000012'", "a IS NULL")


@pytest.fixture
def replicas(start_server: StartServer, tmp_path: Path, postgres_database: str) -> Iterator[tuple[World, list[Api]]]:
    """Two services, each with a connection that is kept, and a folder for files."""
    servers = [start_server(warehouse=tmp_path / "warehouse", catalog=postgres_database) for _ in range(2)]
    with World(servers[0].url, f"file://{tmp_path}/data", FsspecStore()) as world:
        apis = [Api(server.url) for server in servers]
        yield world, apis
        for api in apis:
            api.close()


def test_what_one_replica_answered_the_other_serves_at_once(replicas: tuple[World, list[Api]]) -> None:
    """Commits, removals, properties, roll backs, drops and returns, under other names too: the very next request to the
    other replica has it, in tables, histories, prunes and by entity tags, whatever it had answered before."""
    world, apis = replicas
    table = world.table()
    files = world.numbers(world.folder(), 60, rows=4)
    at = [TableApi(api, table.namespace, "t") for api in apis]
    draw = random.Random(9)
    there: list[str] = []
    etags: list[str | None] = [None, None]
    snapshots = [table.info()["snapshot_id"]]
    for turn in range(40):
        writer = draw.randrange(2)
        reader = 1 - writer
        _fill_caches(at[reader])
        what = draw.choice(["register", "register", "remove", "property", "rollback", "drop"])
        if what == "remove" and there:
            gone = draw.choice(there)
            base = at[writer].info()["snapshot_id"]
            at[writer].commit(removed=[gone], base_snapshot_id=base)
            there.remove(gone)
        elif what == "property":
            at[writer].commit(properties={"turn": str(turn)})
            assert at[reader].info()["properties"]["turn"] == str(turn)
        elif what == "rollback" and set(snapshots) - {snapshots[-1]}:
            earlier = draw.choice([each for each in snapshots if each != snapshots[-1]])
            apis[writer].call("POST", f"{at[writer].path}/rollback", {"snapshot_id": earlier})
            there = [block["location"] for block in at[writer].prune()["blocks"]]
        elif what == "drop":
            apis[writer].call("DELETE", at[writer].path, expect=204)
            assert apis[reader].problem("GET", at[reader].path).code == "table_not_found"
            assert apis[reader].problem("POST", f"{at[reader].path}/prune", {"filter": None}).code == "table_not_found"
            name = "t" if at[0].name == "u" else "u"
            apis[writer].call("POST", f"/v1/namespaces/{table.namespace}/undrop", {"name": at[0].name, "as": name})
            assert apis[reader].problem("GET", at[reader].path).code == "table_not_found"
            at = [TableApi(api, table.namespace, name) for api in apis]
        else:
            file = files.pop()
            at[writer].register(file)
            there.append(file)
        info = at[writer].info()
        snapshots.append(info["snapshot_id"])
        assert at[reader].info() == info
        assert sorted(at[reader].locations()) == sorted(there)
        assert at[reader].history(page_size=5)[0]["snapshot_id"] == info["snapshot_id"]
        for filter in FILTERS:
            assert at[reader].prune(filter)["blocks"] == at[writer].prune(filter)["blocks"]
        etags[reader] = _revalidated(apis[reader], at[reader].path, etags[reader], what)


def _fill_caches(table: TableApi) -> None:
    """Ask for what a replica may keep."""
    for filter in FILTERS:
        table.prune(filter)
    table.info()


def _revalidated(api: Api, path: str, etag: str | None, what: str) -> str:
    """An entity tag from before a change does not hold after it; one from after it does."""
    if etag is not None:
        answer = api.http.get(path, headers={"If-None-Match": etag})
        assert answer.status_code == 200, what
    now = api.http.get(path).headers["etag"]
    assert api.http.get(path, headers={"If-None-Match": now}).status_code == 304
    return str(now)


def test_namespaces_and_tags_are_the_same_on_both(replicas: tuple[World, list[Api]]) -> None:
    """Made, moved and dropped on one, known on the other with the next request."""
    world, apis = replicas
    table = world.table()
    for turn in range(10):
        writer, reader = apis[turn % 2], apis[1 - turn % 2]
        writer.call("POST", "/v1/namespaces", {"name": f"n{turn}"}, expect=201)
        assert reader.call("GET", f"/v1/namespaces/n{turn}")["name"] == f"n{turn}"
        assert reader.problem("POST", "/v1/namespaces", {"name": f"n{turn}"}).code == "already_exists"
        snapshot_id = TableApi(writer, table.namespace, "t").commit(properties={"turn": str(turn)})["snapshot_id"]
        body: dict[str, Any] = {"name": "latest", "move": turn > 0}
        writer.call("POST", f"{table.path}/tags", body, expect=200 if turn else 201)
        pruned = TableApi(reader, table.namespace, "t").prune(None, snapshot_id="latest")
        assert pruned["snapshot_id"] == snapshot_id
        writer.call("DELETE", f"/v1/namespaces/n{turn}", expect=204)
        assert reader.problem("GET", f"/v1/namespaces/n{turn}").code == "namespace_not_found"


def test_a_reader_of_one_replica_never_goes_back(replicas: tuple[World, list[Api]]) -> None:
    """While the other commits, a reader sees each answer's snapshot or a later one, and never one older than what had
    been answered when it asked."""
    world, apis = replicas
    table = world.table()
    files = world.numbers(world.folder(), 40, rows=1)
    answered = 0
    over = threading.Event()
    wrong: list[str] = []
    reads = 0

    def read() -> None:
        nonlocal reads
        seen = 0
        reader = TableApi(apis[1], table.namespace, "t")
        while not over.is_set():
            before = answered
            count = len(reader.locations())
            if count < before or count < seen:
                wrong.append(f"{count} blocks after {before} were answered and {seen} seen")
            seen = count
            reads += 1

    thread = threading.Thread(target=read)
    thread.start()
    writer = TableApi(apis[0], table.namespace, "t")
    try:
        for file in files:
            writer.register(file)
            answered += 1
    finally:
        over.set()
        thread.join()
    assert wrong == []
    assert reads > 0


def test_a_page_of_one_replica_is_followed_by_a_page_of_the_other(replicas: tuple[World, list[Api]]) -> None:
    """Tokens are signed with what replicas share; all pages are of one snapshot, whatever is committed between them."""
    world, apis = replicas
    table = world.table()
    files = world.numbers(world.folder(), 12, rows=1)
    table.register(*files[:10])
    found: list[str] = []
    token = None
    for turn in range(20):
        body = {"filter": None, "page_size": 3, "page_token": token}
        page = apis[turn % 2].call("POST", f"{table.path}/prune", body)
        found += [block["location"] for block in page["blocks"]]
        token = page["next_page_token"]
        if token is None:
            break
        if turn == 0:
            TableApi(apis[0], table.namespace, "t").register(*files[10:])
    assert sorted(found) == sorted(files[:10])


def test_a_replica_that_ends_leaves_its_work_to_the_other(
    start_server: StartServer, tmp_path: Path, postgres_database: str
) -> None:
    """A rolling restart: one drains and ends while the other goes on with the same table, and none of the requests that
    were answered is lost."""
    servers = [start_server(warehouse=tmp_path / "warehouse", catalog=postgres_database) for _ in range(2)]
    with World(servers[0].url, f"file://{tmp_path}/data", FsspecStore()) as world:
        table = world.table()
        files = world.numbers(world.folder(), 9, rows=1)
        for turn in range(3):
            for server, file in zip([*servers, servers[turn % 2]], files[3 * turn : 3 * turn + 3], strict=True):
                answer = httpx2.post(f"{server.url}{table.path}/register", json={"paths": [file]}, timeout=300)
                assert answer.status_code == 200, answer.text
            assert servers[turn % 2].stop() == 0
            servers[turn % 2].restart()
        for server in servers:
            assert httpx2.get(f"{server.url}{table.path}", timeout=300).json()["block_count"] == 9
