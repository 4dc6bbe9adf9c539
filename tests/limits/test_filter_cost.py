"""No filter costs more than in proportion to its length, whoever sends it: counted in calls, never in time."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final

import msgspec
import pytest

from fuzz.guard import survive
from lamella.snapshot.columnar import Sidecar, build_blocks
from lamella.snapshot.concurrency import wait_until
from lamella.snapshot.errors import InvalidFilter, LamellaError, LimitExceeded, Unavailable
from lamella.snapshot.expression import bind, read_filter, read_sql, sql_of, text_of, tree_of
from lamella.snapshot.expression import nodes as n
from lamella.snapshot.expression.bind import narrowed
from lamella.snapshot.expression.bound import BoundNot, Comparison, Membership
from lamella.snapshot.expression.nodes import (
    MAX_IN_LITERALS,
    MAX_NODES,
    MAX_REQUEST_SQL_TOKENS,
    MAX_SQL_CHARACTERS,
    MAX_SQL_TOKENS,
)
from lamella.snapshot.expression.sql import read_fully
from lamella.snapshot.iceberg.filter import read_iceberg_filter
from lamella.snapshot.index.definition import term_of
from lamella.snapshot.manifest import Block
from lamella.snapshot.prune import NONE, evaluate, verdicts
from lamella.snapshot.prune.options import single_requests
from lamella.snapshot.prune.residual import Residuals
from lamella.snapshot.schema import Column, Schema
from lamella.snapshot.schema.evolution import AddColumn, SchemaChange, SetDoc, evolve
from lamella.snapshot.sharing.hints import read_json_hint, read_sql_hint
from lamella.snapshot.stats import ColumnStats, to_bound
from lamella.snapshot.storage.location import Glob
from lamella.snapshot.wire import BatchRequest
from support.operations import counted
from support.worst_filters import DEEP, TREES, WIDE, iceberg_chain

SCHEMA: Final = Schema.assign(
    [
        *(Column(name=name, type="int64") for name in ("id", "other")),
        Column(name="a", type="string"),
        Column(name="d", type="date"),
        Column(name="f", type="float64"),
        Column(name="flag", type="boolean"),
        Column(name="bin", type="binary"),
        Column(name="s", type="struct", fields=(Column(name="x", type="int64"),)),
    ]
)
#: Twice the input makes at most so many times the calls.
MAX_RATIO: Final = 2.5
TIMES: Final = 60


def calls(work: Callable[[], object], *, warm: Callable[[], object] | None = None) -> int:
    """The calls that it takes; an error of ours is an answer, too. ``warm`` is done before, by default the same."""

    def guarded(work: Callable[[], object]) -> None:
        with suppress(LamellaError):
            work()

    guarded(warm or work)  # what is made once is made
    done = counted(lambda: guarded(work))
    return done.python_calls + done.c_calls


def once_and_twice(work: Callable[[int], object], size: int) -> tuple[int, int]:
    """The calls for a size and for twice that."""
    once, twice = (
        calls(lambda size=size: work(size), warm=lambda: work(2))  # type: ignore[misc]  # a default
        for size in (size, 2 * size)
    )
    return once, twice


def answered(given: Any) -> None:
    """All that a prune does with a filter: read, bind, spell out, evaluate, write what is left of it."""
    predicate = read_filter(given)
    bound = bind(predicate, SCHEMA)
    for spelled in (text_of, sql_of, tree_of):
        spelled(predicate)
    sidecar = _sidecar()
    outcome = evaluate(bound, lambda leaf: sidecar.zones(leaf.id, leaf.dtype), len(sidecar))
    residuals = Residuals(predicate, lambda atom: bind(atom, SCHEMA))
    codes = verdicts(outcome, sidecar.numbers("row_count"))
    rows = (codes != NONE).nonzero()[0]
    residuals.add(sidecar, rows, codes[rows])
    for left, _ in residuals.table():
        sql_of(left)


def _sidecar() -> Sidecar:
    values: dict[str, tuple[int | bytes, int | bytes]] = {"id": (0, 40), "other": (0, 9), "a": (b"a", b"a" * 60)}
    stats = {
        leaf.id: ColumnStats(
            min=to_bound(leaf.dtype, values[leaf.name][0]), max=to_bound(leaf.dtype, values[leaf.name][1]), null_count=0
        )
        for leaf in SCHEMA.leaves()
        if leaf.name in values
    }
    blocks = [
        Block(location=f"s3://bucket/{number}.parquet", row_count=1_000, file_size=10_000, col_stats=stats)
        for number in range(4)
    ]
    return Sidecar(build_blocks(SCHEMA, blocks))


@pytest.mark.parametrize("name", WIDE)
def test_twice_the_text_takes_a_bounded_multiple_of_the_calls(name: str) -> None:
    """Whatever a filter in SQL has many of."""
    shape = WIDE[name]
    once, twice = once_and_twice(lambda times: answered(shape(times)), TIMES)
    assert twice <= MAX_RATIO * once


@pytest.mark.parametrize("name", DEEP)
def test_twice_the_depth_takes_a_bounded_multiple_of_the_calls(name: str) -> None:
    """The parser tries nothing twice at each level: ``date(date(...))`` of 20 levels took it minutes."""
    shape = DEEP[name]
    once, twice = once_and_twice(lambda depth: answered(shape(depth)), 8)
    assert twice <= MAX_RATIO * once


@pytest.mark.slow
@pytest.mark.parametrize("name", TREES)
def test_twice_the_tree_takes_a_bounded_multiple_of_the_calls(name: str) -> None:
    """Whatever a filter in JSON has many of."""
    shape = TREES[name]
    once, twice = once_and_twice(lambda times: answered(shape(times)), 200)
    assert twice <= MAX_RATIO * once


ELSEWHERE: Final[dict[str, Callable[[int], object]]] = {
    "plan requests of Iceberg": lambda times: read_iceberg_filter(iceberg_chain(times), SCHEMA),
    "lists of Iceberg": lambda times: read_iceberg_filter(
        {"type": "in", "term": "id", "values": list(range(times))}, SCHEMA
    ),
    "predicateHints": lambda times: read_sql_hint(" and ".join(["id = 1", "year(d) = 1"] * times), SCHEMA),
    "jsonPredicateHints": lambda times: read_json_hint(_json_hint(times), SCHEMA),
    "an index's expression": lambda times: term_of("coalesce(a" + ",a" * times + ")", SCHEMA),
    "a nested index's expression": lambda times: term_of("lower(" * (times // 8) + "a" + ")" * (times // 8), SCHEMA),
    "a batch": lambda times: list(
        single_requests(BatchRequest(filters=tuple(f"year(d) = {number}" for number in range(times))))
    ),
}


def _json_hint(times: int) -> str:
    one = {
        "op": "equal",
        "children": [
            {"op": "column", "name": "id", "valueType": "long"},
            {"op": "literal", "value": "5", "valueType": "long"},
        ],
    }
    return json.dumps({"op": "and", "children": [one] * times})


@pytest.mark.parametrize("name", ELSEWHERE)
def test_other_ways_to_send_a_filter_are_in_proportion_too(name: str) -> None:
    """Iceberg's plans, hints of recipients, expressions of indexes, many filters at once."""
    work = ELSEWHERE[name]
    once, twice = once_and_twice(work, TIMES)
    assert twice <= MAX_RATIO * once


