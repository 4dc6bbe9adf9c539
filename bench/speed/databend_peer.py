"""Embedded Databend, which has to have real blocks: four rows each, which span the model's.

No registry has its server. The wheel that embeds it is of April 2026 and needs Python 3.12. It forgets its tables when
its process ends, so the process that is asked makes them too, in the folder that it is started in. Every block is a
file that is synced to the disk; in a folder in memory that takes a third of the time.

Its ``EXPLAIN`` prunes as a query does and says how many blocks are left, not which. The planner's own time, that of a
table without blocks to prune, is part of what is measured, as a user has it too.
"""

from __future__ import annotations

import re
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

import pyarrow.parquet as pq
from databend import SessionContext
from synthetic import FILTERED_COLUMNS, Model

from speed.four_rows import ROWS, rows
from speed.questions import Question, iso, sql

_BATCH: Final = 20_000
_SQL_TYPES: Final = "event_time timestamp, user_id bigint, error_code bigint null, country varchar, path varchar"


class Databend:
    """``EXPLAIN SELECT ... WHERE`` on a table of local Parquet blocks; its cache of prune results is off."""

    note = (
        "embedded, since no registry has the server; counts only; the five columns asked for, no bloom index; made by "
        "the process that is asked, so its memory holds what making left; 2 threads"
    )

    def __init__(self, folder: Path) -> None:  # noqa: ARG002  # as of Engine
        self.versions = {"databend": version("databend")}

    def build(self, count: int) -> None:
        """Load the rows, in batches of blocks.

        Raises:
            RuntimeError: it cut other blocks.
        """
        root = Path.cwd()
        self._context = SessionContext(data_path=str(root / "data"))
        self._ask("set enable_table_lock = 0")
        self._ask("set max_threads = 1")  # else rows of several blocks mix
        self._ask(
            f"create table t ({_SQL_TYPES}) storage_format = 'parquet' row_per_block = {ROWS} "
            "block_per_segment = 1000 bloom_index_columns = ''"
        )
        self._ask(f"create stage s url = 'fs://{root}/in/' file_format = (type = parquet)")
        (root / "in").mkdir(exist_ok=True)  # Databend may make it
        model = Model(count, FILTERED_COLUMNS)
        for start in range(0, count, _BATCH):
            file = root / "in" / f"{start}.parquet"
            pq.write_table(rows(model, start, min(count, start + _BATCH)), file)
            names = ", ".join(FILTERED_COLUMNS)
            self._ask(f"insert into t select {names} from @s/{file.name} (file_format => 'parquet')")
            file.unlink()
        blocks = self._ask("select block_count from fuse_snapshot('default', 't') limit 1")[0]["block_count"]
        if blocks != count:
            raise RuntimeError(f"Databend cut {blocks:,} blocks, not {count:,}")

    def open(self, count: int) -> None:  # noqa: ARG002  # as of Engine
        """Set what it is asked with."""
        self._ask("set max_threads = 2")
        self._ask("set max_inlist_to_or = 1000")
        self._ask("set enable_prune_cache = 0")

    def warm_up(self) -> None:
        """Do nothing: the first query warms up."""

    def run(self, query: Question) -> Any:
        """The plan as text."""
        where = sql(query, lambda ms: f"to_timestamp('{iso(ms, ' ')}')")
        plan = self._ask(f"explain select user_id from t where {where}")
        return "\n".join(next(iter(row.values())) for row in plan)

    def block_numbers(self, answer: Any) -> int:
        """How many blocks the plan scans.

        Raises:
            RuntimeError: the plan does not say.
        """
        found = re.search(r"partitions scanned: (\d+)", answer)
        if found is None and "EmptyResultScan" not in answer:
            raise RuntimeError(f"Databend's plan does not say how many blocks it scans: {answer[:500]}")
        return int(found.group(1)) if found else 0

    def _ask(self, text: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self._context.sql(text).to_arrow_table().to_pylist()
        return found
