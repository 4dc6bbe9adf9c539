"""The examples of the OpenAPI document are requests that were made, and their answers."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import jsonschema
import msgspec
import pytest
import s3fs

from docs.fenced import ROOT
from docs.http_examples import Recorder, record, shape, written
from fixtures_s3 import S3Server
from lamella.service.app import create_app
from lamella.service.catalog import AutoRecord, open_catalog
from lamella.service.config.settings import Settings
from lamella.snapshot.ids import Ids
from lamella.snapshot.manifest import Snapshot
from lamella.snapshot.storage import FsspecStore
from lamella.snapshot.warehouse import Warehouse
from lamella.snapshot.wire import AutoAction, Candidate
from service.test_operations import described
from support.app_client import AppClient
from support.built_parts import blocks_of, built, sent_blocks, sent_parts
from support.tenants import ROOT_KEY, ROOT_SHA256

EXAMPLES = ROOT / "service" / "lamella" / "service" / "http" / "examples.json"


class BehindService:
    """What a worker does beside its calls."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._store = FsspecStore(settings.store_options)
        self._warehouse = Warehouse(self._store, settings.warehouse)

    def begin_action(self, table_id: str, runner: str) -> str:
        """Begin an action of automatic upkeep of a table; returns its id."""
        action = AutoAction(
            action_id=Ids().new_text(),
            state="running",
            change="compact",
            candidate=Candidate(kind="compact", text="Compacting 3 blocks", command="lamella compact shop.orders"),
            snapshot_id=Ids().new_text(),
            started_ms=1,
        )
        begun = AutoRecord(
            action_id=action.action_id,
            table_id=table_id,
            started_ms=1,
            runner=runner,
            lease_expires_ms=1 << 50,
            action=msgspec.json.encode(action).decode(),
            filters='{"recorded":[],"seed":0}',
        )
        with closing(open_catalog(self._settings.catalog_url)) as catalog:
            assert catalog.begin_auto(begun, at_most=10)
        return action.action_id

    def blocks(self, table_id: str, files: list[str]) -> list[Any]:
        """Files as the blocks of a commit, with statistics."""
        return sent_blocks(blocks_of(self._store, self._table(table_id), files))

    def index_parts(self, table_id: str, index: str, files: list[str]) -> list[Any]:
        """Write parts of an index about some blocks of a table; returns what is sent of them."""
        table = self._table(table_id)
        location, blocks = self._warehouse.table_location(table_id), blocks_of(self._store, table, files)
        parts: list[Any] = sent_parts([built(self._store, location, table, index, blocks, by_keys=True)])[0]["parts"]
        return parts

    def _table(self, table_id: str) -> Snapshot:
        with closing(open_catalog(self._settings.catalog_url)) as catalog:
            return self._warehouse.snapshot(catalog.table_by_id(table_id).pointer)


@pytest.fixture(scope="module")
def examples(s3: S3Server, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The story, told now."""
    warehouse, incoming = s3.bucket("lake"), s3.bucket("incoming")
    settings = Settings(
        warehouse=warehouse,
        catalog=f"sqlite:///{tmp_path_factory.mktemp('catalog')}/catalog.db",
        store_options={"s3": s3.storage_options},
        auth=True,
        root_key_sha256=ROOT_SHA256,
        feedback=True,
        allowed_locations={"*": [incoming]},
    )
    store = s3fs.S3FileSystem(**s3.storage_options)
    with AppClient(create_app(settings)) as app:
        operations = {each.name: each for each in described()}
        recorder = Recorder(app, ROOT_KEY, operations, store.pipe_file)
        record(recorder, incoming, BehindService(settings))
    return recorder.examples


@pytest.fixture(scope="module")
def documented(examples: dict[str, Any], s3: S3Server) -> dict[str, Any]:
    """The examples of the document; LAMELLA_WRITE_DOCS=1 writes them anew."""
    if os.environ.get("LAMELLA_WRITE_DOCS") == "1":
        replaced = {
            re.escape(s3.endpoint_url): "https://s3.eu-central-1.amazonaws.com",
            r"lamella_[A-Za-z0-9_-]{40,}": "lamella_...",
            r'"version": "\d+\.\d+\.\d+[^"]*"': '"version": "9.9.9"',  # a release has to name no other
            r"(Signature=|AWSAccessKeyId=)[^&\"\\\\]*": r"\1...",
        }
        EXAMPLES.write_text(written(examples, replaced), encoding="utf-8")
    found: dict[str, Any] = json.loads(EXAMPLES.read_text("utf-8"))
    return found


def test_every_operation_has_an_example_that_is_true(examples: dict[str, Any], documented: dict[str, Any]) -> None:
    """The story calls each, and what is in the document has the members that requests and answers have now."""
    assert set(examples) == set(documented) == {each.name for each in described()}
    now = json.loads(written(examples, {}))
    for name in now:
        assert shape(documented[name]) == shape(now[name]), f"{name}: run this test with LAMELLA_WRITE_DOCS=1"


def test_examples_are_what_the_document_says(
    examples: dict[str, Any], documented: dict[str, Any], tmp_path: Path
) -> None:
    """Requests and answers, those of now and those of the document, are of its types."""
    document = create_app(Settings(warehouse=str(tmp_path))).openapi()
    for path, methods in document["paths"].items():
        for operation in methods.values():
            for example in (examples[operation["operationId"]], documented[operation["operationId"]]):
                for schema, value in _typed(operation, example):
                    jsonschema.validate(value, {**schema, "components": document["components"]})
            names = [each["name"] for each in operation.get("parameters", ()) if each["in"] == "path"]
            assert sorted(example.get("path", ())) == sorted(names), path


def _typed(operation: dict[str, Any], example: dict[str, Any]) -> Iterator[tuple[dict[str, Any], Any]]:
    """The values of an example with their schemas."""
    if "request" in example:
        [content] = operation["requestBody"]["content"].values()
        yield content["schema"], example["request"]
    if "answer" in example:
        [done] = (each for status, each in operation["responses"].items() if status.startswith("2"))
        content = next(iter(done["content"].values()))
        yield content["schema"], example["answer"]
