"""SQL text: what it becomes, and where it is refused."""

from __future__ import annotations

import pytest

from lamella.snapshot.errors import FilterTypeMismatch, InvalidFilter, LimitExceeded
from lamella.snapshot.expression import Filters, read_sql, read_tree, sql_of, tree_of
from lamella.snapshot.expression import nodes as n
from lamella.snapshot.expression.nodes import MAX_SQL_CHARACTERS

A = n.Ref("a")


def integer(value: int) -> n.Literal:
    return n.Literal("integer", value)


def literal(value: str) -> n.Literal:
    return n.Literal("string", value)


def interval(unit: str, count: int) -> n.Call:
    return n.Call("add_interval", (A, literal(unit), integer(count)))


def at_path(path: str) -> n.Call:
    return n.Call("get_json_object", (A, literal(path)))


NULL = n.Literal("null")
IS_LARGE = n.Compare("gt", A, integer(1))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a > 4", n.Compare("gt", A, integer(4))),
        ("4 < a", n.Compare("gt", A, integer(4))),
        ("(((a)) <= ((4)))", n.Compare("le", A, integer(4))),
        ("a == 4", n.Compare("eq", A, integer(4))),
        ("a <> -4", n.Compare("ne", A, integer(-4))),
        ("a = 9223372036854775807", n.Compare("eq", A, integer(2**63 - 1))),
        ("a = 5L", n.Compare("eq", A, n.Literal("integer", 5, "int64"))),
        ("a = 1.50", n.Compare("eq", A, n.Literal("decimal", "1.50"))),
        ("a = 1e3", n.Compare("eq", A, n.Literal("double", 1000.0))),
        ("a = 1.5D", n.Compare("eq", A, n.Literal("double", 1.5))),
        ("a = 1.5BD", n.Compare("eq", A, n.Literal("decimal", "1.5"))),
        ("a = 'it\\'s'", n.Compare("eq", A, n.Literal("string", "it's"))),
        ('a = "text"', n.Compare("eq", A, n.Literal("string", "text"))),
        ("a = X'00ff'", n.Compare("eq", A, n.Literal("binary", b"\x00\xff"))),
        ("a >= DATE '1582-10-04'", n.Compare("ge", A, n.Literal("date", -141438))),
        ("a < TIMESTAMP '1970-01-01 00:00:01.5'", n.Compare("lt", A, n.Literal("timestamp", 1_500_000))),
        ("a < TIMESTAMP '1970-01-01 00:00:00+01:00'", n.Compare("lt", A, n.Literal("timestamp", -3_600_000_000))),
        ("a < TIMESTAMP_NTZ '1970-01-01'", n.Compare("lt", A, n.Literal("timestamp_ntz", 0))),
        ("a <=> NULL", n.NullSafeEqual(A, n.Literal("null"))),
        ("a = NULL", n.Compare("eq", A, n.Literal("null"))),
        ("a IN (1, NULL)", n.In(A, (integer(1), n.Literal("null")))),
        ("a NOT IN (1)", n.Not(n.In(A, (integer(1),)))),
        ("a BETWEEN 1 AND 2", n.And((n.Compare("ge", A, integer(1)), n.Compare("le", A, integer(2))))),
        ("a IS NOT NULL", n.Not(n.IsNull(A))),
        ("isnull(a)", n.IsNull(A)),
        ("isnan(a)", n.IsNan(A)),
        ("a IS TRUE", n.IsTrue(n.Truth(A))),
        ("a IS NOT TRUE", n.Not(n.IsTrue(n.Truth(A)))),
        ("NOT a", n.Not(n.Truth(A))),
        ("! a = 4", n.Not(n.Compare("eq", A, integer(4)))),
        ("a LIKE 'x\\_%'", n.Like(A, "x\\_%", "\\")),
        ("a LIKE 'x/_%' ESCAPE '/'", n.Like(A, "x/_%", "/")),
        ("startswith(a, 'x')", n.StartsWith(A, n.Literal("string", "x"))),
        ("s.b.c.d.e = 4", n.Compare("eq", n.Ref("s.b.c.d.e"), integer(4))),
        ("`we ird` = 4", n.Compare("eq", n.Ref("we ird"), integer(4))),
        ("get_json_object(a, '$.b[0]') = 'x'", n.Compare("eq", at_path("$.b[0]"), n.Literal("string", "x"))),
        ("GET_JSON_OBJECT(a, \"$['b c']\") IS NULL", n.IsNull(at_path("$['b c']"))),
        ("get_json_object(a, '$..b:c[1:2]') IS NULL", n.IsNull(at_path("$..b:c[1:2]"))),  # as it is spelled
        ("a % 2 = 1", n.Compare("eq", n.Call("mod", (A, integer(2))), integer(1))),
        ("a DIV 2 = 1", n.Compare("eq", n.Call("div", (A, integer(2))), integer(1))),
        ("a >> 2 = 1", n.Compare("eq", n.Call("shiftright", (A, integer(2))), integer(1))),
        ("a || 'x' || b IS NULL", n.IsNull(n.Call("concat", (A, literal("x"), n.Ref("b"))))),
        ("trim(TRAILING FROM a) = 'x'", n.Compare("eq", n.Call("rtrim", (A,)), literal("x"))),
        ("date_format(a, 'y') = 'x'", n.Compare("eq", n.Call("date_format", (A, literal("y"))), literal("x"))),
        ("a + INTERVAL 1 DAY > b", n.Compare("gt", interval("DAY", 1), n.Ref("b"))),
        ("a - INTERVAL '2' WEEKS > b", n.Compare("gt", interval("DAY", -14), n.Ref("b"))),
        ("INTERVAL 1 YEAR + a > b", n.Compare("gt", interval("MONTH", 12), n.Ref("b"))),
        ("a + INTERVAL '-1.5' SECOND > b", n.Compare("gt", interval("MICROSECOND", -1_500_000), n.Ref("b"))),
        ("a RLIKE 'x'", n.Like(A, "%x%")),
        ("a RLIKE '^x\\\\.y'", n.StartsWith(A, literal("x.y"))),
        ("regexp_like(a, '^xy.*')", n.StartsWith(A, literal("xy"))),
        ("a ILIKE 'X%'", n.Like(n.Call("lower", (A,)), "x%")),
        ("contains(a, '5%')", n.Like(A, "%5\\%%")),
        ("a LIKE ANY ('x', 'y')", n.Or((n.Like(A, "x"), n.Like(A, "y")))),
        ("a NOT LIKE ANY ('x', 'y')", n.Or((n.Not(n.Like(A, "x")), n.Not(n.Like(A, "y"))))),
        ("a NOT LIKE ALL ('x', 'y')", n.And((n.Not(n.Like(A, "x")), n.Not(n.Like(A, "y"))))),
        ("NOT (a LIKE ANY ('x', 'y'))", n.Not(n.Or((n.Like(A, "x"), n.Like(A, "y"))))),
        ("nullif(a, 1) = 2", n.Compare("eq", n.Case((n.Branch(n.Compare("eq", A, integer(1)), NULL),), A), integer(2))),
        ("if(a > 1, b, 2) = 2", n.Compare("eq", n.Case((n.Branch(IS_LARGE, n.Ref("b")),), integer(2)), integer(2))),
        ("CASE a WHEN 1 THEN b END IS NULL", n.IsNull(n.Case((n.Branch(n.Compare("eq", A, integer(1)), n.Ref("b")),)))),
        ("(a, b) = (1, 2)", n.And((n.NullSafeEqual(A, integer(1)), n.NullSafeEqual(n.Ref("b"), integer(2))))),
        ("(a > 1) IS NULL", n.IsUnknown(IS_LARGE)),
        ("true", n.Constant(True)),
        ("a > 4 -- a comment", n.Compare("gt", A, integer(4))),
    ],
)
def test_text_becomes_the_predicate_that_spark_would_read(text: str, expected: n.Predicate) -> None:
    """Each spelling is read as Spark's own dialect reads it."""
    assert read_sql(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        "a % 2 = (b > 1)",
        "reverse(a) = 'X'",
        "rand() > 0.5",
        "a + INTERVAL '1 2' DAY TO HOUR > b",
        "a + INTERVAL '1.5' DAY > b",
        "a > b * INTERVAL 1 DAY",
        "a IN (SELECT 1)",
        "a RLIKE '(?i)x'",
        "a RLIKE '^x|y'",
        "a LIKE ALL ('x', b)",
        "a ILIKE 'ü%'",
        "trim('x' FROM a) = 'y'",
        "a = 'it''s'",  # Spark's own settings decide what two adjoining texts mean
        "a = CAST('x' AS INT)",
        "a = TINYINT(5)",
        "a = CAST(1.25 AS DECIMAL(2, 1))",  # rounds
        "a = TIME '12:00:00'",
    ],
)
def test_what_is_not_used_is_unknown_with_a_reason(text: str) -> None:
    """Valid SQL outside the language keeps every block and says why."""
    read = read_sql(text)
    assert isinstance(read, n.Unknown)
    assert read.reason


