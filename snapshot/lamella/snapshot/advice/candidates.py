"""Candidates: what could be done for a table, what its recorded filters would read then, and the command that does it.

A prediction is made from manifests, recorded filters, and readers' reports of blocks that gave no row. Reports are
statements of clients: they make estimates better, and no prune uses them. What cannot be predicted is returned as such,
with what is missing, and never as no gain.
"""

from __future__ import annotations

import math
import shlex
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec
import numpy as np

from lamella.snapshot.advice.predictions import (
    covered_share,
    first_reason,
    gain_of,
    in_words,
    index_name,
    job_command,
    key_command,
    rank,
    saved_share,
    size_words,
    unpredicted,
)
from lamella.snapshot.advice.rewrites import Reads, RewriteTrial, index_limit
from lamella.snapshot.advice.what_if import (
    NO_INDEXES,
    NOT_WHOLE,
    IndexTrial,
    LayoutTrial,
    TrialFilter,
    selected_blocks,
    trial_filters,
)
from lamella.snapshot.advice.workload import Reported, Workload, terms_in
from lamella.snapshot.cluster.extent import block_target_of
from lamella.snapshot.cluster.key import key_terms, key_texts
from lamella.snapshot.columnar.keys import NumberKeys
from lamella.snapshot.columnar.zones import HIGH_KNOWN, LOW_KNOWN, MAY_NUMBER
from lamella.snapshot.concurrency import check_deadline
from lamella.snapshot.counts import counted
from lamella.snapshot.errors import InvalidRequest
from lamella.snapshot.expression.bound import Pair, columns_of, leaves_in, leaves_of
from lamella.snapshot.expression.nodes import And, IsNull, Not, Ref
from lamella.snapshot.expression.text import sql_of, term_sql
from lamella.snapshot.index import kinds
from lamella.snapshot.index.definition import expression_of, term_in, term_key, term_of
from lamella.snapshot.manifest import SnapshotPointer, TableIndex
from lamella.snapshot.prune.indexes import IndexLayer, OpenIndex
from lamella.snapshot.prune.outcome import NONE
from lamella.snapshot.schema import Leaf
from lamella.snapshot.schema.types import PER_SECOND
from lamella.snapshot.storage import Store
from lamella.snapshot.warehouse.block_sample import BlockSample
from lamella.snapshot.warehouse.finder import IndexAccess
from lamella.snapshot.warehouse.manifests import Manifests
from lamella.snapshot.warehouse.planning import Planning, RewriteGroup, RewritePlan
from lamella.snapshot.warehouse.read_costs import ReplayedFilter
from lamella.snapshot.wire import PlanRequest, RewriteJob
from lamella.snapshot.wire.advice import (
    Candidate,
    CandidateCost,
    CandidateGain,
    CandidatesAnswer,
    CandidatesRequest,
    Cost,
    Forecast,
    IndexChange,
    WhatIfAnswer,
    WhatIfRequest,
)
from lamella.snapshot.workload.recorded_filters import Recorded

#: A change that saves a smaller part of what the filters read is no candidate.
MIN_GAIN: Final = 0.01
#: Columns and expressions that are tried: those of the filters that read most.
_MAX_COLUMNS: Final = 6
_MAX_TERMS: Final = 8
#: Second columns that are tried after the best first column of a cluster key.
_MAX_SECOND: Final = 3
#: Expressions of the filters that are tried as a key, and coarser steps of the best first column.
_MAX_EXPRESSIONS: Final = 3
_MAX_STEPS: Final = 2
_MAX_CONDITIONS: Final = 2
_DAY_S: Final = 86_400
#: Units of ``date_trunc`` and ``trunc``, with their usual seconds.
_UNITS: Final = (
    ("HOUR", 3_600),
    ("DAY", _DAY_S),
    ("WEEK", 7 * _DAY_S),
    ("MONTH", 30 * _DAY_S),
    ("YEAR", 365 * _DAY_S),
)
_NO_FILTERS: Final = "no filters are recorded; prunes record them unless record_prunes is off"
_ASK: Final = "; repeat the request with sample_blocks"
_INDEXED: Final = "indexes, which the job adds new blocks to, are expected to leave as many blocks as now"
_SAMPLED: Final = "the table has more blocks than are evaluated at once; a dry run of the job shows its own prediction"


