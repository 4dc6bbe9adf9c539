"""Heat maps and bars as pictures, without a browser: what they count, where they draw it, what they write."""

from __future__ import annotations

from itertools import pairwise
from typing import Any
from xml.etree import ElementTree

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dashboard.test_drawing import MARKUP, map_of
from lamella.service.dashboard.charts import MapRenderer
from lamella.service.dashboard.heat_map import (
    MAX_BARS,
    MAX_CELLS,
    MAX_COLUMNS,
    MAX_LANES,
    Bar,
    Column,
    Drawing,
    MapView,
    OnKey,
    bar_map,
    classes_of,
    columns_for,
    counts_in_order,
    heat_map,
    in_order,
    lanes_of,
)
from lamella.snapshot.columnar.zones import keys_of
from lamella.snapshot.prune.outcome import NONE, SOME
from lamella.snapshot.schema import parse_type
from lamella.snapshot.warehouse.key_axis import KeyAxis
from lamella.snapshot.warehouse.layer_map import NOT_KNOWN, LayerMap, LayerMaps


class Axes:
    """Counts that are made each time."""

    def counts(self, name: Any, make: Any) -> Any:
        """What ``make`` returns."""
        del name
        return make()


def axis_of(lows: list[int], highs: list[int], count: int) -> KeyAxis:
    """An axis of whole numbers from 0, of which each is a bound."""
    dtype = parse_type("int64")
    keys = keys_of(dtype, list(range(count)))
    low, high = (np.array(each, dtype=np.int32) for each in (lows, highs))
    return KeyAxis(column=MARKUP, dtype=dtype, points=keys, low=low, high=high)


def link(**part: Any) -> str:
    """An address with what it is a part of."""
    return "?" + "&".join(f"{name}={value}" for name, value in part.items())


def drawing_of(layer_map: LayerMap, axis: KeyAxis, measure: Any = "depth", verdicts: Any = None) -> OnKey:
    """The whole of an axis."""
    colour: Any = "depth" if measure == "width" else measure
    view = MapView(layer_map, MapRenderer(layer_map, colour, verdicts), measure, verdicts)
    assert axis.whole is not None
    return OnKey.of(view, axis, axis.whole, Axes(), None, link)  # type: ignore[arg-type]


def svg_of(drawing: Drawing) -> ElementTree.Element:
    """The picture, which is well formed, and shows nothing outside of itself."""
    ElementTree.fromstring(str(drawing.labels))  # noqa: S314  # our own text
    root = ElementTree.fromstring(str(drawing.picture))  # noqa: S314  # our own text
    for rect in root.iter("rect"):
        left, wide = (float(rect.attrib[name].removesuffix("%")) for name in ("x", "width"))
        assert -0.01 <= left <= left + wide <= 100.1
        assert 0 <= float(rect.attrib["y"]) < float(root.attrib["height"])
    return root


def cells_of(root: ElementTree.Element) -> list[ElementTree.Element]:
    """The rectangles that stand for blocks."""
    return [rect for rect in root.iter("rect") if rect.attrib["class"] != "hit"]


@given(st.lists(st.tuples(st.integers(0, 300), st.integers(0, 40)), min_size=MAX_BARS + 1, max_size=MAX_BARS + 40))
def test_cells_count_the_blocks_of_each_part(positions: list[tuple[int, int]]) -> None:
    """Each column has as many blocks as a scan finds in its part, and a picture is not larger than it may be."""
    lows, highs = [low for low, _ in positions], [low + wide for low, wide in positions]
    layer_map = map_of([len(positions)])
    found = drawing_of(layer_map, axis_of(lows, highs, 341))
    assert not found.is_bars
    cells = cells_of(svg_of(found.drawing))
    assert len(cells) <= MAX_CELLS
    assert len(found.lines) <= MAX_COLUMNS
    for text, _ in found.lines:
        part, _, rest = text.partition(": ")
        low, _, high = part.partition(" to ")
        start, end = int(low), int(high or low)
        expected = sum(1 for a, b in zip(lows, highs, strict=True) if a <= end and b >= start)
        assert rest.startswith("no block" if not expected else f"{expected:,} block"), text


def test_a_filter_dims_cells_and_says_how_many_blocks_are_selected() -> None:
    """Cells without a kept block are dimmed; the others are coloured by those that are kept, or by their share."""
    count = 2 * (MAX_BARS + 1)
    lows = [number % 10 for number in range(count)]
    verdicts = np.array([SOME if low < 5 else NONE for low in lows], dtype=np.uint8)
    layer_map, axis = map_of([count]), axis_of(lows, lows, 10)
    found = drawing_of(layer_map, axis, "depth", verdicts)
    classes = [cell.attrib["class"] for cell in cells_of(svg_of(found.drawing))]
    assert ["dim" in name for name in classes] == [False] * 5 + [True] * 5
    assert found.lines[0][0].startswith(f"0: {lows.count(0)} blocks, {lows.count(0)} kept")
    assert ", 0 kept" in found.lines[9][0]
    by_share = drawing_of(layer_map, axis, "match", verdicts)
    assert [cell.attrib["class"] for cell in cells_of(svg_of(by_share.drawing))] == ["q7"] * 5 + ["none"] * 5