def test_an_unknown_part_leaves_its_neighbours_in_use() -> None:
    """AND with an unknown branch still holds the other branch."""
    read = read_sql("reverse(b) = 'X' AND a > 4")
    assert isinstance(read, n.And)
    assert isinstance(read.children[0], n.Unknown)
    assert read.children[1] == n.Compare("gt", A, integer(4))


@pytest.mark.parametrize(
    ("text", "position"),
    [
        ("a >", 2),
        ("a > 5 b", 6),
        ("a > 1; drop table t", 5),
        ("a > 5 AND\n  b = = 4", 16),
        ("", 0),
        ("a = 'open", 9),
        ("a ! b", 2),
        ("select 1 from t", 0),
        ("a = ?", 0),
        ("b = '2026-13-45' AND a > DATE '2026-13-45'", 30),
        ("b = 1 OR (NOT a > CAST('2026-02-30 00:00:00' AS TIMESTAMP))", 23),
        ("a + 300Y > 1", 4),
        ("a > -40000s", 5),
    ],
)
def test_text_that_cannot_be_read_says_where(text: str, position: int) -> None:
    """A syntax error carries the 0-based offset of the place."""
    with pytest.raises(InvalidFilter) as caught:
        read_sql(text)
    assert caught.value.details["position"] == position


