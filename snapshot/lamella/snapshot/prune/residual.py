"""Residual filters: what is still to be asked of a block's rows, and where readers may skip inside blocks.

A residual is true for exactly those rows of the block for which the whole filter is true. Only truth counts at the top
of a filter: false and null both drop a row. Below a NOT only falsehood counts (``NOT p`` is true exactly where ``p`` is
false), and below another NOT, or an IS TRUE, truth again. So each part stands in one of two contexts, and a part whose
result is decided for every row of the block, as far as its context can tell, is replaced by a constant.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Final

import msgspec
import numpy as np
import numpy.typing as npt
from msgspec.structs import replace

from lamella.snapshot.columnar import Sidecar, Zones
from lamella.snapshot.columnar.zones import HIGH_KNOWN, LOW_KNOWN, MAY_NAN, MAY_NUMBER, NULLS_KNOWN
from lamella.snapshot.concurrency import check_deadline
from lamella.snapshot.expression import bind
from lamella.snapshot.expression.bound import BoundPredicate
from lamella.snapshot.expression.coerce import Unusable, coerce, literal_of
from lamella.snapshot.expression.nodes import (
    And,
    Branch,
    Call,
    Case,
    Cast,
    Compare,
    Constant,
    In,
    IsNan,
    IsNull,
    IsTrue,
    IsUnknown,
    Like,
    Literal,
    Not,
    NullSafeEqual,
    Or,
    Predicate,
    Ref,
    StartsWith,
    Term,
    Truth,
)
from lamella.snapshot.expression.text import sql_of, tree_of
from lamella.snapshot.manifest import Snapshot
from lamella.snapshot.prune.evaluate import evaluate
from lamella.snapshot.prune.outcome import ALL, Outcome
from lamella.snapshot.prune.result import PruneResult, SegmentSelection
from lamella.snapshot.schema import Leaf, Schema
from lamella.snapshot.wire import PruneRequest, Residual

#: Results that the rows of a block may have, as bits.
TRUE: Final = 1
FALSE: Final = 2
NULL: Final = 4

#: Distinct residuals in one answer; rarer ones are answered as the whole filter, which is always right.
MAX_RESIDUALS: Final = 100


class Atom(msgspec.Struct, frozen=True):
    """A predicate of the filter, by its number. (A bare number would equal a constant: 1 == True.)"""

    number: int


#: A filter without its predicates: a constant, an atom, or a connective over parts.
Shape = bool | None | Atom | tuple[str, tuple["Shape", ...]]
States = npt.NDArray[np.uint8]
Indexes = npt.NDArray[np.int64]


class Residuals:
    """The residuals of one filter over the blocks of one answer.

    ``bind`` gives the bound form of one predicate of the filter. :meth:`add` takes the kept blocks part by part;
    afterwards :meth:`table` has the distinct residuals and :meth:`indexes` one position in it for each block.
    """

    def __init__(
        self, predicate: Predicate, bind: Callable[[Predicate], BoundPredicate], *, max_count: int = MAX_RESIDUALS
    ) -> None:
        self._predicate = predicate
        self._max_count = max_count
        atoms: dict[Predicate, int] = {}
        self._shape = _shape(predicate, atoms)
        self._atoms = tuple(atoms)
        self._bound = [(bind(atom),) for atom in self._atoms]
        self._numbers: dict[Shape, int] = {}
        self._blocks: list[Indexes] = []

    def add(self, sidecar: Sidecar, rows: Indexes, codes: npt.NDArray[np.uint8]) -> None:
        """Take blocks: rows of a sidecar, and their verdicts (an ALL block has nothing left)."""
        numbers = np.zeros(len(rows), dtype=np.int64)
        open_rows = np.flatnonzero(codes != ALL)
        numbers[codes == ALL] = self._number(True) if len(open_rows) < len(rows) else 0
        if len(open_rows):
            states = states_of(self._bound, sidecar)[rows[open_rows]]
            vectors, inverse = np.unique(states, axis=0, return_inverse=True)
            found: list[int] = []
            for vector in vectors:
                check_deadline()
                found.append(self._number(simplified(self._shape, vector.tolist())))
            numbers[open_rows] = np.array(found, dtype=np.int64)[inverse.reshape(-1)]
        self._blocks.append(numbers)

    def table(self) -> tuple[tuple[Predicate, int], ...]:
        """The distinct residuals, each with how many blocks it has; the whole filter stands for the rarest."""
        return tuple((self._built(shape), count) for shape, count in self._chosen())

    def indexes(self) -> Indexes:
        """A position in :meth:`table` for each block, in the order of :meth:`add`."""
        everything = np.concatenate(self._blocks) if self._blocks else np.zeros(0, dtype=np.int64)
        chosen = {shape: position for position, (shape, _) in enumerate(self._chosen())}
        whole = chosen.get(self._shape, 0)
        positions = np.array([chosen.get(shape, whole) for shape in self._numbers], dtype=np.int64)
        return positions[everything] if len(everything) else everything

    def _chosen(self) -> list[tuple[Shape, int]]:
        counts = np.zeros(len(self._numbers), dtype=np.int64)
        for part in self._blocks:
            counts += np.bincount(part, minlength=len(counts))
        found = [(shape, int(count)) for shape, count in zip(self._numbers, counts, strict=True)]
        if len(found) <= self._max_count:
            return found
        ranked = sorted(range(len(found)), key=lambda position: (-found[position][1], position))
        selected = [
            found[position] for position in sorted(ranked[: self._max_count - 1]) if found[position][0] != self._shape
        ]
        return [*selected, (self._shape, sum(count for _, count in found) - sum(count for _, count in selected))]

    def _number(self, shape: Shape) -> int:
        return self._numbers.setdefault(shape, len(self._numbers))

    def _built(self, shape: Shape) -> Predicate:
        if shape is None or isinstance(shape, bool):
            return Constant(shape)
        if isinstance(shape, Atom):
            return self._atoms[shape.number]
        kind, parts = shape
        children = tuple(self._built(part) for part in parts)
        if kind == "and":
            return And(children)
        if kind == "or":
            return Or(children)
        return Not(children[0]) if kind == "not" else IsTrue(children[0])


def with_residuals(result: PruneResult, predicate: Predicate, schema: Schema, request: PruneRequest) -> PruneResult:
    """A result with what is left of the filter in each block, when that was asked for (or an explanation)."""
    if result.selection is None or not (request.residuals or request.explain):
        return result
    found = Residuals(
        _by_schema(predicate, schema, request),
        lambda atom: bind(atom, schema, time_zone=request.time_zone, case_sensitive=request.case_sensitive),
    )
    for part in result.parts():
        found.add(part.sidecar, part.rows, part.codes)
    table = tuple(Residual(sql=sql_of(left), tree=tree_of(left), blocks=count) for left, count in found.table())
    answer = msgspec.structs.replace(result.answer, residuals=table)
    return msgspec.structs.replace(result, answer=answer, residual=found.indexes())


def _by_schema(node: Predicate, schema: Schema, request: PruneRequest) -> Predicate:
    """The same filter, to be asked of rows by Spark: columns as Spark names them, JSON texts as values of their type.

    ``'1.50'`` beside a decimal is that number in a JSON filter, while Spark would compare the two as doubles.
    """

    def term_of(term: Term) -> Term:
        match term:
            case Ref(path):
                leaf = schema.find(path, case_sensitive=request.case_sensitive)
                return term if leaf is None else Ref(leaf.reference)
            case Cast(inner, target):
                return Cast(term_of(inner), target)
            case Call(function, arguments):
                return Call(function, tuple(term_of(argument) for argument in arguments))
            case Case(branches, otherwise):
                parts = tuple(
                    Branch(_by_schema(each.condition, schema, request), term_of(each.value)) for each in branches
                )
                return Case(parts, term_of(otherwise))
            case _:
                return term

    def literal_beside(term: Term, literal: Literal) -> Literal:
        leaf = schema.find(term.path, case_sensitive=request.case_sensitive) if isinstance(term, Ref) else None
        if literal.kind != "text" or leaf is None or leaf.dtype.is_text:
            return literal
        point = coerce(literal, leaf, request.time_zone)
        if isinstance(point, Unusable) or isinstance(point.value, Fraction):
            return literal
        return literal_of(leaf.dtype, point.value) or literal

    def operand(term: Term, other: Term) -> Term:
        return literal_beside(other, term) if isinstance(term, Literal) else term_of(term)

    match node:
        case And(children) | Or(children):
            parts = tuple(_by_schema(child, schema, request) for child in children)
            return And(parts) if isinstance(node, And) else Or(parts)
        case Not(child):
            return Not(_by_schema(child, schema, request))
        case IsTrue(child):
            return IsTrue(_by_schema(child, schema, request))
        case IsUnknown(child):
            return IsUnknown(_by_schema(child, schema, request))
        case Compare(_, left, right) | NullSafeEqual(left, right):
            return replace(node, left=operand(left, right), right=operand(right, left))
        case In(term, literals):
            return replace(node, term=term_of(term), literals=tuple(literal_beside(term, each) for each in literals))
        case IsNull(term) | IsNan(term) | Like(term) | StartsWith(term) | Truth(term):
            return replace(node, term=term_of(term))
        case _:
            return node


def states_of(predicates: Sequence[Sequence[BoundPredicate]], sidecar: Sidecar) -> States:
    """The results that rows may have, a row for each entry of a sidecar and a column for each predicate.

    A predicate has one or more readings: whatever any of them may be.
    """
    count = len(sidecar)

    def lookup(leaf: Leaf) -> Zones:
        return sidecar.zones(leaf.id, leaf.dtype)

    states = np.zeros((count, len(predicates)), dtype=np.uint8)
    for column, readings in enumerate(predicates):
        check_deadline()
        for bound in readings:
            states[:, column] |= _bits(evaluate(bound, lookup, count))
    return states


def _bits(outcome: Outcome) -> States:
    true, false, null = (np.asarray(mask, dtype=np.uint8) for mask in (outcome.true, outcome.false, outcome.null))
    return np.asarray(true * np.uint8(TRUE) + false * np.uint8(FALSE) + null * np.uint8(NULL))


def _shape(node: Predicate, atoms: dict[Predicate, int]) -> Shape:
    match node:
        case Constant(value):
            return value
        case And(children):
            return "and", tuple(_shape(child, atoms) for child in children)
        case Or(children):
            return "or", tuple(_shape(child, atoms) for child in children)
        case Not(child):
            return "not", (_shape(child, atoms),)
        case IsTrue(child):
            return "is true", (_shape(child, atoms),)
        case _:
            return Atom(atoms.setdefault(node, len(atoms)))


def simplified(shape: Shape, states: Sequence[int], *, truth: bool = True) -> Shape:
    """``shape`` with what is decided replaced; ``states`` has the possible results of each atom.

    The result is true (``truth`` False: false) for the same rows as ``shape`` is, and may differ in the others.
    """
    if shape is None:
        return not truth
    if isinstance(shape, bool):
        return shape
    if isinstance(shape, Atom):
        return _decided(shape, states[shape.number], truth=truth)
    kind, parts = shape
    if kind in ("and", "or"):
        return _connected(kind, [simplified(part, states, truth=truth) for part in parts])
    if kind == "not":
        return _negated(simplified(parts[0], states, truth=not truth))
    inner = simplified(parts[0], states, truth=True)
    return inner if truth or isinstance(inner, bool) else (kind, (inner,))


def _decided(atom: Atom, state: int, *, truth: bool) -> Shape:
    wanted, other = (TRUE, FALSE) if truth else (FALSE, TRUE)
    if not state & wanted:  # never the result that counts
        return not truth
    if not state & (other | NULL):  # always
        return truth
    return atom


def _connected(kind: str, parts: list[Shape]) -> Shape:
    stops = kind == "or"  # the constant that decides
    if any(part is stops for part in parts):
        return stops
    left = tuple(part for part in parts if not isinstance(part, bool))
    if not left:
        return not stops
    return left[0] if len(left) == 1 else (kind, left)


def _negated(inner: Shape) -> Shape:
    if isinstance(inner, bool):
        return not inner
    if isinstance(inner, tuple) and inner[0] == "not":
        return inner[1][0]
    return "not", (inner,)


# Whether a reader may skip inside blocks by what their Parquet footers say of a column.
#
# Readers believe footers more than they should. Spark 4.3, for one, takes bounds without a column order, inverted
# bounds and null counts of writers that count wrongly, and orders NaN above bounds that leave it out. What Lamella
# itself believed when it took a block in (``snapshot.parquet.statistics_rules``) is what a reader may believe, too.

_ALL_KNOWN = LOW_KNOWN | HIGH_KNOWN | NULLS_KNOWN


def with_reader_columns(result: PruneResult, head: Snapshot, request: PruneRequest, own_blocks: str) -> PruneResult:
    """A result with its ``reader_columns``, when they were asked for; ``own_blocks``: the folder of Lamella's blocks.

    Raises:
        UnknownColumn: the request names a column that the table does not have.
    """
    if not request.reader_columns or result.selection is None:
        return result
    believed = []
    parts = tuple(result.parts())
    for name in request.reader_columns:
        leaf = head.schema.leaf(name, case_sensitive=request.case_sensitive)
        if all(_believed(part, leaf, head.schema.schema_id, own_blocks) for part in parts):
            believed.append(name)
    answer = msgspec.structs.replace(result.answer, reader_columns=tuple(believed))
    return msgspec.structs.replace(result, answer=answer)


def _believed(part: SegmentSelection, leaf: Leaf, schema_id: int, own_blocks: str) -> bool:
    if leaf.repeated or any(each is not None for each in part.sidecar.older_schema_ids(part.rows, schema_id)):
        return False  # the name may stand for another column in the file, or for none
    flags = part.sidecar.zones(leaf.id, leaf.dtype).flags[part.rows]
    bounded = ((flags & _ALL_KNOWN) == _ALL_KNOWN) & ((flags & MAY_NAN) == 0)
    all_null = ((flags & NULLS_KNOWN) != 0) & ((flags & (MAY_NUMBER | MAY_NAN)) == 0)
    return bool((bounded | all_null).all()) and not _foreign_scan(part.sidecar, leaf, part.rows, own_blocks)


def _foreign_scan(sidecar: Sidecar, leaf: Leaf, rows: npt.NDArray[np.int64], own_blocks: str) -> bool:
    """True when a block of another writer has statistics that its footer does not have."""
    elsewhere = rows[sidecar.from_elsewhere(leaf.id)[rows]]
    return any(not location.startswith(own_blocks) for location in sidecar.texts("location", elsewhere))
