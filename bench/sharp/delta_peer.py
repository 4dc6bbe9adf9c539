"""delta-rs: a Delta table made over the files in place, with the statistics that it takes from their footers."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from deltalake import DeltaTable, convert_to_deltalake
from deltalake.exceptions import DeltaError

from sharp.blocks import Blocks
from sharp.dialects import DATAFUSION
from sharp.filters import Filter
from sharp.planner import Plan


class DeltaPlanner:
    """``DeltaTable.file_uris(file_pruning_predicate=...)``; the files stay, a ``_delta_log`` appears beside them."""

    name = "delta-rs"

    def __init__(self, blocks: Blocks) -> None:
        convert_to_deltalake(str(blocks.folder))
        self._table = DeltaTable(str(blocks.folder))
        self._number = {path.name: index for index, path in enumerate(blocks.files)}

    def plan(self, node: Filter) -> Plan | None:
        """Return the remaining files; None for predicates that the library does not support (LIKE, functions, ...)."""
        try:
            uris = self._table.file_uris(file_pruning_predicate=DATAFUSION.sql(node))
        except DeltaError:
            return None
        selected = np.zeros(len(self._number), dtype=bool)
        for uri in uris:
            selected[self._number[Path(uri).name]] = True
        return Plan(selected, np.zeros(len(selected), dtype=bool))
