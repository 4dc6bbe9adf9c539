"""Rows for engines that need real blocks: four a block, which span what the model says of it."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from synthetic import FILTERED_COLUMNS, Model

from speed.rendered import as_values

#: Rows of a block.
ROWS: Final = 4


def rows(model: Model, start: int, stop: int) -> Any:
    """Minimum, maximum, minimum (null where the block has nulls), maximum of each block, in the columns asked for."""
    size = stop - start
    first = np.arange(size)
    order = pa.array(np.stack([first, first + size, first, first + size], axis=1).ravel())
    columns: dict[str, Any] = {}
    for name in FILTERED_COLUMNS:
        ends = [as_values(model, name, side, start, stop) for side in (model.low, model.high)]
        column = pa.chunked_array(ends).combine_chunks().take(order)
        if name == "error_code":
            null = np.zeros((size, ROWS), bool)
            null[:, 2] = model.nulls(name)[start:stop] > 0
            column = pc.if_else(pa.array(null.ravel()), pa.scalar(None, pa.int64()), column)
        columns[name] = column.cast(pa.timestamp("us")) if name == "event_time" else column
    return pa.table(columns)
