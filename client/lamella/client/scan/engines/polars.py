"""A scan as a LazyFrame of Polars, by its IO plugins."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

from lamella.client.filters.may_match import conjuncts, of_polars
from lamella.client.scan.engines.source import Source
from lamella.client.scan.rows import library

if TYPE_CHECKING:
    import polars


def lazy_frame(scan: Source) -> polars.LazyFrame:
    """Return a LazyFrame of the rows of a scan of one snapshot."""
    plugins = library("polars.io.plugins", "to_lazyframe", "polars")
    schema = _frame(scan.schema.empty_table()).schema
    found: polars.LazyFrame = plugins.register_io_source(partial(_frames, scan), schema=schema, is_pure=True)
    return found


def _frames(
    scan: Source,
    columns: list[str] | None,
    predicate: polars.Expr | None,
    row_limit: int | None,
    batch_rows: int | None,
) -> Iterator[polars.DataFrame]:
    """Yield the rows that a query needs; Polars calls this once for each of its scans."""
    del batch_rows  # a suggestion
    needed = columns if columns is None or columns else scan.schema.names[:1]
    known = None if predicate is None else of_polars(predicate, scan.schema)
    limit = row_limit if predicate is None else None
    part = scan.narrowed(needed, conjuncts(known) if known is not None else (), limit=limit)
    left = row_limit
    yielded = False
    for batch in part.to_batches():
        frame = _frame(batch)
        if predicate is not None:
            frame = frame.filter(predicate)
        frame = frame.head(left) if left is not None else frame
        left = left - frame.height if left is not None else None
        if frame.height:
            yielded = True
            yield frame if columns is None else frame.select(columns)
        if left == 0:
            return
    if not yielded:
        empty = _frame(part.schema.empty_table())
        yield empty if columns is None else empty.select(columns)


def _frame(rows: Any) -> polars.DataFrame:
    frame: polars.DataFrame = library("polars", "to_lazyframe", "polars").DataFrame(rows)
    return frame
