"""Filters written in Python: ``(col("price") > 4) & col("country").is_in(["DE", "FR"])``.

Each expression is a JSON filter, with the rules of ``docs/filters.md``: those of Spark SQL.
"""

from __future__ import annotations

import datetime as dt
import uuid
from collections.abc import Iterable
from decimal import Decimal
from typing import Any, Final, NoReturn

from lamella.client.filters import trees
from lamella.client.filters.trees import Tree
from lamella.snapshot.errors import InvalidFilter
from lamella.snapshot.expression.nodes import FUNCTIONS
from lamella.snapshot.schema.column import quoted_path

#: A constant in an expression.
Value = bool | int | float | str | bytes | Decimal | dt.date | dt.time | uuid.UUID

_DAY: Final = dt.timedelta(days=1)
_MICROSECOND: Final = dt.timedelta(microseconds=1)


class Condition:
    """A condition on rows: true, false or null for each. Combine conditions with ``&``, ``|`` and ``~``.

    A filter of all methods that take one. ``tree``: the JSON filter.
    """

    def __init__(self, tree: Tree) -> None:
        self.tree = tree

    def __and__(self, other: Condition | Term | bool) -> Condition:
        return Condition(trees.joined("and", [self.tree, condition(other)]))

    def __rand__(self, other: bool) -> Condition:
        return Condition(trees.joined("and", [condition(other), self.tree]))

    def __or__(self, other: Condition | Term | bool) -> Condition:
        return Condition(trees.joined("or", [self.tree, condition(other)]))

    def __ror__(self, other: bool) -> Condition:
        return Condition(trees.joined("or", [condition(other), self.tree]))

    def __invert__(self) -> Condition:
        """``NOT``: null stays null."""
        return Condition(trees.negated(self.tree))

    def is_true(self) -> Condition:
        """True where the condition is true, false where it is false or null.

        Example:
            >>> (col("price") > 4).is_true()
            Condition((price > 4) IS TRUE)
        """
        return Condition(trees.never_null(self.tree))

    def is_unknown(self) -> Condition:
        """True where the condition is null, otherwise false.

        Example:
            >>> (col("price") > 4).is_unknown()
            Condition((price > 4) IS NULL)
        """
        return Condition({"type": "is-unknown", "child": self.tree})

    def __bool__(self) -> NoReturn:
        raise _no_truth()

    def __repr__(self) -> str:
        return f"Condition({text_of_tree(self.tree)})"


