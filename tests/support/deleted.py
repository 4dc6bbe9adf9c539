"""Random tables some of whose rows are deleted."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import TypeVar

import msgspec
import numpy as np

from lamella.snapshot.deletes import VectorFile
from lamella.snapshot.manifest import Block, DeleteFile
from lamella.snapshot.storage import Store

_Row = TypeVar("_Row")

#: Location of lists that no test reads.
_NOWHERE = "memory://deletes/nothing.puffin"


def without_some(
    rng: Random, block: Block, rows: Sequence[_Row], store: Store | None = None
) -> tuple[Block, list[_Row]]:
    """The block with random rows deleted, perhaps none, and the rows that are left.

    Every second block with deleted rows does not say how many there are, for one of three reasons: an unknown
    cardinality, two lists, or both; then all rows may be deleted. ``store``: where the lists are written; None:
    nowhere.
    """
    count = len(rows)
    chosen = rng.choice([0, 0, 1, 1, 2, count // 2, count - 1, count])
    gone = rng.sample(range(count), min(max(chosen, 0), count))
    kind = rng.choice(["known", "known", "unknown", "two", "two unknown"])
    if kind == "known" and len(gone) == count:
        gone = gone[1:]
    if not gone:
        return block, list(rows)
    parts = [gone]
    if kind.startswith("two"):
        at = rng.randint(0, len(gone))
        parts = [gone[:at] or gone[:1], gone[max(at - rng.randint(0, 2), 0) :] or gone[-1:]]
    location = _NOWHERE if store is None else f"{block.location}.{rng.getrandbits(64)}.puffin"
    file = VectorFile(location)
    entries = tuple(file.add(block.location, np.array(sorted(part), dtype=np.int64)) for part in parts)
    if store is not None:
        store.put(location, file.finished())
    if kind.endswith("unknown"):
        entries = tuple(_uncounted(entry) for entry in entries)
    left = [row for number, row in enumerate(rows) if number not in set(gone)]
    return msgspec.structs.replace(block, deletes=entries), left


def _uncounted(entry: DeleteFile) -> DeleteFile:
    return msgspec.structs.replace(entry, cardinality=None)
