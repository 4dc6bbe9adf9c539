"""Statistics of one column in many blocks as arrays, in the form that most footers have.

:class:`ColumnArrays` is another form of a list of :class:`~lamella.snapshot.stats.column.ColumnStats`: it gives the
same JSON, the same merged statistics and the same objects, without an object for each block.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import repeat
from typing import Any, Final

import msgspec
import numpy as np
import numpy.typing as npt

from lamella.snapshot.schema import DataType
from lamella.snapshot.stats.bound import bound_name, to_bound, to_bounds
from lamella.snapshot.stats.column import MAX_INT64, ColumnStats

Numbers = npt.NDArray[np.int64]
#: Bounds of many blocks: int64, uint64 or float64 as the type's order is, or byte strings.
Bounds = npt.NDArray[Any] | list[bytes]
#: A part of the JSON of many values: one text for all of them, or one for each.
JsonPart = bytes | list[bytes]

_ENCODER: Final = msgspec.json.Encoder()
#: Text that is the same in JSON. A line feed separates values.
_PLAIN_TEXT: Final = re.compile(rb"[ !#-\[\]-~\n]*")


class ColumnArrays(msgspec.Struct, frozen=True, kw_only=True):
    """The statistics of a column in blocks that have rows and values other than null and NaN, from their footers.

    Both bounds of each block are known. A zero among the lows of floats is negative, and among the highs positive.
    ``nulls``: -1 where unknown. ``may_nan``: where ``nan`` is "maybe"; elsewhere it is "none". ``min_exact`` and
    ``max_exact`` hold for all blocks. ``sizes`` are in bytes, in memory.
    """

    dtype: DataType
    lows: Bounds
    highs: Bounds
    nulls: Numbers
    may_nan: npt.NDArray[np.bool_]
    min_exact: bool
    max_exact: bool
    sizes: Numbers

    def __len__(self) -> int:
        return len(self.nulls)

    def taken(self, rows: Numbers) -> ColumnArrays:
        """Returns the statistics of some of the blocks."""
        return msgspec.structs.replace(
            self,
            lows=taken(self.lows, rows),
            highs=taken(self.highs, rows),
            nulls=self.nulls[rows],
            may_nan=self.may_nan[rows],
            sizes=self.sizes[rows],
        )

    def stats(self) -> list[ColumnStats]:
        """Returns the statistics of each block."""
        return [
            ColumnStats(
                min=low,
                max=high,
                null_count=None if nulls < 0 else nulls,
                nan="maybe" if may_nan else "none",
                min_exact=self.min_exact,
                max_exact=self.max_exact,
                in_memory_size=size,
            )
            for low, high, nulls, may_nan, size in zip(
                to_bounds(self.dtype, as_list(self.lows)),
                to_bounds(self.dtype, as_list(self.highs)),
                self.nulls.tolist(),
                self.may_nan.tolist(),
                self.sizes.tolist(),
                strict=True,
            )
        ]

    def merged(self) -> ColumnStats:
        """Returns what :func:`~lamella.snapshot.stats.column.merge` makes of the statistics of all blocks, of at least
        one."""
        low = min(self.lows) if isinstance(self.lows, list) else self.lows.min().item()
        high = max(self.highs) if isinstance(self.highs, list) else self.highs.max().item()
        nulls = None if (self.nulls < 0).any() else total(self.nulls)
        size = total(self.sizes)
        return ColumnStats(
            min=to_bound(self.dtype, low),
            max=to_bound(self.dtype, high),
            null_count=None if nulls is None or nulls > MAX_INT64 else nulls,
            nan="maybe" if self.may_nan.any() else "none",
            min_exact=self.min_exact,
            max_exact=self.max_exact,
            in_memory_size=None if size > MAX_INT64 else size,
            source="merge",
        )

    def json(self) -> list[JsonPart]:
        """Returns the JSON of the statistics of each block, in parts that follow each other."""
        parts: list[JsonPart] = [
            b'{"min":',
            *_bounds_json(self.dtype, self.lows),
            b',"max":',
            *_bounds_json(self.dtype, self.highs),
        ]
        known = self.nulls >= 0
        if known.all():
            parts += (b',"null_count":', numbers_json(self.nulls))
        elif known.any():
            parts.append([b"" if nulls < 0 else b',"null_count":%d' % nulls for nulls in self.nulls.tolist()])
        if self.may_nan.all():
            parts.append(b',"nan":"maybe"')
        elif self.may_nan.any():
            parts.append([b',"nan":"maybe"' if each else b"" for each in self.may_nan.tolist()])
        if self.min_exact:
            parts.append(b',"min_exact":true')
        if self.max_exact:
            parts.append(b',"max_exact":true')
        return [*parts, b',"in_memory_size":', numbers_json(self.sizes), b"}"]


def joined(parts: Sequence[ColumnArrays]) -> ColumnArrays | None:
    """Returns the statistics of several parts' blocks in their order; None if the parts differ in more than values."""
    first = parts[0]
    if len(parts) == 1:
        return first
    if len({(each.dtype, each.min_exact, each.max_exact) for each in parts}) > 1:
        return None
    return msgspec.structs.replace(
        first,
        lows=concatenated([each.lows for each in parts]),
        highs=concatenated([each.highs for each in parts]),
        nulls=np.concatenate([each.nulls for each in parts]),
        may_nan=np.concatenate([each.may_nan for each in parts]),
        sizes=np.concatenate([each.sizes for each in parts]),
    )


