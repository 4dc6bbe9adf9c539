"""One segment: its manifest, what that says of its blocks, its companion. No block's file is opened."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from lamella.snapshot import commit as commits
from lamella.snapshot.layout import Store
from lamella.snapshot.manifest import MOST_LEVEL, Block, Segment, SegmentRef, Snapshot, Summary, decode_segment
from lamella.snapshot.schema import Leaf, Schema
from lamella.snapshot.stats import ColumnStats
from lamella.snapshot.verify.checks import found
from lamella.snapshot.verify.companions import as_of, check_companion, segment_companion
from lamella.snapshot.verify.layers import Child, Problem, count_problems, layer_problems, stats_problem
from lamella.snapshot.verify.reading import Note, read_companion, read_manifest


def check_segment(
    store: Store, snapshot: Snapshot, ref: SegmentRef, note: Note, *, repair: bool = False
) -> Segment | None:
    """The segment, None when its manifest cannot be read. Raises nothing for what is wrong with it."""
    segment_id = ref.segment_id
    segment = read_manifest(
        store,
        ref.manifest,
        lambda data: decode_segment(data, location=ref.manifest.location),
        note,
        segment_id=segment_id,
    )
    if segment is None:
        read_companion(store, ref.companion, note, segment_id=segment_id)
        return None
    whole = segment
    for problem in _problems(snapshot, ref, whole):
        column = None if problem.column_id is None else _name(snapshot, problem.column_id)
        note(
            found(
                problem.code,
                problem.message,
                at=ref.manifest.location,
                segment_id=segment_id,
                block=problem.child,
                column=column,
            )
        )
    check_companion(
        store,
        ref.companion,
        lambda: segment_companion(snapshot, whole),
        note,
        segment_id=segment_id,
        repair=repair,
    )
    return segment


def known_schemas(snapshot: Snapshot) -> Mapping[int, Schema]:
    """The table's schemas by id."""
    return {schema.schema_id: schema for schema in snapshot.history}


def _name(snapshot: Snapshot, column_id: int) -> str:
    for schema in reversed(snapshot.history):
        leaf = schema.by_id().get(column_id)
        if leaf is not None:
            return leaf.name
    return f"#{column_id}"


def _problems(snapshot: Snapshot, ref: SegmentRef, segment: Segment) -> Iterator[Problem]:
    recorded = (ref.segment_id, ref.schema_id, ref.format_version)
    own = (segment.segment_id, segment.schema_id, segment.format_version)
    if recorded != own:
        yield Problem("manifest_identity", f"id, schema and format version are {own}, and {recorded} above")
    if segment.summary != ref.summary:
        yield Problem("summary_differs", "the segment's summary is not the one that the layer above records")
    schemas = known_schemas(snapshot)
    used = sorted({block.written_with for block in segment.blocks})
    strange = [schema_id for schema_id in dict.fromkeys([*used, segment.schema_id]) if schema_id not in schemas]
    if strange:
        yield Problem("schema_unknown", f"the table never had a schema with id {strange[0]}")
    elif tuple(used) != (ref.block_schema_ids or (ref.schema_id,)) and used:
        yield Problem("schema_ids_differ", f"blocks have schemas {used}, and {list(ref.block_schema_ids)} is recorded")
    for block in segment.blocks:
        yield from _block_problems(schemas, block)
        yield from _clustered_problems(snapshot.greatest_cluster_key_id, block)
    perfect = sum(commits.is_perfect(block) for block in segment.blocks)
    if segment.summary.perfect_block_count != perfect:
        yield Problem("perfect_blocks", f"{segment.summary.perfect_block_count} are counted, and {perfect} are by now")
    parts = [_summary_of(block) for block in segment.blocks]
    yield from count_problems(segment.summary, parts, of_blocks=True)
    if strange:
        return
    then = as_of(snapshot, segment.schema_id)
    schema = then.history[-1]
    yield from summary_problems(schema.leaves(), segment.summary)
    children = [
        Child(block.location, block.row_count, block.col_stats) for block in commits.seen_blocks(then, segment.blocks)
    ]
    types = {leaf.id: leaf.dtype for leaf in schema.leaves()}
    yield from layer_problems(types, segment.summary.col_stats, children)


def summary_problems(leaves: Iterable[Leaf], summary: Summary) -> Iterator[Problem]:
    """What is wrong with a summary by itself."""
    for leaf in leaves:
        stats = summary.col_stats.get(leaf.id)
        problem = None if stats is None else stats_problem(leaf, stats, summary.row_count)
        if problem is not None:
            yield Problem("stats_invalid", problem, leaf.id)


def _block_problems(schemas: Mapping[int, Schema], block: Block) -> Iterator[Problem]:
    for name in ("row_count", "file_size", "block_size"):
        if getattr(block, name) < 0:
            yield Problem("block_counts", f"{name} is {getattr(block, name)}", None, block.location)
    groups = block.row_group_row_counts
    if groups and sum(groups) != block.row_count:
        message = f"its row groups have {sum(groups)} rows, and it is said to have {block.row_count}"
        yield Problem("block_counts", message, None, block.location)
    if groups and any(len(metas) != len(groups) for metas in block.col_metas.values()):
        message = f"a column does not have one chunk in each of {len(groups)} row groups"
        yield Problem("block_counts", message, None, block.location)
    schema = schemas.get(block.written_with)
    if schema is None:
        return
    leaves = schema.by_id()
    for column_id, stats in block.col_stats.items():
        leaf = leaves.get(column_id)
        problem = _strange(leaf, stats, block)
        if problem is not None:
            yield Problem("stats_invalid", problem, column_id, block.location)


def _clustered_problems(last_key_id: int, block: Block) -> Iterator[Problem]:
    stats = block.cluster_stats
    if stats is None:
        return
    if not 0 <= stats.key_id <= last_key_id:
        message = f"the table never had a cluster key with the id {stats.key_id}"
        yield Problem("block_clustered", message, None, block.location)
    if not 0 <= stats.level <= MOST_LEVEL:
        yield Problem("block_clustered", f"its level is {stats.level}", None, block.location)


def _strange(leaf: Leaf | None, stats: ColumnStats, block: Block) -> str | None:
    if leaf is None:
        return "there is no such column in the schema that the block was written with"
    return stats_problem(leaf, stats, block.row_count)


def _summary_of(block: Block) -> Summary:
    return Summary(
        row_count=block.row_count,
        block_count=1,
        uncompressed_byte_size=block.block_size,
        compressed_byte_size=block.file_size,
        index_size=block.bloom_filter_index_size,
        by_name_count=int(block.by_name),
    )
