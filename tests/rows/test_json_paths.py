"""``get_json_object`` row by row. Spark itself judges the same documents in ``test_json_paths_spark``."""

from __future__ import annotations

from random import Random

import numpy as np
import pyarrow as pa
import pytest

from lamella.snapshot.columnar.zones import MAY_NULL, MAY_NUMBER, NULLS_KNOWN, zones_of
from lamella.snapshot.errors import EvaluationFailed
from lamella.snapshot.expression import read_filter
from lamella.snapshot.function.base import Vector
from lamella.snapshot.function.json_path import JsonPath, path_of, steps_of
from lamella.snapshot.function.text import ChangedCase
from lamella.snapshot.row_filter import RowFilter
from lamella.snapshot.schema import Column, Schema, parse_type
from lamella.snapshot.stats import unknown
from support.generate import exact_stats
from support.json_documents import PATHS, UNCERTAIN, VECTORS, random_document


def given(documents: list[str | bytes | None], path: str) -> list[object]:
    """What the path gives in each document."""
    steps = steps_of(path)
    assert steps is not None, path
    array = pa.array([text.encode() if isinstance(text, str) else text for text in documents], pa.large_binary())
    found = JsonPath(steps).rows(Vector(array.fill_null(b"{"), np.asarray(array.is_valid())))
    failed = np.zeros(len(documents), dtype=bool) if found.failed is None else found.failed
    return [
        UNCERTAIN if failed[row] else found.values[row].as_py().decode() if found.valid[row] else None
        for row in range(len(documents))
    ]


@pytest.mark.parametrize("path", sorted({path for _, path, _ in VECTORS}))
def test_a_document_gives_what_spark_was_seen_to_give(path: str) -> None:
    """Values, nulls and documents of which nothing is said, each as the table of vectors has it."""
    mine = [(document, expected) for document, of, expected in VECTORS if of == path]
    for (document, expected), found in zip(mine, given([document for document, _ in mine], path), strict=True):
        assert found == expected, document[:200]


def test_a_row_alone_gives_what_it_gives_among_others() -> None:
    """Neither the rows around a document nor nulls change what it gives."""
    documents = [random_document(Random(seed)) for seed in range(300)]
    for path in PATHS:
        together = given([None, *documents, None], path)
        assert together[0] is together[-1] is None
        assert together[1:-1] == [given([document], path)[0] for document in documents]


def test_bytes_that_are_not_utf8_are_uncertain() -> None:
    """Java replaces them by other characters, so nothing is said of the document."""
    assert given([b'{"a":"\xff"}', b'{"a":1}'], "$.a") == [UNCERTAIN, "1"]


def test_every_letter_of_another_script_in_an_escape_is_uncertain() -> None:
    """Jackson takes those whose last eight bits are a hexadecimal digit's for that digit."""
    for at in range(4):
        digits = "0041"[:at] + "\u0661" + "0041"[at + 1 :]
        for document in (f'{{"b":"\\u{digits}","a":1}}', f'{{"\\u{digits}":1,"a":1}}', f'{{"a":"x\\u{digits}'):
            assert given([document], "$.a") == [UNCERTAIN]


def test_what_fails_in_the_document_fails_in_the_result() -> None:
    """A row whose document could not be computed has failed, also where nothing is found in it."""
    texts = pa.array([b'{"A":1}', "{\u019b}".encode(), None], pa.large_binary())
    documents = Vector(texts.fill_null(b""), np.array([True, True, False]))
    found = JsonPath(("A",)).rows(ChangedCase("upper").rows(documents))
    assert found.failed is not None
    assert found.failed.tolist() == [False, True, False]
    assert found.valid.tolist() == [True, True, False]
    assert "Unicode" in found.reason


@pytest.mark.parametrize(
    ("path", "same"),
    [
        ("$.a.b", "$['a']['b']"),
        ("$['a-b'][0]", "$.a-b[0]"),
        ("$.日本", "$['日本']"),
        ("$['a b'].c", "$['a b']['c']"),
        ("$[0][12]", "$[0][12]"),
    ],
)
def test_paths_that_lead_to_the_same_value_are_equal(path: str, same: str) -> None:
    """They have the same steps, and are written alike."""
    steps = steps_of(path)
    assert steps is not None
    assert steps == steps_of(same) == steps_of(path_of(steps))


@pytest.mark.parametrize(
    "path",
    [
        *("", "$", "a", "a.b", " $.a", "$.a ", "$ .a", "$. a", "$.a b", "$.*", "$..a", "$[*]", "$['*']", "$.a.*"),
        *("$.", "$.a.", "$[]", "$['']", "$['a'", '$["a"]', "$['a?']", "$['a ']", "$[' a']", "$['a\\'b']", "$.a'b"),
        *("$.a[-1]", "$.a[ 0 ]", "$[00]", "$[12345]", "$.a[b]", "$['a\nb']", "$.a\n", "$a", "$.a[0:2]", "$['*a']"),
    ],
)
def test_a_path_that_spark_reads_otherwise_is_none(path: str) -> None:
    """Wildcards, blanks that Spark drops, what is no path for it: nothing is said of any of these."""
    assert steps_of(path) is None


def test_a_filter_decides_rows_or_says_why_not() -> None:
    """A document that has to be looked at and is uncertain is an error that names the reason, never a guess."""
    schema = Schema.assign([Column(name="j", type="string"), Column(name="n", type="int32")])
    condition = "n = 1 AND get_json_object(j, '$.user.id') = '42'"
    columns = {1: pa.array(['{"user":{"id":42}}', '{"user":{"id":"7"}}', None, '{"user":']), 2: pa.array([1, 1, 1, 1])}
    assert RowFilter(read_filter(condition), schema).matches(columns, 4).tolist() == [True, False, False, False]
    quoted = pa.array(["{'user':{'id':42}}"])
    with pytest.raises(EvaluationFailed, match="not strictly valid JSON"):
        RowFilter(read_filter(condition), schema).matches({1: quoted, 2: pa.array([1])}, 1)
    assert not RowFilter(read_filter(condition), schema).matches({1: quoted, 2: pa.array([0])}, 1).any()


def test_minima_and_maxima_of_documents_say_nothing_but_that_null_is_null() -> None:
    """A document may give anything, null too; where every document is null, so is every result."""
    dtype = parse_type("string")
    nulls, all_known = (exact_stats(dtype, values) for values in ([None] * 3, [b"a", b"b", b"b"]))
    zones = JsonPath(("a",)).zones(zones_of(dtype, [(3, nulls), (3, all_known), (3, unknown(dtype, "none"))]))
    assert zones.low is None
    assert zones.high is None
    assert zones.fails is None
    assert zones.flags.tolist() == [MAY_NULL | NULLS_KNOWN, MAY_NULL | MAY_NUMBER, MAY_NULL | MAY_NUMBER]
