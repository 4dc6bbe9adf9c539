"""Bloom filters of many blocks, stacked so that one small read looks one key up in all of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import xxhash

from lamella.snapshot.bloom.split_block import SLOT_BYTES, Hashes, keys_per_slot, masks_of, slots_for, xxh64_numbers
from lamella.snapshot.columnar.keys import Mask
from lamella.snapshot.columnar.zones import is_wide
from lamella.snapshot.function.base import Vector
from lamella.snapshot.index.part import Part, ascending
from lamella.snapshot.schema import DataType
from lamella.snapshot.stats.bound import Value

# Values as keys of the filters that Lamella builds itself.
#
# A value has the same hash in all types that a column can be widened to: a filter over ``int32`` also serves the column
# as ``int64``. Integers, booleans, dates, times and decimals of up to 18 digits are hashed as eight bytes, wider
# decimals as sixteen, floats as doubles with either zero as +0.0, text and bytes as they are. NaN has no key.


def has_keys(dtype: DataType) -> bool:
    """Returns whether values of a type have keys: all types with an order, except boolean, which has only two
    values."""
    return dtype.order is not None and dtype.name != "boolean"


def vector_keys(dtype: DataType, values: Vector) -> Hashes:
    """Returns the distinct keys of some rows; nulls and NaN have none."""
    if values.is_bytes:
        distinct = pc.unique(values.values.filter(pa.array(values.valid)))
        return text_keys(distinct.to_pylist())
    numbers = values.values[values.valid]
    if is_wide(dtype):
        return _wide_keys(sorted(set(numbers.tolist())))
    if dtype.order == "float":
        numbers = numbers[~np.isnan(numbers)]
    return number_keys(ascending(numbers))


def value_keys(dtype: DataType, values: Sequence[Value]) -> Hashes:
    """Returns the keys of values of a type, one each."""
    if dtype.order == "bytes":
        return text_keys([value for value in values if isinstance(value, bytes)])
    if is_wide(dtype):
        return _wide_keys([int(value) for value in values])
    if dtype.order == "float":
        return number_keys(np.array(values, dtype=np.float64))
    return number_keys(np.array(values, dtype=np.uint64 if dtype.order == "uint" else np.int64))


def text_keys(texts: Sequence[bytes]) -> Hashes:
    """Returns the keys of byte strings."""
    return np.array([xxhash.xxh64_intdigest(text) for text in texts], dtype=np.uint64)


def number_keys(numbers: npt.NDArray[Any]) -> Hashes:
    """Returns the keys of int64, uint64 or float64 numbers, none of them NaN."""
    if numbers.dtype == np.float64:
        numbers = numbers + 0.0  # -0.0 becomes 0.0
    return xxh64_numbers(numbers.astype(numbers.dtype.newbyteorder("<"), copy=False).view("<u8"))


def _wide_keys(numbers: Sequence[int]) -> Hashes:
    return text_keys([number.to_bytes(16, "little", signed=True) for number in numbers])


# Split block filters of many blocks, stacked so that one small read looks one key up in all of them.
#
# In each filter a key has one slot of 32 bytes, at the position of its hash in the range of hashes. Filters of similar
# size, none twice as large as another, are cut into *stripes*, equal pieces of the range of hashes. The slots that
# begin in the same stripe are stored together, filter by filter, stripe after stripe. So a key's slots in all filters
# are neighbours: 32 bytes per block in one piece if sizes are equal, and about twice that if they are not.
#
# Above them is one filter over the keys of all blocks, unless it would be too large.
#
# Filters from Parquet files hash values in their own way, their *domain* (``snapshot.bloom.plain_encoding``), and a
# block may have several, one per row group. They are stored next to Lamella's own, in separate stacks; the filter above
# all blocks does not include them. Lamella's own domain is ``""``.

#: The domain of Lamella's own keys.
OURS: Final = ""
#: Replaces a count of keys if a filter came with its file, so that its keys were not counted.
NOT_COUNTED: Final = (1 << 32) - 1
_WORDS: Final = 8
#: Stripes per slot of the smallest filter that a stack may have, as a power of two. With more stripes less is read, but
#: reading takes longer.
_STRIPE_BITS: Final = 2
#: Number of keys that are looked up together: few at first, since these usually decide; limited, to bound memory.
_FIRST_KEYS: Final = 4
_KEYS_AT_ONCE: Final = 256
#: New keys are merged into the others when there are as many as of these, and at least this many.
_KEYS_TOGETHER: Final = 1 << 16

_Array = npt.NDArray[Any]
_Rows = npt.NDArray[np.int64]
_Words = npt.NDArray[np.uint32]
#: Domain, and the power of two that limits the filters' sizes.
_Class = tuple[str, int]
#: A block's index, and one of its filters.
_Filter = tuple[int, _Words]


class StackBuilder:
    """Builds the filters of blocks. ``rate``: false positive rate; ``above_bytes``: maximum size of the filter
    above."""

    def __init__(self, rate: float, above_bytes: int) -> None:
        self.rate = rate
        self._above_bytes = above_bytes
        self._counts: list[int] = []
        self._classes: dict[_Class, list[_Filter]] = {}
        #: The keys of all blocks, without those in ``_new``; None if there are too many for one filter.
        self._keys: Hashes | None = np.zeros(0, dtype=np.uint64)
        self._new: list[Hashes] = []
        self._new_count = 0

    def add_block(self, keys: Hashes) -> None:
        """Add the distinct keys of the next block."""
        if len(keys):
            slots = max(1, round(len(keys) / keys_per_slot(self.rate)))
            self._put(OURS, filled(keys, slots))
        self._counts.append(len(keys))
        if self._keys is not None:
            self._new.append(keys)
            self._new_count += len(keys)
            if self._new_count > max(len(self._keys), _KEYS_TOGETHER):
                self._gather()

    def add_filters(self, filters: Sequence[tuple[str, _Words]]) -> None:
        """Add the filters of the next block, one of which has each of its values: domain and (slots, 8) words."""
        for domain, words in filters:
            self._put(domain, words)
        self._counts.append(NOT_COUNTED)

    def sections(self) -> tuple[dict[str, _Array], dict[str, Any]]:
        """Returns the sections and facts of a part."""
        sections: dict[str, _Array] = {"counts": np.array(self._counts, dtype=np.uint32)}
        self._gather()
        if self._keys is not None and len(self._keys):
            sections["above"] = filled(self._keys, slots_for(len(self._keys), self.rate))
        return _with_stacks(sections, self._classes)

    def _put(self, domain: str, words: _Words) -> None:
        self._classes.setdefault(_class_of(domain, words), []).append((len(self._counts), words))

    def _gather(self) -> None:
        if self._keys is None:
            return
        self._keys = ascending(np.concatenate([self._keys, *self._new]))
        self._new, self._new_count = [], 0
        if slots_for(len(self._keys), self.rate) * SLOT_BYTES > self._above_bytes:
            self._keys = None


class Stack:
    """The filters of a part."""

    def __init__(self, part: Part) -> None:
        self._part = part
        self._classes: list[_Class] = [(str(domain), int(power)) for domain, power in part.header.facts["classes"]]

    @property
    def domains(self) -> set[str]:
        """Returns the domains of the filters."""
        return {domain for domain, _ in self._classes}

    def left(self, keys: Hashes) -> Hashes:
        """Returns the own keys that some block may have, according to the filter above all blocks."""
        if not len(keys) or OURS not in self.domains:
            return keys[:0]
        if not self._part.has("above"):
            return keys
        slots = self._part.shape("above")[0]
        slots_of_keys = slot_numbers(keys, slots)
        found = np.concatenate(self._part.ranges("above", [(at, at + 1) for at in slots_of_keys.tolist()]))
        masks = masks_of(keys)
        return np.asarray(keys[((found & masks) == masks).all(axis=1)])

    def any_of(self, keys: Mapping[str, Hashes], rows: _Rows) -> Mask:
        """Returns which of the blocks ``rows`` (ascending) may have one of the keys of their domain; True for blocks of
        a domain without keys."""
        found = np.zeros(len(rows), dtype=bool)
        sought: list[tuple[_Level, Hashes]] = []
        for level in self._levels(rows):
            some = keys.get(level.domain)
            if some is None:
                found[level.rows] = True
            else:
                sought.append((level, some))
        for looked_up in self._looked_up(sought):
            for level, mask, words in looked_up:
                has = ((words & mask) == mask).all(axis=1)
                found[level.rows[has]] = True
            if found.all():
                break
        return found

    def all_of(self, keys: Hashes, rows: _Rows) -> Mask:
        """Returns which of the blocks ``rows`` (ascending) may have each of the own keys, of which there is at least
        one."""
        found = np.zeros(len(rows), dtype=bool)
        levels = self._levels(rows)
        for level in levels:
            if level.domain != OURS:
                raise ValueError("only filters of one domain have one filter for each block")
            found[level.rows] = True
        for looked_up in self._looked_up([(level, keys) for level in levels]):
            for level, mask, words in looked_up:
                found[level.rows] &= ((words & mask) == mask).all(axis=1)
            if not found.any():
                break
        return found

    def _levels(self, rows: _Rows) -> list[_Level]:
        """Returns the stacks that have filters of some of the rows."""
        names = [(name, number) for number in range(len(self._classes)) for name in ("members", "sizes")]
        self._part.prepare([(f"{name}.{number}", 0, self._part.shape(f"{name}.{number}")[0]) for name, number in names])
        found = []
        for number, (domain, power) in enumerate(self._classes):
            members = self._part.whole(f"members.{number}")
            columns = np.flatnonzero(np.isin(members, rows))
            if len(columns):
                positions = np.searchsorted(rows, members[columns])
                sizes = self._part.whole(f"sizes.{number}")
                found.append(_Level(f"words.{number}", domain, power, sizes, columns, positions))
        return found

    def _looked_up(
        self, sought: Sequence[tuple[_Level, Hashes]]
    ) -> Iterator[Iterator[tuple[_Level, npt.NDArray[np.uint32], _Words]]]:
        """Yields for each key of each stack the eight words of the key, and its slot in each filter; in batches."""
        start, count = 0, _FIRST_KEYS
        while any(start < len(keys) for _, keys in sought):
            pieces = [
                (level, mask, window_of(key, level.sizes, level.columns, level.power))
                for level, keys in sought
                for key, mask in zip(keys[start : start + count].tolist(), masks_of(keys[start:][:count]), strict=True)
            ]
            self._part.prepare([(level.name, window.start, window.stop) for level, _, window in pieces])
            yield (
                (level, mask, self._part.rows(level.name, window.start, window.stop)[window.slots])
                for level, mask, window in pieces
            )
            start, count = start + count, min(4 * count, _KEYS_AT_ONCE)


class _Level(msgspec.Struct, frozen=True, eq=False):
    """A stack: the section of its words, the size of each filter, the filters that are searched, and their rows."""

    name: str
    domain: str
    power: int
    sizes: _Rows
    columns: _Rows
    rows: _Rows


class Window(msgspec.Struct, frozen=True, eq=False):
    """The slots ``start`` to before ``stop`` of a stack, and which of those are the key's slots in the searched
    filters."""

    start: int
    stop: int
    slots: _Rows


def window_of(key: int, sizes: _Rows, columns: _Rows, power: int) -> Window:
    """Returns where a key's slots are in the filters ``columns`` of a stack."""
    shift = _STRIPE_BITS + power
    own = sizes[columns]
    slots = ((key >> 32) * own) >> 32
    begins = (slots << shift) // own
    first, last = int(begins.min()), int(begins.max()) + 1
    # The number of slots of each filter that begin before each of these stripes: its size in proportion, rounded up.
    before = (np.arange(first, last + 1)[:, None] * sizes[None, :] + ((1 << shift) - 1)) >> shift
    start = int(before[0].sum())
    counts = np.diff(before, axis=0).ravel()
    # Slots are stored stripe by stripe, and within a stripe filter by filter: the number of slots before those of each.
    lie_before = (np.cumsum(counts) - counts).reshape(last - first, len(sizes))
    rows = begins - first
    return Window(start, start + int(counts.sum()), lie_before[rows, columns] + slots - before[rows, columns])


