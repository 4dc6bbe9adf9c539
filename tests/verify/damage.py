"""Every way in which a table can be wrong, each made on purpose: one for every check."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import msgspec
import pyarrow as pa

from lamella.snapshot import commit as commits
from lamella.snapshot.columnar.locations import LocationIndex
from lamella.snapshot.errors import StoreError
from lamella.snapshot.manifest import Block, ClusterStats, DeleteFile
from lamella.snapshot.pages import SegmentPages, build_pages
from lamella.snapshot.sketch.layers import encode as encode_sketches
from lamella.snapshot.sketch.layers import read_blocks, read_union
from lamella.snapshot.stats import ColumnStats, to_bound
from lamella.snapshot.storage import FsspecStore, TableLayout, table_root
from lamella.snapshot.verify import Deep, Options
from support.lying_writer import SCHEMA, TABLE, LyingWriter, columns, parquet
from verify import index_damage

A, S, X, N = (SCHEMA.leaf(name).id for name in "asxn")
VALUES = Options(deep=Deep(sample=1.0, filters=0))
FILTERS = Options(deep=Deep(sample=1.0, filters=60))
#: Few filters by chance are about the one value, or the null, on which statistics and rows differ.
MANY_FILTERS = Options(deep=Deep(sample=1.0, filters=400))


@dataclass
class Damage:
    """How a table is damaged, what it is like before, and how it is then verified.

    ``besides``: checks that may find the same damage from another side.
    """

    code: str
    do: Callable[[LyingWriter], None]
    options: Options = field(default_factory=Options)
    besides: frozenset[str] = frozenset()
    scanned: bool = False
    grouped: bool = False
    pages: bool = False


def change(column_id: int, **changes: Any) -> Callable[[Block], Block]:
    """A change of one column's statistics in a block."""

    def made(block: Block) -> Block:
        stats = msgspec.structs.replace(block.col_stats[column_id], **changes)
        return msgspec.structs.replace(block, col_stats={**block.col_stats, column_id: stats})

    return made


def set_block(**changes: Any) -> Callable[[Block], Block]:
    """A change of a block's members."""
    return lambda block: msgspec.structs.replace(block, **changes)


def constant_of(column_id: int) -> Callable[[Block], Block]:
    """A constant of a column that the file has."""
    return lambda block: msgspec.structs.replace(block, constants={column_id: None})


def deletes_of(cardinality: int) -> Callable[[Block], Block]:
    """A list of deleted rows that is not there."""
    entry = DeleteFile(
        kind="deletion_vector", location="memory://nowhere/x", offset=4, length=40, cardinality=cardinality
    )
    return lambda block: msgspec.structs.replace(block, deletes=(entry,))


def number(value: int) -> Any:
    """A bound of column ``a`` or ``n``."""
    return to_bound(SCHEMA.leaf("a").dtype, value)


def summary_of(segment: Any, column_id: int, **changes: Any) -> Any:
    """A segment or snapshot with another statistic in its summary."""
    stats: ColumnStats = msgspec.structs.replace(segment.summary.col_stats[column_id], **changes)
    summary = msgspec.structs.replace(segment.summary, col_stats={**segment.summary.col_stats, column_id: stats})
    return msgspec.structs.replace(segment, summary=summary)


def sized(thing: Any, **more: int) -> Any:
    """A segment or snapshot whose summary has greater counts."""
    changes = {name: getattr(thing.summary, name) + value for name, value in more.items()}
    return msgspec.structs.replace(thing, summary=msgspec.structs.replace(thing.summary, **changes))


def pointer_differs(table: LyingWriter) -> None:
    table.pointer = msgspec.structs.replace(table.pointer, timestamp_ms=table.pointer.timestamp_ms + 1)
    table.history[-1] = msgspec.structs.replace(table.history[-1], pointer=table.pointer)


def manifest_unreadable(table: LyingWriter) -> None:
    location = table.refs[0].manifest.location
    table.lie(ref=lambda ref: msgspec.structs.replace(ref, manifest=table.write(location, b'{"format_version":1}')))


