"""What a block records besides statistics: places, sizes, indexes and identity."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lamella.snapshot.manifest import Block, ColumnMeta
from lamella.snapshot.parquet import block_of, read_footer, schema_of
from lamella.snapshot.storage import FsspecStore
from parquet.crafted import INT64, block, chunk, flat, metadata

TABLE = pa.table({"a": list(range(1000)), "b": [f"text {i}" for i in range(1000)]})


def block_at(path: Path) -> Block:
    """The block of a local file in a table of its own schema."""
    footer = read_footer(FsspecStore(), str(path))
    return block_of(footer, schema_of(footer))


def test_a_block_records_what_the_file_says(tmp_path: Path) -> None:
    """Counts, sizes and places agree with what pyarrow reads."""
    path = tmp_path / "x.parquet"
    pq.write_table(TABLE, path, row_group_size=300, compression="zstd")
    found = block_at(path)
    theirs = pq.read_metadata(path)
    groups = [theirs.row_group(i) for i in range(theirs.num_row_groups)]
    assert found.location == f"file://{path}"
    assert found.row_count == 1000
    assert found.row_group_row_counts == (300, 300, 300, 100)
    assert found.file_size == path.stat().st_size
    assert found.content_id == f"{path.stat().st_size}-{path.stat().st_mtime_ns}"
    assert found.block_size == sum(group.total_byte_size for group in groups)
    assert found.compression == "zstd"
    assert found.created_by == theirs.created_by
    for index in (0, 1):
        columns = [group.column(index) for group in groups]
        assert found.col_metas[index + 1] == tuple(
            ColumnMeta(c.dictionary_page_offset or c.data_page_offset, c.total_compressed_size, c.num_values)
            for c in columns
        )
        assert found.col_stats[index + 1].in_memory_size == sum(c.total_uncompressed_size for c in columns)


def test_the_page_index_is_one_range_of_the_file(tmp_path: Path) -> None:
    """From the first column index to the end of the last offset index; without any, nothing is recorded."""
    pq.write_table(TABLE, tmp_path / "with.parquet", write_page_index=True, row_group_size=300)
    pq.write_table(TABLE, tmp_path / "without.parquet", row_group_size=300)
    assert block_at(tmp_path / "without.parquet").page_index_location is None
    found = block_at(tmp_path / "with.parquet")
    assert found.page_index_location is not None
    offset, length = found.page_index_location
    data_end = max(meta.offset + meta.len for metas in found.col_metas.values() for meta in metas)
    footer = read_footer(FsspecStore(), str(tmp_path / "with.parquet"))
    assert data_end <= offset
    assert offset + length <= found.file_size - footer.footer_size - 8


@pytest.mark.parametrize(
    ("outer", "location"),
    [
        ({4: 10, 5: 20}, (10, 20)),
        ({4: 100, 5: 20, 6: 40, 7: 10}, (40, 80)),
        ({4: 10}, None),
        ({5: 20}, None),
        ({4: 0, 5: 20}, None),
        ({4: -5, 5: 20}, None),
        ({4: 10, 5: 0}, None),
        ({4: 10, 5: -1}, None),
        ({4: 10, 5: 195}, None),  # runs into the footer
        ({4: 1 << 60, 5: 20}, None),
    ],
)
def test_a_page_index_is_recorded_where_it_can_be(outer: dict[int, int], location: tuple[int, int] | None) -> None:
    """A wrong place of an index is no reason to refuse a file, and none to look there."""
    found, _ = block(metadata(flat("a"), [(10, [chunk(["a"], INT64, outer=outer)])]))
    assert found.page_index_location == location


@pytest.mark.parametrize(
    ("meta", "size"),
    [
        ({14: 20, 15: 30}, 30),
        ({14: 20}, 0),  # the length is optional
        ({14: 20, 15: 1000}, None),
        ({14: 0, 15: 30}, None),
        ({14: 20, 15: -1}, None),
        ({14: 500}, None),
        ({15: 30}, None),
    ],
)
def test_bloom_filters_of_a_single_row_group_are_recorded(meta: dict[int, int], size: int | None) -> None:
    """They are inside the block's own file, at places that its footer gives."""
    found, _ = block(metadata(flat("a"), [(10, [chunk(["a"], INT64, meta=meta)])]))
    assert found.bloom_filter_index_location == (None if size is None else found.location)
    assert found.bloom_filter_index_size == (size or 0)


def test_bloom_filters_of_several_row_groups_are_not() -> None:
    """Each answers for its own row group only (H1)."""
    found, _ = block(metadata(flat("a"), [(10, [chunk(["a"], INT64, meta={14: 20, 15: 30})])] * 2))
    assert found.bloom_filter_index_location is None


def test_pyarrows_bloom_filters_are_seen(tmp_path: Path) -> None:
    """As a real writer places them."""
    path = tmp_path / "x.parquet"
    pq.write_table(TABLE, path, bloom_filter_options={"a": {"ndv": 1000, "fpp": 0.01}})
    found = block_at(path)
    assert found.bloom_filter_index_location == found.location
    assert found.bloom_filter_index_size > 1000
