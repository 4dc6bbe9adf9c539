"""Tables of many segments: whatever happens to them, they hold what a plain dict says, and prune as one flat list."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import pytest

from lamella.snapshot import commit as commits
from lamella.snapshot.commit import Shape
from lamella.snapshot.errors import CommitConflict, DuplicateBlock
from lamella.snapshot.expression import read_filter
from lamella.snapshot.manifest import Block, Snapshot, SnapshotPointer, Summary, content_hash
from lamella.snapshot.schema import Column, Schema
from lamella.snapshot.schema.evolution import AddColumn, RenameColumn, WidenColumn
from lamella.snapshot.stats import ColumnStats, all_null, to_bound
from lamella.snapshot.storage import FsspecStore
from lamella.snapshot.warehouse import Applied, ChangeSet, Warehouse
from lamella.snapshot.wire import PruneRequest
from support.segment_prunes import blocks_by_segments

ROOT = "memory://grouped"
SCHEMA = Schema.assign(
    [
        Column(name="a", type="int32"),
        Column(name="s", type="string"),
        Column(name="d", type="decimal(10,2)"),
        Column(name="x", type="float64"),
    ]
)
EVOLUTIONS = (
    WidenColumn(column="a", type="int64"),
    WidenColumn(column="d", type="decimal(30,2)"),
    RenameColumn(column="x", name="y"),
    AddColumn(name="n", type="int64", default="7"),
)
Row = tuple[int | None, str | None, int | None, float | None]


class Model:
    """A table, and beside it a dict of its blocks' rows by location."""

    def __init__(self, seed: int) -> None:
        self.rng = Random(seed)
        shape = Shape(
            segment_blocks=self.rng.choice([2, 4, 7]),
            fan_in=self.rng.choice([2, 3]),
            group_segments=self.rng.choice([1, 2, 3]),
            max_moved=self.rng.choice([3, 64]),
            max_grouped=self.rng.choice([6, 64]),
        )
        self.store = FsspecStore()
        self.shape = shape
        self.table_id = f"grouped-{seed}"
        self.warehouse = Warehouse(self.store, ROOT, shape=shape)
        self.pointer = self.warehouse.create(self.table_id, SCHEMA, now_ms=1)
        self.flat = Warehouse(self.store, ROOT, shape=Shape(segment_blocks=1_000))
        self.mirror = self.flat.create(f"flat-{seed}", SCHEMA, now_ms=1)
        self.mirrored: dict[str, str | None] = {}
        self.alive: set[str] = set()
        self.rows: dict[str, list[Row]] = {}
        self.blocks: dict[str, Block] = {}
        self.made = 0

    @property
    def head(self) -> Snapshot:
        return self.warehouse.head(self.pointer)

    def block(self, location: str | None = None) -> Block:
        rng, schema = self.rng, self.head.schema
        self.made += 1
        base = rng.randint(-5, 5) * 100
        rows: list[Row] = [
            (
                rng.choice([None, base + rng.randint(0, 20)]),
                rng.choice([None, f"prefix-of-{base + 500:04d}-{rng.randint(0, 3)}"]),
                rng.choice([None, base * 10 + rng.randint(0, 9)]),
                rng.choice([None, float(base), float("nan")]),
            )
            for _ in range(rng.randint(1, 3))
        ]
        stats: dict[int, ColumnStats] = {}
        for index, name in enumerate(("a", "s", "d", None)):
            leaf = schema.leaves()[3] if name is None else schema.leaf(name)
            values = [row[index] for row in rows]
            known = [value.encode() if isinstance(value, str) else value for value in values if value is not None]
            plain = [value for value in known if value == value]
            if rng.random() < 0.1:
                continue  # nothing is known
            if not known:
                stats[leaf.id] = all_null(len(rows))
                continue
            stats[leaf.id] = ColumnStats(
                min=to_bound(leaf.dtype, min(plain)) if plain else None,
                max=to_bound(leaf.dtype, max(plain)) if plain else None,
                null_count=len(values) - len(known),
                nan="none" if len(plain) == len(known) else "all" if not plain else "maybe",
                min_exact=bool(plain),
                max_exact=bool(plain),
            )
        block_location = location or f"memory://data/{rng.choice('pqr')}/{self.made:05d}.parquet"
        block = Block(
            location=block_location,
            row_count=len(rows),
            file_size=100 + self.made,
            col_stats=stats,
            content_id=str(self.made),
            schema_id=schema.schema_id,
        )
        self.rows[block_location], self.blocks[block_location] = rows, block
        return block

    def live(self) -> list[str]:
        return list(self.warehouse.block_locations(self.pointer))

    def step(self) -> None:
        """One change, in the table and in the dict."""
        rng = self.rng
        live = sorted(self.alive)
        kind = rng.choice(["append"] * 5 + ["remove", "replace", "rewrite", "schema", "many", "again", "cold"])
        some = rng.sample(live, min(len(live), rng.choice([1, 1, 2, 5])))
        if kind == "cold":
            self.warehouse = Warehouse(self.store, ROOT, shape=self.shape)
        elif kind == "append":
            self._commit([self.block() for _ in range(rng.choice([1, 1, 1, 2, 9]))], [])
        elif kind == "remove" and some:
            self._commit([], some, read_at=rng.choice([None, self.pointer]))
        elif kind == "replace" and some:
            self._commit([self.block()], some)
        elif kind == "rewrite" and some:
            self._commit([self.block(location) for location in some], some)
        elif kind == "schema" and self.head.schema.schema_id < len(EVOLUTIONS):
            change = EVOLUTIONS[self.head.schema.schema_id]
            self.pointer = self.warehouse.evolve(self.pointer, [change], now_ms=3).pointer
            self.mirror = self.flat.evolve(self.mirror, [change], now_ms=3).pointer
        elif kind == "many" and some:
            self._many(some)
        elif kind == "again" and some:
            refs = self.warehouse.prepare(self.table_id, self.head, [self.blocks[some[0]]])
            with pytest.raises(DuplicateBlock):
                self.warehouse.commit(self.pointer, added=refs, now_ms=4)
            with pytest.raises(CommitConflict):
                self.warehouse.commit(self.pointer, removed=[some[0], "memory://data/none"], now_ms=4)

    def sync(self) -> None:
        """Bring a table without groups to the same blocks."""
        wanted = {location: self.blocks[location].content_id for location in self.alive}
        added = sorted(location for location, content in wanted.items() if self.mirrored.get(location) != content)
        removed = [location for location in self.mirrored if location not in wanted or location in added]
        refs = self.flat.prepare("flat", self.head, [self.blocks[location] for location in added])
        self.mirror = self.flat.commit(self.mirror, added=refs, removed=removed, now_ms=2).pointer
        self.mirrored = dict(wanted)
        assert not self.flat.snapshot(self.mirror).groups

    def _commit(self, added: list[Block], removed: list[str], read_at: SnapshotPointer | None = None) -> None:
        refs = self.warehouse.prepare(self.table_id, self.head, added)
        done = self.warehouse.commit(
            self.pointer, added=refs, removed=removed, read_at=read_at, operation="change", now_ms=2
        )
        assert (done.added, done.removed) == (len(added), len(removed))
        self.pointer = done.pointer
        self.alive = self.alive.difference(removed).union(block.location for block in added)

    def _many(self, some: list[str]) -> None:
        """Three callers at once, of whom two want the same block gone."""
        first, second = self.block(), self.block()
        refs = [self.warehouse.prepare(self.table_id, self.head, [block]) for block in (first, second)]
        done = self.warehouse.commit_many(
            self.pointer,
            [
                ChangeSet(added=refs[0], removed=tuple(some), operation="compact", read_at=self.pointer),
                ChangeSet(removed=(some[-1],), operation="delete", read_at=self.pointer),
                ChangeSet(added=refs[1]),
            ],
            now_ms=5,
        )
        applied, lost, appended = done.outcomes
        assert applied == Applied(added=1, removed=len(some))
        assert appended == Applied(added=1, removed=0)
        assert isinstance(lost, CommitConflict)
        assert lost.details["blocks"] == [some[-1]]
        self.pointer = done.applied.pointer
        self.alive = self.alive.difference(some).union((first.location, second.location))


