"""The tables of the benchmark, cut into Parquet files: TPC-H in two layouts, and a table of values of every type."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any, Final

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from tpch_files import generate

#: The oracle's column with a row's block; no file contains it.
BLOCK: Final = "__block"
#: Each table's cluster key.
KEYS: Final = {"lineitem": "l_shipdate", "orders": "o_orderdate"}
_VALUE_ROWS: Final = 200


class Blocks(msgspec.Struct, frozen=True, kw_only=True):
    """One table in one layout: its files in order, and all their rows with :data:`BLOCK`."""

    name: str
    table: str
    folder: Path
    files: tuple[Path, ...]
    rows: pa.Table


def tpch_blocks(folder: Path, scale: float, count: int) -> Iterator[Blocks]:
    """``lineitem`` and ``orders``, clustered by their date and as generated (by order key), ``count`` files each."""
    source = folder / f"tpch-{scale:g}"
    generate(source, scale)
    for table, key in KEYS.items():
        rows = _plain(pq.read_table(source / f"{table}.parquet"))
        for layout in ("clustered", "as generated"):
            laid = rows.sort_by(key) if layout == "clustered" else rows
            size = -(-len(laid) // count)
            parts = [laid.slice(start, size) for start in range(0, len(laid), size)]
            yield _written(folder / layout.replace(" ", "-") / table, f"{table}, {layout}", table, parts)


def value_blocks(folder: Path, count: int, seed: int) -> Blocks:
    """A table ``vals`` with two columns a type: ``_near`` follows the order of the blocks, ``_far`` does not.

    Some blocks of a column are all null, partly null, of one value, or hold NaN.
    """
    rng = np.random.default_rng(seed)
    return _written(folder / "vals", "values of every type", "vals", [_values(rng, i, count) for i in range(count)])


def _plain(table: pa.Table) -> pa.Table:
    """Without field ids (pyiceberg refuses to add such files) and with Arrow's ordinary strings."""
    fields = [
        pa.field(field.name, pa.string() if pa.types.is_string_view(field.type) else field.type)
        for field in table.schema
    ]
    return table.cast(pa.schema(fields))


def _written(folder: Path, name: str, table: str, parts: list[pa.Table]) -> Blocks:
    folder.mkdir(parents=True)
    files = []
    rows = []
    for index, part in enumerate(parts):
        path = folder / f"part-{index:05d}.parquet"
        pq.write_table(part, path)
        files.append(path)
        # Statistics count as stored in the file, so the file is read back.
        read = pq.read_table(path)
        rows.append(read.append_column(BLOCK, pa.array(np.full(len(read), index, dtype=np.int32))))
    return Blocks(name=name, table=table, folder=folder, files=tuple(files), rows=pa.concat_tables(rows))


# --- values of every type ---

_EPOCH: Final = dt.date(1970, 1, 1)
_SPAN: Final = 100_000

#: Values of each type for numbers below 100,000, in the same order.
_MAKERS: Final[dict[str, tuple[pa.DataType, Callable[[int], Any]]]] = {
    "flag": (pa.bool_(), lambda k: k >= _SPAN // 2),
    "i32": (pa.int32(), lambda k: k - 30_000),
    "i64": (pa.int64(), lambda k: k * 1_000_000_007 - 10**13),
    "f32": (pa.float32(), lambda k: k / 8 - 5_000),
    "f64": (pa.float64(), lambda k: k / 3 - 10_000),
    "dec": (pa.decimal128(9, 2), lambda k: Decimal(k * 37 - 500_000).scaleb(-2)),
    "wide": (pa.decimal128(38, 10), lambda k: Decimal(k * 10**25 + k).scaleb(-10)),
    "day": (pa.date32(), lambda k: _EPOCH + dt.timedelta(days=k // 8)),
    "at": (pa.timestamp("us", "UTC"), lambda k: dt.datetime(1995, 1, 1, tzinfo=dt.UTC) + _moment(k)),
    "wall": (pa.timestamp("us"), lambda k: dt.datetime(1995, 1, 1) + _moment(k)),  # noqa: DTZ001  # wall clock on purpose
    "word": (pa.string(), lambda k: f"{'abcdefghij'[k // 10_000]}{k % 10_000:04d}é"),
    "raw": (pa.binary(), lambda k: (k * 40_000).to_bytes(4, "big")),
}


def _moment(k: int) -> dt.timedelta:
    return dt.timedelta(minutes=90 * k, microseconds=k % 7)


def _values(rng: np.random.Generator, index: int, count: int) -> pa.Table:
    columns: dict[str, pa.Array] = {"id": pa.array(range(index * _VALUE_ROWS, (index + 1) * _VALUE_ROWS), pa.int64())}
    step = _SPAN // count
    for kind, (dtype, make) in _MAKERS.items():
        near = np.clip(index * step + rng.integers(-step // 2, step + step // 2, _VALUE_ROWS), 0, _SPAN - 1)
        pool = rng.integers(0, _SPAN, rng.integers(3, 12))
        far = rng.choice(pool, _VALUE_ROWS)
        for suffix, numbers in (("near", near), ("far", far)):
            columns[f"{kind}_{suffix}"] = _column(rng, dtype, make, numbers)
    return pa.table(columns)


def _column(
    rng: np.random.Generator, dtype: pa.DataType, make: Callable[[int], Any], numbers: np.ndarray[Any, Any]
) -> pa.Array:
    shape = rng.choice(["all null", "some null", "one value", "plain"], p=[0.06, 0.15, 0.1, 0.69])
    if shape == "all null":
        return pa.nulls(len(numbers), dtype)
    if shape == "one value":
        numbers = np.full(len(numbers), numbers[0])
    values = [make(int(number)) for number in numbers]
    if pa.types.is_floating(dtype):
        nan_share = rng.choice([0.0, 0.02, 1.0], p=[0.85, 0.12, 0.03])
        values = [float("nan") if rng.random() < nan_share else value for value in values]
    array = pa.array(values, dtype)
    if shape == "some null":
        array = pc.if_else(pa.array(rng.random(len(array)) < 0.3), pa.scalar(None, dtype), array)
    return array