@pytest.mark.parametrize(
    "text",
    [
        "concat(a" + ",a" * 120_000 + ") = 'x'",
        " and ".join(["a between f(1) and 2"] * 9_000),
        "coalesce(a" + ",a" * 100_000 + ") = 'x'",
        "a" + "||a" * 80_000 + " = 'x'",
        "id" + ".a" * 100_000 + " = 1",
        "(" * 200_000,
        "(select /*+ x(a" + ",a" * 100_000 + ") */ 1) = 1",
        "cast(a as `int" + " x" * 100_000 + "`) = 1",
    ],
    ids=lambda text: text[:12],
)
def test_too_many_tokens_are_refused_with_their_position(text: str) -> None:
    """Before the parser begins: the refusal costs a few calls."""
    assert len(text) <= MAX_SQL_CHARACTERS
    with pytest.raises(LimitExceeded) as refused:
        read_sql(text)
    assert refused.value.details["limit"] == "sql_tokens"
    assert refused.value.details["maximum"] == MAX_SQL_TOKENS
    assert 0 < refused.value.details["position"] < len(text)
    assert calls(lambda: read_sql(text)) < 200


@pytest.mark.parametrize(
    ("text", "position"),
    [
        ("(" * 101 + "a" + ")" * 101, 100),
        ("cast(a as " + "array<" * 9 + "int" + ">" * 9 + ") is null", 10 + 6 * 9 - 1),
        ("struct(" * 9 + "1" + ")" * 9 + " = 1", 7 * 9 - 1),
    ],
)
def test_too_much_nesting_is_refused_with_its_position(text: str, position: int) -> None:
    """Brackets and types are counted before they are parsed."""
    with pytest.raises(LimitExceeded) as refused:
        read_sql(text)
    assert refused.value.details["limit"] == "filter_depth"
    assert refused.value.details["position"] == position


