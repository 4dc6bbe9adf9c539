"""The indexes of a snapshot, ready to be asked: bound to its schema, their parts opened where they are.

What was read once of a part is kept within the memory of all else; local parts are mapped.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import Any, Final

import numpy as np

from lamella.snapshot.cache import Shelf
from lamella.snapshot.expression.bound import BoundTerm, BoundTest
from lamella.snapshot.index import Claim, Kind, Part, PartRef, Probe, kind_named, kinds
from lamella.snapshot.index.definition import term_in, term_key
from lamella.snapshot.index.directory import Directory, Numbers
from lamella.snapshot.index.widening import can_serve
from lamella.snapshot.manifest import Snapshot, TableIndex
from lamella.snapshot.manifest.block_key import BlockKeys
from lamella.snapshot.schema import DataType, parse_type
from lamella.snapshot.warehouse.manifests import Manifests

#: What a page takes beside its bytes, with its place among the others, roughly.
_PAGE_BYTES: Final = 300
#: What an open part takes beside its tail.
_PART_BYTES: Final = 4_096


class IndexAccess:
    """Opens what indexes consist of."""

    def __init__(self, manifests: Manifests) -> None:
        self._manifests = manifests
        self._parts: Shelf[tuple[Part, Probe]] = Shelf(manifests.resident, "index part")
        self._pages: Shelf[bytes | memoryview] = Shelf(manifests.resident, "index page")

    def indexes(self, head: Snapshot) -> list[SnapshotIndex]:
        """The indexes of a snapshot that can be used: not those that were dropped, whose columns are gone, or of a kind
        that is not installed here."""
        found = []
        for index in head.skip_indexes:
            if index.dropped_ms is None and index.directories and index.kind in kinds():
                term = term_in(index, head)
                if term is not None:
                    found.append(SnapshotIndex(self, index, term))
        return found

    def directories(self, index: TableIndex) -> list[Directory]:
        """Its directories, the last one first: what it says of a block counts."""
        return [self._manifests.directory(ref.object) for ref in reversed(index.directories)]

    def is_open(self, ref: PartRef) -> bool:
        """Whether :meth:`opened` reads nothing."""
        return self._parts.get(ref.location) is not None

    def opened(self, kind: Kind, ref: PartRef) -> tuple[Part, Probe]:
        """A part, and what answers from it; raises as :class:`Part`."""

        def made() -> tuple[tuple[Part, Probe], int]:
            part = Part(ref, self._manifests.ranges_of(ref.location), _Pages(self._pages, ref.location))
            return (part, kind.probe(part)), ref.tail_bytes + _PART_BYTES

        return self._parts.load(ref.location, made)


class _Pages:
    """The pages of one part among all that is held in memory."""

    def __init__(self, shelf: Shelf[bytes | memoryview], location: str) -> None:
        self._shelf = shelf
        self._location = location

    def get(self, page: int, /) -> bytes | memoryview | None:
        """A page, when it is there."""
        return self._shelf.get((self._location, page))

    def __setitem__(self, page: int, data: bytes | memoryview, /) -> None:
        """Keep it."""
        self._shelf.put((self._location, page), data, len(data) + _PAGE_BYTES)


class _Silent:
    """Of a part that was built over another type, which says nothing of values of this one."""

    def claim(self, test: BoundTest, rows: Numbers) -> Claim | None:  # noqa: ARG002  # whatever is asked
        """Nothing."""
        return None


_SILENT: Final = _Silent()


class SnapshotPart:
    """A part for one request."""

    def __init__(self, access: IndexAccess, kind: Kind, ref: PartRef, asked: DataType) -> None:
        self._access = access
        self._asked = asked
        self._kind = kind
        self._ref = ref
        self._part: Part | None = None
        self._before = 0

    @property
    def read_bytes(self) -> int:
        """Bytes that were read since :meth:`probe`, by whoever asked meanwhile."""
        return 0 if self._part is None else self._part.read_bytes - self._before

    def probe(self) -> Probe:
        """Opens it."""
        was_open = self._access.is_open(self._ref)
        part, probe = self._access.opened(self._kind, self._ref)
        self._part, self._before = part, part.read_bytes if was_open else 0
        return probe if can_serve(parse_type(part.header.dtype), self._asked) else _SILENT


class SnapshotIndex:
    """An index as one snapshot sees it; see :class:`lamella.snapshot.prune.index_layer.OpenIndex`."""

    def __init__(self, access: IndexAccess, index: TableIndex, term: BoundTerm) -> None:
        self.name = index.name
        self.kind = kind_named(index.kind)
        self.expression = index.expression
        self.options: Mapping[str, Any] = index.options
        self.bytes_per_block = index.size_bytes / max(index.block_count, 1)
        self.key: Hashable = term_key(term)
        self._dtype = term.dtype
        self._access = access
        self._index = index

    def places(self, keys: BlockKeys) -> tuple[Sequence[SnapshotPart], Numbers, Numbers]:
        """The parts that know blocks, and for each block the number of its part (-1: none) and its row there."""
        parts: list[SnapshotPart] = []
        number = np.full(len(keys), -1, dtype=np.int64)
        row = np.zeros(len(keys), dtype=np.int64)
        for directory in self._access.directories(self._index):
            open_ = (number < 0).nonzero()[0]
            if not len(open_):
                break
            part, at = directory.find(keys[open_])
            known = part >= 0
            number[open_[known]] = part[known] + len(parts)
            row[open_[known]] = at[known]
            parts += [SnapshotPart(self._access, self.kind, ref, self._dtype) for ref in directory.parts]
        return parts, number, row