def taken(values: Bounds, rows: Numbers) -> Bounds:
    """Returns the bounds of some blocks."""
    return [values[row] for row in rows.tolist()] if isinstance(values, list) else values[rows]


def concatenated(parts: Sequence[Bounds]) -> Bounds:
    """Returns the bounds of several parts, all of them lists or all arrays of one type."""
    lists = [each for each in parts if isinstance(each, list)]
    if lists:
        return [value for each in lists for value in each]
    return np.concatenate([each for each in parts if not isinstance(each, list)])


def as_list(values: Bounds) -> list[Any]:
    """Returns bounds as Python's values."""
    return values if isinstance(values, list) else values.tolist()


def total(counts: Numbers) -> int:
    """Returns the exact sum of counts that are not negative."""
    # NumPy's own sum would wrap around.
    return int(counts.sum()) if len(counts) and int(counts.max()) <= MAX_INT64 // len(counts) else sum(counts.tolist())


def lines_of(values: Sequence[Any]) -> list[bytes]:
    """Returns the JSON of each value, as the encoder of manifests writes it."""
    return _ENCODER.encode_lines(values).split(b"\n")[:-1]


def numbers_json(values: Numbers) -> JsonPart:
    """Returns the JSON of integers."""
    if len(values) and (values == values[0]).all():
        return _ENCODER.encode(values[0].item())
    return lines_of(values.tolist())


def rows_json(parts: Sequence[JsonPart], count: int) -> list[bytes]:
    """Returns the JSON of ``count`` values from its parts."""
    columns: list[JsonPart] = []
    for part in parts:
        if isinstance(part, bytes) and columns and isinstance(columns[-1], bytes):
            columns[-1] += part
        else:
            columns.append(part)
    rows = zip(*(repeat(part, count) if isinstance(part, bytes) else part for part in columns), strict=True)
    return list(map(b"".join, rows))


def _bounds_json(dtype: DataType, bounds: Bounds) -> list[JsonPart]:
    name = bound_name(dtype)
    tag = b'{"%s":' % name.encode()
    if isinstance(bounds, list):
        text = b"\n".join(bounds)
        if name == "String" and text.count(b"\n") == len(bounds) - 1 and _PLAIN_TEXT.fullmatch(text):
            return [tag, b'"', bounds, b'"}']
        return [lines_of(to_bounds(dtype, bounds))]
    if name == "Float64":
        # Infinities are text.
        finite = bool(np.isfinite(bounds).all())
        return [tag, lines_of(bounds.tolist()), b"}"] if finite else [lines_of(to_bounds(dtype, bounds.tolist()))]
    if name == "Decimal":
        return [tag, b'["', numbers_json(bounds), b'",%d,%d]}' % (dtype.precision, dtype.scale)]
    if name == "Boolean":
        return [lines_of(to_bounds(dtype, bounds.tolist()))]
    return [tag, numbers_json(bounds), b"}"]


def bounds_of(dtype: DataType, values: npt.NDArray[Any]) -> npt.NDArray[Any] | None:
    """Returns numbers in the NumPy type of :attr:`ColumnArrays.lows`; None if they do not fit."""
    wanted = np.dtype({"uint": np.uint64, "float": np.float64}.get(dtype.order or "", np.int64))
    if values.dtype == wanted:
        return values
    if wanted.kind != "i" or values.dtype.kind != "u" or (len(values) and int(values.max()) > MAX_INT64):
        return None
    return values.astype(wanted)
