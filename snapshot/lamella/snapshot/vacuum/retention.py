"""How long a table keeps its snapshots: the service's defaults, and a table's own properties before them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

import msgspec

from lamella.snapshot.errors import InvalidRequest

#: Table properties. An age is a number with a unit (``7d``, ``12h``, ``30m``, ``45s``, ``500ms``).
MAX_AGE: Final = "lamella.retention.max_age"
MIN_SNAPSHOTS: Final = "lamella.retention.min_snapshots"
ENABLED: Final = "lamella.vacuum.enabled"
_PREFIXES: Final = ("lamella.retention.", "lamella.vacuum.")
_KNOWN: Final = (MAX_AGE, MIN_SNAPSHOTS, ENABLED)

_DURATION: Final = re.compile(r"([0-9]{1,12})(ms|s|m|h|d)")
_UNITS_MS: Final = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_MOST_SNAPSHOTS: Final = 1_000_000_000


class Retention(msgspec.Struct, frozen=True, kw_only=True):
    """What is kept without a tag or lease.

    ``max_age_ms``: a snapshot may go once it has not been the current one for so long; what counts is when it was
    superseded, not when it was made. ``min_snapshots``: so many of the newest stay, whatever their age (the current
    one always does). ``enabled``: False keeps everything; the table is never cleaned up.
    """

    max_age_ms: int
    min_snapshots: int = 1
    enabled: bool = True


def duration_ms(text: str) -> int:
    """A length of time such as ``7d`` in milliseconds; raises InvalidRequest."""
    found = _DURATION.fullmatch(text.strip())
    if found is None:
        raise InvalidRequest(f"{text!r} is not a length of time such as 7d, 12h, 30m or 45s")
    return int(found[1]) * _UNITS_MS[found[2]]


def duration_text(length_ms: int) -> str:
    """The shortest way to write a length of time that :func:`duration_ms` reads back."""
    for unit in ("d", "h", "m", "s"):
        if length_ms and length_ms % _UNITS_MS[unit] == 0:
            return f"{length_ms // _UNITS_MS[unit]}{unit}"
    return f"{length_ms}ms"


def read_retention(properties: Mapping[str, str], default: Retention) -> Retention:
    """A table's retention: its properties where it has some, else the default.

    Raises:
        InvalidRequest: a property of these prefixes that is not known, or whose value cannot be read.
    """
    for name in properties:
        if name.startswith(_PREFIXES) and name not in _KNOWN:
            raise InvalidRequest(f"{name!r} is not a property of retention; known: {list(_KNOWN)}", property=name)
    max_age_ms, min_snapshots, enabled = default.max_age_ms, default.min_snapshots, default.enabled
    if MAX_AGE in properties:
        try:
            max_age_ms = duration_ms(properties[MAX_AGE])
        except InvalidRequest as error:
            raise InvalidRequest(f"property {MAX_AGE}: {error.message}", property=MAX_AGE) from error
    if MIN_SNAPSHOTS in properties:
        text = properties[MIN_SNAPSHOTS]
        if not (text.isascii() and text.isdigit() and len(text) <= 10 and 1 <= int(text) <= _MOST_SNAPSHOTS):
            message = f"property {MIN_SNAPSHOTS}: {text!r} is not a number from 1 to {_MOST_SNAPSHOTS}"
            raise InvalidRequest(message, property=MIN_SNAPSHOTS)
        min_snapshots = int(text)
    if ENABLED in properties:
        text = properties[ENABLED]
        if text not in ("true", "false"):
            raise InvalidRequest(f"property {ENABLED}: {text!r} is neither true nor false", property=ENABLED)
        enabled = text == "true"
    return Retention(max_age_ms=max_age_ms, min_snapshots=min_snapshots, enabled=enabled)


def check_retention(properties: Mapping[str, str]) -> None:
    """Raise InvalidRequest for properties that :func:`read_retention` would refuse."""
    read_retention(properties, Retention(max_age_ms=0))
