"""What is shown of a block and its pages, beside the manifest and beside the rows of its file."""

from __future__ import annotations

import tempfile
from pathlib import Path
from random import Random

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clustering.test_layouts import Table
from lamella.snapshot import commit as commits
from lamella.snapshot.errors import InvalidRequest, LamellaError, NotFound, SegmentNotFound, UnknownColumn
from lamella.snapshot.expression import read_sql
from lamella.snapshot.expression.text import value_text
from lamella.snapshot.manifest import Block
from lamella.snapshot.schema import DataType
from lamella.snapshot.stats import from_bound
from lamella.snapshot.warehouse.block_view import PageView
from pages.page_tables import PageTable, forget_files, page_table
from pages.test_page_sidecar import PAGE_ROWS, Lake
from support import generate
from support.oracle import Oracle
from verify.test_random_tables import RandomTable

SEEDS = st.integers(0, 2**48)


@given(seed=SEEDS, steps=st.integers(1, 8))
@settings(max_examples=25)
def test_a_view_says_what_the_manifest_says(seed: int, steps: int) -> None:
    """Of any life of a table, schema changes and all: each member, each column, and None for what is not known."""
    with tempfile.TemporaryDirectory() as folder:
        table = RandomTable(seed, Path(folder))
        for _ in range(steps):
            table.step()
        head = table.warehouse.head(table.pointer)
        views = table.warehouse.block_views
        for ref in table.warehouse.segments(table.pointer):
            blocks = table.warehouse.segment(ref).blocks
            rows = views.blocks(table.pointer, ref.segment_id, 0, 1_000)
            assert [(row.number, row.location, row.row_count, row.file_size) for row in rows] == [
                (number, block.location, block.row_count, block.file_size) for number, block in enumerate(blocks)
            ]
            for number, (block, seen) in enumerate(zip(blocks, commits.seen_blocks(head, blocks), strict=True)):
                view = views.block(table.pointer, ref.segment_id, number)
                same = ("location", "row_count", "file_size", "format", "created_by", "content_id", "footer_sha256")
                assert [getattr(view, name) for name in same] == [getattr(block, name) for name in same]
                assert (view.segment_id, view.number) == (ref.segment_id, number)
                assert view.schema_id == block.written_with
                assert view.row_groups == (block.row_group_row_counts or None)
                assert view.block_size == (block.block_size or None)
                for leaf, column in zip(head.schema.leaves(), view.columns, strict=True):
                    assert (column.column_id, column.name, column.type) == (leaf.id, leaf.name, str(leaf.dtype))
                    stats = seen.col_stats.get(leaf.id)
                    bounds = (None, None) if stats is None else (stats.min, stats.max)
                    for text, bound in zip((column.min, column.max), bounds, strict=True):
                        shown = None if bound is None else value_text(leaf.dtype, from_bound(leaf.dtype, bound)).text
                        assert text == shown
                    assert column.null_count == (None if stats is None else stats.null_count)
                    assert column.distinct_count == (None if stats is None else stats.distinct_of_values)
                    assert column.sum == (None if stats is None else stats.sum)
                    assert column.source == (None if stats is None else stats.source)
                    chunks = block.col_metas.get(leaf.id)
                    assert column.size_bytes == (sum(chunk.len for chunk in chunks) if chunks else None)


def check_pages(table: PageTable) -> int:
    """Hold the pages of each block's columns against its rows; how many pages have a bound."""
    oracle = Oracle(table.schema)
    bounded = 0
    for ref in table.warehouse.segments(table.pointer):
        for number, block in enumerate(table.warehouse.segment(ref).blocks):
            rows = table.rows[block.location]
            for leaf in table.schema.leaves():
                pages = table.warehouse.block_views.pages(table.pointer, ref.segment_id, number, leaf.name)
                assert_cover(pages, len(rows))
                for page in pages:
                    mine = rows[page.file_row : page.file_row + page.row_count]
                    cells = [row[leaf.name] for row in mine]
                    assert page.null_count in (None, sum(cell is None for cell in cells))
                    numbers = [row for row, cell in zip(mine, cells, strict=True) if cell is not None and cell == cell]
                    assert page.nan != "none" or all(cell is None or cell == cell for cell in cells)
                    assert page.nan != "all" or not numbers
                    assert page.is_page or page.reason is not None
                    for sign, text in ((">=", page.min), ("<=", page.max)):
                        bounded += text is not None
                        if text is None or page.is_cut or not is_readable(leaf.dtype, text):
                            continue
                        # The oracle's session is in UTC, and it knows no literals with a zone.
                        literal = text.replace("+00:00'", "'") + ("BD" if leaf.dtype.name == "decimal" else "")
                        within = read_sql(f"{leaf.name} {sign} {literal}")
                        assert all(oracle.decide(within, row) is True for row in numbers), (leaf, page, numbers)
    return bounded


def is_readable(dtype: DataType, text: str) -> bool:
    """Whether a bound is a literal that the oracle compares: it counts in microseconds."""
    is_fine = dtype.name in ("time", "uuid") or (dtype.name.startswith("timestamp") and dtype.unit == "ns")
    return not is_fine and not any(part in text for part in ("nfinity", "_micros", "unix_date"))


def assert_cover(pages: tuple[PageView, ...], row_count: int) -> None:
    """Every row is in one page, and pages of a row group begin where the one before ended."""
    end = 0
    ends: dict[int | None, int] = {}
    for page in pages:
        assert page.row_count > 0
        assert page.file_row == end
        assert page.first_row == ends.get(page.row_group, 0)
        end += page.row_count
        ends[page.row_group] = page.first_row + page.row_count
    assert end == row_count


