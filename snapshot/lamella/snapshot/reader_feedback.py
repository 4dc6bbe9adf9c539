"""Reader feedback: blocks that had no row for a filter, remembered for later queries with the same filter.

A report is a statement of a client, not a proof. Its key contains everything it depends on: the meaning of the filter,
the time zone, the case rule, the columns by id, type and default, and the block by its content.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from typing import Final, Protocol

import msgspec
import numpy as np

from lamella.snapshot.columnar.keys import Mask
from lamella.snapshot.errors import InvalidRequest, UnknownColumn
from lamella.snapshot.expression import Predicate
from lamella.snapshot.expression.nodes import And, Constant, Or, Ref, SourcePosition, Unknown
from lamella.snapshot.manifest import Snapshot
from lamella.snapshot.manifest.block_key import BlockKeys, no_keys
from lamella.snapshot.prune.outcome import ALL
from lamella.snapshot.prune.result import SegmentSelection
from lamella.snapshot.schema import Schema
from lamella.snapshot.wire import AggregateRequest, DiffRequest, FeedbackUse, PruneRequest

# The digest of a filter: equal for filters that have the same meaning by their form, whatever their spelling.
#
# The digest is computed from the parsed filter, not from its bound form, since only the former says everything about a
# row: patterns, literals with their spelling, functions. Columns are included by id, type and default.

DIGEST_BYTES: Final = 16
#: Incremented when readers evaluate filters differently, so that no earlier report is used.
_VERSION: Final = 2


def questions(
    predicate: Predicate, schema: Schema, *, time_zone: str = "UTC", case_sensitive: bool = False
) -> tuple[bytes, ...]:
    """Returns the digests under which an answer helps: of the whole filter, and of each predicate that it requires.

    Empty if there are none: parts that no reader decides exactly have no digest.
    """
    parts = [predicate, *(_flat(predicate, And) if isinstance(predicate, And) else ())]
    found = (digest_of(part, schema, time_zone=time_zone, case_sensitive=case_sensitive) for part in parts)
    return tuple(dict.fromkeys(digest for digest in found if digest is not None))


def digest_of(
    predicate: Predicate, schema: Schema, *, time_zone: str = "UTC", case_sensitive: bool = False
) -> bytes | None:
    """Returns the digest of a predicate over the columns of a schema; None for one that is constant, or not decided
    exactly."""
    if isinstance(predicate, Constant):
        return None
    try:
        form = _form(predicate, schema, case_sensitive)
    except (_NotExact, UnknownColumn):
        return None
    text = _written((_VERSION, time_zone, case_sensitive, form))
    return hashlib.blake2b(text, digest_size=DIGEST_BYTES).digest()


class _NotExact(Exception):
    """A part has no exact meaning here."""


def _form(node: object, schema: Schema, case_sensitive: bool) -> tuple[object, ...]:
    """Returns a node as nested tuples: its kind, then its members."""
    if isinstance(node, Unknown):
        raise _NotExact
    if isinstance(node, Ref):
        leaf = schema.find(node.path, case_sensitive=case_sensitive)
        if leaf is None:
            raise _NotExact
        return ("column", leaf.id, str(leaf.dtype), leaf.default, leaf.repeated)
    if isinstance(node, And | Or):
        kind = type(node)
        children = {_written(form): form for form in (_form(c, schema, case_sensitive) for c in _flat(node, kind))}
        ordered = tuple(children[text] for text in sorted(children))
        return ordered[0] if len(ordered) == 1 else (kind.__name__, *ordered)
    if not isinstance(node, msgspec.Struct):
        raise _NotExact
    members = (value for value in msgspec.structs.astuple(node) if not isinstance(value, SourcePosition))
    return (type(node).__name__, *(_member(value, schema, case_sensitive) for value in members))


def _member(value: object, schema: Schema, case_sensitive: bool) -> object:
    if isinstance(value, msgspec.Struct):
        return _form(value, schema, case_sensitive)
    if isinstance(value, tuple):
        return ("list", *(_member(each, schema, case_sensitive) for each in value))
    return value


def _flat(node: And | Or, kind: type[And] | type[Or]) -> list[Predicate]:
    """Returns the children, with children of the same kind flattened."""
    return [each for child in node.children for each in (_flat(child, kind) if isinstance(child, kind) else (child,))]


def _written(value: object) -> bytes:
    """Returns one text for each value; types that compare equal (``1``, ``1.0``, ``True``) are distinguished."""
    if isinstance(value, tuple):
        return b"(" + b",".join(_written(each) for each in value) + b")"
    if isinstance(value, float):
        text = value.hex()  # zeros of either sign differ, which may miss a report but never gives a wrong answer
    elif isinstance(value, bytes):
        text = value.hex()
    elif value is None or isinstance(value, bool | int | str):
        text = str(value)
    else:
        raise _NotExact
    raw = text.encode("utf-8", "surrogatepass")
    return f"{type(value).__name__}{len(raw)}:".encode() + raw


#: Approximate size of an entry without its keys.
_ENTRY_BYTES: Final = 200


class Facts:
    """The blocks that were reported empty, by the digest of the filter. Immutable."""

    def __init__(self, blocks: Mapping[bytes, BlockKeys]) -> None:
        self._blocks = dict(blocks)

    def __len__(self) -> int:
        return sum(len(keys) for keys in self._blocks.values())

    @property
    def size_bytes(self) -> int:
        """Returns the approximate memory in bytes."""
        return sum(keys.nbytes + _ENTRY_BYTES for keys in self._blocks.values())

    def known(self, digests: Sequence[bytes]) -> list[bytes]:
        """Returns those of the digests that have an entry."""
        return [digest for digest in digests if digest in self._blocks]

    def empty(self, digests: Sequence[bytes]) -> BlockKeys:
        """Returns the blocks that are empty for one of the digests, and so for a filter that requires all."""
        return np.concatenate([no_keys(), *(self._blocks[digest] for digest in self.known(digests))])


class FeedbackFilter:
    """The reader feedback on one filter, applied to the kept blocks of one prune; counts its effect.

    ``digests``: :func:`questions` of the filter over the snapshot's schema. ``keys`` returns the block keys of a
    segment by its row, as for skip indexes. A block all of whose rows are proven to match is kept, whatever was
    reported.
    """

    def __init__(
        self,
        facts: Facts,
        digests: Sequence[bytes],
        keys: Callable[[int], BlockKeys],
        timer: Callable[[], float],
    ) -> None:
        #: Those that have an entry.
        self.used = tuple(facts.known(digests))
        empty = facts.empty(self.used)
        self._empty = empty[np.argsort(empty[:, 1])]
        self._keys = keys
        self._timer = timer
        self._considered = self._ruled_out = self._contradicted = 0
        self._ms = 0.0

    def refine(self, kept: Sequence[SegmentSelection]) -> Sequence[SegmentSelection]:
        """Returns the kept blocks without those that readers found empty; the same object if all of them stay."""
        before = self._ruled_out
        left = [found for part in kept if len((found := self.refine_one(part)).rows)]
        return kept if self._ruled_out == before else left

    def refine_one(self, part: SegmentSelection) -> SegmentSelection:
        """Applies :meth:`refine` to one segment, which may have no blocks left."""
        started = self._timer()
        is_empty = self._is_empty(self._keys(part.segment)[part.rows])
        is_proven = part.codes == ALL
        keep = ~is_empty | is_proven
        self._considered += len(part.rows)
        self._contradicted += int((is_empty & is_proven).sum())
        self._ruled_out += int(len(keep) - keep.sum())
        left = part if keep.all() else part.where(keep)
        self._ms += (self._timer() - started) * 1e3
        return left

    def _is_empty(self, keys: BlockKeys) -> Mask:
        if not len(self._empty):
            return np.zeros(len(keys), dtype=bool)
        # Of two files with the same second half only the first is found, which keeps one block too many.
        places = np.minimum(np.searchsorted(self._empty[:, 1], keys[:, 1]), len(self._empty) - 1)
        found: Mask = (self._empty[places] == keys).all(axis=1)
        return found

    @property
    def use(self) -> FeedbackUse:
        """Returns the counters for the report."""
        return FeedbackUse(
            considered=self._considered,
            ruled_out=self._ruled_out,
            contradicted=self._contradicted,
            ms=self._ms,
        )


#: The table property that enables reader feedback.
ENABLED: Final = "lamella.feedback.enabled"
_PREFIX: Final = "lamella.feedback."


class FeedbackSource(Protocol):
    """The stored feedback of tables. Thread-safe."""

    def is_near(self, head: Snapshot) -> bool:
        """Returns whether :meth:`facts` answers without blocking."""
        ...

    def facts(self, head: Snapshot) -> Facts | None:
        """Returns the stored feedback for the table of a snapshot; None if it is disabled there."""
        ...

    def used(self, head: Snapshot, digests: Sequence[bytes]) -> None:
        """Mark facts under these digests as used."""
        ...


def feedback_filter_of(
    source: FeedbackSource | None,
    head: Snapshot,
    predicate: Predicate,
    request: PruneRequest | DiffRequest | AggregateRequest,
    keys: Callable[[int], BlockKeys],
    timer: Callable[[], float],
) -> FeedbackFilter | None:
    """Returns the reader feedback on a filter, ready to be applied to the blocks that a prune keeps; None if there is
    none."""
    if source is None or not is_enabled(head.properties):
        return None
    facts = source.facts(head)
    if facts is None or not len(facts):
        return None
    asked = questions(predicate, head.schema, time_zone=request.time_zone, case_sensitive=request.case_sensitive)
    told = FeedbackFilter(facts, asked, keys, timer)
    if not told.used:
        return None
    source.used(head, told.used)
    return told


def is_enabled(properties: Mapping[str, str]) -> bool:
    """Returns whether the table has enabled reader feedback."""
    return properties.get(ENABLED) == "true"


def check_feedback(properties: Mapping[str, str]) -> None:
    """Raise InvalidRequest for an unknown feedback property, or one that is neither true nor false."""
    for name, value in properties.items():
        if name.startswith(_PREFIX) and (name != ENABLED or value not in ("true", "false")):
            raise InvalidRequest(f"{name}={value!r}: the property must be {ENABLED}, true or false", property=name)
