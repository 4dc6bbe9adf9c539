"""Blocks as columns, brought into the sequence of the answer, with what the later stages say of each."""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np

from lamella.snapshot.expression.spelling import sql_of, tree_of
from lamella.snapshot.prune.residual import Residuals
from lamella.snapshot.prune.walk import Walked
from lamella.snapshot.wire import BlockColumns, Residual


def arranged(columns: BlockColumns, walked: Walked | None, residuals: Residuals | None) -> BlockColumns:
    """``columns`` (in the snapshot's order) in the answer's order, with residuals and bounds beside them."""
    found = columns
    if residuals is not None:
        found = msgspec.structs.replace(found, residual=residuals.indexes().tolist())
    if walked is None:
        return found
    if walked.order is not None:
        order = walked.order.tolist()
        given: dict[str, Any] = msgspec.structs.asdict(found)
        moved = {name: [values[at] for at in order] for name, values in given.items() if isinstance(values, list)}
        found = msgspec.structs.replace(found, **moved)
    if walked.bounds is not None:
        found = msgspec.structs.replace(found, order_bound=list(walked.bounds))
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
