"""Blocks of one text: the whole pattern of a LIKE decides them, not its prefix alone."""

from __future__ import annotations

import pytest

from lamella.snapshot.columnar import Sidecar, build_blocks
from lamella.snapshot.expression import bind, read_sql
from lamella.snapshot.prune import ALL, NONE, SOME, UNKNOWN, evaluate, verdicts
from lamella.snapshot.schema import Column, Schema
from support import generate, stages

SCHEMA = Schema.assign([Column(name="s", type="string")])
#: One text twice, the same with a null, two texts, and one text of other letters than ASCII.
BLOCKS = (["abcd", "abcd"], ["abcd", None], ["abcd", "abce"], ["äöü", "äöü"])


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("%bc%", [ALL, SOME, UNKNOWN, NONE]),
        ("%x%", [NONE, NONE, UNKNOWN, NONE]),
        ("a__d", [ALL, SOME, SOME, NONE]),
        ("a%e", [NONE, NONE, SOME, NONE]),
        ("_____%", [NONE, NONE, UNKNOWN, NONE]),
        ("%ö_", [NONE, NONE, UNKNOWN, ALL]),
    ],
)
def test_a_pattern_decides_blocks_of_one_text(pattern: str, expected: list[int]) -> None:
    """Every row or none matches; a null leaves SOME where the text matches. Two texts are not decided."""
    columns: list[generate.Block] = [{"s": [value and value.encode() for value in values]} for values in BLOCKS]
    blocks = [stages.block(number, each, stages.exact(SCHEMA, each)) for number, each in enumerate(columns)]
    sidecar = Sidecar(build_blocks(SCHEMA, blocks))
    bound = bind(read_sql(f"s LIKE '{pattern}'"), SCHEMA)
    outcome = evaluate(bound, lambda column: sidecar.zones(column.id, column.dtype), len(sidecar))
    assert verdicts(outcome, sidecar.numbers("row_count")).tolist() == expected
