"""The hot paths do no more than they did: calls, reads and bytes, held against ``ceilings.json``; never time.

A path that got dearer on purpose, or cheaper for good: ``LAMELLA_WRITE_CEILINGS=1 pytest tests/guard`` writes the
ceilings anew, a tenth above what is counted; commit them with the change that explains them.
"""

from __future__ import annotations

import asyncio
import itertools
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import msgspec
import numpy as np
import pyarrow as pa
import pytest

from lamella.client.rewrite.block_writer import write_block
from lamella.client.rewrite.target import arrow_schema
from lamella.service.app import create_app
from lamella.service.catalog import TableRecord, open_catalog
from lamella.service.config.settings import Settings
from lamella.service.history.history import history_entry
from lamella.snapshot.ids import Ids
from lamella.snapshot.prune.result import PruneResult
from lamella.snapshot.prune.segment_text import SegmentTexts
from lamella.snapshot.prune.writer import answer_of, json_chunks
from lamella.snapshot.schema import Column, Schema
from lamella.snapshot.schema.arrow import decimals_of
from lamella.snapshot.sketch.sketcher import Sketcher
from lamella.snapshot.storage import FsspecStore, TableLayout
from lamella.snapshot.tokens import key_sha256
from lamella.snapshot.wire import NamespaceInfo, PruneRequest
from lamella.snapshot.wire.prune import Shape
from support.asgi import ask
from support.guarded import SCHEMA, SEGMENT, Table, block, hold, narrow_filter
from support.operations import Meter, Operations, counted
from support.tenants import ROOT_KEY

SHAPES: tuple[Shape, ...] = ("records", "columns", "ranges")


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Table:
    """A table of 20 segments."""
    return Table(tmp_path_factory.mktemp("guard"), 20 * SEGMENT)


def test_a_narrow_warm_prune_does_no_more_than_it_did(table: Table) -> None:
    """A range over the sorted column, with literals that were not asked before, costs so many calls and no read."""
    assert table.narrow(table.warehouse, 310) == table.narrow(table.warehouse, 410) == 3
    table.store.reset()
    done = counted(lambda: table.narrow(table.warehouse, 510))
    hold("narrow warm prune", **msgspec.to_builtins(done), reads=table.store.reads, others=table.store.others)


def test_a_narrow_warm_prune_of_ranges_does_no_more_than_it_did(table: Table) -> None:
    """The same, answered as runs of blocks."""
    for second in (315, 415, 525):  # the segment that is counted has been looked at
        table.narrow(table.warehouse, second, "ranges")
    done = counted(lambda: table.narrow(table.warehouse, 515, "ranges"))
    hold("narrow warm prune, ranges", **msgspec.to_builtins(done))


def test_a_narrow_warm_prune_does_not_grow_with_the_table(table: Table, tmp_path: Path) -> None:
    """Four times the blocks cost a narrow range hardly a call more."""
    larger = Table(tmp_path, 80 * SEGMENT)
    calls = []
    for each in (table, larger):
        for second in (320, 525):  # the segment that is counted has been looked at in both
            each.narrow(each.warehouse, second)
        calls.append(counted(lambda each=each: each.narrow(each.warehouse, 520)))  # type: ignore[misc]  # a default
    assert calls[1].python_calls <= calls[0].python_calls * 1.1
    assert calls[1].c_calls <= calls[0].c_calls * 1.1


def test_a_first_narrow_prune_reads_no_more_than_it_did(table: Table) -> None:
    """A process that has nothing in memory reads what the snapshot layer leaves, and nothing else."""
    warehouse = table.opened()
    table.store.reset()
    assert table.narrow(warehouse, 610) == 3
    store = table.store
    hold("first narrow prune", reads=store.reads, read_bytes=store.read_bytes, puts=store.puts, others=store.others)


def test_a_commit_of_one_block_does_no_more_than_it_did(table: Table) -> None:
    """An append to a table of full segments costs so many calls, objects and bytes."""
    numbers = itertools.count(10**6)
    pointers = [table.pointer]

    def append() -> None:
        refs = table.warehouse.prepare("t", SCHEMA, [block(next(numbers))])
        pointers.append(table.warehouse.commit(pointers[-1], added=refs, now_ms=3).pointer)

    append()
    append()
    table.store.reset()
    done = counted(append)
    store = table.store
    calls = {"reads": store.reads, "puts": store.puts, "put_bytes": store.put_bytes, "others": store.others}
    hold("commit of one block", **msgspec.to_builtins(done), **calls)


def test_a_written_block_takes_no_more_calls_than_it_did(tmp_path: Path) -> None:
    """Rows become a file, statistics and sketches by whole columns: a value that changes nothing is not looked at in
    Python."""
    count = 60_000
    numbers = np.random.default_rng(1).permutation(count)
    schema = Schema.assign(
        [
            Column(name="id", type="int64"),
            Column(name="name", type="string"),
            Column(name="price", type="decimal(12,2)"),
            Column(name="country", type="string"),
        ]
    )
    fields = arrow_schema(schema)
    columns = [
        pa.array(numbers),
        pa.array([f"name {number}" for number in numbers.tolist()]),
        decimals_of(pa.array(numbers), fields.field(2).type),
        pa.array(["ch", "de", "fr"]).take(pa.array(numbers % 3)),
    ]
    rows = pa.table(columns, schema=fields)
    layout, ids = TableLayout(f"file://{tmp_path}"), Ids()
    write_block(FsspecStore(), layout, ids, rows, schema)
    passed: list[int] = []
    done = counted(lambda: passed.append(write_block(FsspecStore(), layout, ids, rows, schema).row_count))
    assert passed == [count]
    hold("written block of 60,000 rows", **msgspec.to_builtins(done))


