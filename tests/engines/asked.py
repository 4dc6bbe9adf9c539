"""The engines of the locked environment, each asked in its own language."""

from __future__ import annotations

import datetime as dt
import math
from decimal import Decimal
from typing import Any

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from engines.engine_tables import float_vectors
from engines.sql_conditions import FLOATS, sql_condition
from lamella.client.scan import Scan
from scan.test_foreign_filters import Sampled, arrow_leaf, polars_leaf


class Polars:
    """By its IO plugins; the judge is a DataFrame."""

    reads_elsewhere = False

    def condition(self, sampled: Sampled) -> Any:
        """An expression, with parts that are not translated."""
        rng = sampled.rng

        def leaf() -> Any:
            kind, field = rng.random(), pl.col(sampled.column())
            if kind < 0.7:
                return polars_leaf(sampled)
            if kind < 0.8:
                return pl.when(polars_leaf(sampled)).then(polars_leaf(sampled)).otherwise(None)
            if kind < 0.9:
                return field.cast(pl.Float64) > sampled.rng.choice([0.5, 1.0, -0.0, float("nan")])
            return field < pl.col(sampled.column())

        return sampled.combined(leaf)

    def vectors(self) -> list[Any]:
        """Comparisons, their negations, and lists."""
        return float_vectors(pl.col, lambda column, listed: column.is_in(listed))

    def whole(self, rows: pa.Table, condition: Any, columns: list[str]) -> pa.Table:
        """A DataFrame's filter. Whether Polars refuses to compare two types depends on the number of rows: what it
        refuses for one row, or for none, is not compared."""
        for part in (rows.slice(0, 0), *(rows.slice(at, 1) for at in range(rows.num_rows))):
            pl.DataFrame(part).filter(condition)
        return _of_polars(pl.DataFrame(rows).lazy().filter(condition).select(columns))

    def pushed(self, scan: Scan, condition: Any, columns: list[str]) -> pa.Table:
        """A LazyFrame of the scan."""
        return _of_polars(scan.to_lazyframe().filter(condition).select(columns))


def _of_polars(frame: pl.LazyFrame) -> pa.Table:
    return frame.collect().to_arrow()


class Dataset:
    """A dataset of pyarrow; the judge is one of a table in memory."""

    reads_elsewhere = False

    def condition(self, sampled: Sampled) -> Any:
        """An expression, with parts that are not translated."""
        rng = sampled.rng

        def leaf() -> Any:
            kind, name = rng.random(), sampled.column()
            if kind < 0.7:
                return arrow_leaf(sampled)
            if kind < 0.8:
                otherwise = arrow_leaf(sampled) if rng.random() < 0.5 else pa.scalar(None, pa.bool_())
                return pc.if_else(arrow_leaf(sampled), arrow_leaf(sampled), otherwise)
            of = sampled.rows.schema.field(name).type
            listed = pa.array([sampled.constant(name), None, sampled.constant(name)], of)
            if kind < 0.9:
                return pc.field(name).isin(listed)
            return pc.field(name) <= pc.scalar(listed[0])

        return sampled.combined(leaf)

    def vectors(self) -> list[Any]:
        """Comparisons, their negations, and lists."""
        return float_vectors(pc.field, lambda column, listed: column.isin(pa.array(listed, pa.float64())))

    def whole(self, rows: pa.Table, condition: Any, columns: list[str]) -> pa.Table:
        """A dataset's filter."""
        return ds.dataset(rows).to_table(columns=columns, filter=condition)

    def pushed(self, scan: Scan, condition: Any, columns: list[str]) -> pa.Table:
        """The dataset of the scan."""
        return scan.to_pyarrow_dataset().to_table(columns=columns, filter=condition)


class DuckDB:
    """SQL over a dataset of pyarrow; the judge is a table of DuckDB's own."""

    reads_elsewhere = False

    def condition(self, sampled: Sampled) -> Any:
        """Text of SQL."""
        return sql_condition(sampled, duckdb_literal)

    def vectors(self) -> list[Any]:
        """The same conditions as of other engines with SQL."""
        return list(FLOATS)

    def whole(self, rows: pa.Table, condition: Any, columns: list[str]) -> pa.Table:
        """A table that holds all rows."""
        with duckdb.connect() as connection:
            connection.from_arrow(rows).create("t")
            return _of_duckdb(connection, condition, columns)

    def pushed(self, scan: Scan, condition: Any, columns: list[str]) -> pa.Table:
        """The dataset of the scan under the same name."""
        with duckdb.connect() as connection:
            connection.register("t", scan.to_pyarrow_dataset())
            return _of_duckdb(connection, condition, columns)


def _of_duckdb(connection: duckdb.DuckDBPyConnection, condition: str, columns: list[str]) -> pa.Table:
    listed = ", ".join(f'"{name}"' for name in columns)
    text = f"SELECT {listed} FROM t WHERE {condition}"  # noqa: S608
    return connection.sql(text).to_arrow_table()


def duckdb_literal(value: Any) -> str:
    """A constant in DuckDB's SQL."""
    match value:
        case None:
            return "NULL"
        case bytes():
            return "'" + "".join(f"\\x{byte:02X}" for byte in value) + "'::BLOB"
        case dt.datetime():
            return f"'{value.isoformat(' ')}'::{'TIMESTAMP' if value.tzinfo is None else 'TIMESTAMPTZ'}"
        case dt.date():
            return f"'{value.isoformat()}'::DATE"
        case dt.time():
            return f"'{value.isoformat()}'::TIME"
        case float():
            return f"'{value!r}'::DOUBLE" if math.isfinite(value) else f"'{value}'::DOUBLE"
        case bool() | int():
            return str(value)
        case Decimal():
            return format(value, "f")
        case _:
            return "'" + str(value).replace("'", "''") + "'"