def test_columns_named_as_types_are_no_nesting() -> None:
    """A comparison of a column ``map`` opens no type."""
    assert isinstance(read_sql(" and ".join(["`map` < 1 and lower(a) = 'x'"] * 30)), n.And)


@pytest.mark.parametrize(
    "text",
    [
        "a = '" + "\\'" * 120_000,
        'a = "' + '\\"' * 120_000,
        "date(" * 40 + "a" + ")" * 40 + " = 1",
        "cast(a as " + "decimal(" * 40 + "1" + ")" * 40 + ") = 1",
        "int[" * 40 + "1" + "]" * 40 + " = 1",
    ],
    ids=lambda text: text[:14],
)
def test_no_text_is_tried_again_and_again(text: str) -> None:
    """They took minutes, a pattern of ours among them, in which no other thread ran."""
    survive(lambda: read_sql(text), text)


@pytest.mark.parametrize("text", ["{0} = 1e{1}BD", "{0} > 1e-{1}BD", "abs({0}) < -1e{1}BD", "{0} in (1e{1}BD, 2)"])
@pytest.mark.parametrize("column", ["id", "f"])
def test_no_number_is_written_out_for_its_exponent(text: str, column: str) -> None:
    """A number of 13 characters with a million digits took 0.15 s, and there may be ten thousand in a filter."""
    filter = " or ".join(text.format(column, 999_999 - number) for number in range(250))
    survive(lambda: bind(read_sql(filter), SCHEMA), text)
    assert isinstance(read_sql(text.format(column, 999)), n.Compare | n.In)


def test_what_the_parser_has_no_error_for_is_ours() -> None:
    """A text that it stumbles over is an invalid filter, and a type of a thousand digits is none."""
    with pytest.raises(InvalidFilter):
        read_sql("VAR_MAP(VAR_MAP()) = 1")
    assert isinstance(read_sql("cast(a as decimal(" + "9" * 5_000 + ")) = 1"), n.Unknown)
    tree = {"type": "eq", "term": {"type": "cast", "term": "a", "to": f"decimal({'9' * 5_000})"}, "value": 1}
    with pytest.raises(InvalidFilter):
        bind(read_filter(tree), SCHEMA)


def test_long_lists_are_read_beside_what_needs_the_parser() -> None:
    """Joins send them: they are constants behind IN, and no tokens."""
    values = ",".join(map(str, range(10_000_000, 10_000_000 + 25_000)))
    read = read_sql(f"year(d) = 2020 AND id IN ({values}) AND lower(a) NOT IN ('x', 'y')")
    assert isinstance(read, n.And)
    listed = read.children[1]
    assert isinstance(listed, n.In)
    assert [literal.value for literal in listed.literals] == list(range(10_000_000, 10_025_000))
    names = ", ".join(f"'n{number}'" for number in range(20_000))
    found = read_sql(f"NOT (lower(a) IN ({names})) OR year(d) = 1")
    assert isinstance(found, n.Or)
    assert isinstance(found.children[0], n.Not)


