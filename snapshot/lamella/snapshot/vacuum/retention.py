"""Retention: how long a table keeps its snapshots, and which of them may expire."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
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
_MAX_SNAPSHOTS: Final = 1_000_000_000


class Retention(msgspec.Struct, frozen=True, kw_only=True):
    """Which snapshots are kept without a tag or lease.

    ``max_age_ms``: a snapshot may expire this long after it was superseded, not after it was created.
    ``min_snapshots``: this many of the newest stay, whatever their age (the current one always does). ``enabled``:
    False keeps everything; the table is never cleaned up.
    """

    max_age_ms: int
    min_snapshots: int = 1
    enabled: bool = True


def duration_ms(text: str) -> int:
    """Parses a duration such as ``7d`` to milliseconds; raises InvalidRequest."""
    found = _DURATION.fullmatch(text.strip())
    if found is None:
        raise InvalidRequest(f"{text!r} is not a duration such as 7d, 12h, 30m or 45s")
    return int(found[1]) * _UNITS_MS[found[2]]


def duration_text(length_ms: int) -> str:
    """Returns the shortest text of a duration that :func:`duration_ms` reads back."""
    for unit in ("d", "h", "m", "s"):
        if length_ms and length_ms % _UNITS_MS[unit] == 0:
            return f"{length_ms // _UNITS_MS[unit]}{unit}"
    return f"{length_ms}ms"


def read_retention(properties: Mapping[str, str], default: Retention) -> Retention:
    """Returns a table's retention: from its properties, else the default.

    Raises:
        InvalidRequest: an unknown property with these prefixes, or one with an invalid value.
    """
    for name in properties:
        if name.startswith(_PREFIXES) and name not in _KNOWN:
            raise InvalidRequest(
                f"{name!r} is not a retention property; known properties: {list(_KNOWN)}", property=name
            )
    max_age_ms, min_snapshots, enabled = default.max_age_ms, default.min_snapshots, default.enabled
    if MAX_AGE in properties:
        try:
            max_age_ms = duration_ms(properties[MAX_AGE])
        except InvalidRequest as error:
            raise InvalidRequest(f"property {MAX_AGE}: {error.message}", property=MAX_AGE) from error
    if MIN_SNAPSHOTS in properties:
        text = properties[MIN_SNAPSHOTS]
        if not (text.isascii() and text.isdigit() and len(text) <= 10 and 1 <= int(text) <= _MAX_SNAPSHOTS):
            message = f"property {MIN_SNAPSHOTS}: {text!r} is not a number from 1 to {_MAX_SNAPSHOTS}"
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


class Version(msgspec.Struct, frozen=True, kw_only=True):
    """A snapshot in the history. ``superseded_ms``: when it ceased to be the current one (None: it is current)."""

    seq: int
    snapshot_id: str
    timestamp_ms: int
    superseded_ms: int | None


class Decision(msgspec.Struct, frozen=True, kw_only=True):
    """The decision on a snapshot, and the reason."""

    version: Version
    expires: bool
    reason: str


def versions(history: Iterable[tuple[int, str, int, int | None]]) -> tuple[Version, ...]:
    """Returns versions of ``(seq, snapshot_id, timestamp_ms, until_ms)``, newest first; ``until_ms``: the beginning of
    a gap.

    The first one is the current one.
    """
    found: list[Version] = []
    newer_ms: int | None = None
    for seq, snapshot_id, timestamp_ms, until_ms in history:
        ended_ms = newer_ms if until_ms is None else until_ms
        found.append(Version(seq=seq, snapshot_id=snapshot_id, timestamp_ms=timestamp_ms, superseded_ms=ended_ms))
        newer_ms = timestamp_ms
    return tuple(found)


def decide(
    history: Sequence[Version],
    retention: Retention,
    *,
    tags: Mapping[str, Sequence[str]],
    leases: Mapping[str, Sequence[str]],
    now_ms: int,
) -> tuple[Decision, ...]:
    """Returns the decision on each snapshot, in the given order (newest first).

    ``tags`` and ``leases``: by snapshot id, the names of the tags and the owners of the leases that hold it. The
    current snapshot, and snapshots with a tag or a lease, never expire.
    """
    age_text = duration_text(retention.max_age_ms)
    decided = []
    for index, version in enumerate(history):
        tagged, leased = tags.get(version.snapshot_id, ()), leases.get(version.snapshot_id, ())
        expires = False
        if version.superseded_ms is None:
            reason = "it is the current one"
        elif tagged:
            reason = f"tag {', '.join(sorted(tagged))}"
        elif leased:
            reason = f"leased by {', '.join(sorted(leased))}"
        elif not retention.enabled:
            reason = "vacuum is disabled for this table"
        elif index < retention.min_snapshots:
            reason = f"among the newest {retention.min_snapshots}"
        elif now_ms - version.superseded_ms < retention.max_age_ms:
            reason = f"superseded less than {age_text} ago"
        else:
            expires, reason = True, f"superseded {age_text} ago or earlier"
        decided.append(Decision(version=version, expires=expires, reason=reason))
    return tuple(decided)
