"""Recorded filters: with or without their literals, which are sampled again when filters are replayed."""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Callable, Mapping
from random import Random
from typing import Final, Literal, assert_never, cast, get_args

import msgspec
import numpy as np

from lamella.snapshot.errors import InvalidRequest, UnknownColumn
from lamella.snapshot.expression.coerce import literal_of
from lamella.snapshot.expression.nodes import (
    ONE,
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
    Not,
    NullSafeEqual,
    Or,
    Predicate,
    Ref,
    StartsWith,
    Term,
    Truth,
    Unknown,
    like_parts,
)
from lamella.snapshot.expression.nodes import (
    Literal as FilterLiteral,
)
from lamella.snapshot.schema import Leaf
from lamella.snapshot.workload.distribution import ValueDistribution, at

Mode = Literal["off", "shape", "hashed", "full"]

#: The table property that controls what is recorded of its filters, if the service records any.
PROPERTY: Final = "lamella.record_prunes"


def check_recording(properties: Mapping[str, str]) -> None:
    """Raise InvalidRequest for an invalid value of the property."""
    value = properties.get(PROPERTY)
    if value is not None and value not in get_args(Mode):
        raise InvalidRequest(f"{PROPERTY} must be one of {', '.join(get_args(Mode))}, not {value!r}", property=PROPERTY)


def mode_of(properties: Mapping[str, str], default: Mode) -> Mode:
    """Returns what is recorded for a table; nothing if the service records nothing."""
    value = properties.get(PROPERTY)
    return cast("Mode", value) if default != "off" and value in get_args(Mode) else default


class Recorded(msgspec.Struct, frozen=True, kw_only=True):
    """A recorded filter: ``tree`` in JSON, without constants unless ``is_full``; used ``times`` times.

    ``considered`` and ``selected``: total blocks of all uses.
    """

    tree: str
    text: str
    is_full: bool
    times: int
    considered: int
    selected: int
    time_zone: str = "UTC"


# Filters without their literals, for recording, and literals sampled for them from manifests.
#
# A *masked* filter has ``MARK`` in the place of each constant, or with ``secret`` a keyed hash of it, so that only
# equality of constants is visible. Of patterns the wildcards remain, and the length of the text between them. Small
# whole numbers and units inside of functions remain, since they are part of the question.

#: Replaces a constant.
MARK: Final = "?"
#: Maximum number of marks for a list.
MAX_LISTED: Final = 100
_SMALL: Final = 1_000
_UNITS: Final = frozenset(
    (
        "year",
        "quarter",
        "month",
        "mon",
        "mm",
        "yyyy",
        "yy",
        "week",
        "day",
        "dd",
        "hour",
        "minute",
        "second",
        "microsecond",
    )
)
_HASH_CHARS: Final = 16
_LEFT_OUT: Final = "its constants are not recorded"


def masked(predicate: Predicate, secret: bytes | None = None) -> Predicate:
    """Returns the filter without its literals; with hashes in their place if there is a ``secret``."""
    return _Masking(secret).predicate(predicate)


