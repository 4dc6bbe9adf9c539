"""What readers report of blocks that held no matching row, and what is remembered of it."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from msgspec import Meta

from lamella.snapshot.wire.bounds import Location, Moment, Word


class FeedbackRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``POST .../feedback``: no row of the blocks at the locations ``empty`` of a snapshot matches ``filter``.

    Only a reader that decided every row of them exactly may say so. The filter, ``time_zone`` and ``case_sensitive``
    are those that it was planned with.
    """

    snapshot_id: Word
    filter: Any
    empty: Annotated[tuple[Location, ...], Meta(max_length=10_000)]
    time_zone: Moment = "UTC"
    case_sensitive: bool = False


class FeedbackAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """How many of the reported blocks are remembered from now on, and how many were before.

    Beyond the service's bounds, what was not used for longest is forgotten at once, of a long report a part of it too.
    """

    remembered: int
    known_before: int


class FeedbackInfo(msgspec.Struct, frozen=True, kw_only=True):
    """``GET .../feedback``: what is remembered for a table. ``facts`` are pairs of a filter and a block."""

    enabled: bool
    filters: int
    facts: int
    size_bytes: int
    most_facts: int
    most_bytes: int


class FeedbackCleared(msgspec.Struct, frozen=True, kw_only=True):
    """``DELETE .../feedback``: how many facts were forgotten."""

    facts: int


class FeedbackUse(msgspec.Struct, frozen=True, kw_only=True):
    """What readers' reports did to a prune: of ``considered`` blocks, so many were left out on a reader's word.

    ``contradicted``: blocks that a report calls empty, and statistics prove otherwise; they stay.
    """

    considered: int
    ruled_out: int
    contradicted: int
    ms: float
