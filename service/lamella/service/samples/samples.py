"""Reads samples of rows, within the bounds of the settings."""

from __future__ import annotations

import time
from collections.abc import Callable

from lamella.service.catalog import TableRecord
from lamella.service.config.settings import Settings
from lamella.service.history.history import History, trusted_manifests
from lamella.service.process.deadline import time_is_up
from lamella.service.tables.names import LocationRules
from lamella.snapshot.errors import PermissionDenied
from lamella.snapshot.expression import Predicate
from lamella.snapshot.warehouse import Warehouse
from lamella.snapshot.warehouse.row_sample import RowCount
from lamella.snapshot.wire import SampleAnswer, SampleRequest


class Samples:
    """Samples of tables; ``timer`` returns seconds."""

    def __init__(
        self,
        warehouse: Warehouse,
        history: History,
        rules: LocationRules,
        settings: Settings,
        timer: Callable[[], float] = time.monotonic,
    ) -> None:
        self._warehouse = warehouse
        self._history = history
        self._rules = rules
        self._timer = timer
        #: Most bytes of files that a sample reads.
        self.max_bytes = settings.sample_bytes_max
        #: Whether the settings allow samples.
        self.is_on = settings.sample_rows

    def read(self, table: TableRecord, request: SampleRequest) -> SampleAnswer:
        """Return rows of a table.

        Raises as :meth:`lamella.snapshot.warehouse.row_sample.RowSamples.read`, SnapshotNotFound, LocationRefused for
        a block where the table may have no files, and PermissionDenied if samples are switched off.
        """
        self._require_on()
        is_over = time_is_up(request.max_ms, self._timer)
        pointer = self._history.pointer(
            table, snapshot_id=request.snapshot_id, timestamp=request.timestamp, time_zone=request.time_zone
        )
        allowed = self._rules.of(table.namespace, table.main_id)
        max_bytes = self.max_bytes if request.max_bytes is None else min(request.max_bytes, self.max_bytes)
        with trusted_manifests():
            return self._warehouse.row_samples.read(
                pointer, request, max_bytes=max_bytes, is_over=is_over, require=allowed.require
            )

    def count(self, table: TableRecord, predicate: Predicate, *, time_zone: str, max_blocks: int) -> RowCount:
        """Return how many rows match now, by reading at most ``max_blocks`` blocks.

        Raises as :meth:`lamella.snapshot.warehouse.row_sample.RowSamples.count`, LocationRefused, and PermissionDenied
        if samples are switched off.
        """
        self._require_on()
        allowed = self._rules.of(table.namespace, table.main_id)
        with trusted_manifests():
            return self._warehouse.row_samples.count(
                table.pointer,
                predicate,
                time_zone=time_zone,
                max_blocks=max_blocks,
                max_bytes=self.max_bytes,
                is_over=time_is_up(None, self._timer),
                require=allowed.require,
            )

    def _require_on(self) -> None:
        if not self.is_on:
            raise PermissionDenied("samples of rows are switched off (setting sample_rows)", setting="sample_rows")
