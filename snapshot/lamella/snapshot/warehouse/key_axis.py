"""The blocks of a snapshot along the values of one column, and how many of them lie where.

A block lies between the bounds of its values; an unknown bound extends it to the end of the axis on that side. Nulls
and NaN have no place on the axis, so a block that has nothing else lies nowhere.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Hashable, Sequence
from typing import Any, Final

import msgspec
import numpy as np
import numpy.typing as npt

from lamella.snapshot.cache import CacheNamespace
from lamella.snapshot.columnar.keys import BytesKeys, Keys, Mask, NumberKeys, WideKeys
from lamella.snapshot.columnar.points import Points, ranked
from lamella.snapshot.columnar.zones import HIGH_KNOWN, LOW_KNOWN, MAY_NUMBER, Zones
from lamella.snapshot.counts import counted
from lamella.snapshot.errors import InvalidRequest
from lamella.snapshot.expression.bound import BoundTerm
from lamella.snapshot.manifest import SnapshotPointer
from lamella.snapshot.prune.block_layer import Layers
from lamella.snapshot.prune.top_k import value_at
from lamella.snapshot.schema import DataType
from lamella.snapshot.stats.bound import Value
from lamella.snapshot.warehouse.layouts import LayoutScan, key_of
from lamella.snapshot.warehouse.manifests import Manifests

Rows = npt.NDArray[np.int64]

#: Approximate size of an axis without its arrays.
_AXIS_BYTES: Final = 1_024
#: Bytes of a text besides its characters.
_TEXT_BYTES: Final = 16


class Window(msgspec.Struct, frozen=True):
    """A part of an axis: values from ``low`` to ``high``, both included."""

    low: Value
    high: Value


class KeyAxis(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """The positions of all blocks among the ``points``, which are the distinct known bounds in their order.

    ``low`` and ``high`` (read-only, int32): the point of each bound; -1 and the number of points if it is unknown.
    Blocks without a value on the axis have ``low`` greater than ``high``.
    """

    column: str
    dtype: DataType
    points: Any
    low: Any
    high: Any

    def __len__(self) -> int:
        return len(self.low)

    @property
    def point_count(self) -> int:
        """Returns the number of points."""
        return len(Points(self.points))

    def value(self, point: int) -> Value:
        """Returns the value of a point."""
        return value_at(self.points, point)

    @property
    def whole(self) -> Window | None:
        """Returns the part from the least to the greatest known bound; None if no bound is known."""
        count = self.point_count
        return Window(self.value(0), self.value(count - 1)) if count else None

    def points_in(self, window: Window) -> range:
        """Returns the points of a part of the axis."""
        return range(self.first_at(window.low), self._after(window.high))

    def blocks_in(self, window: Window) -> Mask:
        """Returns the blocks that may have a value in a part of the axis."""
        inside = self.points_in(window)
        # Between two neighbouring points no block begins or ends, but some may extend over the gap.
        return np.asarray((self.low < inside.stop) & (self.high >= inside.start) & (self.low <= self.high))

    def crossed(self, edges: Sequence[Value], blocks: Rows) -> tuple[Rows, Rows]:
        """Returns the first and the last bin (int64) of some blocks (their numbers) of a part of the axis.

        ``edges`` ascend: bin i has the values from edge i to before edge i + 1; the last one has its end too.
        """
        inner = [self.first_at(edge) + 1 for edge in edges[1:-1]]
        # From the place before all points, where unknown minima are, to the one after them.
        steps = np.diff([0, *inner, self.point_count + 2])
        bin_of = np.repeat(np.arange(len(steps), dtype=np.int64), steps)
        return bin_of[self.low[blocks] + 1], bin_of[self.high[blocks] + 1]

    def first_at(self, value: Value) -> int:
        """Returns the first point that is at least a value; the number of points if none is."""
        return bisect_left(range(self.point_count), value, key=self.value)

    def _after(self, value: Value) -> int:
        return bisect_right(range(self.point_count), value, key=self.value)


def axis_of(term: BoundTerm, zones: Zones, row_count: Rows) -> KeyAxis:
    """Returns the axis of a term of a key, from its zone maps and the rows of each block."""
    has_value = zones.has(MAY_NUMBER) & (row_count > 0)
    lows = np.flatnonzero(has_value & zones.has(LOW_KNOWN))
    highs = np.flatnonzero(has_value & zones.has(HIGH_KNOWN))
    points = Points(NumberKeys(np.zeros(0, dtype=np.int64)))
    low, high = np.full(len(zones), -1, dtype=np.int64), np.zeros(len(zones), dtype=np.int64)
    if zones.low is not None and zones.high is not None and (len(lows) or len(highs)):
        points, low_ranks, high_ranks = ranked(zones.low.take(lows), zones.high.take(highs))
        low[lows] = low_ranks
        high[:] = len(points)
        high[highs] = high_ranks
    low[~has_value], high[~has_value] = 0, -1
    return KeyAxis(column=term.name, dtype=term.dtype, points=points.keys, low=_short(low), high=_short(high))


class KeyAxes:
    """Creates axes and caches them in the shared memory cache. Thread-safe; ``layers``: those of a snapshot."""

    def __init__(self, manifests: Manifests, layers: Callable[[SnapshotPointer], Layers]) -> None:
        self._manifests = manifests
        self._layers = layers
        self._axes: CacheNamespace[KeyAxis] = CacheNamespace(manifests.memory_cache, "key axis")
        self._counts: CacheNamespace[Rows] = CacheNamespace(manifests.memory_cache, "heat map")

    def of(self, pointer: SnapshotPointer, columns: Sequence[str] = (), number: int = 0) -> KeyAxis:
        """Returns the axis of one of the columns of a key: of these ``columns``, or else of the cluster key.

        Raises:
            InvalidRequest, UnknownColumn: an invalid key, no key, or no such column in it.
        """
        layers = self._layers(pointer)
        terms = key_of(layers.head, columns).terms
        if number >= len(terms):
            raise InvalidRequest(f"the key has {counted(len(terms), 'column')}, and none has the number {number + 1}")
        term = terms[number]
        return self._axes.load((layers.head.snapshot_id, term), lambda: self._made(layers, term))

    def counts(self, name: Hashable, make: Callable[[], Rows]) -> Rows:
        """Returns counts of a snapshot's blocks, made once for each name, which says all that they rest on."""

        def made() -> tuple[Rows, int]:
            found = _fixed(make())
            return found, found.nbytes + _AXIS_BYTES

        return self._counts.load(name, made)

    def _made(self, layers: Layers, term: BoundTerm) -> tuple[KeyAxis, int]:
        scan = LayoutScan(self._manifests, layers, (term,))
        axis = axis_of(term, scan.key_zones((term,))[0], scan.row_count)
        return axis, axis.low.nbytes + axis.high.nbytes + _size_bytes(axis.points) + _AXIS_BYTES


def counts_of(classes: Rows, class_count: int, first: Rows, last: Rows, bins: int) -> Rows:
    """Returns how many blocks of each class (row) are in each bin (column): int64, ``class_count`` by ``bins``.

    ``classes``, ``first``, ``last``: of each block its class, and the first and the last bin that it is in.
    """
    wide = bins + 1
    start = classes * wide
    begun = np.bincount(start + first, minlength=class_count * wide)
    ended = np.bincount(start + last + 1, minlength=class_count * wide)
    return np.asarray(np.cumsum((begun - ended).reshape(class_count, wide), axis=1)[:, :bins])


def _size_bytes(keys: Keys) -> int:
    if isinstance(keys, NumberKeys):
        return keys.array.nbytes
    if isinstance(keys, WideKeys):
        return keys.high.nbytes + keys.low.nbytes
    return len(keys.data) + _TEXT_BYTES * len(keys.offsets) if isinstance(keys, BytesKeys) else 0


def _short(array: Rows) -> npt.NDArray[Any]:
    return _fixed(array.astype(np.int32))


def _fixed(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Returns the array read-only, because axes are shared."""
    view = array.view()
    view.flags.writeable = False
    return view
