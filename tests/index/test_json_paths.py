"""Indexes over what stands at a path in JSON documents: they skip blocks, lose no row, and guess at no document."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random

import pyarrow as pa
import pytest

from lamella.snapshot.errors import LamellaError
from lamella.snapshot.expression import read_filter
from lamella.snapshot.index.building import build_part
from lamella.snapshot.row_filter import RowFilter
from lamella.snapshot.wire import PruneRequest
from support.json_documents import random_document
from support.real_tables import RealTable

BLOCKS = 30
ID = "get_json_object(j, '$.user.id')"
CITY = "get_json_object(j, '$.user[\\'home city\\']')"


def documents(number: int) -> pa.Table:
    """A file of rows about a few users, some without one, some of them broken for certain, some null."""
    rng = Random(number)
    rows: list[str | None] = [None, "", "no JSON", '{"user":{"id":"cut o']
    for at in range(20):
        user = {"id": rng.choice([number * 100 + at, f"u{number * 100 + at}"]), "home city": f"Town {number % 7}"}
        rows.append(json.dumps({"at": at, "user": user} if at % 5 else {"at": at}))
    rng.shuffle(rows)
    return pa.table({"j": pa.array(rows, pa.string()), "n": list(range(len(rows)))})


#: Kind, expression, and filters over it, spelled otherwise, of which each rules blocks out.
CASES = [
    ("bloom", ID, [f"{ID} = '1203'", "GET_JSON_OBJECT( `j` , \"$['user']['id']\" ) IN ('u5', '702', 'none')"]),
    ("keys", ID, [f"{ID} = 'u1203'", f"{ID} <=> '1203' AND n > 3"]),
    ("value_set", CITY, [f"{CITY} = 'Town 3'", f"{CITY} LIKE '%n 4'", f"NOT {CITY} <> 'Town 5'"]),
    ("ngram", ID, [f"{ID} LIKE '%u120%'", f"{ID} LIKE '%2501'"]),
    ("affix", CITY, [f"{CITY} LIKE '%6'", f"startswith({CITY}, 'Village')"]),
    ("ngram", f"lower({CITY})", [f"lower({CITY}) LIKE '%town 2%'"]),
    ("minmax", CITY, [f"{CITY} > 'Town 5'"]),
]


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "expression", "filters"), CASES)
def test_no_row_is_lost_by_an_index_over_a_json_path(
    tmp_path: Path, kind: str, expression: str, filters: list[str]
) -> None:
    """Every block with a row that matches is kept, and the index rules out others, which minima and maxima do not."""
    files = [documents(number) for number in range(BLOCKS)]
    table = RealTable(tmp_path, files)
    schema = table.warehouse.head(table.pointer).schema
    for text in filters:
        assert len(table.warehouse.prune(table.pointer, PruneRequest(filter=text)).blocks or ()) == BLOCKS
    table.add_index("x", kind, expression)
    ids = {leaf.name: leaf.id for leaf in schema.leaves()}
    for text in filters:
        answer = table.warehouse.prune(table.pointer, PruneRequest(filter=text))
        (use,) = answer.report.indexes
        assert use.ruled_out > 0, text
        selected = {Path(block.location).name for block in answer.blocks or ()}
        decide = RowFilter(read_filter(text), schema)
        matching = {
            f"{number:05}.parquet"
            for number, rows in enumerate(files)
            if decide.matches({ids[name]: rows.column(name) for name in ids}, rows.num_rows).any()
        }
        assert matching <= selected, text


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["bloom", "value_set", "keys", "ngram", "affix", "nulls"])
def test_no_random_document_is_lost(tmp_path: Path, kind: str) -> None:
    """Blocks of any documents: what has a row that matches or is uncertain is kept, whichever value is asked for."""
    rng = Random(kind)
    files = [pa.table({"j": [random_document(rng) for _ in range(3)]}) for _ in range(60)]
    table = RealTable(tmp_path, files)
    expression = "get_json_object(j, '$.a')"
    warehouse = table.warehouse
    pointer = warehouse.indexing.create(table.pointer, name="x", kind=kind, expression=expression, now_ms=5).pointer
    snapshot = warehouse.snapshot(pointer)
    (index,), (ref,) = snapshot.skip_indexes, warehouse.segments(pointer)
    built = build_part(table.store, index, snapshot, warehouse.segment(ref).blocks)
    assert built.part is not None
    assert built.left_out
    assert all(left.reason.startswith("the expression fails for a row: a ") for left in built.left_out)
    table.store.put(f"{table.root}/parts/x", built.part.data)
    part = (built.part.ref(f"{table.root}/parts/x"), built.part.keys)
    pointer = warehouse.indexing.add_parts(pointer, index.index_id, [part], now_ms=6).pointer
    uncertain = {Path(left.location).name for left in built.left_out}
    conditions = [*(f"= '{value}'" for value in ("x", "1.0", "0", "42", "[]")), "IS NULL", "IS NOT NULL", "LIKE '%x%'"]
    for test in conditions:
        text = f"{expression} {test}"
        answer = warehouse.prune(pointer, PruneRequest(filter=text))
        selected = {Path(block.location).name for block in answer.blocks or ()}
        assert uncertain <= selected
        decide = RowFilter(read_filter(text), snapshot.schema)
        for number, rows in enumerate(files):
            truth = decide.decide({1: rows.column("j")}, rows.num_rows)
            assert f"{number:05}.parquet" in selected or not truth.true.any(), text


def test_a_block_with_an_uncertain_document_is_left_out_and_reported(tmp_path: Path) -> None:
    """One document that Spark may read otherwise leaves its block without an entry, and says why."""
    files = [pa.table({"j": ['{"a":1}', '{"a":"x"']}), pa.table({"j": ['{"a":2}', "{'a':3}"]})]
    table = RealTable(tmp_path, files)
    warehouse = table.warehouse
    pointer = warehouse.indexing.create(
        table.pointer, name="x", kind="bloom", expression="get_json_object(j, '$.a')", now_ms=5
    ).pointer
    snapshot = warehouse.snapshot(pointer)
    (ref,) = warehouse.segments(pointer)
    built = build_part(table.store, snapshot.skip_indexes[0], snapshot, warehouse.segment(ref).blocks)
    assert built.part is not None
    assert len(built.part.keys) == 1
    (left_out,) = built.left_out
    assert left_out.location.endswith("00001.parquet")
    assert left_out.reason == "the expression fails for a row: a document is not strictly valid JSON"


@pytest.mark.parametrize("path", ["'$.a[*]'", "'$..a'", "'a'", "j", "NULL", "'$'"])
def test_an_index_over_another_path_is_refused(tmp_path: Path, path: str) -> None:
    """Wildcards, paths that are none and paths that differ from row to row: a clear error, and no index."""
    table = RealTable(tmp_path, [documents(1)])
    with pytest.raises(LamellaError):
        table.warehouse.indexing.create(
            table.pointer, name="x", kind="bloom", expression=f"get_json_object(j, {path})", now_ms=5
        )
