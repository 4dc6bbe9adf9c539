"""Requests and prunes in figures, from what the metrics have counted since the service began."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import msgspec
from prometheus_client.metrics_core import Metric

#: How a histogram's last bucket is called: all there is.
_ALL: Final = float("inf")


class RouteFigures(msgspec.Struct, frozen=True, kw_only=True):
    """Requests of one method and route. ``errors``: answered with a status from 500 on. Quantiles are estimated from a
    histogram, None: in its last bucket, which has no upper bound."""

    method: str
    route: str
    requests: int
    errors: int
    mean_ms: float
    p50_ms: float | None
    p99_ms: float | None


class StageFigures(msgspec.Struct, frozen=True, kw_only=True):
    """What a stage of all prunes looked at and kept; see docs/metrics.md."""

    stage: str
    considered: int
    kept: int
    kept_bytes: int
    seconds: float


class Counted:
    """The samples of all metrics by name."""

    def __init__(self, families: Iterable[Metric]) -> None:
        self._samples: dict[str, list[tuple[Mapping[str, str], float]]] = {}
        for family in families:
            for sample in family.samples:
                self._samples.setdefault(sample.name, []).append((sample.labels, sample.value))

    def total(self, name: str, **labels: str) -> int:
        """The sum of a metric over all samples with these labels."""
        wanted = labels.items()
        return int(sum(value for found, value in self._samples.get(name, ()) if wanted <= dict(found).items()))

    def by(self, name: str, label: str) -> dict[str, float]:
        """The sums of a metric by the values of a label, in their order."""
        found: dict[str, float] = {}
        for labels, value in self._samples.get(name, ()):
            found[labels[label]] = found.get(labels[label], 0.0) + value
        return dict(sorted(found.items()))

    def routes(self) -> tuple[RouteFigures, ...]:
        """Requests by route, those asked most first."""
        totals: dict[tuple[str, str], list[int]] = {}
        for labels, value in self._samples.get("lamella_requests_total", ()):
            sums = totals.setdefault((labels["method"], labels["route"]), [0, 0])
            sums[0] += int(value)
            sums[1] += int(value) if labels["status"] >= "500" else 0
        seconds = self._by_route("lamella_request_seconds_sum")
        buckets: dict[tuple[str, str], list[tuple[float, float]]] = {}
        for labels, value in self._samples.get("lamella_request_seconds_bucket", ()):
            buckets.setdefault((labels["method"], labels["route"]), []).append((float(labels["le"]), value))
        found = []
        for key, (requests, errors) in totals.items():
            counts = sorted(buckets.get(key, ()))
            figures = RouteFigures(
                method=key[0],
                route=key[1],
                requests=requests,
                errors=errors,
                mean_ms=1000 * seconds.get(key, 0.0) / max(requests, 1),
                p50_ms=quantile_ms(counts, 0.5),
                p99_ms=quantile_ms(counts, 0.99),
            )
            found.append(figures)
        return tuple(sorted(found, key=lambda each: (-each.requests, each.route, each.method)))

    def stages(self) -> tuple[StageFigures, ...]:
        """The stages of prunes, by name."""
        considered = self.by("lamella_prune_considered_total", "stage")
        kept = self.by("lamella_prune_kept_total", "stage")
        kept_bytes = self.by("lamella_prune_kept_bytes_total", "stage")
        seconds = self.by("lamella_prune_stage_seconds_total", "stage")
        return tuple(
            StageFigures(
                stage=stage,
                considered=int(count),
                kept=int(kept.get(stage, 0)),
                kept_bytes=int(kept_bytes.get(stage, 0)),
                seconds=seconds.get(stage, 0.0),
            )
            for stage, count in considered.items()
        )

    def _by_route(self, name: str) -> dict[tuple[str, str], float]:
        samples = self._samples.get(name, ())
        return {(labels["method"], labels["route"]): value for labels, value in samples}


def quantile_ms(counts: Sequence[tuple[float, float]], share: float) -> float | None:
    """A quantile of a histogram in seconds, by the line between a bucket's ends, in milliseconds.

    ``counts``: by the upper bound, how many values are up to there, ascending. None: no values, or it is in the bucket
    without an upper bound.
    """
    if not counts or counts[-1][1] <= 0:
        return None
    wanted = share * counts[-1][1]
    low_s, below = 0.0, 0.0
    for high_s, count in counts:
        if count >= wanted:
            if high_s == _ALL:
                return None
            return 1000 * (low_s + (high_s - low_s) * (wanted - below) / max(count - below, 1e-9))
        low_s, below = high_s, count
    return None
