"""Required columns and fields: a null is refused wherever it is, and only there."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lamella.client.rewrite.block_writer import write_block
from lamella.client.rewrite.target import Target, arrow_schema
from lamella.snapshot.errors import SchemaMismatch
from lamella.snapshot.ids import Ids
from lamella.snapshot.schema import Column, Schema
from lamella.snapshot.storage import FsspecStore, TableLayout

LEAVES = {"int64": st.integers(-3, 3), "string": st.sampled_from(["", "a", "bc"]), "boolean": st.booleans()}


@st.composite
def columns(draw: st.DrawFn, name: str, depth: int = 0) -> Column:
    """A column of any shape, at most three levels deep."""
    kind = draw(st.sampled_from([*LEAVES, *(("struct", "list", "map") if depth < 3 else ())]))
    nullable = draw(st.booleans())
    if kind == "struct":
        fields = tuple(draw(columns(f"f{at}", depth + 1)) for at in range(draw(st.integers(1, 2))))
        return Column(name=name, type=kind, nullable=nullable, fields=fields)
    if kind == "list":
        return Column(name=name, type=kind, nullable=nullable, fields=(draw(columns("element", depth + 1)),))
    if kind == "map":
        key = Column(name="key", type="string", nullable=False)
        return Column(name=name, type=kind, nullable=nullable, fields=(key, draw(columns("value", depth + 1))))
    return Column(name=name, type=kind, nullable=nullable)


def values(column: Column) -> st.SearchStrategy[Any]:
    """Values of a column as Python's; any part may be null."""
    if column.type == "struct":
        made: st.SearchStrategy[Any] = st.fixed_dictionaries({part.name: values(part) for part in column.fields})
    elif column.type == "list":
        made = st.lists(values(column.fields[0]), max_size=2)
    elif column.type == "map":
        keys = st.sampled_from(["a", "b"])
        made = st.lists(st.tuples(keys, values(column.fields[1])), max_size=2, unique_by=lambda pair: pair[0])
    else:
        made = LEAVES[column.type]
    return st.one_of(st.none(), made, made)


def misses(column: Column, value: Any) -> bool:
    """Whether a value has a null where the column requires one."""
    if value is None:
        return not column.nullable
    if column.type == "struct":
        return any(misses(part, value[part.name]) for part in column.fields)
    if column.type == "list":
        return any(misses(column.fields[0], element) for element in value)
    return column.type == "map" and any(misses(column.fields[1], item) for _, item in value)


def optional(kind: Any) -> Any:
    """The type with all parts nullable, as the rows of a frame have it."""
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(part.name, optional(part.type)) for part in kind])
    if pa.types.is_list(kind):
        return pa.list_(pa.field("element", optional(kind.value_type)))
    return pa.map_(kind.key_type, optional(kind.item_type)) if pa.types.is_map(kind) else kind


@given(data=st.data())
def test_a_block_has_exactly_the_rows_without_nulls_in_required_parts(
    data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """A file is written if and only if no row misses a required value, and then it has the rows as they are."""
    schema = Schema.assign([data.draw(columns(f"c{at}")) for at in range(data.draw(st.integers(1, 2)))])
    row = st.fixed_dictionaries({column.name: values(column) for column in schema.columns})
    rows = data.draw(st.lists(row, min_size=1, max_size=4))
    skipped = data.draw(st.integers(0, len(rows) - 1))
    folder = tmp_path_factory.mktemp("blocks")
    given_types = pa.schema([pa.field(field.name, optional(field.type)) for field in arrow_schema(schema)])
    batch = pa.RecordBatch.from_pylist(rows, schema=given_types).slice(skipped)
    target = Target(location=f"file://{folder}", history=(schema,))
    is_refused = any(misses(column, row[column.name]) for row in rows[skipped:] for column in schema.columns)

    def write() -> Path:
        table = target.rows_of([batch])
        block = write_block(FsspecStore(), TableLayout(target.location), Ids(), table, schema)
        return Path(block.location.removeprefix("file://"))

    if is_refused:
        with pytest.raises(SchemaMismatch, match="required and has nulls"):
            write()
        assert not list(folder.rglob("*.parquet"))
        return
    assert pq.ParquetFile(write()).read().to_pylist() == batch.to_pylist()
