"""Appends to a table on S3 send a request for each file, and a few for each snapshot that they share; never time."""

from __future__ import annotations

import asyncio
import json
import uuid
from pathlib import Path

import msgspec
import pytest

from fixtures_s3 import S3Server
from lamella.service.app import create_app
from lamella.service.config.settings import Settings
from lamella.snapshot.parquet import ingest
from lamella.snapshot.schema import Column, Schema
from lamella.snapshot.storage import FsspecStore
from support.asgi import ask
from support.operations import CountedStore
from support.service_api import parquet_bytes

pytestmark = pytest.mark.s3

TABLE = "/v1/namespaces/n/tables"
#: Appends that are sent at the same time.
APPENDS = 32
COLUMNS = [{"name": "a", "type": "int64"}]


@pytest.mark.parametrize("way", ["register", "commits"])
def test_an_append_sends_one_request_beside_those_of_its_snapshot(s3: S3Server, tmp_path: Path, way: str) -> None:
    """A file is looked at once; a segment, a snapshot and their sidecars are put once for all appends of a group."""
    root = f"{s3.bucket('guard')}/{uuid.uuid4().hex}"
    plain = FsspecStore({"s3": s3.storage_options})
    store = CountedStore(plain)
    files = [f"{root}/data/{number}.parquet" for number in range(APPENDS)]
    for number, file in enumerate(files):
        plain.put(file, parquet_bytes({"a": [number]}))
    blocks, refused = ingest(plain, files, Schema.assign([Column(name="a", type="int64")]))
    assert not refused
    bodies = {
        "register": [json.dumps({"paths": [file]}).encode() for file in files],
        "commits": [msgspec.json.encode({"added": [block]}) for block in blocks],
    }[way]
    settings = Settings(warehouse=f"{root}/warehouse", catalog=f"sqlite:///{tmp_path}/catalog.db", log_requests=False)

    async def requests() -> int:
        app = create_app(settings, store=store)
        await ask(app, "POST", "/v1/namespaces", b'{"name":"n"}')
        await ask(app, "POST", TABLE, json.dumps({"name": "t", "schema": COLUMNS}).encode())
        store.reset()
        answers = await asyncio.gather(*(ask(app, "POST", f"{TABLE}/t/{way}", body) for body in bodies))
        assert {status for status, _ in answers} == {200}, answers
        return len({json.loads(answer)["snapshot_id"] for _, answer in answers})

    snapshots = asyncio.run(requests())
    read, looked_at = (APPENDS, 0) if way == "register" else (0, APPENDS)
    assert store.reads <= read + snapshots  # a snapshot looks for the sketches of the one before, which here has none
    assert store.others == looked_at
    assert store.puts == 4 * snapshots
