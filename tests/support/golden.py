"""The golden table: made the same way every time, so that what a release writes can be held against what it wrote.

``python tests/support/golden.py`` (with ``tests`` on the path) writes ``tests/golden/v<format version>``. Do that once
for a new format version; the files of older versions are never written again.
"""

from __future__ import annotations

import itertools
from pathlib import Path

import msgspec

from lamella.snapshot.commit import Shape
from lamella.snapshot.ids import Ids
from lamella.snapshot.manifest import FORMAT_VERSION, Block, ColumnMeta, DeleteFile, SnapshotPointer
from lamella.snapshot.schema import Column, Schema
from lamella.snapshot.stats import ColumnStats, all_null, to_bound
from lamella.snapshot.stats.bound import Value
from lamella.snapshot.stats.constant import constant_stats, to_constant
from lamella.snapshot.storage import FsspecStore
from lamella.snapshot.warehouse import Warehouse

ROOT = "memory://golden"
TABLE_ID = "00000000-0000-7000-8000-000000000001"
FOLDER = Path(__file__).resolve().parent.parent / "golden"
#: Tables whose readers need features, from version 3 on.
FEATURES = FOLDER.with_name("golden_features")
#: Tables whose sidecars are in parts, from version 3 on.
PARTS = FOLDER.with_name("golden_parts")

SCHEMA = Schema.assign(
    [
        Column(name="n", type="int64"),
        Column(name="u", type="uint64"),
        Column(name="x", type="float64"),
        Column(name="price", type="decimal(38,10)"),
        Column(name="name", type="string"),
        Column(name="day", type="date"),
        Column(name="at", type="timestamp(us)"),
        Column(name="raw", type="binary"),
        Column(name="flag", type="boolean"),
        Column(name="inner", type="struct", fields=(Column(name="leaf", type="int32"),)),
        Column(name="items", type="list", fields=(Column(name="element", type="string"),)),
    ]
)

FEATURE_SCHEMA = Schema.assign(
    [
        Column(name="n", type="int64"),
        Column(name="year", type="int32"),
        Column(name="region", type="string"),
        Column(name="price", type="decimal(10,2)"),
    ]
)


def blocks() -> list[Block]:
    """Five blocks whose statistics cover every tag, missing bounds, NaN and nulls."""
    made = []
    for index in range(5):
        bounds: dict[str, tuple[int | float | bytes, int | float | bytes]] = {
            "n": (index * 10 - 2**63 if index == 0 else index * 10, index * 10 + 9),
            "u": (index, 2**64 - 5 + index),
            "x": (-0.0 if index == 1 else float(index), float("inf") if index == 2 else index + 0.5),
            "price": (index * 10**30, index * 10**30 + 7),
            "name": (f"name-{index}-ä".encode(), b"name-%d-\xc3" % index if index == 3 else f"name-{index}-ö".encode()),
            "day": (-141_428 + index, 19_000 + index),
            "at": (index * 10**15, index * 10**15 + 1),
            "raw": (bytes([index]), bytes([index, 255])),
            "flag": (0, index % 2),
            "inner.leaf": (-index, index),
        }
        stats = {
            leaf.id: ColumnStats(
                min=to_bound(leaf.dtype, bounds[leaf.name][0]),
                max=to_bound(leaf.dtype, bounds[leaf.name][1]),
                null_count=index,
                nan="maybe" if leaf.name == "x" and index == 4 else "none",
                min_exact=index != 3,
                max_exact=index != 3,
                distinct_of_values=7,
                in_memory_size=800,
            )
            for leaf in SCHEMA.leaves()
            if leaf.name in bounds
        }
        if index == 4:
            stats[SCHEMA.leaf("day").id] = all_null(100)
            del stats[SCHEMA.leaf("raw").id]
        made.append(
            Block(
                location=f"s3://bucket/data/part {index}.parquet",
                row_count=100,
                file_size=1000 + index,
                block_size=5000,
                col_stats=stats,
                col_metas={1: (ColumnMeta(4, 100, 100),)},
                row_group_row_counts=(100,),
                compression="ZSTD",
                content_id='"etag"',
                create_on="2026-01-01T00:00:00.000Z",
            )
        )
    return made


