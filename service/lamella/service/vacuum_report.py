"""What one part of a clean-up adds up to, and the token for the part behind it."""

from __future__ import annotations

from typing import Final

import msgspec

from lamella.service.page_token import PageTokens, no_token
from lamella.snapshot.vacuum import Decision, Found, Tally
from lamella.snapshot.wire import LeftObject, ObjectCount, SnapshotFate, VacuumAnswer

#: So many objects are named in one answer; the others are only counted.
NAMED: Final = 20
_OF: Final = "this table's vacuum"


class Report:
    """Counts while a clean-up is at work."""

    def __init__(self, *, executed: bool, before_ms: int) -> None:
        self._executed = executed
        self._before_ms = before_ms
        self._garbage: dict[str, Tally] = {}
        self._others = {"live": Tally(), "young": Tally(), "unknown": Tally()}
        self._unknowns: list[str] = []
        self._left: list[LeftObject] = []
        self.fates: tuple[SnapshotFate, ...] = ()
        self.tables: list[str] = []

    def stays(self, found: Found) -> None:
        """Count an object that is not garbage."""
        self._others[found.verdict] = self._others[found.verdict].plus(found.size_bytes)
        if found.verdict == "unknown" and len(self._unknowns) < NAMED:
            self._unknowns.append(found.location)

    def goes(self, kind: str, size_bytes: int) -> None:
        """Count an object that was deleted, or would be."""
        self._garbage[kind] = self._garbage.get(kind, Tally()).plus(size_bytes)

    def is_left(self, location: str, reason: str) -> None:
        """Note an object that nothing needs and that stays all the same."""
        if len(self._left) < NAMED:
            self._left.append(LeftObject(location=location, reason=reason))

    def decided(self, decisions: tuple[Decision, ...], expired: set[int] | None) -> None:
        """Note what becomes of the snapshots; ``expired``: those that really went (None: nothing was done)."""
        fates = []
        for decision in decisions:
            expires, reason = decision.expires, decision.reason
            if expired is not None and expires and decision.version.seq not in expired:
                expires, reason = False, "tagged, leased or expired meanwhile"
            version = decision.version
            fates.append(
                SnapshotFate(
                    snapshot_id=version.snapshot_id,
                    timestamp_ms=version.timestamp_ms,
                    expires=expires,
                    reason=reason,
                )
            )
        self.fates = tuple(fates)

    def answer(self, *, next_page_token: str | None) -> VacuumAnswer:
        """All of it; None: this was the last part."""
        return VacuumAnswer(
            executed=self._executed,
            before_ms=self._before_ms,
            snapshots=self.fates,
            garbage={kind: _count(tally) for kind, tally in sorted(self._garbage.items())},
            live=_count(self._others["live"]),
            young=_count(self._others["young"]),
            unknown=_count(self._others["unknown"]),
            unknowns=tuple(self._unknowns),
            left=tuple(self._left),
            tables=tuple(self.tables),
            next_page_token=next_page_token,
        )


def write_behind(tokens: PageTokens, location: str, folder: str) -> str:
    """The token for the part behind a location in a folder."""
    return tokens.write(location.encode(), _OF, folder)


def read_behind(tokens: PageTokens, token: str, folder: str) -> str:
    """The location that a part goes on behind; raises InvalidPageToken for no token, or one of another folder."""
    location = tokens.read(token, _OF, folder).decode("utf-8", "replace")
    if not location.startswith(folder + "/"):
        raise no_token(_OF)
    return location


def _count(tally: Tally) -> ObjectCount:
    return ObjectCount(**msgspec.structs.asdict(tally))
