"""What one part of a clean-up adds up to, and the token for the part behind it."""

from __future__ import annotations

import base64
import binascii
from typing import Final

import msgspec

from lamella.snapshot.errors import InvalidPageToken
from lamella.snapshot.vacuum import Decision, Found, Tally
from lamella.snapshot.wire import LeftObject, ObjectCount, SnapshotFate, VacuumAnswer

#: So many objects are named in one answer; the others are only counted.
NAMED: Final = 20
_PREFIX: Final = b"vacuum-behind:"


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

    def answer(self, *, behind: str | None) -> VacuumAnswer:
        """All of it; ``behind``: where the next part goes on, None: this was the last."""
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
            next_page_token=None if behind is None else write_token(behind),
        )


def write_token(location: str) -> str:
    """The token that stands for "behind this location"; it needs no signature, since it can only leave work out."""
    return base64.urlsafe_b64encode(_PREFIX + location.encode()).decode().rstrip("=")


def read_token(token: str, folder: str) -> str:
    """The location in a token; raises InvalidPageToken when it is none, or of another folder."""
    try:
        text = base64.urlsafe_b64decode(token.encode() + b"=" * (-len(token) % 4))
        location = text.removeprefix(_PREFIX).decode()
    except (binascii.Error, ValueError) as error:
        raise InvalidPageToken("page_token is not one of a vacuum", parameter="page_token") from error
    if not text.startswith(_PREFIX) or not location.startswith(folder + "/"):
        raise InvalidPageToken("page_token is not one of this table's vacuum", parameter="page_token")
    return location


def _count(tally: Tally) -> ObjectCount:
    return ObjectCount(**msgspec.structs.asdict(tally))
