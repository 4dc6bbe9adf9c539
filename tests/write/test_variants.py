"""Variants written and read in Python: whole or shredded, the values are the same, and shredded fields prune."""

from __future__ import annotations

import operator
import shutil
from decimal import Decimal
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lamella.client import Lamella
from lamella.client.http import Table
from lamella.client.jobs.context import JobContext, Sizes
from lamella.client.jobs.rewrite import compact
from lamella.client.rewrite.engine import SerialEngine
from lamella.client.scan.row_difference import row_codes, row_hashes
from lamella.snapshot.errors import InvalidRequest, InvalidSchema, SchemaMismatch
from lamella.snapshot.schema import Column, parse_type
from lamella.snapshot.schema.evolution import SetShredding
from lamella.snapshot.stats import Bound
from lamella.snapshot.variant.encoding import NULL, array_of, encoded, object_of
from lamella.snapshot.wire.prune import block_records
from support.variants import MISSING, at_path, cast, random_variant, spoiled, variant_of
from write.conftest import MakeTable
from write.test_append import blocks_of

SHREDDING = "v:a.n::bigint, v:a.t::string, v:a.f::decimal(9,2), v:b::boolean, v:d::date"
#: Values that a random document has at a path, as SQL; and as Python.
CONSTANTS: dict[str, list[tuple[str, Any]]] = {
    "$.a.n": [(str(number), number) for number in (0, 7, 42, 99)],
    "$.a.t": [(f"'k{number:02}'", f"k{number:02}") for number in (0, 7, 29)],
    "$.a.f": [(f"{number}BD", Decimal(number)) for number in ("0.00", "1.50", "9.99")],
    "$.b": [("true", True), ("false", False)],
}
TYPES: dict[str, list[str]] = {
    "$.a.n": ["bigint", "int", "tinyint", "decimal(12,2)"],
    "$.a.t": ["string"],
    "$.a.f": ["decimal(9,2)", "decimal(18,4)"],
    "$.b": ["boolean"],
}
OPERATORS = {"=": operator.eq, "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge}


def rows_of(documents: list[Any]) -> pa.Table:
    """Rows of a number and a variant."""
    kind = pa.struct([("metadata", pa.binary()), ("value", pa.binary())])
    values = pa.array([variant_of(each) for each in documents], kind)
    return pa.table({"id": pa.array(range(len(documents)), pa.int64()), "v": values})


def read_back(table: Table) -> list[Any]:
    """The variants of all rows, by their numbers."""
    rows = table.scan().to_arrow().sort_by("id")
    return list(rows.column("v").to_pylist())


def given_as(documents: list[Any]) -> list[Any]:
    """The same as they are written."""
    return [each and {"value": each["value"], "metadata": each["metadata"]} for each in map(variant_of, documents)]


DOCUMENTS: list[Any] = [
    {"a": {"n": 1, "t": "x", "f": Decimal("1.5")}, "b": True, "d": ("date", 19000), "more": [1, ..., {"z": 2.5}]},
    {"a": {"n": "7", "t": 5}, "b": ...},
    {"a": 5},
    {"a": {"n": 1 << 62, "f": Decimal("0.125")}, "é": "ü" * 70},
    {f"m{number}": number for number in range(300)},
    [],
    [1, "two", [3]],
    "text",
    ...,
    None,
    {},
    ("timestamp(us)", 1_700_000_000_000_000),
    b"bytes",
]


@pytest.mark.parametrize("shredding", ["", SHREDDING, "v:a::bigint", "v:more::string, v:m1::int, v:a.n.x::int"])
def test_variants_come_back_as_they_were_written(make_table: MakeTable, shredding: str) -> None:
    """Byte for byte here, whatever is shredded; a row without a variant is null and counted."""
    table = make_table(id="int64", v="variant")
    if shredding:
        table.evolve([SetShredding(shredding=shredding)])
    table.append(rows_of(DOCUMENTS))
    assert read_back(table) == given_as(DOCUMENTS)
    (block,) = blocks_of(table)
    assert block.col_stats[2].null_count == 1
    assert table.scan("v IS NULL", columns=["id"]).to_arrow().column("id").to_pylist() == [9]
    assert table.scan("v IS NULL").to_arrow().num_rows == 1
    schema = pq.ParquetFile(block.location.removeprefix("file://")).schema
    assert "v (Variant(1))" in str(schema)
    assert ("typed_value" in str(schema)) == bool(shredding)


def test_variants_inside_other_columns_come_back(make_table: MakeTable) -> None:
    """In a struct, a list and a map; one in a struct can be shredded."""
    variant = Column(name="v", type="variant")
    element = Column(name="element", type="variant")
    value = Column(name="value", type="variant")
    key = Column(name="key", type="string", nullable=False)
    table = make_table(
        Column(name="id", type="int64"),
        Column(name="s", type="struct", fields=(variant,)),
        Column(name="l", type="list", fields=(element,)),
        Column(name="m", type="map", fields=(key, value)),
    )
    table.evolve([SetShredding(shredding="s.v:a.n::bigint")])
    made = given_as(DOCUMENTS)
    rows = [
        {"id": number, "s": None if number == 3 else {"v": one}, "l": [one, made[0]], "m": {"k": one}}
        for number, one in enumerate(made)
    ]
    rows[5] |= {"l": None, "m": None}
    rows[6] |= {"l": [], "m": {}}
    table.append(rows)
    got = table.scan().to_arrow().sort_by("id").to_pylist()
    assert [row["s"] for row in got] == [row["s"] for row in rows]
    assert [row["l"] for row in got] == [row["l"] for row in rows]
    assert [None if row["m"] is None else dict(row["m"]) for row in got] == [row["m"] for row in rows]
    (block,) = blocks_of(table)
    schema = str(pq.ParquetFile(block.location.removeprefix("file://")).schema)
    assert schema.count("(Variant(1))") == 3
    with pytest.raises(InvalidRequest, match="read the whole column"):
        table.scan(columns=["s.v"]).to_arrow()


def test_what_is_no_variant_is_refused(make_table: MakeTable) -> None:
    """Values of other types, bytes that are not variants, and shredded fields that cannot be."""
    table = make_table(id="int64", v="variant")
    for value in ("text", 5, {"value": b"\x00"}, {"metadata": b"\x02", "value": b"\x00"}):
        with pytest.raises(SchemaMismatch, match="variant"):
            table.append([{"id": 1, "v": value}])
    with pytest.raises(SchemaMismatch, match="no value"):
        table.append([{"id": 1, "v": {"metadata": b"\x01\x00\x00", "value": b""}}])
    for text in ("v:a::int, v:a.b::int", "v:a[0]::int", "v:a::variant", "id:a::int", "v::int", "v:a::int v:b::int"):
        with pytest.raises(InvalidSchema):
            table.evolve([SetShredding(shredding=text)])
    table.evolve([SetShredding(shredding="v:a::int")])
    cut = {"metadata": b"\x01\x01\x00\x01a", "value": b"\x02\x01\x00\x00\x09"}
    with pytest.raises(SchemaMismatch, match="cannot be decoded"):
        table.append([{"id": 1, "v": cut}])


def rewritten(lake: Lamella, table: Table) -> None:
    """Rewrite all blocks as one."""
    compact(JobContext(lake=lake, table=str(table), engine=SerialEngine(), sizes=Sizes(block_rows=1_000)))


@pytest.mark.parametrize(("before", "after"), [("", SHREDDING), (SHREDDING, "v:a.n::int"), (SHREDDING, "")])
def test_a_compaction_shreds_and_unshreds(make_table: MakeTable, lake: Lamella, before: str, after: str) -> None:
    """Blocks that are rewritten are shredded as the table says then; the values stay."""
    table = make_table(id="int64", v="variant")
    if before:
        table.evolve([SetShredding(shredding=before)])
    rng = Random(3)
    documents = [random_variant(rng) for _ in range(80)]
    for start in range(0, 80, 20):
        table.append(rows_of(documents).slice(start, 20))
    table.evolve([SetShredding(shredding=after)])
    rewritten(lake, table)
    (block,) = blocks_of(table)
    kind = pq.read_schema(block.location.removeprefix("file://")).field("v").type
    assert kind.num_fields == (3 if after else 2)
    assert read_back(table) == given_as(documents)


def _matches(document: Any, path: str, kind: str, symbol: str, constant: Any) -> bool:
    """Whether a row must be found: it matches, or Spark fails for it."""
    try:
        value = cast(at_path(document, path.split(".")[1:]), parse_type(kind))
    except ValueError:
        return True
    return value is not None and bool(OPERATORS[symbol](value, constant))


def test_shredded_fields_prune_and_no_row_is_lost(make_table: MakeTable) -> None:
    """Random documents in whole, shredded and mixed blocks: a block that is left out has no row that matches, or fails;
    a block of which all rows are said to match has no other."""
    rng = Random(11)
    table = make_table(id="int64", v="variant")
    blocks: dict[str, list[Any]] = {}

    def add(documents: list[Any]) -> None:
        before = {block.location for block in blocks_of(table)}
        table.append(rows_of(documents))
        (new,) = {block.location for block in blocks_of(table)} - before
        blocks[new] = documents

    def some(low: int, high: int) -> list[Any]:
        made = [random_variant(rng) for _ in range(12)]
        for each in made:
            if isinstance(each, dict) and isinstance(each.get("a"), dict) and isinstance(each["a"].get("n"), int):
                each["a"]["n"] = rng.randrange(low, high)
        return made

    for _ in range(3):
        add(some(0, 100))
    for shredding in (SHREDDING, "v:a.n::int, v:a.t::string", SHREDDING):
        table.evolve([SetShredding(shredding=shredding)])
        for number in range(10):
            documents = some(10 * number, 10 * number + 10)
            add([spoiled(each, rng) for each in documents] if number % 3 == 2 else documents)
    assert not table.verify().findings
    assert not table.verify(deep=True).findings
    pruned = 0
    for path, kinds in TYPES.items():
        for kind in kinds:
            for text, constant in CONSTANTS[path]:
                for symbol in OPERATORS:
                    for function in ("variant_get", "try_variant_get"):
                        where = f"{function}(v, '{path}', '{kind}') {symbol} {text}"
                        answer = table.prune(where)
                        selected = {block.location: block.verdict for block in block_records(answer)}
                        pruned += len(blocks) - len(selected)
                        for location, documents in blocks.items():
                            found = [_matches(each, path, kind, symbol, constant) for each in documents]
                            assert location in selected or not any(found), where
                            assert selected.get(location) != "ALL" or all(found), where
    assert pruned > 1_000
    for test, is_wanted in (("IS NULL", True), ("IS NOT NULL", False)):
        selected_now = set(table.prune(f"variant_get(v, '$.a.n', 'bigint') {test}").locations)
        for location, documents in blocks.items():
            nulls = [at_path(each, ["a", "n"]) in (MISSING, ..., None) for each in documents]
            assert location in selected_now or is_wanted not in nulls


def test_rewritten_variants_are_no_changes() -> None:
    """A change feed compares values, not their encodings: numbers may be whole or decimals, and names in any order."""
    document = {"b": 1, "a": Decimal("2.50"), "c": [{"x": "y" * 100}, ...]}
    value = variant_of(document)
    assert value is not None
    names = [b"c", b"a", b"b", b"x", b"unused"]
    metadata = bytes([1, 5, 0, 1, 2, 3, 4, 10]) + b"".join(names)
    inner = object_of({"x": encoded("string", b"y" * 100)}, metadata)
    numbers = {"b": encoded("decimal", Decimal(1)), "a": b"\x20\x03" + (2500).to_bytes(4, "little")}
    other = {"metadata": metadata, "value": object_of({**numbers, "c": array_of([inner, NULL])}, metadata)}
    assert other != value
    kind = pa.struct([("value", pa.binary()), ("metadata", pa.binary())])
    different = variant_of({**document, "b": 2})
    rows = pa.table({"v": pa.array([value, other, different, None, {"value": b"\x02", "metadata": b""}], kind)})
    first, second, third, missing, broken = row_codes(rows).tolist()
    assert first == second
    assert len({first, third, missing, broken}) == 4
    hashes = row_hashes(rows).tolist()
    assert hashes[0] == hashes[1]


def test_the_footer_of_a_registered_file_gives_the_statistics_of_a_field(make_table: MakeTable, tmp_path: Path) -> None:
    """Variant nulls, rows without the field and rows without an object count as null; a field of narrower numbers is
    converted, one of another type or with other values is unknown, and so is all of a file whose footer is not
    believed."""
    written = make_table(id="int64", v="variant")
    written.evolve([SetShredding(shredding="v:a.n::smallint, v:a.t::string, v:d::date")])
    documents: list[Any] = [{"a": {"n": 5, "t": "x"}, "d": ("date", 3)}, {"a": {"n": ...}}, {"a": {"t": 1}}, 7, None]
    written.append(rows_of(documents))
    path = shutil.copy(blocks_of(written)[0].location.removeprefix("file://"), tmp_path / "copy.parquet")
    table = make_table(id="int64", v="variant")
    fields = {"$.a.n": "decimal(12,1)", "$.a.t": "string", "$.d": "timestamp_ntz", "$.a.x": "int"}
    shown = ", ".join(f"v:{field[2:]}::{kind}" for field, kind in fields.items())
    table.evolve([SetShredding(shredding=shown)])
    table.register([str(path)], strict=True)
    ids = {leaf.path[-1]: leaf.id for leaf in table.info().schema.shredded_leaves()}
    (found,) = blocks_of(table)
    stats = found.col_stats[ids["$.a.n"]]
    assert (stats.min, stats.max, stats.null_count) == (Bound(decimal=("50", 12, 1)), Bound(decimal=("50", 12, 1)), 4)
    assert {field for field, column_id in ids.items() if column_id in found.col_stats} == {"$.a.n"}
    believed = make_table(id="int64", v="variant")
    believed.evolve([SetShredding(shredding=shown)])
    believed.register([str(path)], strict=True, verify=True)
    (checked,) = blocks_of(believed)
    assert not set(ids.values()) & set(checked.col_stats)
    absent = make_table(id="int64", v="variant")
    absent.evolve([SetShredding(shredding=shown)])
    absent.append(pa.table({"id": [1], "v": pa.nulls(1)}))
    assert absent.prune("variant_get(v, '$.a.n', 'int') IS NOT NULL").locations == []