class _Masking:
    def __init__(self, secret: bytes | None) -> None:
        self._secret = secret

    def predicate(self, node: Predicate) -> Predicate:
        match node:
            case And(children):
                return And(tuple(map(self.predicate, children)))
            case Or(children):
                return Or(tuple(map(self.predicate, children)))
            case Not(child):
                return Not(self.predicate(child))
            case IsTrue(child):
                return IsTrue(self.predicate(child))
            case IsUnknown(child):
                return IsUnknown(self.predicate(child))
            case Constant():
                return node
            case Unknown():
                return Unknown(MARK, _LEFT_OUT)
            case Compare(op, left, right):
                return Compare(op, self._operand(left), self._operand(right))
            case NullSafeEqual(left, right):
                return NullSafeEqual(self._operand(left), self._operand(right))
            case In(term, literals):
                return In(self._term(term), tuple(self._literal(each) for each in literals[:MAX_LISTED]))
            case Like(term, pattern, escape):
                return Like(self._term(term), self._pattern(pattern, escape))
            case StartsWith(term, prefix):
                return StartsWith(self._term(term), FilterLiteral("string", MARK * len(str(prefix.value))))
            case IsNull(term) | IsNan(term) | Truth(term):
                return msgspec.structs.replace(node, term=self._term(term))
            case _:
                assert_never(node)

    def _operand(self, term: Term) -> Term:
        if isinstance(term, Cast) and isinstance(term.term, FilterLiteral):  # a constant as well
            term = term.term
        return self._literal(term) if isinstance(term, FilterLiteral) else self._term(term)

    def _term(self, term: Term) -> Term:
        match term:
            case Ref():
                return term
            case Cast(inner, target):
                return Cast(self._term(inner), target)
            case Call(function, arguments):
                return Call(function, tuple(map(self._term, arguments)))
            case Case(branches, otherwise):
                parts = tuple(Branch(self.predicate(each.condition), self._operand(each.value)) for each in branches)
                return Case(parts, self._operand(otherwise))
            case FilterLiteral(kind, value):
                small = kind == "integer" and isinstance(value, int) and abs(value) <= _SMALL
                is_unit = isinstance(value, str) and value.lower() in _UNITS
                return term if small or is_unit else self._literal(term)
            case _:
                assert_never(term)

    def _literal(self, literal: FilterLiteral) -> FilterLiteral:
        if literal.kind == "null":
            return literal
        if self._secret is None:
            return FilterLiteral("string", MARK)
        digest = hmac.new(self._secret, repr((literal.kind, literal.value)).encode(), hashlib.sha256).hexdigest()
        return FilterLiteral("string", f"{MARK}{digest[:_HASH_CHARS]}")

    def _pattern(self, pattern: str, escape: str) -> str:
        parts = like_parts(pattern, escape)
        if parts is None:
            return MARK
        return "".join(MARK * len(part) if isinstance(part, str) else "_" if part == ONE else "%" for part in parts)


def is_mark(literal: FilterLiteral) -> bool:
    """Returns whether a constant of a masked filter is to be sampled."""
    return literal.kind == "string" and isinstance(literal.value, str) and literal.value.startswith(MARK)


#: Minimum fraction of a column that contains the constants of one filter.
_MIN_WIDTH: Final = 1e-4
_RUN: Final = re.compile(re.escape(MARK) + "+")
_NOT_SAMPLED: Final = "constants for it are not drawn"