def check_layers(model: Model) -> None:
    """Every layer says exactly what its blocks add up to, and no layer is out of shape."""
    snapshot = model.warehouse.snapshot(model.pointer)
    below: list[Block] = []
    for ref in model.warehouse.segments(model.pointer):
        blocks = list(model.warehouse.segment(ref).blocks)
        (seen,) = commits.seen_refs(snapshot, [ref])
        agree(seen.summary, snapshot, blocks)
        locations = [block.location for block in blocks]
        assert (ref.first_location, ref.last_location) == (min(locations), max(locations))
        below += blocks
    agree(snapshot.summary, snapshot, below)
    at = 0
    for group in commits.seen_refs(snapshot, snapshot.groups):
        agree(group.summary, snapshot, below[at : at + group.summary.block_count])
        at += group.summary.block_count
    assert (
        len(snapshot.segments) <= 2 * model.shape.fan_in * 3 + model.shape.segment_blocks + model.shape.max_moved + 40
    )


def agree(summary: Summary, snapshot: Snapshot, blocks: list[Block]) -> None:
    expected = commits.summarize_blocks(snapshot.schema, commits.seen_blocks(snapshot, blocks))
    assert summary.row_count == expected.row_count
    assert summary.block_count == expected.block_count
    assert summary.compressed_byte_size == expected.compressed_byte_size
    for column_id, stats in expected.col_stats.items():
        found = summary.col_stats[column_id]
        assert (found.min, found.max, found.null_count, found.nan, found.min_exact, found.max_exact) == (
            (stats.min, stats.max, stats.null_count, stats.nan, stats.min_exact, stats.max_exact)
        ), column_id