class Upkeep(msgspec.Struct, frozen=True, kw_only=True):
    """What was last measured of a table's history: how many of its ``snapshots`` a vacuum would expire now, and the
    bytes of the objects that only these name, at least ``min_bytes`` and at most ``max_bytes`` (None: not all of them
    were looked at yet).

    ``expired_snapshots``, ``min_bytes`` None: not known, and ``reason`` states why. ``earlier_snapshot_id``: the
    snapshot at which this was measured, if it is not the current one.
    """

    snapshots: int | None = None
    expired_snapshots: int | None = None
    min_bytes: int | None = None
    max_bytes: int | None = None
    earlier_snapshot_id: str | None = None
    reason: str = ""


class Candidates:
    """Evaluates candidates of snapshots. Reads manifests, sidecars and parts of indexes; blocks only on request."""

    def __init__(self, manifests: Manifests, access: IndexAccess, planning: Planning, store: Store) -> None:
        self._manifests = manifests
        self._access = access
        self._planning = planning
        self._store = store

    def of(
        self,
        pointer: SnapshotPointer,
        table: str,
        request: CandidatesRequest,
        recorded: Sequence[Recorded] = (),
        reported: Sequence[Reported] = (),
        upkeep: Upkeep = Upkeep(),  # noqa: B008  # a frozen value
        *,
        only_recorded: bool = False,
    ) -> CandidatesAnswer:
        """Returns the candidates of a snapshot. ``table``: its name in commands. ``only_recorded``: reports add no
        filters to the recorded ones.

        Raises ManifestError, StoreError.
        """
        scene = BlockSample(self._manifests, pointer)
        work = Workload(scene, self._access, recorded, reported, seed=request.seed, only_recorded=only_recorded)
        found: list[Candidate] = []
        common = _Common(pointer, table, request, scene, work, self._store)
        for candidates in (
            _Rewrites(common, self._planning).candidates,
            _Keys(common).candidates,
            _NewIndexes(common).candidates,
            _Refreshes(common).candidates,
            _UnusedIndexes(common).candidates,
        ):
            check_deadline()
            found += candidates()
        found += _vacuum(table, upkeep)
        known = sorted((each for each in found if not each.missing), key=rank)
        return CandidatesAnswer(
            snapshot_id=scene.head.snapshot_id,
            blocks_total=scene.blocks_total,
            bytes_total=scene.head.summary.compressed_byte_size,
            candidates=tuple(known[: request.top]),
            unpredicted=tuple(each for each in found if each.missing),
            tried=common.tried,
            filters=len(work.filters),
            reported_blocks=sum(len(each.selected) for each in work.filters if each.empty is not None),
            empty_blocks=sum(len(each.empty) for each in work.filters if each.empty is not None),
            left_out=work.left_out,
        )

    def measured(
        self,
        before: SnapshotPointer,
        after: SnapshotPointer,
        recorded: Sequence[Recorded],
        *,
        seed: int = 0,
    ) -> tuple[CandidateGain | None, str]:
        """Returns what the same filters read of two snapshots; None, and why, if no filter can be replayed on both.

        Constants that were not recorded are drawn from the values of the snapshot ``before``, as for its candidates.

        Raises ManifestError, StoreError.
        """
        scene = BlockSample(self._manifests, before)
        work = Workload(scene, self._access, recorded, (), seed=seed)
        then = BlockSample(self._manifests, after)
        indexes = self._access.indexes(then.head)
        reads = []
        for each, (predicate, time_zone) in zip(work.filters, work.predicates, strict=True):
            check_deadline()
            try:
                (again,) = trial_filters(then, indexes, [ReplayedFilter(predicate, each.times, each.text, time_zone)])
            except InvalidRequest as error:  # a column that was dropped meanwhile
                work.left_out[each.text] = error.message
                continue
            now, afterwards = cost_of(scene, each.selected), cost_of(then, again.selected)
            reads.append(
                Reads(
                    filter=each.text,
                    times=each.times,
                    now=now,
                    then=afterwards,
                    at_least=afterwards,
                    at_most=afterwards,
                )
            )
        gain = gain_of(reads)
        if gain is None:
            return None, next(iter(work.left_out.values()), "no filter is recorded any more")
        return gain, ""


def cost_of(scene: BlockSample, blocks: Any) -> Cost:
    """Returns what reading blocks of a sample takes, for the whole snapshot."""
    count = max(len(scene), 1)
    share = max(scene.blocks_total, 1) / count
    return Cost(
        blocks=len(blocks) * share,
        bytes=float(scene.file_size[blocks].sum()) * share,
        skip=1.0 - len(blocks) / count,
    )


