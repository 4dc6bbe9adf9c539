"""LIKE patterns: ``%`` stands for any characters, ``_`` for one, line ends included."""

from __future__ import annotations

from typing import Final

#: A part of a pattern: fixed text, or one of the two wildcards.
Part = str | int
ANY: Final = 0
ONE: Final = 1


def like_parts(pattern: str, escape: str) -> tuple[Part, ...] | None:
    """A pattern's parts; None when the escape character stands before anything but a wildcard or itself.

    No two texts and no two ``ANY`` stand beside each other.
    """
    parts: list[Part] = []
    text: list[str] = []
    index = 0
    while index < len(pattern):
        character = pattern[index]
        if escape and character == escape:
            if index + 1 == len(pattern) or pattern[index + 1] not in ("%", "_", escape):
                return None
            text.append(pattern[index + 1])
            index += 2
            continue
        index += 1
        if character not in "%_":
            text.append(character)
            continue
        if text:
            parts.append("".join(text))
            text.clear()
        if character == "_":
            parts.append(ONE)
        elif parts[-1:] != [ANY]:
            parts.append(ANY)
    if text:
        parts.append("".join(text))
    return tuple(parts)


def least_length(parts: tuple[Part, ...]) -> int:
    """The fewest characters of a text that matches."""
    return sum(len(part) if isinstance(part, str) else part for part in parts)


def is_like(text: str, parts: tuple[Part, ...]) -> bool:
    """True when the whole text matches; the time is at most the product of the two lengths."""
    single: list[str | int] = []
    for part in parts:
        single += [part] if isinstance(part, int) else list(part)
    at = here = 0
    retry: tuple[int, int] | None = None  # behind the last ANY, and the first character it has not swallowed
    while at < len(text):
        if here < len(single) and single[here] == ANY:
            here += 1
            retry = (here, at)
        elif here < len(single) and (single[here] == ONE or single[here] == text[at]):
            here, at = here + 1, at + 1
        elif retry is not None:
            here, at = retry[0], retry[1] + 1
            retry = (here, at)
        else:
            return False
    return all(part == ANY for part in single[here:])
