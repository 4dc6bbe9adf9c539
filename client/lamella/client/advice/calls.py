"""Advice about indexes and cluster keys: the calls, and methods of :class:`Table` and its async twin."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from typing import Any, TypedDict, Unpack

from lamella.client.http.call import (
    AsyncCallRunner,
    Call,
    CallRunner,
    Filter,
    TableName,
    make_call,
    text_tuple,
    timestamp_of,
)
from lamella.snapshot.advice import operations
from lamella.snapshot.wire import (
    AdviceAnswer,
    AdviceRequest,
    IndexChange,
    RecordedCleared,
    RecordedList,
    WhatIfAnswer,
    WhatIfRequest,
    WhyNotAnswer,
    WhyNotRequest,
)


class QueryOptions(TypedDict, total=False):
    """What all questions have in common: at most one of a snapshot (an id or a tag) and a time."""

    snapshot_id: str | None
    timestamp: int | str | dt.datetime | None
    time_zone: str
    case_sensitive: bool


def advice_call(
    name: TableName,
    columns: Sequence[str] | None,
    kinds: Sequence[str] | None,
    options: Mapping[str, Mapping[str, Any]],
    budget_bytes: float | None,
    budget_share: float | None,
    moment: QueryOptions,
) -> Call[AdviceAnswer]:
    """Scores and sizes."""
    request = AdviceRequest(
        columns=None if columns is None else text_tuple("columns", columns),
        kinds=None if kinds is None else text_tuple("kinds", kinds),
        options={kind: dict(given) for kind, given in options.items()},
        budget_bytes=budget_bytes,
        budget_share=budget_share,
        **_query_members(moment),
    )
    return make_call(operations.ADVISE, name, body=request)


def what_if_call(
    name: TableName,
    index: IndexChange | None,
    cluster_key: Sequence[str] | None,
    rows_per_block: int | None,
    filters: Sequence[Filter],
    recorded: int,
    sample_blocks: int,
    seed: int,
    moment: QueryOptions,
) -> Call[WhatIfAnswer]:
    """What a change would skip."""
    request = WhatIfRequest(
        index=index,
        cluster_key=None if cluster_key is None else text_tuple("cluster_key", cluster_key),
        rows_per_block=rows_per_block,
        filters=tuple(filters),
        recorded=recorded,
        sample_blocks=sample_blocks,
        seed=seed,
        **_query_members(moment),
    )
    return make_call(operations.WHAT_IF, name, body=request)


def why_not_call(name: TableName, filter: Filter, index: str | None, moment: QueryOptions) -> Call[WhyNotAnswer]:
    """Why indexes do not help."""
    request = WhyNotRequest(filter=filter, index=index, **_query_members(moment))
    return make_call(operations.WHY_NOT, name, body=request)


def recorded_filters_call(name: TableName) -> Call[RecordedList]:
    """The recorded filters."""
    return make_call(operations.LIST_RECORDED, name)


def clear_recorded_filters_call(name: TableName) -> Call[RecordedCleared]:
    """Forget them."""
    return make_call(operations.CLEAR_RECORDED, name)


def _query_members(given: QueryOptions) -> dict[str, Any]:
    return {**given, "timestamp": timestamp_of(given.get("timestamp"))}


class TableAdvice:
    """Advice about a table; a part of :class:`lamella.client.Table`."""

    _lake: CallRunner
    _name: TableName

    def advise(
        self,
        columns: Sequence[str] | None = None,
        kinds: Sequence[str] | None = None,
        *,
        options: Mapping[str, Mapping[str, Any]] | None = None,
        budget_bytes: float | None = None,
        budget_share: float | None = None,
        **moment: Unpack[QueryOptions],
    ) -> AdviceAnswer:
        """How much look-ups skip, and what indexes would add and take; from manifests, without reading data.

        ``columns``, ``kinds``: None: all. ``options``: by kind. ``budget_bytes``, or ``budget_share`` of the data's
        bytes: how sharp an index can be within it.

        Raises UnknownColumn, InvalidRequest (a kind, an option, a budget), TableNotFound, SnapshotNotFound.
        """
        return self._lake.run(
            advice_call(self._name, columns, kinds, options or {}, budget_bytes, budget_share, moment)
        )

    def what_if(
        self,
        *,
        index: IndexChange | None = None,
        cluster_key: Sequence[str] | None = None,
        rows_per_block: int | None = None,
        filters: Sequence[Filter] = (),
        recorded: int = 100,
        sample_blocks: int = 0,
        seed: int = 0,
        **moment: Unpack[QueryOptions],
    ) -> WhatIfAnswer:
        """What filters would read after one change.

        Exactly one of ``index``, ``cluster_key`` and ``rows_per_block``. ``filters``: none: those that were recorded,
        the latest ``recorded`` of them. ``sample_blocks``: read so many blocks, to measure instead of estimating.

        Raises InvalidRequest, InvalidFilter, UnknownColumn, FilterTypeMismatch, TableNotFound, SnapshotNotFound.
        """
        return self._lake.run(
            what_if_call(self._name, index, cluster_key, rows_per_block, filters, recorded, sample_blocks, seed, moment)
        )

    def why_not(self, filter: Filter, index: str | None = None, **moment: Unpack[QueryOptions]) -> WhyNotAnswer:
        """Why indexes (``index``: only that one) do not help with a filter.

        Raises IndexNotFound, InvalidFilter, UnknownColumn, FilterTypeMismatch, TableNotFound, SnapshotNotFound.
        """
        return self._lake.run(why_not_call(self._name, filter, index, moment))

    def recorded_filters(self) -> RecordedList:
        """The filters that were recorded of the table, the latest first; raises TableNotFound."""
        return self._lake.run(recorded_filters_call(self._name))

    def clear_recorded_filters(self) -> int:
        """Forget them; returns how many there were. Raises TableNotFound."""
        return self._lake.run(clear_recorded_filters_call(self._name)).filters


class AsyncTableAdvice:
    """The asyncio twin of :class:`TableAdvice`."""

    _lake: AsyncCallRunner
    _name: TableName

    async def advise(
        self,
        columns: Sequence[str] | None = None,
        kinds: Sequence[str] | None = None,
        *,
        options: Mapping[str, Mapping[str, Any]] | None = None,
        budget_bytes: float | None = None,
        budget_share: float | None = None,
        **moment: Unpack[QueryOptions],
    ) -> AdviceAnswer:
        """As :meth:`TableAdvice.advise`."""
        return await self._lake.run(
            advice_call(self._name, columns, kinds, options or {}, budget_bytes, budget_share, moment)
        )

    async def what_if(
        self,
        *,
        index: IndexChange | None = None,
        cluster_key: Sequence[str] | None = None,
        rows_per_block: int | None = None,
        filters: Sequence[Filter] = (),
        recorded: int = 100,
        sample_blocks: int = 0,
        seed: int = 0,
        **moment: Unpack[QueryOptions],
    ) -> WhatIfAnswer:
        """As :meth:`TableAdvice.what_if`."""
        return await self._lake.run(
            what_if_call(self._name, index, cluster_key, rows_per_block, filters, recorded, sample_blocks, seed, moment)
        )

    async def why_not(self, filter: Filter, index: str | None = None, **moment: Unpack[QueryOptions]) -> WhyNotAnswer:
        """As :meth:`TableAdvice.why_not`."""
        return await self._lake.run(why_not_call(self._name, filter, index, moment))

    async def recorded_filters(self) -> RecordedList:
        """As :meth:`TableAdvice.recorded_filters`."""
        return await self._lake.run(recorded_filters_call(self._name))

    async def clear_recorded_filters(self) -> int:
        """As :meth:`TableAdvice.clear_recorded_filters`."""
        return (await self._lake.run(clear_recorded_filters_call(self._name))).filters
