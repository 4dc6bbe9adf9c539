"""Files that readers which know only names, or the numbers in files, would read otherwise than Lamella, are known."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lamella.client.rewrite.target import arrow_schema
from lamella.snapshot.commit.snapshots import summarize, summarize_blocks
from lamella.snapshot.manifest import Block
from lamella.snapshot.parquet import block_of, read_footer
from lamella.snapshot.schema import Column, Schema
from lamella.snapshot.storage import FsspecStore

SCHEMA = Schema.assign(
    [
        Column(name="id", type="int64"),
        Column(name="userId", type="string"),
        Column(name="at", type="timestamp(us)"),
        Column(name="tags", type="list", fields=(Column(name="element", type="string"),)),
    ]
)


def block(folder: Path, schema: pa.Schema, **options: Any) -> Block:
    """A file of one row of nulls as a block."""
    file = folder / "f.parquet"
    pq.write_table(pa.table([pa.nulls(1, field.type) for field in schema], schema=schema), file, **options)
    return block_of(read_footer(FsspecStore(), f"file://{file}"), SCHEMA)


def plain(**names: str) -> pa.Schema:
    """The table's columns, some under other names."""
    fields = {"id": pa.int64(), "userId": pa.string(), "at": pa.timestamp("us", "UTC"), "tags": pa.list_(pa.string())}
    return pa.schema([pa.field(names.get(name, name), kind) for name, kind in fields.items()])


def test_plain_files_are_read_by_name(tmp_path: Path) -> None:
    """With the names of the table, letter by letter, also when a column is missing, or times are of 96 bits."""
    assert block(tmp_path, plain()).by_name
    assert block(tmp_path, pa.schema(list(plain())[:2])).by_name
    assert block(tmp_path, plain(), use_deprecated_int96_timestamps=True).by_name


def test_files_that_lamella_writes_are_read_by_number(tmp_path: Path) -> None:
    """Its writers give every column, nested ones too, the table's number."""
    assert block(tmp_path, arrow_schema(SCHEMA)).by_name


@pytest.mark.parametrize("name", ["USERID", "userid", "UserId"])
def test_other_letters_are_noticed(tmp_path: Path, name: str) -> None:
    """Lamella finds the column all the same, and readers by name would find nulls."""
    assert not block(tmp_path, plain(userId=name)).by_name


def test_other_numbers_are_noticed(tmp_path: Path) -> None:
    """Iceberg's readers believe the numbers in a file more than its names."""
    for numbers in ((2, 1), (7, 8), (1, None)):
        schema = pa.schema(
            [
                pa.field(name, kind, metadata=None if number is None else {"PARQUET:field_id": str(number)})
                for (name, kind), number in zip([("id", pa.int64()), ("userId", pa.string())], numbers, strict=True)
            ]
        )
        assert not block(tmp_path, schema).by_name, numbers


def test_layers_count_them(tmp_path: Path) -> None:
    """A segment's summary, and what is above it, so that a snapshot's says whether there are any."""
    good, bad = block(tmp_path, plain()), block(tmp_path, plain(id="ID"))
    summary = summarize_blocks(SCHEMA, [good, bad, bad])
    assert summary.by_name_count == 1
    assert summarize(SCHEMA, [summary, summary]).by_name_count == 2
