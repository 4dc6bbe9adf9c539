"""Records filters for advice, and prune rates: noted during a prune, written later by a thread.

A prune only adds a note to a bounded queue; if the thread cannot keep up, the oldest notes are lost. The thread adds up
notes of equal filters, and stores the sums every few seconds. Each filter is stored once, without its constants unless
the service or the table says otherwise.

Prune rates are sums in memory, which a prune updates without waiting. Every few seconds they are added to those in the
catalog, to which all workers and replicas add. A killed process loses its last seconds.
"""

from __future__ import annotations

import hashlib
import threading
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import Any, Final, NamedTuple

import msgspec

from lamella.service.catalog import Catalog, PruneRateRow, RecordedBounds, RecordedFilter, TableRecord
from lamella.service.config.settings import Settings
from lamella.service.process.threads import BatchDeletion, Debouncer
from lamella.service.telemetry.metrics import Metrics
from lamella.snapshot.errors import LamellaError, OutcomeUnknown, Unavailable
from lamella.snapshot.expression import read_filter, text_of
from lamella.snapshot.expression.shapes import LiteralKind, ShapeKey, literal_kinds, split_literals
from lamella.snapshot.expression.text import tree_of
from lamella.snapshot.prune.result import PruneResult
from lamella.snapshot.warehouse import Warehouse
from lamella.snapshot.wire import PruneRate, PruneRatesAnswer, PruneRequest, Report
from lamella.snapshot.wire.operations.usage import BUCKET_MS, RATE_RETENTION_MS
from lamella.snapshot.workload.recorded_filters import Mode, Recorded, masked, mode_of

#: Most notes in memory, and how many are added up together.
_MAX_NOTES: Final = 1_024
_TOGETHER: Final = 128
#: Longest delay until a note is written, once there is another one; shortest time between two writes, unless there are
#: as many different filters as here.
_LATEST_S: Final = 10.0
_WRITE_S: Final = 5.0
_MAX_SUMS: Final = 256
#: Number of shapes whose masked form is cached.
_SHAPES: Final = 256
#: Longest tree of a filter that is stored.
_MAX_CHARS: Final = 16_384
_DIGEST_CHARS: Final = 32
_TEXT_CHARS: Final = 500


class _Note(NamedTuple):
    """A prune that was answered, or a scan that a client planned by itself.

    ``has_constants``: those of its filter are the ones that were used.
    """

    record: TableRecord
    request: PruneRequest
    block_count: int
    report: Report
    has_constants: bool = True


class _Masked(msgspec.Struct, frozen=True):
    """A filter without its constants as it is stored: its tree as JSON, its text, and the name of both.

    ``kinds``: those of its literals, if every filter of this shape and with such literals is stored in the same way.
    """

    tree: str
    text: str
    digest: str
    kinds: tuple[LiteralKind, ...] | None = None


class _FilterSums:
    """The prunes of one filter that are not written yet."""

    __slots__ = (
        "considered",
        "first_ms",
        "form",
        "last_ms",
        "mode",
        "selected_blocks",
        "selected_bytes",
        "time_zone",
        "times",
    )

    def __init__(self, form: _Masked, mode: Mode, time_zone: str, now_ms: int) -> None:
        self.form = form
        self.mode = mode
        self.time_zone = time_zone
        self.first_ms = self.last_ms = now_ms
        self.times = self.considered = self.selected_blocks = self.selected_bytes = 0

    def add(self, note: _Note, now_ms: int) -> None:
        """Add a prune."""
        report = note.report
        self.times += 1
        self.considered += report.blocks_total
        self.selected_blocks += note.block_count
        self.selected_bytes += next((stage.bytes for stage in reversed(report.stages) if stage.stage != "page"), 0)
        self.last_ms = now_ms

    def record(self, table_id: str) -> RecordedFilter:
        """Return what is stored."""
        form = self.form
        return RecordedFilter(
            table_id=table_id,
            digest=form.digest,
            mode=self.mode,
            tree=form.tree,
            text=form.text,
            time_zone=self.time_zone,
            times=self.times,
            considered=self.considered,
            kept=self.selected_blocks,
            kept_bytes=self.selected_bytes,
            size_bytes=len(form.tree.encode()) + len(form.text.encode()),
            first_ms=self.first_ms,
            last_ms=self.last_ms,
        )


