"""Skip indexes, behind the blocks' own statistics: which of the blocks that are left they rule out.

An index is asked when it is over a term of the filter's and its kind answers that predicate, the smallest per block
first. What it says of a block joins what the statistics allow, predicate by predicate, in SQL's three-valued logic; a
block that it does not know stays. One that hardly rules out anything is not asked any further, and the report says so.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Final, Protocol

import msgspec
import numpy as np

from lamella.snapshot.columnar import Zones
from lamella.snapshot.columnar.keys import Mask, both, either, filled
from lamella.snapshot.concurrency import is_deadline_exceeded
from lamella.snapshot.errors import LamellaError
from lamella.snapshot.expression.bound import (
    BoundAnd,
    BoundIsTrue,
    BoundIsUnknown,
    BoundLeaf,
    BoundNot,
    BoundOr,
    BoundPredicate,
    BoundTest,
    Fixed,
    Pair,
    leaves_of,
)
from lamella.snapshot.index.kind import Kind, PossibleOutcomes, Probe
from lamella.snapshot.manifest.block_key import BlockKeys
from lamella.snapshot.prune.evaluate import Lookup, leaf_outcome
from lamella.snapshot.prune.outcome import ALL, Outcome, conjunction, flipped, resolved
from lamella.snapshot.prune.result import Indexes, SegmentSelection
from lamella.snapshot.schema import Leaf
from lamella.snapshot.wire import IndexUse

#: An index that ruled out fewer than one in so many of this many blocks is not asked about the others.
_MIN_PART: Final = 100
_TRIAL_BLOCKS: Final = 2_000


class OpenPart(Protocol):
    """A part of an index, as far as it is known here."""

    @property
    def read_bytes(self) -> int:
        """Bytes that were read of it for this request."""
        ...

    def probe(self) -> Probe:
        """Opens it; raises as :class:`lamella.snapshot.index.Part`."""
        ...


class OpenIndex(Protocol):
    """An index of the snapshot that is in use."""

    name: str
    kind: Kind
    expression: str
    options: Mapping[str, object]
    #: Bytes of its parts per block that they know.
    bytes_per_block: float
    #: See :func:`lamella.snapshot.index.definition.term_key`.
    key: Hashable

    def locate(self, keys: BlockKeys) -> tuple[Sequence[OpenPart], Indexes, Indexes]:
        """The parts that know blocks, and for each block the number of its part (-1: none) and its row there."""
        ...


#: What is added up when an index is asked about one segment after another.
_SUMMED: Final = ("considered", "ruled_out", "not_indexed", "parts", "bytes", "ms")


class _IndexTests(msgspec.Struct, frozen=True):
    index: OpenIndex
    tests: tuple[BoundTest, ...]


class IndexResult(msgspec.Struct, frozen=True):
    """What is left. ``is_whole``: every part could be read, so the same question has the same answer."""

    selected: list[SegmentSelection]
    uses: tuple[IndexUse, ...]
    is_whole: bool


class IndexLayer:
    """The indexes of one snapshot. ``keys`` gives the block keys of a segment by its row, ``timer`` seconds."""

    def __init__(
        self, indexes: Sequence[OpenIndex], keys: Callable[[int], BlockKeys], timer: Callable[[], float]
    ) -> None:
        self._indexes = indexes
        self._keys = keys
        self._timer = timer

    def one_by_one(self) -> dict[str, IndexLayer]:
        """A layer of each index alone, by its name."""
        return {index.name: IndexLayer([index], self._keys, self._timer) for index in self._indexes}

    def questions(self, node: BoundPredicate) -> IndexQuestions | None:
        """What indexes are to be asked for a filter; None when none of them can help."""
        applicable = self._applicable(node)
        return IndexQuestions(node, applicable, self._keys, self._timer) if applicable else None

    def applies(self, node: BoundPredicate) -> bool:
        """Whether some index is to be asked."""
        return bool(self._applicable(node))

    def refine(self, node: BoundPredicate, selected: Sequence[SegmentSelection]) -> IndexResult:
        """The kept blocks without those that indexes rule out."""
        questions = IndexQuestions(node, self._applicable(node), self._keys, self._timer)
        left = questions.refine(selected)
        return IndexResult(left, questions.uses, all(use.failure is None for use in questions.uses))

    def _applicable(self, node: BoundPredicate) -> list[_IndexTests]:
        if not self._indexes:
            return []
        from lamella.snapshot.index.definition import term_key  # binding is needed only where there is an index

        tests = [
            leaf for leaf in dict.fromkeys(leaves_of(node)) if not isinstance(leaf, Pair) and leaf.term is not None
        ]
        found = []
        for index in sorted(self._indexes, key=lambda each: (each.bytes_per_block, each.name)):
            mine = tuple(
                test
                for test in tests
                if test.term is not None
                and term_key(test.term) == index.key
                and index.kind.answers(test, index.options) is None
            )
            if mine:
                found.append(_IndexTests(index, mine))
        return found


class IndexQuestions:
    """The indexes that one filter asks, and what they said so far."""

    def __init__(
        self,
        node: BoundPredicate,
        indexes: Sequence[_IndexTests],
        keys: Callable[[int], BlockKeys],
        timer: Callable[[], float],
    ) -> None:
        self._node = node
        self._indexes = indexes
        self._keys = keys
        self._timer = timer
        self._uses: dict[str, IndexUse] = {}

    @property
    def uses(self) -> tuple[IndexUse, ...]:
        """What the report says of them, in the order in which they were asked."""
        return tuple(self._uses.values())

    def refine(self, selected: Sequence[SegmentSelection]) -> list[SegmentSelection]:
        """The kept blocks without those that indexes rule out."""
        parts = list(selected)
        claims: dict[BoundLeaf, PossibleOutcomes] = {}
        for index in self._indexes:
            started = self._timer()
            question = _Question(index, self._keys, self._node)
            parts, claims = question.run(parts, claims)
            self._note(question.use((self._timer() - started) * 1e3))
        return parts

    def refine_one(self, part: SegmentSelection) -> SegmentSelection:
        """As :meth:`refine`, of one segment."""
        left = self.refine([part])
        return left[0] if left else part.where(np.zeros(len(part.rows), dtype=bool))

    def _note(self, use: IndexUse) -> None:
        before = self._uses.get(use.name)
        if before is not None:
            sums = {name: getattr(before, name) + getattr(use, name) for name in _SUMMED}
            use = msgspec.structs.replace(
                use, stopped=use.stopped or before.stopped, failure=use.failure or before.failure, **sums
            )
        self._uses[use.name] = use


class _Question:
    """One index asked about all blocks that are left."""

    def __init__(self, index_tests: _IndexTests, keys: Callable[[int], BlockKeys], node: BoundPredicate) -> None:
        self._index_tests = index_tests
        self._keys = keys
        self._node = node
        self.considered = 0
        self.ruled_out = 0
        self.not_indexed = 0
        self.failure: str | None = None
        self.stopped = False
        self._read_bytes = 0
        self._opened: set[int] = set()

    def run(
        self, selected: list[SegmentSelection], before: dict[BoundLeaf, PossibleOutcomes]
    ) -> tuple[list[SegmentSelection], dict[BoundLeaf, PossibleOutcomes]]:
        """What is left, and what is known of it: the claims of this index and those before, block by block."""
        count = sum(len(part.rows) for part in selected)
        claims: dict[BoundLeaf, PossibleOutcomes] = {
            **{test: _arrays(possible_outcomes, count) for test, possible_outcomes in before.items()},
            **{test: _arrays(before.get(test, PossibleOutcomes(True)), count) for test in self._index_tests.tests},
        }
        undecided = np.concatenate([np.zeros(0, bool), *(part.codes != ALL for part in selected)]).nonzero()[0]
        if not len(undecided):
            return selected, claims
        keys = np.concatenate([self._keys(part.segment)[part.rows] for part in selected])[undecided]
        try:
            parts, numbers, rows = self._index_tests.index.locate(keys)
        except LamellaError as error:  # a directory that cannot be read says nothing of any block
            self._failed(error)
            self.not_indexed = len(keys)
            return selected, claims
        self.not_indexed = int((numbers < 0).sum())
        keep = np.ones(count, dtype=bool)
        for number in np.bincount(numbers[numbers >= 0], minlength=1).nonzero()[0].tolist():
            mine = (numbers == number).nonzero()[0]
            mine = mine[np.argsort(rows[mine], kind="stable")]
            self._ask(parts[number], rows[mine], undecided[mine], claims)
            self._opened.add(number)
            self.considered += len(mine)
            if self._is_useless(claims, undecided, numbers, number):
                self.stopped = True
                break
        self._read_bytes = sum(parts[number].read_bytes for number in self._opened)
        keep[undecided] = self._may_match(selected, undecided, claims)
        self.ruled_out = int(count - keep.sum())
        if not self.ruled_out:
            return selected, claims
        masks = np.split(keep, np.cumsum([len(part.rows) for part in selected])[:-1])
        left = [part.where(mask) for part, mask in zip(selected, masks, strict=True) if mask.any()]
        return left, {
            test: PossibleOutcomes(*(each[keep] for each in _masks(possible_outcomes)))
            for test, possible_outcomes in claims.items()
        }

    def use(self, ms: float) -> IndexUse:
        """What the report says."""
        index = self._index_tests.index
        return IndexUse(
            name=index.name,
            kind=index.kind.name,
            expression=index.expression,
            considered=self.considered,
            ruled_out=self.ruled_out,
            not_indexed=self.not_indexed,
            parts=len(self._opened),
            bytes=self._read_bytes,
            ms=ms,
            stopped="it ruled out almost no blocks" if self.stopped else None,
            failure=self.failure,
        )

    def _ask(
        self, part: OpenPart, rows: Indexes, positions: Indexes, claims: Mapping[BoundLeaf, PossibleOutcomes]
    ) -> None:
        """Ask a part about its blocks ``rows``, ascending; ``positions``: where these stand in the claims."""
        try:
            probe = part.probe()
            answers = [probe.possible_outcomes(test, rows) for test in self._index_tests.tests]
        except LamellaError as error:  # what cannot be read says nothing
            self._failed(error)
            return
        for test, answer in zip(self._index_tests.tests, answers, strict=True):
            if answer is not None:
                for whole, mask in zip(_masks(claims[test]), (answer.true, answer.false, answer.null), strict=True):
                    whole[positions] &= filled(mask, len(rows))

    def _failed(self, error: LamellaError) -> None:
        if is_deadline_exceeded(error):
            raise error
        self.failure = error.message

    def _is_useless(
        self, claims: Mapping[BoundLeaf, PossibleOutcomes], undecided: Indexes, numbers: Indexes, done: int
    ) -> bool:
        if self.considered < _TRIAL_BLOCKS:
            return False
        checked = undecided[(numbers >= 0) & (numbers <= done)]
        said = np.zeros(len(checked), dtype=bool)
        for test in self._index_tests.tests:
            true, false, null = (mask[checked] for mask in _masks(claims[test]))
            said |= ~(true & false & null)
        return int(said.sum()) * _MIN_PART < len(checked)

    def _may_match(
        self, selected: list[SegmentSelection], undecided: Indexes, claims: Mapping[BoundLeaf, PossibleOutcomes]
    ) -> Mask:
        found = _conjuncts_may_match(self._node, undecided, claims)
        if found is not None:
            return found
        whole = np.ones(sum(len(part.rows) for part in selected), dtype=bool)
        first = 0
        for part in selected:
            stop = first + len(part.rows)
            mine = {
                test: PossibleOutcomes(*(mask[first:stop] for mask in _masks(possible_outcomes)))
                for test, possible_outcomes in claims.items()
            }

            def lookup(leaf: Leaf, part: SegmentSelection = part) -> Zones:
                return part.sidecar.zones(leaf.id, leaf.dtype).take(part.rows)

            outcome = _outcome(self._node, lookup, stop - first, mine)
            whole[first:stop] = filled(outcome.true, stop - first)
            first = stop
        return whole[undecided]


def _conjuncts_may_match(
    node: BoundPredicate, undecided: Indexes, claims: Mapping[BoundLeaf, PossibleOutcomes]
) -> Mask | None:
    """Where every predicate that was asked about may be true, for a filter that needs all of them; else None."""
    children = node.children if isinstance(node, BoundAnd) else (node,)
    mine = [possible_outcomes for test, possible_outcomes in claims.items() if test in children]
    inside = {leaf for child in children if child not in claims for leaf in leaves_of(child)}
    if not mine or not inside.isdisjoint(claims):
        return None
    found = np.ones(len(undecided), dtype=bool)
    for possible_outcomes in mine:
        found &= _masks(possible_outcomes)[0][undecided]
    return found


def _outcome(node: BoundPredicate, lookup: Lookup, count: int, claims: Mapping[BoundLeaf, PossibleOutcomes]) -> Outcome:
    """The outcome of a filter from zone maps and claims."""
    match node:
        case Fixed(value):
            return Outcome(value is True, value is False, value is None, False)
        case BoundNot(child):
            return flipped(_outcome(child, lookup, count, claims))
        case BoundIsTrue(child):
            inner = _outcome(child, lookup, count, claims)
            return resolved(inner.true, either(inner.false, inner.null), False, inner.doubt)
        case BoundIsUnknown(child):
            inner = _outcome(child, lookup, count, claims)
            return resolved(inner.null, either(inner.true, inner.false), False, inner.doubt)
        case BoundAnd(children):
            return conjunction([_outcome(child, lookup, count, claims) for child in children])
        case BoundOr(children):
            return flipped(conjunction([flipped(_outcome(child, lookup, count, claims)) for child in children]))
        case _:
            found, possible_outcomes = leaf_outcome(node, lookup, count), claims.get(node)
            if possible_outcomes is None:
                return found
            true, false, null = _masks(possible_outcomes)
            return resolved(both(found.true, true), both(found.false, false), both(found.null, null), found.doubt)


def _arrays(possible_outcomes: PossibleOutcomes, count: int) -> PossibleOutcomes:
    """A claim with arrays of its own."""
    return PossibleOutcomes(
        *(
            filled(mask, count).copy()
            for mask in (possible_outcomes.true, possible_outcomes.false, possible_outcomes.null)
        )
    )


def _masks(possible_outcomes: PossibleOutcomes) -> tuple[Mask, Mask, Mask]:
    true, false, null = possible_outcomes.true, possible_outcomes.false, possible_outcomes.null
    assert not isinstance(true, bool)  # noqa: S101  # see _arrays
    assert not isinstance(false, bool)  # noqa: S101
    assert not isinstance(null, bool)  # noqa: S101
    return true, false, null
