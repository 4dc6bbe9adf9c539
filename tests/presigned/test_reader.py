"""Scans by signed URLs: a service over S3, a bucket that answers nothing without a signature, a reader without keys."""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
import time
import urllib.error
import urllib.request
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from fixtures_s3 import S3Server
from fixtures_server import ServerProcess, start_shared
from lamella.client import Lamella
from lamella.client.http import Table
from lamella.snapshot.deletes import VectorFile
from lamella.snapshot.errors import BlockReplaced, CorruptParquet, InvalidRequest, StoreError
from lamella.snapshot.storage import FsspecStore
from support.service_api import parquet_bytes
from support.signature_proxy import SignatureProxy, signature_proxy

pytestmark = pytest.mark.s3

FILES, ROWS = 8, 2_000
OPTIONS = {"row_group_size": 500, "write_page_index": True, "data_page_size": 1_000}
READER = """
import json, os, sys
from lamella.client import Lamella
from lamella.client.http import Table
assert not [name for name in os.environ if "AWS" in name]
with Lamella(sys.argv[1]) as lake:
    table = lake.table("db.t")
    found = table.scan("a BETWEEN 1999 AND 9000 AND s < 's10'", columns=["a"], order_by="a", signed_urls=True)
    print(json.dumps(found.to_arrow()["a"].to_pylist()))
assert "s3fs" not in sys.modules and "botocore" not in sys.modules
"""


PARTS_READER = """
import json, pickle, sys
parts = pickle.load(sys.stdin.buffer)
print(json.dumps([part.to_arrow()["a"].to_pylist() for part in parts]))
assert "s3fs" not in sys.modules and "botocore" not in sys.modules
"""


def rows(number: int) -> pa.Table:
    """``a`` counts on from file to file, ``s`` repeats."""
    values = range(number * ROWS, (number + 1) * ROWS)
    return pa.table({"a": pa.array(values, pa.int64()), "s": [f"s{value % 13:02}" for value in values]})


class Lake:
    """A table in a bucket, read through a proxy that wants signatures. The service goes past it, with keys."""

    def __init__(self, server: ServerProcess, store: FsspecStore, proxy: SignatureProxy, data: str) -> None:
        self.server = server
        self.store = store
        self.proxy = proxy
        self.data = data
        self.client = Lamella(server.url)
        self.client.create_namespace("db")
        self.table, self.files = self.new_table("t")

    def new_table(self, name: str) -> tuple[Table, list[str]]:
        """Another table of as many files as every other."""
        files = [f"{self.data}/{name}/part {number}.parquet" for number in range(FILES)]
        for number, location in enumerate(files):
            self.store.put(location, parquet_bytes(rows(number), **OPTIONS))
        self.client.create_table(f"db.{name}", schema_from=files[0])
        table = self.client.table(f"db.{name}")
        table.register(files)
        return table, files

    def url_requests(self) -> int:
        """How often the service was asked to look blocks up."""
        return self.server.log_text().count("/blocks")


@contextmanager
def running(config: pytest.Config, s3: S3Server, folder: Path, **settings: Any) -> Iterator[Lake]:
    """A service whose tables may use the folder ``data`` of a bucket of its own."""
    bucket = s3.bucket(f"presigned-{uuid.uuid4().hex[:8]}")
    with signature_proxy(s3.endpoint_url) as proxy:
        options = {"s3": {**s3.storage_options, "signed_endpoint_url": proxy.url}}
        given = {
            "warehouse": f"{bucket}/warehouse",
            "catalog": folder / "catalog.db",
            "store_options": json.dumps(options),
            "allowed_locations": json.dumps({"*": [f"{bucket}/data"]}),
        }
        server = start_shared(config, folder, {**given, **settings})
        lake = Lake(server, FsspecStore({"s3": s3.storage_options}), proxy, f"{bucket}/data")
        yield lake
        lake.client.close()
        assert server.stop() == 0, server.log_text()


@pytest.fixture(scope="module")
def shared_lake(pytestconfig: pytest.Config, s3: S3Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lake]:
    """One for all tests."""
    with running(pytestconfig, s3, tmp_path_factory.mktemp("presigned")) as lake:
        yield lake


@pytest.fixture
def lake(shared_lake: Lake) -> Lake:
    """The shared one, whose proxy has seen nothing yet."""
    shared_lake.proxy.seen.clear()
    return shared_lake


def expected(condition: Any) -> list[int]:
    """The values of ``a`` for which a condition holds."""
    return [a for a in range(FILES * ROWS) if condition(a)]