def manifest_version(table: LyingWriter) -> None:
    location = table.refs[0].manifest.location
    table.lie(ref=lambda ref: msgspec.structs.replace(ref, manifest=table.write(location, b'{"format_version":99}')))


def manifest_size(table: LyingWriter) -> None:
    def longer(ref: Any) -> Any:
        manifest = msgspec.structs.replace(ref.manifest, size_bytes=ref.manifest.size_bytes + 1)
        return msgspec.structs.replace(ref, manifest=manifest)

    table.lie(ref=longer)


def without_exact_bits(data: bytes) -> bytes:
    """A sidecar as it was before there were exact bits."""
    reader = pa.ipc.open_file(pa.BufferReader(data))
    batch = reader.get_batch(0)
    arrays = [
        pa.array([flag & 0x3F for flag in array.to_pylist()], pa.uint8()) if name.endswith(".flags") else array
        for name, array in zip(batch.schema.names, batch.columns, strict=True)
    ]
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, batch.schema) as writer:
        writer.write_batch(pa.record_batch(arrays, schema=batch.schema))
    return bytes(sink.getvalue())


def without_sums(data: bytes) -> bytes:
    """A sidecar as it was before there were sums."""
    batch = pa.ipc.open_file(pa.BufferReader(data)).get_batch(0)
    cut = batch.select([name for name in batch.schema.names if not name.endswith(".sum")])
    assert cut.num_columns < batch.num_columns
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, cut.schema) as writer:
        writer.write_batch(cut)
    return bytes(sink.getvalue())


def other_flags(data: bytes) -> bytes:
    """A sidecar that says that no row is null."""
    reader = pa.ipc.open_file(pa.BufferReader(data))
    batch = reader.get_batch(0)
    arrays = [
        pa.array([flag & ~4 for flag in array.to_pylist()], pa.uint8()) if name == f"{N}.flags" else array
        for name, array in zip(batch.schema.names, batch.columns, strict=True)
    ]
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, batch.schema) as writer:
        writer.write_batch(pa.record_batch(arrays, schema=batch.schema))
    return bytes(sink.getvalue())


class Refusing(FsspecStore):
    """A store that fails at one object."""

    def __init__(self, failing: str) -> None:
        super().__init__()
        self._failing = failing

    def read(self, location: str) -> bytes:
        if location == self._failing:
            raise StoreError("the store is out of order", location=location)
        return super().read(location)


def unreachable(table: LyingWriter) -> None:
    table.store = Refusing(table.refs[0].sidecar.location)


def group_segments(table: LyingWriter) -> None:
    def more(ref: Any) -> Any:
        return msgspec.structs.replace(ref, segment_count=ref.segment_count + 1)

    table.lie_of_group(ref=more)


def locations_differ(table: LyingWriter) -> None:
    def without_one(ref: Any) -> Any:
        index = LocationIndex.read(table.store.read(ref.locations.location))
        data = LocationIndex(index.hashes[1:], index.segments[1:]).to_bytes()
        return msgspec.structs.replace(ref, locations=table.write(ref.locations.location, data))

    table.lie_of_group(ref=without_one)


def block_duplicate(table: LyingWriter) -> None:
    again = table.segment(0).blocks[0]
    (ref,) = table.warehouse.prepare(TABLE, SCHEMA, [again])
    whole = table.snapshot
    refs = (*whole.segments, ref)
    summary = commits.summarize(SCHEMA, [each.summary for each in refs])
    table.publish(msgspec.structs.replace(whole, segments=refs, summary=summary))


def file_of(table: LyingWriter, index: int = 0) -> str:
    return f"{table.root}/data/{index}.parquet"


def block_size(table: LyingWriter) -> None:
    table.replace(file_of(table), table.store.read(file_of(table))[:-1])


def block_replaced(table: LyingWriter) -> None:
    before = table.store.read(file_of(table))
    after = parquet(columns(6))
    assert len(before) == len(after)
    table.replace(file_of(table), after)