class FilterRecorder:
    """Records filters. ``secret`` is the key of the hashes; ``timer`` returns seconds."""

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
        self._bounds = RecordedBounds(max_filters=settings.recorded_filters, max_bytes=settings.recorded_bytes)
        self._secret = secret
        self._notes: deque[_Note] = deque(maxlen=_MAX_NOTES)
        self._written_s = timer()
        self._lock = threading.Lock()
        #: What is not written yet, by table and digest.
        self._sums: dict[str, dict[str, _FilterSums]] = {}
        self._shapes: dict[tuple[ShapeKey, str], _Masked] = {}
        self._debouncer = Debouncer(self._add_up, 0.0, "recorder")

    def note(self, record: TableRecord, request: PruneRequest, found: PruneResult) -> None:
        """Take note of a prune; waits for nothing."""
        if self._is_on and request.filter is not None:
            self._add(_Note(record, request, found.block_count, found.answer.report))

    def note_scan(self, record: TableRecord, request: PruneRequest, report: Report) -> None:
        """Take note of a scan that a client planned by itself, without the constants of its filter.

        ``report``: its only stage has what the client read, at most the table's blocks.
        """
        if self._is_on and request.filter is not None:
            self._add(_Note(record, request, report.stages[0].kept, report, has_constants=False))

    def _add(self, note: _Note) -> None:
        notes = self._notes
        notes.append(note)
        if len(notes) >= _TOGETHER or self._timer() - self._written_s > _LATEST_S:
            self._debouncer.soon()

    def _add_up(self) -> None:
        """Add up the notes, and write the sums if it is time."""
        with self._lock:
            self._count(self._taken())
            is_due = self._timer() - self._written_s > _WRITE_S
            if is_due or sum(map(len, self._sums.values())) >= _MAX_SUMS:
                self._write()

    def write(self) -> None:
        """Write the notes. A filter that cannot be stored, or that the catalog refuses, is lost and counted."""
        with self._lock:
            self._count(self._taken())
            self._write()

    def mode(self, record: TableRecord) -> Mode:
        """Return what is recorded of the filters of a table."""
        return mode_of(self._warehouse.head(record.pointer).properties, self._default)

    def filters(self, table_id: str, limit: int) -> list[RecordedFilter]:
        """Return the recorded filters of a table, including the last notes of this process."""
        self.write()
        return self._catalog.recorded(table_id, limit=min(limit, self._bounds.max_filters))

    def clear(self, table_id: str) -> int:
        """Delete the recorded filters of a table."""
        self.write()
        return self._catalog.clear_recorded(table_id)

    def close(self) -> None:
        """Write the last notes, and stop the thread."""
        self._debouncer.close()
        self.write()

    def _taken(self) -> Iterable[_Note]:
        while True:
            try:
                yield self._notes.popleft()
            except IndexError:
                return

    def _count(self, notes: Iterable[_Note]) -> None:
        modes: dict[str, Mode] = {}
        now_ms = self._clock()
        lost = 0
        for note in notes:
            table_id = note.record.table_id
            try:
                if table_id not in modes:
                    modes[table_id] = self.mode(note.record)
                mode = modes[table_id]
                if mode == "off":
                    continue
                mode = mode if note.has_constants else "shape"
                form = self._masked(note.request, mode)
            except LamellaError:  # the filter was answered, but its table may be dropped by now
                form = None
            if form is None or len(form.tree) > _MAX_CHARS or "\\u0000" in form.tree:
                lost += 1
                continue
            found = self._sums.setdefault(table_id, {})
            sums = found.get(form.digest)
            if sums is None:
                sums = found[form.digest] = _FilterSums(form, mode, note.request.time_zone, now_ms)
            sums.add(note, now_ms)
        self._metrics.recorded(stored=0, lost=lost)

    def _write(self) -> None:
        self._written_s = self._timer()
        by_table, self._sums = self._sums, {}
        lost = stored = 0
        for table_id, found in by_table.items():
            count = sum(each.times for each in found.values())
            try:
                records = [each.record(table_id) for each in found.values()]
                self._catalog.add_recorded(table_id, records, self._bounds)
                stored += count
            except LamellaError:  # the catalog does not answer; advice can do without
                lost += count
        self._metrics.recorded(stored=stored, lost=lost)

    def _masked(self, request: PruneRequest, mode: Mode) -> _Masked:
        """Return the form of a filter that is stored; filters of one shape mostly have the same."""
        split = split_literals(request.filter) if mode == "shape" and isinstance(request.filter, str) else None
        if split is None:
            return self._read(request, mode)
        key = (split[0], request.time_zone)
        known = self._shapes.get(key)
        if known is not None and known.kinds is not None:
            literals = zip(known.kinds, split[1], strict=True)
            if all(kind.read(each, request.time_zone) is not None for kind, each in literals):
                return known
        made = self._read(request, mode)
        if known is None:
            while len(self._shapes) >= _SHAPES:
                self._shapes.pop(next(iter(self._shapes)))
            kinds = literal_kinds(request.filter, request.time_zone)
            self._shapes[key] = msgspec.structs.replace(made, kinds=kinds)
        return made

    def _read(self, request: PruneRequest, mode: Mode) -> _Masked:
        predicate: Any = read_filter(request.filter, time_zone=request.time_zone)
        if mode != "full":
            predicate = masked(predicate, self._secret if mode == "hashed" else None)
        tree = msgspec.json.encode(tree_of(predicate)).decode()
        name = hashlib.sha256(f"{mode} {request.time_zone} {tree}".encode()).hexdigest()[:_DIGEST_CHARS]
        return _Masked(tree, text_of(predicate)[:_TEXT_CHARS], name)