def test_a_reader_without_credentials_reads_what_one_with_them_does(lake: Lake) -> None:
    """Filters, columns, orders, limits and counts; by URLs alone, each for a range, and all of them granted."""
    before = lake.url_requests()
    cases: list[dict[str, Any]] = [
        {"filter": "a BETWEEN 1990 AND 2010"},
        {"filter": "s = 's05' AND a > 9000", "columns": ["a"]},
        {"columns": ["s"], "limit": 17},
        {"order_by": "a DESC", "limit": 30},
        {},
    ]
    for request in cases:
        one = lake.table.scan(**request, signed_urls=True).to_arrow()
        other = lake.table.scan(**request, store=lake.store).to_arrow()
        assert one.sort_by(one.schema.names[0]) == other.sort_by(one.schema.names[0]), request
    assert lake.table.scan("s LIKE '%5'", signed_urls=True).count() == len(expected(lambda a: a % 13 == 5))
    assert {status for _, _, status in lake.proxy.seen} == {206}
    assert all(wanted is not None for _, wanted, _ in lake.proxy.seen)
    assert lake.url_requests() == before  # they came with the plans


def keyless_run(program: str, *arguments: str, given: bytes = b"") -> Any:
    """What a program prints as JSON that has no keys in its environment; ``given``: its input."""
    environment = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
    command = [sys.executable, "-c", program, *arguments]
    done = subprocess.run(command, env=environment, input=given, capture_output=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr.decode()
    return json.loads(done.stdout)


def test_parts_of_a_scan_take_their_urls_along(lake: Lake) -> None:
    """A process that knows neither keys nor the service reads parts that it is given, each by its own URL."""
    before = lake.url_requests()
    parts = lake.table.scan("s = 's05'", columns=["a"], signed_urls=True).fragments()
    assert len(parts) == FILES
    found = keyless_run(PARTS_READER, given=pickle.dumps(parts))
    assert sorted(a for part in found for a in part) == expected(lambda a: a % 13 == 5)
    assert lake.url_requests() == before + 1
    assert lake.proxy.refused == 0
    assert "Signature" not in "".join(map(repr, parts))


def test_engines_read_by_signed_urls(lake: Lake) -> None:
    """Each query takes URLs of the blocks that it needs, also beside another one of the same scan."""
    scan = lake.table.scan(columns=["a", "s"], signed_urls=True)
    frame = scan.to_lazyframe()
    found = frame.filter(pl.col("a") < 4_500).join(frame.filter(pl.col("a") >= 4_400), on="a").collect()
    assert sorted(found["a"].to_list()) == expected(lambda a: 4_400 <= a < 4_500)
    dataset = scan.to_pyarrow_dataset()
    assert dataset.to_table(["a"], filter=pc.field("s") == "s05").num_rows == len(expected(lambda a: a % 13 == 5))
    with pytest.raises(TypeError, match="signed URLs cannot be pickled"):
        pickle.dumps(dataset)


def test_deleted_rows_come_with_the_urls(lake: Lake) -> None:
    """The reader cannot open the lists of deleted rows; they are in the plan, and go along with parts of a scan."""
    table, files = lake.new_table("deleted")
    vectors = VectorFile(f"{lake.data}/deleted/v.puffin")
    gone = {0, 5, 1_999, 2_001, 2_600}
    parts = [np.array(sorted(a % ROWS for a in gone if a // ROWS == number)) for number in range(2)]
    entries = dict(
        zip(files, [vectors.add(file, part) for file, part in zip(files, parts, strict=False)], strict=False)
    )
    lake.store.put(vectors.location, vectors.finished())
    (segment,) = table.snapshot(table.info().snapshot_id).segments
    blocks = table.segment(segment.segment_id).blocks
    changed = [msgspec.structs.replace(block, deletes=(entries[block.location],)) for block in blocks[:2]]
    assert {block.location for block in changed} == set(entries)
    table.commit(changed, list(entries), operation="delete")
    wanted = expected(lambda a: a < 4_500 and a not in gone)
    assert sorted(table.scan("a < 4500", columns=["a"], signed_urls=True).to_arrow()["a"].to_pylist()) == wanted
    assert table.scan("a < 4500", signed_urls=True).count() == len(wanted)
    fragments = table.scan("a < 4500", columns=["a"], signed_urls=True).fragments()
    found = keyless_run(PARTS_READER, given=pickle.dumps(fragments))
    assert sorted(a for part in found for a in part) == wanted
    assert not [path for path, _, _ in lake.proxy.seen if "puffin" in path]


@pytest.mark.soak
def test_parts_ask_for_other_urls_when_theirs_have_ended(
    pytestconfig: pytest.Config, s3: S3Server, tmp_path: Path
) -> None:
    """Work that begins late asks the service, if that answers whom it does not know."""
    with running(pytestconfig, s3, tmp_path, signed_url_s=2) as lake:
        parts = lake.table.scan(columns=["a"], signed_urls=True).fragments()
        assert parts[0].to_arrow()["a"].to_pylist() == list(range(ROWS))
        used = lake.proxy.url + lake.proxy.seen[0][0]
        while status_of(used) == 200:
            time.sleep(0.1)
        before = lake.url_requests()
        found = keyless_run(PARTS_READER, given=pickle.dumps(parts[:2]))
        assert sorted(a for part in found for a in part) == list(range(2 * ROWS))
        assert lake.url_requests() == before + 2


def test_a_program_with_nothing_but_the_service_reads(lake: Lake) -> None:
    """No keys in its environment, no library that could use any, and the bucket refuses it without a URL."""
    assert keyless_run(READER, lake.server.url) == expected(lambda a: 1999 <= a <= 9000 and a % 13 < 10)
    refused = lake.proxy.refused
    one_try = {"retries": {"max_attempts": 0}}
    keyless = FsspecStore({"s3": {"anon": True, "endpoint_url": lake.proxy.url, "config_kwargs": one_try}})
    with pytest.raises(StoreError):
        lake.table.scan(store=keyless).to_arrow()
    assert lake.proxy.refused > refused


def test_urls_that_expire_while_blocks_are_read_are_renewed(
    pytestconfig: pytest.Config, s3: S3Server, tmp_path: Path
) -> None:
    """The bucket refuses the old ones; the reader asks for others, and loses no row."""
    with running(pytestconfig, s3, tmp_path, signed_url_s=2) as lake:
        batches = lake.table.scan(columns=["a"], signed_urls=True, workers=1).to_batches()
        found = next(batches)["a"].to_pylist()
        used = lake.proxy.url + lake.proxy.seen[0][0]
        while status_of(used) == 200:
            time.sleep(0.1)
        refused, before = lake.proxy.refused, lake.url_requests()
        for batch in batches:
            found += batch["a"].to_pylist()
        assert sorted(found) == list(range(FILES * ROWS))
        assert lake.proxy.refused > refused
        assert lake.url_requests() > before


def status_of(url: str) -> int:
    """How a URL is answered."""
    try:
        with urllib.request.urlopen(url, timeout=30) as answer:  # noqa: S310  # loopback
            return int(answer.status)
    except urllib.error.HTTPError as error:
        error.close()
        return error.code


@pytest.mark.soak
def test_a_long_scan_asks_for_urls_as_it_goes(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """The plan brings the first ones; the others are asked for a few at a time, in the order of reading."""
    monkeypatch.setattr("lamella.client.presigned.AT_ONCE", 2)
    for order in ("", "a DESC"):
        before = lake.url_requests()
        # Of several threads any may ask first, and then fewer blocks come with an answer.
        scan = lake.table.scan(columns=["a"], order_by=order or (), signed_urls=True, workers=1)
        assert sorted(scan.to_arrow()["a"].to_pylist()) == list(range(FILES * ROWS))
        assert lake.url_requests() - before == 3  # five blocks, two at a time
    assert lake.proxy.refused == 0


def test_a_block_that_was_replaced_is_noticed(lake: Lake) -> None:
    """As by a reader with keys: when it is opened, and when it changes while it is read."""
    table, files = lake.new_table("replaced")

    def replace(number: int, data: bytes) -> None:
        lake.proxy.meanwhile = None
        lake.store.replace(files[number], data)

    replace(3, parquet_bytes(rows(3), row_group_size=100))
    with pytest.raises(BlockReplaced):
        table.scan(signed_urls=True).to_arrow()
    assert table.scan("a < 3000", signed_urls=True).count() == 3000
    same_size = parquet_bytes(rows(0), **OPTIONS)
    assert len(same_size) == lake.store.stat(files[0]).size_bytes
    changed = same_size[:4] + bytes(8) + same_size[12:]
    seen: list[str] = []

    def at_the_third(path: str) -> None:
        seen.append(path)
        if len(seen) == 3:  # it was opened by then, and is read
            replace(0, changed)

    lake.proxy.meanwhile = at_the_third
    with pytest.raises((BlockReplaced, CorruptParquet)):
        table.scan("a < 900 AND s > 's03'", signed_urls=True).to_arrow()
    assert lake.proxy.meanwhile is None


def test_a_busy_bucket_is_retried(lake: Lake) -> None:
    """Answers of 503 cost time, and no row."""
    lake.proxy.busy = 5
    assert lake.table.scan(columns=["a"], signed_urls=True).to_arrow().num_rows == FILES * ROWS
    assert [status for _, _, status in lake.proxy.seen].count(503) == 5


def test_a_url_that_was_tampered_with_reads_nothing(lake: Lake) -> None:
    """Another key, and more time, need another signature."""
    answer = lake.table.prune("a < 10", sign_urls=True)
    assert answer.block_columns is not None
    (url,) = answer.block_columns.url or [""]
    assert status_of(url) == 200
    for changed in (url.replace("part%200", "part%201"), url.replace("Expires=900", "Expires=90000")):
        assert status_of(changed) == 403
    assert status_of(url.partition("?")[0]) == 403


def test_a_store_and_signed_urls_exclude_each_other(lake: Lake) -> None:
    """Whoever gives both would be surprised by either."""
    with pytest.raises(InvalidRequest, match="signed"):
        lake.table.scan(signed_urls=True, store=lake.store)
    with pytest.raises(InvalidRequest, match="signed"):
        lake.table.scan(signed_urls=True, storage_options={})


def test_no_url_is_in_the_services_log(lake: Lake) -> None:
    """What it writes of requests and of its own doings tells nobody how to read a block."""
    lake.table.scan(signed_urls=True).to_arrow()
    lake.table.blocks(lake.files, sign_urls=True)
    assert "/prune" in lake.server.log_text()
    assert "X-Amz" not in lake.server.log_text()
