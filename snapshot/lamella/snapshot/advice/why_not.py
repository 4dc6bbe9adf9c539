"""Explains why skip indexes do not help with a filter: index by index, predicate by predicate, by probing them."""

from __future__ import annotations

import time
from typing import Final

import numpy as np

from lamella.snapshot.counts import counted
from lamella.snapshot.errors import InvalidRequest
from lamella.snapshot.expression import Predicate, bind
from lamella.snapshot.expression.bound import (
    Anything,
    BoundLeaf,
    BoundPredicate,
    BoundTest,
    Pair,
    leaves_of,
    terms_of,
)
from lamella.snapshot.index import Kind, kind_named
from lamella.snapshot.index.definition import term_in, term_key
from lamella.snapshot.manifest import SnapshotPointer, TableIndex
from lamella.snapshot.prune.indexes import IndexLayer, OpenIndex
from lamella.snapshot.prune.outcome import ALL, NONE
from lamella.snapshot.prune.result import Codes
from lamella.snapshot.warehouse.block_sample import BlockSample, Rows, refined
from lamella.snapshot.warehouse.finder import IndexAccess
from lamella.snapshot.warehouse.indexing import no_index
from lamella.snapshot.warehouse.manifests import Manifests
from lamella.snapshot.wire import IndexUse
from lamella.snapshot.wire.advice import Why, WhyCode, WhyNotAnswer, WhyNotRequest

_GONE: Final = "one of its columns was dropped, or has a different type now"


class WhyNot:
    """Explains; reads the parts of indexes that a prune would read."""

    def __init__(self, manifests: Manifests, access: IndexAccess) -> None:
        self._manifests = manifests
        self._access = access

    def answer(self, pointer: SnapshotPointer, request: WhyNotRequest, predicate: Predicate) -> WhyNotAnswer:
        """Returns one line for each index and predicate, and one for the whole filter.

        Raises:
            IndexNotFound: there is no index with the requested name.
            UnknownColumn, FilterTypeMismatch: the filter is invalid.
        """
        scene = BlockSample(self._manifests, pointer)
        node = bind(predicate, scene.head.schema, time_zone=request.time_zone, case_sensitive=request.case_sensitive)
        indexes = scene.head.skip_indexes
        if request.index is not None:
            wanted = request.index.lower()
            indexes = tuple(index for index in indexes if index.name.lower() == wanted)
            if not indexes:
                raise no_index(request.index, scene.head.skip_indexes)
        opened = {each.name: each for each in self._access.indexes(scene.head)}
        codes = scene.tested(node)
        left = np.flatnonzero(codes != NONE)
        answers: list[Why] = []
        for index in indexes:
            answers += _Case(scene, index, opened.get(index.name), node, codes, left).explanations()
        usable = [opened[index.name] for index in indexes if index.name in opened]
        selected, _ = refined(usable, scene, node, scene.parts(left, codes))
        return WhyNotAnswer(
            snapshot_id=scene.head.snapshot_id,
            blocks_total=len(scene),
            after_bounds=len(left),
            after_indexes=sum(len(part.rows) for part in selected),
            answers=tuple(answers),
            predicates=tuple(dict.fromkeys(leaf.text for leaf in leaves_of(node))),
        )


class _Case:
    """One index and one filter. ``opened``: None if the index cannot be probed. ``left``: the blocks that bounds
    leave."""

    def __init__(
        self,
        scene: BlockSample,
        index: TableIndex,
        opened: OpenIndex | None,
        node: BoundPredicate,
        codes: Codes,
        left: Rows,
    ) -> None:
        self._scene = scene
        self._index = index
        self._opened = opened
        self._node = node
        self._codes = codes
        self._left = left

    def explanations(self) -> list[Why]:
        """Returns the explanations."""
        state = self._state()
        if state is not None:
            return [self._why(*state)]
        leaves = list(dict.fromkeys(leaves_of(self._node)))
        tests: list[BoundTest] = []
        found: list[Why] = []
        for leaf in leaves:
            reason = self._reason(leaf)
            if reason is not None:
                found.append(self._why(*reason, predicate=leaf.text))
            elif not isinstance(leaf, Pair):
                tests.append(leaf)
                found.append(self._probed(leaf, leaf.text))
        if tests and (len(leaves) > 1 or self._node not in tests):
            found.append(self._probed(self._node, None))
        return found

    def _state(self) -> tuple[WhyCode, str] | None:
        """Returns why the index is never probed."""
        if self._index.dropped_ms is not None:
            return "dropped", "it was dropped; restore it"
        if self._kind() is None:
            return "not_usable", f"the index kind {self._index.kind!r} is not installed"
        if term_in(self._index, self._scene.head) is None:
            return "not_usable", _GONE
        if self._opened is None:
            return "empty", "no block was indexed yet; refresh it"
        return None

    def _kind(self) -> Kind | None:
        try:
            return kind_named(self._index.kind)
        except InvalidRequest:
            return None

    def _reason(self, leaf: BoundLeaf) -> tuple[WhyCode, str] | None:
        """Returns why the index is not probed for a predicate."""
        over = f"the predicate is not on {self._index.expression}"
        if self._opened is None:
            raise AssertionError("such an index has a state")
        if isinstance(leaf, Anything):
            return "not_answered", leaf.reason
        if isinstance(leaf, Pair):
            is_near = any(term_key(term) == self._opened.key for term in terms_of(leaf))
            return "other_term", "the predicate compares two terms of a row; an index covers one" if is_near else over
        if IndexLayer([self._opened], self._scene.keys, time.perf_counter).questions(leaf) is not None:
            return None
        if leaf.term is None or term_key(leaf.term) != self._opened.key:
            return "other_term", over
        return "not_answered", self._opened.kind.answers(leaf, self._opened.options) or over

    def _probed(self, node: BoundPredicate, predicate: str | None) -> Why:
        """Returns the result of probing the index."""
        undecided = self._left[self._codes[self._left] != ALL]
        if not len(undecided):
            reason = "every row of the remaining blocks matches" if len(self._left) else "bounds skip all blocks"
            return self._why("nothing_left", reason, predicate=predicate)
        if self._opened is None:
            raise AssertionError("such an index has a state")
        _, uses = refined([self._opened], self._scene, node, self._scene.parts(self._left, self._codes))
        code, reason = _verdict(uses[0], len(undecided))
        return self._why(code, reason, predicate=predicate, use=uses[0])

    def _why(self, code: WhyCode, reason: str, *, predicate: str | None = None, use: IndexUse | None = None) -> Why:
        return Why(
            index=self._index.name,
            kind=self._index.kind,
            expression=self._index.expression,
            code=code,
            reason=reason,
            predicate=predicate,
            considered=0 if use is None else use.considered,
            ruled_out=0 if use is None else use.ruled_out,
            not_indexed=0 if use is None else use.not_indexed,
        )


def _verdict(use: IndexUse, undecided: int) -> tuple[WhyCode, str]:
    if use.failure is not None:
        return "unreadable", use.failure
    if use.ruled_out:
        return "helps", f"it rules out {use.ruled_out:,} of {counted(undecided, 'block')} that remain after bounds"
    if use.not_indexed == undecided:
        return "not_indexed", "it covers none of the blocks that remain after bounds; refresh it"
    if use.stopped is not None:
        return "useless", use.stopped
    return "may_match", f"each of the {counted(use.considered, 'block')} for which it was evaluated may match"
