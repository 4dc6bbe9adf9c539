# Written by scripts/write_sync_client.py from client/lamella/client/advice/aio.py: change that file.
"""Methods of a table for advice about indexes and cluster keys."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Unpack

from lamella.client.advice.calls import (
    QueryOptions,
    advice_call,
    auto_ledger_call,
    candidates_call,
    clear_recorded_filters_call,
    plan_auto_call,
    recorded_filters_call,
    report_auto_call,
    start_auto_call,
    what_if_call,
    why_not_call,
)
from lamella.client.http.call import Filter, TableName
from lamella.client.http.sync.runner import CallRunner
from lamella.snapshot.wire import (
    AdviceAnswer,
    AutoAction,
    AutoLedger,
    AutoPlan,
    AutoReport,
    AutoRule,
    AutoStart,
    CandidatesAnswer,
    IndexChange,
    RecordedList,
    WhatIfAnswer,
    WhyNotAnswer,
)


class TableAdvice:
    """Advice about a table; a part of :class:`lamella.client.http.Table`."""

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

        Example:
            >>> answer = table.advise(["customer"], ["bloom"])
            >>> [(score.kind, score.layer) for score in answer.scores]
            [(None, 'block'), (None, 'segment'), ('bloom', 'segment'), ('bloom', 'block')]
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

        Example:
            >>> answer = table.what_if(cluster_key=["country"], filters=["country = 'DE'"], sample_blocks=4)
            >>> answer.now.blocks, answer.then.blocks
            (4.0, 2.0)
        """
        return self._lake.run(
            what_if_call(self._name, index, cluster_key, rows_per_block, filters, recorded, sample_blocks, seed, moment)
        )

    def candidates(
        self, top: int = 5, *, recorded: int = 100, sample_blocks: int = 0, seed: int = 0
    ) -> CandidatesAnswer:
        """What could be done for the table: the ``top`` changes that save the recorded filters most, with their cost
        and the command that does each; apart from these, what cannot be predicted and what is missing for it.

        ``recorded``: the latest so many recorded filters are replayed. ``sample_blocks``: read so many blocks for each
        index or cluster key, to measure instead of estimating. Changes nothing.

        Raises InvalidRequest, TableNotFound.

        Example:
            >>> answer = table.candidates()
            >>> commands = [each.command for each in answer.candidates + answer.unpredicted]
            >>> "lamella compact -- shop.orders" in commands
            True
        """
        return self._lake.run(candidates_call(self._name, top, recorded, sample_blocks, seed))

    def auto_ledger(self) -> AutoLedger:
        """What the rule ``auto`` of the table's policy did, the latest action first: predicted and measured gain of
        each. Raises TableNotFound.

        Example:
            >>> table.auto_ledger().actions
            ()
        """
        return self._lake.run(auto_ledger_call(self._name))

    def plan_auto(
        self, rule: AutoRule | None = None, *, recorded: int = 100, sample_blocks: int = 0, seed: int = 0
    ) -> AutoPlan:
        """What the rule ``auto`` would do now, and why, or why not, for each candidate; changes nothing.

        ``rule``: instead of the policy's. The other arguments are as for :meth:`candidates`.

        Raises InvalidRequest, TableNotFound.

        Example:
            >>> from lamella.snapshot.wire import AutoRule
            >>> table.plan_auto(AutoRule(min_gain=0.2)).has_policy
            False
        """
        return self._lake.run(plan_auto_call(self._name, rule, recorded, sample_blocks, seed))

    def start_auto(self, request: AutoStart) -> AutoPlan:
        """Begin the next action of the rule ``auto``; ``action`` of the answer is None if there is none. ``lamella auto
        run`` does it, and reports it. Raises InvalidRequest (the policy has no such rule), TableNotFound.

        Example:
            >>> from lamella.snapshot.wire import AutoStart
            >>> policy = table.set_policy({"auto": {}})
            >>> table.start_auto(AutoStart(runner=str(uuid.uuid4()))).action is None
            True
        """
        return self._lake.run(start_auto_call(self._name, request))

    def report_auto(self, action_id: str, request: AutoReport) -> AutoAction:
        """Report a running action, or its end. Raises ActionNotFound, JobLeaseLost, TableNotFound."""
        return self._lake.run(report_auto_call(self._name, action_id, request))

    def why_not(self, filter: Filter, index: str | None = None, **moment: Unpack[QueryOptions]) -> WhyNotAnswer:
        """Why indexes (``index``: only that one) do not help with a filter.

        Raises IndexNotFound, InvalidFilter, UnknownColumn, FilterTypeMismatch, TableNotFound, SnapshotNotFound.

        Example:
            >>> answer = table.why_not("price > 125", "by_customer")
            >>> answer.blocks_total, answer.after_bounds, answer.after_indexes
            (4, 1, 1)
        """
        return self._lake.run(why_not_call(self._name, filter, index, moment))

    def recorded_filters(self) -> RecordedList:
        """The filters that were recorded of the table, the latest first; raises TableNotFound.

        Example:
            >>> table.recorded_filters().mode
            'shape'
        """
        return self._lake.run(recorded_filters_call(self._name))

    def clear_recorded_filters(self) -> int:
        """Forget them; returns how many there were. Raises TableNotFound.

        Example:
            >>> forgotten = table.clear_recorded_filters()
        """
        return self._lake.run(clear_recorded_filters_call(self._name)).filters
