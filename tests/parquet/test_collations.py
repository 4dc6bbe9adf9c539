"""Text with a collation: found in what Spark writes beside Parquet's schema, and refused."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lamella.snapshot.errors import InvalidSchema, SchemaMismatch
from lamella.snapshot.parquet import block_of, ingest, read_footer, schema_of
from lamella.snapshot.parquet.footer_batch import FEWEST
from lamella.snapshot.parquet.schema import collation_problem
from lamella.snapshot.schema import Column, Schema
from lamella.snapshot.schema.types import collations_in
from lamella.snapshot.storage import FsspecStore

STORE = FsspecStore()
KEY = "org.apache.spark.sql.parquet.row.metadata"
SCHEMA = Schema.assign([Column(name="s", type="string"), Column(name="a", type="int64")])

#: As Spark 4.3 writes it.
SPARK_4_3 = {
    "type": "struct",
    "fields": [
        {"name": "a", "type": "string", "nullable": False, "metadata": {"__COLLATIONS": {"a": "spark.UTF8_LCASE"}}},
        {"name": "p", "type": "string", "nullable": False, "metadata": {}},
        {
            "name": "l",
            "type": {"type": "array", "elementType": "string", "containsNull": False},
            "nullable": False,
            "metadata": {"__COLLATIONS": {"l.element": "icu.UNICODE_CI"}},
        },
        {
            "name": "m",
            "type": {"type": "map", "keyType": "string", "valueType": "string", "valueContainsNull": False},
            "nullable": False,
            "metadata": {"__COLLATIONS": {"m.value": "spark.UTF8_BINARY_RTRIM"}},
        },
        {
            "name": "ls",
            "type": {
                "type": "array",
                "elementType": {
                    "type": "struct",
                    "fields": [
                        {
                            "name": "in",
                            "type": "string",
                            "nullable": False,
                            "metadata": {"__COLLATIONS": {"in": "spark.UTF8_LCASE"}},
                        }
                    ],
                },
                "containsNull": False,
            },
            "nullable": False,
            "metadata": {},
        },
        {"name": "b", "type": "string collate UTF8_BINARY", "nullable": False, "metadata": {}},
    ],
}


def field(name: str, kind: Any, **collations: str) -> dict[str, Any]:
    """A field in Spark's JSON; ``collations`` of texts in it, with ``_`` for the dots of their paths."""
    named = {path.replace("_", "."): collation for path, collation in collations.items()}
    return {"name": name, "type": kind, "nullable": True, "metadata": {"__COLLATIONS": named} if named else {}}


def schema_json(*fields: dict[str, Any]) -> str:
    """A struct type as text."""
    return json.dumps({"type": "struct", "fields": list(fields)})


def file(path: Path, row_metadata: str | None, values: list[str] | None = None) -> str:
    """A file of ``s`` and ``a`` with that beside its schema, as if Spark had written it; its location."""
    metadata = {"org.apache.spark.version": "4.3.0"} | ({} if row_metadata is None else {KEY: row_metadata})
    table = pa.table({"s": values or ["ABC", "abc"], "a": [1, 2]}).replace_schema_metadata(metadata)
    pq.write_table(table, path)
    return f"file://{path}"


def test_collations_are_found_wherever_spark_names_them() -> None:
    """In columns, lists, maps and structs in lists; what compares bytes is none."""
    assert collations_in(SPARK_4_3) == {
        "a": "spark.UTF8_LCASE",
        "l.element": "icu.UNICODE_CI",
        "m.value": "spark.UTF8_BINARY_RTRIM",
        "ls.element.in": "spark.UTF8_LCASE",
    }
    spelled = {"type": "struct", "fields": [field("s", "string collate UNICODE"), field("t", "string")]}
    assert collations_in(spelled) == {"s": "UNICODE"}


_LEAVES = ("string", "long", "decimal(5,2)", "string", "binary")


def random_type(rng: Random, path: str, depth: int, found: dict[str, str], named: dict[str, str], own: str) -> Any:
    """A type; ``found`` gets all collations by whole path, ``named`` those that the field names, by path ``own``."""
    kind = rng.choice(["leaf", "leaf", "struct", "array", "map"]) if depth else "leaf"
    if kind == "struct":
        return random_struct(rng, f"{path}.", depth - 1, found)
    if kind == "array":
        element = random_type(rng, f"{path}.element", depth - 1, found, named, f"{own}.element")
        return {"type": "array", "elementType": element, "containsNull": True}
    if kind == "map":
        key, value = (
            random_type(rng, f"{path}.{part}", depth - 1, found, named, f"{own}.{part}") for part in ("key", "value")
        )
        return {"type": "map", "keyType": key, "valueType": value, "valueContainsNull": True}
    leaf = rng.choice(_LEAVES)
    if leaf == "string" and rng.random() < 0.4:
        collation = rng.choice(["icu.de_CI", "spark.UTF8_LCASE", "spark.UTF8_BINARY"])
        named[own] = collation
        if collation != "spark.UTF8_BINARY":
            found[path] = collation
    return leaf


