"""Cluster keys as values: an id means one key for good, whatever is changed, renamed and rolled back."""

from __future__ import annotations

from itertools import count
from random import Random

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lamella.snapshot.cluster.key import MAX_CLUSTER_COLUMNS, key_texts
from lamella.snapshot.commit import clustered_snapshot, empty_snapshot, evolved_snapshot
from lamella.snapshot.commit.snapshots import rolled_back_snapshot
from lamella.snapshot.errors import InvalidRequest, InvalidSchema, UnknownColumn
from lamella.snapshot.manifest import Block, ClusterKey, ClusterKind, ClusterStats, Snapshot, encode
from lamella.snapshot.schema import Column, Schema
from lamella.snapshot.schema.evolution import DropColumn, RenameColumn
from lamella.snapshot.storage import FsspecStore
from lamella.snapshot.warehouse import Warehouse

SCHEMA = Schema.assign([Column(name=name, type="int64") for name in ("a", "b", "c")])
KINDS: tuple[ClusterKind, ...] = ("linear", "zorder", "hilbert")


def first(*cluster_key: str, kind: ClusterKind = "linear") -> Snapshot:
    """A table's first snapshot."""
    return empty_snapshot(
        snapshot_id="s0",
        table_id="t",
        schema=SCHEMA,
        cluster_key=cluster_key,
        cluster_kind=kind,
        properties={},
        now_ms=1_000,
    )


def clustered(base: Snapshot, *columns: str, kind: ClusterKind = "linear") -> Snapshot:
    """The next snapshot, with another key."""
    return clustered_snapshot(base, columns, kind, snapshot_id="next", now_ms=5)


def key(snapshot: Snapshot) -> tuple[int, tuple[str, ...], str] | None:
    """Id, columns and kind of the key in force."""
    found = snapshot.cluster_key
    return None if found is None else (found.key_id, found.columns, found.kind)


def test_another_key_or_kind_gets_the_next_id() -> None:
    """The same key keeps its own."""
    table = first("a")
    assert key(table) == (0, ("a",), "linear")
    assert key(clustered(table, "a")) == (0, ("a",), "linear")
    assert key(clustered(table, "a", kind="zorder")) == (1, ("a",), "zorder")
    table = clustered(table, "a", "b", kind="hilbert")
    assert key(table) == (1, ("a", "b"), "hilbert")
    assert key(clustered(table, "b", "a", kind="hilbert")) == (2, ("b", "a"), "hilbert")
    assert table.operation == "cluster"
    assert (table.segments, table.summary) == (first().segments, first().summary)


def test_the_first_key_of_a_table_has_the_id_zero() -> None:
    """Whether it was made with the table or later."""
    assert first().cluster_key is None
    assert first().max_cluster_key_id == -1
    assert key(clustered(first(), "a")) == key(first("a"))


def test_a_key_that_was_taken_away_comes_back_under_another_id() -> None:
    """Blocks that were written for the old one are not taken for laid out by the new one."""
    without = clustered(first("a", kind="zorder"))
    assert without.cluster_key is None
    assert without.cluster_key_meta is None
    assert without.max_cluster_key_id == 0
    assert clustered(without).max_cluster_key_id == 0
    assert key(clustered(without, "a", kind="zorder")) == (1, ("a",), "zorder")


def test_a_table_of_a_linear_key_says_nothing_that_older_releases_did_not() -> None:
    """Its manifests stay as they were, byte for byte."""
    for table in (first(), first("a"), clustered(first("a"), "b")):
        data = msgspec.json.decode(encode(table))
        assert "cluster_kind" not in data
        assert "last_cluster_key_id" not in data
    assert msgspec.json.decode(encode(first("a", kind="zorder")))["cluster_kind"] == "zorder"


@settings(max_examples=200)
@given(st.lists(st.integers(0, 9), max_size=14), st.randoms(use_true_random=False))
def test_an_id_means_one_key_for_good(steps: list[int], rng: Random) -> None:
    """Over any mix of keys, renames and rollbacks: an id always stands for the same columns and kind."""
    chain = [first(*rng.choice([(), ("a",)]))]
    names = count()
    meaning: dict[int, tuple[tuple[int, ...], str]] = {}
    for number, step in enumerate(steps, 1):
        base = chain[-1]
        if step < 4:
            paths = [column.name for column in base.schema.columns]
            columns = rng.sample(paths, rng.randint(0, len(paths)))
            kind: ClusterKind = rng.choice(KINDS) if columns else "linear"
            following = clustered_snapshot(base, columns, kind, snapshot_id=f"s{number}", now_ms=0)
            found = following.cluster_key
            assert (() if found is None else found.columns) == tuple(columns)
            assert found is None or found.kind == kind
        elif step < 6:
            old = rng.choice(base.schema.columns).name
            change = RenameColumn(column=old, name=f"n{next(names)}")
            following = evolved_snapshot(base, [change], snapshot_id=f"s{number}", now_ms=0, base_schema_id=None)
        else:
            target = rng.choice(chain)
            following = rolled_back_snapshot(base, target, snapshot_id=f"s{number}", now_ms=0)
            assert key(following) == key(target)
        assert following.max_cluster_key_id >= base.max_cluster_key_id
        now = following.cluster_key
        if now is not None:
            ids = tuple(following.schema.leaf(name).id for name in now.columns)
            assert meaning.setdefault(now.key_id, (ids, now.kind)) == (ids, now.kind)
            assert now.key_id <= following.max_cluster_key_id
        chain.append(following)


