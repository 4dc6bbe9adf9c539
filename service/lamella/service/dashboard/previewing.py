"""What previews are made of: a sentence, facts, a table, and what is to be known besides."""

from __future__ import annotations

from typing import Literal

import msgspec

from lamella.service.dashboard.job_facts import Fact
from lamella.service.idempotency import Claim, claim
from lamella.service.services import Services


class Column(msgspec.Struct, frozen=True, kw_only=True):
    """A column of a listing."""

    name: str
    is_number: bool = False


class Listing(msgspec.Struct, frozen=True, kw_only=True):
    """A table of texts."""

    caption: str
    columns: tuple[Column, ...]
    rows: tuple[tuple[str, ...], ...]


class Preview(msgspec.Struct, frozen=True, kw_only=True):
    """``says`` in one sentence what would be done; ``tone``: "warn" when there is nothing to do, or no way back."""

    says: str
    tone: Literal["", "good", "warn"] = ""
    facts: tuple[Fact, ...] = ()
    listing: Listing | None = None
    notes: tuple[str, ...] = ()


class Question(msgspec.Struct, frozen=True, kw_only=True):
    """What is asked before something is taken away: ``asks`` names it, ``says`` what comes of it, ``act`` is on the
    button. ``carried``: fields of the form that does it; ``back``: the address for one who leaves it as it is.
    """

    asks: str
    says: str
    act: str
    back: str
    facts: tuple[Fact, ...] = ()
    warnings: tuple[str, ...] = ()
    carried: tuple[tuple[str, str], ...] = ()


def nothing_kept(services: Services) -> Claim:
    """A claim for asking a mutation what it would do: it has no key, so that nothing is stored."""
    return claim(None, "GET", "", "", b"", services.clock())