class _Common(msgspec.Struct, eq=False):
    """What all candidates of one answer share. ``tried``: number of changes that were evaluated."""

    pointer: SnapshotPointer
    table: str
    request: CandidatesRequest
    scene: BlockSample
    work: Workload
    store: Store
    tried: int = 0

    def what_if(self, **change: Any) -> WhatIfRequest:
        """Returns the request for one change."""
        return WhatIfRequest(sample_blocks=self.request.sample_blocks, seed=self.request.seed, **change)

    @property
    def used_indexes(self) -> list[TableIndex]:
        """Returns the indexes of the table that are in use."""
        return [each for each in self.scene.head.skip_indexes if each.dropped_ms is None]


class _Rewrites:
    """Recluster, compact and purge: the plan of the job, and what filters read after it."""

    def __init__(self, common: _Common, planning: Planning) -> None:
        self._common = common
        self._planning = planning

    def candidates(self) -> Iterator[Candidate]:
        head = self._common.scene.head
        if head.cluster_key is not None:
            yield from self._of("recluster")
        yield from self._of("compact")
        if head.summary.deletes_count:
            yield from self._of("purge")

    def _of(self, job: RewriteJob) -> Iterator[Candidate]:
        common, scene = self._common, self._common.scene
        limit = common.request.max_bytes
        planned = self._planning.groups(common.pointer, PlanRequest(job=job, max_bytes=limit))
        common.tried += 1
        if not planned.groups:
            return
        blocks = sum(len(each.blocks) for each in planned.groups)
        size_bytes = sum(each.file_size_bytes for each in planned.groups)
        what = _rewrite_text(job, blocks, size_bytes, scene.head.cluster_key)
        cost = CandidateCost(blocks=blocks, rewritten_bytes=size_bytes)
        freed = _deleted_bytes(planned) if job == "purge" else None
        arguments = {} if limit is None else {"max_bytes": limit}
        base = Candidate(
            kind=job,
            text=what,
            command=job_command(job, common.table, **arguments),
            cost=cost,
            freed_bytes=freed,
            rests_on=(f"the job's own plan: {planned.reason}",),
            job=job,
            arguments=arguments,
        )
        groups = self._in_scene(planned)
        if groups is None:
            yield unpredicted(base, _SAMPLED)
            return
        if not common.work.filters and job != "purge":
            saved = sum(each.blocks_saved for each in planned.groups)
            along = f"; a range of a thousandth of the rows along the key would read {saved:,.1f} fewer blocks"
            yield unpredicted(base, _NO_FILTERS + (along if job == "recluster" else ""))
            return
        key = scene.head.cluster_key
        terms = () if key is None else key_terms(scene.head.schema, key.columns)
        trial = RewriteTrial(scene, common.store, common.what_if(), common.work.filters)
        reads = trial.rewritten(job, groups, terms, "linear" if key is None else key.kind)
        rests_on = (*base.rests_on, *trial.rests_on, *common.work.rests_on)
        if common.used_indexes:
            rests_on += (_INDEXED,)
        base = msgspec.structs.replace(base, rests_on=rests_on)
        gain = gain_of(reads)
        if gain is None:
            if job == "purge":
                yield msgspec.structs.replace(base, text=f"{what} frees {size_words(freed or 0.0)}")
            else:
                yield unpredicted(base, first_reason(reads))
        elif job == "purge" or saved_share(gain) >= MIN_GAIN:
            yield in_words(base, gain, ends=f"; it frees {size_words(freed or 0.0)}" if job == "purge" else "")
        elif gain.unknown:
            yield unpredicted(msgspec.structs.replace(base, gain=gain), gain.reason)

    def _in_scene(self, planned: RewritePlan) -> list[RewriteGroup] | None:
        """Returns the groups by the numbers of the scene; None if the scene has not all blocks with rows."""
        has_rows = planned.scan.row_count > 0
        if int(has_rows.sum()) != len(self._common.scene):
            return None
        numbers = np.cumsum(has_rows) - 1
        return [
            msgspec.structs.replace(each, blocks=numbers[each.blocks[has_rows[each.blocks]]])
            for each in planned.groups
            if has_rows[each.blocks].any()
        ]


