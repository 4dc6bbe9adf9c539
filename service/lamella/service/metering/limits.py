"""What was refused, given up or cut off, so that what is left can be served."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge


class LimitMetrics:
    """Places for requests, deadlines, bodies, connections."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.refused = Counter(
            "lamella_requests_refused",
            "Requests refused because the process is busy, by kind and by the limit that was reached.",
            ("kind", "limit"),
            registry=registry,
        )
        self.waiting = Gauge(
            "lamella_requests_waiting",
            "Requests that wait for a place, by kind.",
            ("kind",),
            registry=registry,
            multiprocess_mode="livesum",
        )
        self.late = Counter(
            "lamella_requests_late",
            "Requests given up because their time was over.",
            registry=registry,
        )
        self.abandoned = Gauge(
            "lamella_threads_abandoned",
            "Threads at work for requests that were given up.",
            registry=registry,
            multiprocess_mode="livesum",
        )
        self.body_bytes = Gauge(
            "lamella_request_body_bytes",
            "Bytes of request bodies that are held.",
            registry=registry,
            multiprocess_mode="livesum",
        )
        self.connections = Gauge(
            "lamella_connections",
            "Connections of clients.",
            registry=registry,
            multiprocess_mode="livesum",
        )
        self.connections_cut = Counter(
            "lamella_connections_cut",
            "Connections that the service ended, by the reason.",
            ("reason",),
            registry=registry,
        )
        self.quotas_reached = Counter(
            "lamella_quotas_reached", "Commits refused because of a quota, by the quota.", ("limit",), registry=registry
        )
