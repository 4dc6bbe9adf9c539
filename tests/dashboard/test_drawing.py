"""What pages are made of, without a browser: words, charts, tiles, parts of maps."""

from __future__ import annotations

import math
from xml.etree import ElementTree

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lamella.service.dashboard import charts, words
from lamella.service.dashboard.charts import MAX_TILES, MapRenderer
from lamella.service.dashboard.layer_map import Zoom, zoom_of
from lamella.service.dashboard.tables import depth_bars
from lamella.snapshot.errors import InvalidRequest, SegmentNotFound
from lamella.snapshot.prune.outcome import ALL, NONE, SOME, UNKNOWN
from lamella.snapshot.warehouse.layer_map import LayerMap

MARKUP = "<b onclick=x>&\"'"


def map_of(blocks: list[int], depth: int = 3) -> LayerMap:
    """A map of segments with so many blocks each."""
    total = sum(blocks)
    return LayerMap(
        snapshot_id="s",
        segment_id=tuple(f"id{number}" for number in range(len(blocks))),
        starts=np.cumsum(blocks) - blocks,
        segment=np.repeat(np.arange(len(blocks)), blocks).astype(np.int32),
        row_count=np.full(total, 10),
        file_size=np.arange(1, total + 1) * 1_000,
        depth=np.full(total, depth, dtype=np.int32),
        columns=("k",),
        kind="linear",
    )


@pytest.mark.parametrize(
    ("share", "text"),
    [
        (0.0, "0.0 %"),
        (1.0, "100.0 %"),
        (0.99999, "99.9 %"),
        (0.0001, "< 0.1 %"),
        (0.5, "50.0 %"),
        (None, words.NOTHING),
    ],
)
def test_shares_never_say_all_or_nothing_for_less(share: float | None, text: str) -> None:
    """What is almost everything is not said to be everything."""
    assert words.percent(share) == text


@pytest.mark.parametrize(
    ("size_bytes", "text"),
    [(0, "0 B"), (1023, "1023 B"), (1536, "1.5 KiB"), (1 << 40, "1.0 TiB"), (None, words.NOTHING)],
)
def test_sizes_have_their_unit(size_bytes: int | None, text: str) -> None:
    """Units are powers of 1,024, as their names say."""
    assert words.size(size_bytes) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0 ms"), (0.0123, "12.3 ms"), (1.5, "1.5 s"), (59.9, "59 seconds"), (3600, "1 hour"), (200_000, "2 days")],
)
def test_spans_are_said_in_one_unit(seconds: float, text: str) -> None:
    """The largest unit that fits."""
    assert words.span(seconds) == text


@given(st.integers(-(1 << 62), 1 << 62))
def test_any_time_can_be_rendered(at_ms: int) -> None:
    """Also times that no calendar has, which manifests of others may hold."""
    assert words.moment(at_ms)
    assert isinstance(words.iso(at_ms), str)


@given(
    st.lists(st.tuples(st.text(alphabet=st.characters(codec="utf-8", categories=["L", "N", "P"])), st.floats(0, 1e12)))
)
def test_charts_are_well_formed_whatever_they_show(pairs: list[tuple[str, float]]) -> None:
    """Bars are an XML document with a title for each value, and no coordinate that is none."""
    svg = str(charts.bars([*pairs, (MARKUP, 1)], title=MARKUP))
    root = ElementTree.fromstring(svg)  # noqa: S314  # our own text
    assert root.attrib["aria-label"] == MARKUP
    assert len(root.findall(".//title")) == len(pairs) + 1
    for element in root.iter():
        assert all(math.isfinite(float(element.get(name, "0"))) for name in ("x", "y", "width", "height")), svg


@given(st.lists(st.tuples(st.integers(0, 10**9), st.floats(-1e9, 1e9)), min_size=1, max_size=2_000))
def test_lines_are_thinned_and_end_where_they_end(points: list[tuple[int, float]]) -> None:
    """A line of very many points stays small, and its last point is the last one."""
    points.sort()
    svg = str(charts.line(points, title="t"))
    ElementTree.fromstring(svg)  # noqa: S314  # our own text
    assert len(svg) < 20_000
    assert "nan" not in svg


@given(st.lists(st.integers(1, 40), min_size=1, max_size=30))
def test_depth_bars_count_every_block_once(depths: list[int]) -> None:
    """Bars add up to the blocks whose depth is known, and 1 to 16 have bars of their own."""
    bars = depth_bars(np.array([*depths, 0, -1]))
    assert sum(count for _, count in bars) == len(depths)
    assert dict(bars).get("1", 0) == depths.count(1)


@pytest.mark.parametrize("depths", [[17], [31, 32], [33], [64], [65], [1_000_000]])
def test_deep_blocks_fall_into_one_bar(depths: list[int]) -> None:
    """Beyond 16 a bar goes up to a power of two, and no depth is between two bars."""
    assert sum(count for _, count in depth_bars(np.array(depths))) == len(depths)


def test_no_map_has_more_tiles_than_fit() -> None:
    """Of many segments several are one tile, and all blocks are in some tile."""
    tiles = MapRenderer(map_of([2] * 5_000), "depth").segments(0, 5_000)
    assert len(tiles) <= MAX_TILES
    assert tiles[0].zoom == "0-4"
    assert tiles[-1].zoom.endswith("4999")


def test_a_tile_tells_what_it_stands_for() -> None:
    """Its words name its segment, its blocks, their depth, and how many a filter keeps."""
    painter = MapRenderer(map_of([2, 3]), "match", np.array([NONE, SOME, UNKNOWN, ALL, NONE], dtype=np.uint8))
    first, second = painter.segments(0, 2)
    assert first.text.startswith("segment 1: 2 blocks")
    assert "1 kept" in first.text
    assert "depth 3.0 on average" in second.text
    colours = [tile.colour for number in (0, 1) for tile in painter.blocks(number)]
    assert colours == ["none", "some", "unknown", "all", "none"]


def test_a_map_with_nothing_in_it_can_be_rendered() -> None:
    """An empty table has a map without tiles."""
    painter = MapRenderer(map_of([]), "size")
    assert painter.groups() == ()
    assert painter.segments(0, 0) == ()


@pytest.mark.parametrize("text", ["", "0", "3", "0-3", "2.7"])
def test_parts_of_maps_are_written_as_they_are_read(text: str) -> None:
    """A part of a map has one spelling."""
    found = zoom_of(text, 4)
    assert ("" if found is None else str(found)) == text


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("x", InvalidRequest),
        ("1-", InvalidRequest),
        ("-1", InvalidRequest),
        ("1.2.3", InvalidRequest),
        ("٣", InvalidRequest),
        ("9" * 20, InvalidRequest),
        ("4", SegmentNotFound),
        ("3-1", SegmentNotFound),
    ],
)
def test_parts_that_there_are_not_are_refused(text: str, error: type[Exception]) -> None:
    """Words that are none, and segments that the snapshot does not have."""
    with pytest.raises(error):
        zoom_of(text, 4)


def test_a_range_of_one_segment_is_that_segment() -> None:
    """So that its blocks are shown."""
    assert zoom_of("2-2", 4) == Zoom(2, 1)