class _Keys:
    """Another cluster key: the table sorted by columns and expressions of the filters, one or two of them.

    A key is its terms as text. Before a second term, the first one is also tried in coarser steps: rows of one day,
    sorted by user, answer look-ups of users that rows sorted by time do not. Conditions that filters share are tried
    before the best column: rows for which they are false are then in other blocks.
    """

    def __init__(self, common: _Common) -> None:
        self._common = common

    def candidates(self) -> Iterator[Candidate]:
        common = self._common
        if not common.work.filters:
            yield self._nothing(_NO_FILTERS)
            return
        columns = self._columns()
        answers = self._answers([(each,) for each in (*columns, *self._expressions())])
        best = self._best(answers)
        if best is not None:
            seconds = [each for each in columns if not self._is_same_column(each, best[0])][:_MAX_SECOND]
            pairs = [(first, each) for each in seconds for first in (best[0], *self._coarser(best[0]))]
            pairs += [(each, best[0]) for each in self._conditions() if not self._is_same_column(each, best[0])]
            answers |= self._answers(pairs)
            best = self._best(answers)
        if best is not None:
            yield self._candidate(best, answers[best])
            return
        for key, answer in answers.items():
            if answer.unknown:
                reason = next(each.reason for each in answer.filters if each.then is None)
                yield self._nothing(reason, key)
                return

    def _columns(self) -> list[str]:
        work, scene = self._common.work, self._common.scene
        weights: dict[Leaf, float] = {}
        for number, each in enumerate(work.filters):
            for leaf in columns_of(each.node):
                if leaf.dtype.order is not None and not leaf.repeated:
                    weights[leaf] = weights.get(leaf, 0.0) + work.weight(number, scene)
        heaviest = sorted(weights, key=lambda leaf: (-weights[leaf], leaf.id))[:_MAX_COLUMNS]
        return [leaf.reference for leaf in heaviest]

    def _expressions(self) -> list[str]:
        """Returns the expressions of the filters that can be a part of a key."""
        work, scene = self._common.work, self._common.scene
        weights: dict[str, float] = {}
        for number, (predicate, _) in enumerate(work.predicates):
            for term in terms_in(predicate):
                if isinstance(term, Ref):
                    continue
                try:
                    (text,) = key_texts(scene.head.schema, (term_sql(term),))
                except InvalidRequest:
                    continue
                weights[text] = weights.get(text, 0.0) + work.weight(number, scene)
        return sorted(weights, key=lambda text: (-weights[text], text))[:_MAX_EXPRESSIONS]

    def _conditions(self) -> list[str]:
        """Returns parts of several filters, and null tests, that can be a part of a key. Others may be drawn."""
        work, scene = self._common.work, self._common.scene
        weights: dict[str, float] = {}
        uses: dict[str, int] = {}
        for number, (predicate, _) in enumerate(work.predicates):
            for part in predicate.children if isinstance(predicate, And) else (predicate,):
                try:
                    (text,) = key_texts(scene.head.schema, (sql_of(part),))
                except InvalidRequest:
                    continue
                weights[text] = weights.get(text, 0.0) + work.weight(number, scene)
                is_null_test = isinstance(part, IsNull) or (isinstance(part, Not) and isinstance(part.child, IsNull))
                uses[text] = uses.get(text, 0) + (2 if is_null_test else 1)
        shared = [text for text in weights if uses[text] > 1]
        return sorted(shared, key=lambda text: (-weights[text], text))[:_MAX_CONDITIONS]

    def _coarser(self, text: str) -> list[str]:
        """Returns expressions of a key's column with fewer values: about as many as each value then has blocks."""
        scene = self._common.scene
        (term,) = key_terms(scene.head.schema, (text,))
        if not isinstance(term, Leaf):
            return []
        zones = scene.zones(term)
        known = zones.has(MAY_NUMBER) & zones.has(LOW_KNOWN) & zones.has(HIGH_KNOWN)
        if not isinstance(zones.low, NumberKeys) or not isinstance(zones.high, NumberKeys) or not known.any():
            return []
        span = float(zones.high.array[known].max()) - float(zones.low.array[known].min())
        max_steps = self._blocks() / 2
        steps = [(span / size, step) for size, step in _steps(term) if 2 <= span / size <= max_steps]
        steps.sort(key=lambda each: abs(math.log(each[0]) - math.log(self._blocks()) / 2))
        return [step for _, step in steps[:_MAX_STEPS]]

    def _is_same_column(self, one: str, other: str) -> bool:
        terms = key_terms(self._common.scene.head.schema, (one, other)) if one != other else ()
        return not terms or bool(set(leaves_in(terms[0])) & set(leaves_in(terms[1])))

    def _blocks(self) -> int:
        """Returns the number of blocks that the whole table would have."""
        head = self._common.scene.head
        target = block_target_of(head.properties)
        return int(target.blocks_of(head.summary.row_count, head.summary.compressed_byte_size))

    def _answers(self, keys: Iterable[tuple[str, ...]]) -> dict[tuple[str, ...], WhatIfAnswer]:
        key = self._common.scene.head.cluster_key
        now = () if key is None else key.columns
        return {each: self._answer(each) for each in keys if each != now}

    def _answer(self, key: tuple[str, ...]) -> WhatIfAnswer:
        check_deadline()
        common = self._common
        common.tried += 1
        request = common.what_if(cluster_key=key)
        answer = LayoutTrial(common.scene, common.store, request, common.work.filters).reclustered(self._blocks())
        found = zip(common.work.filters, answer.filters, strict=True)
        return msgspec.structs.replace(answer, filters=tuple(self._with_indexes(*each) for each in found))

    def _with_indexes(self, filter: TrialFilter, found: Forecast) -> Forecast:
        """Returns a forecast that counts the table's indexes: bounds alone are its upper limit."""
        scene, then = self._common.scene, found.then
        through = index_limit(scene, filter, np.ones(len(scene), dtype=bool))
        if then is None or through is None or then.blocks <= found.now.blocks:
            return found
        part = found.now.blocks / then.blocks
        less = Cost(blocks=found.now.blocks, bytes=then.bytes * part, skip=1.0 - (1.0 - then.skip) * part)
        return msgspec.structs.replace(found, then=less)

    def _best(self, answers: Mapping[tuple[str, ...], WhatIfAnswer]) -> tuple[str, ...] | None:
        """Returns the key that saves most; one with a second column only if that saves a hundredth more."""
        gains = {key: gain_of(answer.filters) for key, answer in answers.items()}
        shares = {
            key: saved_share(gain) * covered_share(gain) - MIN_GAIN * len(key) for key, gain in gains.items() if gain
        }
        best = max(shares, key=lambda key: shares[key], default=None)
        return best if best is not None and shares[best] >= 0 else None

    def _candidate(self, columns: tuple[str, ...], answer: WhatIfAnswer) -> Candidate:
        common = self._common
        gain = gain_of(answer.filters)
        if gain is None:
            raise AssertionError("the best key has a prediction")
        summary = common.scene.head.summary
        base = Candidate(
            kind="cluster_key",
            text=f"The cluster key {', '.join(columns)}",
            command=key_command(common.table, columns),
            cost=CandidateCost(blocks=summary.block_count, rewritten_bytes=summary.compressed_byte_size),
            rests_on=(
                *(each for each in answer.rests_on if each != NO_INDEXES),
                *((_INDEXED,) if common.used_indexes else ()),
                *common.work.rests_on,
            ),
            job="recluster",
            cluster_key=columns,
        )
        return in_words(base, gain)

    def _nothing(self, reason: str, columns: tuple[str, ...] = ()) -> Candidate:
        base = Candidate(
            kind="cluster_key",
            text=f"The cluster key {', '.join(columns)}" if columns else "Another cluster key",
            command=key_command(self._common.table, columns) if columns else f"lamella recorded list {self._name}",
            cluster_key=columns,
        )
        return unpredicted(base, reason)

    @property
    def _name(self) -> str:
        return shlex.quote(self._common.table)


