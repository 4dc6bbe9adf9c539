"""Page statistics: zone maps and locations of the pages of blocks, stored in a sidecar of each segment."""

from lamella.snapshot.pages.cell import Cell
from lamella.snapshot.pages.sidecar import PageSidecar, build_pages
from lamella.snapshot.pages.source import BlockPages, PageSource, SegmentPages

__all__ = ["BlockPages", "Cell", "PageSidecar", "PageSource", "SegmentPages", "build_pages"]
