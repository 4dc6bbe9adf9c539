"""Answers about many files, and about files that nobody can sign URLs for."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx2
import msgspec
import pyarrow as pa
import pytest

from lamella.service.app import create_app
from lamella.service.catalog import open_catalog
from lamella.service.config.settings import Settings
from lamella.service.history.history import history_entry
from lamella.snapshot.manifest import Block
from lamella.snapshot.schema import Column, Schema
from lamella.snapshot.stats import ColumnStats, to_bound
from lamella.snapshot.storage import FsspecStore
from lamella.snapshot.warehouse import Warehouse
from support.app_client import AppClient
from support.service_api import parquet_bytes

OPTIONS = {"s3": {"key": "AK", "secret": "a secret", "endpoint_url": "https://s3.example.com"}}
TABLE = "/delta-sharing/shares/lamella/schemas/db/tables/t"
BLOCKS, MAX_FILES = 3_000, 2_500


class Service:
    """A service over a table of blocks that were never written, with a column whose name is no ASCII."""

    def __init__(self, folder: Path, opened: ExitStack, **settings: Any) -> None:
        given = Settings(warehouse=f"{folder}/warehouse", catalog=f"{folder}/c.db", **settings)
        self.app = opened.enter_context(AppClient(create_app(given, store=FsspecStore(OPTIONS))))
        columns = [Column(name="a\u2028é", type="int64")]
        assert self.app.post("/v1/namespaces", json={"name": "db"}).status_code == 201
        body = {"name": "t", "schema": msgspec.to_builtins(columns)}
        assert self.app.post("/v1/namespaces/db/tables", json=body).status_code == 201
        schema = Schema.assign(columns)
        leaf = schema.leaves()[0]
        low, high = to_bound(leaf.dtype, 1), to_bound(leaf.dtype, 9)
        stats = {leaf.id: ColumnStats(min=low, max=high, null_count=0, min_exact=True)}
        blocks = [
            Block(location=f"s3://data/{number}.parquet", row_count=10, file_size=1_000, col_stats=stats, by_name=True)
            for number in range(BLOCKS)
        ]
        catalog = open_catalog(f"{folder}/c.db")
        warehouse = Warehouse(FsspecStore(), f"file://{folder}/warehouse")
        record = catalog.table("db", "t")
        refs = warehouse.prepare(record.table_id, schema, blocks)
        done = warehouse.commit(record.pointer, added=refs, now_ms=record.pointer.timestamp_ms + 1)
        assert catalog.advance(record.table_id, history_entry(record.version + 1, done.pointer, done.snapshot))
        catalog.close()

    def query(self, coding: str = "identity", **body: Any) -> httpx2.Response:
        """The answer, whatever it is."""
        answer: httpx2.Response = self.app.post(f"{TABLE}/query", json=body, headers={"Accept-Encoding": coding})
        return answer


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """One that signs all of them in one answer."""
    with ExitStack() as opened:
        yield Service(tmp_path_factory.mktemp("large"), opened)


@pytest.mark.slow
@pytest.mark.parametrize("coding", ["identity", "gzip"])
def test_large_answers_are_sent_in_pieces(large: Service, coding: str) -> None:
    """Each file once, in lines of ASCII, with headers as smaller answers have them."""
    answer = large.query(coding)
    assert answer.headers["delta-table-version"] == "2"
    assert answer.headers["delta-sharing-capabilities"] == "responseformat=parquet"
    assert answer.headers["content-type"].startswith("application/x-ndjson")
    assert answer.headers.get("content-encoding", "identity") == coding
    assert "content-length" not in answer.headers
    assert answer.content.isascii()
    assert len(answer.content) > 1 << 20
    lines = [json.loads(line) for line in answer.content.splitlines()]
    files = [line["file"] for line in lines[2:]]
    assert len({file["id"] for file in files}) == len({file["url"] for file in files}) == BLOCKS
    assert json.loads(files[0]["stats"]) == {
        "numRecords": 10,
        "minValues": {"a\u2028é": 1},
        "maxValues": {},  # it may be greater than any value
        "nullCount": {"a\u2028é": 0},
    }


def test_more_files_than_one_answer_may_have_come_in_pages(tmp_path: Path) -> None:
    """Who asks for no pages is refused, and who asks for larger ones gets smaller ones."""
    with ExitStack() as opened:
        service = Service(tmp_path, opened, signed_urls_max=MAX_FILES)
        refused = service.query()
        assert (refused.status_code, refused.json()["errorCode"]) == (400, "LIMIT_EXCEEDED")
        assert f"at most {MAX_FILES}" in refused.json()["message"]
        counts: list[int] = []
        token = None
        while token is not None or not counts:
            more: dict[str, Any] = {} if token is None else {"pageToken": token}
            lines = [json.loads(line) for line in service.query(maxFiles=100_000, **more).content.splitlines()]
            counts.append(len(lines) - 3)
            token = lines[-1]["endStreamAction"].get("nextPageToken")
        assert counts == [MAX_FILES, BLOCKS - MAX_FILES]
        assert len(service.query(limitHint=7).content.splitlines()) == 3


@pytest.mark.parametrize(
    "body",
    [
        {"maxFiles": 0},
        {"version": -1},
        {"version": "1"},
        {"predicateHints": "a > 1"},
        {"jsonPredicateHints": {}},
        {"timestamp": 5},
        [],
    ],
)
def test_what_is_no_query_is_refused(large: Service, body: Any) -> None:
    """Hints are best effort, their types are not."""
    answer = large.app.post(f"{TABLE}/query", json=body)
    assert (answer.status_code, answer.json()["errorCode"]) == (400, "INVALID_REQUEST")


def test_unknown_members_are_left_alone(large: Service) -> None:
    """Newer recipients send more, and older services must not mind; so it is with a limit that is none."""
    assert large.query(idempotencyKey="k", somethingNew=[1], limitHint=-5).status_code == 200


def test_local_files_are_refused_with_the_reason(tmp_path: Path) -> None:
    """Nobody elsewhere can read them; what the table looks like can be told."""
    path = tmp_path / "t.parquet"
    path.write_bytes(parquet_bytes(pa.table({"a": [1]})))
    with AppClient(create_app(Settings(warehouse=f"{tmp_path}/warehouse"))) as app:
        assert app.post("/v1/namespaces", json={"name": "db"}).status_code == 201
        assert app.post("/v1/namespaces/db/tables", json={"name": "t", "schema_from": str(path)}).status_code == 201
        assert app.post("/v1/namespaces/db/tables/t/register", json={"paths": [str(path)]}).status_code == 200
        answer = app.post(f"{TABLE}/query", json={})
        assert (answer.status_code, answer.json()["errorCode"]) == (400, "NOT_SIGNABLE")
        assert "sign" in answer.json()["message"]
        assert app.get(f"{TABLE}/metadata").status_code == 200