def test_pages_hold_the_rows_that_they_say(tmp_path: Path) -> None:
    """Over random files: pages cover all rows in order, and their bounds and null counts are true."""
    rng = Random(3)
    assert sum(check_pages(page_table(rng, tmp_path)) for _ in range(30)) > 400


def test_pages_are_the_same_from_sidecars_and_from_files(tmp_path: Path) -> None:
    """Where page sidecars were built the files are not needed; without both, the reason is given."""
    rng = Random(8)
    table = page_table(rng, tmp_path, of=generate.schema(Random(1), ("int64",)))
    (first, *_) = table.warehouse.segments(table.pointer)
    name = table.schema.leaves()[0].name

    def pages() -> tuple[PageView, ...]:
        return table.warehouse.block_views.pages(table.pointer, first.segment_id, 0, name)

    from_file = pages()
    table.warehouse.build_pages(table.pointer)
    assert pages() == from_file
    forget_files(table)
    assert pages() == from_file
    row_count = table.warehouse.segment(first).blocks[0].row_count
    lost = page_table(rng, tmp_path, of=table.schema)
    forget_files(lost)
    (first, *_) = lost.warehouse.segments(lost.pointer)
    found = lost.warehouse.block_views.pages(lost.pointer, first.segment_id, 0, name)
    assert_cover(found, lost.warehouse.segment(first).blocks[0].row_count)
    assert row_count
    assert all((page.is_page, page.min, page.reason) == (False, None, "object_not_found") for page in found)


def test_pages_say_where_they_are_in_the_file(tmp_path: Path) -> None:
    """Of sorted files each page has its own stretch of keys and of bytes."""
    lake = Lake(tmp_path, files=1)
    (ref,) = lake.warehouse.segments(lake.pointer)
    pages = lake.warehouse.block_views.pages(lake.pointer, ref.segment_id, 0, "k")
    assert [(page.row_group, page.first_row) for page in pages] == [
        (group, first) for group in range(2) for first in range(0, 500, PAGE_ROWS)
    ]
    assert [(page.min, page.max) for page in pages] == [
        (str(first), str(first + PAGE_ROWS - 1)) for first in range(0, 1000, PAGE_ROWS)
    ]
    assert all(page.is_page and page.reason is None and page.null_count == 0 for page in pages)
    ends = 0
    for page in pages:
        assert page.offset is not None
        assert page.size_bytes
        assert page.offset >= ends
        ends = page.offset + page.size_bytes


def test_a_list_of_blocks_goes_on_where_it_was_left() -> None:
    """Numbers are those of the segment; levels count only for the key in force."""
    table = Table("listed")
    table.append(*((n, n) for n in range(8)))
    (ref,) = table.warehouse.segments(table.pointer)
    views = table.warehouse.block_views
    rows = views.blocks(table.pointer, ref.segment_id, 3, 2)
    assert [(row.number, row.location, row.level) for row in rows] == [
        (3, "memory://b/000003", None),
        (4, "memory://b/000004", 4),
    ]
    assert [row.number for row in views.blocks(table.pointer, ref.segment_id, 6, 9)] == [6, 7]
    assert views.blocks(table.pointer, ref.segment_id, 8, 9) == ()
    view = views.block(table.pointer, ref.segment_id, 4)
    assert (view.cluster_key_id, view.cluster_level) == (0, 4)
    other = table.warehouse.cluster(table.pointer, ["b"], now_ms=3).pointer
    assert {row.level for row in views.blocks(other, ref.segment_id, 0, 8)} == {None}


def test_what_is_not_known_is_none() -> None:
    """A bare block has no size before compression, no times, no row groups, and columns without statistics."""
    table = Table("bare")
    bare = Block(location="memory://b/x", row_count=1, file_size=1)
    added = table.warehouse.prepare("t", table.warehouse.head(table.pointer), [bare])
    pointer = table.warehouse.commit(table.pointer, added=added, now_ms=2).pointer
    (ref,) = table.warehouse.segments(pointer)
    view = table.warehouse.block_views.block(pointer, ref.segment_id, 0)
    names = "block_size compression created created_by cluster_key_id cluster_level content_id footer_sha256 row_groups"
    assert {getattr(view, name) for name in names.split()} == {None}
    first = msgspec.structs.asdict(view.columns[0])
    assert {name for name, value in first.items() if value is not None} == {
        *("column_id", "name", "type", "is_cut", "min_exact", "max_exact", "reason")
    }


@pytest.mark.parametrize(
    ("position", "error"),
    [
        (("no such segment", 0, "a"), SegmentNotFound),
        (("", 8, "a"), NotFound),
        (("", -1, "a"), NotFound),
        (("", 0, "z"), UnknownColumn),
    ],
)
def test_positions_that_are_not_there_are_errors(position: tuple[str, int, str], error: type[LamellaError]) -> None:
    """A segment, a number, a column: each has its own error, which names it."""
    table = Table("places")
    table.append(*((n, n) for n in range(8)))
    (ref,) = table.warehouse.segments(table.pointer)
    segment_id, number, column = position[0] or ref.segment_id, position[1], position[2]
    views = table.warehouse.block_views
    with pytest.raises(error):
        views.pages(table.pointer, segment_id, number, column)
    if error is not UnknownColumn:
        with pytest.raises(error) as caught:
            views.block(table.pointer, segment_id, number)
        assert caught.value.details["segment_id"] == segment_id
    with pytest.raises(InvalidRequest):
        views.blocks(table.pointer, ref.segment_id, 0, -1)
