"""Answers to prunes over HTTP in every form: JSON, Arrow, MessagePack, whole or in pieces, compressed or not."""

from __future__ import annotations

import http.client
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx2
import msgspec
import pyarrow as pa
import pytest

from fixtures_server import ServerProcess, StartServer
from lamella.client import Lamella
from lamella.service.catalog import open_catalog
from lamella.service.history.history import history_entry
from lamella.snapshot.manifest import Block
from lamella.snapshot.schema import Column, Schema
from lamella.snapshot.stats import ColumnStats, to_bound
from lamella.snapshot.storage import FsspecStore
from lamella.snapshot.warehouse import Warehouse
from lamella.snapshot.wire import PruneAnswer
from support.service_api import Api, read_problem

ARROW, PACK = "application/vnd.apache.arrow.stream", "application/vnd.msgpack"
BLOCKS = 15_000
EVERYTHING = "a >= 0"


class Big:
    """A service over a table of many blocks that were never written: column ``a`` counts on from block to block."""

    def __init__(self, server: ServerProcess, folder: Path, name: str = "a-file-with-a-long-name") -> None:
        self.url = server.url
        self.api = Api(server.url)
        self.path = "/v1/namespaces/db/tables/t"
        self.api.call("POST", "/v1/namespaces", {"name": "db"}, expect=201)
        columns = [Column(name="a", type="int64")]
        body = {"name": "t", "schema": msgspec.to_builtins(columns)}
        self.api.call("POST", "/v1/namespaces/db/tables", body, expect=201)
        schema = Schema.assign(columns)
        leaf = schema.leaves()[0]
        catalog = open_catalog(str(folder / "catalog.db"))
        self.warehouse = Warehouse(FsspecStore(), f"file://{folder}/warehouse")
        record = catalog.table("db", "t")
        blocks = [
            Block(
                location=f'memory://a folder/"{number % 7}"/part-{number:07}-of-{name}.parquet',
                row_count=10,
                file_size=1_000 + number,
                col_stats={
                    leaf.id: ColumnStats(
                        min=to_bound(leaf.dtype, number * 10), max=to_bound(leaf.dtype, number * 10 + 9), null_count=0
                    )
                },
            )
            for number in range(BLOCKS)
        ]
        refs = self.warehouse.prepare(record.table_id, schema, blocks)
        done = self.warehouse.commit(record.pointer, added=refs, now_ms=record.pointer.timestamp_ms + 1)
        assert catalog.advance(record.table_id, history_entry(record.version + 1, done.pointer, done.snapshot))
        catalog.close()
        self.pointer = done.pointer

    def ask(self, accept: str, accept_encoding: str = "identity", **body: Any) -> httpx2.Response:
        """A prune's answer; its ``content`` has no content coding any more."""
        headers = {"Accept": accept, "Accept-Encoding": accept_encoding}
        return self.api.http.post(f"{self.path}/prune", json=body, headers=headers)


@pytest.fixture
def start_big(start_server: StartServer, tmp_path: Path) -> Iterator[Callable[..., Big]]:
    """Starts a service that lets one large answer out at a time, and none wait."""
    started: list[Big] = []

    def start(*name: str) -> Big:
        server = start_server(
            warehouse=tmp_path / "warehouse",
            catalog=tmp_path / "catalog.db",
            large_answers=1,
            large_answers_waiting=0,
        )
        started.append(Big(server, tmp_path, *name))
        return started[-1]

    yield start
    for each in started:
        each.api.close()


@pytest.fixture
def big(start_big: Callable[..., Big]) -> Big:
    """Such a service."""
    return start_big()


def unpacked(response: httpx2.Response) -> bytes:
    """The answer; httpx2 reads gzip by itself."""
    if response.headers.get("content-encoding") == "zstd" and response.content[:4] == b"\x28\xb5\x2f\xfd":
        return bytes(pa.input_stream(pa.BufferReader(response.content), compression="zstd").read())
    return response.content


