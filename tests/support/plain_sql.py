"""Filters in SQL near the border of what the plain reader takes: its grammar in odd spelling, and just beyond it."""

from __future__ import annotations

from random import Random

from fuzz.mutation import EDGES, ODD_TEXTS

_SPACES = (
    *([" "] * 40),
    "",
    "",
    "",
    "  ",
    "\n",
    "\t",
    "\r\n",
    "\r",
    "\x0b",
    "\x0c",
    "\x1c",
    "\u00a0",
    "\u2003",
    "/**/",
)
_NAMES = (
    *("a", "b", "a1", "_x", "Event_Time", "x", "e5", "l", "bd", "s.a", "a.b.c.d.e", "`a`", "`a b`.c", "`a``b`", "`in`"),
    *("`a.b`", "s.`it's`", "date", "DATE", "timestamp", "Time", "key", "text", "s.date", "date.s", "order", "in", "is"),
    *(
        "not",
        "null",
        "true",
        "if",
        "case",
        "any",
        "current_date",
        "range",
        "x'",
        "r",
        "1a",
        "ä",
        "a$b",
        "$a",
        "@a",
        "#a",
    ),
    *("comment", "interval", "a:b", "a ", "`", "``", "isin", "inx", "notnull", "betweens", "likes", "nullx", "and1"),
)
_NUMBERS = (
    *(
        "0",
        "1",
        "-1",
        "007",
        "-0",
        "+1",
        "- 1",
        "--1",
        "1e3",
        "1E-3",
        "1e+3",
        "-1.5e3",
        "1.",
        ".5",
        "1.5",
        "-1.50",
        "1e",
    ),
    *("0.00000001", "1.e3", "1..2", "1.2.3", "1L", "1l", "5S", "5Y", "1.5D", "1.5F", "1.5BD", "1_000", "0x1F", "0b1"),
    *("1e400", "1e-400", "0e0", "00.10", "1d", "1f", "1e3D", "9" * 38, "9" * 60, "9" * 61, "9" * 64, "9" * 65),
    *("-" + "9" * 60, "-" + "9" * 63, "-" + "9" * 64, "0." + "9" * 62, "0." + "9" * 63, "\u0661", "1\u0661"),
)
_TEXTS = (
    *("''", "'a'", "'it''s'", "'a' 'b'", "'a\\'b'", "'\\n'", "'%'", "'a_b%'", '"a"', "'\"'", "'`'", "'a\nb'", "'--'"),
    *("'/*'", "';'", "'\x00'", "'ä'", "'\U0001f600'", "'{{x}}'", "'1.2.3'", "' '", "r'a'", "X'00'", "N'a'", "'a", "b'"),
    *("'\u2028'", "'\r'", "'\r\n'", "'?'", "'$1'", "':a'"),
)
_MOMENTS = ("2020-01-01", "2020-1-1", "2020-02-30", "x", "", "10000-01-01", "0001-01-01", " 2020-01-01 ", "2020")
_TIMES = (
    "",
    " 00:00:00",
    "T23:59:60Z",
    " 02:30:00",
    " 1:2:3.4567891",
    " 01:02:03+05:30",
    " 01:02:03 Europe/Berlin",
    " 1:2",
)
_SIGNS = (
    "=",
    "==",
    "<>",
    "!=",
    "<",
    "<=",
    ">",
    ">=",
    "<=>",
    "< =",
    "=<",
    "=>",
    "!",
    "~",
    "<->",
    "^",
    ":=",
    "!<",
    "<>=",
)
_ENDS = (
    *([""] * 30),
    ";",
    "; ",
    " x",
    " as x",
    ")",
    "(",
    " -- c",
    " /* c */",
    " and",
    " or",
    ",",
    " escape '!'",
    "'",
    " is true",
)


def plain_sql(rng: Random) -> str:
    """A filter that is mostly plain; each draw has at most a few oddities."""
    oddity = rng.choice((0.0, 0.0, 0.05, 0.3))
    return _case(rng, _condition(rng, rng.choice((0, 1, 1, 2, 3)), oddity)) + (
        rng.choice(_ENDS) if rng.random() < oddity else ""
    )


