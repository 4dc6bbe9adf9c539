"""The sources of page statistics, nearest first, and writing the page sidecars of a snapshot.

The number of files read per request is limited: without a page sidecar a broad filter would otherwise read every footer
of the table. Blocks beyond the limit are reported with the reason and returned whole.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Final, TypeVar

import msgspec
from cachetools import LRUCache, TTLCache

from lamella.snapshot.cache import Counts
from lamella.snapshot.concurrency import ContextThreadPool
from lamella.snapshot.errors import AlreadyExists, LamellaError, ManifestError, ObjectNotFound
from lamella.snapshot.manifest import ObjectRef, Segment, SegmentRef
from lamella.snapshot.pages.build import KnownBlock, group_rows, known_blocks, read_block_footer, read_cells, why
from lamella.snapshot.pages.cell import Cell
from lamella.snapshot.pages.sidecar import PageSidecar, build_pages, join_pages
from lamella.snapshot.parquet.footer import Footer
from lamella.snapshot.schema import Leaf, Schema
from lamella.snapshot.storage.store import Store

#: How long a missing page sidecar is remembered, in seconds.
ABSENT_S: Final = 60.0
#: Memory of a decoded footer relative to its bytes.
_FOOTER_FACTOR: Final = 12
#: Memory of a block's manifest entry per chunk, in bytes.
_LOCATION_BYTES: Final = 200
#: Memory of a note that a block has no cell of a column.
_NOTHING_BYTES: Final = 300


class SegmentPages(msgspec.Struct, frozen=True):
    """A segment, as the key of page statistics."""

    segment_id: str
    manifest: ObjectRef

    @property
    def location(self) -> str:
        """Returns the location of its page sidecar: next to its manifest."""
        return self.manifest.location.removesuffix(".json") + ".pages"


class BlockPages(msgspec.Struct, frozen=True, kw_only=True):
    """A block's cells by column id, with the rows of its row groups (empty: unknown).

    ``reason``: why there are no cells. A column that the block's file lacks has no cell either.
    """

    group_rows: tuple[int, ...] = ()
    content_id: str | None = None
    cells: dict[int, Cell] = {}
    reason: str | None = None


class Usage(msgspec.Struct):
    """The work of a request: cells from memory and from sidecars, files read; blocks left out, by reason."""

    cached: int = 0
    from_sidecars: int = 0
    files_read: int = 0
    reasons: Counter[str] = msgspec.field(default_factory=Counter)


class _Known(msgspec.Struct, frozen=True):
    """The blocks of a segment without a page sidecar."""

    blocks: tuple[KnownBlock, ...]


class _NoCell(msgspec.Struct, frozen=True):
    """A block has no cell of a column."""


_CachedValue = PageSidecar | _Known | Footer | Cell | _NoCell
_Kind = TypeVar("_Kind", PageSidecar, _Known, Footer)
_Missing = dict[int, list[tuple[Leaf, bool]]]


class _Cache(LRUCache[tuple[str, ...], tuple[_CachedValue, int]]):
    """Values with their sizes; counts evictions."""

    def __init__(self, max_bytes: int, counts: Counts) -> None:
        super().__init__(max_bytes, getsizeof=lambda entry: entry[1])
        self._counts = counts

    def popitem(self) -> tuple[tuple[str, ...], tuple[_CachedValue, int]]:
        """Remove the least recently used value."""
        self._counts.evicted += 1
        return super().popitem()


class PageSource:
    """Page statistics of a warehouse. May be shared between threads.

    ``read_manifest`` returns the bytes of a segment's manifest, their hash checked; ``cache_bytes`` limits the cache in
    memory; a request may open ``files`` files, ``workers`` at a time; ``timer`` returns seconds.
    """

    def __init__(
        self,
        store: Store,
        read_manifest: Callable[[ObjectRef], bytes],
        *,
        cache_bytes: int = 64 << 20,
        files: int = 256,
        workers: int = 8,
        timer: Callable[[], float] = time.monotonic,
    ) -> None:
        self._store = store
        self._read_manifest = read_manifest
        self._files = files
        self._workers = workers
        self._lock = threading.Lock()
        self._counts = Counts()
        self._cache = _Cache(cache_bytes, self._counts)
        self._unusable: TTLCache[str, str] = TTLCache(4096, ABSENT_S, timer)  # why, or empty if there is none

    def pages(
        self,
        segment: SegmentPages,
        rows: Sequence[int],
        *,
        zoned: Sequence[Leaf],
        placed: Sequence[Leaf],
        usage: Usage,
    ) -> list[BlockPages]:
        """Returns what is known of the pages of some blocks of a segment, given by their rows in its sidecar.

        ``zoned`` are the columns whose statistics are needed, ``placed`` those of which only page locations are needed.
        ``usage`` belongs to one request: it is updated, and limits how many files may still be read.
        """
        wanted = {leaf.id: (leaf, False) for leaf in placed} | {leaf.id: (leaf, True) for leaf in zoned}
        cells: dict[int, dict[int, Cell]] = {row: {} for row in rows}
        missing: _Missing = {}
        for row in rows:
            for leaf, zones in wanted.values():
                found = self._cell(segment, row, leaf, zones=zones)
                if found is None:
                    missing.setdefault(row, []).append((leaf, zones))
                elif isinstance(found, Cell):
                    cells[row][leaf.id] = found
                    usage.cached += 1
        sidecar = self._sidecar(segment, usage)
        if sidecar is not None:
            try:
                self._from_sidecar(segment, sidecar, missing, cells, usage)
            except (ManifestError, ObjectNotFound) as error:
                self._give_up(segment, error, usage)
                sidecar = None
        if sidecar is not None:
            return [self._noted(usage, cells[row], *sidecar.block(row)) for row in rows]
        return self._from_files(segment, rows, missing, cells, usage)

    @property
    def limit_bytes(self) -> int:
        """Returns the memory limit."""
        return int(self._cache.maxsize)

    def counts(self) -> Counts:
        """Returns the counters of the cache."""
        with self._lock:
            return msgspec.structs.replace(self._counts, size_bytes=int(self._cache.currsize))

    def forget(self, segment: SegmentPages) -> None:
        """Forget the cached state of a segment, since its page sidecar may have been created or deleted."""
        with self._lock:
            self._unusable.pop(segment.segment_id, None)
            for key in [key for key in self._cache if key[1] == segment.segment_id]:
                del self._cache[key]

    def _from_sidecar(
        self,
        segment: SegmentPages,
        sidecar: PageSidecar,
        missing: _Missing,
        cells: dict[int, dict[int, Cell]],
        usage: Usage,
    ) -> None:
        by_leaf: dict[int, tuple[Leaf, list[int]]] = {}
        for row, needs in missing.items():
            for leaf, _ in needs:
                if sidecar.has(leaf.id):
                    by_leaf.setdefault(leaf.id, (leaf, []))[1].append(row)
        for leaf, unsorted in by_leaf.values():
            rows = sorted(unsorted)
            for row, cell in zip(rows, sidecar.cells(leaf.id, leaf.dtype, rows), strict=True):
                self._keep_cell(segment, row, leaf, cell, zones=True)
                if cell is not None:
                    cells[row][leaf.id] = cell
                    usage.from_sidecars += 1

    def _from_files(
        self,
        segment: SegmentPages,
        rows: Sequence[int],
        missing: _Missing,
        cells: dict[int, dict[int, Cell]],
        usage: Usage,
    ) -> list[BlockPages]:
        known = self._known(segment)
        allowed = max(self._files - usage.files_read, 0)
        chosen = list(missing)[:allowed]
        usage.files_read += len(chosen)
        problems: dict[int, str] = dict.fromkeys(
            list(missing)[allowed:], f"no page sidecar, and {self._files} files were opened for the request"
        )
        groups: dict[int, tuple[int, ...]] = {}

        def one(row: int) -> tuple[tuple[int, ...], dict[int, Cell]] | str:
            try:
                footer = self._footer(segment, row, known[row])
                return group_rows(footer), read_cells(
                    self._store,
                    known[row],
                    footer,
                    [leaf for leaf, zones in missing[row] if zones],
                    [leaf for leaf, zones in missing[row] if not zones],
                )
            except LamellaError as error:
                return why(error)

        for row, outcome in zip(chosen, self._each(one, chosen), strict=True):
            if isinstance(outcome, str):
                problems[row] = outcome
                continue
            groups[row], found = outcome
            cells[row].update(found)
            for leaf, zones in missing[row]:
                self._keep_cell(segment, row, leaf, found.get(leaf.id), zones=zones)
        out = []
        for row in rows:
            within = groups.get(row) or (known[row].row_group_row_counts if row not in chosen else ())
            given = {} if row in problems else cells[row]
            out.append(self._noted(usage, given, within, known[row].content_id, problems.get(row)))
        return out

    def _each(
        self, one: Callable[[int], tuple[tuple[int, ...], dict[int, Cell]] | str], rows: Sequence[int]
    ) -> list[tuple[tuple[int, ...], dict[int, Cell]] | str]:
        if len(rows) < 2:
            return [one(row) for row in rows]
        with ContextThreadPool(max_workers=min(self._workers, len(rows)), thread_name_prefix="pages") as pool:
            return list(pool.map(one, rows))

    def _noted(
        self, usage: Usage, cells: dict[int, Cell], rows: tuple[int, ...], content_id: str | None, reason: str | None
    ) -> BlockPages:
        """Returns the pages of a block; counts the reasons for missing ones."""
        if reason is not None:
            usage.reasons[reason] += 1
        else:
            usage.reasons.update({cell.reason for cell in cells.values() if cell.reason is not None})
        return BlockPages(group_rows=rows, content_id=content_id, cells=cells, reason=reason)

    def _sidecar(self, segment: SegmentPages, usage: Usage) -> PageSidecar | None:
        found = self._get(("sidecar", segment.segment_id), PageSidecar)
        if found is not None:
            return found
        with self._lock:
            problem = self._unusable.get(segment.segment_id)
        if problem is not None:
            usage.reasons.update([problem] if problem else [])
            return None
        try:
            made = PageSidecar(self._store, segment.location, segment.segment_id, segment.manifest.sha256)
        except ObjectNotFound:
            with self._lock:
                self._unusable[segment.segment_id] = ""
            return None
        except ManifestError as error:
            self._give_up(segment, error, usage)
            return None
        self._keep(("sidecar", segment.segment_id), made, made.size_bytes)
        return made

    def _give_up(self, segment: SegmentPages, error: LamellaError, usage: Usage) -> None:
        """Ignore a damaged or newer page sidecar for a while, and record the reason."""
        problem = f"a page sidecar cannot be used: {error.message}"
        usage.reasons[problem] += 1
        with self._lock:
            self._unusable[segment.segment_id] = problem
            self._cache.pop(("sidecar", segment.segment_id), None)

    def _known(self, segment: SegmentPages) -> tuple[KnownBlock, ...]:
        key = ("manifest", segment.segment_id)
        found = self._get(key, _Known)
        if found is None:
            found = _Known(known_blocks(self._read_manifest(segment.manifest), segment.manifest.location))
            count = sum(len(metas) for block in found.blocks for metas in block.col_metas.values())
            self._keep(key, found, _LOCATION_BYTES * (len(found.blocks) + count))
        return found.blocks

    def _footer(self, segment: SegmentPages, row: int, block: KnownBlock) -> Footer:
        key = ("footer", segment.segment_id, str(row))
        found = self._get(key, Footer)
        if found is None:
            found = read_block_footer(self._store, block)
            self._keep(key, found, _FOOTER_FACTOR * found.footer_size)
        return found

    def _cell(self, segment: SegmentPages, row: int, leaf: Leaf, *, zones: bool) -> Cell | _NoCell | None:
        """Returns a cell from memory; one with zones also serves requests for locations only."""
        key = (segment.segment_id, str(row), str(leaf.id), str(leaf.dtype))
        with self._lock:
            found = self._cache.get(("cell", *key)) or (None if zones else self._cache.get(("location", *key)))
            self._counts.hits += found is not None
        return found[0] if found is not None and isinstance(found[0], Cell | _NoCell) else None

    def _keep_cell(self, segment: SegmentPages, row: int, leaf: Leaf, cell: Cell | None, *, zones: bool) -> None:
        kind = "cell" if zones else "location"
        key = (kind, segment.segment_id, str(row), str(leaf.id), str(leaf.dtype))
        self._keep(key, cell or _NoCell(), cell.size_bytes if cell is not None else _NOTHING_BYTES)

    def _get(self, key: tuple[str, ...], kind: type[_Kind]) -> _Kind | None:
        with self._lock:
            found = self._cache.get(key)
            self._counts.hits += found is not None
        return found[0] if found is not None and isinstance(found[0], kind) else None

    def _keep(self, key: tuple[str, ...], value: _CachedValue, size_bytes: int) -> None:
        with self._lock:
            self._counts.misses += 1
            if size_bytes <= self._cache.maxsize // 4:  # no single value may evict everything else
                self._cache[key] = (value, size_bytes)


#: Called once per block with its location, and why it has no page statistics (None: it has).
OnBlock = Callable[[str, str | None], None]


class PagesBuilt(msgspec.Struct, frozen=True, kw_only=True):
    """What was built: segments written and skipped (they had one), their blocks, those left out by reason, bytes."""

    segments: int = 0
    skipped: int = 0
    blocks: int = 0
    left_out: dict[str, int] = {}
    size_bytes: int = 0


def write_page_sidecars(
    store: Store,
    source: PageSource,
    schema: Schema,
    segments: Iterable[SegmentRef],
    read_segment: Callable[[SegmentRef], Segment],
    *,
    rebuild: bool = False,
    on_done: OnBlock | None = None,
) -> PagesBuilt:
    """Write missing page sidecars; an unusable one counts as missing. See ``Warehouse.build_pages``."""
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
        except AlreadyExists:  # another builder wrote the same
            skipped += 1
        else:
            written += 1
            blocks += len(segment.blocks)
            size_bytes += len(data)
        source.forget(pages)
    return PagesBuilt(segments=written, skipped=skipped, blocks=blocks, left_out=left_out, size_bytes=size_bytes)


def take_page_sidecars(store: Store, made: Sequence[tuple[SegmentRef, Sequence[tuple[SegmentRef, int]]]]) -> None:
    """Write page sidecars of new segments from those of old ones: for each block its old segment, and its number there.

    Nothing is written unless each of those has a usable page sidecar, and all have the same columns and types;
    otherwise the sidecars are missing until they are built.

    Raises:
        StoreError: as the store.
    """
    opened: dict[str, PageSidecar] = {}
    try:
        for ref in {ref.segment_id: ref for _, blocks in made for ref, _ in blocks}.values():
            pages = SegmentPages(ref.segment_id, ref.manifest)
            part = PageSidecar(store, pages.location, pages.segment_id, pages.manifest.sha256)
            if len(part) != ref.summary.block_count:
                return
            opened[ref.segment_id] = part
        for ref, blocks in made:
            parts = [(opened[old.segment_id], number) for old, number in blocks]
            data = join_pages(parts, ref.segment_id, ref.manifest.sha256)
            if data is None:
                return
            store.put(SegmentPages(ref.segment_id, ref.manifest).location, data)
    except (ObjectNotFound, ManifestError):
        return


def _is_there(store: Store, pages: SegmentPages) -> bool:
    try:
        PageSidecar(store, pages.location, pages.segment_id, pages.manifest.sha256)
    except (ObjectNotFound, ManifestError):
        return False
    return True