def blocks_of(response: httpx2.Response) -> list[tuple[str, int, int, str]]:
    """Location, rows, size and verdict of each block."""
    data, kind = unpacked(response), response.headers["content-type"]
    if kind == ARROW:
        table = pa.ipc.open_stream(data).read_all()
        names = ("location", "row_count", "file_size", "verdict")
        return list(zip(*(table[name].to_pylist() for name in names), strict=True))
    decode: Any = msgspec.json.decode if kind == "application/json" else msgspec.msgpack.decode
    answer: PruneAnswer = decode(data, type=PruneAnswer)
    if answer.block_columns is not None:
        c = answer.block_columns
        return list(zip(c.location, c.row_count, c.file_size, c.verdict, strict=True))
    return [(b.location, b.row_count, b.file_size, b.verdict) for b in answer.blocks or ()]


def test_every_form_and_coding_has_the_same_blocks(big: Big) -> None:
    """Large ones come in pieces without a length, compressed by choice, small ones as they are."""
    for filter, is_large in ((EVERYTHING, True), ("a < 35", False), ("a < 0", False), ("a < 9000", False)):
        expected = blocks_of(big.ask("application/json", filter=filter))
        for accept in ("application/json", ARROW, PACK, "application/msgpack", "text/html"):
            for shape in ("columns", "records"):
                for coding in ("identity", "gzip", "zstd"):
                    response = big.ask(accept, coding, filter=filter, shape=shape)
                    assert response.status_code == 200
                    assert blocks_of(response) == expected, (filter, accept, shape, coding)
                    assert ("content-length" not in response.headers) == is_large
                    if is_large:
                        assert response.headers.get("content-encoding") == (None if coding == "identity" else coding)
                        assert "Accept" in response.headers["vary"]
        assert len(expected) == {EVERYTHING: BLOCKS, "a < 35": 4, "a < 0": 0, "a < 9000": 900}[filter]


def test_what_has_no_columns_is_answered_in_another_form(big: Big) -> None:
    """Segments, ranges and orders have no Arrow form; the content type says what came instead."""
    for body in ({"level": "segment"}, {"shape": "ranges"}, {"order_by": [{"column": "a"}], "limit": 5}):
        response = big.ask(f"{ARROW}, {PACK};q=0.5", filter=EVERYTHING, **body)
        assert response.headers["content-type"] == PACK
        assert msgspec.msgpack.decode(response.content, type=PruneAnswer).snapshot_id == big.pointer.snapshot_id
        assert big.ask(ARROW, filter=EVERYTHING, **body).headers["content-type"] == "application/json"


def test_ranges_are_resolved_to_the_same_blocks(big: Big) -> None:
    """By the client, which asks for the addresses of a segment once."""
    segments = 0
    with Lamella(big.url) as lake:
        table = lake.table("db.t")
        for _ in range(2):
            ranges = table.prune("a >= 5 AND a < 149990", shape="ranges")
            assert ranges.block_ranges is not None
            assert len(ranges.block_ranges.first) < 50
            segments = len(ranges.block_ranges.segment_id)
            assert ranges.block_count == BLOCKS - 1
            found = table.resolve(ranges)
            expected = table.prune("a >= 5 AND a < 149990")
            assert found.block_columns == expected.block_columns
    text = big.api.send("GET", "/metrics").text
    metric = next(line for line in text.splitlines() if "segments/{segment_id}/blocks" in line and "_total" in line)
    assert float(metric.rpartition(" ")[2]) == segments


def test_a_large_answer_that_nobody_takes_stalls_no_other(start_big: Callable[..., Big]) -> None:
    """Small ones go on; another large one is told to come back, until the first client goes away."""
    big = start_big("x" * 1_000)  # more than the sockets hold between them
    address = urlsplit(big.url)
    body = msgspec.json.encode({"filter": EVERYTHING, "shape": "records"})
    head = f"POST {big.path}/prune HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n"
    with socket.create_connection((str(address.hostname), address.port or 80)) as slow:
        slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
        slow.sendall(head.encode() + b"Content-Type: application/json\r\n\r\n" + body)
        assert slow.recv(15) == b"HTTP/1.1 200 OK"
        refused = big.ask("application/json", filter=EVERYTHING)
        assert refused.status_code == 429
        assert read_problem(refused).code == "overloaded"
        assert refused.headers["retry-after"] == "1"
        for number in range(20):
            assert len(blocks_of(big.ask(ARROW, filter=f"a = {number}"))) == 1
    with Lamella(big.url) as lake:  # tries again until the turn is free
        assert lake.table("db.t").prune(EVERYTHING).block_count == BLOCKS


