"""Names that are spelled nearly like one that does not exist, for errors."""

from __future__ import annotations

from collections.abc import Sequence
from difflib import get_close_matches
from typing import Final

#: With more names none is looked for: comparing them takes 10 microseconds each.
MAX_NAMES: Final = 1_000
_MAX_CHARACTERS: Final = 128


def did_you_mean(wanted: str, known: Sequence[str]) -> dict[str, str]:
    """Returns the member ``did_you_mean`` of an error's details with the nearest name; empty if none is near.

    Case does not count. ``known``: only names that the caller may see.
    """
    if len(known) > MAX_NAMES or len(wanted) > _MAX_CHARACTERS:
        return {}
    by_lowered = {name.lower(): name for name in known}
    near = get_close_matches(wanted.lower(), by_lowered, 1)
    return {"did_you_mean": by_lowered[near[0]]} if near else {}