@pytest.mark.parametrize(
    "text",
    [
        "year(d) = 1 and id in ({0})",
        "year(d) = 1 or a not in ({0}) or lower(a) = 'x'",
        "case when id in ({0}) then flag else a in ('x') end",
        "f(id in ({0})) = 'in ({0})'",
        "position(id in ({0})) = 1",
        "(select 1 from t where id in ({0})) = 1 and a = 'in (1)'",
        "abs(id in ({0})) = 1 or\n id in ({0}) and year(d) = 2",
        "year(d) = 1 and id in ({0}) is true",
        "year(d) = 1 and id in ({0}) in (true)",
    ],
)
@pytest.mark.parametrize("item", ["7", "'in (1, 2)'", "date '2020-01-01'", "-1.5"])
def test_a_filter_with_long_lists_is_what_the_parser_makes_of_it(text: str, item: str) -> None:
    """Read apart or not, a list is the same; an unknown part has the whole of it in its text."""
    filled = text.format(", ".join([item] * 40)) if "'in" not in text or "'" not in item else "year(d) = 1"
    read, expected = read_sql(filled), read_fully(filled, "UTC")
    assert _without_texts(read) == _without_texts(expected)
    for one, other in zip(_unknown_texts(read), _unknown_texts(expected), strict=True):
        assert _without_texts(read_sql(one)) == _without_texts(read_sql(other))
        assert "\ue000" not in one


def test_an_error_behind_a_long_list_has_its_own_position() -> None:
    """What was read apart still counts for lines and offsets."""
    text = "year(d) = 1 and id in (" + ",\n ".join(["12345"] * 100) + ") and )"
    with pytest.raises(InvalidFilter) as refused:
        read_sql(text)
    assert refused.value.details["position"] == text.rindex(")")


def test_plain_chains_are_as_long_as_a_filter_may_be() -> None:
    """Comparisons of columns with constants need no parser, up to the number of predicates."""
    read = read_sql(" or ".join(f"id = {number}" for number in range(MAX_NODES - 1)))
    assert isinstance(read, n.Or)
    assert len(read.children) == MAX_NODES - 1


def test_filters_of_one_request_are_bounded_together() -> None:
    """Many filters that each need the parser are refused by name; plain ones are as long as they like."""
    long = "concat(a" + ",a" * 4_000 + ") = 'x'"
    with pytest.raises(LimitExceeded) as refused:
        list(single_requests(BatchRequest(filters=(long,) * 10)))
    assert refused.value.details == {"limit": "sql_tokens", "maximum": MAX_REQUEST_SQL_TOKENS}
    plain = "id in (" + ",".join(map(str, range(20_000))) + ")"
    assert len(list(single_requests(BatchRequest(filters=(plain,) * 10)))) == 10


class _CountedName(str):
    """A name that counts how often it is compared."""

    compared = 0
    __hash__ = str.__hash__

    def __eq__(self, other: object) -> bool:
        type(self).compared += 1
        return str.__eq__(self, other) is True

    def __lt__(self, other: str) -> bool:
        type(self).compared += 1
        return str.__lt__(self, other)


@pytest.mark.parametrize("name", ["c{}", "a.c{}"])
def test_columns_are_named_in_proportion_to_their_number(name: str) -> None:
    """Each of 20,000 names was compared with every leaf, which took a minute and ignored the deadline."""

    def compared(count: int) -> int:
        names = [name.format(number) for number in range(count)]
        schema = Schema.assign([Column(name=_CountedName(each), type="int64") for each in names])
        schema.leaves()
        _CountedName.compared = 0
        assert len(schema.select(names, case_sensitive=True)) == count
        return _CountedName.compared

    assert compared(800) <= MAX_RATIO * max(compared(400), 1_000)
    wait_until(0.0)
    try:
        with pytest.raises(Unavailable):
            SCHEMA.select(["id"])
    finally:
        wait_until(None)


def test_a_name_inside_a_map_is_found_without_a_look_at_all_columns() -> None:
    """A filter may have ten thousand of them, over a table of 20,000 columns."""

    def looked(count: int) -> int:
        fields = (Column(name="key", type="string"), Column(name="value", type="int64"))
        columns = [*(Column(name=f"c{number}", type="int64") for number in range(count))]
        schema = Schema.assign([*columns, Column(name="m", type="map", fields=fields)])
        assert schema.find("m.entry") is None
        return calls(lambda: schema.find("m.entry"))

    assert looked(400) == looked(50)