def _pick(rng: Random, usual: tuple[str, ...], odd: tuple[str, ...], oddity: float) -> str:
    return rng.choice(odd) if rng.random() < oddity else rng.choice(usual)


def _space(rng: Random, oddity: float) -> str:
    return rng.choice(_SPACES) if rng.random() < max(oddity, 0.1) else " "


def _gap(rng: Random, oddity: float) -> str:
    """Where no space is needed."""
    return _pick(rng, ("", " "), _SPACES, oddity)


def _case(rng: Random, text: str) -> str:
    return rng.choice((text, text, text.upper(), text.lower(), text.swapcase()))


def _condition(rng: Random, depth: int, oddity: float) -> str:
    if depth == 0:
        return _predicate(rng, oddity)
    space = _space(rng, oddity)
    match rng.randrange(5):
        case 0:
            return f"({_gap(rng, oddity)}{_condition(rng, depth - 1, oddity)}{_gap(rng, oddity)})"
        case 1:
            return f"NOT{space}{_condition(rng, depth - 1, oddity)}"
        case _:
            parts = [_condition(rng, depth - 1, oddity) for _ in range(rng.choice((2, 2, 3)))]
            word = _pick(rng, ("AND", "OR"), ("AND", "OR", "XOR", "&&", "||", "and not", "or not"), oddity)
            return f"{space}{word}{_space(rng, oddity)}".join(parts)


def _predicate(rng: Random, oddity: float) -> str:
    name = _pick(rng, ("a", "b", "event_time", "s.a", "`a b`", "date", "Name"), _NAMES, oddity)
    space = _space(rng, oddity)
    negated = rng.choice(("", "", f"NOT{_space(rng, oddity)}"))
    match rng.randrange(9):
        case 0:
            listed = f"{_gap(rng, oddity)},{_gap(rng, oddity)}".join(
                value(rng, oddity) for _ in range(rng.choice((1, 2, 5)))
            )
            return f"{name}{space}{negated}IN{_gap(rng, oddity)}({_gap(rng, oddity)}{listed}{_gap(rng, oddity)})"
        case 1:
            low, high = value(rng, oddity), value(rng, oddity)
            return f"{name}{space}{negated}BETWEEN{_space(rng, oddity)}{low}{_space(rng, oddity)}AND{space}{high}"
        case 2:
            return f"{name}{space}IS{_space(rng, oddity)}{negated}NULL"
        case 3:
            pattern = _pick(rng, ("'ab%'", "'%b_'", "''"), _TEXTS, oddity)
            return f"{name}{space}{negated}LIKE{_space(rng, oddity)}{pattern}"
        case 4 if rng.random() < oddity:
            return rng.choice(
                (name, "true", "null", "1", f"{value(rng, oddity)} < {name}", f"{name} = b", f"isnull({name})")
            )
        case _:
            sign = _pick(rng, _SIGNS[:9], _SIGNS, oddity)
            return f"{name}{_gap(rng, oddity)}{sign}{_gap(rng, oddity)}{value(rng, oddity)}"


def value(rng: Random, oddity: float) -> str:
    """A constant, or nearly one."""
    match rng.randrange(7):
        case 0:
            return _pick(
                rng,
                ("NULL", "TRUE", "FALSE"),
                ("b", "x.y", "DATE", "current_date", "(1)", "?", "CAST(1 AS INT)"),
                oddity,
            )
        case 1:
            kind = _pick(
                rng,
                ("DATE", "TIMESTAMP", "TIMESTAMP_NTZ", "TIMESTAMP_LTZ"),
                ("TIME", "DATETIME", "TIMESTAMPTZ", "INTERVAL", "INT", "STRING", "UUID", "b"),
                oddity,
            )
            return f"{kind}{_gap(rng, oddity)}'{rng.choice(_MOMENTS)}{rng.choice(_TIMES)}'"
        case 2 | 3:
            return _pick(
                rng, ("'a'", "'x%'", "'ä'", "''", "'2020-01-01'"), (*_TEXTS, _quoted(rng.choice(ODD_TEXTS))), oddity
            )
        case 4:
            return str(rng.choice(EDGES)) if rng.random() < oddity else str(rng.randint(-300, 300))
        case _:
            return _pick(rng, ("0", "1", "-5", "1.50", "1e3", "500000000"), _NUMBERS, oddity)


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
