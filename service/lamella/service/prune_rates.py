"""How well prunes skip, by table and over time: noted beside each prune, added up in the catalog by a thread.

A prune adds to sums in memory and waits for nothing. Every few seconds these are added to those in the catalog, to
which all workers and replicas add. A process that is killed loses its last seconds.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import Final

from lamella.service.catalog import Catalog, PruneRateRow, TableRecord
from lamella.service.forgetting import Forgetting
from lamella.service.later import Later
from lamella.service.metrics import Metrics
from lamella.snapshot.errors import LamellaError, OutcomeUnknown, Unavailable
from lamella.snapshot.wire import PruneRate, PruneRatesAnswer, Report

#: Sums are of so long each.
BUCKET_MS: Final = 300_000
#: Older sums are forgotten: a week, and a day for whoever looks late.
KEPT_MS: Final = 8 * 86_400_000
_DELAY_S: Final = 5.0
#: Sums that are held while the catalog does not answer.
_MOST_HELD: Final = 10_000


class _Sums:
    """Of one table in one bucket."""

    __slots__ = ("bytes_total", "considered", "kept", "kept_bytes", "ms", "prunes")

    def __init__(self) -> None:
        self.prunes = self.considered = self.kept = self.bytes_total = self.kept_bytes = 0
        self.ms = 0.0

    def add(self, other: _Sums) -> None:
        """The sums of both."""
        for name in self.__slots__:
            setattr(self, name, getattr(self, name) + getattr(other, name))


class PruneRates:
    """Keeps them. ``clock`` gives Unix milliseconds."""

    def __init__(self, catalog: Catalog, metrics: Metrics, clock: Callable[[], int]) -> None:
        self._catalog = catalog
        self._metrics = metrics
        self._clock = clock
        self._sums: dict[tuple[str, int], _Sums] = {}
        self._lock = threading.Lock()
        self._writing = threading.Lock()
        self._later = Later(self.write, _DELAY_S, "prune-rates")
        self._forgetting = Forgetting(
            clock, KEPT_MS, lambda before_ms, limit: catalog.forget_prune_rates(before_ms=before_ms, limit=limit)
        )

    def note(self, record: TableRecord, report: Report, kept_blocks: int) -> None:
        """Count a prune of a whole snapshot that kept so many blocks; waits for nothing."""
        key = (record.table_id, self._clock() // BUCKET_MS)
        kept_bytes = report.bytes_total
        ms = 0.0
        for stage in report.stages:
            ms += stage.ms
            if stage.stage != "page":  # what is skipped inside of blocks is not counted
                kept_bytes = stage.bytes
        with self._lock:
            sums = self._sums.get(key)
            if sums is None:
                sums = self._sums[key] = _Sums()
            sums.prunes += 1
            sums.considered += report.blocks_total
            sums.kept += kept_blocks
            sums.bytes_total += report.bytes_total
            sums.kept_bytes += kept_bytes
            sums.ms += ms
        if not self._later.is_due:
            self._later.soon()

    def rates(self, table_ids: Sequence[str], *, since_ms: int) -> dict[str, PruneRate]:
        """By table, all prunes since the bucket of that time, this process's last ones among them.

        Tables of which nothing was asked are left out. Raises Unavailable.
        """
        self.write()
        return self._catalog.prune_rates(table_ids, since_ms=_begin_ms(since_ms))

    def series(self, table_id: str, *, since_ms: int) -> list[PruneRate]:
        """The prunes of a table by bucket, the oldest first, from the bucket of that time on. Raises Unavailable."""
        self.write()
        return self._catalog.prune_rate_series(table_id, since_ms=_begin_ms(since_ms))

    def answer(self, table: TableRecord, since_s: int) -> PruneRatesAnswer:
        """The prunes of the last so many seconds. Raises Unavailable."""
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
        """Add what was noted to what the catalog has; what it does not take now is held for the next time."""
        with self._writing:
            with self._lock:
                taken, self._sums = self._sums, {}
            try:
                self._catalog.add_prune_rates(_row(*key, sums) for key, sums in taken.items())
            except OutcomeUnknown:  # perhaps they are there; better too few than twice
                self._lost(taken.values())
            except Unavailable:
                self._hold(taken)
            with suppress(LamellaError):  # there is a next time
                self._forgetting.run()

    def close(self) -> None:
        """Write the last notes, and end the thread."""
        self._later.close()
        self.write()

    def _hold(self, taken: dict[tuple[str, int], _Sums]) -> None:
        with self._lock:
            for key, sums in taken.items():
                newer = self._sums.get(key)
                if newer is not None:
                    newer.add(sums)
                elif len(self._sums) < _MOST_HELD:
                    self._sums[key] = sums
                else:
                    self._lost([sums])

    def _lost(self, all_sums: Iterable[_Sums]) -> None:
        self._metrics.prune_rates_lost.inc(sum(sums.prunes for sums in all_sums))


def _row(table_id: str, bucket: int, sums: _Sums) -> PruneRateRow:
    return PruneRateRow(
        table_id=table_id,
        bucket_ms=bucket * BUCKET_MS,
        prunes=sums.prunes,
        considered_blocks=sums.considered,
        kept_blocks=sums.kept,
        bytes_total=float(sums.bytes_total),
        kept_bytes=float(sums.kept_bytes),
        ms=sums.ms,
    )


def _begin_ms(at_ms: int) -> int:
    return at_ms - at_ms % BUCKET_MS
