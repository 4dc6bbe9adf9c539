"""A scan as a DataFrame of Daft, by its interface for sources in Python. Daft filters the rows that come back."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from lamella.client.filters.arrow import read_expression
from lamella.client.filters.may_match import conjuncts, of_any_float_order
from lamella.client.filters.trees import Tree
from lamella.client.scan.engines.source import Part, Source
from lamella.client.scan.rows import library
from lamella.snapshot.errors import InvalidFilter

if TYPE_CHECKING:
    import daft


def daft_frame(scan: Source) -> daft.DataFrame:
    """Return a DataFrame of the rows of a scan of one snapshot."""
    source = library("daft.io.source", "to_daft", package="daft")
    found: daft.DataFrame = _source(source, scan).read()
    return found


def _source(source: Any, scan: Source) -> Any:
    """Return the source; its class is made here, since Daft is imported only when it is used."""
    schema = library("daft", "to_daft", package="daft").Schema.from_pyarrow_schema(scan.schema)

    class LamellaSource(source.DataSource):  # type: ignore[misc]
        """One task for each block."""

        @property
        def name(self) -> str:
            """A name for plans."""
            return "Lamella"

        @property
        def schema(self) -> Any:
            """The schema of all columns."""
            return schema

        async def get_tasks(self, pushdowns: Any) -> AsyncIterator[Any]:
            """Yield the blocks that a query needs, with its columns."""
            columns = _needed(scan.schema, pushdowns)
            part = scan.narrowed(None, _may_match(pushdowns.filters, scan.schema))
            for fragment in await asyncio.to_thread(part.fragments):
                yield task(fragment.with_columns(columns))

    class LamellaTask(source.DataSourceTask):  # type: ignore[misc]
        """A block. Daft reads it without the service."""

        def __init__(self, fragment: Part) -> None:
            self._fragment = fragment

        @property
        def schema(self) -> Any:
            """The schema of the columns that are read."""
            return library("daft", "to_daft", package="daft").Schema.from_pyarrow_schema(self._fragment.schema)

        async def read(self) -> AsyncIterator[Any]:
            """Yield the rows."""
            rows = await asyncio.to_thread(self._fragment.to_arrow)
            batches = library("daft.recordbatch", "to_daft", package="daft").RecordBatch
            for batch in rows.to_batches():
                yield batches.from_arrow_record_batches([batch], batch.schema)

    task = LamellaTask
    return LamellaSource()


def _needed(schema: pa.Schema, pushdowns: Any) -> list[str]:
    """Return the columns of the query and of its filter. Daft takes them in the schema's order."""
    if pushdowns.columns is None:
        return list(schema.names)
    used = {*pushdowns.columns, *pushdowns.filter_required_column_names()}
    return [name for name in schema.names if name in used] or schema.names[:1]


def _may_match(filters: Any, schema: pa.Schema) -> Sequence[Tree]:
    """Return what is known of the rows that a filter of Daft matches."""
    if filters is None:
        return ()
    visitors = library("daft.expressions.pyarrow_visitor", "to_daft", package="daft")
    base: Any = visitors._PyArrowExpressionVisitor

    class Written(base):  # type: ignore[misc]
        """Writes a filter as an expression of pyarrow; a part that cannot be written becomes one that is unknown."""

        def visit(self, expr: Any) -> Any:
            """Return a part."""
            try:
                return super().visit(expr)
            except (ValueError, TypeError, AttributeError, OverflowError, NotImplementedError, pa.ArrowException):
                return pc.is_finite(pc.field(""))

        def visit_is_in(self, expr: Any, items: Any) -> Any:
            """Return membership in a list of constants."""
            return self.visit(expr).isin([item.as_py() for item in items])

    try:
        known = of_any_float_order(read_expression(Written().visit(filters)), schema)
    except InvalidFilter:
        return ()
    return () if known is None else conjuncts(known)
