"""Blocks as columns, brought into the sequence of the answer, with what the later stages say of each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np

from lamella.snapshot.expression.spelling import sql_of, tree_of
from lamella.snapshot.prune.kept import Indexes
from lamella.snapshot.prune.residual import Residuals
from lamella.snapshot.prune.walk import Walked
from lamella.snapshot.wire import BlockColumns, OrderBound, Residual


def arranged(
    columns: BlockColumns, order: Indexes | None, bounds: Sequence[OrderBound] | None, residual: Indexes | None
) -> BlockColumns:
    """``columns`` (in the snapshot's order) in the answer's ``order``, with residuals and bounds beside them.

    ``residual`` is in the snapshot's order as well, ``bounds`` are in the answer's.
    """
    found = columns
    if residual is not None:
        found = msgspec.structs.replace(found, residual=residual.tolist())
    if order is not None:
        places = order.tolist()
        given: dict[str, Any] = msgspec.structs.asdict(found)
        moved = {name: [values[at] for at in places] for name, values in given.items() if isinstance(values, list)}
        found = msgspec.structs.replace(found, **moved)
    if bounds is not None:
        found = msgspec.structs.replace(found, order_bound=list(bounds))
    return found


def residual_table(residuals: Residuals | None) -> tuple[Residual, ...] | None:
    """The distinct residuals as they travel."""
    if residuals is None:
        return None
    return tuple(
        Residual(sql=sql_of(predicate), tree=tree_of(predicate), blocks=count) for predicate, count in residuals.table()
    )


def unresolved_rows(walked: Walked | None) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Rows of the segments that time did not suffice for."""
    return np.array(() if walked is None else walked.unresolved, dtype=np.int64)
