"""Catalyst expressions that were read in one call of the JVM, with the methods that their translation uses.

An expression of the JVM takes a call for each method of each of its parts. These have the classes, types, children,
names and constants of all parts from one text; anything else is asked of the expression in the JVM. A constant that has
no exact text (floats, binary, intervals, structs) is too.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import msgspec

from lamella.client.spark.catalyst import KIND
from lamella.client.spark.gateway import Gateway

#: A node of the text: class, type, form, children, name or value (see ``Expressions.java``).
_Node = list[Any]
_UNARY: Final = "u"
_BINARY: Final = "b"


def read_expressions(gateway: Gateway, expressions: Any) -> tuple[list[Any], str]:
    """Return the elements of a Scala ``Seq`` of expressions, those of the JVM if they cannot be read as text, and the
    session's time zone."""
    is_missing = "expressions as text" in gateway.missing_hooks
    text = None if is_missing else gateway.classes.expressions.text(expressions, gateway.conf)
    if text is None:
        return [expressions.apply(at) for at in range(expressions.size())], gateway.time_zone()
    time_zone, *nodes = msgspec.json.decode(text)
    return [ReadExpression(node, _element(expressions, at)) for at, node in enumerate(nodes)], time_zone


def live(expression: Any) -> Any:
    """Return the expression of the JVM."""
    return expression._live() if isinstance(expression, ReadExpression) else expression


def referred_names(expression: Any) -> set[str]:
    """Return the names of the columns that an expression refers to."""
    if isinstance(expression, ReadExpression):
        return expression._names()
    return {text.rpartition("#")[0] for text in str(expression.references().mkString(";")).split(";")}


def _element(seq: Any, at: int) -> Callable[[], Any]:
    return lambda: seq.apply(at)


class ReadExpression:
    """An expression; ``find`` returns that of the JVM."""

    def __init__(self, node: _Node, find: Callable[[], Any]) -> None:
        kind, self._type, self._form, self._nodes, self._texts = node
        self.__dict__[KIND] = kind
        self._find = find
        self._found: Any = None
        self._made: list[ReadExpression] | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._live(), name)

    def _live(self) -> Any:
        if self._found is None:
            self._found = self._find()
        return self._found

    def _children(self) -> list[ReadExpression]:
        if self._made is None:
            self._made = [ReadExpression(node, self._child_finder(at)) for at, node in enumerate(self._nodes)]
        return self._made

    def _child_finder(self, at: int) -> Callable[[], Any]:
        return lambda: self._live().children().apply(at)

    def _names(self) -> set[str]:
        if vars(self)[KIND] == "AttributeReference":
            return {self._texts[0]}
        return set().union(*(child._names() for child in self._children()))

    def children(self) -> _Listed:
        return _Listed(self._children())

    def child(self) -> Any:
        return self._children()[0] if self._form == _UNARY else self._live().child()

    def left(self) -> Any:
        return self._children()[0] if self._form == _BINARY else self._live().left()

    def right(self) -> Any:
        return self._children()[1] if self._form == _BINARY else self._live().right()

    def name(self) -> Any:
        return self._texts[0] if self._texts and vars(self)[KIND] == "AttributeReference" else self._live().name()

    def value(self) -> Any:
        kind = vars(self)[KIND]
        if kind == "In":
            return self._children()[0]
        return self._texts[0] if self._texts and kind == "Literal" else self._live().value()

    def list(self) -> Any:
        return _Listed(self._children()[1:]) if vars(self)[KIND] == "In" else self._live().list()

    def dataType(self) -> Any:
        return _Type(self._type, self._live) if self._type else self._live().dataType()


class _Listed:
    """A Scala ``Seq``."""

    def __init__(self, elements: Sequence[ReadExpression]) -> None:
        self._elements = elements

    def size(self) -> int:
        return len(self._elements)

    def apply(self, at: int) -> ReadExpression:
        return self._elements[at]


class _Type:
    """The type of an expression."""

    def __init__(self, name: str, live: Callable[[], Any]) -> None:
        self._name = name
        self._live = live

    def typeName(self) -> str:
        return self._name

    def __getattr__(self, name: str) -> Any:
        return getattr(self._live().dataType(), name)
