"""Random conditions in SQL over the columns of a table."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from scan.test_foreign_filters import Sampled

#: Conditions on which engines differ: NaN and zeros of both signs, nulls in lists.
FLOATS = (
    *(
        f"{negation} (x {sign} {value})"
        for negation in ("", "NOT")
        for sign in ("<", "<=", ">", ">=", "=", "<>")
        for value in ("5.0", "0.0", "-0.0", "CAST('NaN' AS DOUBLE)")
    ),
    *(f"x {kind} ({values})" for kind in ("IN", "NOT IN") for values in ("0.0, 7.0", "-0.0, 1.0, 2.0, 3.0, 4.0")),
    *(
        "x IN (CAST('NaN' AS DOUBLE), 7.0, 1.0, 2.0)",
        "x BETWEEN -0.0 AND 50.0",
        "x IS NULL AND n <> 4",
        "n NOT IN (1, 2, 3, 4)",
    ),
)


def sql_condition(sampled: Sampled, literal: Callable[[Any], str], depth: int = 2) -> str:
    """A random condition of SQL; ``literal``: the text of a constant.

    Constants have the type of their column: a cast may fail in one plan, and not be evaluated in another.
    """
    rng = sampled.rng
    kind = rng.random()
    if depth and kind < 0.6:
        left, right = sql_condition(sampled, literal, depth - 1), sql_condition(sampled, literal, depth - 1)
        return f"NOT ({left})" if kind < 0.15 else f"({left} {'AND' if kind < 0.4 else 'OR'} {right})"
    name = sampled.column()
    column, sign = f'"{name}"', rng.choice(["<", "<=", ">", ">=", "=", "<>"])

    def constant() -> str:
        return literal(constant_of_type(sampled, name))

    match rng.randrange(8):
        case 0 | 1 | 2:
            return f"{column} {sign} {constant()}"
        case 3:
            listed = ", ".join(constant() for _ in range(rng.randint(1, 5)))
            return f"{column} {rng.choice(['IN', 'NOT IN'])} ({listed})"
        case 4:
            return f"{column} IS {rng.choice(['', 'NOT '])}NULL"
        case 5:
            same = [each for each in sampled.names if sampled.rows[each].type == sampled.rows[name].type]
            return f'{column} {sign} "{rng.choice(same)}"'
        case 6:
            return f"{column} BETWEEN {constant()} AND {constant()}"
        case _:
            return f"{constant()} {sign} {column}"


def constant_of_type(sampled: Sampled, name: str) -> Any:
    """A constant that may be of a column; None: the column has no values."""
    values = [value for value in sampled.rows[name].to_pylist() if value is not None]
    if not values:
        return None
    found = sampled.constant(name)
    return found if type(found) is type(values[0]) and type(found) is not int else sampled.rng.choice(values)
