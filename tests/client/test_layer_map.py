"""The picture of a table that notebooks show: its blocks along a column, and which of them a filter selects."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations
from pathlib import Path
from random import Random
from xml.etree import ElementTree

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lamella.client import Lamella, col
from lamella.client.http import Table, layer_map
from lamella.client.http.layer_map import MapBlock, TableMap
from lamella.snapshot.errors import InvalidRequest, UnknownColumn
from lamella.snapshot.schema.evolution import AddColumn

SVG = "{http://www.w3.org/2000/svg}"


COLUMNS = pa.schema({"a": pa.int64(), "s": pa.string(), "n": pa.struct({"x": pa.float64()})})
#: The values of "a" and "s" in each block; the first two blocks are one segment.
ROWS: list[list[tuple[int | None, str]]] = [[(0, "x"), (10, "y")], [(5, "x<"), (20, "&y")], [(30, "z")], [(None, "z")]]


@pytest.fixture
def table(tmp_path: Path) -> Iterator[Table]:
    """Three segments: of two blocks that overlap, of one apart from them, and of one without a value."""
    with Lamella.embedded(tmp_path / "lake") as lake:
        lake.create_namespace("db")
        lake.create_table("db.t", schema=COLUMNS, cluster_key=["a"])
        found = lake.table("db.t")
        files = []
        for number, rows in enumerate(ROWS):
            values = {"a": [row[0] for row in rows], "s": [row[1] for row in rows], "n": [{"x": 1.0} for _ in rows]}
            files.append(tmp_path / f"{number}&.parquet")
            pq.write_table(pa.table(values, schema=COLUMNS), files[-1])
        for paths in (files[:2], files[2:3], files[3:]):
            found.register([f"file://{path}" for path in paths])
        yield found


def blocks_of(found: TableMap) -> list[MapBlock]:
    """All blocks of a map."""
    return [block for segment in found.segments for block in segment.blocks]


def test_blocks_lie_along_the_cluster_key(table: Table) -> None:
    """Each from its minimum to its maximum, with bounds at equal distances; one without a value is nowhere."""
    found = table.layer_map()
    assert (found.column, found.first, found.last) == ("a", "0", "30")
    assert [segment.block_count for segment in found.segments] == [2, 1, 1]
    assert [(block.low, block.high) for block in blocks_of(found)] == [
        (0.0, 0.5),
        (0.25, 0.75),
        (1.0, 1.0),
        (None, None),
    ]
    assert {block.verdict for block in blocks_of(found)} == {"ALL"}
    assert found.selected_blocks == found.block_count == 4


def test_a_filter_colours_blocks(table: Table) -> None:
    """As a prune with it selects them, whatever says the filter, also if it selects none."""
    for filter in ("a > 8 OR a IS NULL", (col("a") > 8) | col("a").is_null()):
        found = table.layer_map(filter)
        assert [block.verdict for block in blocks_of(found)] == ["SOME", "SOME", "ALL", "ALL"]
        assert found.selected_blocks == len(table.prune(filter))
    none = table.layer_map("a > 99")
    assert [block.verdict for block in blocks_of(none)] == ["NONE"] * 4
    assert (none.selected_blocks, none.block_count) == (0, 4)


def test_a_column_and_a_snapshot_can_be_chosen(table: Table) -> None:
    """Text in the order of its bytes; a field of a struct; the table as it was."""
    text = table.layer_map(column="s")
    assert (text.first, text.last) == ("'&y'", "'z'")
    assert table.layer_map(column="n.x").column == "n.x"
    assert table.layer_map(snapshot_id=list(table.snapshots())[1].snapshot_id).block_count == 3
    with pytest.raises(UnknownColumn):
        table.layer_map(column="b")
    with pytest.raises(InvalidRequest):
        table.layer_map(column="n")


def test_blocks_without_statistics_extend_over_the_whole_width(table: Table) -> None:
    """Nothing is known of the values, like those of a column that was added since."""
    table.evolve([AddColumn(name="c", type="int64")])
    assert {(block.low, block.high) for block in blocks_of(table.layer_map(column="c"))} == {(0.0, 1.0)}


def test_the_picture_is_svg_without_markup_of_the_data(table: Table) -> None:
    """A bar for each block; what files and values are called is text."""
    found = table.layer_map("a > 8")
    root = ElementTree.fromstring(found.to_svg())  # noqa: S314  # the picture that was just drawn
    bars = [each for each in root.iter(f"{SVG}rect") if each.find(f"{SVG}title") is not None]
    assert len(bars) == 4
    texts = [bar.findtext(f"{SVG}title") for bar in bars]
    assert texts[0] == "0&.parquet: 2 rows, a from 0 to 10; some rows may match"
    assert texts[3] == "3&.parquet: 1 row, no a; no row matches: not read"
    assert {bar.get("y") for bar in bars[:2]} == {"5", "18"}  # they overlap
    html = found._repr_html_()
    assert "3 of 4 blocks in 3 segments, by a" in html
    assert [each.text for each in root.iter(f"{SVG}text")][:3] == ["0", "a", "30"]
    assert "<script" not in html
    ElementTree.fromstring(html)  # noqa: S314  # the picture that was just drawn


def test_a_large_table_is_shown_by_its_segments(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    """No manifest of a segment is fetched."""
    monkeypatch.setattr(layer_map, "MAX_SEGMENTS", 2)
    found = table.layer_map("a > 8")
    assert found.column is None
    assert [(each.selected_blocks, each.block_count) for each in found.segments] == [(2, 2), (1, 1), (0, 1)]
    root = ElementTree.fromstring(found.to_svg())  # noqa: S314  # the picture that was just drawn
    assert len([each for each in root.iter(f"{SVG}rect") if each.find(f"{SVG}title") is not None]) == 3


def test_an_empty_table_has_an_empty_picture(tmp_path: Path) -> None:
    """There is no block, and no bound."""
    with Lamella.embedded(tmp_path / "lake") as lake:
        lake.create_namespace("db")
        lake.create_table("db.t", schema={"a": "int64"})
        found = lake.table("db.t").layer_map()
        assert (found.block_count, found.segments) == (0, ())
        ElementTree.fromstring(found._repr_html_())  # noqa: S314  # the picture that was just drawn


def test_random_tables_lie_as_their_statistics_say(tmp_path: Path) -> None:
    """Blocks are on the axis as the order of their bounds is, and bars of one row do not overlap."""
    rng = Random(7)
    with Lamella.embedded(tmp_path / "lake") as lake:
        for number in range(20):
            found = lake.table(f"db.t{number}")
            for _ in range(rng.randint(1, 4)):
                values = [rng.choice([None, rng.uniform(-9, 9)]) for _ in range(rng.randint(1, 30))]
                rows = pa.table({"a": pa.array(values, pa.float64())})
                found.append(rows, create=True, target_block_rows=rng.randint(1, 9))
            picture = found.layer_map(f"a > {rng.uniform(-9, 9)}")
            for segment, shown in zip(found.snapshot(picture.snapshot_id).segments, picture.segments, strict=True):
                blocks = found.segment(segment.segment_id).blocks
                stats = [block.col_stats[1] for block in blocks]
                low = [None if each.min is None else each.min.float64 for each in stats]
                ordered = [(at, value) for at, value in zip((b.low for b in shown.blocks), low, strict=True) if value]
                assert sorted(ordered) == sorted(ordered, key=lambda pair: pair[1])
                lanes = layer_map._lanes_of(shown.blocks)
                bars = [
                    (lane, block.low, block.high)
                    for lane, block in zip(lanes, shown.blocks, strict=True)
                    if block.low is not None and block.high is not None
                ]
                for one, other in combinations(sorted(bars), 2):
                    assert one[0] != other[0] or one[2] < other[1]