def footer_unreadable(table: LyingWriter) -> None:
    table.replace(file_of(table), bytes(len(table.store.read(file_of(table)))))
    table.lie(block=set_block(content_id=None))


def footer_schema(table: LyingWriter) -> None:
    location = table.put("strange.parquet", parquet({**columns(0), "more": pa.array(range(10))}))
    stat = table.store.stat(location)
    table.lie(
        block=set_block(
            location=location,
            file_size=stat.size_bytes,
            content_id=stat.content_id,
            footer_sha256=None,
        ),
        ref=lambda ref: msgspec.structs.replace(ref, last_location=max(location, str(ref.last_location))),
    )


def footer_untrusted(table: LyingWriter) -> None:
    old = table.segment(0).blocks[0]
    new = table.block(0, write_statistics=["s", "x", "n"])
    stats = {**new.col_stats, A: old.col_stats[A]}
    table.lie(block=lambda _block: msgspec.structs.replace(new, col_stats=stats))


def page_file(table: LyingWriter) -> str:
    ref = table.refs[0]
    return SegmentPages(ref.segment_id, ref.manifest).location


def page_sidecar_differs(table: LyingWriter) -> None:
    ref, segment = table.refs[0], table.segment(0)
    shifted = (segment.blocks[0], *table.segment(1).blocks[:1])
    table.replace(page_file(table), build_pages(table.store, SCHEMA, ref.segment_id, ref.manifest.sha256, shifted))


def page_sidecar_incomplete(table: LyingWriter) -> None:
    ref, segment = table.refs[0], table.segment(0)
    gone = msgspec.structs.replace(segment.blocks[1], location=f"{table.root}/data/gone.parquet")
    blocks = (segment.blocks[0], gone)
    table.replace(page_file(table), build_pages(table.store, SCHEMA, ref.segment_id, ref.manifest.sha256, blocks))


def sketch_location(table: LyingWriter) -> str:
    return TableLayout(table_root(table.root, TABLE)).sketches(table.refs[0].segment_id)


def sketch_differs(table: LyingWriter) -> None:
    location = sketch_location(table)
    union, blocks = read_union(table.store, location) or {}, read_blocks(table.store, location)
    fewer = {where: {**own, A: own[N]} for where, own in blocks.items()}
    table.replace(location, encode_sketches({**union, A: union[N]}, fewer))


def history_chain(table: LyingWriter) -> None:
    table.history[-2] = msgspec.structs.replace(
        table.history[-2],
        pointer=msgspec.structs.replace(table.history[-2].pointer, snapshot_id=table.history[0].pointer.snapshot_id),
    )


def history_time(table: LyingWriter) -> None:
    timestamp_ms = table.history[-1].pointer.timestamp_ms + 5
    table.history[-2] = msgspec.structs.replace(
        table.history[-2], pointer=msgspec.structs.replace(table.history[-2].pointer, timestamp_ms=timestamp_ms)
    )


def history_row(table: LyingWriter) -> None:
    table.history[1] = msgspec.structs.replace(table.history[1], row_count=7)


def values_unreadable(table: LyingWriter) -> None:
    block = table.segment(0).blocks[0]
    data = bytearray(table.store.read(block.location))
    start = block.col_metas[A][0].offset
    data[start : start + 30] = b"\xff" * 30
    table.replace(block.location, bytes(data))
    table.lie(block=set_block(content_id=None))


def gapped(table: LyingWriter) -> None:
    stats = table.segment(0).blocks[0].col_stats[A]
    assert stats.min is not None
    assert stats.max is not None
    table.lie(block=change(A, ranges=(stats.min, number(2), number(7), stats.max)))


