"""Signed URLs in answers: in every form, for every block of them, and nowhere else."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

import httpx2
import msgspec
import pyarrow as pa
import pytest

from lamella.client.http import Lamella
from lamella.client.http.fake_transport import FakeTransport
from lamella.client.http.transport import HttpRequest, HttpResponse
from lamella.service.app import create_app
from lamella.service.catalog import open_catalog
from lamella.service.config.settings import Settings
from lamella.service.history.history import history_entry
from lamella.snapshot.manifest import Block
from lamella.snapshot.schema import Column, Schema
from lamella.snapshot.stats import ColumnStats, to_bound
from lamella.snapshot.storage import FsspecStore
from lamella.snapshot.warehouse import Warehouse
from lamella.snapshot.wire import PruneAnswer
from support.app_client import AppClient

JSON, ARROW, PACK = "application/json", "application/vnd.apache.arrow.stream", "application/vnd.msgpack"
OPTIONS = {"s3": {"key": "AK", "secret": "a secret", "endpoint_url": "https://s3.example.com"}}
TABLE = "/v1/namespaces/db/tables/t"
BLOCKS = 60
#: What asks for blocks in another order, in parts, or with more said of each.
REQUESTS: Sequence[Mapping[str, Any]] = (
    {},
    {"filter": "a >= 100 AND a < 230"},
    {"order_by": [{"column": "a", "descending": True}], "limit": 25},
    {"limit": 3},
    {"residuals": True, "filter": "a > 105", "columns": ["a"]},
    {"join": [{"column": "a", "values": [3, 444]}]},
    {"filter": "a < 0"},
)


class Service:
    """A service over a table of blocks that were never written, below ``folder_url``."""

    def __init__(
        self,
        folder: Path,
        opened: ExitStack,
        folder_url: str = "s3://data/a folder",
        blocks: int = BLOCKS,
        **options: Any,
    ) -> None:
        self.settings = Settings(
            warehouse=f"{folder}/warehouse", catalog=f"{folder}/c.db", log_level="debug", **options
        )
        self.app = opened.enter_context(AppClient(create_app(self.settings, store=FsspecStore(OPTIONS))))
        assert self.app.post("/v1/namespaces", json={"name": "db"}).status_code == 201
        columns = [Column(name="a", type="int64")]
        body = {"name": "t", "schema": msgspec.to_builtins(columns)}
        assert self.app.post("/v1/namespaces/db/tables", json=body).status_code == 201
        schema = Schema.assign(columns)
        leaf = schema.leaves()[0]
        self.blocks = [
            Block(
                location=f"{folder_url}/part {number % 7}/{number:04}.parquet",
                row_count=10,
                file_size=1_000 + number,
                content_id=f"etag-{number}",
                col_stats={
                    leaf.id: ColumnStats(
                        min=to_bound(leaf.dtype, number * 10), max=to_bound(leaf.dtype, number * 10 + 9), null_count=0
                    )
                },
            )
            for number in range(blocks)
        ]
        catalog = open_catalog(f"{folder}/c.db")
        warehouse = Warehouse(FsspecStore(), f"file://{folder}/warehouse")
        record = catalog.table("db", "t")
        refs = warehouse.prepare(record.table_id, schema, self.blocks)
        done = warehouse.commit(record.pointer, added=refs, now_ms=record.pointer.timestamp_ms + 1)
        assert catalog.advance(record.table_id, history_entry(record.version + 1, done.pointer, done.snapshot))
        catalog.close()

    def prune(self, accept: str = JSON, coding: str = "identity", **body: Any) -> httpx2.Response:
        """The answer, whatever it is."""
        headers = {"Accept": accept, "Accept-Encoding": coding}
        answer: httpx2.Response = self.app.post(f"{TABLE}/prune", json=body, headers=headers)
        return answer

    def refused(self, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
        """The problem of a request that must fail with a 4xx."""
        answer = self.app.post(f"{TABLE}/{path}", json=body)
        assert 400 <= answer.status_code < 500, answer.text
        return dict(answer.json())


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Service]]:
    """Starts services."""
    with ExitStack() as opened:
        yield lambda *arguments, **options: Service(tmp_path, opened, *arguments, **options)


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """One for all tests that need no settings."""
    with ExitStack() as opened:
        yield Service(tmp_path_factory.mktemp("signed"), opened)


def signed(response: httpx2.Response) -> tuple[list[tuple[str, str | None]], int | None]:
    """Location and URL of each block, and until when the URLs hold."""
    assert response.status_code == 200, response.text
    kind = response.headers["content-type"]
    data = response.content
    if response.headers.get("content-encoding") == "zstd" and data[:4] == b"\x28\xb5\x2f\xfd":
        data = bytes(pa.input_stream(pa.BufferReader(data), compression="zstd").read())
    if kind == ARROW:
        table = pa.ipc.open_stream(data).read_all()
        answer = msgspec.json.decode(table.schema.metadata[b"lamella.answer"], type=PruneAnswer)
        urls = table["url"].to_pylist() if "url" in table.schema.names else [None] * table.num_rows
        return list(zip(table["location"].to_pylist(), urls, strict=True)), answer.url_expires_ms
    decode: Any = msgspec.json.decode if kind == JSON else msgspec.msgpack.decode
    answer = decode(data, type=PruneAnswer)
    if answer.block_columns is not None:
        c = answer.block_columns
        return list(zip(c.location, c.url or [None] * len(c.location), strict=True)), answer.url_expires_ms
    return [(b.location, b.url) for b in answer.blocks or ()], answer.url_expires_ms


def is_of(location: str, url: str | None) -> bool:
    """Whether a URL is one of a location, for the time of the settings."""
    if url is None:
        return False
    parts = urlsplit(url)
    query = parse_qs(parts.query)
    is_location = f"s3:/{unquote(parts.path)}" == location and parts.netloc == "s3.example.com"
    return is_location and query["X-Amz-Expires"] == ["900"] and query["X-Amz-SignedHeaders"] == ["host"]


@pytest.mark.parametrize("options", REQUESTS)
@pytest.mark.parametrize("accept", [JSON, ARROW, PACK])
def test_every_form_of_an_answer_has_a_url_for_each_block(
    service: Service, accept: str, options: dict[str, Any]
) -> None:
    """Beside its own location, in the answer's order; no cache may keep it. Without asking for them there is none."""
    for shape in ("records", "columns"):
        for level in ("block", "page"):
            if level == "page" and "join" in options:
                continue
            for coding in ("identity", "gzip", "zstd"):
                body = {**options, "shape": shape, "level": level}
                plain = service.prune(accept, coding, **body)
                response = service.prune(accept, coding, **body, sign_urls=True)
                found, expires_ms = signed(response)
                bare, no_time = signed(plain)
                assert [location for location, _ in found] == [location for location, _ in bare]
                assert all(is_of(location, url) for location, url in found)
                assert len({url for _, url in found}) == len(found)
                assert (expires_ms is None) == (not found)
                assert response.headers["cache-control"] == "no-store"
                assert "etag" not in response.headers
                assert no_time is None
                assert all(url is None for _, url in bare)
                assert "cache-control" not in plain.headers


