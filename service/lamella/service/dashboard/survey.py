"""A survey of all tables in the background: the names of their columns, and what is out of shape.

Both need the tables' manifests, of which there may be twenty thousand, so no request reads them. One thread lists the
tables of the catalog, and looks at those that have changed since it saw them: for a tenth of a second at a time, with a
pause of more than twice that, and only while pages are used. It displaces nothing from the cache. What it knows is of
this process alone and is lost when that ends; pages say how much of it is known.
docs/decisions/0096-a-survey-of-tables.md has the reasons.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Final, Protocol

import msgspec

from lamella.service.catalog import Catalog, JobFilter, JobRecord, Scopes, TableRecord, TableVersion
from lamella.service.dashboard.preview import WhenClosing
from lamella.service.history.history import trusted_manifests
from lamella.service.maintenance.table_health import may_need_attention
from lamella.service.process.threads import Debouncer
from lamella.snapshot.errors import LamellaError
from lamella.snapshot.warehouse import Warehouse
from lamella.snapshot.wire import HealthFinding, TableHealth, VacuumAnswer

#: At work for so long, then at rest.
_TURN_S: Final = 0.1
_PAUSE_S: Final = 0.25
#: Tables are listed again after this time, or after so many times what it took to list them.
_LISTED_FOR_S: Final = 2.0
_LISTED_FACTOR: Final = 50
#: A page keeps the survey going for this long.
_WANTED_S: Final = 600.0
#: Findings of a table that changes all the time are this old, and those of one that does not change.
_CHANGED_FOR_MS: Final = 30_000
_UNCHANGED_FOR_MS: Final = 3_600_000
#: Characters of the names of columns that are kept: 1,000,000 names of 64 characters.
MAX_CHARACTERS: Final = 64_000_000
#: Jobs that are read to learn what clean-ups would free, and how old they may be.
_MAX_CLEAN_UPS: Final = 200
_CLEAN_UP_MS: Final = 7 * 86_400_000
_LOG: Final = logging.getLogger("lamella.survey")


class HealthSource(Protocol):
    """Where the survey gets the health of a table: :class:`~lamella.service.maintenance.table_health.TableHealths`."""

    def get_uncached(self, record: TableRecord, /) -> TableHealth:
        """Measure a table, without displacing what pages show."""
        ...


class Reclaimable(msgspec.Struct, frozen=True, kw_only=True):
    """What a clean-up of a table would free, and when that was measured.

    ``job_id``: of the trial run of a clean-up that found it (0 bytes: of the clean-up itself); None: it is what a
    measurement of the table is sure of, which does not count objects that were in no snapshot.
    """

    size_bytes: int
    job_id: str | None
    measured_ms: int


class Known(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of all tables. ``tables``, ``by_id``: as they were listed. ``columns``: by table, its version and
    the names of its columns, one a line. ``checked``: by table, its version and when it was checked. ``findings``,
    ``unreadable`` (why a table cannot be read), ``reclaimable``: by table, only where there are any.
    ``dropped_tables``, ``dropped_bytes``: what a clean-up of dropped tables would remove (None: not looked up yet).
    """

    tables: tuple[TableVersion, ...] = ()
    by_id: Mapping[str, TableVersion] = {}
    listed_ms: int | None = None
    columns: Mapping[str, tuple[int, str]] = {}
    checked: Mapping[str, tuple[int, int]] = {}
    findings: Mapping[str, tuple[HealthFinding, ...]] = {}
    unreadable: Mapping[str, str] = {}
    reclaimable: Mapping[str, Reclaimable] = {}
    dropped_tables: int | None = None
    dropped_bytes: int = 0

    def within(self, scopes: Scopes | None) -> Sequence[TableVersion]:
        """Return the tables in these places; None: all. There may be many, so nothing is called for each."""
        if scopes is None:
            return self.tables
        whole = {namespace for namespace, table in scopes if table is None}
        single = {scope for scope in scopes if scope[1] is not None}
        return [each for each in self.tables if each.namespace in whole or (each.namespace, each.name) in single]