_DELAY_S: Final = 5.0
#: Most sums in memory while the catalog does not answer.
_MAX_PENDING: Final = 10_000


class _Sums:
    """The sums of one table in one period."""

    __slots__ = ("bytes_total", "considered", "ms", "prunes", "selected_blocks", "selected_bytes")

    def __init__(self) -> None:
        self.prunes = self.considered = self.selected_blocks = self.bytes_total = self.selected_bytes = 0
        self.ms = 0.0

    def add(self, other: _Sums) -> None:
        """Add other sums."""
        for name in self.__slots__:
            setattr(self, name, getattr(self, name) + getattr(other, name))


class PruneRates:
    """Stores prune rates. ``clock`` returns Unix milliseconds."""

    def __init__(self, catalog: Catalog, metrics: Metrics, clock: Callable[[], int]) -> None:
        self._catalog = catalog
        self._metrics = metrics
        self._clock = clock
        self._sums: dict[tuple[str, int], _Sums] = {}
        self._lock = threading.Lock()
        self._writing = threading.Lock()
        self._debouncer = Debouncer(self.write, _DELAY_S, "prune-rates")
        self._forgetting = BatchDeletion(
            clock,
            RATE_RETENTION_MS,
            lambda before_ms, limit: catalog.forget_prune_rates(before_ms=before_ms, limit=limit),
        )

    def note(self, record: TableRecord, report: Report, selected_blocks: int) -> None:
        """Count a prune of a whole snapshot that kept so many blocks; does not block."""
        key = (record.table_id, self._clock() // BUCKET_MS)
        selected_bytes = report.bytes_total
        ms = 0.0
        for stage in report.stages:
            ms += stage.ms
            if stage.stage != "page":  # skipping inside of blocks is not counted
                selected_bytes = stage.bytes
        with self._lock:
            sums = self._sums.get(key)
            if sums is None:
                sums = self._sums[key] = _Sums()
            sums.prunes += 1
            sums.considered += report.blocks_total
            sums.selected_blocks += selected_blocks
            sums.bytes_total += report.bytes_total
            sums.selected_bytes += selected_bytes
            sums.ms += ms
        if not self._debouncer.is_due:
            self._debouncer.soon()

    def rates(self, table_ids: Sequence[str], *, since_ms: int) -> dict[str, PruneRate]:
        """Return, by table, the sums of all prunes since the period of that time, including the last ones of this
        process.

        Tables without prunes are left out. Raises Unavailable.
        """
        self.write()
        return self._catalog.prune_rates(table_ids, since_ms=_begin_ms(since_ms))

    def series(self, table_id: str, *, since_ms: int) -> list[PruneRate]:
        """Return the prunes of a table by period, the oldest first, from the period of that time on. Raises
        Unavailable.
        """
        self.write()
        return self._catalog.prune_rate_series(table_id, since_ms=_begin_ms(since_ms))

    def answer(self, table: TableRecord, since_s: int) -> PruneRatesAnswer:
        """Return the prunes of the last ``since_s`` seconds. Raises Unavailable."""
        since_ms = _begin_ms(self._clock() - since_s * 1000)
        series = self.series(table.table_id, since_ms=since_ms)
        total = PruneRate(
            prunes=sum(each.prunes for each in series),
            considered_blocks=sum(each.considered_blocks for each in series),
            kept_blocks=sum(each.kept_blocks for each in series),
            bytes_total=sum(each.bytes_total for each in series),
            kept_bytes=sum(each.kept_bytes for each in series),
            ms=sum(each.ms for each in series),
        )
        return PruneRatesAnswer(since_ms=since_ms, bucket_s=BUCKET_MS // 1000, total=total, series=tuple(series))

    def write(self) -> None:
        """Add the noted sums to the catalog's; those that it does not store now stay for the next time."""
        with self._writing:
            with self._lock:
                taken, self._sums = self._sums, {}
            try:
                self._catalog.add_prune_rates(_row(*key, sums) for key, sums in taken.items())
            except OutcomeUnknown:  # they may be stored; too few is better than twice
                self._lost(taken.values())
            except Unavailable:
                self._merge_back(taken)
            with suppress(LamellaError):  # the next round retries
                self._forgetting.run()

    def close(self) -> None:
        """Write the last notes, and stop the thread."""
        self._debouncer.close()
        self.write()

    def _merge_back(self, taken: dict[tuple[str, int], _Sums]) -> None:
        with self._lock:
            for key, sums in taken.items():
                newer = self._sums.get(key)
                if newer is not None:
                    newer.add(sums)
                elif len(self._sums) < _MAX_PENDING:
                    self._sums[key] = sums
                else:
                    self._lost([sums])

    def _lost(self, all_sums: Iterable[_Sums]) -> None:
        self._metrics.prune_rates_lost.inc(sum(sums.prunes for sums in all_sums))


class PruneNotes:
    """What is noted of each prune: metrics, its filter, and how well it skipped."""

    def __init__(self, metrics: Metrics, recorder: FilterRecorder, rates: PruneRates) -> None:
        self._metrics = metrics
        self._recorder = recorder
        self._rates = rates

    def note_scan(self, record: TableRecord, request: PruneRequest, report: Report) -> None:
        """Note a scan that a client planned by itself. It says nothing about how well the service skips."""
        self._recorder.note_scan(record, request, report)

    def note(self, record: TableRecord, request: PruneRequest, found: PruneResult) -> None:
        """Note a prune of a table that was answered."""
        answer = found.answer
        self._metrics.pruned(answer)
        self._recorder.note(record, request, found)
        # Segments alone, some segments, and parts of an answer do not say what was skipped of the snapshot.
        is_whole = request.segments is None and request.page_size is None and request.page_token is None
        if is_whole and answer.complete and found.selection is not None:
            self._rates.note(record, answer.report, found.block_count)


def _row(table_id: str, bucket: int, sums: _Sums) -> PruneRateRow:
    return PruneRateRow(
        table_id=table_id,
        bucket_ms=bucket * BUCKET_MS,
        prunes=sums.prunes,
        considered_blocks=sums.considered,
        kept_blocks=sums.selected_blocks,
        bytes_total=float(sums.bytes_total),
        kept_bytes=float(sums.selected_bytes),
        ms=sums.ms,
    )


def _begin_ms(at_ms: int) -> int:
    return at_ms - at_ms % BUCKET_MS


def as_recorded(each: RecordedFilter) -> Recorded:
    """Convert a stored filter for replaying it."""
    return Recorded(
        tree=each.tree,
        text=each.text,
        is_full=each.mode == "full",
        times=each.times,
        considered=each.considered,
        selected=each.kept,
        time_zone=each.time_zone,
    )
