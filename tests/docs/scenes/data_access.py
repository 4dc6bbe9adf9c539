"""The pages about signed URLs and those who read by them: over an S3 server, since nothing else signs."""

from __future__ import annotations

import io
import json
from contextlib import ExitStack

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from docs.scene import as_type, scene
from docs.scenes.rows import orders
from docs.stage import ROOT_KEY, Stage
from fixtures_s3 import s3_server
from lamella.snapshot.storage import FsspecStore
from lamella.snapshot.tokens import key_sha256
from lamella.snapshot.wire import PrunedBlock

FILES = 4


class Shown(msgspec.Struct):
    """What the page shows of an answer."""

    blocks: tuple[PrunedBlock, ...]
    url_expires_ms: int


def a_profile(_stage: Stage, text: str) -> None:
    """What a recipient's tools read."""
    assert set(json.loads(text)) == {"shareCredentialsVersion", "endpoint", "bearerToken", "expirationTime"}


@scene("docs/delta-sharing.md", soak=True, starts_service=True, data=[a_profile])
def delta_sharing(stage: Stage) -> None:
    """The same buckets, and a service that asks for keys."""
    data_access(stage)
    stage.variables |= {
        "LAMELLA_AUTH": "true",
        "LAMELLA_ROOT_KEY_SHA256": key_sha256(ROOT_KEY),
        "LAMELLA_ALLOWED_LOCATIONS": '{"*": ["s3://sales"]}',
    }
    stage.swaps["https://lake.example.com"] = stage.url
    stage.become_root()


@scene("docs/data-access.md", starts_service=True, spark=True, data=[as_type(Shown)])
def data_access(stage: Stage) -> None:
    """Buckets, with files for the table that the page makes."""
    opened = ExitStack()
    stage.clean_up.append(opened.close)
    server = opened.enter_context(s3_server(stage.folder))
    for name in ("lake", "shared", "sales"):
        server.bucket(name)
    options = {"s3": server.storage_options}
    store = FsspecStore(options)
    rows = pa.table(orders())
    size = len(rows) // FILES
    for number in range(FILES):
        sink = io.BytesIO()
        pq.write_table(rows.slice(number * size, size), sink)
        store.put(f"s3://sales/exports/2026/part-{number}.parquet", sink.getvalue())
    stage.variables["LAMELLA_STORE_OPTIONS"] = json.dumps(options)
    stage.swaps |= {"postgresql+psycopg://...": f"sqlite:///{stage.folder}/catalog.db"}