def _steps(leaf: Leaf) -> Iterator[tuple[float, str]]:
    """Yields expressions that have one value for each step of a column, and the size of a step in its numbers."""
    name, dtype = leaf.reference, leaf.dtype
    if dtype.name in ("timestamp", "timestamp_ntz"):
        ticks = PER_SECOND[dtype.unit]
        yield from ((float(seconds * ticks), f"date_trunc('{unit}', {name})") for unit, seconds in _UNITS)
    elif dtype.name == "date":
        coarse = [each for each in _UNITS if each[1] > _DAY_S]
        yield from ((seconds / _DAY_S, f"trunc({name}, '{unit}')") for unit, seconds in coarse)
    elif dtype.is_integer:
        yield from ((10.0**digits, f"({name} DIV {10**digits})") for digits in range(1, 19))


class _NewIndexes:
    """An index for each column or expression that the filters test: of the kind that saves most."""

    def __init__(self, common: _Common) -> None:
        self._common = common

    def candidates(self) -> Iterator[Candidate]:
        for expression, time_zone in self._terms():
            check_deadline()
            yield from self._of(expression, time_zone)

    def _terms(self) -> list[tuple[str, str]]:
        """Returns the expressions of the filters that an index can be created on, with their time zones."""
        work, scene = self._common.work, self._common.scene
        weights: dict[tuple[str, str], float] = {}
        for number, (predicate, time_zone) in enumerate(work.predicates):
            terms = [(each, "UTC" if isinstance(each, Ref) else time_zone) for each in terms_in(predicate)]
            texts = {(expression_of(each, scene.head.schema, zone), zone) for each, zone in terms}
            for text in texts:
                weights[text] = weights.get(text, 0.0) + work.weight(number, scene)
        return sorted(weights, key=lambda text: (-weights[text], text))[:_MAX_TERMS]

    def _of(self, expression: str, time_zone: str) -> Iterator[Candidate]:
        common = self._common
        try:
            term = term_of(expression, common.scene.head.schema, time_zone)
        except InvalidRequest:
            return  # of constants alone, or not computed exactly: no index is possible
        taken = {each.kind for each in common.used_indexes if self._is_on(each, term_key(term))}
        others = [each for each in common.work.indexes if each.key == term_key(term)]
        answered = [
            IndexLayer(others, common.scene.keys, time.perf_counter).applies(f.node) for f in common.work.filters
        ]
        best: tuple[float, float, Candidate] | None = None
        unknown: list[tuple[int, Candidate, CandidateGain | None, str]] = []
        for kind in sorted(kinds()):
            if kind in taken:
                continue
            change = IndexChange(kind=kind, expression=expression, time_zone=time_zone)
            try:
                trial = IndexTrial(common.scene, common.store, common.what_if(index=change), common.work.filters)
                answer = trial.answer()
            except InvalidRequest:
                continue  # the kind does not fit the type
            common.tried += 1
            forecasts = [_beside(*each) for each in zip(answer.filters, answered, strict=True)]
            gain, unpredicted_ones = gain_of(forecasts), [each for each in forecasts if each.then is None]
            base = self._candidate(change, answer)
            if gain is not None and saved_share(gain) >= MIN_GAIN:
                size = base.cost.index_bytes
                better = (saved_share(gain) * covered_share(gain), -(size or 0.0), in_words(base, gain))
                best = better if best is None or better[:2] > best[:2] else best
            elif unpredicted_ones:
                unknown.append((len(unpredicted_ones), base, gain, unpredicted_ones[0].reason))
        if best is not None:
            yield best[2]
        elif unknown:
            count, base, gain, reason = max(unknown, key=lambda each: each[0])
            names = ", ".join(each.index.kind for n, each, _, _ in unknown if n == count and each.index is not None)
            yield unpredicted(msgspec.structs.replace(base, gain=gain), f"{reason} (kinds: {names})")

    def _is_on(self, index: TableIndex, key: Any) -> bool:
        term = term_in(index, self._common.scene.head)
        return term is not None and term_key(term) == key

    def _candidate(self, change: IndexChange, answer: WhatIfAnswer) -> Candidate:
        common = self._common
        size = None if answer.size is None else answer.size.size_bytes
        name = index_name(change, {each.name for each in common.scene.head.skip_indexes})
        words = ["lamella", "index", "create", "--refresh"]
        if change.time_zone != "UTC":
            words.append(f"--time-zone={change.time_zone}")
        return Candidate(
            kind="index",
            text=f"An index of kind {change.kind} on {change.expression}"
            + ("" if size is None else f" ({size_words(size)})"),
            command=shlex.join([*words, "--", common.table, name, change.kind, change.expression]),
            cost=CandidateCost(
                read_bytes=common.scene.head.summary.compressed_byte_size,
                index_bytes=size,
            ),
            rests_on=(*answer.rests_on, *common.work.rests_on),
            job="index_refresh",
            arguments={"index": name},
            index=change,
            index_name=name,
        )


