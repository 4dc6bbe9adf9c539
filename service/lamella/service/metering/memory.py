"""What is kept in memory, by its kind. Whoever keeps it counts with plain numbers, which are taken over here."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping

from prometheus_client import CollectorRegistry, Counter, Gauge

from lamella.snapshot.cache import Counts


class MemoryMetrics:
    """Hits, misses, evictions and bytes."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.events = Counter(
            "lamella_memory_cache_events",
            "What happened to values that are kept in memory, by their kind.",
            ("kind", "event"),
            registry=registry,
        )
        self.size_bytes = Gauge(
            "lamella_memory_cache_size_bytes",
            "Bytes of the values that are kept in memory, by their kind.",
            ("kind",),
            registry=registry,
            multiprocess_mode="livesum",
        )
        self.limit_bytes = Gauge(
            "lamella_memory_cache_limit_bytes",
            "Bytes that values in memory may take, by the setting that bounds them.",
            ("setting",),
            registry=registry,
            multiprocess_mode="livesum",
        )
        self._look: Callable[[], Mapping[str, Counts]] = dict
        self._taken: dict[str, Counts] = {}
        self._lock = threading.Lock()

    def watch(self, look: Callable[[], Mapping[str, Counts]], limits_bytes: Mapping[str, int]) -> None:
        """From now on take over what ``look`` gives, by kind; ``limits_bytes`` are by setting."""
        self._look = look
        for setting, limit_bytes in limits_bytes.items():
            self.limit_bytes.labels(setting).set(limit_bytes)

    def fold(self) -> None:
        """Bring the metrics up to date."""
        with self._lock:
            for kind, now in self._look().items():
                before = self._taken.get(kind)
                if now == before:
                    continue
                before = Counts() if before is None else before
                self._taken[kind] = now
                self.events.labels(kind, "hit").inc(now.hits - before.hits)
                self.events.labels(kind, "miss").inc(now.misses - before.misses)
                self.events.labels(kind, "evicted").inc(now.evicted - before.evicted)
                self.size_bytes.labels(kind).set(now.size_bytes)