def test_few_blocks_are_bars_with_their_bounds() -> None:
    """From the minimum to the maximum, in lanes; markup in names stays text; a filter dims what it skips."""
    layer_map = map_of([2, 1])
    found = drawing_of(
        layer_map, axis_of([0, 2, -1], [3, 4, 5], 5), "depth", np.array([SOME, NONE, SOME], dtype=np.uint8)
    )
    assert found.is_bars
    root = svg_of(found.drawing)
    texts = [link.attrib["aria-label"] for link in root.iter("a")]
    assert {text.rpartition("; ")[2] for text in texts} == {f"{MARKUP} 0 to 3", f"{MARKUP} 2 to 4", f"{MARKUP} ? to ?"}
    assert {link.attrib["href"] for link in root.iter("a")} == {"?zoom=0.0", "?zoom=0.1", "?zoom=1.0"}
    assert sum("dim" in cell.attrib["class"] for cell in cells_of(root)) == 1


@given(st.lists(st.tuples(st.floats(0, 1), st.floats(0, 0.5)), max_size=60))
def test_bars_in_one_lane_do_not_overlap(pairs: list[tuple[float, float]]) -> None:
    """And no more lanes are used than bars are on top of each other somewhere."""
    bars = sorted((start, start + wide) for start, wide in pairs)
    lanes = lanes_of(bars)
    for lane in set(lanes):
        mine = [bar for bar, at in zip(bars, lanes, strict=True) if at == lane]
        assert all(before[1] <= after[0] for before, after in pairwise(mine))
    # a bar is drawn with a least width
    wide = [(start, max(end, start + 0.0025)) for start, end in bars]
    deepest = max((sum(1 for a, b in wide if a <= start < b) for start, _ in wide), default=0)
    assert max(lanes, default=-1) + 1 <= deepest


def test_bars_that_would_be_too_many_on_top_of_each_other_are_no_picture() -> None:
    """Then there is a heat map instead."""
    bars = [Bar(0, 1, "q1", "t", "?") for _ in range(MAX_LANES + 1)]
    assert bar_map(bars, (), (), title="t") is None
    assert bar_map(bars[1:], (), (), title="t") is not None
    found = drawing_of(map_of([MAX_LANES + 1]), axis_of([0] * (MAX_LANES + 1), [9] * (MAX_LANES + 1), 10))
    assert not found.is_bars


@pytest.mark.parametrize("deepest", [1, 2, 10, 11, 1_000_000])
def test_every_depth_has_a_row(deepest: int) -> None:
    """Up to ten a row each, beyond powers of two; the number of cells stays bounded."""
    layer_map = map_of([3], depth=deepest)
    classes = classes_of(layer_map, "depth")
    assert classes.of_block.tolist() == [len(classes.labels) - 1] * 3
    assert columns_for(classes) * len(classes.labels) <= MAX_CELLS
    assert str(deepest) in classes.texts[-1] or deepest > 10_000


def test_depths_that_were_not_evaluated_have_a_row() -> None:
    """Of a sample the others are not said to be of any depth."""
    whole = map_of([3], depth=2)
    depth = np.array([2, NOT_KNOWN, 1], dtype=np.int32)
    sampled = msgspec.structs.replace(whole, depth=depth, is_exact=False)
    classes = classes_of(sampled, "depth")
    assert [classes.texts[row] for row in classes.of_block] == ["depth 2", "depth not evaluated", "depth 1"]


@given(st.lists(st.integers(0, 4), min_size=1, max_size=300), st.data())
def test_segments_in_their_order_have_all_their_blocks(blocks: list[int], data: st.DataObject) -> None:
    """Empty segments and parts of the table too: columns add up to the blocks of their segments."""
    first = data.draw(st.integers(0, len(blocks) - 1))
    count = data.draw(st.integers(1, len(blocks) - first))
    layer_map = map_of(blocks)
    verdicts = np.array([data.draw(st.sampled_from([NONE, SOME])) for _ in range(sum(blocks))], dtype=np.uint8)
    classes = classes_of(layer_map, "size")
    tiles = LayerMaps.tiles(layer_map, columns_for(classes), segments=slice(first, first + count))
    inside = (layer_map.segment >= first) & (layer_map.segment < first + count)
    counts = counts_in_order(tiles, classes, inside)
    assert counts.sum(axis=0).tolist() == tiles.block_count.tolist()
    view = MapView(layer_map, MapRenderer(layer_map, "size", verdicts), "size", verdicts)
    drawing = in_order(view, first, count, Axes(), link)  # type: ignore[arg-type]
    svg_of(drawing)
    selected = LayerMaps.selected_blocks(verdicts, tiles)
    for number, text in enumerate(drawing.texts):
        total = int(tiles.block_count[number])
        assert f": {total} block" in text if total else text.endswith("no block")
        assert not total or f"{int(selected[number])} kept" in text


def test_a_column_without_an_address_is_no_link() -> None:
    """A part that cannot be divided leads nowhere."""
    layer_map = map_of([1])
    classes = classes_of(layer_map, "depth")
    columns = [Column(0, 1, MARKUP, None)]
    drawing = heat_map(columns, [(0.0, MARKUP)], classes, np.array([[0], [0], [1]]), None, by_share=False, title=MARKUP)
    root = svg_of(drawing)
    assert not list(root.iter("a"))
    assert root.attrib["aria-label"] == MARKUP
