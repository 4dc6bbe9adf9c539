"""Some blocks of a snapshot, read to measure instead of estimating."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from lamella.snapshot.advice.rows import SampledColumn, from_vectors
from lamella.snapshot.errors import LamellaError
from lamella.snapshot.expression.bound import BoundTerm
from lamella.snapshot.index import Kind, Part, Probe
from lamella.snapshot.index.block_values import own_footer, term_values
from lamella.snapshot.index.building import Built
from lamella.snapshot.index.definition import term_key
from lamella.snapshot.index.directory import Directory, Numbers
from lamella.snapshot.layout import Store
from lamella.snapshot.manifest import TableIndex
from lamella.snapshot.manifest.block_key import BlockKeys
from lamella.snapshot.parquet.decoded import Unreadable
from lamella.snapshot.schema import Leaf
from lamella.snapshot.warehouse.scene import Scene

Rows = npt.NDArray[np.int64]


class SampledBlocks(msgspec.Struct, frozen=True, eq=False):
    """Columns of blocks that could be read, in their order; ``blocks``: which."""

    blocks: Any
    columns: Sequence[Mapping[Leaf, SampledColumn]]


def read_columns(store: Store, scene: Scene, chosen: Rows, leaves: Sequence[Leaf]) -> SampledBlocks:
    """Read columns of blocks; those that cannot be read are left out. Raises StoreError."""
    blocks: list[int] = []
    columns: list[Mapping[Leaf, SampledColumn]] = []
    for number in chosen.tolist():
        block = scene.block(number)
        try:
            footer = own_footer(store, block)
            columns.append(
                {leaf: from_vectors(list(term_values(store, scene.head, leaf, block, footer))) for leaf in leaves}
            )
        except Unreadable:
            continue
        except LamellaError as error:
            if error.code == "store_error":
                raise
            continue
        blocks.append(number)
    return SampledBlocks(np.array(blocks, dtype=np.int64), columns)


class _MeasuredPart:
    """A part in memory."""

    read_bytes = 0

    def __init__(self, kind: Kind, built: Built) -> None:
        part = built.part
        if part is None:
            raise AssertionError("a part has blocks")
        data = part.data

        def fetch(ranges: Sequence[tuple[int, int]]) -> list[bytes]:
            return [data[start : start + length] for start, length in ranges]

        self._probe = kind.probe(Part(part.ref("memory"), fetch))

    def probe(self) -> Probe:
        """What answers."""
        return self._probe


class MeasuredIndex:
    """An index over a sample of blocks, which is asked like any other; blocks that it does not know are kept."""

    def __init__(self, kind: Kind, index: TableIndex, term: BoundTerm, built: Built) -> None:
        self.name = index.name
        self.kind = kind
        self.expression = index.expression
        self.options: Mapping[str, Any] = index.options
        self.bytes_per_block = 0.0
        self.key: Hashable = term_key(term)
        self._parts = [] if built.part is None else [_MeasuredPart(kind, built)]
        self._directory = None
        if built.part is not None:
            self._directory = Directory.of([(built.part.ref("memory"), built.part.keys)])

    def places(self, keys: BlockKeys) -> tuple[Sequence[_MeasuredPart], Numbers, Numbers]:
        """The part, and where it has blocks."""
        if self._directory is None:
            return [], np.full(len(keys), -1, dtype=np.int64), np.zeros(len(keys), dtype=np.int64)
        part, row = self._directory.find(keys)
        return self._parts, part, row
