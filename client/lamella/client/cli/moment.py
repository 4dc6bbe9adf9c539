"""Snapshots and times as they stand on a command line."""

from __future__ import annotations

import datetime as dt
import re
from typing import Final

import click

_AGE: Final = re.compile(r"(\d{1,9})([smhdw])")
_UNITS: Final = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}


def time_of(text: str | None) -> int | str | None:
    """A time as the client takes it: digits alone are Unix milliseconds."""
    return int(text) if text is not None and text.removeprefix("-").isdecimal() else text


def snapshot_of(text: str | None) -> tuple[str | None, int | str | None]:
    """An id or a tag, and a time, one of which is None: a time is what begins with ``@``, which no tag does."""
    if text is None or not text.startswith("@"):
        return text, None
    return None, time_of(text[1:])


def one_snapshot(snapshot_id: str | None, timestamp: str | None) -> None:
    """Raise UsageError when both ways to name a snapshot are used."""
    if snapshot_id is not None and timestamp is not None:
        raise click.UsageError("give at most one of --snapshot and --timestamp")


def age_of(text: str | None) -> dt.timedelta | None:
    """``90s``, ``15m``, ``12h``, ``30d``, ``4w``; raises BadParameter."""
    if text is None:
        return None
    found = _AGE.fullmatch(text)
    if found is None:
        raise click.BadParameter(f"{text!r} is not a time such as 12h or 30d", param_hint="--max-age")
    try:
        return dt.timedelta(**{_UNITS[found[2]]: int(found[1])})
    except OverflowError as error:
        raise click.BadParameter(f"{text!r} is too long", param_hint="--max-age") from error


def instant_of(text: str | None) -> int | dt.datetime | None:
    """ISO 8601 (UTC when it names no zone) or Unix milliseconds; raises BadParameter."""
    if text is None or text.isdecimal():
        return None if text is None else int(text)
    try:
        at = dt.datetime.fromisoformat(text)
    except ValueError as error:
        raise click.BadParameter(f"{text!r} is not a time such as 2026-12-31T00:00Z", param_hint="--expires") from error
    return at if at.tzinfo is not None else at.replace(tzinfo=dt.UTC)