def test_the_short_way_to_the_route_is_no_other_route(big: Big) -> None:
    """Paths that only look like it, other methods and wrong bodies are answered as ever."""
    for path in ("/v1/namespaces//tables/t/prune", "/v1/namespaces/db/tables//prune", "/v1/x/db/tables/t/prune"):
        assert read_problem(big.api.send("POST", path, {})).status == 404
    wrong = big.api.send("GET", f"{big.path}/prune")
    assert (read_problem(wrong).status, wrong.headers["allow"]) == (405, "POST")
    assert read_problem(big.api.send("POST", f"{big.path}/prune", {"filtre": 1})).code == "invalid_request"
    assert read_problem(big.api.http.post(f"{big.path}/prune", content=b"{}")).code == "invalid_request"
    assert read_problem(big.api.send("POST", "/v1/namespaces/db/tables/u/prune", {})).code == "table_not_found"
    text = big.api.send("GET", "/metrics").text
    assert 'route="/v1/namespaces/{namespace}/tables/{table}/prune",status="404"' in text


def test_answers_from_cached_texts_are_as_the_first_ones(big: Big) -> None:
    """What was written once is used again for other ranges, in both shapes; MessagePack, made anew, says the same."""
    for shape in ("columns", "records"):
        for low in (0, 5_000, 14_980, 99_990, 5_020):
            filter = f"a >= {low} AND a < {low + 8_000}"
            expected = blocks_of(big.ask(PACK, filter=filter, shape=shape))
            assert len(expected) == 800
            for coding in ("identity", "gzip", "identity"):
                response = big.ask("application/json", coding, filter=filter, shape=shape)
                assert blocks_of(response) == expected
                assert response.headers["vary"] == "Accept, Accept-Encoding"
                assert response.headers.get("content-encoding") == (None if coding == "identity" else coding)


def test_a_body_that_comes_in_parts_is_read_whole(big: Big) -> None:
    """With a length or in chunks, in one packet or many; and whatever else the content type says."""
    body = msgspec.json.encode({"filter": "a < 35", "shape": "columns"})
    expected = blocks_of(big.ask("application/json", filter="a < 35"))
    address = urlsplit(big.url)
    head = f"POST {big.path}/prune HTTP/1.1\r\nHost: x\r\nContent-Type: Application/JSON; charset=utf-8\r\n".encode()
    chunks = b"".join(b"1\r\n%b\r\n" % body[at : at + 1] for at in range(len(body)))
    for parts in (
        [head + b"Content-Length: %d\r\n\r\n" % len(body), body[:5], body[5:]],
        [head + b"Transfer-Encoding: chunked\r\n\r\n", chunks, b"0\r\n\r\n"],
    ):
        with socket.create_connection((str(address.hostname), address.port or 80)) as connection:
            for part in parts:
                connection.sendall(part)
                time.sleep(0.05)  # so that they come one by one
            with http.client.HTTPResponse(connection) as answer:
                answer.begin()
                assert answer.headers["content-type"] == "application/json"
                assert len(str(answer.headers["x-request-id"])) == 36
                found = msgspec.json.decode(answer.read(), type=PruneAnswer).block_columns
        assert found is not None
        assert found.location == [each[0] for each in expected]


def test_a_client_that_goes_away_in_the_middle_of_its_body_disturbs_nobody(big: Big) -> None:
    """The others are answered, and the request is counted as one without an answer."""
    address = urlsplit(big.url)
    head = f"POST {big.path}/prune HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n".encode()
    with socket.create_connection((str(address.hostname), address.port or 80)) as gone:
        gone.sendall(head + b"Content-Type: application/json\r\n\r\n{")
    assert len(blocks_of(big.ask("application/json", filter="a < 35"))) == 4
    counted = 'tables/{table}/prune",status="499"'
    until = time.monotonic() + 60
    while counted not in big.api.send("GET", "/metrics").text:
        assert time.monotonic() < until
        time.sleep(0.01)
