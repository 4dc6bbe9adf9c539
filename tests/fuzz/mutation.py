"""Valid inputs made hostile: changed bytes, changed text, changed JSON."""

from __future__ import annotations

import copy
import re
from collections.abc import Sequence
from random import Random
from typing import Any, Final

#: Numbers at the edges of what 8, 16, 32 and 64 bits hold, and far beyond.
EDGES: Final = (
    *(
        sign * (1 << bits) + beside
        for bits in (0, 7, 8, 15, 16, 31, 32, 53, 62, 63, 64, 127)
        for sign in (1, -1)
        for beside in (-1, 0, 1)
    ),
    *(10**38, 10**40, -(10**40), 10**400),
)

#: Text that something might trip over: controls, halves of surrogate pairs, direction marks, quotes, very long.
ODD_TEXTS: Final = (
    *(
        "",
        " ",
        "\x00",
        "\n",
        "\r",
        "\ud800",
        "\udfff",
        "\ufeff",
        "\u202e",
        "\U0001f600",
        "é",
        "ß",
        "İ",
        "'",
        '"',
        "`",
        "\\",
    ),
    *("--", "/*", "*/", ";", "%", "_", "{}", "%s", "${x}", "a" * 5_000, "." * 300, "(" * 300, "NaN", "1e999999", "0x1"),
)
_TOKENS: Final = re.compile(r"\s+|\w+|'(?:[^']|'')*'|.", re.DOTALL)


def mutated_bytes(rng: Random, data: bytes) -> bytes:
    """A few bytes changed, put in, taken out, doubled, moved, or set to the edges of numbers."""
    raw = bytearray(data)
    for _ in range(rng.choice((1, 1, 1, 2, 3, 8))):
        at, span = rng.randrange(len(raw) + 1), rng.choice((1, 1, 2, 4, 8, 40))
        match rng.randrange(8):
            case 0 if at < len(raw):
                raw[at] ^= 1 << rng.randrange(8)
            case 1:
                raw[at : at + span] = rng.randbytes(span)
            case 2:
                raw[at:at] = rng.randbytes(span)
            case 3:
                del raw[at : at + span]
            case 4:
                raw[at:at] = raw[at : at + span]
            case 5:
                other = rng.randrange(len(raw) + 1)
                raw[at : at + span] = raw[other : other + span]
            case 6:
                size = rng.choice((1, 2, 4, 8))
                number = rng.choice(EDGES) & ((1 << 8 * size) - 1)
                raw[at : at + size] = number.to_bytes(size, "little")
            case _:
                raw[at : at + span] = bytes([rng.choice((0, 0x7F, 0x80, 0xFF))]) * span
    return bytes(raw)


def mutated_text(rng: Random, text: str, others: Sequence[str]) -> str:
    """Tokens doubled, dropped, swapped, replaced by those of other texts or by odd ones."""
    tokens = _TOKENS.findall(text)
    for _ in range(rng.choice((1, 1, 2, 3, 6))):
        at = rng.randrange(len(tokens) + 1)
        match rng.randrange(7):
            case 0:
                del tokens[at : at + rng.choice((1, 1, 3))]
            case 1:
                tokens[at:at] = tokens[at : at + 1] * rng.choice((1, 2, 50))
            case 2:
                tokens[at : at + 1] = [rng.choice(ODD_TEXTS)]
            case 3:
                tokens[at : at + 1] = [str(rng.choice(EDGES))]
            case 4:
                tokens[at : at + 1] = [rng.choice(_TOKENS.findall(rng.choice(others)) or [""])]
            case 5:
                tokens[at:at] = _TOKENS.findall(rng.choice(others))
            case _:
                rng.shuffle(tokens[at : at + 4])
                tokens[at:at] = [rng.choice(("(", ")", ",", " NOT ", " AND ", " OR ", " IN ", ".", "-", "'", "1"))]
    return "".join(tokens)


def mutated_json(rng: Random, value: Any, others: Sequence[Any]) -> Any:
    """A JSON value with parts replaced, dropped, renamed, repeated or wrapped."""
    changed = copy.deepcopy(value)
    for _ in range(rng.choice((1, 1, 2, 4))):
        positions = list(_positions(changed))
        if not positions:
            return rng.choice((changed, odd_json(rng)))
        holder, key = rng.choice(positions)
        fitting = [there[name] for other in others for there, name in _positions(other) if name == key]
        match rng.randrange(12):
            case 0 | 1 | 2 | 3 | 4 if isinstance(key, str) and fitting:
                holder[key] = copy.deepcopy(rng.choice(fitting))  # in its place, from another value
            case 5:
                del holder[key]
            case 6 if isinstance(holder, dict):
                holder[rng.choice((*ODD_TEXTS, "type", "value", "term", "left", "children"))] = holder.pop(key)
            case 7:
                holder[key] = [holder[key]] * rng.choice((0, 1, 2, 50))
            case 8:
                holder[key] = {rng.choice(("type", "value", "x")): holder[key]}
            case 9:
                holder[key] = copy.deepcopy(rng.choice(others))
            case 10:
                holder[key] = rng.choice(ODD_TEXTS)
            case _:
                holder[key] = odd_json(rng)
    return changed


def odd_json(rng: Random) -> Any:
    """A scalar or small structure that does not belong where it is put."""
    plain: tuple[Any, ...] = (
        None,
        True,
        False,
        0,
        -1,
        0.5,
        1e308,
        float("nan"),
        float("inf"),
        "",
        "x",
        [],
        {},
        [[]],
        {"type": None},
    )
    edge, text = rng.choice(EDGES), rng.choice(ODD_TEXTS)
    return rng.choice((*plain, edge, text, [edge] * 3, {"type": text}))


def _positions(value: Any) -> Any:
    """Every (container, key) of a JSON value."""
    stack = [value]
    while stack:
        top = stack.pop()
        items = list(top.items()) if isinstance(top, dict) else list(enumerate(top)) if isinstance(top, list) else []
        for key, child in items:
            yield top, key
            stack.append(child)