def test_pages_have_urls_as_they_are_requested(service: Service) -> None:
    """A token goes on with or without them, and each page has its own."""
    cases: list[dict[str, Any]] = [{}, {"limit": 33, "order_by": [{"column": "a"}]}]
    for options in cases:
        whole = [location for location, _ in signed(service.prune(**options))[0]]
        for flags in ((True, True, True), (True, False, False), (False, True, False)):
            seen, token = [], None
            for flag in (*flags, *([flags[-1]] * 9)):
                more: dict[str, Any] = {} if token is None else {"page_token": token}
                response = service.prune(**options, page_size=13, sign_urls=flag, **more)
                found, _ = signed(response)
                assert all(is_of(*each) == flag for each in found)
                seen += [location for location, _ in found]
                token = response.json()["next_page_token"]
                if token is None:
                    break
            assert seen == whole


@pytest.mark.parametrize(
    "options",
    [
        {"shape": "ranges"},
        {"level": "segment"},
        {"shape": "ranges", "filter": "a < 20"},
        {"level": "segment", "limit": 3},
    ],
)
def test_forms_without_single_blocks_refuse_urls(service: Service, options: dict[str, Any]) -> None:
    """Clearly, and not by leaving them out."""
    assert "signed URLs" in service.refused("prune", {**options, "sign_urls": True})["detail"]


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("prune/batch", {"filters": ["a > 1"]}),
        ("diff", {"from_snapshot_id": "x"}),
        ("aggregate", {"aggregates": ["count(*)"]}),
        ("changes", {}),
    ],
)
def test_other_requests_know_no_urls(service: Service, path: str, body: dict[str, Any]) -> None:
    """A member that means nothing there is refused."""
    answer = service.app.post(f"{TABLE}/{path}", json={**body, "sign_urls": True})
    assert answer.status_code in (400, 405), answer.text


@pytest.mark.slow
def test_more_blocks_than_an_answer_may_have_urls_for_are_refused(start: Callable[..., Service]) -> None:
    """Nothing is signed; the error names the limit and the way out, which works."""
    count = 1_010
    service = start(blocks=count, signed_urls_max=1_000)
    problem = service.refused("prune", {"sign_urls": True})
    assert (problem["code"], problem["details"]) == (
        "limit_exceeded",
        {"limit": "signed_urls", "maximum": 1_000},
    )
    assert "pages" in problem["detail"]
    locations = [block.location for block in service.blocks]
    assert service.refused("blocks", {"locations": locations, "sign_urls": True})["code"] == "limit_exceeded"
    assert metric(service) == 0

    def handler(request: HttpRequest) -> HttpResponse:
        given = dict(request.headers)
        answered = service.app.request(request.method, request.target, content=request.body, headers=given)
        return HttpResponse(status=answered.status_code, headers=dict(answered.headers), body=answered.content)

    with Lamella("http://testserver", transport=FakeTransport(handler)) as lake:
        answer = lake.table("db.t").prune(sign_urls=True, page_size=1_000)
    assert answer.block_columns is not None
    assert answer.block_columns.location == locations
    assert all(map(is_of, locations, answer.block_columns.url or ()))
    assert answer.url_expires_ms is not None
    assert [block.url for block in answer.records()] == answer.block_columns.url
    assert metric(service) == count


