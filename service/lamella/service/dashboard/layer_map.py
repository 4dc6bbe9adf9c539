"""The layer map of a table: segments, their blocks, a block and its pages."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, cast, get_args

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from lamella.service.catalog import Catalog
from lamella.service.dashboard import words
from lamella.service.dashboard.charts import MAX_TILES, NESTED_SEGMENTS, Colour, MapRenderer, step_of
from lamella.service.dashboard.heat_map import MapView, Measure, OnKey, in_order
from lamella.service.dashboard.key_scale import neighbours, range_text, value_of
from lamella.service.dashboard.key_scale import text_of as text_of_value
from lamella.service.dashboard.pages import ROOT, Page, Pages, at_of, number_of, one_of, table_of, text_of, with_query
from lamella.service.history.history import History, trusted_manifests
from lamella.service.process.threads import Threads
from lamella.snapshot.cluster.key import MAX_CLUSTER_COLUMNS
from lamella.snapshot.errors import InvalidRequest, SegmentNotFound
from lamella.snapshot.manifest import FEATURES, SnapshotPointer
from lamella.snapshot.schema.column import split_key
from lamella.snapshot.warehouse import Warehouse
from lamella.snapshot.warehouse.block_view import PageView
from lamella.snapshot.warehouse.key_axis import KeyAxis, Window
from lamella.snapshot.warehouse.layer_map import LayerMap, LayerMaps
from lamella.snapshot.wire import PruneRequest
from lamella.snapshot.wire.operation import on_table

_TEXT: Final = re.compile(r"(?P<first>\d{1,9})(-(?P<last>\d{1,9})|\.(?P<block>\d{1,9}))?", re.ASCII)


class Zoom(msgspec.Struct, frozen=True):
    """A part of the map. ``block`` None: no single block."""

    first: int
    count: int
    block: int | None = None

    def __str__(self) -> str:
        if self.block is not None:
            return f"{self.first}.{self.block}"
        return str(self.first) if self.count == 1 else f"{self.first}-{self.first + self.count - 1}"


def zoom_of(text: str, segment_count: int) -> Zoom | None:
    """Parse the part of a map; None: the whole map. Raises InvalidRequest, SegmentNotFound."""
    if not text:
        return None
    found = _TEXT.fullmatch(text)
    if found is None:
        raise InvalidRequest(f"{text!r} is not a part of a map; write 12, 12-40 or 12.7", parameter="zoom")
    first = int(found["first"])
    last = int(found["last"] or first)
    if not first <= last < segment_count:
        raise SegmentNotFound(
            f"the snapshot has {segment_count} segments, numbered from 0; there is no segment {text}", zoom=text
        )
    return Zoom(first, last - first + 1, None if found["block"] is None else int(found["block"]))


#: What the horizontal axis shows: the values of the key's columns, or the order of segments.
_AXES: Final = ("key", *(f"key{number + 1}" for number in range(MAX_CLUSTER_COLUMNS)), "order")
#: How parts of the axis are spaced; and whether they are even, None: by the values.
_SCALES: Final = ("value", "even")
_EVEN: Final[dict[str, bool | None]] = {"": None, "value": False, "even": True}
_MEASURES: Final = cast("tuple[str, ...]", get_args(Measure))
#: Rows of the list below a map.
_LISTED: Final = 25
#: Pages and columns of a block in the lists, and pages in the chart.
_PAGES_LISTED: Final = 200
_COLUMNS_LISTED: Final = 300
_PAGES_SHOWN: Final = 1_000


class MapPages:
    """Pages of maps, and of blocks."""

    def __init__(
        self, *, catalog: Catalog, readers: Threads, history: History, warehouse: Warehouse, pages: Pages
    ) -> None:
        self._catalog = catalog
        self._readers = readers
        self._history = history
        self._warehouse = warehouse
        self._pages = pages

    async def show(self, request: Request) -> Response:
        found = await self._readers.run(lambda: self._found(request))
        template = "block.html" if "block" in found else "map.html"
        title = f"Layer map of {found['namespace']}.{found['table']}"
        return self._pages.html(request, template, found, title=title)

    def pages(self) -> tuple[Page, ...]:
        return (Page(ROOT + "/tables/{namespace}/{table}/map", self.show, "ui_map", on_table("read")),)

    def _found(self, request: Request) -> Mapping[str, Any]:
        table, at = table_of(self._catalog, request), at_of(request)
        pointer = at.pointer(self._history, table)
        columns = split_key(request.query_params.get("key", ""))
        with trusted_manifests():
            layer_map = self._warehouse.layer_maps.of(pointer, columns)
            zoom = zoom_of(request.query_params.get("zoom", ""), len(layer_map.segment_id))
            common = {
                "namespace": table.namespace,
                "table": table.name,
                "tab": "map",
                "at": at.text,
                "snapshot_id": pointer.snapshot_id,
                "timestamp_ms": pointer.timestamp_ms,
                "filter": text_of(request, "filter"),
                "zoom": zoom,
            }
            if zoom is not None and zoom.block is not None:
                return {**common, **self._block(request, pointer, layer_map, zoom)}
            return {**common, **self._map(request, pointer, layer_map, zoom, common["filter"])}

    def _map(
        self, request: Request, pointer: SnapshotPointer, layer_map: LayerMap, zoom: Zoom | None, text: Any
    ) -> dict[str, Any]:
        chosen = one_of(request, "colour", ("", *_MEASURES))
        axis_name = one_of(request, "axis", ("", *_AXES))
        problem, verdicts, selected_blocks = None, None, None
        if text:
            try:
                prune_request = PruneRequest(filter=text, time_zone="UTC", reader_features=FEATURES)
                verdicts = LayerMaps.verdicts(self._warehouse.find(pointer, prune_request), layer_map)
                selected_blocks = int((verdicts != 0).sum())
            except InvalidRequest as error:
                problem = error
        by_default: Measure = "depth" if layer_map.depth is not None else "size"
        measure = cast("Measure", chosen or ("match" if text else by_default))
        if measure == "match" and verdicts is None:
            measure = by_default
        colour = cast("Colour", by_default if measure == "width" else measure)
        view = MapView(layer_map, MapRenderer(layer_map, colour, verdicts), measure, verdicts)
        shown = {
            "colour": measure,
            "problem": problem,
            "selected_blocks": selected_blocks,
            "key": layer_map.columns,
            "asked_key": request.query_params.get("key", ""),
            "depth_of": layer_map.depth_of,
            "is_exact": layer_map.is_exact,
            "has_depth": layer_map.depth is not None,
            "block_count": len(layer_map),
            "segment_count": len(layer_map.segment_id),
            "axis": "order",
        }
        if axis_name != "order" and zoom is None and layer_map.columns:
            number = int(axis_name.removeprefix("key") or 1) - 1
            axis = self._warehouse.key_axes.of(pointer, layer_map.columns, number)
            if axis.whole is not None:
                return {**shown, "axis": f"key{number + 1}", **self._on_key(request, view, axis, axis.whole, problem)}
        return {**shown, **self._in_order(request, view, zoom)}

    def _on_key(
        self, request: Request, view: MapView, axis: KeyAxis, whole: Window, problem: InvalidRequest | None
    ) -> dict[str, Any]:
        """Return the part of the map on the values of a column of the key."""
        scale = one_of(request, "scale", ("", *_SCALES))
        try:
            window = _window_of(request, axis, whole)
        except InvalidRequest as error:
            window, problem = whole, problem or error
        found = OnKey.of(view, axis, window, self._warehouse.key_axes, _EVEN[scale], _linked(request, view))
        start = number_of(request, "row")
        return {
            "problem": problem,
            "scale": scale,
            "scales": _SCALES,
            "column": axis.column,
            "low": text_of_value(axis.dtype, window.low),
            "high": text_of_value(axis.dtype, window.high),
            "is_whole": window == whole,
            "window_text": range_text(axis.dtype, window),
            "ways": [(text, _part(axis, part)) for text, part in neighbours(axis, window)],
            "without_value": int(((axis.low > axis.high) & (view.layer_map.row_count > 0)).sum()),
            "without_bound": int(((axis.low < 0) | (axis.high >= axis.point_count)).sum()),
            "blocks_shown": found.block_count,
            "is_bars": found.is_bars,
            "is_even": found.is_even,
            "drawing": found.drawing,
            "listing": _listing(found.lines[start : start + _LISTED], start, len(found.lines)),
        }

    def _in_order(self, request: Request, view: MapView, zoom: Zoom | None) -> dict[str, Any]:
        """Return the part of the map in the order of segments."""
        layer_map, painter = view.layer_map, view.painter
        segments = len(layer_map.segment_id)
        first, count = (0, segments) if zoom is None else (zoom.first, zoom.count)
        is_segment = zoom is not None and zoom.count == 1
        is_nested = zoom is None and segments <= NESTED_SEGMENTS and len(layer_map) <= MAX_TILES
        from_block, start = number_of(request, "from"), number_of(request, "row")
        blocks = 0
        if is_segment:
            whole = layer_map.blocks(first)
            blocks = whole.stop - whole.start
            listed, total = painter.blocks(first, start, _LISTED), blocks
        else:
            listed, total = painter.segments(first + start, max(min(_LISTED, count - start), 0)), count
        link = _linked(request, view)
        drawing = None if is_segment or is_nested else in_order(view, first, count, self._warehouse.key_axes, link)
        return {
            "legend": painter.legend() if drawing is None else drawing.legend,
            "drawing": drawing,
            "is_segment": is_segment,
            "groups": painter.groups() if is_nested else (),
            "tiles": painter.blocks(first, from_block) if is_segment else (),
            "first": first,
            "count": count,
            "from_block": from_block,
            "max_tiles": MAX_TILES,
            "blocks_in_segment": blocks,
            "listing": _listing([(tile.text, link(zoom=tile.zoom)) for tile in listed], start, total),
        }

    def _block(self, request: Request, pointer: SnapshotPointer, layer_map: LayerMap, zoom: Zoom) -> dict[str, Any]:
        views = self._warehouse.block_views
        segment_id, number = layer_map.segment_id[zoom.first], zoom.block or 0
        block = views.block(pointer, segment_id, number)
        names = [column.name for column in block.columns]
        shown = msgspec.structs.replace(block, columns=block.columns[:_COLUMNS_LISTED])
        column = request.query_params.get("column", "") or (layer_map.columns[0] if layer_map.columns else names[0])
        pages = views.pages(pointer, segment_id, number, column)
        max_bytes = max((page.size_bytes or 0 for page in pages), default=0)
        start = int(layer_map.blocks(zoom.first).start)
        return {
            "block": shown,
            "column_count": len(names),
            "column": column,
            "page_list": pages[:_PAGES_LISTED],
            "page_count": len(pages),
            "strip": [
                (
                    page.row_count,
                    None if page.reason else step_of(page.size_bytes or 0, max_bytes + 1),
                    _page_text(page),
                )
                for page in pages[:_PAGES_SHOWN]
            ],
            "depth": None if layer_map.depth is None else int(layer_map.depth[start + number]),
            "blocks_in_segment": layer_map.blocks(zoom.first).stop - start,
        }


def _linked(request: Request, view: MapView) -> Callable[..., str]:
    """Return a function for the address of a part of the map, of the snapshot that is shown."""
    here = with_query(request)
    # The parameters that name a part; each link gives those of its own.
    nothing = dict.fromkeys(("low", "high", "zoom", "row", "from"))
    return lambda **part: here(**{**nothing, "at": view.layer_map.snapshot_id, **part})


def _part(axis: KeyAxis, window: Window | None) -> dict[str, str | None]:
    """Return the parameters of a part of an axis; None: of the whole axis."""
    if window is None:
        return {"low": None, "high": None}
    return {"low": text_of_value(axis.dtype, window.low), "high": text_of_value(axis.dtype, window.high)}


def _window_of(request: Request, axis: KeyAxis, whole: Window) -> Window:
    """Return the values that an address names; raises InvalidRequest."""
    low, high = (request.query_params.get(name, "").strip() for name in ("low", "high"))
    low_value = value_of(axis.dtype, low) if low else whole.low
    high_value = value_of(axis.dtype, high, is_upper=True) if high else whole.high
    if low_value > high_value:  # type: ignore[operator]  # both are values of one type
        raise InvalidRequest(f"the part of the key begins at {low!r} and ends at {high!r}, which is less", low=low)
    return Window(low_value, high_value)


def _listing(lines: Sequence[tuple[str, str]], start: int, total: int) -> dict[str, Any]:
    """Return one page of the map as a list: texts and addresses."""
    return {
        "lines": lines,
        "start": start,
        "total": total,
        "before": max(start - _LISTED, 0) if start else None,
        "after": start + _LISTED if start + _LISTED < total else None,
    }


def _page_text(page: PageView) -> str:
    text = f"rows {words.count(page.file_row)} to {words.count(page.file_row + page.row_count - 1)}"
    if page.min is None and page.max is None:
        return text
    return f"{text}: from {page.min or '?'} to {page.max or '?'}"
