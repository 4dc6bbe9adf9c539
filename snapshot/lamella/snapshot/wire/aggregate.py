"""Counts, sums, minima and maxima from statistics."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from lamella.snapshot.stats.bound import Bound
from lamella.snapshot.wire.limits import ColumnPath, Moment, ReaderFeatures, Word
from lamella.snapshot.wire.prune import PrunedBlock, Report

AggregateFunction = Literal["count", "min", "max", "sum"]
AggregateMode = Literal["exact", "bounded"]


class AggregateRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``POST .../aggregate``.

    ``aggregates``: ``count(*)``, ``count(c)``, ``min(c)``, ``max(c)``, ``sum(c)``; names as in SQL (dots, backquotes).
    ``group_by``: columns. ``mode`` "exact": what the statistics prove, and the blocks to scan for the rest; "bounded":
    limits that enclose the true values, and nothing to scan. ``max_scan_blocks``: list the blocks to scan only if they
    are not more than this (None: always). The other members are those of :class:`PruneRequest`.
    """

    aggregates: Annotated[tuple[ColumnPath, ...], Meta(max_length=64)]
    group_by: Annotated[tuple[ColumnPath, ...], Meta(max_length=64)] = ()
    filter: Any = None
    mode: AggregateMode = "exact"
    snapshot_id: Word | None = None
    timestamp: int | Moment | None = None
    time_zone: Moment = "UTC"
    case_sensitive: bool = False
    reader_features: ReaderFeatures = ()
    max_scan_blocks: Annotated[int, Meta(ge=0)] | None = None


class AggregateValue(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One aggregate of one group.

    Values are tagged as in manifests, so nothing is lost (``{"Int64": 3}``, ``{"Float64": "NaN"}``). Zeros are 0.0.
    ``value`` None: null, because the counted rows have no value. ``exact``: whether ``value`` is the result. If not, in
    mode "exact" it is what is proven so far, and rows of the blocks in ``scan`` must be added; in mode "bounded" the
    result is null only if ``may_be_null``, and otherwise not below ``lower`` and not above ``upper`` (None: no limit on
    that side; NaN is above everything).
    """

    exact: bool = True
    value: Bound | None = None
    lower: Bound | None = None
    upper: Bound | None = None
    may_be_null: bool = False


class AggregateGroup(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The aggregates of one group, in the order of the request; ``key`` has one value for each ``group_by`` column.

    ``certain`` False (mode "bounded" only): the group may have no rows, and then does not exist.
    """

    key: tuple[Bound | None, ...] = ()
    values: tuple[AggregateValue, ...]
    certain: bool = True


class AggregateColumn(msgspec.Struct, frozen=True, kw_only=True):
    """A column of the result: its spelling in the request, and its type."""

    name: str
    type: str


class AggregateAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """The result from statistics. ``complete``: it is the whole result.

    Otherwise, in mode "exact", the aggregates over the matching rows of the blocks in ``scan`` must be added: counts
    and sums by addition, minima and maxima by comparison, groups by key. An ALL block in ``scan`` needs no filter. In
    mode "bounded" nothing needs to be scanned; ``other_groups``: whether groups may exist that are not listed. Blocks
    that cannot change the result are in neither. ``scan_blocks``: how many blocks must be scanned, even if these are
    too many to be listed in ``scan`` (``max_scan_blocks``).
    """

    snapshot_id: str
    timestamp_ms: int
    complete: bool
    group_columns: tuple[AggregateColumn, ...]
    columns: tuple[AggregateColumn, ...]
    groups: tuple[AggregateGroup, ...]
    other_groups: bool
    scan: tuple[PrunedBlock, ...]
    scan_blocks: int
    report: Report