class Survey:
    """Looks at all tables. ``clock`` returns Unix milliseconds, ``timer`` seconds; ``drop_grace_ms``: how long dropped
    tables can be restored. ``when_closing`` registers what to call when the service stops.
    """

    def __init__(
        self,
        *,
        catalog: Catalog,
        warehouse: Warehouse,
        healths: HealthSource,
        clock: Callable[[], int],
        drop_grace_ms: int,
        when_closing: WhenClosing,
        timer: Callable[[], float] = time.monotonic,
        max_characters: int = MAX_CHARACTERS,
    ) -> None:
        self._catalog = catalog
        self._warehouse = warehouse
        self._healths = healths
        self._clock = clock
        self._drop_grace_ms = drop_grace_ms
        self._timer = timer
        self._max_characters = max_characters
        self._lock = threading.Lock()
        self._tables: tuple[TableVersion, ...] = ()
        self._by_id: dict[str, TableVersion] = {}
        self._listed_ms: int | None = None
        self._list_after_s = 0.0
        self._wanted_until_s = 0.0
        self._columns: dict[str, tuple[int, str]] = {}
        self._characters = 0
        self._is_full = False
        #: By their text, so that tables with the same columns share it.
        self._texts: dict[str, str] = {}
        self._checked: dict[str, tuple[int, int]] = {}
        self._findings: dict[str, tuple[HealthFinding, ...]] = {}
        self._unreadable: dict[str, str] = {}
        self._reclaimable: dict[str, Reclaimable] = {}
        self._measured: dict[str, Reclaimable] = {}
        self._dropped: tuple[int, int] | None = None
        self._no_columns: deque[TableVersion] = deque()
        self._not_checked: deque[TableVersion] = deque()
        self._debouncer = Debouncer(self.work, _PAUSE_S, "table-survey")
        when_closing(self._debouncer.close)

    def peek(self) -> Known:
        """Return what is known, without waiting, and look for what is new soon."""
        self._wanted_until_s = self._timer() + _WANTED_S
        self._debouncer.soon()
        with self._lock:
            return Known(
                tables=self._tables,
                by_id=self._by_id,
                listed_ms=self._listed_ms,
                columns=self._columns,
                checked=dict(self._checked),  # of the same moment as the findings
                findings=dict(self._findings),
                unreadable=dict(self._unreadable),
                reclaimable=best_known(self._measured, self._reclaimable),
                dropped_tables=None if self._dropped is None else self._dropped[0],
                dropped_bytes=0 if self._dropped is None else self._dropped[1],
            )

    def work(self) -> None:
        """Look at some tables, for about a tenth of a second; called by one thread at a time."""
        began_s = self._timer()
        if began_s >= self._list_after_s:
            self._list()
            listed_s = self._timer()
            self._list_after_s = listed_s + max(_LISTED_FOR_S, _LISTED_FACTOR * (listed_s - began_s))
            began_s = listed_s  # however long that took, some tables are looked at
        while self._timer() - began_s < _TURN_S:
            if not self._no_columns and not self._not_checked:
                return
            if self._not_checked:
                self._check(self._not_checked.popleft())
            if self._no_columns:
                self._learn(self._no_columns.popleft())
        if began_s < self._wanted_until_s:
            self._debouncer.soon()

    def _list(self) -> None:
        try:
            listed = tuple(sorted(self._catalog.table_versions(), key=lambda each: (each.namespace, each.name)))
            reclaimable = self._clean_ups()
            dropped = self._catalog.dropped_use(before_ms=self._clock() - self._drop_grace_ms)
        except LamellaError as error:  # the next turn tries again
            _LOG.warning("tables could not be listed", exc_info=error)
            return
        now_ms = self._clock()
        there = {each.table_id: each for each in listed}
        with self._lock:
            self._tables, self._by_id, self._listed_ms = listed, there, now_ms
            self._reclaimable = reclaimable
            self._dropped = (dropped.tables, dropped.size_bytes)
            for table_id in self._columns.keys() - there.keys():
                self._characters -= len(self._columns.pop(table_id)[1])
                self._unreadable.pop(table_id, None)
            for table_id in self._checked.keys() - there.keys():
                del self._checked[table_id]
                self._findings.pop(table_id, None)
                self._measured.pop(table_id, None)
            self._texts = {text: text for _, text in self._columns.values()}
        self._is_full = self._is_full and 2 * self._characters > self._max_characters
        self._no_columns = deque(each for each in listed if self._is_unknown(each))
        self._not_checked = deque(sorted((each for each in listed if self._is_due(each, now_ms)), key=self._checked_ms))

    def _is_unknown(self, table: TableVersion) -> bool:
        found = self._columns.get(table.table_id)
        return not self._is_full if found is None else found[0] != table.version

    def _is_due(self, table: TableVersion, now_ms: int) -> bool:
        found = self._checked.get(table.table_id)
        if found is None:
            return True
        return now_ms - found[1] >= (_UNCHANGED_FOR_MS if found[0] == table.version else _CHANGED_FOR_MS)

    def _checked_ms(self, table: TableVersion) -> int:
        found = self._checked.get(table.table_id)
        return 0 if found is None else found[1]

    def _learn(self, table: TableVersion) -> None:
        """Read the names of a table's columns, or why it cannot be read."""
        record = self._record(table)
        if record is None:
            return
        text, problem = "", None
        try:
            with trusted_manifests():
                leaves = self._warehouse.passing_head(record.pointer).schema.leaves()
            text = "\n".join(leaf.name.replace("\n", " ") for leaf in leaves)
        except LamellaError as error:
            problem = error.message
        with self._lock:
            self._unreadable.pop(table.table_id, None)
            if problem is not None:
                self._unreadable[table.table_id] = problem
            self._characters -= len(self._columns.pop(table.table_id, (0, ""))[1])
            if self._characters + len(text) > self._max_characters:
                self._is_full = True  # pages say of how many tables the columns are known
                return
            self._characters += len(text)
            self._columns[table.table_id] = (record.version, self._texts.setdefault(text, text))

    def _check(self, table: TableVersion) -> None:
        """Measure a table, unless its size says that it needs nothing."""
        found: tuple[HealthFinding, ...] = ()
        freed: Reclaimable | None = None
        version, now_ms = table.version, self._clock()
        if may_need_attention(table.block_count, table.version):
            record = self._record(table)
            if record is None:
                return
            try:
                health = self._healths.get_uncached(record)
            except RuntimeError:  # the service stops
                return
            found, version = health.findings, record.version
            if health.expired is not None:
                freed = Reclaimable(size_bytes=health.expired.min_bytes, job_id=None, measured_ms=health.measured_ms)
        with self._lock:
            self._checked[table.table_id] = (version, now_ms)
            self._findings.pop(table.table_id, None)
            if found:
                self._findings[table.table_id] = found
            self._measured.pop(table.table_id, None)
            if freed is not None:
                self._measured[table.table_id] = freed

    def _record(self, table: TableVersion) -> TableRecord | None:
        try:
            return self._catalog.table_by_id(table.table_id)
        except LamellaError:
            return None  # it was dropped, or the catalog does not answer: the next listing tells

    def _clean_ups(self) -> dict[str, Reclaimable]:
        """Return what the last clean-up of each table left to delete."""
        which = JobFilter(states=("succeeded",), kinds=("vacuum",), finished_since_ms=self._clock() - _CLEAN_UP_MS)
        found: dict[str, Reclaimable] = {}
        seen: set[str] = set()
        for job in self._catalog.jobs(which, before_id=None, limit=_MAX_CLEAN_UPS):
            if job.table_id is None or job.table_id in seen:
                continue
            seen.add(job.table_id)
            known = self._reclaimable.get(job.table_id)
            size_bytes = self._reclaimable_bytes(job) if known is None or known.job_id != job.job_id else None
            if size_bytes is not None:
                known = Reclaimable(size_bytes=size_bytes, job_id=job.job_id, measured_ms=job.finished_ms or 0)
            if known is not None and known.job_id == job.job_id:
                found[job.table_id] = known
        return found

    def _reclaimable_bytes(self, job: JobRecord) -> int | None:
        """Return what a clean-up left to delete: 0 unless it was a trial run; None if its result does not tell."""
        try:
            answer = msgspec.json.decode(self._catalog.job(job.job_id).result or b"null", type=VacuumAnswer)
        except (LamellaError, msgspec.MsgspecError):
            return None
        return 0 if answer.executed else answer.deleted.size_bytes


def best_known(measured: Mapping[str, Reclaimable], clean_ups: Mapping[str, Reclaimable]) -> dict[str, Reclaimable]:
    """Return what is known of each table: what the last trial run found, which looked at all objects, or else what was
    measured."""
    return {**measured, **{key: found for key, found in clean_ups.items() if found.size_bytes or key not in measured}}