def random_struct(rng: Random, above: str, depth: int, found: dict[str, str]) -> dict[str, Any]:
    """A struct type of a few fields."""
    fields = []
    for name in rng.sample(["a", "b", "element", "x.y", "__COLLATIONS"], rng.randint(1, 3)):
        named: dict[str, str] = {}
        kind = random_type(rng, above + name, depth, found, named, name)
        metadata: dict[str, Any] = {"comment": "c"} if rng.random() < 0.5 else {}
        fields.append({"name": name, "type": kind, "metadata": metadata | ({"__COLLATIONS": named} if named else {})})
    return {"type": "struct", "fields": fields}


@given(st.integers(0, 2**48))
def test_every_collation_of_a_random_schema_is_found(seed: int) -> None:
    """However deep it is, and nothing else; a file is refused exactly when there is one."""
    found: dict[str, str] = {}
    schema = random_struct(Random(seed), "", 3, found)
    assert collations_in(schema) == found
    assert (collation_problem({KEY: json.dumps(schema)}) is not None) == bool(found)


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.sampled_from(["string", "struct", "array", "__COLLATIONS", "s"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["type", "fields", "name", "metadata", "__COLLATIONS", "elementType"]), inner, max_size=4
        )
    ),
    max_leaves=12,
)


@given(_JSON)
def test_a_schema_that_is_none_and_names_collations_is_refused(value: Any) -> None:
    """Whatever stands there: nothing but a reason, or none where no collation is meant."""
    text = json.dumps(value)
    problem = collation_problem({KEY: text})
    try:
        expected = bool(collations_in(value))
    except ValueError:
        expected = True
    assert (problem is not None) == (expected and "__COLLATIONS" in text)


@pytest.mark.parametrize(
    "text", ["__COLLATIONS", '{"__COLLATIONS": ', "[" * 50_000 + '"__COLLATIONS"', '{"type":"struct"} __COLLATIONS']
)
def test_a_damaged_schema_that_names_collations_is_refused(text: str) -> None:
    """What cannot be read is not taken for plain text; without the word it says nothing of collations."""
    assert "cannot be parsed" in str(collation_problem({KEY: text}))
    assert collation_problem({KEY: text.replace("__COLLATIONS", "comment")}) is None
    assert collation_problem({}) is None


@pytest.mark.parametrize("verify", [False, True])
def test_files_with_collated_text_are_no_blocks(verify: bool, tmp_path: Path) -> None:
    """They are refused by name, alone and among others; files of the same columns without a collation are taken."""
    collated = schema_json(field("s", "string", s="spark.UTF8_LCASE"), field("a", "long"))
    plain = schema_json(field("s", "string"), field("a", "long"))
    paths = [file(tmp_path / "c.parquet", collated), file(tmp_path / "p.parquet", plain), file(tmp_path / "n", None)]
    blocks, refused = ingest(STORE, paths, SCHEMA, verify=verify)
    assert [block.location for block in blocks] == paths[1:]
    (left,) = refused
    assert (left.path, left.code) == (paths[0], SchemaMismatch.code)
    assert "'s' (spark.UTF8_LCASE)" in left.reason


def test_files_of_one_shape_with_collated_text_are_no_blocks(tmp_path: Path) -> None:
    """Also when there are so many that they are decoded together, and whichever of two shapes comes first."""
    collated = schema_json(field("s", "string", s="icu.UNICODE_CI"), field("a", "long"))
    plain = schema_json(field("s", "string"), field("a", "long"))
    count = 2 * FEWEST
    for turn, first in enumerate((collated, plain)):
        second = plain if first == collated else collated
        texts = [first] * count + [second] * count
        paths = [file(tmp_path / f"{turn}-{at}.parquet", text) for at, text in enumerate(texts)]
        blocks, refused = ingest(STORE, paths, SCHEMA)
        assert {each.path for each in refused} == {p for p, text in zip(paths, texts, strict=True) if text == collated}
        assert len(blocks) == count


def test_a_table_cannot_be_made_of_collated_text(tmp_path: Path) -> None:
    """Its columns would be compared otherwise here than where they come from."""
    path = file(tmp_path / "c.parquet", schema_json(field("s", "string", s="icu.UNICODE_CI"), field("a", "long")))
    footer = read_footer(STORE, path)
    with pytest.raises(InvalidSchema, match="UNICODE_CI"):
        schema_of(footer)
    with pytest.raises(SchemaMismatch, match="UNICODE_CI"):
        block_of(footer, SCHEMA)
