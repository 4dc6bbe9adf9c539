"""Places of points along a curve through several columns: z-order and Hilbert.

A point has one whole number of ``bits`` bits for each of d columns; what makes numbers of values is
:mod:`lamella.snapshot.cluster.quantile`. Its position is a number of ``d * bits`` bits, in as many 64-bit words as that
takes, the most significant one first and zeros in front. Positions compare as their words do, one after another.
Different points have different positions, and every number of ``d * bits`` bits is one.

*z-order*: the bits of the columns by turns, the highest ones first, those of the first column first of all.
*Hilbert*: of two neighbours along the curve one column differs, by one (J. Skilling, "Programming the Hilbert curve",
AIP Conference Proceedings 707, 2004). With one column either is the number itself.
"""

from __future__ import annotations

from typing import Any, Final, Literal, get_args

import numpy as np
import numpy.typing as npt
import pyarrow as pa

#: n rows, one column for each column of the key.
Points = npt.NDArray[np.uint64]
#: n rows, one column for each word.
Positions = npt.NDArray[np.uint64]
CurveKind = Literal["zorder", "hilbert"]

#: Bits of a column at most: more than a sample of its values can tell apart.
MOST_BITS: Final = 16
_WORD_BITS: Final = 64


def bits_for(columns: int) -> int:
    """Bits for each of so many columns such that positions fit one word; at least 1, at most :data:`MOST_BITS`."""
    return max(1, min(MOST_BITS, _WORD_BITS // columns))


def positions(kind: CurveKind, points: Points, bits: int) -> Positions:
    """The positions of points along a curve, n rows of ``ceil(d * bits / 64)`` words.

    ``points``: n rows of d >= 1 numbers below ``2 ** bits``, with 1 <= bits <= 64.

    Raises:
        ValueError: an unknown kind, no column, bits out of range, or a number that has more bits.
    """
    if kind not in get_args(CurveKind):
        raise ValueError(f"no curve is called {kind!r}")
    points = np.asarray(points, dtype=np.uint64)
    if points.ndim != 2 or points.shape[1] < 1:
        raise ValueError("points have at least one column")
    if not 1 <= bits <= _WORD_BITS:
        raise ValueError(f"a column has 1 to {_WORD_BITS} bits, not {bits}")
    if bits < _WORD_BITS and len(points) and int(points.max()) >> bits:
        raise ValueError(f"a point has more than {bits} bits")
    columns = [np.ascontiguousarray(points[:, column]) for column in range(points.shape[1])]
    return _interleaved(columns if kind == "zorder" else _transposed(columns, bits), bits)


def order(found: Positions) -> npt.NDArray[np.int64]:
    """The rows in the order of their positions; those of one position stay as they stand."""
    return np.asarray(np.lexsort(tuple(found[:, word] for word in reversed(range(found.shape[1])))), dtype=np.int64)


def to_arrow(found: Positions) -> pa.Array:
    """Positions as an Arrow array that Arrow sorts along the curve: uint64, or big-endian bytes of a fixed size."""
    count, words = found.shape
    if words == 1:
        return pa.array(found[:, 0], pa.uint64())
    data: Any = found.astype(">u8").tobytes()
    return pa.FixedSizeBinaryArray.from_buffers(pa.binary(8 * words), count, [None, pa.py_buffer(data)])


def _interleaved(columns: list[Any], bits: int) -> Positions:
    """The bits of the columns by turns, the highest first."""
    width = len(columns) * bits
    words = -(-width // _WORD_BITS)
    found = np.zeros((words, len(columns[0])), dtype=np.uint64)
    one = np.uint64(1)
    for level in range(bits):
        for column, values in enumerate(columns):
            # Counted from the lowest bit of all.
            place = level * len(columns) + len(columns) - 1 - column
            bit = (values >> np.uint64(level)) & one
            found[words - 1 - place // _WORD_BITS] |= bit << np.uint64(place % _WORD_BITS)
    return np.ascontiguousarray(found.T)


def _transposed(points: list[Any], bits: int) -> list[Any]:
    """Numbers whose interleaved bits are the Hilbert position of the points (Skilling's "transposed" form)."""
    count = len(points)
    if count == 1:
        return points
    axes = [column.copy() for column in points]
    zero = np.uint64(0)
    for level in range(bits - 1, 0, -1):
        bit, below = np.uint64(1 << level), np.uint64((1 << level) - 1)
        for axis in range(count):
            is_set = (axes[axis] & bit) != zero
            # Where the bit is set the first axis is mirrored, elsewhere it is exchanged with this one.
            swapped = np.where(is_set, zero, (axes[0] ^ axes[axis]) & below)
            axes[0] ^= np.where(is_set, below, swapped)
            axes[axis] ^= swapped
    for axis in range(1, count):
        axes[axis] ^= axes[axis - 1]
    flips = np.zeros_like(axes[0])
    for level in range(bits - 1, 0, -1):
        is_set = (axes[-1] & np.uint64(1 << level)) != zero
        flips ^= np.where(is_set, np.uint64((1 << level) - 1), zero)
    return [axis ^ flips for axis in axes]