def taken(parts: Sequence[tuple[Part, _Rows]]) -> tuple[dict[str, _Array], dict[str, Any]]:
    """Returns sections and facts of a part with some blocks of several parts, in order; without a filter above them."""
    counts: list[_Array] = []
    classes: dict[_Class, list[_Filter]] = {}
    first = 0
    for part, rows in parts:
        counts.append(part.whole("counts")[rows])
        new_row = {row: first + at for at, row in enumerate(rows.tolist())}
        for number, (domain, power) in enumerate(part.header.facts["classes"]):
            filters = _unstacked(part.whole(f"words.{number}"), part.whole(f"sizes.{number}"), power)
            for row, words in zip(part.whole(f"members.{number}").tolist(), filters, strict=True):
                if row in new_row:
                    classes.setdefault((domain, power), []).append((new_row[row], words))
        first += len(rows)
    return _with_stacks({"counts": np.concatenate(counts)}, classes)


def _with_stacks(
    sections: dict[str, _Array], classes: Mapping[_Class, Sequence[_Filter]]
) -> tuple[dict[str, _Array], dict[str, Any]]:
    """Returns sections extended by those of filters, and the facts."""
    for number, (domain, power) in enumerate(sorted(classes)):
        filters = sorted(classes[domain, power], key=lambda each: each[0])
        sizes = np.array([len(words) for _, words in filters], dtype=np.int64)
        sections[f"members.{number}"] = np.array([row for row, _ in filters], dtype=np.int64)
        sections[f"sizes.{number}"] = sizes
        sections[f"words.{number}"] = _stacked([words for _, words in filters], _slots(sizes, power))
    return sections, {"classes": [list(each) for each in sorted(classes)]}


