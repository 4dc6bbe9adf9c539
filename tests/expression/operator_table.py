"""The table of docs/operators.md: what the evaluator does with each operator over each type, found by asking it."""

from __future__ import annotations

import math
import re
from typing import Any, Final

from lamella.snapshot.columnar import Sidecar, build_blocks
from lamella.snapshot.columnar.keys import BytesKeys, NumberKeys, WideKeys
from lamella.snapshot.columnar.zones import HIGH_KNOWN, LOW_KNOWN
from lamella.snapshot.errors import FilterTypeMismatch
from lamella.snapshot.expression import bind, read_sql
from lamella.snapshot.expression.bound import Anything, BoundPredicate, Comparison, leaves_of, terms_of
from lamella.snapshot.manifest import Block
from lamella.snapshot.prune import ALL, NONE, evaluate, verdicts
from lamella.snapshot.prune.evaluate import term_zones
from lamella.snapshot.schema import Column, DataType, Schema
from support import generate

DAY_US: Final = 86_400_000_000
#: For each type: two constants, and values in the type's order, of which the constants are the second and the third.
TYPES: Final[dict[str, tuple[str, str, list[Any]]]] = {
    "boolean": ("true", "false", [0, 1, 0, 0]),
    "tinyint": ("2", "5", [-3, 2, 5, 90]),
    "int": ("2", "5", [-3, 2, 5, 90]),
    "bigint": ("2", "5", [-3, 2, 5, 90]),
    "uint32": ("2", "5", [0, 2, 5, 90]),
    "uint64": ("2", "5", [0, 2, 5, 90]),
    "float": ("2.0D", "5.0D", [-3.0, 2.0, 5.0, 90.5, math.nan]),
    "double": ("2.0D", "5.0D", [-3.0, 2.0, 5.0, 90.5, math.nan]),
    "decimal(10,2)": ("2.00", "5.00", [-300, 200, 500, 9050]),
    "decimal(38,10)": ("2.00", "5.00", [-3 * 10**10, 2 * 10**10, 5 * 10**10, 9 * 10**11]),
    "date": ("DATE '2020-02-29'", "DATE '2021-05-05'", [18_000, 18_321, 18_752, 19_000]),
    "timestamp": (
        "TIMESTAMP '2020-02-29 00:00:00'",
        "TIMESTAMP '2021-05-05 00:00:00'",
        [18_000 * DAY_US + 5, 18_321 * DAY_US, 18_752 * DAY_US, 19_000 * DAY_US + 7_200_000_000],
    ),
    "timestamp_ntz": (
        "TIMESTAMP_NTZ '2020-02-29 00:00:00'",
        "TIMESTAMP_NTZ '2021-05-05 00:00:00'",
        [18_000 * DAY_US + 5, 18_321 * DAY_US, 18_752 * DAY_US, 19_000 * DAY_US + 7_200_000_000],
    ),
    "string": ("'beta'", "'delta'", [b"Alpha", b"beta", b"delta", b"zz"]),
    "binary": ("X'62657461'", "X'64656c7461'", [b"Alpha", b"beta", b"delta", b"zz"]),
}
PREDICATES: Final = (
    *("c = v", "c <> v", "c < v", "c >= v", "c <=> v", "c BETWEEN v AND w", "c IN (v, w)", "c NOT IN (v, w)"),
    *("c IS NULL", "c IS NOT NULL", "isnan(c)", "c LIKE 'be%'", "c LIKE '%ta'", "startswith(c, 'be')"),
    *("c RLIKE '^be'", "c ILIKE 'be%'", "(c, d) = (v, w)", "(c = v) IS NULL"),
    *("c = d", "c < d", "c <=> d", "c"),
)
FUNCTIONS: Final = (
    *("c + 1", "c - d", "c * 2", "c / 2", "c * 1.5", "c + 1D", "-c", "abs(c)", "coalesce(c, v)", "coalesce(c, d)"),
    *("CAST(c AS INT)", "CAST(c AS BIGINT)", "CAST(c AS DECIMAL(20,4))", "CAST(c AS DOUBLE)", "CAST(c AS STRING)"),
    *("CAST(c AS DATE)", "CAST(c AS TIMESTAMP)", "CAST(c AS TIMESTAMP_NTZ)"),
    *("year(c)", "quarter(c)", "month(c)", "day(c)", "dayofweek(c)", "dayofyear(c)"),
    *("hour(c)", "minute(c)", "second(c)", "date_trunc('MONTH', c)", "trunc(c, 'MONTH')", "to_date(c)", "last_day(c)"),
    *("date_add(c, 1)", "date_sub(c, 1)", "add_months(c, 1)", "datediff(c, DATE '2020-01-01')"),
    *("lower(c)", "upper(c)", "length(c)", "left(c, 2)", "substring(c, 1, 2)", "substring(c, 2, 2)"),
    *("concat(c, 'x')", "trim(c)", "CAST(c AS STRING) || 'x'"),
    *("floor(c)", "ceil(c)", "round(c, 1)", "c DIV 2", "c % 100", "pmod(c, 100)", "c >> 1", "c << 1"),
    *("bround(c, 1)", "shiftrightunsigned(c, 1)", "ltrim(c)", "rtrim(c)"),
    *("unix_millis(c)", "unix_micros(c)", "unix_timestamp(c)", "extract(YEAROFWEEK FROM c)"),
    *("greatest(c, v)", "least(c, d)", "CASE WHEN d IS NOT NULL THEN c ELSE v END"),
    *("c + INTERVAL 1 DAY", "c + INTERVAL 1 MONTH", "c - INTERVAL 1 HOUR", "timestampadd(HOUR, 1, c)"),
    "timestampdiff(HOUR, c, TIMESTAMP '2024-01-02 00:00:00')",
    *("date_format(c, 'yyyy-MM')", "unix_date(c)", "unix_seconds(c)", "weekofyear(c)", "weekday(c)"),
    *("get_json_object(c, '$.a')", "variant_get(c, '$.a', 'int')", "try_variant_get(c, '$.a', 'int')"),
)