class Term:
    """A value of each row: a column, or a function of columns. Made by :func:`col` and :func:`call`.

    Comparisons (``<``, ``<=``, ``==``, ...) with constants or other terms are conditions; ``+ - * / %`` are Spark's
    (``%`` has the sign of the dividend). A column of booleans is a condition itself.
    """

    def __init__(self, tree: Tree) -> None:
        self.tree = tree

    def __getitem__(self, name: str) -> Term:
        """A field of a struct: ``col("buyer")["country"]``. Only of columns."""
        if self.tree["type"] != "reference":
            raise InvalidFilter(f"only columns have fields, not {text_of_tree(self.tree)}")
        return Term({"type": "reference", "name": f"{self.tree['name']}.{quoted_path([name])}"})

    __iter__ = None  # an index is a field's name

    def __lt__(self, other: Term | Value) -> Condition:
        return self._compare("lt", other)

    def __le__(self, other: Term | Value) -> Condition:
        return self._compare("lt-eq", other)

    def __gt__(self, other: Term | Value) -> Condition:
        return self._compare("gt", other)

    def __ge__(self, other: Term | Value) -> Condition:
        return self._compare("gt-eq", other)

    def __eq__(self, other: Term | Value) -> Condition:  # type: ignore[override]  # a condition, as in other libraries
        return self._compare("eq", other)

    def __ne__(self, other: Term | Value) -> Condition:  # type: ignore[override]  # a condition, as in other libraries
        return self._compare("not-eq", other)

    __hash__ = None  # type: ignore[assignment]  # terms are not compared with each other

    def eq_null_safe(self, other: Term | Value | None) -> Condition:
        """Equal, or both null (``<=>``); never null.

        Example:
            >>> col("note").eq_null_safe("gift")
            Condition(note <=> 'gift')
        """
        return self.is_null() if other is None else self._compare("eq-null-safe", other)

    def is_in(self, values: Iterable[Value]) -> Condition:
        """Whether the value is one of a list of constants; raises InvalidFilter for a null or a text.

        Example:
            >>> col("country").is_in(["DE", "FR"])
            Condition(country IN ('DE', 'FR'))
        """
        if isinstance(values, str | bytes):
            raise InvalidFilter("is_in takes a list of values, not one text")
        return Condition({"type": "in", "term": self.tree, "values": [trees.constant(value) for value in values]})

    def between(self, low: Term | Value, high: Term | Value) -> Condition:
        """``low <= value <= high``.

        Example:
            >>> col("price").between(10, 20)
            Condition(price >= 10 AND price <= 20)
        """
        return (self >= low) & (self <= high)

    def is_null(self) -> Condition:
        """Whether the value is null.

        Example:
            >>> col("note").is_null()
            Condition(note IS NULL)
        """
        return Condition(trees.unary("is-null", self.tree))

    def is_not_null(self) -> Condition:
        """Whether the value is not null.

        Example:
            >>> col("note").is_not_null()
            Condition(note IS NOT NULL)
        """
        return Condition(trees.unary("not-null", self.tree))

    def is_nan(self) -> Condition:
        """Whether a number is NaN; false for null.

        Example:
            >>> col("price").is_nan()
            Condition(isnan(price))
        """
        return Condition(trees.unary("is-nan", self.tree))

    def startswith(self, text: str) -> Condition:
        """Whether a text begins with another.

        Example:
            >>> col("file").startswith("log")
            Condition(startswith(file, 'log'))
        """
        return Condition(trees.text_test(self.tree, text, "start"))

    def endswith(self, text: str) -> Condition:
        """Whether a text ends with another.

        Example:
            >>> col("file").endswith(".csv")
            Condition(file LIKE '%.csv')
        """
        return Condition(trees.text_test(self.tree, text, "end"))

    def contains(self, text: str) -> Condition:
        """Whether a text contains another.

        Example:
            >>> col("note").contains("gift")
            Condition(note LIKE '%gift%')
        """
        return Condition(trees.text_test(self.tree, text, "inside"))

    def like(self, pattern: str) -> Condition:
        r"""``LIKE``: ``%`` stands for any characters, ``_`` for one, ``\`` takes the meaning of the next.

        Example:
            >>> col("file").like("log_%.csv")
            Condition(file LIKE 'log_%.csv')
        """
        return Condition(trees.like(self.tree, pattern))

    def rlike(self, pattern: str) -> Condition:
        """A regular expression is found in the text; which are used, ``docs/filters.md`` says.

        Example:
            >>> col("file").rlike("^log-[0-9]+")
            Condition(startswith(file, 'log-') AND file RLIKE '^log-[0-9]+')
        """
        return Condition({"type": "rlike", "term": self.tree, "value": trees.typed("string", pattern)})

    def cast(self, to: str) -> Term:
        """``CAST(value AS to)``, with a type of Spark's such as ``"bigint"``.

        Example:
            >>> col("customer").cast("bigint") > 7
            Condition(CAST(customer AS bigint) > 7)
        """
        return Term({"type": "cast", "term": self.tree, "to": to})

    def __add__(self, other: Term | Value | dt.timedelta) -> Term:
        if isinstance(other, dt.timedelta):
            return self._shifted(other)
        return Term(trees.apply("add", self.tree, _argument(other)))

    def __radd__(self, other: Value) -> Term:
        return Term(trees.apply("add", _argument(other), self.tree))

    def __sub__(self, other: Term | Value | dt.timedelta) -> Term:
        if isinstance(other, dt.timedelta):
            return self._shifted(-other)
        return Term(trees.apply("subtract", self.tree, _argument(other)))

    def __rsub__(self, other: Value) -> Term:
        return Term(trees.apply("subtract", _argument(other), self.tree))

    def __mul__(self, other: Term | Value) -> Term:
        return Term(trees.apply("multiply", self.tree, _argument(other)))

    def __rmul__(self, other: Value) -> Term:
        return Term(trees.apply("multiply", _argument(other), self.tree))

    def __truediv__(self, other: Term | Value) -> Term:
        return Term(trees.apply("divide", self.tree, _argument(other)))

    def __rtruediv__(self, other: Value) -> Term:
        return Term(trees.apply("divide", _argument(other), self.tree))

    def __mod__(self, other: Term | Value) -> Term:
        return Term(trees.apply("mod", self.tree, _argument(other)))

    def __neg__(self) -> Term:
        return Term(trees.apply("negative", self.tree))

    def __abs__(self) -> Term:
        return Term(trees.apply("abs", self.tree))

    def __and__(self, other: Condition | Term | bool) -> Condition:
        return Condition(condition(self)) & other

    def __rand__(self, other: bool) -> Condition:
        return other & Condition(condition(self))

    def __or__(self, other: Condition | Term | bool) -> Condition:
        return Condition(condition(self)) | other

    def __ror__(self, other: bool) -> Condition:
        return other | Condition(condition(self))

    def __invert__(self) -> Condition:
        return ~Condition(condition(self))

    def __bool__(self) -> NoReturn:
        raise _no_truth()

    def __repr__(self) -> str:
        return f"Term({text_of_tree(self.tree)})"

    def _compare(self, kind: str, other: object) -> Condition:
        if isinstance(other, Condition):
            raise InvalidFilter("a condition is not compared with a value: combine conditions with & and |")
        return Condition(
            trees.compare(kind, self.tree, other.tree if isinstance(other, Term) else trees.constant(other))
        )

    def _shifted(self, by: dt.timedelta) -> Term:
        """A date or time later by a duration: by calendar days if these are whole days."""
        whole = by % _DAY == dt.timedelta(0)
        count = by // _DAY if whole else by // _MICROSECOND
        unit = trees.typed("string", "DAY" if whole else "MICROSECOND")
        return Term(trees.apply("add_interval", self.tree, unit, trees.term_constant(count)))