def test_a_column_of_the_key_is_dropped_only_once_the_key_is_another_one() -> None:
    """A key whose column is gone would mean nothing."""
    table = first("a", "b", kind="zorder")
    drop = [DropColumn(column="b")]
    with pytest.raises(InvalidSchema, match="cluster key"):
        evolved_snapshot(table, drop, snapshot_id="x", now_ms=5, base_schema_id=None)
    for other in (clustered(table), clustered(table, "a")):
        dropped = evolved_snapshot(other, drop, snapshot_id="x", now_ms=5, base_schema_id=None)
        assert dropped.cluster_key == other.cluster_key


def test_columns_are_spelled_as_in_the_schema() -> None:
    """A key names columns with values that have an order, once each."""
    schema = Schema.assign(
        [
            Column(name="A", type="int64"),
            Column(name="p", type="struct", fields=(Column(name="x", type="string"),)),
            Column(name="l", type="list", fields=(Column(name="element", type="int64"),)),
            Column(name="v", type="variant"),
        ]
    )
    assert key_texts(schema, ["a", "P.X"]) == ("A", "p.x")
    for wrong, error in ((["p"], UnknownColumn), (["b"], UnknownColumn), (["v"], InvalidRequest)):
        with pytest.raises(error):
            key_texts(schema, wrong)
    for wrong in (["a", "A"], ["l.element"], ["a"] * (MAX_CLUSTER_COLUMNS + 1)):
        with pytest.raises((InvalidRequest, UnknownColumn)):
            key_texts(schema, wrong)


def test_what_a_writer_says_of_its_blocks_stays_with_them() -> None:
    """Folding, removal and groups write segments anew; the blocks in them say what they said, in arrays too."""
    store = FsspecStore()
    warehouse = Warehouse(store, "memory://clustering/stats", segment_blocks=4)
    pointer = warehouse.create("stats", SCHEMA, cluster_key=("a",), now_ms=1)
    said: dict[str, ClusterStats | None] = {}
    for number in range(12):
        stats = ClusterStats(key_id=number % 2, level=number) if number % 3 else None
        block = Block(location=f"memory://b/{number}", row_count=1, file_size=1, cluster_stats=stats)
        said[block.location] = stats
        added = warehouse.prepare("stats", warehouse.snapshot(pointer), [block])
        gone = [f"memory://b/{number - 5}"] if number in (7, 11) else []
        for location in gone:
            del said[location]
        pointer = warehouse.commit(pointer, added=added, removed=gone, now_ms=2).pointer
    refs = list(warehouse.segments(pointer))
    assert len(refs) < len(said)
    found = {block.location: block.cluster_stats for ref in refs for block in warehouse.segment(ref).blocks}
    assert found == said
    for ref in refs:
        sidecar = warehouse.sidecar(ref.sidecar)
        key_ids, levels = sidecar.clustered()
        for block_location, key_id, level in zip(
            sidecar.texts("location"), key_ids.tolist(), levels.tolist(), strict=True
        ):
            assert (None if key_id < 0 else ClusterStats(key_id=key_id, level=level)) == said[block_location]
            assert key_id >= 0 or level == 0


def test_sidecars_without_any_such_block_have_no_such_arrays() -> None:
    """They are those that older releases wrote; their blocks are of no key."""
    warehouse = Warehouse(FsspecStore(), "memory://clustering/none")
    pointer = warehouse.create("none", SCHEMA, now_ms=1)
    (ref,) = warehouse.prepare("none", SCHEMA, [Block(location="memory://b", row_count=1, file_size=1)])
    sidecar = warehouse.sidecar(ref.sidecar)
    assert [each.tolist() for each in sidecar.clustered()] == [[-1], [0]]
    assert b"cluster" not in warehouse.segment_bytes(
        warehouse.commit(pointer, added=[ref], now_ms=2).pointer, ref.segment_id
    )


def test_a_key_is_a_value() -> None:
    """A snapshot's own key is one that can be compared."""
    assert first("a", kind="zorder").cluster_key == ClusterKey(key_id=0, columns=("a",), kind="zorder")