@pytest.mark.parametrize("text", ["5", "'x'"])
def test_a_lone_constant_is_no_condition(text: str) -> None:
    """A filter that is a number or a text is a type error."""
    with pytest.raises(FilterTypeMismatch):
        read_sql(text)


@pytest.mark.parametrize(
    "text",
    [
        "(" * 5_000 + "a" + ")" * 5_000,
        "NOT " * 3_000 + "a",
        "a = 'x" + "x" * MAX_SQL_CHARACTERS + "'",
        "a = -" + "-" * 9000,
    ],
)
def test_hostile_text_ends_in_a_typed_error(text: str) -> None:
    """Depth and length are bounded; nothing overflows the stack."""
    with pytest.raises((LimitExceeded, InvalidFilter)):
        read_sql(text)


def test_a_long_chain_of_ors_is_one_level() -> None:
    """A thousand ORs are no deep tree."""
    read = read_sql(" OR ".join(f"a = {i}" for i in range(1000)))
    assert isinstance(read, n.Or)
    assert len(read.children) == 1000
    assert read.children[7] == n.Compare("eq", A, integer(7))


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("TIME '12:00:00' < t", ["TIME '12:00:00' < t"]),
        ("a = 1 AND f(1L, 2S) /* of b */ > 3BD", [None, "f(1L, 2S) /* of b */ > 3BD"]),
        (
            "(x  ->  1) OR not g( a,b ) and CASE WHEN a AND g(1L) THEN c END",
            ["x  ->  1", "g( a,b )", "CASE WHEN a AND g(1L) THEN c END"],
        ),
        (
            "a NOT IN (f(1L)) OR a BETWEEN f(1) AND 2L AND g(b) IS NOT TRUE",
            ["a NOT IN (f(1L))", "a BETWEEN f(1) AND 2L", "g(b)"],
        ),
        ("f(1e3D) ;", ["f(1e3D)"]),
    ],
)
def test_what_is_not_used_stays_as_it_was_written(text: str, parts: list[str | None]) -> None:
    """A part that is not understood is repeated word by word, so that it means to Spark what it meant before."""
    assert [part.text if isinstance(part, n.Unknown) else None for part in _parts(read_sql(text))] == parts


MOVED = "`ts` > (TIMESTAMP '2026-03-30 00:30:00.000000+00:00'"  # a day earlier the clocks skipped that time
NOON_US = 1_774_873_800_000_000  # 2026-03-30 12:30:00 UTC


