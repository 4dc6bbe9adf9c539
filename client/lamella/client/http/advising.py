"""Advice: the calls, and what :class:`Table` and its async twin make of them."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from typing import Any, TypedDict, Unpack

from lamella.client.http.call import Call, Filter, TableName, encoded, texts, timestamp_of
from lamella.client.http.running import Runs, RunsAsync
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


class Moment(TypedDict, total=False):
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
    moment: Moment,
) -> Call[AdviceAnswer]:
    """Scores and sizes."""
    request = AdviceRequest(
        columns=None if columns is None else texts("columns", columns),
        kinds=None if kinds is None else texts("kinds", kinds),
        options={kind: dict(given) for kind, given in options.items()},
        budget_bytes=budget_bytes,
        budget_share=budget_share,
        **_moment(moment),
    )
    return Call(method="POST", path=f"{name.path}/advice", answer=AdviceAnswer, body=encoded(request))


def what_if_call(
    name: TableName,
    index: IndexChange | None,
    cluster_key: Sequence[str] | None,
    rows_per_block: int | None,
    filters: Sequence[Filter],
    recorded: int,
    sample_blocks: int,
    seed: int,
    moment: Moment,
) -> Call[WhatIfAnswer]:
    """What a change would skip."""
    request = WhatIfRequest(
        index=index,
        cluster_key=None if cluster_key is None else texts("cluster_key", cluster_key),
        rows_per_block=rows_per_block,
        filters=tuple(filters),
        recorded=recorded,
        sample_blocks=sample_blocks,
        seed=seed,
        **_moment(moment),
    )
    return Call(method="POST", path=f"{name.path}/what-if", answer=WhatIfAnswer, body=encoded(request))


def why_not_call(name: TableName, filter: Filter, index: str | None, moment: Moment) -> Call[WhyNotAnswer]:
    """Why indexes do not help."""
    request = WhyNotRequest(filter=filter, index=index, **_moment(moment))
    return Call(method="POST", path=f"{name.path}/why-not", answer=WhyNotAnswer, body=encoded(request))


def recorded_call(name: TableName) -> Call[RecordedList]:
    """The recorded filters."""
    return Call(method="GET", path=f"{name.path}/recorded", answer=RecordedList)


def clear_recorded_call(name: TableName) -> Call[RecordedCleared]:
    """Forget them."""
    return Call(method="DELETE", path=f"{name.path}/recorded", answer=RecordedCleared)


def _moment(given: Moment) -> dict[str, Any]:
    return {**given, "timestamp": timestamp_of(given.get("timestamp"))}


class AdvisedTable:
    """Advice about a table; a part of :class:`lamella.client.Table`."""

    _lake: Runs
    _name: TableName

    def advise(
        self,
        columns: Sequence[str] | None = None,
        kinds: Sequence[str] | None = None,
        *,
        options: Mapping[str, Mapping[str, Any]] | None = None,
        budget_bytes: float | None = None,
        budget_share: float | None = None,
        **moment: Unpack[Moment],
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
        **moment: Unpack[Moment],
    ) -> WhatIfAnswer:
        """What filters would read after one change.

        Exactly one of ``index``, ``cluster_key`` and ``rows_per_block``. ``filters``: none: those that were recorded,
        the latest ``recorded`` of them. ``sample_blocks``: read so many blocks, to measure instead of estimating.

        Raises InvalidRequest, InvalidFilter, UnknownColumn, FilterTypeMismatch, TableNotFound, SnapshotNotFound.
        """
        return self._lake.run(
            what_if_call(self._name, index, cluster_key, rows_per_block, filters, recorded, sample_blocks, seed, moment)
        )

    def why_not(self, filter: Filter, index: str | None = None, **moment: Unpack[Moment]) -> WhyNotAnswer:
        """Why indexes (``index``: only that one) do not help with a filter.

        Raises IndexNotFound, InvalidFilter, UnknownColumn, FilterTypeMismatch, TableNotFound, SnapshotNotFound.
        """
        return self._lake.run(why_not_call(self._name, filter, index, moment))

    def recorded_filters(self) -> RecordedList:
        """The filters that were recorded of the table, the latest first; raises TableNotFound."""
        return self._lake.run(recorded_call(self._name))

    def clear_recorded_filters(self) -> int:
        """Forget them; returns how many there were. Raises TableNotFound."""
        return self._lake.run(clear_recorded_call(self._name)).filters


class AsyncAdvisedTable:
    """The asyncio twin of :class:`AdvisedTable`."""

    _lake: RunsAsync
    _name: TableName

    async def advise(
        self,
        columns: Sequence[str] | None = None,
        kinds: Sequence[str] | None = None,
        *,
        options: Mapping[str, Mapping[str, Any]] | None = None,
        budget_bytes: float | None = None,
        budget_share: float | None = None,
        **moment: Unpack[Moment],
    ) -> AdviceAnswer:
        """As :meth:`AdvisedTable.advise`."""
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
        **moment: Unpack[Moment],
    ) -> WhatIfAnswer:
        """As :meth:`AdvisedTable.what_if`."""
        return await self._lake.run(
            what_if_call(self._name, index, cluster_key, rows_per_block, filters, recorded, sample_blocks, seed, moment)
        )

    async def why_not(self, filter: Filter, index: str | None = None, **moment: Unpack[Moment]) -> WhyNotAnswer:
        """As :meth:`AdvisedTable.why_not`."""
        return await self._lake.run(why_not_call(self._name, filter, index, moment))

    async def recorded_filters(self) -> RecordedList:
        """As :meth:`AdvisedTable.recorded_filters`."""
        return await self._lake.run(recorded_call(self._name))

    async def clear_recorded_filters(self) -> int:
        """As :meth:`AdvisedTable.clear_recorded_filters`."""
        return (await self._lake.run(clear_recorded_call(self._name))).filters
