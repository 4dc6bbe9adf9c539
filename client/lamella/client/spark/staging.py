"""Tables that come into being with their first rows: ``CREATE TABLE AS SELECT`` and ``REPLACE TABLE``.

A new table is there, empty, from the moment that Spark begins; its rows come in one commit, and when that fails the
table is dropped again, unless somebody has committed to it meanwhile. One that exists is replaced by one commit too,
and only by a table of the same columns; until then it is as it was.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from lamella.client.spark.gateway import CONNECTOR
from lamella.client.spark.sql_write import Destination
from lamella.client.spark.table_proxy import LakeTableProxy
from lamella.client.spark.writer import drop_unused
from lamella.snapshot.wire import TableInfo

_CATALOG: Final = CONNECTOR + "catalog."


class StagedLakeTable(LakeTableProxy):
    """``made``: the table as it was created; None: it was there before, and ``properties`` are set on it."""

    class Java:
        implements = [*LakeTableProxy.Java.implements, _CATALOG + "StagedTable"]  # noqa: RUF012

    def __init__(
        self,
        destination: Destination,
        shown_name: str,
        shape: tuple[Any, Any],
        *,
        made: TableInfo | None,
        properties: Mapping[str, str],
    ) -> None:
        super().__init__(destination, shown_name, shape)
        self._made = made
        self._new_properties = dict(properties)
        self._written_before = destination.pins.written(self._table.name)

    def commitStagedChanges(self) -> None:
        if self._made is not None:
            return
        to, name = self._destination, self._table.name
        if to.pins.written(name) == self._written_before:  # there is no query that Spark would have written
            self.truncateTable()
        handle = to.lake.table(name)
        now = handle.info().properties
        changed = {key: text for key, text in self._new_properties.items() if now.get(key) != text}
        if changed:
            handle.commit(operation="alter", properties=changed)

    def abortStagedChanges(self) -> None:
        if self._made is not None:
            drop_unused(self._destination.lake, self._made)
