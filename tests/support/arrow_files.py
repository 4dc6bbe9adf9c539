"""Random tables as Parquet files written by pyarrow with random settings."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from lamella.snapshot.schema import Column, DataType, Schema
from support.generate import Block


def arrow_array(dtype: DataType, cells: list[Any]) -> pa.Array:
    """Values of a type's order as an Arrow array of that type."""
    kind = dtype.name
    if kind == "boolean":
        return pa.array([None if c is None else bool(c) for c in cells], pa.bool_())
    if kind == "float16":
        return pa.array([None if c is None else np.float16(c) for c in cells], pa.float16())
    if dtype.is_float:
        return pa.array(cells, pa.float32() if dtype.bits == 32 else pa.float64())
    if dtype.is_integer:
        return pa.array(cells, getattr(pa, kind)())
    if kind == "decimal":
        exact = [
            None if c is None else Decimal((int(c < 0), tuple(map(int, str(abs(c)))), -dtype.scale)) for c in cells
        ]
        return pa.array(exact, pa.decimal128(dtype.precision, dtype.scale))
    if kind == "date":
        return pa.array(cells, pa.int32()).cast(pa.date32())
    if kind == "time":
        return pa.array(cells, pa.int64()).cast(pa.time64("us"))
    if kind in ("timestamp", "timestamp_ntz"):
        return pa.array(cells, pa.int64()).cast(pa.timestamp(dtype.unit, tz="UTC" if kind == "timestamp" else None))
    if dtype.is_text:
        return pa.array([None if c is None else c.decode() for c in cells], pa.string())
    if kind == "uuid":
        storage = pa.array(cells, pa.binary(16))
        return pa.ExtensionArray.from_storage(pa.uuid(), storage)
    return pa.array(cells, pa.binary(dtype.length) if kind == "fixed" else pa.binary())


def arrow_table(schema: Schema, block: Block) -> pa.Table:
    """A block as an Arrow table; a struct column is never null itself."""

    def column(of: Column, prefix: str) -> pa.Array:
        if of.fields:
            return pa.StructArray.from_arrays(
                [column(field, f"{prefix}{of.name}.") for field in of.fields], names=[f.name for f in of.fields]
            )
        return arrow_array(of.dtype, block[prefix + of.name])

    return pa.table({of.name: column(of, "") for of in schema.columns})


def write_block(rng: Random, schema: Schema, block: Block, path: Path) -> None:
    """Write a block with random writer settings: statistics off, page sizes, versions, several row groups, ..."""
    rows = len(next(iter(block.values())))
    names = [leaf.name for leaf in schema.leaves()]
    pq.write_table(
        arrow_table(schema, block),
        path,
        row_group_size=rng.choice([1, 2, max(rows, 1)]),
        write_statistics=rng.choice([True, True, True, False, rng.sample(names, rng.randint(0, len(names)))]),
        use_dictionary=rng.random() < 0.5,
        data_page_version=rng.choice(["1.0", "2.0"]),
        write_page_index=rng.random() < 0.5,
        compression=rng.choice(["snappy", "zstd", "none"]),
        store_decimal_as_integer=rng.random() < 0.5,
        store_schema=rng.random() < 0.5,
    )
