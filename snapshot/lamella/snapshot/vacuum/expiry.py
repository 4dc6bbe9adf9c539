"""Which snapshots of a history may go. A pure decision: the catalog checks the two firm rules again when it acts on
it, since tags and leases can come meanwhile."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from lamella.snapshot.vacuum.retention import Retention, duration_text


class Version(msgspec.Struct, frozen=True, kw_only=True):
    """A snapshot as history has it. ``superseded_ms``: when it ceased to be the current one (None: it is)."""

    seq: int
    snapshot_id: str
    timestamp_ms: int
    superseded_ms: int | None


class Decision(msgspec.Struct, frozen=True, kw_only=True):
    """What is to become of a snapshot, and why."""

    version: Version
    expires: bool
    reason: str


def versions(history: Iterable[tuple[int, str, int, int | None]]) -> tuple[Version, ...]:
    """Versions of ``(seq, snapshot_id, timestamp_ms, until_ms)``, newest first; ``until_ms`` says when a gap began.

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
    """What retention says of each snapshot, in the order given (newest first).

    ``tags`` and ``leases``: by snapshot id, the names of the tags and the owners of the leases that hold it.
    Never expired: the current snapshot, and one that a tag or a lease holds.
    """
    age_text = duration_text(retention.max_age_ms)
    decided = []
    for place, version in enumerate(history):
        tagged, leased = tags.get(version.snapshot_id, ()), leases.get(version.snapshot_id, ())
        expires = False
        if version.superseded_ms is None:
            reason = "it is the current one"
        elif tagged:
            reason = f"tag {', '.join(sorted(tagged))}"
        elif leased:
            reason = f"leased by {', '.join(sorted(leased))}"
        elif not retention.enabled:
            reason = "clean-up is switched off for this table"
        elif place < retention.min_snapshots:
            reason = f"among the newest {retention.min_snapshots}"
        elif now_ms - version.superseded_ms < retention.max_age_ms:
            reason = f"superseded less than {age_text} ago"
        else:
            expires, reason = True, f"superseded {age_text} ago or earlier"
        decided.append(Decision(version=version, expires=expires, reason=reason))
    return tuple(decided)