def table_text() -> str:
    """Both tables in Markdown."""
    parts = []
    for title, rows in (("Predicates", PREDICATES), ("Functions, compared with a constant", FUNCTIONS)):
        lines = [f"| | {' | '.join(f'`{name}`' for name in TYPES)} |", f"|---|{'---|' * len(TYPES)}"]
        lines += [f"| `{row}` | {' | '.join(cell(row, name) for name in TYPES)} |" for row in rows]
        parts.append(f"### {title}\n\n" + "\n".join(lines))
    return "\n\n".join(parts) + "\n"


def cell(text: str, kind: str) -> str:
    """What the evaluator does with one operator over one type."""
    schema = Schema.assign([Column(name="c", type=kind), Column(name="d", type=kind)])
    first, second, values = TYPES[kind]
    spelled = re.sub(r"\bv\b", first, re.sub(r"\bw\b", second, text))
    rows = [*((value, values[1]) for value in values), (None, values[1]), (None, None)]
    blocks = [_block(at, schema, row) for at, row in enumerate(rows)]
    sidecar = Sidecar(build_blocks(schema, blocks))

    def codes(bound: BoundPredicate) -> set[int]:
        outcome = evaluate(bound, lambda leaf: sidecar.zones(leaf.id, leaf.dtype), len(sidecar))
        return {int(code) for code in verdicts(outcome, sidecar.numbers("row_count"))[: len(values) + 1]}

    try:
        if text in PREDICATES:
            bound = bind(read_sql(spelled), schema)
            return _shown(bound, codes(bound))
        bound = bind(read_sql(f"{spelled} IS NULL"), schema)
    except FilterTypeMismatch:
        return "error"
    if any(isinstance(leaf, Anything) for leaf in leaves_of(bound)):
        return "-"
    if "CASE" in text:  # its branches are predicates of their own
        return _shown(bound, codes(bind(read_sql(f"{spelled} = {first}"), schema)))
    ((term,),) = [terms_of(leaf) for leaf in leaves_of(bound)]
    zones = term_zones(term, lambda leaf: sidecar.zones(leaf.id, leaf.dtype), len(sidecar))
    found: set[int] = set()
    for at in range(len(values)):
        if zones.flags[at] & LOW_KNOWN and zones.flags[at] & HIGH_KNOWN:
            found |= codes(Comparison(term, "eq", _value(term.dtype, zones.low, at), spelled))
    return _shown(bound, found)


def _shown(bound: BoundPredicate, codes: set[int]) -> str:
    if any(isinstance(leaf, Anything) and leaf.term is None for leaf in leaves_of(bound)):
        return "-"
    return " ".join(name for name, code in (("N", NONE), ("A", ALL)) if code in codes) or "·"


def _block(at: int, schema: Schema, row: tuple[Any, ...]) -> Block:
    stats = {
        leaf.id: generate.exact_stats(leaf.dtype, [value]) for leaf, value in zip(schema.leaves(), row, strict=True)
    }
    return Block(location=f"memory://{at}", row_count=1, file_size=1, col_stats=stats)


def _value(dtype: DataType, keys: Any, at: int) -> Any:
    if isinstance(keys, BytesKeys):
        return keys.at(at)
    if isinstance(keys, WideKeys):
        return int(keys.high[at]) * (1 << 64) + int(keys.low[at])
    assert isinstance(keys, NumberKeys)
    return float(keys.array[at]) if dtype.is_float else int(keys.array[at])
