"""What happens to a filter once it is read: bound, evaluated, spelled again."""

from __future__ import annotations

from random import Random
from typing import Any

from fuzz.guard import survive
from fuzz.tables import schema, sidecar
from lamella.snapshot.errors import InvalidRequest, LamellaError
from lamella.snapshot.expression import bind, read_filter, text_of
from lamella.snapshot.prune import evaluate, verdicts

TIME_ZONES = ("UTC", "Europe/Berlin", "America/St_Johns", "+05:30", "GMT-3", "Africa/Monrovia")


def swallow(given: Any, seed: int) -> bool:
    """Put a filter through everything that a request puts it through; True when it could be used.

    Whatever is wrong with it is the request's fault, by one of the errors of a request.
    """
    rng = Random(seed)
    zone, case_sensitive = rng.choice(TIME_ZONES), rng.random() < 0.2

    def whole() -> None:
        predicate = read_filter(given, time_zone=zone)
        text_of(predicate)
        bound = bind(predicate, schema(), time_zone=zone, case_sensitive=case_sensitive)
        zones = sidecar()
        outcome = evaluate(bound, lambda leaf: zones.zones(leaf.id, leaf.dtype), len(zones))
        verdicts(outcome, zones.numbers("row_count"))

    answer = survive(whole, f"{given!r} in {zone}")
    if isinstance(answer, LamellaError):
        assert isinstance(answer, InvalidRequest), f"{answer!r} for {given!r}"
    return answer is None