def feature_blocks() -> list[Block]:
    """Blocks with constants of several types and null, and with deleted rows, whose number may be unknown."""
    ids = {leaf.name: leaf for leaf in FEATURE_SCHEMA.leaves()}
    values: list[dict[str, Value | None]] = [
        {"year": 2024, "region": "nord/süd".encode(), "price": 150},
        {"year": 2024, "region": None},
        {"year": None, "region": b"west"},
        {},
        {"year": 2025},
    ]
    vector = DeleteFile(kind="deletion_vector", location="s3://bucket/data/dv.puffin", offset=4, length=44)
    deletes: list[tuple[DeleteFile, ...]] = [
        (),
        (msgspec.structs.replace(vector, cardinality=10, sha256="ab" * 32),),
        (),
        (msgspec.structs.replace(vector, location="s3://bucket/data/dv.bin"), vector),
        (msgspec.structs.replace(vector, cardinality=99),),
    ]
    made = []
    for index, (constants, lists) in enumerate(zip(values, deletes, strict=True)):
        n = ids["n"]
        bounds = (to_bound(n.dtype, index * 10), to_bound(n.dtype, index * 10 + 9))
        given = {ids[name].id: to_constant(ids[name].dtype, value) for name, value in constants.items()}
        stats = {
            n.id: ColumnStats(min=bounds[0], max=bounds[1], null_count=0, min_exact=True, max_exact=True),
            **{key: constant_stats(FEATURE_SCHEMA.by_id()[key].dtype, each, 100) for key, each in given.items()},
        }
        made.append(
            Block(
                location=f"s3://bucket/data/part {index}.parquet",
                row_count=100,
                file_size=1000 + index,
                col_stats=stats,
                constants=given,
                deletes=lists,
            )
        )
    return made


def build() -> tuple[FsspecStore, SnapshotPointer]:
    """The golden table in memory, and the pointer to its newest snapshot."""
    return _built(SCHEMA, blocks())


def build_features() -> tuple[FsspecStore, SnapshotPointer]:
    """As :func:`build`, of a table whose readers need features."""
    return _built(FEATURE_SCHEMA, feature_blocks())


def build_parts() -> tuple[FsspecStore, SnapshotPointer]:
    """As :func:`build`, with the sidecars of segments and groups in parts."""
    return _built(SCHEMA, blocks(), split_from_bytes=0)


def _built(
    schema: Schema, made: list[Block], *, split_from_bytes: int | None = None
) -> tuple[FsspecStore, SnapshotPointer]:
    ticks = itertools.count(1)
    ids = Ids(clock=lambda: 1_767_225_600_000, entropy=lambda size: next(ticks).to_bytes(size, "big"))
    store = FsspecStore()
    for old in list(store.list(ROOT)):
        store.delete(old.location)
    warehouse = Warehouse(
        store, ROOT, ids=ids, shape=Shape(segment_blocks=2, group_segments=2), split_from_bytes=split_from_bytes
    )
    empty = warehouse.create(
        TABLE_ID, schema, cluster_key=("n",), properties={"owner": "golden"}, now_ms=1_767_225_600_000
    )
    refs = warehouse.prepare(TABLE_ID, schema, made)
    return store, warehouse.commit(empty, added=refs, now_ms=1_767_225_600_001).pointer


def main() -> None:
    """Write the golden files of the current format version."""
    for root, make in ((FOLDER, build), (FEATURES, build_features), (PARTS, build_parts)):
        store, pointer = make()
        folder = root / f"v{FORMAT_VERSION}"
        for stat in store.list(ROOT):
            path = folder / stat.location.removeprefix(f"{ROOT}/")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(store.read(stat.location))
        (folder / "pointer.json").write_bytes(msgspec.json.format(msgspec.json.encode(pointer)))


if __name__ == "__main__":
    main()