def _beside(found: Forecast, is_answered: bool) -> Forecast | Reads:
    """Returns the forecast of a new index beside those that the table has. Where one on the same expression answers the
    filter, another is expected to rule out nothing more: what is left mostly has the rows.
    """
    if not is_answered:
        return found
    known = [each for each in (found.then, found.if_absent) if each is not None]
    at_least = min(known, key=lambda each: each.blocks, default=Cost(blocks=0.0, bytes=0.0, skip=1.0))
    return Reads(
        filter=found.filter, times=found.times, now=found.now, then=found.now, at_least=at_least, at_most=found.now
    )


class _Refreshes:
    """Indexes that do not cover all blocks: the others are expected to be left as often as those that they cover."""

    def __init__(self, common: _Common) -> None:
        self._common = common

    def candidates(self) -> Iterator[Candidate]:
        common, work = self._common, self._common.work
        opened = {each.name: each for each in work.indexes}
        for index in common.used_indexes:
            check_deadline()
            if not index.directories:
                yield from self._empty(index)
                continue
            if index.name not in opened:
                continue
            found = opened[index.name]
            covered = self._covered(found)
            if covered.all():
                continue
            common.tried += 1
            yield from self._of(index, found, covered)

    def _empty(self, index: TableIndex) -> Iterator[Candidate]:
        """An index that covers no block yet is predicted like one that is to be created."""
        common = self._common
        blocks, size_bytes = common.scene.blocks_total, common.scene.head.summary.compressed_byte_size
        base = Candidate(
            kind="index_refresh",
            text=f"Indexing all {counted(blocks, 'block')} ({size_words(size_bytes)}) by the index {index.name}",
            command=job_command("index_refresh", common.table, index=index.name),
            cost=CandidateCost(blocks=blocks, read_bytes=size_bytes, index_bytes=None),
            rests_on=common.work.rests_on,
            job="index_refresh",
            arguments={"index": index.name},
            index_name=index.name,
        )
        if not common.work.filters:
            yield unpredicted(base, _NO_FILTERS)
            return
        change = IndexChange(
            kind=index.kind, expression=index.expression, options=dict(index.options), time_zone=index.time_zone
        )
        try:
            trial = IndexTrial(common.scene, common.store, common.what_if(index=change), common.work.filters)
            answer = trial.answer()
        except InvalidRequest as error:  # a column was dropped, or the kind is not installed here
            yield unpredicted(base, error.message)
            return
        common.tried += 1
        size = None if answer.size is None else answer.size.size_bytes
        cost = msgspec.structs.replace(base.cost, index_bytes=size)
        base = msgspec.structs.replace(base, cost=cost, rests_on=(*answer.rests_on, *common.work.rests_on))
        gain = gain_of(answer.filters)
        if gain is not None and saved_share(gain) >= MIN_GAIN:
            yield in_words(base, gain)
        elif answer.unknown:
            reason = next(each.reason for each in answer.filters if each.then is None)
            yield unpredicted(msgspec.structs.replace(base, gain=gain), reason)

    def _covered(self, index: OpenIndex) -> Any:
        """Returns which blocks the index knows."""
        scene = self._common.scene
        covered = np.zeros(len(scene), dtype=bool)
        for position in np.unique(scene.segment).tolist():
            mine = scene.segment == position
            _, part, _ = index.locate(scene.keys(position))
            covered[mine] = part[scene.row[mine]] >= 0
        return covered

    def _of(self, index: TableIndex, opened: OpenIndex, covered: Any) -> Iterator[Candidate]:
        common, scene = self._common, self._common.scene
        scale = max(scene.blocks_total, 1) / max(len(scene), 1)
        blocks = round(float((~covered).sum()) * scale)
        size_bytes = round(float(scene.file_size[~covered].sum()) * scale)
        index_bytes = opened.bytes_per_block * blocks if covered.any() else None
        base = Candidate(
            kind="index_refresh",
            text=f"Indexing {counted(blocks, 'block')} ({size_words(size_bytes)}) that the index "
            f"{index.name} does not cover",
            command=job_command("index_refresh", common.table, index=index.name),
            cost=CandidateCost(blocks=blocks, read_bytes=size_bytes, index_bytes=index_bytes),
            rests_on=("what the index leaves of the blocks that it covers", *common.work.rests_on),
            job="index_refresh",
            arguments={"index": index.name},
            index_name=index.name,
        )
        if not common.work.filters:
            yield unpredicted(base, _NO_FILTERS)
            return
        reads = [self._reads_of(each, opened, covered, scale) for each in common.work.filters]
        gain = gain_of(reads)
        if gain is None:
            yield unpredicted(base, first_reason(reads))
        elif saved_share(gain) >= MIN_GAIN:
            yield in_words(base, gain)
        elif gain.unknown:
            yield unpredicted(msgspec.structs.replace(base, gain=gain), gain.reason)

    def _reads_of(self, filter: TrialFilter, opened: OpenIndex, covered: Any, scale: float) -> Reads:
        scene = self._common.scene

        def cost(blocks: float, size_bytes: float) -> Cost:
            return Cost(
                blocks=blocks * scale, bytes=size_bytes * scale, skip=1.0 - blocks / len(scene) if len(scene) else 0.0
            )

        sizes = scene.file_size
        now = cost(len(filter.selected), float(sizes[filter.selected].sum()))
        found = Reads(filter=filter.text, times=filter.times, now=now)
        known = filter.selected[covered[filter.selected]]
        others = filter.selected[~covered[filter.selected]]
        tests = [test for test in leaves_of(filter.node) if not isinstance(test, Pair)]
        if not len(others) or not any(each.term is not None and term_key(each.term) == opened.key for each in tests):
            return msgspec.structs.replace(found, then=now, at_least=now, at_most=now)
        if not filter.is_whole:
            return msgspec.structs.replace(found, reason=NOT_WHOLE)
        by_bounds = (scene.tested(filter.node) != NONE) & covered
        if not by_bounds.any():
            reason = f"the index {opened.name} covers no block that the filter reads by bounds"
            return msgspec.structs.replace(found, reason=reason)
        left = len(known) / int(by_bounds.sum())
        at_least = cost(len(known), float(sizes[known].sum()))
        then = cost(len(known) + left * len(others), float(sizes[known].sum()) + left * float(sizes[others].sum()))
        return msgspec.structs.replace(found, then=then, at_least=at_least, at_most=now)


