"""Readers' reports of blocks that they read and that gave no row, stored in the catalog within limits.

Off unless both the service and the table enable it. A report is a statement of a client, so prunes do not use it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import msgspec

from lamella.service.catalog import Catalog, FeedbackBounds, FeedbackRecord, TableRecord
from lamella.service.config.settings import Settings
from lamella.service.history.history import History, trusted_manifests
from lamella.snapshot.errors import InvalidRequest, LimitExceeded
from lamella.snapshot.expression import bind, read_filter
from lamella.snapshot.manifest.block_key import block_keys, bytes_of
from lamella.snapshot.reader_feedback import ENABLED, digest_of, is_enabled
from lamella.snapshot.storage import normal
from lamella.snapshot.warehouse import Warehouse
from lamella.snapshot.wire import FeedbackAnswer, FeedbackCleared, FeedbackInfo, FeedbackRequest

#: Maximum number of blocks in one report.
MAX_LOCATIONS: Final = 10_000


class FeedbackQuery(msgspec.Struct, frozen=True, kw_only=True):
    """A filter as it was reported."""

    filter: Any
    time_zone: str
    case_sensitive: bool


class Feedback:
    """Stores, counts and deletes readers' reports. ``clock`` returns Unix milliseconds."""

    def __init__(
        self,
        catalog: Catalog,
        warehouse: Warehouse,
        history: History,
        clock: Callable[[], int],
        settings: Settings,
    ) -> None:
        self._catalog = catalog
        self._warehouse = warehouse
        self._history = history
        self._clock = clock
        self._on = settings.feedback
        self._bounds = FeedbackBounds(max_facts=settings.feedback_facts, max_bytes=settings.feedback_bytes)

    def report(self, table: TableRecord, request: FeedbackRequest) -> FeedbackAnswer:
        """Store a reader's report.

        Raises:
            InvalidRequest: feedback is off, the filter is constant, readers cannot evaluate it exactly, or a location
            is not a block of the snapshot.
            InvalidFilter, UnknownColumn, FilterTypeMismatch, LimitExceeded: the filter, or too many locations.
            SnapshotNotFound: no such snapshot in the history.
        """
        if len(request.empty) > MAX_LOCATIONS:
            raise LimitExceeded(
                f"a report names at most {MAX_LOCATIONS} blocks, not {len(request.empty)}",
                limit="empty",
                maximum=MAX_LOCATIONS,
            )
        pointer = self._history.pointer(table, snapshot_id=request.snapshot_id)
        self._require_on(table)
        with trusted_manifests():
            schema = self._warehouse.head(pointer).schema
        predicate = read_filter(request.filter, time_zone=request.time_zone)
        bind(predicate, schema, time_zone=request.time_zone, case_sensitive=request.case_sensitive)
        digest = digest_of(predicate, schema, time_zone=request.time_zone, case_sensitive=request.case_sensitive)
        if digest is None:
            raise InvalidRequest("the filter is constant, or has a part that no reader decides exactly")
        locations = list(dict.fromkeys(normal(location) for location in request.empty))
        with trusted_manifests():
            found = self._warehouse.identities_of(pointer, locations)
        missing = [location for location in locations if location not in found]
        if missing:
            raise InvalidRequest(
                f"{len(missing)} locations are no blocks of the snapshot, first {missing[0]!r}", blocks=missing[:100]
            )
        query = FeedbackQuery(filter=request.filter, time_zone=request.time_zone, case_sensitive=request.case_sensitive)
        # Deleted rows may match, and a rollback brings them back.
        locations = [location for location in locations if not found[location].deletes]
        if not locations:
            return FeedbackAnswer(remembered=0, known_before=0)
        record = FeedbackRecord(
            table_id=table.table_id,
            question=digest.hex(),
            filter_json=msgspec.json.encode(query).decode(),
            schema_id=schema.schema_id,
            blocks=bytes_of(block_keys(found[location] for location in locations)),
            block_count=len(locations),
            size_bytes=0,
            used_at_ms=self._clock(),
        )
        fresh = self._catalog.add_feedback(record, self._bounds)
        return FeedbackAnswer(remembered=fresh, known_before=len(locations) - fresh)

    def info(self, table: TableRecord) -> FeedbackInfo:
        """Return the amount of feedback stored for a table."""
        records = self._catalog.feedback(table.table_id)
        with trusted_manifests():
            enabled = self._on and is_enabled(self._warehouse.head(table.pointer).properties)
        return FeedbackInfo(
            enabled=enabled,
            filters=len(records),
            facts=sum(record.block_count for record in records),
            size_bytes=sum(record.size_bytes for record in records),
            max_facts=self._bounds.max_facts,
            max_bytes=self._bounds.max_bytes,
        )

    def clear(self, table: TableRecord) -> FeedbackCleared:
        """Deletes all reports of a table."""
        return FeedbackCleared(facts=self._catalog.clear_feedback(table.table_id))

    def _require_on(self, table: TableRecord) -> None:
        if not self._on:
            raise InvalidRequest("the service takes no feedback: its setting feedback is off")
        with trusted_manifests():
            if not is_enabled(self._warehouse.head(table.pointer).properties):
                raise InvalidRequest(f"the table takes no feedback: its property {ENABLED} is not true")
