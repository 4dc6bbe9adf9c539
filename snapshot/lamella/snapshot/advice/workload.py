"""The filters that candidates are tried on: recorded ones, and those of readers' reports."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
import numpy as np

from lamella.snapshot.advice.predictions import OPEN_BYTES
from lamella.snapshot.advice.what_if import TrialFilter, trial_filters
from lamella.snapshot.counts import counted
from lamella.snapshot.errors import InvalidRequest
from lamella.snapshot.expression import Predicate, read_filter
from lamella.snapshot.expression.nodes import Literal, Term
from lamella.snapshot.manifest.block_key import are_among, keys_of
from lamella.snapshot.reader_feedback import digest_of
from lamella.snapshot.warehouse.block_sample import BlockSample
from lamella.snapshot.warehouse.finder import IndexAccess
from lamella.snapshot.warehouse.read_costs import ReplayedFilter, replayed_filters
from lamella.snapshot.workload.recorded_filters import Recorded


class Reported(msgspec.Struct, frozen=True, kw_only=True):
    """A filter (SQL or a tree) that a reader used, and the keys of the blocks that it read and that gave no row, as in
    :mod:`lamella.snapshot.manifest.block_key`."""

    filter: Any
    blocks: bytes
    time_zone: str = "UTC"
    case_sensitive: bool = False


class Workload:
    """The filters to replay: recorded ones, and those of readers' reports with the blocks that gave no row.

    ``only_recorded``: no filter that was only reported.
    """

    def __init__(
        self,
        scene: BlockSample,
        access: IndexAccess,
        recorded: Sequence[Recorded],
        reported: Sequence[Reported],
        *,
        seed: int,
        only_recorded: bool = False,
    ) -> None:
        again = replayed_filters(scene, recorded, case_sensitive=False, seed=seed)
        self.left_out = dict(again.left_out)
        self.indexes = access.indexes(scene.head)
        schema = scene.head.schema
        replayed = list(again.filters)
        digests = [digest_of(each.predicate, schema, time_zone=each.time_zone) for each in replayed]
        filters = trial_filters(scene, self.indexes, replayed)
        predicates = [(each.predicate, each.time_zone) for each in replayed]
        for each in reported:
            try:
                predicate = read_filter(each.filter, time_zone=each.time_zone)
                one = ReplayedFilter(predicate, time_zone=each.time_zone)
                (trial,) = trial_filters(scene, self.indexes, [one], case_sensitive=each.case_sensitive)
            except InvalidRequest as error:  # a column that was dropped, or has another type
                self.left_out[str(each.filter)[:200]] = error.message
                continue
            digest = digest_of(predicate, schema, time_zone=each.time_zone, case_sensitive=each.case_sensitive)
            trial = msgspec.structs.replace(trial, empty=_empty(scene, trial, each.blocks))
            if digest is not None and digest in digests:
                at = digests.index(digest)
                filters[at] = msgspec.structs.replace(filters[at], empty=trial.empty)
                continue
            if only_recorded:
                continue
            filters.append(trial)
            predicates.append((predicate, each.time_zone))
        self.filters: Sequence[TrialFilter] = filters
        self.predicates: Sequence[tuple[Predicate, str]] = predicates
        self.rests_on: tuple[str, ...] = ()
        if recorded:
            sampled = sum(not each.is_full for each in recorded)
            self.rests_on += (f"{len(recorded):,} recorded filters, {sampled:,} of them with drawn constants",)
        if reported:
            self.rests_on += (f"{counted(len(reported), 'filter')} that readers reported blocks without a row for",)

    def weight(self, number: int, scene: BlockSample) -> float:
        """Returns what all uses of a filter read now; see :func:`read_bytes`."""
        each = self.filters[number]
        return each.times * (float(scene.file_size[each.selected].sum()) + OPEN_BYTES * len(each.selected))


def _empty(scene: BlockSample, trial: TrialFilter, raw: bytes) -> Any:
    """Returns those of the selected blocks that a report names."""
    known = keys_of(raw)
    found = [np.zeros(0, dtype=np.int64)]
    for position in np.unique(scene.segment[trial.selected]).tolist():
        mine = trial.selected[scene.segment[trial.selected] == position]
        found.append(mine[are_among(scene.keys(position)[scene.row[mine]], known)])
    return np.concatenate(found)


def terms_in(predicate: Predicate) -> Iterator[Term]:
    """Yields the operands of a filter's predicates that are not literals."""
    for name in predicate.__struct_fields__:
        value = getattr(predicate, name)
        for each in value if isinstance(value, tuple) else (value,):
            if isinstance(each, Literal):
                continue
            if isinstance(each, Term):
                yield each
            elif isinstance(each, Predicate):
                yield from terms_in(each)
