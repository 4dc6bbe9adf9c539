"""Random tables as Parquet files of tiny pages, in a warehouse, and what a page answer says of their rows."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

import msgspec
import pyarrow.parquet as pq

from lamella.snapshot.expression import Predicate, text_of
from lamella.snapshot.manifest import SnapshotPointer
from lamella.snapshot.parquet import ingest, read_footer, schema_of
from lamella.snapshot.parquet.page_index import read_page_index
from lamella.snapshot.schema import Schema
from lamella.snapshot.storage import FsspecStore
from lamella.snapshot.warehouse import Warehouse
from lamella.snapshot.wire import ColumnRanges, PrunedPages, PruneRequest
from support import generate
from support.arrow_files import arrow_table
from support.oracle import Oracle

Rows = list[dict[str, Any]]


class PageTable(msgspec.Struct, frozen=True):
    """A table at one snapshot; ``rows`` and ``pages`` (how many, of all columns) by location."""

    schema: Schema
    warehouse: Warehouse
    pointer: SnapshotPointer
    rows: dict[str, Rows]
    pages: dict[str, int]
    seen: generate.Block


def long_block(rng: Random, of: Schema) -> generate.Block:
    """Some stretches of rows, each with values of its own, so that pages differ."""
    parts = [part for _ in range(rng.randint(1, 3)) for part in generate.table(rng, of, blocks=4, rows=6)]
    return {leaf.name: [cell for part in parts for cell in part[leaf.name]] for leaf in of.leaves()}


def write(rng: Random, of: Schema, block: generate.Block, path: Path) -> None:
    """Write with random settings, page indexes mostly among them."""
    names = [leaf.name for leaf in of.leaves()]
    pq.write_table(
        arrow_table(of, block),
        path,
        row_group_size=rng.choice([3, 7, 20, 1000]),
        max_rows_per_page=rng.choice([1, 2, 3, 5, 8]),
        write_page_index=rng.random() < 0.9,
        write_statistics=rng.choice([True, True, True, True, rng.sample(names, rng.randint(0, len(names)))]),
        use_dictionary=rng.random() < 0.5,
        data_page_size=rng.choice([1, 64, 1 << 20]),
        write_batch_size=rng.choice([1, 2, 1024]),
        data_page_version=rng.choice(["1.0", "2.0"]),
        compression=rng.choice(["snappy", "none"]),
    )


def page_table(rng: Random, folder: Path, *, of: Schema | None = None, files: int = 3) -> PageTable:
    """A random table of a few files."""
    wanted = of if of is not None else generate.schema(rng)
    blocks = [long_block(rng, wanted) for _ in range(rng.randint(1, files))]
    name = rng.randbytes(6).hex()
    paths = [folder / f"{name}-{at}.parquet" for at in range(len(blocks))]
    for path, block in zip(paths, blocks, strict=True):
        write(rng, wanted, block, path)
    return registered(paths, [generate.rows_of(block) for block in blocks], generate.seen_values(wanted, blocks))


def registered(paths: list[Path], rows: list[Rows], seen: generate.Block) -> PageTable:
    """Files as a table, two blocks to a segment."""
    store = FsspecStore()
    locations = [f"file://{path}" for path in paths]
    schema = schema_of(read_footer(store, locations[0]))
    found, refused = ingest(store, locations, schema, workers=1)
    assert refused == []
    warehouse = Warehouse(store, "memory://pages", segment_blocks=2)
    table_id = f"{paths[0].stem}-{len(paths)}"
    empty = warehouse.create(table_id, schema, now_ms=1)
    pointer = warehouse.commit(empty, added=warehouse.prepare(table_id, schema, found), now_ms=2).pointer
    pages = {where: _page_count(path) for where, path in zip(locations, paths, strict=True)}
    return PageTable(schema, warehouse, pointer, dict(zip(locations, rows, strict=True)), pages, seen)


def _page_count(path: Path) -> int:
    """Ranges that the file's pages are told apart by, at most; row groups where it has no page index."""
    store = FsspecStore()
    footer = read_footer(store, f"file://{path}")
    index = read_page_index(store, footer)
    return sum(len(pages) for pages in index.pages.values()) + len(index.reasons)


def forget_files(table: PageTable) -> None:
    """Delete the table's files."""
    for location in table.rows:
        Path(location.removeprefix("file://")).unlink()


def check(table: PageTable, predicate: Predicate) -> dict[str, PrunedPages]:
    """Prune to pages and hold the answer against every row; returns the pages by location."""
    names = tuple(column.name for column in table.schema.columns)
    request = PruneRequest(level="page", columns=names)
    answer = table.warehouse.prune_predicate(table.pointer, predicate, request)
    assert answer.blocks is not None
    found: dict[str, PrunedPages] = {}
    for block in answer.blocks:
        assert block.pages is not None
        found[block.location] = block.pages
    oracle = Oracle(table.schema)
    for location, rows in table.rows.items():
        case = f"{text_of(predicate)} over {location}"
        matching = {at for at, row in enumerate(rows) if oracle.decide(predicate, row) is True}
        pages = found.get(location)
        if pages is None:
            assert not matching, f"left out a block with matches, {case}"
            continue
        answered = answered_rows(pages, len(rows))
        assert matching <= answered, f"left out rows {sorted(matching - answered)}, {case}"
        proven = proven_rows(pages)
        assert proven <= matching, f"wrong ALL of rows {sorted(proven - matching)}, {case}"
        for column in pages.columns or ():
            covered = {
                (group, first + at)
                for group, first, count in zip(column.row_group, column.first_row, column.row_count, strict=True)
                for at in range(count)
            }
            needed = {
                (group, first + at)
                for group, first, count in zip(pages.row_group, pages.first_row, pages.row_count, strict=True)
                for at in range(count)
            }
            assert needed <= covered, f"the bytes of {column.column} do not hold all rows, {case}"
            assert_apart(column)
    return found


def answered_rows(pages: PrunedPages, row_count: int) -> set[int]:
    """The rows of a file that are in the answer; ranges must ascend and not overlap."""
    if pages.whole:
        return set(range(row_count))
    rows: set[int] = set()
    end = 0
    for first, count in zip(pages.file_row, pages.row_count, strict=True):
        assert count > 0
        assert first >= end
        end = first + count
        rows.update(range(first, end))
    assert end <= row_count
    return rows


def proven_rows(pages: PrunedPages) -> set[int]:
    """The rows that are said to match for certain."""
    return {
        first + at
        for first, count, certain in zip(pages.file_row, pages.row_count, pages.all_match or [], strict=False)
        if certain
        for at in range(count)
    }


def assert_apart(column: ColumnRanges) -> None:
    """Stretches of bytes do not overlap."""
    stretches = [*zip(column.offset, column.size_bytes, strict=True), *((o, s) for _, o, s in column.dictionary)]
    end = 0
    for offset, size in sorted(stretches):
        assert offset >= end
        assert size > 0
        end = offset + size
