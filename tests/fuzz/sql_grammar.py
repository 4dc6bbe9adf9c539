"""Filters in SQL by a grammar: mostly well-formed, mostly of fitting types, with every form that Spark has for them."""

from __future__ import annotations

from random import Random

from fuzz.mutation import EDGES, ODD_TEXTS
from fuzz.tables import COLUMNS

#: Valid filters to start from.
CORPUS = (
    *("n = 1", "n <> -1", "n >= 9223372036854775807", "NOT n < 5L", "4 < n AND n <= 10", "n IS NOT NULL OR i IS NULL"),
    *("n IN (1, 2, 3, NULL)", "s NOT IN ('a', 'b')", "n BETWEEN 1 AND 2", "d NOT BETWEEN -1e300 AND 1.5D"),
    *("dec > 1.005", "wide = 12345678901234567890.0123456789BD", "f = CAST('NaN' AS FLOAT)", "isnan(d)"),
    *("d <=> CAST('-Infinity' AS DOUBLE)", "n <=> NULL", "n IS DISTINCT FROM 3", "b", "NOT b", "b IS NOT TRUE"),
    *("day = DATE '2020-02-29'", "day < '2020-1-1'", "ts >= TIMESTAMP '2020-03-29 02:30:00 Europe/Berlin'"),
    *("wall < TIMESTAMP_NTZ '1582-10-10 00:00:00'", "ts = '2020-01-01T00:00:00.123456789Z'", "tm > '12:30'"),
    *("s LIKE 'ab%'", "s LIKE '%a_c' ESCAPE '!'", "s RLIKE 'a.*b'", "startswith(s, 'ab')", "s ILIKE 'A%'"),
    *("bin = X'00FF'", "id = '00112233-4455-6677-8899-aabbccddeeff'", "st.x > 3", "st.`y z` = 'a'", "`n` = 1"),
    *("n + 1 > 5", "2 * n - i <= 7", "-n < 3", "abs(n) = 4", "n / 2 > 1", "n % 2 = 0", "dec * 2.50 < 9"),
    *("year(day) = 2020", "month(ts) IN (1, 2)", "to_date(ts) = DATE '2020-01-01'", "hour(wall) >= 23"),
    *("date_trunc('MONTH', ts) = TIMESTAMP '2020-01-01 00:00:00'", "trunc(day, 'YEAR') < DATE '2020-01-01'"),
    *(
        "date_add(day, 30) > DATE '2020-01-01'",
        "day > DATE '2020-01-31' - INTERVAL '1' MONTH",
        "datediff(day, '2020-01-01') > 0",
    ),
    *("substr(s, 1, 2) = 'ab'", "lower(s) = 'abc'", "length(s) > 3", "left(s, 1) = 'x'", "upper(s) LIKE 'AB%'"),
    *("CAST(n AS INT) = 3", "CAST(ts AS DATE) < DATE '2020-01-01'", "try_cast(s AS INT) > 1", "CAST(dec AS INT) = 1"),
    *("coalesce(n, 0) = 0", "n > i", "day < CAST(ts AS DATE)", "CASE WHEN n > 1 THEN b ELSE NOT b END"),
    *(
        "n > (SELECT max(n) FROM t)",
        "EXISTS (SELECT 1)",
        "rand() > 0.5",
        "my_udf(n) = 1",
        "li[0] = 'a'",
        "size(li) > 1",
    ),
    *("n = 1 -- a comment", "/* a comment */ n = 1", "n=1 AND(s='a'OR(NOT(b)))", "true", "false OR NULL", "1 = 1"),
)
_FUNCTIONS = (
    *("year", "quarter", "month", "day", "dayofweek", "dayofyear", "hour", "minute", "second", "to_date", "last_day"),
    *("lower", "upper", "length", "abs", "negative", "isnull", "isnotnull", "isnan", "trim", "rand", "my_udf", "hash"),
    *("date_add", "date_sub", "datediff", "add_months", "date_trunc", "trunc", "substr", "substring", "left", "right"),
    *("coalesce", "nvl", "ifnull", "greatest", "concat", "if", "date_format", "unix_timestamp", "to_timestamp", "pow"),
)
_TYPES = (
    "INT",
    "BIGINT",
    "DOUBLE",
    "FLOAT",
    "DECIMAL(10,2)",
    "DECIMAL(99,-1)",
    "STRING",
    "DATE",
    "TIMESTAMP",
    "BOOLEAN",
)
_ODD_TYPES = (
    "BINARY",
    "TINYINT",
    "ARRAY<INT>",
    "STRUCT<a: INT>",
    "INTERVAL DAY",
    "VARCHAR(0)",
    "NOTHING",
    "TIMESTAMP_NTZ",
)


