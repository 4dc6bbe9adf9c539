"""Constraints of a table. Adding one may read rows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lamella.client.http.call import Filter
from lamella.client.http.scan import TableScan
from lamella.client.http.write import TableWrite
from lamella.snapshot.schema import Check
from lamella.snapshot.schema.evolution import DropCheck


class TableConstraints(TableScan, TableWrite):
    """CHECK constraints; a part of :class:`lamella.client.http.Table`."""

    def add_check(
        self,
        name: str,
        condition: Filter,
        *,
        time_zone: str = "UTC",
        storage_options: Mapping[str, Mapping[str, Any]] | None = None,
        workers: int = 8,
    ) -> str:
        """Add a CHECK constraint: from now on, every writer refuses rows for which ``condition`` is false. Returns the
        snapshot that has it.

        ``condition``: a filter, as in :meth:`prune`; null satisfies it, as in SQL. The table has it as SQL text, so an
        expression is written as SQL that means the same. ``time_zone``: of its dates and times without one. Blocks
        whose statistics do not prove that they satisfy it are read by this client: ``storage_options`` are the options
        of fsspec by scheme, ``workers`` the number of row groups that are read concurrently. See
        ``docs/schema.md#constraints``.

        Raises:
            CheckViolation: a row of the table violates it; nothing was done.
            InvalidFilter, UnknownColumn, FilterTypeMismatch, FilterNotEvaluable: the condition cannot be read, or
                cannot be decided for each row.
            InvalidRequest: the condition cannot be written as SQL.
            InvalidSchema: the table has a constraint of this name.
            NewMatches: others added rows that may violate it, on every attempt; nothing was done.
            TableNotFound, NamespaceNotFound, StoreError.

        Example:
            >>> snapshot_id = table.add_check("positive", "price > 0")
            >>> [check.name for check in table.schema().schema.checks]
            ['positive']
            >>> snapshot_id = table.add_check("known", col("country").is_in(["DE", "FR", "US"]))
            >>> table.schema().schema.checks[1].condition
            "`country` IN ('DE', 'FR', 'US')"
        """
        from lamella.client.write.constraints import add_check, condition_text

        text = condition if isinstance(condition, str) else condition_text(condition, self.schema().schema)
        check = Check(name=name, condition=text, time_zone=time_zone)
        return add_check(self._service, self, str(self._name), check, storage_options=storage_options, workers=workers)

    def drop_check(self, name: str) -> None:
        """Drop a CHECK constraint; raises InvalidSchema if there is none of this name.

        Example:
            >>> snapshot_id = table.add_check("positive", "price > 0")
            >>> table.drop_check("positive")
        """
        self.evolve([DropCheck(name=name)])
