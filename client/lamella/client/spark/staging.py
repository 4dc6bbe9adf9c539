"""Tables that come into being with their first rows: ``CREATE TABLE AS SELECT`` and ``REPLACE TABLE``.

A new table is there, empty, from the moment that Spark begins; its rows come in one commit, and when that fails the
table is dropped again. One that exists is replaced by one commit too, and only by a table of the same columns; until
then it is as it was.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Final

from lamella.client.spark.gateway import CONNECTOR
from lamella.client.spark.sql_write import Destination
from lamella.client.spark.table_proxy import LakeTableProxy
from lamella.snapshot.errors import TableNotFound

_CATALOG: Final = CONNECTOR + "catalog."


class StagedLakeTable(LakeTableProxy):
    """``replaces``: the table was there before; ``properties`` are set on it then."""

    class Java:
        implements = [*LakeTableProxy.Java.implements, _CATALOG + "StagedTable"]  # noqa: RUF012

    def __init__(
        self,
        destination: Destination,
        shown_name: str,
        shape: tuple[Any, Any],
        *,
        replaces: bool,
        properties: Mapping[str, str],
    ) -> None:
        super().__init__(destination, shown_name, shape)
        self._replaces = replaces
        self._new_properties = dict(properties)
        self._written_before = destination.pins.written(self._table.name)

    def commitStagedChanges(self) -> None:
        if not self._replaces:
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
        if self._replaces:
            return
        lake, name = self._destination.lake, self._table.name
        with suppress(TableNotFound):
            if lake.table(name).info().table_id == self._table.table_id:
                lake.drop_table(name, purge=True)
