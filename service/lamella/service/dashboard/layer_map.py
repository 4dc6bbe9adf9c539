"""The layer map of a table: segments, their blocks, a block and its pages."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final, cast, get_args

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from lamella.service.catalog import Catalog
from lamella.service.dashboard import words
from lamella.service.dashboard.charts import MAX_TILES, NESTED_SEGMENTS, STEPS, Colour, MapRenderer, step_of
from lamella.service.dashboard.pages import ROOT, Page, Pages, at_of, number_of, one_of, table_of, text_of
from lamella.service.history.history import History, trusted_manifests
from lamella.service.process.threads import Threads
from lamella.snapshot.errors import InvalidRequest, SegmentNotFound
from lamella.snapshot.manifest import FEATURES, SnapshotPointer
from lamella.snapshot.warehouse import Warehouse
from lamella.snapshot.warehouse.block_view import PageView
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


_COLOURS: Final = cast("tuple[str, ...]", get_args(Colour))
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
        columns = tuple(filter(None, (part.strip() for part in request.query_params.get("key", "").split(","))))
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
        chosen = one_of(request, "colour", ("", *_COLOURS))
        problem, verdicts, selected_blocks = None, None, None
        if text:
            try:
                prune_request = PruneRequest(filter=text, time_zone="UTC", reader_features=FEATURES)
                verdicts = LayerMaps.verdicts(self._warehouse.find(pointer, prune_request), layer_map)
                selected_blocks = int((verdicts != 0).sum())
            except InvalidRequest as error:
                problem = error
        colour = cast("Colour", chosen or ("match" if text else "depth" if layer_map.depth is not None else "size"))
        if colour == "match" and verdicts is None:
            colour = "depth" if layer_map.depth is not None else "size"
        painter = MapRenderer(layer_map, colour, verdicts)
        segments = len(layer_map.segment_id)
        first, count = (0, segments) if zoom is None else (zoom.first, zoom.count)
        is_segment = zoom is not None and zoom.count == 1
        is_nested = zoom is None and segments <= NESTED_SEGMENTS and len(layer_map) <= MAX_TILES
        from_block = number_of(request, "from")
        blocks = 0
        if is_segment:
            whole = layer_map.blocks(first)
            blocks = whole.stop - whole.start
        return {
            "colour": colour,
            "colours": _COLOURS,
            "problem": problem,
            "selected_blocks": selected_blocks,
            "key": layer_map.columns,
            "asked_key": request.query_params.get("key", ""),
            "depth_of": layer_map.depth_of,
            "is_exact": layer_map.is_exact,
            "has_depth": layer_map.depth is not None,
            "block_count": len(layer_map),
            "segment_count": segments,
            "legend": painter.legend(of_shares=not (is_segment or is_nested)),
            "steps": STEPS,
            "is_segment": is_segment,
            "groups": painter.groups() if is_nested else (),
            "tiles": painter.blocks(first, from_block)
            if is_segment
            else ()
            if is_nested
            else painter.segments(first, count),
            "first": first,
            "count": count,
            "from_block": from_block,
            "max_tiles": MAX_TILES,
            "blocks_in_segment": blocks,
            "listing": self._listing(request, layer_map, painter, first, count, is_segment),
        }

    def _listing(
        self,
        request: Request,
        layer_map: LayerMap,
        painter: MapRenderer,
        first: int,
        count: int,
        is_segment: bool,
    ) -> dict[str, Any]:
        """Return the map as a list, one page of it."""
        start = number_of(request, "row")
        if is_segment:
            total = int(layer_map.bounds[first + 1] - layer_map.bounds[first])
            shown = painter.blocks(first, start, _LISTED)
        else:
            total = count
            shown = painter.segments(first + start, max(min(_LISTED, count - start), 0))
        return {
            "tiles": shown,
            "start": start,
            "total": total,
            "before": max(start - _LISTED, 0) if start else None,
            "after": start + _LISTED if start + _LISTED < total else None,
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


def _page_text(page: PageView) -> str:
    text = f"rows {words.count(page.file_row)} to {words.count(page.file_row + page.row_count - 1)}"
    if page.min is None and page.max is None:
        return text
    return f"{text}: from {page.min or '?'} to {page.max or '?'}"