def metric(service: Service) -> int:
    """How many URLs were signed."""
    text = service.app.get("/metrics").text
    (line,) = [line for line in text.splitlines() if line.startswith("lamella_urls_signed_total")]
    return int(float(line.split()[1]))


def test_blocks_that_are_looked_up_have_urls(service: Service) -> None:
    """By this a reader renews what expired; a location that is no block of the snapshot gets none, wherever it is."""
    locations = [block.location for block in service.blocks[5:9]]
    others = ["s3://data/a folder/secret.parquet", "s3://elsewhere/x", "file:///etc/passwd"]
    answer = service.app.post(f"{TABLE}/blocks", json={"locations": [*locations, *others], "sign_urls": True})
    found = answer.json()
    assert [block["location"] for block in found["blocks"]] == locations
    assert all(is_of(block["location"], block["url"]) for block in found["blocks"])
    assert [block["content_id"] for block in found["blocks"]] == [block.content_id for block in service.blocks[5:9]]
    assert found["missing"] == others
    assert found["url_expires_ms"] is not None
    assert answer.headers["cache-control"] == "no-store"
    plain = service.app.post(f"{TABLE}/blocks", json={"locations": locations})
    assert "url" not in plain.json()["blocks"][0]
    assert "cache-control" not in plain.headers
    none = service.app.post(f"{TABLE}/blocks", json={"locations": others, "sign_urls": True}).json()
    assert (none["blocks"], none["url_expires_ms"]) == ([], None)


def test_blocks_of_other_stores_are_not_signable(start: Callable[..., Service]) -> None:
    """The code says so, and names the first."""
    service = start("file:///data")
    for path, body in (("prune", {}), ("blocks", {"locations": [service.blocks[0].location]})):
        problem = service.refused(path, {**body, "sign_urls": True})
        assert problem["code"] == "not_signable"
        assert problem["details"] == {"location": service.blocks[0].location}


def test_a_block_outside_of_allowed_locations_is_not_signed(start: Callable[..., Service]) -> None:
    """It was registered before there were rules, and is pruned as ever; but nobody gets a URL of it."""
    service = start(allowed_locations={"db": ["s3://data/a folder/part 1"]})
    assert all(is_of(*each) for each in signed(service.prune(filter="a >= 10 AND a < 20", sign_urls=True))[0])
    bodies: list[tuple[str, dict[str, Any]]] = [
        ("prune", {"filter": "a < 20"}),
        ("blocks", {"locations": [service.blocks[0].location]}),
    ]
    for path, body in bodies:
        problem = service.refused(path, {**body, "sign_urls": True})
        assert (problem["code"], problem["status"]) == ("location_refused", 403)
        assert problem["details"] == {"location": service.blocks[0].location}
    assert len(signed(service.prune())[0]) == BLOCKS


def test_no_url_gets_into_a_log_or_is_stored(
    capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    """Neither in our log nor in a library's, on the most talkative level, nor on disk, nor in the next answer."""
    caplog.set_level(logging.DEBUG)
    with ExitStack() as opened:
        service = Service(tmp_path, opened, record_prunes="full", log_requests=True, cache_dir=f"{tmp_path}/cache")
        for options in REQUESTS:
            for accept in (JSON, ARROW, PACK):
                service.prune(accept, **options, sign_urls=True)
                assert not any(url for _, url in signed(service.prune(accept, **options))[0])
        locations = [block.location for block in service.blocks]
        service.app.post(f"{TABLE}/blocks", json={"locations": locations, "sign_urls": True})
        service.refused("prune", {"sign_urls": True, "shape": "ranges"})
        service.app.get(f"{TABLE}/advice")
    written = capfd.readouterr()
    texts = [written.out, written.err, *(record.getMessage() for record in caplog.records if _is_ours(record))]
    assert "request" in written.out + written.err
    for text in texts:
        assert "X-Amz-Signature" not in text
        assert "a secret" not in text
    for file in tmp_path.rglob("*"):
        assert not file.is_file() or b"X-Amz-" not in file.read_bytes(), file


def _is_ours(record: logging.LogRecord) -> bool:
    # botocore writes on the debug level what it signs, which the service's logging never shows.
    return not record.name.startswith(("botocore", "aiobotocore", "s3fs"))