def _stacked(filters: Sequence[_Words], slots: _Rows) -> _Words:
    """Returns filters as one stack."""
    stack = np.empty((len(slots), _WORDS), dtype=np.uint32)
    first = 0
    for words in filters:
        stack[slots[first : first + len(words)]] = words
        first += len(words)
    return stack


def _unstacked(stack: _Words, sizes: _Rows, power: int) -> list[_Words]:
    """Returns the filters of a stack, one by one."""
    return [stack[some] for some in np.split(_slots(sizes, power), np.cumsum(sizes)[:-1])]


def _slots(sizes: _Rows, power: int) -> _Rows:
    """Returns the indexes of the slots of filters in a stack, one filter after another."""
    stripes = [(np.arange(size) << (_STRIPE_BITS + power)) // size for size in sizes.tolist()]
    order = np.argsort(np.concatenate(stripes), kind="stable")
    slots = np.empty_like(order)
    slots[order] = np.arange(len(order))
    return slots


def _class_of(domain: str, words: _Words) -> _Class:
    return domain, len(words).bit_length() - 1


def slot_numbers(keys: Hashes, slots: int) -> _Rows:
    """Returns the slot of each key."""
    return (((keys >> np.uint64(32)) * np.uint64(slots)) >> np.uint64(32)).astype(np.int64)


def filled(keys: Hashes, slots: int) -> _Words:
    """Returns a filter with these keys: (slots, 8)."""
    bits = np.zeros(slots * _WORDS * 32, dtype=bool)
    first = slot_numbers(keys, slots)[:, None] * (_WORDS * 32) + np.arange(_WORDS) * 32
    # The one bit that a key sets in each word.
    bits_of_keys = np.log2(masks_of(keys)).astype(np.int64)
    bits[(first + bits_of_keys).ravel()] = True
    return np.packbits(bits, bitorder="little").view("<u4").reshape(slots, _WORDS)
