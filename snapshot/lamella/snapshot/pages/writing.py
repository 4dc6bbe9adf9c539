"""Writing the page companions of a snapshot's segments."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import accumulate

import msgspec

from lamella.snapshot.errors import AlreadyExists, ManifestError, ObjectNotFound
from lamella.snapshot.layout.store import Store
from lamella.snapshot.manifest import Segment, SegmentRef
from lamella.snapshot.pages.companion import PageCompanion, build_pages, join_pages
from lamella.snapshot.pages.source import PageSource, SegmentPages
from lamella.snapshot.schema import Schema

#: Called once a block with its location, and why it has no page statistics (None: it has).
OnBlock = Callable[[str, str | None], None]


class PagesBuilt(msgspec.Struct, frozen=True, kw_only=True):
    """What was built: segments written and skipped (they had one), their blocks, those left out by reason, bytes."""

    segments: int = 0
    skipped: int = 0
    blocks: int = 0
    left_out: dict[str, int] = {}
    size_bytes: int = 0


def write_page_companions(
    store: Store,
    source: PageSource,
    schema: Schema,
    segments: Iterable[SegmentRef],
    read_segment: Callable[[SegmentRef], Segment],
    *,
    rebuild: bool = False,
    on_done: OnBlock | None = None,
) -> PagesBuilt:
    """Write what is missing; a companion that cannot be used counts as missing. See ``Warehouse.build_pages``."""
    written = skipped = blocks = size_bytes = 0
    left_out: dict[str, int] = {}

    def counted(location: str, reason: str | None) -> None:
        if reason is not None:
            left_out[reason] = left_out.get(reason, 0) + 1
        if on_done is not None:
            on_done(location, reason)

    for ref in segments:
        pages = SegmentPages(ref.segment_id, ref.manifest)
        if not rebuild and _is_there(store, pages):
            skipped += 1
            continue
        segment = read_segment(ref)
        data = build_pages(store, schema, ref.segment_id, ref.manifest.sha256, segment.blocks, on_done=counted)
        store.delete(pages.location)
        try:
            store.put(pages.location, data)
        except AlreadyExists:  # another builder was faster, with the same
            skipped += 1
        else:
            written += 1
            blocks += len(segment.blocks)
            size_bytes += len(data)
        source.forget(pages)
    return PagesBuilt(segments=written, skipped=skipped, blocks=blocks, left_out=left_out, size_bytes=size_bytes)


def carry_page_companions(store: Store, made: Sequence[SegmentRef], of: Sequence[SegmentRef]) -> None:
    """Give segments the page statistics of others that they were made of: the blocks of ``of``, one after another.

    As :func:`take_page_companions`.
    """
    places = [(ref, number) for ref in of for number in range(ref.summary.block_count)]
    stops = list(accumulate(ref.summary.block_count for ref in made))
    starts = [0, *stops[:-1]]
    take_page_companions(
        store, [(ref, places[start:stop]) for ref, start, stop in zip(made, starts, stops, strict=True)]
    )


def take_page_companions(store: Store, made: Sequence[tuple[SegmentRef, Sequence[tuple[SegmentRef, int]]]]) -> None:
    """Give segments the page statistics of others: of each block the segment that it was in, and its number there.

    Nothing is written unless each of those has a page companion that can be used, and all are of the same columns and
    types; then the companions are missing until somebody builds them.

    Raises:
        StoreError: as the store says.
    """
    opened: dict[str, PageCompanion] = {}
    try:
        for ref in {ref.segment_id: ref for _, places in made for ref, _ in places}.values():
            pages = SegmentPages(ref.segment_id, ref.manifest)
            part = PageCompanion(store, pages.location, pages.segment_id, pages.manifest.sha256)
            if len(part) != ref.summary.block_count:
                return
            opened[ref.segment_id] = part
        for ref, places in made:
            parts = [(opened[old.segment_id], number) for old, number in places]
            data = join_pages(parts, ref.segment_id, ref.manifest.sha256)
            if data is None:
                return
            store.put(SegmentPages(ref.segment_id, ref.manifest).location, data)
    except (ObjectNotFound, ManifestError):
        return


def _is_there(store: Store, pages: SegmentPages) -> bool:
    try:
        PageCompanion(store, pages.location, pages.segment_id, pages.manifest.sha256)
    except (ObjectNotFound, ManifestError):
        return False
    return True