def col(name: str) -> Term:
    """A column of the table, in filters: ``col("price") > 4``.

    ``name``: as in other filters: dots lead into structs, and backquotes enclose a name that has dots.

    Example:
        >>> col("price") > 4
        Condition(price > 4)
        >>> (col("buyer.country") == "DE") | col("`first.name`").is_null()
        Condition(buyer.country = 'DE' OR `first.name` IS NULL)
    """
    return Term({"type": "reference", "name": name})


def call(function: str, *arguments: Term | Value) -> Term:
    """A function of the filter language: ``call("year", col("day")) == 2024``. ``docs/filters.md`` lists them.

    Raises InvalidFilter for another function, or another number of arguments.

    Example:
        >>> call("year", col("day")) == 2024
        Condition(year(day) = 2024)
    """
    counts = FUNCTIONS.get(function)
    if counts is None:
        raise InvalidFilter(f"filters have no function {function!r}")
    if len(arguments) not in counts:
        raise InvalidFilter(f"{function} does not take {len(arguments)} arguments")
    return Term(trees.apply(function, *(_argument(argument) for argument in arguments)))


def condition(given: object) -> Tree:
    """Return the JSON filter of a condition, a column of booleans, or True or False; raises InvalidFilter."""
    if isinstance(given, bool):
        return trees.TRUE if given else trees.FALSE
    if isinstance(given, Condition):
        return given.tree
    if isinstance(given, Term):
        return trees.unary("truth", given.tree)
    raise InvalidFilter(
        f"{type(given).__name__} {trees.shown(given)} is not a condition: write col('a') > 4, and so on"
    )


def text_of_tree(tree: Tree) -> str:
    """Return the text of a condition or term in the style of SQL, for people."""
    from lamella.snapshot.expression import read_tree, text_of
    from lamella.snapshot.expression.text import term_text

    try:
        if tree["type"] in ("reference", "apply", "cast", "case"):
            read: Any = read_tree({"type": "is-null", "term": tree})
            return term_text(read.term)
        return text_of(read_tree(tree))
    except InvalidFilter:
        return trees.shown(tree)


def _argument(value: object) -> Tree:
    return value.tree if isinstance(value, Term) else trees.term_constant(value)


def _no_truth() -> TypeError:
    return TypeError("a condition has no truth value in Python: use & for and, | for or, ~ for not, and parentheses")
