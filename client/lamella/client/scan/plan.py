"""The request of a scan, and the plan that answers it."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import suppress
from functools import cached_property
from typing import Any, Protocol

import msgspec
import pyarrow as pa

from lamella.snapshot.errors import InvalidRequest, UnknownColumn
from lamella.snapshot.expression import Predicate, bind, read_filter, read_tree, tree_of
from lamella.snapshot.expression.bound import columns_of
from lamella.snapshot.expression.nodes import And
from lamella.snapshot.manifest import FEATURES, Snapshot
from lamella.snapshot.near_names import did_you_mean
from lamella.snapshot.row_filter import RowFilter
from lamella.snapshot.rows.columns import Ordering, ReadColumn, read_columns, read_leaf
from lamella.snapshot.rows.row_groups import ReadSpec
from lamella.snapshot.schema import Schema
from lamella.snapshot.schema.evolution import Versioned, schema_at
from lamella.snapshot.wire import AggregateAnswer, Level, OrderBy, PruneAnswer, PrunedBlock, TableInfo
from lamella.snapshot.wire.prune import block_records


class Planner(Protocol):
    """What a scan needs from a table; :class:`lamella.client.http.Table` implements it."""

    def prune(
        self,
        filter: Any = None,
        *,
        snapshot_id: str | None,
        timestamp: int | str | dt.datetime | None,
        time_zone: str,
        case_sensitive: bool,
        level: Level,
        limit: int | None,
        order_by: Sequence[OrderBy],
        reader_features: Sequence[str],
    ) -> PruneAnswer:
        """Return the blocks that may contain matching rows, with their row ranges (``level`` "page")."""

    def aggregate(
        self,
        aggregates: Sequence[str],
        filter: Any = None,
        *,
        group_by: Sequence[str] = (),
        snapshot_id: str | None,
        timestamp: int | str | dt.datetime | None,
        time_zone: str,
        case_sensitive: bool,
        reader_features: Sequence[str],
        max_scan_blocks: int | None = None,
    ) -> AggregateAnswer:
        """Return aggregates as far as statistics prove them."""

    def info(self) -> TableInfo:
        """Return the current state of the table."""

    def snapshot(self, snapshot_id: str) -> Snapshot:
        """Return one of its snapshots."""


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """What to read; see :meth:`lamella.client.http.Table.scan`.

    ``filter`` may be a :data:`lamella.snapshot.expression.Predicate` if the planner accepts one. ``may_match``: a JSON
    filter that is true of every row that is wanted; it only leaves out blocks and pages, and no row is evaluated by it.
    """

    filter: Any = None
    may_match: dict[str, Any] | None = None
    columns: tuple[str, ...] | None = None
    limit: int | None = None
    order_by: tuple[OrderBy, ...] = ()
    snapshot_id: str | None = None
    timestamp: int | str | dt.datetime | None = None
    time_zone: str = "UTC"
    case_sensitive: bool = False

    def shared_arguments(self) -> dict[str, Any]:
        """The arguments that planning and counting share."""
        return {
            "snapshot_id": self.snapshot_id,
            "timestamp": self.timestamp,
            "time_zone": self.time_zone,
            "case_sensitive": self.case_sensitive,
            "reader_features": FEATURES,
        }


class ScanRecipe(msgspec.Struct, frozen=True, kw_only=True, dict=True):
    """What is done with the rows of every block. Small and picklable; cached properties are not pickled.

    ``schema``: the table's schema at the snapshot. ``columns``: see :class:`Request`.
    """

    predicate: Predicate
    schema: Schema
    columns: tuple[str, ...] | None
    order_by: tuple[OrderBy, ...]
    time_zone: str
    case_sensitive: bool

    @cached_property
    def output(self) -> tuple[ReadColumn, ...]:
        """The output columns; raises UnknownColumn, InvalidRequest."""
        return read_columns(self.schema, self.columns, case_sensitive=self.case_sensitive)

    @cached_property
    def ordering(self) -> Ordering | None:
        """The order of the rows; raises UnknownColumn, InvalidRequest."""
        if not self.order_by:
            return None
        return Ordering(self.schema, self.order_by, len(self.output), case_sensitive=self.case_sensitive)

    @cached_property
    def reading(self) -> ReadSpec:
        """What is read of each row group: the output columns, followed by columns that are only ordered by.

        Raises:
            FilterNotEvaluable: a part of the filter cannot be decided exactly.
            UnknownColumn, FilterTypeMismatch, InvalidRequest: from binding.
        """
        row_filter = RowFilter(
            self.predicate, self.schema, time_zone=self.time_zone, case_sensitive=self.case_sensitive
        )
        wanted = self.output if self.ordering is None else (*self.output, *self.ordering.wanted)
        of_filter = tuple(read_leaf(self.schema, leaf) for leaf in row_filter.columns)
        return ReadSpec(wanted, pa.schema([one.field for one in wanted]), row_filter, of_filter)

    @cached_property
    def output_ids(self) -> frozenset[int]:
        """The ids of the leaves of output columns."""
        parts = {one.column.name for one in self.output if one.leaf is None}
        leaves = {leaf.id for leaf in self.schema.leaves() if leaf.path[0] in parts}
        return frozenset(leaves | {one.key for one in self.output})

    def texts(self, names: Sequence[str]) -> tuple[str, ...]:
        """What output columns with these names are called in a request; raises UnknownColumn."""
        known = {one.field.name: one.column.name for one in self.output}
        if self.columns is not None:
            known = {one.field.name: text for one, text in zip(self.output, self.columns, strict=True)}
        missing = [name for name in names if name not in known]
        if missing:
            near = did_you_mean(missing[0], list(known))
            raise UnknownColumn(f"there is no column {missing[0]!r}", column=missing[0], columns=list(known), **near)
        return tuple(known[name] for name in names)

    @property
    def output_schema(self) -> pa.Schema:
        """The Arrow schema of the output."""
        return pa.schema([one.field for one in self.output])


def usable_parts(parts: Sequence[dict[str, Any]], recipe: ScanRecipe) -> dict[str, Any] | None:
    """Return those conditions on output columns, which mean times in UTC, that mean the same for the table, joined by
    AND.

    None: there is none. A name means another column for the table if the output column of that name is a field of a
    struct, and a column has the same text as its name.
    """
    usable: list[dict[str, Any]] = []
    schema, names = recipe.schema, {"case_sensitive": recipe.case_sensitive}
    for part in parts:
        with suppress(InvalidRequest):
            predicate = read_tree(part)
            meant = bind(predicate, schema, time_zone="UTC", **names)
            is_same = recipe.time_zone == "UTC" or meant == bind(predicate, schema, time_zone=recipe.time_zone, **names)
            if is_same and all(leaf.id in recipe.output_ids for leaf in columns_of(meant)):
                usable.append(part)
    return {"type": "and", "children": usable} if len(usable) > 1 else usable[0] if usable else None


class Plan(msgspec.Struct, frozen=True):
    """Blocks of a snapshot, and how they are read."""

    snapshot_id: str
    blocks: tuple[PrunedBlock, ...]
    versions: Versioned
    recipe: ScanRecipe
    reading: ReadSpec
    ordering: Ordering | None
    properties: Mapping[str, str]

    def written(self, block: PrunedBlock) -> Schema:
        """Return the schema that a block was written with."""
        return self.recipe.schema if block.schema_id is None else schema_at(self.versions, block.schema_id)


def plan_of(
    table: Planner,
    request: Request,
    only: Callable[[str], AbstractSet[str]] | None,
    versions: TableInfo | Snapshot | None = None,
) -> tuple[PruneAnswer, Plan]:
    """Plan a scan; ``only`` returns the blocks of a snapshot, by its id, that may be read at all. ``versions``: of the
    request's snapshot, if they are known.

    Raises what planning raises, before anything is read.
    """
    predicate = _predicate(request)  # an error of the filter is raised here, not by the service
    # a limit must not be reached by blocks that will not be read
    answer = _pruned(table, request, predicate, request.limit if only is None else None)
    blocks = tuple(block_records(answer))
    if only is not None:
        wanted = only(answer.snapshot_id)
        blocks = tuple(block for block in blocks if block.location in wanted)
    if versions is None:
        versions = versions_of(table, answer.snapshot_id)
    return answer, plan_of_blocks(versions, request, answer.snapshot_id, blocks, predicate)


def _pruned(table: Planner, request: Request, predicate: Predicate, limit: int | None) -> PruneAnswer:
    """Return the blocks and pages that are needed."""
    arguments: dict[str, Any] = {"level": "page", "order_by": request.order_by, **request.shared_arguments()}
    if request.may_match is not None:
        with suppress(InvalidRequest):  # what only leaves out more is given up where it is too large, say
            return table.prune(_both(request, predicate), limit=None, **arguments)
    return table.prune(request.filter, limit=limit, **arguments)


def _both(request: Request, predicate: Predicate) -> Any:
    """Return the filter together with what every wanted row matches, in the form that the filter has."""
    if request.filter is None:
        return request.may_match
    if isinstance(request.filter, Predicate):
        return And((predicate, read_filter(request.may_match)))
    return {"type": "and", "children": [tree_of(predicate), request.may_match]}


def versions_of(table: Planner, snapshot_id: str) -> TableInfo | Snapshot:
    """Return what says which schemas a snapshot has."""
    info = table.info()
    return info if info.snapshot_id == snapshot_id else table.snapshot(snapshot_id)


def plan_of_blocks(
    versions: TableInfo | Snapshot,
    request: Request,
    snapshot_id: str,
    blocks: tuple[PrunedBlock, ...],
    predicate: Predicate | None = None,
) -> Plan:
    """Plan to read blocks that are known; ``predicate``: the request's filter, if it has been read.

    Raises what binding and columns raise.
    """
    recipe = recipe_of(versions, request, predicate)
    return Plan(snapshot_id, blocks, versions, recipe, recipe.reading, recipe.ordering, versions.properties)


def recipe_of(versions: TableInfo | Snapshot, request: Request, predicate: Predicate | None = None) -> ScanRecipe:
    """Return what a request does with rows; ``predicate``: its filter, if it has been read."""
    return ScanRecipe(
        predicate=_predicate(request) if predicate is None else predicate,
        schema=versions.schema,
        columns=request.columns,
        order_by=request.order_by,
        time_zone=request.time_zone,
        case_sensitive=request.case_sensitive,
    )


def _predicate(request: Request) -> Predicate:
    given = request.filter
    return given if isinstance(given, Predicate) else read_filter(given, time_zone=request.time_zone)
