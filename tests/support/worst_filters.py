"""Filters that cost the most for their length, of every kind: each a function of how often its part is repeated."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

Repeated = Callable[[int], str]
RepeatedTree = Callable[[int], dict[str, Any]]


def _text(head: str, part: str, tail: str) -> Repeated:
    return lambda times: head + part * times + tail


def _joined(part: str, by: str) -> Repeated:
    return lambda times: by.join(part.format(number) for number in range(times))


#: SQL by what it repeats. Each is read, or refused by name, in linear time.
WIDE: Final[dict[str, Repeated]] = {
    "arguments of concat": _text("concat(a", ",a", ") = 'x'"),
    "arguments of coalesce": _text("coalesce(a", ",a", ") = 'x'"),
    "arguments of an unknown function": _text("foo(a", ",a", ") = 'x'"),
    "arguments by name": _text("foo(x => 1", ", x => 1", ") = 1"),
    "fields of a struct": _text("struct(1", ",1", ") = 1"),
    "lambda": _text("filter(a, x -> x", "+x", ")"),
    "concatenations": _text("a", "||a", " = 'x'"),
    "sums": _text("id", "+1", " = 1"),
    "bits": _text("id", "&1", " = 1"),
    "parts of a path": _text("id", ".part", " = 1"),
    "parts of no path": _text("f(id)", ".a", " = 1"),
    "parts of an array": _text("id", "[1]", " = 1"),
    "casts": _text("id", "::int", " = 1"),
    "comparisons in a row": _text("id", " = id", ""),
    "null-safe comparisons in a row": _text("id", " <=> id", ""),
    "BETWEEN": _joined("id between {0} and 2", " and "),
    "BETWEEN of functions": _joined("year(d) between {0} and 2", " and "),
    "alternatives": _joined("id = {0}", " or "),
    "functions": _joined("f(id) = {0}", " and "),
    "nothing but NOT": _text("", "not ", "flag"),
    "nothing but minus": _text("id = ", "- ", "1"),
    "IS TRUE": _text("flag", " is true", ""),
    "IS NULL": _text("flag", " is null", ""),
    "IN behind IN": _text("id", " in (1)", ""),
    "branches of CASE": _text("case", " when id = 1 then 2", " end = 1"),
    "numbers in a list": _text("id in (1", ",1", ")"),
    "numbers in a list beside a function": _text("year(d) = 1 and id in (1", ",1", ")"),
    "functions in a list": _text("id in (1", ",f(1)", ")"),
    "bytes in a list": _text("bin in (x'00'", ",x'ab'", ")"),
    "lists": _joined("id in ({0}, 2, 3) and id >= -{0}", " and "),
    "ends that are excluded": _joined("id <> {0} and id >= {0}", " and "),
    "windows": _text("sum(a) over (partition by a", ",a", ") = 1"),
    "a sub-query": _text("(select a", ", a", " from t) = 1"),
    "hints": _text("(select /*+ x(a", ",a", ") */ 1) = 1"),
    "statements": _text("id = 1", "; id = 1", ""),
    "texts in a row": _text("a = 'x'", " 'x'", ""),
    "escapes": _text("a = '", "\\n", "'"),
    "comments": _text("id ", "/*x*/ ", "= 1"),
    "wildcards": _text("a like '", "%a", "'"),
    "digits": _text("id = ", "9", ""),
    "digits of an exponent": _text("f = 1e", "9", ""),
    "digits of a year": _text("d = date '", "9", "-01-01'"),
    "digits of a type": _text("cast(a as decimal(", "9", ")) = 1"),
    "digits of an interval": _text("d + interval ", "9", " day = d"),
    "numbers of a type": _text("cast(a as decimal(1", ",1", ")) = 1"),
    "fields of a type": _text("cast(a as struct<a:int", ",a:int", ">) is null"),
    "steps of a path": _text("get_json_object(a, '$", ".a", "') = 'x'"),
    "open parentheses": _text("", "(", ""),
    "open functions": _text("", "f(", ""),
    "open brackets": _text("", "[", ""),
    "a quoted type": _text("cast(a as `int", " x", "`) = 1"),
}
#: SQL by what is nested in itself. The parser tries some of them in two ways at each level.
DEEP: Final[dict[str, Repeated]] = {
    **{
        name: (lambda times, name=name: f"{name}(" * times + "a" + ")" * times + " = 1")  # type: ignore[misc]  # a default
        for name in ("f", "concat", "date", "timestamp", "int", "decimal", "varchar", "year", "if", "interval")
    },
    **{
        f"{name}[": (lambda times, name=name: f"{name}[" * times + "1" + "]" * times + " = 1")  # type: ignore[misc]  # a default
        for name in ("a", "date", "int", "string", "null")
    },
    "parentheses": lambda times: "(" * times + "flag" + ")" * times,
    "decimal in a cast": lambda times: "cast(a as " + "decimal(" * times + "1" + ")" * times + ") = 1",
    "decimals of one and more": lambda times: "decimal(1, " * times + "1" + ")" * times + " = 1",
    "lambdas": lambda times: "f(x -> " * times + "x" + ")" * times,
    "casts": lambda times: "cast(" * times + "id" + " as int)" * times + " = 1",
    "CASE": lambda times: "case when " * times + "flag" + " then 1 end" * times + " = 1",
    "sub-queries": lambda times: "(select " * times + "1" + ")" * times + " = 1",
    "connectives": lambda times: "(a = 'x' or (flag and " * (times // 2) + "flag" + "))" * (times // 2),
    "date and int": lambda times: "date(int(" * (times // 2) + "a" + "))" * (times // 2) + " = 1",
    "date and f": lambda times: "date[f(" * (times // 2) + "a" + ")]" * (times // 2) + " = 1",
}


def _comparison(op: str, value: Any, term: Any = "id") -> dict[str, Any]:
    return {"type": op, "term": term, "value": value}


def _nested(depth: int, inner: Any, wrap: Callable[[Any], Any]) -> Any:
    for _ in range(depth):
        inner = wrap(inner)
    return inner


def _all_of(*parts: dict[str, Any]) -> dict[str, Any]:
    return {"type": "and", "children": list(parts)}


def _sum(term: Any) -> dict[str, Any]:
    one = {"type": "literal", "data-type": "long", "value": 1}
    return {"type": "apply", "function": "add", "arguments": [term, one]}


#: JSON trees by what they repeat.
TREES: Final[dict[str, RepeatedTree]] = {
    "alternatives": lambda times: {"type": "or", "children": [_comparison("eq", n) for n in range(times)]},
    "ranges": lambda times: _all_of(*(_comparison("gt", -n) for n in range(times)), _comparison("lt", 5)),
    "ends that are excluded": lambda times: _all_of(
        *(_comparison("gt-eq", n) for n in range(times)), *(_comparison("not-eq", n) for n in range(times))
    ),
    "ranges and a list": lambda times: _all_of(
        *(_comparison("gt-eq", -n) for n in range(times)),
        {"type": "in", "term": "id", "values": list(range(times))},
    ),
    "conjunctions in each other": lambda times: _nested(
        90,
        _all_of(*(_comparison("gt-eq", -n) for n in range(times))),
        lambda inner: {"type": "and", "left": inner, "right": _comparison("lt", 9)},
    ),
    "a list": lambda times: {"type": "in", "term": "id", "values": list(range(times))},
    "no list": lambda times: {"type": "not-in", "term": "a", "values": [f"v{n}" for n in range(times)]},
    "patterns": lambda times: {"type": "or", "children": [_comparison("like", f"%a{n}%", "a") for n in range(times)]},
    "wildcards": lambda times: _comparison("like", "%a" * times, "a"),
    "sums": lambda times: {
        "type": "or",
        "children": [_comparison("lt", 30 + n % 7, _nested(20, "id", _sum)) for n in range(times // 10)],
    },
    "negations": lambda times: _all_of(
        *(_nested(20, _comparison("eq", n), lambda inner: {"type": "not", "child": inner}) for n in range(times // 10))
    ),
    "digits": lambda times: _comparison("eq", "9" * times),
    "a long name": lambda times: _comparison("eq", 1, "a" + ".a" * times),
    "structs": lambda times: {"type": "or", "children": [{"type": "is-null", "term": "s"} for _ in range(times)]},
}


def iceberg_chain(times: int) -> dict[str, Any]:
    """A chain of alternatives as Iceberg's clients write them, each on the left of the next."""
    made: dict[str, Any] = _nested(
        times, _comparison("eq", 1), lambda inner: {"type": "or", "left": inner, "right": _comparison("not-eq", 2)}
    )
    return made
