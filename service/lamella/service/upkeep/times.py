"""When a schedule is due next."""

from __future__ import annotations

import datetime as dt

from cronsim import CronSim, CronSimError

from lamella.snapshot.errors import InvalidRequest
from lamella.snapshot.expression.moments import zone

_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)


def next_every(every_s: int, last_ms: int, now_ms: int) -> int:
    """The first time after now that is a whole number of intervals behind ``last_ms``."""
    step_ms = every_s * 1000
    return last_ms + max(1, (now_ms - last_ms) // step_ms + 1) * step_ms


def next_cron(cron: str, time_zone: str, now_ms: int) -> int:
    """The first time after now that a cron expression names.

    Around a change of the clocks it is as in Debian's cron: what stands in the hour that is left out runs right after
    it, and what stands in the hour that comes twice runs once.

    Raises:
        InvalidRequest: not five fields of cron, a time zone that there is not, or a time that never comes.
    """
    found = zone(time_zone)
    if found is None:
        raise InvalidRequest(f"there is no time zone {time_zone!r}", path="$.time_zone")
    if len(cron.split()) != 5:
        raise InvalidRequest(f"{cron!r} is not the five fields of a cron expression", path="$.cron")
    now = (_EPOCH + dt.timedelta(milliseconds=now_ms)).astimezone(found)
    try:
        at = next(CronSim(cron, now))
    except CronSimError as error:
        raise InvalidRequest(f"{cron!r} is not a cron expression: {error}", path="$.cron") from error
    except StopIteration as error:
        raise InvalidRequest(f"{cron!r} is a time that never comes", path="$.cron") from error
    return (at.astimezone(dt.UTC) - _EPOCH) // dt.timedelta(milliseconds=1)
