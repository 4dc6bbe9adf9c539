"""Filters that are asked, kept for advice: noted beside a prune, written later by a thread of their own.

A prune only puts a note into a queue of bounded length; when a thread cannot keep up, the oldest notes are lost. What
is written is each filter once, without its constants unless the service or the table says otherwise.
"""

from __future__ import annotations

import hashlib
import threading
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any, Final

import msgspec

from lamella.service.catalog import Catalog, RecordedBounds, RecordedFilter, TableRecord
from lamella.service.later import Later
from lamella.service.metrics import Metrics
from lamella.service.settings import Settings
from lamella.snapshot.advice.recording import Mode, mode_of
from lamella.snapshot.advice.shapes import masked
from lamella.snapshot.errors import LamellaError
from lamella.snapshot.expression import read_filter, text_of
from lamella.snapshot.expression.spelling import tree_of
from lamella.snapshot.prune.found import Found
from lamella.snapshot.warehouse import Warehouse
from lamella.snapshot.wire import PruneRequest, Report

#: Notes that are held at most, and that are written together.
_MOST_NOTES: Final = 1_024
_TOGETHER: Final = 128
#: No longer until a note is written, once there is another one.
_LATEST_S: Final = 10.0
#: A filter whose tree is longer is not kept.
_MOST_CHARS: Final = 16_384
_DIGEST_CHARS: Final = 32
_TEXT_CHARS: Final = 500

_Note = tuple[TableRecord, PruneRequest, int, Report]


class Recorder:
    """Keeps filters. ``secret`` keys the hashes, ``timer`` gives seconds."""

    def __init__(
        self,
        catalog: Catalog,
        warehouse: Warehouse,
        metrics: Metrics,
        clock: Callable[[], int],
        timer: Callable[[], float],
        settings: Settings,
        secret: bytes,
    ) -> None:
        self._catalog = catalog
        self._warehouse = warehouse
        self._metrics = metrics
        self._clock = clock
        self._timer = timer
        self._default: Mode = settings.record_prunes
        self._is_on = settings.record_prunes != "off"
        self._bounds = RecordedBounds(most_filters=settings.recorded_filters, most_bytes=settings.recorded_bytes)
        self._secret = secret
        self._notes: deque[_Note] = deque(maxlen=_MOST_NOTES)
        self._written_s = timer()
        self._lock = threading.Lock()
        self._later = Later(self.write, 0.0, "recorder")

    def note(self, record: TableRecord, asked: PruneRequest, found: Found) -> None:
        """Take note of a prune; waits for nothing."""
        if not self._is_on or asked.filter is None:
            return
        notes = self._notes
        notes.append((record, asked, found.block_count, found.answer.report))
        if len(notes) >= _TOGETHER or self._timer() - self._written_s > _LATEST_S:
            self._later.soon()

    def write(self) -> None:
        """Write what is noted. A filter that cannot be kept, or that the catalog does not take, is lost and counted."""
        with self._lock:
            self._written_s = self._timer()
            self._write(self._taken())

    def mode(self, record: TableRecord) -> Mode:
        """What is kept of the filters of a table."""
        return mode_of(self._warehouse.head(record.pointer).properties, self._default)

    def filters(self, table_id: str, limit: int) -> list[RecordedFilter]:
        """What was kept of a table, this process's last notes among it."""
        self.write()
        return self._catalog.recorded(table_id, limit=min(limit, self._bounds.most_filters))

    def clear(self, table_id: str) -> int:
        """Forget what was kept of a table."""
        self.write()
        return self._catalog.clear_recorded(table_id)

    def close(self) -> None:
        """Write the last notes, and end the thread."""
        self._later.close()
        self.write()

    def _taken(self) -> Iterable[_Note]:
        while True:
            try:
                yield self._notes.popleft()
            except IndexError:
                return

    def _write(self, notes: Iterable[_Note]) -> None:
        by_table: dict[str, dict[str, RecordedFilter]] = {}
        modes: dict[str, Mode] = {}
        lost = kept = 0
        for note in notes:
            table_id = note[0].table_id
            try:
                if table_id not in modes:
                    modes[table_id] = self.mode(note[0])
                if modes[table_id] == "off":
                    continue
                made = self._kept(note, modes[table_id])
            except LamellaError:  # a prune answered this filter, but its table may be gone by now
                made = None
            if made is None:
                lost += 1
                continue
            kept += 1
            found = by_table.setdefault(table_id, {})
            found[made.digest] = _together(found.get(made.digest), made)
        for table_id, filters in by_table.items():
            try:
                self._catalog.add_recorded(table_id, list(filters.values()), self._bounds)
            except LamellaError:  # the catalog does not answer: advice can do without
                count = sum(each.times for each in filters.values())
                lost, kept = lost + count, kept - count
        self._metrics.recorded(kept=kept, lost=lost)

    def _kept(self, note: _Note, mode: Mode) -> RecordedFilter | None:
        record, asked, block_count, report = note
        predicate: Any = read_filter(asked.filter, time_zone=asked.time_zone)
        if mode != "full":
            predicate = masked(predicate, self._secret if mode == "hashed" else None)
        tree = msgspec.json.encode(tree_of(predicate)).decode()
        if len(tree) > _MOST_CHARS or "\\u0000" in tree:
            return None
        text = text_of(predicate)[:_TEXT_CHARS]
        name = hashlib.sha256(f"{mode} {asked.time_zone} {tree}".encode()).hexdigest()[:_DIGEST_CHARS]
        now_ms = self._clock()
        kept_bytes = next((stage.bytes for stage in reversed(report.stages) if stage.stage != "page"), 0)
        return RecordedFilter(
            table_id=record.table_id,
            digest=name,
            mode=mode,
            tree=tree,
            text=text,
            time_zone=asked.time_zone,
            times=1,
            considered=report.blocks_total,
            kept=block_count,
            kept_bytes=kept_bytes,
            size_bytes=len(tree.encode()) + len(text.encode()),
            first_ms=now_ms,
            last_ms=now_ms,
        )


def _together(before: RecordedFilter | None, each: RecordedFilter) -> RecordedFilter:
    if before is None:
        return each
    return msgspec.structs.replace(
        before,
        times=before.times + each.times,
        considered=before.considered + each.considered,
        kept=before.kept + each.kept,
        kept_bytes=before.kept_bytes + each.kept_bytes,
        last_ms=each.last_ms,
    )
