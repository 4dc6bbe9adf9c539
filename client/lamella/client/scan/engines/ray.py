"""A scan as a datasource of Ray Data."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from lamella.client.filters.may_match import conjuncts, of_arrow
from lamella.client.filters.trees import Tree
from lamella.client.scan.engines.source import Part, Source
from lamella.client.scan.rows import library

if TYPE_CHECKING:
    import ray.data


def ray_dataset(scan: Source, **options: Any) -> ray.data.Dataset:
    """Return a dataset of the rows of a scan of one snapshot; ``options``: those of ``ray.data.read_datasource``."""
    data = library("ray.data", "to_ray", package="ray[data]")
    found: ray.data.Dataset = data.read_datasource(_datasource(data, scan), **options)
    return found


def _datasource(data: Any, scan: Source) -> Any:
    """Return the datasource; its class is made here, since Ray is imported only when it is used."""

    class LamellaDatasource(data.Datasource):  # type: ignore[misc]
        """One block or more in each task. Ray combines the projections and predicates that it hands over."""

        def __init__(self) -> None:
            super().__init__()
            self._projection_map: dict[str, str] | None = None
            self._planned: tuple[Any, Sequence[Part]] | None = None

        def supports_projection_pushdown(self) -> bool:
            """Only the columns of a query are read."""
            return True

        def supports_predicate_pushdown(self) -> bool:
            """A query's conditions decide which blocks are read, and are evaluated here by Ray's own evaluator."""
            return True

        def estimate_inmemory_data_size(self) -> int:
            """Return the size of the files, in bytes."""
            return sum(fragment.size_bytes for fragment in self._fragments())

        def get_read_tasks(
            self, parallelism: int, per_task_row_limit: int | None = None, data_context: Any = None
        ) -> list[Any]:
            """Return tasks that read blocks without the service."""
            del data_context
            fragments, columns = self._fragments(), self._get_data_columns()
            count = max(1, min(parallelism, len(fragments)))
            tasks = []
            for at in range(count):
                some = fragments[at::count]
                read = partial(_blocks, some, scan.schema, columns, self._predicate_expr)
                metadata = library("ray.data.block", "to_ray", package="ray[data]").BlockMetadata(
                    num_rows=None,
                    size_bytes=sum(fragment.size_bytes for fragment in some),
                    input_files=[fragment.location for fragment in some],
                    exec_stats=None,
                )
                tasks.append(data.ReadTask(read, metadata, per_task_row_limit=per_task_row_limit))
            return tasks

        def _fragments(self) -> Sequence[Part]:
            """Return what is read for the predicate; Ray asks several times."""
            predicate = self._predicate_expr
            if self._planned is not None and self._planned[0] is predicate:
                return self._planned[1]
            found = scan.narrowed(None, _may_match(predicate, scan.schema)).fragments()
            self._planned = (predicate, found)
            return found

    return LamellaDatasource()


def _may_match(predicate: Any, schema: pa.Schema) -> Sequence[Tree]:
    """Return what is known of the rows that a predicate of Ray is true of."""
    if predicate is None:
        return ()
    try:
        written = predicate.to_pyarrow()
    except (ValueError, TypeError, OverflowError, pa.ArrowException):  # a part has no form in pyarrow
        return ()
    known = of_arrow(written, schema)
    return () if known is None else conjuncts(known)


def _blocks(
    fragments: Sequence[Part], schema: pa.Schema, columns: Sequence[str] | None, predicate: Any
) -> Iterator[pa.Table]:
    """Yield the rows of some blocks that a predicate of Ray is true of; at least one table, perhaps without rows."""
    wanted = list(schema.names if columns is None else columns)
    needed = _needed(schema, wanted, predicate)
    matching: Callable[[pa.Table], pa.Table] = partial(_matching, predicate)
    yield matching(pa.schema([schema.field(name) for name in needed]).empty_table()).select(wanted)
    for fragment in fragments:
        found = matching(fragment.with_columns(needed).to_arrow()).select(wanted)
        if found.num_rows:
            yield found


def _needed(schema: pa.Schema, wanted: Sequence[str], predicate: Any) -> list[str]:
    """Return the columns to read, at least one."""
    if predicate is None:
        return list(wanted) or schema.names[:1]
    visitors = library("ray.data._internal.planner.plan_expression.expression_visitors", "to_ray", package="ray[data]")
    collector = visitors._ColumnReferenceCollector()
    collector.visit(predicate)
    used = {*wanted, *collector.get_column_refs()}
    return [name for name in schema.names if name in used] or schema.names[:1]


def _matching(predicate: Any, rows: pa.Table) -> pa.Table:
    if predicate is None or not rows.num_rows:
        return rows
    accessor = library("ray.data.block", "to_ray", package="ray[data]").BlockAccessor.for_block(rows)
    found: pa.Table = accessor.filter(predicate)
    return found
