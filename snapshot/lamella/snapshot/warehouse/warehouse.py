"""Tables in object storage: reads and writes their manifests and sidecars, commits, prunes.

Everything a warehouse writes is immutable and has a new id, so it can be cached forever. The current snapshot is not
known here: a catalog stores the pointers and swaps them.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable

import msgspec

from lamella.snapshot import commit as commits
from lamella.snapshot.cache import Counts, DiskCache
from lamella.snapshot.columnar.column_parts import SPLIT_FROM_BYTES
from lamella.snapshot.columnar.snapshot_blocks import BatchSizes
from lamella.snapshot.ids import Ids
from lamella.snapshot.manifest import SnapshotPointer
from lamella.snapshot.pages import PageSource
from lamella.snapshot.pages.source import (
    OnBlock,
    PagesBuilt,
    take_page_sidecars,
    write_page_sidecars,
)
from lamella.snapshot.prune.paging import PageTokens
from lamella.snapshot.sketch.layers import SketchLayers
from lamella.snapshot.storage import Store, TableLayout, table_root
from lamella.snapshot.storage.together import TogetherStore
from lamella.snapshot.warehouse.block_reasons import BlockReasons
from lamella.snapshot.warehouse.block_view import BlockViews
from lamella.snapshot.warehouse.commits import Changes, Reshaper
from lamella.snapshot.warehouse.index_refresh import IndexBlocks, IndexRefresh, Regrouping
from lamella.snapshot.warehouse.indexing import Indexing
from lamella.snapshot.warehouse.key_axis import KeyAxes
from lamella.snapshot.warehouse.layer_map import LayerMaps
from lamella.snapshot.warehouse.layouts import Layouts
from lamella.snapshot.warehouse.manifest_writer import Directories, ManifestWriter
from lamella.snapshot.warehouse.manifests import Manifests
from lamella.snapshot.warehouse.objects import Objects
from lamella.snapshot.warehouse.planning import Planning
from lamella.snapshot.warehouse.questions import Questions
from lamella.snapshot.warehouse.read_costs import ReadCosts
from lamella.snapshot.warehouse.regroup import Rearranging
from lamella.snapshot.warehouse.row_sample import RowSamples
from lamella.snapshot.warehouse.tables import Definitions, Rollbacks


class Warehouse:
    """Tables below one root URL.

    ``store`` is the object storage, ``ids`` the source of names, ``cache_bytes`` limits the manifests and sidecars in
    memory, ``disk_cache`` caches sidecars on a local disk (None: not at all), ``shape`` controls how segments and
    groups are cut and merged, ``segment_blocks`` only the blocks of a full segment. ``token_secret`` signs page tokens:
    those of another warehouse are accepted only if it has the same secret (None: a random secret). ``batch_sizes``
    sets how many blocks a prune tests together, which changes no answer. ``clock``: returns the time of ``now()`` in
    filters, in Unix milliseconds (None: such functions are unknown). ``split_from_bytes``: sidecars of
    that size are written in parts (None: of 1 MiB). May be shared between threads.
    """

    def __init__(
        self,
        store: Store,
        root: str,
        *,
        ids: Ids | None = None,
        cache_bytes: int = 256 << 20,
        segment_blocks: int | None = None,
        shape: commits.Shape | None = None,
        disk_cache: DiskCache | None = None,
        page_cache_bytes: int = 64 << 20,
        page_files: int = 256,
        prepare_pages: bool = False,
        timer: Callable[[], float] = time.perf_counter,
        token_secret: bytes | None = None,
        batch_sizes: BatchSizes | None = None,
        clock: Callable[[], int] | None = None,
        split_from_bytes: int | None = None,
    ) -> None:
        ids = ids if ids is not None else Ids()
        self.page_tokens = PageTokens(secrets.token_bytes(32) if token_secret is None else token_secret)
        store = self._store = TogetherStore(store)
        self._root = root
        self._ids = ids
        manifests = Manifests(store, cache_bytes, disk=disk_cache)
        pages = self._pages = PageSource(store, manifests.read, cache_bytes=page_cache_bytes, files=page_files)
        sketches = SketchLayers(store)
        shape = shape if shape is not None else commits.Shape()
        if segment_blocks is not None:
            shape = msgspec.structs.replace(shape, segment_blocks=segment_blocks)
        writer = ManifestWriter(
            store,
            root,
            ids,
            sketches,
            manifests,
            split_from_bytes=SPLIT_FROM_BYTES if split_from_bytes is None else split_from_bytes,
        )
        directories = Directories(manifests, store, ids)
        batch_sizes = batch_sizes if batch_sizes is not None else BatchSizes()
        questions = Questions(manifests, pages, self.page_tokens, root, timer, batch_sizes, clock)
        reshaper = Reshaper(manifests, writer, sketches, shape, lambda made: take_page_sidecars(store, made))
        changes = Changes(
            manifests,
            writer,
            directories,
            sketches,
            reshaper,
            questions.diff,
            store,
            ids,
            segment_blocks=shape.segment_blocks,
            with_pages=(
                (lambda schema, refs: write_page_sidecars(store, pages, schema, refs, manifests.segment))
                if prepare_pages
                else None
            ),
        )
        definitions = Definitions(manifests, writer, ids)
        objects = Objects(manifests, root)
        #: Reads manifests and sidecars; for components built on the warehouse.
        self.manifests = manifests
        #: The memory cache, limited by ``cache_bytes``.
        self.memory_cache = manifests.memory_cache
        # One object for callers; the components behind it are independent of each other.
        #: A block in which new objects are put together; all are there at its end.
        self.together = store.together
        self.snapshot = manifests.snapshot
        self.head = manifests.head
        self.passing_head = manifests.passing_head
        self.segment = manifests.segment
        self.segment_bytes = manifests.segment_bytes
        self.identities = manifests.identities
        self.sidecar = manifests.sidecar
        self.segments = objects.segments
        self.objects = objects.objects
        self.objects_left = objects.left
        self.block_locations = objects.block_locations
        self.delete_locations = objects.delete_locations
        self.create = definitions.create
        self.evolve = definitions.evolve
        self.cluster = definitions.cluster
        #: Blocks of a full segment.
        self.segment_blocks = shape.segment_blocks
        self.prepare = changes.prepare
        self.commit = changes.commit
        self.commit_many = changes.commit_many
        self.new_matches = changes.new_matches
        self.changed_reads = changes.changed_reads
        self.entries_at = changes.blocks_at
        self.seen_after = changes.seen_after
        self.seen_with = changes.seen_with
        self.cherry_pick = changes.cherry_pick
        self.rollback = Rollbacks(manifests, writer, store, ids).rollback
        self.has_blocks = changes.has_blocks
        self.replaced = changes.replaced
        self.coming_back = changes.coming_back
        self.identities_of = changes.identities_of
        #: Changes of the skip indexes.
        self.indexing = Indexing(manifests, writer, directories, ids)
        #: Which blocks of a snapshot its indexes cover.
        self.index_blocks = IndexBlocks(manifests)
        #: What jobs would rewrite.
        self.planning = Planning(manifests, questions.finder.layers)
        #: Builds parts from the blocks' files, and from other parts.
        self.index_refresh = IndexRefresh(manifests, self.index_blocks, store, root, ids)
        self.index_regrouping = Regrouping(manifests, self.index_blocks, store, root, ids)
        #: Moves blocks to other segments.
        self.rearranging = Rearranging(
            manifests, writer, sketches, reshaper, ids, lambda made: take_page_sidecars(store, made)
        )
        #: What recorded filters read.
        self.read_costs = ReadCosts(manifests, questions.finder)
        #: How snapshots are laid out.
        self.layouts = Layouts(
            manifests, questions.finder.layers, self.read_costs, self.rearranging, shape.segment_blocks
        )
        #: The positions and depths of blocks.
        self.layer_maps = LayerMaps(manifests, questions.finder.layers)
        #: Where they lie on the values of a column.
        self.key_axes = KeyAxes(manifests, questions.finder.layers)
        #: Some rows, read within bounds.
        self.row_samples = RowSamples(manifests, questions.finder, store)
        #: Views of one block and its pages, and why a prune reads it.
        self.block_views = BlockViews(manifests, questions.finder.layers, pages)
        self.block_reasons = BlockReasons(manifests, questions.finder, pages, timer)
        self.prune = questions.prune
        self.find = questions.finder.find
        self.find_predicate = questions.finder.find_predicate
        self.find_now = questions.finder.find_now
        self.find_within = questions.finder.find_within
        self._finder = questions.finder
        self.blocks_of = questions.blocks_of
        self.blocks_at = questions.blocks_at
        self.prune_predicate = questions.prune_predicate
        self.prune_batch = questions.prune_batch
        self.find_batch = questions.find_batch
        self.diff = questions.diff
        self.aggregate = questions.aggregate
        self.aggregate_predicate = questions.aggregate_predicate

    def cache_counts(self) -> dict[str, Counts]:
        """Returns the counters of the memory cache, by kind of value."""
        return {**self.memory_cache.counts(), "page statistics": self._pages.counts()}

    def table_location(self, table_id: str) -> str:
        """Returns the folder of a table."""
        return table_root(self._root, table_id)

    def new_deletes_location(self, table_id: str) -> str:
        """Returns a location for a new file of deletion vectors."""
        return TableLayout(self.table_location(table_id)).deletes(self._ids.new())

    def build_pages(
        self, pointer: SnapshotPointer, *, rebuild: bool = False, on_done: OnBlock | None = None
    ) -> PagesBuilt:
        """Write the page sidecars of a snapshot's segments that have none (``rebuild``: of all), from their files.

        No snapshot changes: a page sidecar is stored next to its segment and can be deleted at any time. A file that
        cannot be read, or is not the registered one, is left out, and the sidecar records why; ``on_done`` is called
        with each block's location and that reason (None: no problem).

        Raises:
            StoreError: a sidecar cannot be written.
        """
        schema, refs = self.snapshot(pointer).schema, self.segments(pointer)
        return write_page_sidecars(
            self._store, self._pages, schema, refs, self.segment, rebuild=rebuild, on_done=on_done
        )