def test_a_sketch_is_passed_few_of_the_values_that_it_counts() -> None:
    """Of 400,000 different values, those that change it, and the first batch."""
    passed = Counter[str]()

    class Counting(Sketcher):
        """Counts what is passed to the library."""

        def update(self, items: Iterable[object]) -> None:
            """As the sketcher does."""
            listed = list(items)
            passed["values"] += len(listed)
            super().update(listed)

    sketcher = Counting(Schema.assign([Column(name="c", type="int64")]).leaf("c").dtype)
    sketcher.add(pa.array(np.random.default_rng(1).permutation(400_000)))
    assert sketcher.sketch() is not None
    hold("values passed to a sketch of 400,000", values=passed["values"])


@pytest.mark.parametrize("shape", SHAPES)
def test_an_answer_of_every_block_is_encoded_with_no_more_than_it_took(table: Table, shape: Shape) -> None:
    """2,000 blocks, from the filter to the bytes that travel."""
    encoder = msgspec.json.Encoder()

    def answer(user: int) -> bytes:
        found = table.warehouse.prune(table.pointer, PruneRequest(filter=f"user_id = {user}", shape=shape))
        return encoder.encode(found)

    first = 10**6 + 10 * SHAPES.index(shape)  # another filter for each shape: what was asked before is remembered
    for user in (first, first + 1):
        answer(user)
    done = counted(lambda: answer(first + 2))
    hold(f"answer of 2,000 blocks, {shape}", **msgspec.to_builtins(done))


@pytest.mark.parametrize("shape", ["records", "columns"])
def test_scattered_blocks_are_written_with_no_more_than_it_took(table: Table, shape: Shape) -> None:
    """Some blocks of each segment, as a filter of an unsorted column leaves them: a segment costs no array."""
    request = PruneRequest(filter="country = 'c3'", shape=shape)
    found = table.warehouse.find(table.pointer, request)
    selection = found.selection
    assert selection is not None
    assert len(selection.segments) == 20
    assert selection.block_count < 20 * SEGMENT // 2
    written = b"".join(json_chunks(found))
    assert msgspec.json.decode(written) == msgspec.json.decode(msgspec.json.encode(answer_of(found)))
    done = counted(lambda: b"".join(json_chunks(found)))
    hold(f"answer of scattered blocks, {shape}", **msgspec.to_builtins(done))


@pytest.mark.parametrize("shape", ["records", "columns"])
def test_an_answer_from_cached_texts_is_put_together_with_no_more_than_it_took(table: Table, shape: Shape) -> None:
    """2,000 blocks of 20 segments, from what was found to the bytes that travel; no sidecar is opened."""
    texts = SegmentTexts(table.warehouse.memory_cache)

    def found(user: int) -> PruneResult:
        return table.warehouse.find(table.pointer, PruneRequest(filter=f"user_id = {user}", shape=shape))

    first = 10**6 + 100 + 10 * SHAPES.index(shape)
    assert texts.answer(found(first), opening=True) is not None
    other = found(first + 1)
    done = counted(lambda: texts.answer(other, opening=False))
    assert texts.answer(other, opening=False) == msgspec.json.encode(answer_of(other))
    hold(f"answer of 2,000 blocks from kept texts, {shape}", **msgspec.to_builtins(done))


def test_a_narrow_prune_over_http_does_no_more_than_it_did(tmp_path: Path) -> None:
    """From the request's bytes to the answer's, in all threads of the service; and an empty route beside it."""
    served = Table(tmp_path / "warehouse", 20 * SEGMENT)
    catalog = open_catalog(f"sqlite:///{tmp_path}/catalog.db")
    catalog.create_namespace(NamespaceInfo(name="n"), now_ms=1)
    record = TableRecord(
        table_id="t",
        namespace="n",
        name="t",
        location=served.warehouse.table_location("t"),
        version=1,
        pointer=served.pointer,
        created_at_ms=1,
    )
    catalog.create_table(record, history_entry(1, served.pointer, served.warehouse.snapshot(served.pointer)))
    settings = Settings(warehouse=str(tmp_path / "warehouse"), log_requests=False)
    guarded = Settings(
        warehouse=settings.warehouse, log_requests=False, auth=True, root_key_sha256=key_sha256(ROOT_KEY)
    )
    meter = Meter()
    prune = "/v1/namespaces/n/tables/t/prune"

    async def requests() -> dict[str, Operations]:
        app = create_app(settings, catalog=catalog)
        found = {}
        gated = create_app(guarded, catalog=catalog)
        for second in (400, 401, 402):
            assert (await ask(gated, "POST", prune, _body(second), key=ROOT_KEY))[0] == 200
        meter.start()
        await ask(gated, "POST", prune, _body(403), key=ROOT_KEY)
        found["narrow prune over HTTP with a key"] = meter.stop()
        for name, (method, path, bodies) in {
            "narrow prune over HTTP": ("POST", prune, [_body(300 + i) for i in range(4)]),
            "narrow prune over HTTP, ranges": ("POST", prune, [_body(350 + i, "ranges") for i in range(4)]),
            "empty route over HTTP": ("GET", "/health/live", [b""] * 4),
        }.items():
            for body in bodies[:-1]:
                status, answer = await ask(app, method, path, body)
                assert status == 200, answer
            meter.start()
            await ask(app, method, path, bodies[-1])
            found[name] = meter.stop()
        return found

    with meter.installed():
        done = asyncio.run(requests())
    catalog.close()
    for name, operations in done.items():
        hold(name, **msgspec.to_builtins(operations))


def _body(second: int, shape: Shape = "columns") -> bytes:
    return msgspec.json.encode({"filter": narrow_filter(second), "shape": shape})
