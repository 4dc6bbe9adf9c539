"""A small table for hostile filters: every kind of type, nested ones too, with and without bounds."""

from __future__ import annotations

from functools import cache
from random import Random

from lamella.snapshot.columnar import Sidecar, build_blocks
from lamella.snapshot.manifest import Block
from lamella.snapshot.schema import Column, Schema
from support import generate

COLUMNS = {
    "b": "boolean",
    "i": "int32",
    "n": "int64",
    "u": "uint64",
    "f": "float32",
    "d": "float64",
    "dec": "decimal(9,2)",
    "wide": "decimal(38,10)",
    "day": "date",
    "tm": "time(us)",
    "ts": "timestamp(us)",
    "wall": "timestamp_ntz(us)",
    "s": "string",
    "bin": "binary",
    "id": "uuid",
}


@cache
def schema() -> Schema:
    """The columns above, a struct and a list."""
    leaf = Column(name="x", type="int64")
    item = Column(name="element", type="string")
    return Schema.assign(
        [
            *(Column(name=name, type=kind) for name, kind in COLUMNS.items()),
            Column(name="st", type="struct", fields=(leaf, Column(name="y z", type="string"))),
            Column(name="li", type="list", fields=(item,)),
        ]
    )


@cache
def blocks() -> tuple[Block, ...]:
    """Some blocks, with exact, weakened and missing statistics."""
    rng = Random(7)
    columns = [leaf for leaf in schema().leaves() if not leaf.repeated]
    made = []
    for index in range(6):
        stats = {}
        for leaf in columns:
            cells = [generate.value(rng, leaf.dtype) for _ in range(4)] if leaf.dtype.order else []
            known = generate.weakened_stats(rng, leaf.dtype, cells)
            if known is not None:
                stats[leaf.id] = known
        made.append(Block(location=f"memory://fuzz/{index}", row_count=4, file_size=10, col_stats=stats))
    return tuple(made)


@cache
def sidecar() -> Sidecar:
    """The sidecar of those blocks."""
    return Sidecar(build_blocks(schema(), blocks()))
