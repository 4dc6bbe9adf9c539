"""Constants for filters that were kept without theirs: drawn from the columns' own distribution."""

from __future__ import annotations

import re
from collections.abc import Callable
from random import Random
from typing import Final

import numpy as np

from lamella.snapshot.advice.outlook import Outlook
from lamella.snapshot.advice.rows import at
from lamella.snapshot.advice.shapes import MARK, is_mark
from lamella.snapshot.errors import UnknownColumn
from lamella.snapshot.expression.coerce import literal_of
from lamella.snapshot.expression.nodes import (
    And,
    Compare,
    In,
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
    Unknown,
)
from lamella.snapshot.schema import Leaf

#: The least part of a column that the constants of one filter lie in.
_LEAST_WIDTH: Final = 1e-4
_RUN: Final = re.compile(re.escape(MARK) + "+")
_NOT_DRAWN: Final = "constants for it are not drawn"


class Draws:
    """Draws for the columns of one table; ``column`` finds one by its path, ``outlook`` says where its values lie."""

    def __init__(self, column: Callable[[str], Leaf], outlook: Callable[[Leaf], Outlook], rng: Random) -> None:
        self._column = column
        self._outlook = outlook
        self._rng = rng
        self._sums: dict[Leaf, np.ndarray[tuple[int], np.dtype[np.float64]]] = {}

    def filled(self, node: Predicate, part: float) -> Predicate:
        """A masked filter with constants again; what none can be drawn for becomes unknown and rules out nothing.

        All constants for a column lie in one stretch of it, with lower limits at its beginning: about as wide as the
        ``part`` of all blocks that the filter kept, or wide or narrow by chance.
        """
        width = _LEAST_WIDTH ** self._rng.random()
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
                place = {"gt": 0.0, "ge": 0.0, "lt": 1.0, "le": 1.0}.get(op, self._rng.random())
                if isinstance(left, Literal) and is_mark(left):
                    literal = self._literal(right, start + (1 - place) * width)
                    return Unknown(MARK, _NOT_DRAWN) if literal is None else Compare(op, literal, right)
                if isinstance(right, Literal) and is_mark(right):
                    literal = self._literal(left, start + place * width)
                    return Unknown(MARK, _NOT_DRAWN) if literal is None else Compare(op, left, literal)
                return node
            case NullSafeEqual(left, Literal() as right) if is_mark(right):
                literal = self._literal(left, start + self._rng.random() * width)
                return Unknown(MARK, _NOT_DRAWN) if literal is None else NullSafeEqual(left, literal)
            case In(term, literals):
                drawn = [
                    self._literal(term, start + self._rng.random() * width) if is_mark(each) else each
                    for each in literals
                ]
                found = [each for each in drawn if each is not None]
                return In(term, tuple(found)) if len(found) == len(drawn) else Unknown(MARK, _NOT_DRAWN)
            case StartsWith(term, prefix):
                text = self._text(term, start, len(str(prefix.value)))
                return Unknown(MARK, _NOT_DRAWN) if text is None else StartsWith(term, Literal("string", text))
            case Like(term, pattern, _):
                return self._like(term, pattern, start)
            case _:
                return node

    def _like(self, term: Term, pattern: str, start: float) -> Predicate:
        text = self._text(term, start, 1 << 20)
        if text is None:
            return Unknown(MARK, _NOT_DRAWN)
        used = 0 if pattern.startswith(MARK) else self._rng.randrange(max(len(text), 1))

        def piece(match: re.Match[str]) -> str:
            nonlocal used
            found = text[used : used + len(match[0])].ljust(len(match[0]), "x")
            used += len(match[0])
            return "".join("\\" + char if char in "%_\\" else char for char in found)

        return Like(term, _RUN.sub(piece, pattern))

    def _text(self, term: Term, place: float, most: int) -> str | None:
        literal = self._literal(term, place)
        if literal is None or literal.kind != "string":
            return None
        return str(literal.value)[:most]

    def _literal(self, term: Term, place: float) -> Literal | None:
        """The value at a place between 0 and 1 of all values of a column."""
        if not isinstance(term, Ref):
            return None
        try:
            leaf = self._column(term.path)
        except UnknownColumn:  # it is gone since the filter was kept
            return None
        if leaf.dtype.order is None or leaf.repeated:
            return None
        outlook = self._outlook(leaf)
        line, sums = outlook.line, self._sums.get(leaf)
        if sums is None:
            sums = self._sums[leaf] = np.concatenate([[0.0], np.cumsum(outlook.cover.mass)])
        if (
            not len(line.entry)
            or sums[-1] <= 0
            or not (outlook.profile.is_bounded & (outlook.profile.distinct > 0)).any()
        ):
            return None  # nobody knows where values lie
        wanted = min(max(place, 0.0), 1.0) * sums[-1]
        element = int(np.clip(np.searchsorted(sums, wanted, side="right") - 1, 0, len(line.measure) - 1))
        mass = float(outlook.cover.mass[element])
        within = 0.0 if mass <= 0 else (wanted - float(sums[element])) / mass
        # Texts between two that are known mean nothing to anybody: the one before them will do.
        within = 0.0 if line.points.dtype == object else within
        value = at(line.points, np.array([element]), np.array([within]), is_whole=line.is_whole)[0]
        return literal_of(leaf.dtype, value.item() if isinstance(value, np.generic) else value)


def is_drawn(node: Predicate) -> bool:
    """Whether every part of a filter that was filled has its constants again."""
    match node:
        case And(children) | Or(children):
            return all(map(is_drawn, children))
        case Not(child) | IsTrue(child) | IsUnknown(child):
            return is_drawn(child)
        case Unknown(_, reason, _):
            return reason != _NOT_DRAWN
        case _:
            return True