#: One for each check.
ALL = [
    Damage("pointer_differs", pointer_differs, besides=frozenset({"history_row"})),
    Damage("manifest_missing", lambda t: t.store.delete(t.refs[0].manifest.location)),
    Damage("manifest_hash", lambda t: t.flip(t.refs[0].manifest.location, 40)),
    Damage("manifest_unreadable", manifest_unreadable),
    Damage("manifest_version", manifest_version),
    Damage("manifest_identity", lambda t: t.lie(segment=lambda s: msgspec.structs.replace(s, segment_id="another"))),
    Damage("manifest_size", manifest_size),
    Damage("sidecar_missing", lambda t: t.store.delete(t.refs[0].sidecar.location)),
    Damage("sidecar_hash", lambda t: t.flip(t.refs[0].sidecar.location, 200)),
    Damage("sidecar_differs", lambda t: t.lie(sidecar=other_flags)),
    Damage("sidecar_older", lambda t: t.lie(sidecar=without_exact_bits), scanned=True),
    Damage("unreachable", unreachable),
    Damage("schema_unknown", lambda t: t.lie(block=set_block(schema_id=77), summarize=False)),
    Damage("group_segments", group_segments, grouped=True),
    Damage("locations_differ", locations_differ, grouped=True),
    Damage(
        "schema_ids_differ",
        lambda t: t.lie(snapshot=lambda s: msgspec.structs.replace(s, block_schema_ids=(0, 1))),
    ),
    Damage(
        "summary_differs",
        lambda t: t.lie(ref=lambda r: summary_of(r, A, in_memory_size=1)),
    ),
    Damage(
        "layer_counts",
        lambda t: t.lie(segment=lambda s: sized(s, row_count=1), snapshot=lambda s: sized(s, row_count=1)),
    ),
    Damage(
        "perfect_blocks",
        lambda t: t.lie(
            segment=lambda s: sized(s, perfect_block_count=1), snapshot=lambda s: sized(s, perfect_block_count=1)
        ),
    ),
    Damage("block_clustered", lambda t: t.lie(block=set_block(cluster_stats=ClusterStats(key_id=0, level=1)))),
    Damage(
        "layer_bounds",
        lambda t: t.lie(segment=lambda s: summary_of(s, A, max=number(12), max_exact=False)),
    ),
    Damage(
        "layer_unknown",
        lambda t: t.lie(block=change(A, max=None, max_exact=False), summarize=False),
    ),
    Damage("layer_nulls", lambda t: t.lie(block=change(N, null_count=None), summarize=False)),
    Damage("layer_sum", lambda t: t.lie(block=change(A, sum=None), summarize=False), scanned=True),
    Damage("layer_nan", lambda t: t.lie(segment=lambda s: summary_of(s, X, nan="none"))),
    Damage("layer_exact", lambda t: t.lie(block=change(A, min_exact=False), summarize=False), scanned=True),
    Damage(
        "stats_invalid",
        lambda t: t.lie(number=1, block=change(A, min=number(28), max=number(25)), summarize=False),
        scanned=True,
        besides=frozenset({"layer_exact"}),
    ),
    Damage(
        "constants_invalid",
        lambda t: t.lie(block=constant_of(A), summarize=False),
        scanned=True,
        besides=frozenset({"footer_schema", "layer_counts"}),
    ),
    Damage(
        "deletes_invalid",
        lambda t: t.lie(block=deletes_of(10)),
        besides=frozenset({"features_missing", "deletes_damaged"}),
    ),
    Damage("deletes_damaged", lambda t: t.lie(block=deletes_of(1)), besides=frozenset({"features_missing"})),
    Damage(
        "features_missing",
        lambda t: t.lie(segment=lambda s: sized(s, constants_count=1)),
        besides=frozenset({"layer_counts", "summary_differs"}),
    ),
    Damage("block_counts", lambda t: t.lie(block=set_block(row_group_row_counts=(3,)))),
    Damage("block_duplicate", block_duplicate),
    Damage("block_missing", lambda t: t.store.delete(file_of(t))),
    Damage("block_size", block_size),
    Damage("block_replaced", block_replaced),
    Damage("block_touched", lambda t: t.replace(file_of(t), t.store.read(file_of(t)))),
    Damage("footer_unreadable", footer_unreadable),
    Damage("footer_schema", footer_schema),
    Damage("footer_rows", lambda t: t.lie(block=set_block(row_count=11, row_group_row_counts=()))),
    Damage(
        "footer_places",
        lambda t: t.lie(block=lambda b: msgspec.structs.replace(b, col_metas={**b.col_metas, A: b.col_metas[S]})),
    ),
    Damage("footer_bounds", lambda t: t.lie(block=change(A, max=number(8)))),
    Damage("footer_nulls", lambda t: t.lie(block=change(N, null_count=4))),
    Damage("footer_nan", lambda t: t.lie(block=change(X, nan="none"))),
    Damage("footer_untrusted", footer_untrusted),
    Damage("page_sidecar_missing", lambda _: None, Options(pages=True)),
    Damage("page_sidecar_damaged", lambda t: t.flip(page_file(t), 60), pages=True),
    Damage("page_sidecar_differs", page_sidecar_differs, pages=True),
    Damage("page_sidecar_incomplete", page_sidecar_incomplete, pages=True),
    Damage("sketch_unreadable", lambda t: t.store.delete(sketch_location(t)), scanned=True),
    Damage("sketch_differs", sketch_differs, scanned=True),
    Damage("index_not_usable", index_damage.changed(kind="none_such"), besides=frozenset({"index_part_differs"})),
    Damage("index_counts", index_damage.counts),
    Damage("index_entries", index_damage.rows(lambda row: row + 100)),
    Damage("index_part_missing", lambda t: t.store.delete(index_damage.part_of(t))),
    Damage("index_part_damaged", index_damage.flipped),
    Damage("index_part_differs", index_damage.changed(options={"values": 7, "bytes": 100})),
    Damage(
        "index_false_skip",
        index_damage.rows(lambda row: row[::-1]),
        FILTERS,
        besides=frozenset({"false_skip", "false_all"}),
    ),
    Damage("history_chain", history_chain, besides=frozenset({"history_row"})),
    Damage("history_time", history_time, besides=frozenset({"history_row"})),
    Damage("history_row", history_row),
    Damage("values_unreadable", values_unreadable, VALUES),
    Damage(
        "values_bounds",
        lambda t: t.lie(block=change(A, max=number(8), max_exact=False)),
        VALUES,
        scanned=True,
    ),
    Damage(
        "values_nulls",
        lambda t: t.lie(block=change(N, null_count=4)),
        VALUES,
        scanned=True,
        besides=frozenset({"footer_nulls"}),
    ),
    Damage("values_sum", lambda t: t.lie(block=change(A, sum="46")), VALUES, scanned=True),
    Damage("values_bucket", lambda t: t.lie(block=change(A, bucket=(4, 0))), VALUES, scanned=True),
    Damage("values_nan", lambda t: t.lie(block=nan_block(t)), VALUES, scanned=True),
    Damage("values_exact", lambda t: t.lie(block=change(A, max=number(15))), VALUES, scanned=True),
    Damage("values_ranges", gapped, VALUES, scanned=True),
    Damage(
        "values_distinct",
        lambda t: t.lie(block=change(A, distinct_of_values=900), summarize=False),
        VALUES,
        scanned=True,
    ),
    Damage(
        "false_skip",
        lambda t: t.lie(block=change(A, max=number(5), max_exact=False)),
        MANY_FILTERS,
        scanned=True,
        besides=frozenset({"values_bounds", "false_all"}),
    ),
    Damage(
        "false_all",
        lambda t: t.lie(block=change(N, null_count=0)),
        MANY_FILTERS,
        scanned=True,
        besides=frozenset({"values_nulls", "footer_nulls", "false_skip"}),
    ),
]


def nan_block(table: LyingWriter) -> Callable[[Block], Block]:
    """The first block with a file that holds NaN, and statistics that exclude it."""
    rows = {**columns(0), "x": pa.array([float("nan"), *range(1, 10)], pa.float64())}
    before = table.segment(0).blocks[0]
    table.replace(before.location, parquet(rows))
    from lamella.snapshot.parquet import ingest

    (block,), _ = ingest(table.store, [before.location], SCHEMA, verify=True)
    stats = msgspec.structs.replace(block.col_stats[X], nan="none")
    return lambda _: msgspec.structs.replace(block, col_stats={**block.col_stats, X: stats}, sketches={})