def filters(model: Model) -> list[tuple[str, Callable[[Row], bool]]]:
    """Filters, and what each says of a row."""
    rng, last = model.rng, model.head.schema.leaves()[3].name
    a, d, text = rng.randint(-520, 520), rng.randint(-5_200, 5_200), f"prefix-of-{rng.randint(0, 10) * 100:04d}"
    return [
        (f"a >= {a} AND a < {a + 60}", lambda r: r[0] is not None and a <= r[0] < a + 60),
        (f"s >= '{text}' AND s < '{text}-2'", lambda r: r[1] is not None and text <= r[1] < f"{text}-2"),
        (f"d <= {d / 100:.2f}", lambda r: r[2] is not None and r[2] <= d),
        (f"{last} > {a}", lambda r: r[3] is not None and (r[3] != r[3] or r[3] > a)),
        ("a IS NULL", lambda r: r[0] is None),
        (f"NOT (s LIKE 'prefix%') OR d > {d / 100:.2f}", lambda r: r[2] is not None and r[2] > d),
    ]


def check_pruning(model: Model) -> None:
    """What is kept holds every match, and is what a table without groups keeps, verdicts included."""
    model.sync()
    for text, matches in filters(model):
        request = PruneRequest(filter=text)
        ours, theirs = (
            model.warehouse.prune(model.pointer, request).blocks,
            model.flat.prune(model.mirror, request).blocks,
        )
        assert ours is not None
        assert theirs is not None
        selected, wanted = ({block.location: block.verdict for block in found} for found in (ours, theirs))
        missed = [p for p in model.alive if p not in selected and any(matches(row) for row in model.rows[p])]
        assert not missed, text
        assert selected == wanted, text
        by_segments = blocks_by_segments(model.warehouse, model.pointer, read_filter(text))
        assert by_segments == [(block.location, block.verdict) for block in ours], text


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(8))
@pytest.mark.few(3)
def test_a_table_is_what_a_dict_says_through_any_changes(seed: int) -> None:
    """Appends, removals, rewrites, schema changes, several callers: same blocks, exact layers, same pruning."""
    live_through(seed, 60)


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(100, 140))
def test_a_table_is_what_a_dict_says_for_long(seed: int) -> None:
    """The same through more changes, and more tables."""
    live_through(seed, 150)


def live_through(seed: int, steps: int) -> None:
    """Change a table so many times, and then go on from nothing but the objects that its last snapshot names."""
    model = Model(seed)
    for number in range(steps):
        model.step()
        assert sorted(model.live()) == sorted(model.alive)
        assert model.warehouse.snapshot(model.pointer).segment_count == len(
            list(model.warehouse.segments(model.pointer))
        )
        if number % 10 == 9:
            check_layers(model)
            check_pruning(model)
    everything = model.warehouse.objects(model.pointer)
    for ref in everything.needed:
        assert content_hash(model.store.read(ref.location)) == ref.sha256
    stored = {stat.location for stat in model.store.list(model.warehouse.table_location(model.table_id))}
    for location in stored - everything.locations():
        model.store.delete(location)
    model.warehouse = Warehouse(model.store, ROOT, shape=model.shape)  # from what is left, with nothing in memory
    check_layers(model)
    check_pruning(model)
    model.step()
    assert sorted(model.live()) == sorted(model.alive)