def sql(rng: Random, depth: int = 4) -> str:
    """A condition."""
    if depth <= 0 or rng.random() < 0.35:
        return _predicate(rng, depth)
    left = sql(rng, depth - 1)
    match rng.randrange(8):
        case 0 | 1:
            return f"{left} AND {sql(rng, depth - 1)}"
        case 2 | 3:
            return f"({left} OR {sql(rng, depth - 1)})"
        case 4:
            return f"NOT ({left})"
        case 5:
            return f"({left}) IS {rng.choice(('', 'NOT '))}{rng.choice(('TRUE', 'FALSE', 'NULL', 'UNKNOWN'))}"
        case 6:
            return f"CASE WHEN {left} THEN {sql(rng, depth - 1)} ELSE {_term(rng, 1)} END"
        case _:
            return f"({left}) {rng.choice(('=', '<>', '<=>', '<', 'XOR'))} ({sql(rng, depth - 1)})"


def _predicate(rng: Random, depth: int) -> str:
    term = _term(rng, depth)
    match rng.randrange(9):
        case 0:
            listed = ", ".join(_constant(rng) for _ in range(rng.choice((1, 2, 5, 40))))
            return f"{term} {rng.choice(('', 'NOT '))}IN ({listed})"
        case 1:
            return f"{term} {rng.choice(('', 'NOT '))}BETWEEN {_constant(rng)} AND {_term(rng, 1)}"
        case 2:
            return f"{term} IS {rng.choice(('', 'NOT '))}NULL"
        case 3:
            escape = rng.choice(("", "", " ESCAPE '!'", " ESCAPE ''", " ESCAPE 'ab'"))
            return f"{term} {rng.choice(('', 'NOT '))}{rng.choice(('LIKE', 'ILIKE', 'RLIKE'))} {_text(rng)}{escape}"
        case 4:
            return rng.choice((term, f"startswith({term}, {_text(rng)})", f"contains({term}, {_text(rng)})"))
        case _:
            operator = rng.choice(("=", "==", "<>", "!=", "<", "<=", ">", ">=", "<=>"))
            sides = [term, rng.choice((_constant(rng), _term(rng, depth - 1)))]
            rng.shuffle(sides)
            return f"{sides[0]} {operator} {sides[1]}"


def _term(rng: Random, depth: int) -> str:
    if depth <= 0 or rng.random() < 0.5:
        name = rng.choice((*COLUMNS, "st.x", "st.`y z`", "li", "st", "li.element"))
        return rng.choice((name, name, name, name.upper(), f"`{name}`" if "`" not in name else name, f"t.{name}"))
    match rng.randrange(7):
        case 0 | 1:
            arguments = [_term(rng, depth - 1), *(_constant(rng) for _ in range(rng.choice((0, 0, 1, 2, 9))))]
            if rng.random() < 0.2:
                rng.shuffle(arguments)
            return f"{rng.choice(_FUNCTIONS)}({', '.join(arguments)})"
        case 2 | 3:
            right = rng.choice((_constant(rng), _term(rng, depth - 1), "INTERVAL '1' DAY", "INTERVAL 3 MONTHS"))
            return f"({_term(rng, depth - 1)} {rng.choice(('+', '-', '*', '/', '%', '||', '&', 'DIV'))} {right})"
        case 4:
            kind = rng.choice((*_TYPES, *_ODD_TYPES))
            return f"{rng.choice(('CAST', 'CAST', 'TRY_CAST'))}({_term(rng, depth - 1)} AS {kind})"
        case 5:
            return f"extract({rng.choice(('YEAR', 'MONTH', 'DOW', 'SECOND', 'EPOCH'))} FROM {_term(rng, depth - 1)})"
        case _:
            return rng.choice(("-", "+", "~")) + _term(rng, depth - 1)


def _constant(rng: Random) -> str:
    match rng.randrange(9):
        case 0:
            return str(rng.choice(EDGES))
        case 1:
            return f"{rng.choice(EDGES)}.{rng.choice((0, 5, '000000001', '9' * 40))}"
        case 2:
            return (
                f"{rng.uniform(-9, 9):.3g}{rng.choice(('', 'e0', 'E308', 'e-400', 'D', 'BD', 'F', 'L', 'S', 'e99999'))}"
            )
        case 3:
            return _text(rng)
        case 4:
            moment = rng.choice(
                ("2020-01-01", "0001-01-01", "9999-12-31", "10000-01-01", "-1-1-1", "2020-13-45", "now")
            )
            time = rng.choice(("", " 00:00:00", "T23:59:60Z", " 02:30:00 Europe/Berlin", " 1:2:3.4567891 +18:01", " x"))
            return f"{rng.choice(('DATE', 'TIMESTAMP', 'TIMESTAMP_NTZ', 'TIME', ''))} '{moment}{time}'"
        case 5:
            return f"X'{rng.choice(('', '0', 'FF00', 'GG'))}'"
        case 6:
            return f"CAST({_text(rng)} AS {rng.choice((*_TYPES, *_ODD_TYPES))})"
        case 7:
            return rng.choice(
                ("NULL", "TRUE", "FALSE", "current_date", "current_timestamp()", "pi()", "array(1)", ":x", "?")
            )
        case _:
            return str(rng.randint(-3, 3))


def _text(rng: Random) -> str:
    text = rng.choice(("a", "ab%", "%b", "a_", "2020-01-01", "12", "NaN", rng.choice(ODD_TEXTS)))
    return "'" + text.replace("'", "''") + "'"
