"""Floors: the same tests on NumPy arrays in memory, and nothing else."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import msgspec
import numpy as np
import numpy.typing as npt
from synthetic import COUNTRIES, FILTERED_COLUMNS, Model, text

from speed.questions import Question, prefix_end

_SEGMENT: Final = 1_024
_TEXT_BATCH: Final = 100_000
Array = npt.NDArray[Any]
Mask = npt.NDArray[np.bool_]


class Columns(msgspec.Struct, frozen=True):
    """Minima and maxima of blocks or segments; ``path`` as two words, ``nulls`` as their number."""

    low: dict[str, Array]
    high: dict[str, Array]
    nulls: Array

    def may(self, query: Question, rows: slice = slice(None)) -> Mask:
        """Return which rows may contain a match."""
        if query.user is not None:
            return self._range("user_id", query.user, query.user, rows)
        if query.prefix is not None:
            return self._prefix(query.prefix, rows)
        if query.points:  # some point lies in the block when fewer of them lie below it than up to its end
            points = np.array(query.points)
            below = np.searchsorted(points, self.low["event_time"][rows])
            return np.asarray(below < np.searchsorted(points, self.high["event_time"][rows], side="right"))
        if not query.ranges:
            return np.asarray(self.nulls[rows] > 0)
        found = self._range("event_time", *query.ranges[0], rows)
        for start, stop in query.ranges[1:]:
            found |= self._range("event_time", start, stop, rows)
        if query.country is not None:
            code = COUNTRIES.index(query.country)
            found &= self._range("country", code, code, rows)
        return found

    def _range(self, column: str, start: int, stop: int, rows: slice) -> Mask:
        return np.asarray((self.high[column][rows] >= start) & (self.low[column][rows] <= stop))

    def _prefix(self, prefix: str, rows: slice) -> Mask:
        (first, second), (end, end_second) = _words(prefix), _words(prefix_end(prefix))
        low, low_second = self.low["path"][0][rows], self.low["path"][1][rows]
        high, high_second = self.high["path"][0][rows], self.high["path"][1][rows]
        from_start = (high > first) | ((high == first) & (high_second >= second))
        return np.asarray(from_start & ((low < end) | ((low == end) & (low_second < end_second))))


class Whole:
    """Every block's bounds are compared."""

    note = "arrays in memory; no parsing, no names of blocks"

    def __init__(self, _folder: Path) -> None:
        self.versions = {"numpy": np.__version__}
        self.count = 0

    def build(self, count: int) -> None:
        """Do nothing: the arrays are the model's."""

    def open(self, count: int) -> None:
        """Fill the arrays."""
        model = Model(count, FILTERED_COLUMNS)
        self.count = count
        low, high = dict(model.low), dict(model.high)
        low["path"], high["path"] = _path_words(model.low["path"]), _path_words(model.high["path"])
        self.blocks = Columns(low, high, model.nulls("error_code"))

    def warm_up(self) -> None:
        """Do nothing: the first query warms up."""

    def run(self, query: Question) -> Any:
        """The numbers of the blocks."""
        return np.flatnonzero(self.blocks.may(query))

    def block_numbers(self, answer: Any) -> npt.NDArray[np.int64]:
        """The same."""
        return np.asarray(answer, np.int64)


class TwoLayers(Whole):
    """Segment bounds are compared first, then those of the blocks in the remaining segments."""

    def open(self, count: int) -> None:
        """Fill the arrays of both layers."""
        super().open(count)
        self.loose = _segments(self.blocks, np.minimum, np.maximum)

    def run(self, query: Question) -> Any:
        """The numbers of the blocks."""
        left = np.flatnonzero(self.loose.may(query))
        found = [np.flatnonzero(self.blocks.may(query, rows)) + rows.start for rows in _stretches(left)]
        return np.concatenate(found) if found else left


class Runs(TwoLayers):
    """Two layers; a segment whose blocks all remain is returned as a range, without testing them."""

    def open(self, count: int) -> None:
        """Fill the arrays, also those that tell of whole segments."""
        super().open(count)
        self.tight = _segments(self.blocks, np.maximum, np.minimum)

    def run(self, query: Question) -> Any:
        """Return ranges ``[start, stop)`` of blocks that all remain, and the numbers of the other blocks."""
        every = self.tight.may(query)
        edges = np.flatnonzero(np.diff(every, prepend=False, append=False))
        left = np.flatnonzero(self.loose.may(query) & ~every)
        found = [np.flatnonzero(self.blocks.may(query, rows)) + rows.start for rows in _stretches(left)]
        return np.minimum(edges.reshape(-1, 2) * _SEGMENT, self.count), found

    def block_numbers(self, answer: Any) -> npt.NDArray[np.int64]:
        """All their numbers."""
        ranges, found = answer
        return np.sort(np.concatenate([*(np.arange(start, stop) for start, stop in ranges), *found, []])).astype(int)


def _segments(blocks: Columns, minimum: np.ufunc, maximum: np.ufunc) -> Columns:
    """The bounds of segments: the loosest by (minimum, maximum), those within every block's by the opposite."""
    starts = np.arange(0, len(blocks.nulls), _SEGMENT)
    low = {name: minimum.reduceat(values, starts) for name, values in blocks.low.items() if name != "path"}
    high = {name: maximum.reduceat(values, starts) for name, values in blocks.high.items() if name != "path"}
    low["path"] = _reduced_words(blocks.low["path"], minimum, starts)
    high["path"] = _reduced_words(blocks.high["path"], maximum, starts)
    return Columns(low, high, maximum.reduceat(blocks.nulls, starts))


def _reduced_words(words: Array, reduce: np.ufunc, starts: Array) -> Array:
    order = np.lexsort((words[1], words[0]))
    rank = np.empty(len(order), np.int64)
    rank[order] = np.arange(len(order))
    found: Array = words[:, order[reduce.reduceat(rank, starts)]]
    return found


def _stretches(segments: Array) -> list[slice]:
    """The blocks of segments; neighbours together."""
    if not len(segments):
        return []
    breaks = np.flatnonzero(np.diff(segments) > 1)
    first, last = segments[np.r_[0, breaks + 1]], segments[np.r_[breaks, len(segments) - 1]]
    return [slice(a * _SEGMENT, (b + 1) * _SEGMENT) for a, b in zip(first.tolist(), last.tolist(), strict=True)]


def _words(value: str) -> tuple[int, int]:
    data = value.encode().ljust(16, b"\0")[:16]
    return int.from_bytes(data[:8], "big"), int.from_bytes(data[8:], "big")


def _path_words(codes: Array) -> Array:
    """The first 16 bytes of paths as two big-endian words, shape (2, count): they order as the paths do, up to ties."""
    found = np.empty((2, len(codes)), np.uint64)
    for start in range(0, len(codes), _TEXT_BATCH):
        some = np.array([value[:16].encode() for value in text("path", codes[start : start + _TEXT_BATCH])], "S16")
        found[:, start : start + len(some)] = some.view(">u8").reshape(-1, 2).T
    return found