def test_a_schema_is_checked_once_for_all_of_its_changes() -> None:
    """A thousand changes of a table of 10,000 columns took half a minute."""
    schema = Schema.assign([Column(name=f"c{number}", type="int64") for number in range(300)])

    def made(count: int) -> int:
        added = (AddColumn(name=f"n{number}", type="int64") for number in range(count // 2))
        said = (SetDoc(column=f"c{number}", doc="x") for number in range(count // 2))
        changes: list[SchemaChange] = [*added, *said]
        return calls(lambda: evolve(schema, changes))

    assert made(40) <= 5 * made(2)


@pytest.mark.parametrize("pattern", ["*a" * 5 + "b", "*a?" * 5 + "b", "*[a]" * 5 + "b"])
def test_a_glob_is_not_tried_again_and_again(pattern: str) -> None:
    """Five stars and a file's name of 255 characters took minutes."""
    assert survive(lambda: Glob(pattern).selects("a" * 255), pattern) is False


class _Counted(int):
    """A number that counts how often it is compared."""

    compared = 0

    def __lt__(self, other: int) -> bool:
        type(self).compared += 1
        return int(self) < int(other)

    def __gt__(self, other: int) -> bool:
        type(self).compared += 1
        return int(self) > int(other)

    def __eq__(self, other: object) -> bool:
        type(self).compared += 1
        return isinstance(other, int) and int(self) == int(other)

    __hash__ = int.__hash__


@pytest.mark.parametrize("kind", ["ranges", "excluded ends", "a list"])
def test_conjuncts_are_compared_in_proportion_to_their_number(kind: str) -> None:
    """A list of a million values beside thousands of ranges took hours, and five thousand ranges seconds."""
    term = SCHEMA.leaf("id")

    def compared(count: int) -> int:
        numbers = [_Counted(number) for number in range(count)]
        parts: list[Any] = [Comparison(term, "ge", _Counted(-number), "x") for number in range(count)]
        if kind == "ranges":
            parts += [Comparison(term, "lt", _Counted(number + 5), "x") for number in range(count)]
        elif kind == "a list":
            parts.append(Membership(term, tuple(numbers), False, False, "x"))
        else:
            parts += [BoundNot(Comparison(term, "eq", number, "x")) for number in numbers]
        _Counted.compared = 0
        narrowed(parts)
        return _Counted.compared

    assert compared(400) <= MAX_RATIO * max(compared(200), 1)


def test_work_that_nobody_waits_for_ends_while_a_filter_is_read() -> None:
    """The deadline is looked at before, in and behind the parser, in trees, and in binding."""
    tree = {"type": "and", "children": [{"type": "is-null", "term": "id"}] * 10}
    read = read_filter(tree)
    works: list[Callable[[], object]] = [
        lambda: read_sql("year(d) = 1"),
        lambda: read_filter(tree),
        lambda: bind(read, SCHEMA),
        lambda: read_iceberg_filter(tree["children"][0], SCHEMA),
    ]
    wait_until(0.0)
    try:
        for work in works:
            with pytest.raises(Unavailable):
                work()
    finally:
        wait_until(None)


def test_limits_allow_what_people_send() -> None:
    """A thousand predicates over functions, and lists of a hundred thousand values in JSON, are no attack."""
    read_sql(" or ".join(f"year(d) = {number}" for number in range(1_000)))
    tree = {"type": "in", "term": "id", "values": list(range(100_000))}
    assert isinstance(bind(read_filter(tree), SCHEMA), Membership)
    assert MAX_IN_LITERALS >= 1_000_000


def _without_texts(node: Any) -> Any:
    """A predicate with nothing but marks for its unknown parts."""
    made = msgspec.to_builtins(node)

    def cleared(each: Any) -> Any:
        if isinstance(each, dict):
            return "?" if {"text", "reason"} <= each.keys() else {name: cleared(value) for name, value in each.items()}
        return [cleared(one) for one in each] if isinstance(each, list | tuple) else each

    return cleared(made)


def _unknown_texts(node: Any) -> list[str]:
    match node:
        case n.Unknown(text, _, _):
            return [text]
        case n.And(children) | n.Or(children):
            return [text for child in children for text in _unknown_texts(child)]
        case n.Not(child) | n.IsTrue(child):
            return _unknown_texts(child)
        case _:
            return []
