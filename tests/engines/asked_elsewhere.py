"""Engines that are not in the locked environment, each asked in its own language; run in an environment of its own.

    python asked_elsewhere.py ENGINE FIRST_SEED TABLES [PACKAGES ...]

prints a line of JSON: what :class:`engines.engine_tables.Compared` has. ``PACKAGES``: folders of other packages.
"""

# ruff: noqa: E402  # the folders of what is imported are arguments
from __future__ import annotations

import datetime as dt
import logging
import os
import sys
import tempfile
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / name) for name in ("tests", "client", "snapshot")]
# What the engine does not bring comes from the environment that these tests run in.
sys.path += sys.argv[4:]

import msgspec
import pyarrow as pa

from engines.engine_tables import Engine, compare, compare_vectors, float_vectors
from engines.sql_conditions import FLOATS, constant_of_type, sql_condition
from lamella.client.scan import Scan
from scan.test_foreign_filters import Sampled, compared


class DataFusion:
    """SQL over a table of the scan; the judge is a table of record batches."""

    reads_elsewhere = False

    def condition(self, sampled: Sampled) -> Any:
        """Text of SQL."""
        return sql_condition(sampled, datafusion_literal)

    def vectors(self) -> list[Any]:
        """The same conditions as of other engines with SQL."""
        return list(FLOATS)

    def whole(self, rows: pa.Table, condition: Any, columns: list[str]) -> pa.Table:
        """A table that holds all rows."""
        import datafusion

        context = datafusion.SessionContext()
        context.register_record_batches("t", [rows.to_batches()])
        return _of_datafusion(context, condition, columns)

    def pushed(self, scan: Scan, condition: Any, columns: list[str]) -> pa.Table:
        """The scan under the same name."""
        import datafusion

        context = datafusion.SessionContext()
        context.register_table("t", scan.to_datafusion())
        return _of_datafusion(context, condition, columns)


def _of_datafusion(context: Any, condition: str, columns: list[str]) -> pa.Table:
    listed = ", ".join(f'"{name}"' for name in columns)
    found: pa.Table = context.sql(f"SELECT {listed} FROM t WHERE {condition}").to_arrow_table()  # noqa: S608
    return found


def datafusion_literal(value: Any) -> str:
    """A constant in DataFusion's SQL."""
    match value:
        case None:  # DataFusion cannot give a null to a dataset
            raise ValueError("no value")
        case bytes():
            return f"X'{value.hex()}'"
        case dt.datetime():
            return f"TIMESTAMP '{value.isoformat()}'"
        case dt.date():
            return f"DATE '{value.isoformat()}'"
        case dt.time():
            return f"TIME '{value.isoformat()}'"
        case float():
            return f"CAST('{value!r}' AS DOUBLE)"
        case bool() | int():
            return str(value)
        case Decimal():
            return format(value, "f")
        case _:
            return "'" + str(value).replace("'", "''") + "'"


def method_leaf(sampled: Sampled, column: Callable[[str], Any]) -> Any:
    """A random condition of a library whose columns have operators and the methods ``is_in`` and ``is_null``."""
    rng, name = sampled.rng, sampled.column()
    field = column(name)
    match rng.randrange(7):
        case 0 | 1 | 2:
            return compared(rng, field, _given(sampled, name))
        case 3:
            return field.is_in([_given(sampled, name) for _ in range(rng.randint(1, 4))])
        case 4:
            return field.is_null()
        case 5:
            same = [each for each in sampled.names if sampled.rows[each].type == sampled.rows[name].type]
            return compared(rng, field, column(rng.choice(same)))
        case _:
            return compared(rng, field, _given(sampled, name)) & ~field.is_null()


def _given(sampled: Sampled, name: str) -> Any:
    value = constant_of_type(sampled, name)
    if value is None:
        raise ValueError("no value")
    return value


class Daft:
    """A DataFrame of the scan; the judge is one of Arrow's table."""

    reads_elsewhere = True

    def condition(self, sampled: Sampled) -> Any:
        """An expression."""
        import daft

        return sampled.combined(lambda: method_leaf(sampled, daft.col))

    def vectors(self) -> list[Any]:
        """Comparisons, their negations, and lists."""
        import daft

        return float_vectors(daft.col, lambda column, listed: column.is_in(listed))

    def whole(self, rows: pa.Table, condition: Any, columns: list[str]) -> pa.Table:
        """A DataFrame that holds all rows."""
        import daft

        return daft.from_arrow(rows).where(condition).select(*columns).to_arrow()

    def pushed(self, scan: Scan, condition: Any, columns: list[str]) -> pa.Table:
        """The scan's."""
        return scan.to_daft().where(condition).select(*columns).to_arrow()


class Ray:
    """A dataset of the scan; the judge is one of Arrow's table."""

    reads_elsewhere = True

    def __init__(self) -> None:
        import ray

        environment = {"env_vars": {"PYTHONPATH": os.pathsep.join(sys.path)}}
        ray.init(num_cpus=1, include_dashboard=False, logging_level="ERROR", runtime_env=environment)
        ray.data.DataContext.get_current().enable_progress_bars = False
        logging.getLogger("ray.data").setLevel(logging.ERROR)

    def condition(self, sampled: Sampled) -> Any:
        """An expression."""
        from ray.data.expressions import col

        return sampled.combined(lambda: method_leaf(sampled, col))

    def vectors(self) -> list[Any]:
        """Comparisons, their negations, and lists."""
        from ray.data.expressions import col

        return float_vectors(col, lambda column, listed: column.is_in(listed))

    def whole(self, rows: pa.Table, condition: Any, columns: list[str]) -> pa.Table:
        """A dataset that holds all rows."""
        import ray

        return _of_ray(ray.data.from_arrow(rows), condition, columns, rows)

    def pushed(self, scan: Scan, condition: Any, columns: list[str]) -> pa.Table:
        """The scan's."""
        return _of_ray(scan.to_ray(), condition, columns, scan.schema.empty_table())


def _of_ray(dataset: Any, condition: Any, columns: list[str], like: pa.Table) -> pa.Table:
    import ray

    parts = dataset.filter(expr=condition).select_columns(columns).to_arrow_refs()
    found = [part for part in ray.get(parts) if part.num_rows]
    return pa.concat_tables(found) if found else like.select(columns).slice(0, 0)


ENGINES: dict[str, Callable[[], Engine]] = {"DataFusion": DataFusion, "Daft": Daft, "Ray": Ray}


if __name__ == "__main__":
    name, first, tables = sys.argv[1:4]
    with tempfile.TemporaryDirectory() as folder:
        engine = ENGINES[name]()
        compare_vectors(engine, Path(folder))
        found = compare(engine, Path(folder), int(tables), first=int(first))
    print(msgspec.json.encode(found).decode())