class _UnusedIndexes:
    """Indexes without which the filters read no more."""

    def __init__(self, common: _Common) -> None:
        self._common = common

    def candidates(self) -> Iterator[Candidate]:
        for index in self._common.used_indexes:
            check_deadline()
            self._common.tried += 1
            yield from self._of(index)

    def _of(self, index: TableIndex) -> Iterator[Candidate]:
        common, work = self._common, self._common.work
        base = Candidate(
            kind="drop_index",
            text=f"Dropping the index {index.name} ({size_words(index.size_bytes)})",
            command=shlex.join(["lamella", "index", "drop", "--", common.table, index.name]),
            freed_bytes=float(index.size_bytes),
            rests_on=("the filters probed with and without the index", *work.rests_on),
            index_name=index.name,
        )
        if not work.filters:
            yield unpredicted(base, _NO_FILTERS)
            return
        opened = {each.name: each for each in work.indexes}
        if index.name not in opened:
            if not index.directories:
                yield unpredicted(base, "the index knows no block yet; refresh it first")
            else:
                yield unpredicted(base, "the index cannot be opened here")
            return
        key = opened[index.name].key
        others = [each for each in work.indexes if each.name != index.name]
        reads: list[Reads] = []
        for each in work.filters:
            tests = [test for test in leaves_of(each.node) if not isinstance(test, Pair)]
            is_mine = any(test.term is not None and term_key(test.term) == key for test in tests)
            if is_mine or not each.is_whole:
                if not each.is_whole:
                    yield unpredicted(base, "the constants of a filter were not recorded and could not be drawn")
                    return
                without = selected_blocks(common.scene, each.node, others)
                if len(without) > len(each.selected):
                    return  # it is of use
            now = cost_of(common.scene, each.selected)
            reads.append(Reads(filter=each.text, times=each.times, now=now, then=now, at_least=now, at_most=now))
        gain = gain_of(reads)
        if gain is None:
            raise AssertionError("there are filters")
        text = (
            f"{base.text} frees its files and changes no read: without it the {counted(gain.filters, 'filter')}, used "
            f"{gain.times:,} times, read the same blocks"
        )
        yield msgspec.structs.replace(base, text=text, gain=gain)


