"""A table in groups of segments, with sketches, pages, an index and files that left it: each kind of object damaged."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import httpx2
import pyarrow as pa
import pytest

from lamella.client.rewrite.block_writer import sketches_of
from lamella.service.catalog import TableRecord, open_catalog
from lamella.service.history.history import history_entry
from lamella.snapshot.commit import Shape
from lamella.snapshot.ids import Ids
from lamella.snapshot.manifest import Block, SegmentRef
from lamella.snapshot.parquet import ingest
from lamella.snapshot.schema import Column, Schema
from lamella.snapshot.storage import FsspecStore
from lamella.snapshot.warehouse import Warehouse
from service.test_damaged_objects import DAMAGES, FILTER, TABLE, Damage, ask, check, kinds_of_objects, questions, served
from support.app_client import AppClient
from support.service_api import parquet_bytes

BLOCKS = 24
SCHEMA = Schema.assign([Column(name="a", type="int64"), Column(name="s", type="string")])
#: Besides those of the other tests: objects that are whole and say something else.
MORE: dict[str, Damage] = {
    "other JSON": lambda _: b'{"format_version": 2, "segments": {"a": [1]}}',
    "another version": lambda data: (
        data.replace(b'"format_version":', b'"format_version":9')
        if data[:1] == b"{"
        else bytes([data[0] ^ 1]) + data[1:]
        if data
        else b"\x01"
    ),
}
#: Those that are tried each time.
OFTEN = ("truncated", "other JSON", "another version")


def made_block(folder: Path, number: int) -> Block:
    """A block of ten numbers, with the sketches of its columns."""
    values = list(range(number * 10, number * 10 + 10))
    rows = pa.table({"a": values, "s": [str(value) for value in values]})
    path = folder / f"{number:02}.parquet"
    path.write_bytes(parquet_bytes(rows))
    (block,), _ = ingest(FsspecStore(), [f"file://{path}"], SCHEMA, workers=1)
    return Block(
        **{name: getattr(block, name) for name in block.__struct_fields__} | {"sketches": sketches_of(rows, SCHEMA)}
    )


@pytest.fixture(scope="module")
def layered(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A warehouse with such a table in its catalog."""
    folder = tmp_path_factory.mktemp("layered")
    with served(folder) as client:
        ask(client, "POST", "/v1/namespaces", {"name": "n"}, 201)
    shape = Shape(segment_blocks=2, group_segments=2, fan_in=2)
    warehouse = Warehouse(FsspecStore(), f"file://{folder}/w", shape=shape, prepare_pages=True)
    table_id = str(Ids().new())
    pointer = warehouse.create(table_id, SCHEMA, now_ms=1)
    for first in range(0, BLOCKS, 4):
        some = [made_block(folder, number) for number in range(first, first + 4)]
        added: tuple[SegmentRef, ...] = warehouse.prepare(table_id, SCHEMA, some)
        pointer = warehouse.commit(pointer, added=added, now_ms=first + 2).pointer
    pointer = warehouse.commit(pointer, removed=[f"file://{folder}/00.parquet"], now_ms=BLOCKS + 2).pointer
    catalog = open_catalog(str(folder / "catalog.db"))
    record = TableRecord(
        table_id=table_id,
        namespace="n",
        name="t",
        location=warehouse.table_location(table_id),
        version=1,
        pointer=pointer,
        created_at_ms=1,
    )
    catalog.create_table(record, history_entry(1, pointer, warehouse.snapshot(pointer)))
    catalog.close()
    with served(folder) as client:
        ask(client, "POST", f"{TABLE}/indexes", {"name": "i", "expression": "a", "kind": "value_set"})
        ask(client, "POST", f"{TABLE}/indexes/i/refresh", {})
        ask(client, "POST", f"{TABLE}/tags", {"name": "tagged"})
        info = ask(client, "GET", TABLE)
        groups = ask(client, "GET", f"{TABLE}/snapshots/{info['snapshot_id']}")
        segments = ask(client, "POST", f"{TABLE}/prune", {"level": "segment"})["segments"]
    assert groups["groups"]
    ids = {
        "segment": segments[0]["segment_id"],
        "namespace": "n",
        "table": "t",
        "snapshot": info["snapshot_id"],
        "index": "i",
        "share": "lamella",
    }
    (folder / "ids.json").write_text(json.dumps(ids))
    return folder


def answers(client: AppClient, folder: Path) -> Iterator[httpx2.Response]:
    """Those of the other tests, and what asks sketches, and the console's pages of layers, columns and jobs."""
    yield from questions(client, folder)
    yield client.post(f"{TABLE}/aggregate", json={"aggregates": ["count(*)", "min(s)", "count(a)"], "filter": FILTER})
    yield client.post(f"{TABLE}/what-if", json={"filters": [FILTER], "cluster_key": ["a"]})
    for page in ("map", "map?zoom=0.0", "columns", "history", "indexes", f"lab?filter={FILTER}&columns=a"):
        yield client.get(f"/ui/tables/n/t/{page}")
    yield client.get("/ui")


@pytest.mark.slow
@pytest.mark.parametrize(
    "damage",
    [pytest.param(name, marks=() if name in OFTEN else pytest.mark.soak) for name in (*DAMAGES, *MORE)],
)
@pytest.mark.few(1)
def test_damaged_layers_are_typed_errors_or_more_blocks(layered: Path, damage: str) -> None:
    """Each kind in turn, all objects of it at once; and what left the table never comes back for it."""
    with served(layered) as client:
        needed = {each["location"] for each in ask(client, "POST", f"{TABLE}/prune", {"filter": FILTER})["blocks"]}
        well = check(answers(client, layered), needed)
    assert needed == {f"file://{layered}/16.parquet"}
    kinds = kinds_of_objects(layered)
    expected = {
        "_sl.json",
        "_sl.arrow",
        "_sg.json",
        "_sg.arrow",
        "_sg.pages",
        "_ts.hll",
        "_rf.set",
        "_ss.json",
        "_ix.dir",
    }
    assert expected <= set(kinds), kinds.keys()
    change = (DAMAGES | MORE)[damage]
    left = f"file://{layered}/00.parquet"
    for kind, paths in kinds.items():
        originals = {path: path.read_bytes() for path in paths}
        try:
            for path, data in originals.items():
                changed = change(data)
                path.unlink()
                if changed is not None:
                    path.write_bytes(changed)
            with served(layered) as client:
                bad = check(answers(client, layered), needed)
                assert bad >= well, kind
                for route, body in (
                    ("register", {"paths": [left]}),
                    ("commits", {"added": [{"location": left, "row_count": 10, "file_size": 0}]}),
                ):
                    answer = client.post(f"{TABLE}/{route}", json=body)
                    assert answer.status_code >= 400, (kind, route)
                    check(iter([answer]), needed)
        finally:
            for path, data in originals.items():
                path.write_bytes(data)
