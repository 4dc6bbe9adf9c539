"""The layers of a snapshot as a map: the positions, sizes and depths of its blocks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, Literal

import msgspec
import numpy as np
import numpy.typing as npt

from lamella.snapshot.cache import CacheNamespace
from lamella.snapshot.cluster.depth import EXACT, Depths, box_depths, interval_depths
from lamella.snapshot.cluster.extent import Boxes, Extents, extents
from lamella.snapshot.errors import InvalidRequest
from lamella.snapshot.manifest import ClusterKind, SnapshotPointer
from lamella.snapshot.prune.block_layer import Layers, number_of_segment
from lamella.snapshot.prune.outcome import NONE
from lamella.snapshot.prune.result import Codes, PruneResult
from lamella.snapshot.warehouse.layouts import Key, LayoutScan, key_of, segment_zones
from lamella.snapshot.warehouse.manifests import Manifests

Numbers = npt.NDArray[np.int64]

#: ``LayerMap.depth`` of blocks that were not evaluated.
NOT_KNOWN: Final = -1
#: Approximate size of a map without its arrays, and of the name of each segment.
_MAP_BYTES: Final = 2_048
_NAME_BYTES: Final = 100
#: Seed of the sample of segments, if there are very many.
_SEED: Final = 0


class LayerMap(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """The blocks of a snapshot in its order, as read-only arrays with one entry per block.

    ``segment``: the number of its segment (int32); ``row_count`` and ``file_size`` (int64); ``depth`` (int32): the
    maximum number of blocks that overlap within this one (see :mod:`lamella.snapshot.cluster.depth`); 0 in a block
    without rows; None: there is no key. ``columns`` and ``kind`` are those of the key.

    Along a curve, depth is evaluated at the low corners of boxes. Of more than 4,000 boxes, the boxes of whole segments
    are evaluated instead: ``depth_of`` is "segment", and each block has the depth of its segment among the segments. Of
    more segments than that, ``is_exact`` is False: a sample is evaluated, and the others' depth is :data:`NOT_KNOWN`.

    Entries per segment: ``segment_id``, and ``starts``, the number of its first block (int64).
    """

    snapshot_id: str
    segment_id: tuple[str, ...]
    starts: Any
    segment: Any
    row_count: Any
    file_size: Any
    depth: Any | None = None
    columns: tuple[str, ...] = ()
    kind: ClusterKind | None = None
    depth_of: Literal["block", "segment"] = "block"
    is_exact: bool = True

    def __len__(self) -> int:
        return len(self.row_count)

    @property
    def bounds(self) -> Numbers:
        """Returns ``starts``, followed by the number of all blocks."""
        return np.append(self.starts, len(self))

    def number_of(self, segment_id: str) -> int:
        """Returns the number of a segment; raises SegmentNotFound."""
        return number_of_segment(self.segment_id, segment_id)

    def blocks(self, segment: int) -> slice:
        """Returns the blocks of a segment, by its number."""
        bounds = self.bounds
        return slice(int(bounds[segment]), int(bounds[segment + 1]))


class Tiles(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """Groups of neighbouring segments, as arrays with one entry per tile.

    ``mean_depth`` (float64; NaN: unknown for every block) and ``max_depth`` (int64) cover the blocks that have rows and
    a known depth; None: the map has no depths. ``file_size`` is in bytes; all others are counts and numbers (int64).
    """

    first_segment: Any
    segment_count: Any
    first_block: Any
    block_count: Any
    row_count: Any
    file_size: Any
    mean_depth: Any | None = None
    max_depth: Any | None = None

    def __len__(self) -> int:
        return len(self.first_segment)


class LayerMaps:
    """Creates maps and caches them in the shared memory cache. Thread-safe; ``layers``: those of a snapshot."""

    def __init__(self, manifests: Manifests, layers: Callable[[SnapshotPointer], Layers]) -> None:
        self._manifests = manifests
        self._layers = layers
        self._maps: CacheNamespace[LayerMap] = CacheNamespace(manifests.memory_cache, "layer map")

    def of(self, pointer: SnapshotPointer, columns: Sequence[str] = (), kind: ClusterKind = "linear") -> LayerMap:
        """Returns the map of a snapshot; depths refer to the key of these ``columns``, or else to its own cluster key,
        if it has one.

        Raises:
            InvalidRequest, UnknownColumn: an invalid key.
        """
        layers = self._layers(pointer)
        key = key_of(layers.head, columns, kind) if columns or layers.head.cluster_key is not None else None
        name = (layers.head.snapshot_id, None if key is None else (key.kind, key.terms))
        return self._maps.load(name, lambda: self._made(layers, key))

    def _made(self, layers: Layers, key: Key | None) -> tuple[LayerMap, int]:
        scan = LayoutScan(self._manifests, layers, () if key is None else key.terms)
        counts = layers.segments.numbers("block_count")
        depth: Any = None
        by_segment, is_exact = False, True
        if key is not None:
            found, by_segment = _extents(layers, scan, key)
            rows = layers.segments.numbers("row_count") if by_segment else scan.row_count
            depth, is_exact = _depth(found, rows)
        if by_segment:
            depth = np.where(scan.row_count > 0, np.repeat(depth, counts), 0)
        made = LayerMap(
            snapshot_id=layers.head.snapshot_id,
            segment_id=tuple(layers.segments.texts("segment_id")),
            starts=_fixed(np.cumsum(counts) - counts),
            segment=_fixed(scan.segment.astype(np.int32)),
            row_count=_fixed(scan.row_count),
            file_size=_fixed(scan.file_size),
            depth=None if depth is None else _fixed(depth.astype(np.int32)),
            columns=() if key is None else tuple(term.name for term in key.terms),
            kind=None if key is None else key.kind,
            depth_of="segment" if by_segment else "block",
            is_exact=is_exact,
        )
        arrays = (made.starts, made.segment, made.row_count, made.file_size, made.depth)
        size_bytes = sum(array.nbytes for array in arrays if array is not None)
        return made, size_bytes + _MAP_BYTES + _NAME_BYTES * len(counts)

    @staticmethod
    def tiles(layer_map: LayerMap, at_most: int, *, segments: slice | None = None) -> Tiles:
        """Returns some segments (None: all) in their order as at most ``at_most`` tiles, of about as many segments
        each.

        Raises:
            InvalidRequest: ``at_most`` is less than 1.
            ValueError: ``segments`` has a step.
        """
        if at_most < 1:
            raise InvalidRequest(f"there is at least one tile, not {at_most}", parameter="tiles")
        first, stop, step = (slice(None) if segments is None else segments).indices(len(layer_map.segment_id))
        if step != 1:
            raise ValueError("the segments of tiles are neighbours")
        count = max(stop - first, 0)
        number = min(at_most, count)
        edges = first + np.arange(number + 1, dtype=np.int64) * count // max(number, 1)
        ends = layer_map.bounds[edges]
        mean = max_depth = None
        if layer_map.depth is not None:
            depth = np.maximum(layer_map.depth, 0)
            known = _sums(depth > 0, ends)
            total = _sums(depth, ends).astype(np.float64)
            mean = np.divide(total, known, out=np.full(number, np.nan), where=known > 0)
            max_depth = _maxima(depth, ends)
        return Tiles(
            first_segment=edges[:-1],
            segment_count=np.diff(edges),
            first_block=ends[:-1],
            block_count=np.diff(ends),
            row_count=_sums(layer_map.row_count, ends),
            file_size=_sums(layer_map.file_size, ends),
            mean_depth=mean,
            max_depth=max_depth,
        )

    @staticmethod
    def verdicts(found: PruneResult, layer_map: LayerMap) -> Codes:
        """Returns a prune's verdict of every block (codes of :mod:`lamella.snapshot.prune.outcome`); NONE: it is not
        kept.

        Raises:
            ValueError: the prune is of another snapshot than the map, or returned segments only.
        """
        if found.answer.snapshot_id != layer_map.snapshot_id:
            raise ValueError("the prune is of another snapshot than the map")
        selection = found.selection
        if selection is None:
            raise ValueError("the prune was asked for segments only")
        codes = np.zeros(len(layer_map), dtype=np.uint8)
        if selection.whole.any():
            of_segments = np.zeros(len(layer_map.segment_id), dtype=np.uint8)
            of_segments[selection.segments] = selection.whole
            codes = of_segments[layer_map.segment]
        tested = selection.tested()
        first = np.repeat(layer_map.starts[selection.segments], np.diff(tested.offsets))
        codes[first + tested.rows] = tested.codes
        return codes

    @staticmethod
    def selected_blocks(verdicts: Codes, tiles: Tiles) -> Numbers:
        """Returns how many blocks of each tile are kept, by the verdicts of all blocks."""
        ends = np.append(tiles.first_block, tiles.first_block[-1:] + tiles.block_count[-1:])
        return _sums(verdicts != NONE, ends)


def _extents(layers: Layers, scan: LayoutScan, key: Key) -> tuple[Extents, bool]:
    """Returns the extents of the blocks, or (True) those of their segments."""
    found = scan.extents(key.kind, key.terms)
    if not isinstance(found, Boxes) or int((scan.row_count > 0).sum()) <= EXACT:
        return found, False
    return extents(key.kind, segment_zones(layers, key.terms)), True


def _depth(found: Extents, row_count: Numbers) -> tuple[Numbers, bool]:
    """Returns the depth of each entry, 0 of those without rows; and whether all were evaluated."""
    rows = np.flatnonzero(row_count > 0)
    some = found.take(rows)
    depths: Depths
    depths = box_depths(some, np.random.default_rng(_SEED)) if isinstance(some, Boxes) else interval_depths(some)
    depth = np.zeros(len(row_count), dtype=np.int64)
    depth[rows] = NOT_KNOWN
    depth[rows[depths.blocks]] = depths.depth
    return depth, depths.is_exact


def _fixed(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Returns the array read-only, because maps are shared."""
    view = array.view()
    view.flags.writeable = False
    return view


def _sums(values: npt.NDArray[Any], ends: Numbers) -> Numbers:
    """Returns the sums of the values between each of the ends and the next."""
    if len(ends) < 2:
        return np.zeros(0, dtype=np.int64)
    sums = np.zeros(int(ends[-1] - ends[0]) + 1, dtype=np.int64)
    np.cumsum(values[ends[0] : ends[-1]], out=sums[1:])
    return np.asarray(np.diff(sums[ends - ends[0]]))


def _maxima(values: npt.NDArray[Any], ends: Numbers) -> Numbers:
    """Returns the maximum of the values between each of the ends and the next; 0 if there are none."""
    found = np.zeros(max(len(ends) - 1, 0), dtype=np.int64)
    some = np.flatnonzero(np.diff(ends) > 0)
    if len(some):
        found[some] = np.maximum.reduceat(values[: ends[-1]], ends[some])
    return found