@pytest.mark.parametrize(
    ("text", "zone", "read"),
    [
        ("ts > now() - interval 1 day", "UTC", "`ts` > TIMESTAMP '2026-03-29 12:30:00.000000+00:00'"),
        ("ts > now() - INTERVAL '36' HOURS", "Europe/Berlin", "`ts` > TIMESTAMP '2026-03-29 00:30:00.000000+00:00'"),
        # The clocks of Berlin went forward on the 29th: the same time of the day before lies 23 hours before. Spark
        # takes whole days out of hours, minutes and seconds, too.
        ("ts > now() - INTERVAL 48 HOURS", "Europe/Berlin", "`ts` > TIMESTAMP '2026-03-28 13:30:00.000000+00:00'"),
        ("ts > now() - INTERVAL 2910 MINUTES", "Europe/Berlin", "`ts` > TIMESTAMP '2026-03-28 13:00:00.000000+00:00'"),
        ("ts > now() - INTERVAL 172801 SECOND", "Europe/Berlin", "`ts` > TIMESTAMP '2026-03-28 13:29:59.000000+00:00'"),
        ("ts > now() - INTERVAL 48 HOURS", "UTC", "`ts` > TIMESTAMP '2026-03-28 12:30:00.000000+00:00'"),
        (
            "n < localtimestamp() - INTERVAL 48 HOURS",
            "Europe/Berlin",
            "`n` < TIMESTAMP_NTZ '2026-03-28 14:30:00.000000'",
        ),
        (
            "ts > TIMESTAMP '2026-03-28 12:00:00' + INTERVAL 25 HOURS",
            "Europe/Berlin",
            "`ts` > TIMESTAMP '2026-03-29 11:00:00.000000+00:00'",
        ),
        (
            "ts > TIMESTAMP '2026-03-30 02:30:00' - INTERVAL 24 HOURS",
            "Europe/Berlin",
            f"{MOVED} + INTERVAL '-86400' SECOND)",
        ),
        ("ts > now() - interval 2 days", "Europe/Berlin", "`ts` > TIMESTAMP '2026-03-28 13:30:00.000000+00:00'"),
        ("d >= current_date - INTERVAL 1 MONTH", "UTC", "`d` >= DATE '2026-02-28'"),
        ("d >= date_sub(current_date(), 7)", "UTC", "`d` >= DATE '2026-03-23'"),
        ("d = current_date()", "Pacific/Kiritimati", "`d` = DATE '2026-03-31'"),
        ("n < localtimestamp()", "Europe/Berlin", "`n` < TIMESTAMP_NTZ '2026-03-30 14:30:00.000000'"),
        (
            "ts > TIMESTAMP '2026-03-30 02:30:00' - INTERVAL 1 DAY",
            "Europe/Berlin",
            f"{MOVED} + INTERVAL '-1' DAY)",
        ),
        ("ts > now() - make_interval(1)", "UTC", None),
    ],
)
def test_what_the_clock_says_is_a_constant_where_the_time_is_known(text: str, zone: str, read: str | None) -> None:
    """now() and its like, with intervals of the session's calendar; without a time they are not used."""
    found = read_sql(text, time_zone=zone, now_us=NOON_US)
    assert (None if isinstance(found, n.Unknown) else sql_of(found)) == read
    if "()" in text or "current" in text:
        assert isinstance(read_sql(text, time_zone=zone), n.Unknown)


def test_a_filter_that_asks_the_clock_is_read_anew_each_time() -> None:
    """What was now for one request is not remembered for the next."""
    filters = Filters()
    first = filters.read("ts > now()", now_us=NOON_US)
    assert filters.read("ts > now()", now_us=NOON_US + 1_000_000) != first
    assert len(filters) == 0


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("(a = 1) IS NULL", "(`a` = 1) IS NULL"),
        ("(a = 1 AND b = 2L) IS NOT NULL", "NOT ((`a` = 1 AND `b` = 2L) IS NULL)"),
        ("(NOT a OR b < 1) IS UNKNOWN", "(NOT (`a`) OR `b` < 1) IS NULL"),
        ("isnull(a > b)", "(`a` > `b`) IS NULL"),
        ("`b.c` = 1 AND b.c = -128Y", "`b.c` = 1 AND `b`.`c` = -128Y"),
        ("w * 1L < 0 OR c / 3L = 0.333333", "(`w` * 1L) < 0 OR (`c` / 3L) = 0.333333BD"),
        ("w * CAST(1 AS BIGINT) < (1 + 1)", "(`w` * CAST(1 AS BIGINT)) < CAST(2 AS INT)"),
    ],
)
def test_what_is_written_means_what_was_read(text: str, written: str) -> None:
    """Types of constants, quoted names and tests of predicates survive both spellings."""
    found = read_sql(text)
    assert sql_of(found) == written
    assert read_sql(written) == found
    assert read_tree(tree_of(found)) == found


def _parts(node: n.Predicate) -> list[n.Predicate]:
    if isinstance(node, n.And | n.Or):
        return [part for child in node.children for part in _parts(child)]
    return _parts(node.child) if isinstance(node, n.Not | n.IsTrue) else [node]


def test_what_cannot_be_written_again_is_not_known() -> None:
    """SQL that the parser reads and cannot spell is a part that is not used, not a failure."""
    found = read_sql("json_extract(c, '$..a') = '1' AND b = 2")
    assert isinstance(found, n.And)
    assert [type(child).__name__ for child in found.children] == ["Unknown", "Compare"]