def _vacuum(table: str, upkeep: Upkeep) -> Iterator[Candidate]:
    command = job_command("vacuum", table, execute=True)
    base = Candidate(kind="vacuum", text="A vacuum", command=command, job="vacuum", arguments={"execute": True})
    low, high = upkeep.min_bytes, upkeep.max_bytes
    if upkeep.expired_snapshots == 0:
        return
    if upkeep.expired_snapshots is None or low is None:
        yield unpredicted(base, upkeep.reason or "the history was not measured")
        return
    expires = counted(upkeep.expired_snapshots, "snapshot")
    if upkeep.snapshots is not None:
        expires = f"{upkeep.expired_snapshots:,} of {counted(upkeep.snapshots, 'snapshot')}"
    frees = size_words(low) if low == high else f"at least {size_words(low)}"
    if high is not None and high > low:
        frees = f"{size_words(low)} to {size_words(high)}"
    when = "" if upkeep.earlier_snapshot_id is None else f", as of snapshot {upkeep.earlier_snapshot_id}"
    yield msgspec.structs.replace(
        base,
        text=f"A vacuum expires {expires} and frees {frees}{when}",
        freed_bytes=float(low),
        rests_on=("the differences of the snapshots that would expire and their neighbours",),
    )


def _rewrite_text(job: RewriteJob, blocks: int, size_bytes: int, key: Any) -> str:
    of = f"{counted(blocks, 'block')} ({size_words(size_bytes)})"
    if job == "recluster":
        return f"Reclustering {of} by {', '.join(key.columns)}"
    return f"Compacting {of}" if job == "compact" else f"Purging {of} of their deleted rows"


def _deleted_bytes(planned: RewritePlan) -> float:
    """Returns the bytes of the deleted rows of the planned blocks, in proportion to rows."""
    total = 0.0
    for each in planned.groups:
        rows = int(planned.scan.row_count[each.blocks].sum())
        total += each.file_size_bytes * (1.0 - each.row_count / rows) if rows else 0.0
    return total
