"""What would help a filter of the prune lab: the best index for each of its terms, and the best cluster key."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from typing import Any, Final, TypeVar

import msgspec

from lamella.service.catalog import TableRecord
from lamella.service.dashboard.advice import Suggestion, suggestion_of
from lamella.service.dashboard.preview import CHEAP_S, cheap_sample, within
from lamella.service.features import Advisor
from lamella.service.history.history import trusted_manifests
from lamella.snapshot.advice.candidates import MIN_GAIN
from lamella.snapshot.advice.predictions import index_name, key_command, saved_share
from lamella.snapshot.advice.workload import terms_in
from lamella.snapshot.errors import InvalidRequest, StoreError, Unavailable
from lamella.snapshot.expression import BoundPredicate, bind, read_filter
from lamella.snapshot.expression.bound import columns_of
from lamella.snapshot.expression.nodes import Ref
from lamella.snapshot.index import kinds
from lamella.snapshot.index.definition import expression_of, term_in, term_key, term_of
from lamella.snapshot.manifest import Snapshot
from lamella.snapshot.warehouse import Warehouse
from lamella.snapshot.wire import (
    Candidate,
    CandidateCost,
    CandidateGain,
    IndexChange,
    WhatIfAnswer,
    WhatIfRequest,
)

_T = TypeVar("_T")
#: Terms and columns of the filter that are tried, and kinds that are measured if manifests cannot tell of any.
_MAX_TERMS: Final = 3
_MEASURED_KINDS: Final = 3


class Suggestions(msgspec.Struct, frozen=True):
    """The best changes first; ``unknown``: those of which manifests cannot tell. ``blocks_read``: for a measurement."""

    found: tuple[Suggestion, ...]
    unknown: tuple[Suggestion, ...]
    tried: int
    blocks_read: int


def suggestions_of(
    advice: Advisor, warehouse: Warehouse, table: TableRecord, filter_text: str, time_zone: str, *, can_maintain: bool
) -> Suggestions:
    """Return what would help a filter of the current snapshot.

    Reads blocks only where manifests cannot tell, if these are few and small. ``can_maintain``: with the way to the
    forms.

    Raises InvalidRequest for an invalid filter, ManifestError, StoreError.
    """
    with trusted_manifests():
        head = warehouse.head(table.pointer)
    predicate = read_filter(filter_text, time_zone=time_zone)
    node = bind(predicate, head.schema, time_zone=time_zone)
    trials = _Trials(advice, table, head, filter_text, time_zone)
    candidates: list[Candidate] = []
    zones = [(each, "UTC" if isinstance(each, Ref) else time_zone) for each in terms_in(predicate)]
    terms = dict.fromkeys((expression_of(each, head.schema, zone), zone) for each, zone in zones)
    for expression, zone in list(terms)[:_MAX_TERMS]:
        candidates += trials.of_term(expression, zone)
    candidates += trials.of_keys(node)
    known = sorted((each for each in candidates if not each.missing), key=lambda each: -_saved(each))
    shown = [
        suggestion_of(table, each, has_workload=False, can_maintain=can_maintain)
        for each in (*known, *(each for each in candidates if each.missing))
    ]
    return Suggestions(tuple(shown[: len(known)]), tuple(shown[len(known) :]), trials.tried, trials.blocks_read)


class _Trials:
    """Asks what changes would do to one filter."""

    def __init__(self, advice: Advisor, table: TableRecord, head: Snapshot, filter_text: str, time_zone: str) -> None:
        self._advice = advice
        self._table = table
        self._head = head
        self._question = WhatIfRequest(
            filters=(filter_text,), time_zone=time_zone, snapshot_id=table.pointer.snapshot_id
        )
        self._name = f"{table.namespace}.{table.name}"
        self._sampled = cheap_sample(head.summary.block_count, head.summary.compressed_byte_size)
        self.tried = 0
        self.blocks_read = 0

    def of_term(self, expression: str, time_zone: str) -> Iterator[Candidate]:
        """Yield the best index on a term; or one of unknown effect."""
        taken = self._kinds_on(expression, time_zone)
        if taken is None:
            return
        changes = [
            IndexChange(kind=kind, expression=expression, time_zone=time_zone)
            for kind in sorted(kinds())
            if kind not in taken
        ]
        answers = [(change, answer) for change in changes if (answer := self._predicted(index=change)) is not None]
        best = self._best(answers)
        unknown = [change for change, answer in answers if answer.unknown]
        if best is None and unknown and self._sampled:
            measured = [
                (change, answer)
                for change in unknown[:_MEASURED_KINDS]
                if (answer := self._measured(change)) is not None
            ]
            if measured:
                best = self._best(measured)
                left = {change.kind for change, answer in measured if not answer.unknown}
                unknown = [change for change in unknown if change.kind not in left]
        if best is not None:
            yield self._index(*best)
        elif unknown:
            reason = next(answer.filters[0].reason for change, answer in answers if change is unknown[0])
            base = self._index(unknown[0], None)
            yield msgspec.structs.replace(base, missing=reason)

    def of_keys(self, node: BoundPredicate) -> Iterator[Candidate]:
        """Yield the best cluster key of one column of the filter."""
        key = self._head.cluster_key
        now = () if key is None else key.columns
        leaves = [leaf for leaf in columns_of(node) if leaf.dtype.order is not None and not leaf.repeated]
        columns = [(leaf.reference,) for leaf in dict.fromkeys(leaves) if (leaf.reference,) != tuple(now[:1])]
        answers = [
            (each, answer) for each in columns[:_MAX_TERMS] if (answer := self._predicted(cluster_key=each)) is not None
        ]
        best = self._best(answers)
        unknown = [(each, answer) for each, answer in answers if answer.unknown]
        if best is None and unknown:
            columns_of_key, answer = unknown[0]
            yield Candidate(
                kind="cluster_key",
                text=f"The cluster key {', '.join(columns_of_key)}",
                command=key_command(self._name, columns_of_key),
                cluster_key=columns_of_key,
                missing=answer.filters[0].reason,
            )
        if best is not None:
            columns_of_key, answer = best
            summary = self._head.summary
            yield Candidate(
                kind="cluster_key",
                text=f"The cluster key {', '.join(columns_of_key)}",
                command=key_command(self._name, columns_of_key),
                gain=_gain(answer),
                cost=CandidateCost(blocks=summary.block_count, rewritten_bytes=summary.compressed_byte_size),
                rests_on=answer.rests_on,
                job="recluster",
                cluster_key=columns_of_key,
            )

    def _kinds_on(self, expression: str, time_zone: str) -> set[str] | None:
        """Return the kinds of the indexes on a term; None: no index can be on it."""
        try:
            key = term_key(term_of(expression, self._head.schema, time_zone))
        except InvalidRequest:
            return None
        used = [each for each in self._head.skip_indexes if each.dropped_ms is None]
        terms = [(each.kind, term_in(each, self._head)) for each in used]
        return {kind for kind, term in terms if term is not None and term_key(term) == key}

    def _predicted(self, **change: Any) -> WhatIfAnswer | None:
        """Return what a change would do; None: it does not fit the column."""
        try:
            answer = self._advice.what_if(self._table, msgspec.structs.replace(self._question, **change))
        except InvalidRequest:
            return None
        self.tried += 1
        return answer

    def _measured(self, change: IndexChange) -> WhatIfAnswer | None:
        try:
            with within(CHEAP_S):
                answer = self._predicted(index=change, sample_blocks=self._sampled)
        except (StoreError, Unavailable):
            return None
        if answer is not None:
            self.blocks_read += answer.blocks_read
        return answer

    def _best(self, answers: Sequence[tuple[_T, WhatIfAnswer]]) -> tuple[_T, WhatIfAnswer] | None:
        """Return the change that saves most, if that is worth it; of equal ones the smallest index."""
        gains = [
            ((round(saved_share(_gain(answer)), 3), -_size(answer)), change, answer)
            for change, answer in answers
            if answer.then is not None and not answer.unknown
        ]
        best = max(gains, key=lambda each: each[0], default=None)
        return None if best is None or best[0][0] < MIN_GAIN else best[1:]

    def _index(self, change: IndexChange, answer: WhatIfAnswer | None) -> Candidate:
        size = None if answer is None or answer.size is None else answer.size.size_bytes
        name = index_name(change, {each.name for each in self._head.skip_indexes})
        zone = [] if change.time_zone == "UTC" else [f"--time-zone={change.time_zone}"]
        create = ["lamella", "index", "create", "--refresh", *zone, "--", self._name, name]
        return Candidate(
            kind="index",
            text=f"An index of kind {change.kind} on {change.expression}",
            command=shlex.join([*create, change.kind, change.expression]),
            gain=None if answer is None else _gain(answer),
            cost=CandidateCost(read_bytes=self._head.summary.compressed_byte_size, index_bytes=size),
            rests_on=() if answer is None else answer.rests_on,
            index=change,
            index_name=name,
        )


def _gain(answer: WhatIfAnswer) -> CandidateGain:
    return CandidateGain(before=answer.now, after=answer.then or answer.now, filters=1, times=1)


def _size(answer: WhatIfAnswer) -> float:
    size = None if answer.size is None else answer.size.size_bytes
    return 0.0 if size is None else size


def _saved(candidate: Candidate) -> float:
    return 0.0 if candidate.gain is None else saved_share(candidate.gain)
