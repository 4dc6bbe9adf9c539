"""What an aggregate call gives: the wire's answer, and its groups as Python values."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

import msgspec

from lamella.snapshot.errors import InvalidRequest
from lamella.snapshot.stats import Bound
from lamella.snapshot.wire import AggregateAnswer

_EPOCH = dt.datetime(1970, 1, 1)  # noqa: DTZ001  # the zone is added where the type has one
_MICROS_PER = {"millis": 1_000, "micros": 1}


class Aggregated(AggregateAnswer, frozen=True, kw_only=True):
    """An :class:`~lamella.snapshot.wire.AggregateAnswer` that can be read as Python values."""

    def records(self) -> list[dict[str, Any]]:
        """One dictionary a group, by the names asked for; a value that Python cannot hold stays a tagged bound.

        Raises:
            InvalidRequest: there are blocks to scan, or only limits are known; ``groups`` has what is known.
        """
        exact = all(value.exact for group in self.groups for value in group.values)
        if self.scan or self.other_groups or not exact or not all(group.certain for group in self.groups):
            raise InvalidRequest(f"the statistics do not decide it all; {len(self.scan)} blocks are to be scanned")
        names = [*(c.name for c in self.group_columns), *(c.name for c in self.columns)]
        types = [*(c.type for c in self.group_columns), *(c.type for c in self.columns)]
        rows = [[*group.key, *(value.value for value in group.values)] for group in self.groups]
        return [
            {name: python_value(kind, bound) for name, kind, bound in zip(names, types, row, strict=True)}
            for row in rows
        ]


def python_value(type_text: str, bound: Bound | None) -> Any:
    """A tagged value of a column's type as Python's own: int, float, Decimal, bool, str, bytes, date, time, datetime.

    What Python cannot hold (nanoseconds, years beyond 9999, text that is no UTF-8) stays the bound.
    """
    if bound is None:
        return None
    ((member, value),) = ((m, v) for m, v in msgspec.structs.asdict(bound).items() if v is not None)
    kind, _, unit = member.rpartition("_")
    if member == "float64":
        return float(value)
    if member == "decimal":
        digits, _, scale = value
        return Decimal((int(digits) < 0, tuple(int(d) for d in digits.lstrip("-")), -scale))
    try:
        if member == "date":
            return dt.date(1970, 1, 1) + dt.timedelta(days=value)
        if unit in _MICROS_PER:
            at = _EPOCH + dt.timedelta(microseconds=value * _MICROS_PER[unit])
            if kind == "time":
                return at.time()
            return at if type_text.startswith("timestamp_ntz") else at.replace(tzinfo=dt.UTC)
    except OverflowError:
        return bound
    if member == "bytes":
        return bound if type_text in ("string", "enum", "json") else bytes.fromhex(value)
    return bound if unit == "nanos" else value