class LiteralSampler:
    """Samples literals for the columns of one table; ``column`` finds one by its path, ``value_distribution`` gives its
    distribution."""

    def __init__(
        self, column: Callable[[str], Leaf], value_distribution: Callable[[Leaf], ValueDistribution], rng: Random
    ) -> None:
        self._column = column
        self._value_distribution = value_distribution
        self._rng = rng
        self._sums: dict[Leaf, np.ndarray[tuple[int], np.dtype[np.float64]]] = {}

    def filled(self, node: Predicate, part: float) -> Predicate:
        """Returns a masked filter with constants; a part without possible constants becomes unknown and rules out
        nothing.

        All constants for a column are in one range of it, with lower limits at its beginning: about as wide as the
        fraction ``part`` of all blocks that the filter kept, or of random width.
        """
        width = _MIN_WIDTH ** self._rng.random()
        if self._rng.random() < 0.5:
            width = min(1.0, part * self._rng.uniform(0.5, 1.2))
        return self._filled(node, self._rng.random() * (1 - width), width)

    def _filled(self, node: Predicate, start: float, width: float) -> Predicate:
        match node:
            case And(children) | Or(children):
                return type(node)(tuple(self._filled(child, start, width) for child in children))
            case Not(child) | IsTrue(child) | IsUnknown(child):
                return type(node)(self._filled(child, start, width))
            case Compare(op, left, right):
                position = {"gt": 0.0, "ge": 0.0, "lt": 1.0, "le": 1.0}.get(op, self._rng.random())
                if isinstance(left, FilterLiteral) and is_mark(left):
                    literal = self._literal(right, start + (1 - position) * width)
                    return Unknown(MARK, _NOT_SAMPLED) if literal is None else Compare(op, literal, right)
                if isinstance(right, FilterLiteral) and is_mark(right):
                    literal = self._literal(left, start + position * width)
                    return Unknown(MARK, _NOT_SAMPLED) if literal is None else Compare(op, left, literal)
                return node
            case NullSafeEqual(left, FilterLiteral() as right) if is_mark(right):
                literal = self._literal(left, start + self._rng.random() * width)
                return Unknown(MARK, _NOT_SAMPLED) if literal is None else NullSafeEqual(left, literal)
            case In(term, literals):
                sampled = [
                    self._literal(term, start + self._rng.random() * width) if is_mark(each) else each
                    for each in literals
                ]
                found = [each for each in sampled if each is not None]
                return In(term, tuple(found)) if len(found) == len(sampled) else Unknown(MARK, _NOT_SAMPLED)
            case StartsWith(term, prefix):
                text = self._text(term, start, len(str(prefix.value)))
                return Unknown(MARK, _NOT_SAMPLED) if text is None else StartsWith(term, FilterLiteral("string", text))
            case Like(term, pattern, _):
                return self._like(term, pattern, start)
            case _:
                return node

    def _like(self, term: Term, pattern: str, start: float) -> Predicate:
        text = self._text(term, start, 1 << 20)
        if text is None:
            return Unknown(MARK, _NOT_SAMPLED)
        used = 0 if pattern.startswith(MARK) else self._rng.randrange(max(len(text), 1))

        def piece(match: re.Match[str]) -> str:
            nonlocal used
            found = text[used : used + len(match[0])].ljust(len(match[0]), "x")
            used += len(match[0])
            return "".join("\\" + char if char in "%_\\" else char for char in found)

        return Like(term, _RUN.sub(piece, pattern))

    def _text(self, term: Term, position: float, max_length: int) -> str | None:
        literal = self._literal(term, position)
        if literal is None or literal.kind != "string":
            return None
        return str(literal.value)[:max_length]

    def _literal(self, term: Term, position: float) -> FilterLiteral | None:
        """Returns the value at a position between 0 and 1 of all values of a column."""
        if not isinstance(term, Ref):
            return None
        try:
            leaf = self._column(term.path)
        except UnknownColumn:  # dropped since the filter was recorded
            return None
        if leaf.dtype.order is None or leaf.repeated:
            return None
        value_distribution = self._value_distribution(leaf)
        line, sums = value_distribution.line, self._sums.get(leaf)
        if sums is None:
            sums = self._sums[leaf] = np.concatenate([[0.0], np.cumsum(value_distribution.cover.mass)])
        if (
            not len(line.entry)
            or sums[-1] <= 0
            or not (value_distribution.profile.is_bounded & (value_distribution.profile.distinct > 0)).any()
        ):
            return None  # the distribution of values is unknown
        wanted = min(max(position, 0.0), 1.0) * sums[-1]
        element = int(np.clip(np.searchsorted(sums, wanted, side="right") - 1, 0, len(line.measure) - 1))
        mass = float(value_distribution.cover.mass[element])
        within = 0.0 if mass <= 0 else (wanted - float(sums[element])) / mass
        # Texts between two known ones are meaningless to users: the one before them is used.
        within = 0.0 if line.points.dtype == object else within
        value = at(line.points, np.array([element]), np.array([within]), is_whole=line.is_whole)[0]
        return literal_of(leaf.dtype, value.item() if isinstance(value, np.generic) else value)


def is_sampled(node: Predicate) -> bool:
    """Returns whether every part of a filter has constants again."""
    match node:
        case And(children) | Or(children):
            return all(map(is_sampled, children))
        case Not(child) | IsTrue(child) | IsUnknown(child):
            return is_sampled(child)
        case Unknown(_, reason, _):
            return reason != _NOT_SAMPLED
        case _:
            return True
