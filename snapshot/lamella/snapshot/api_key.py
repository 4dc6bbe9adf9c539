"""API keys as texts: made of 256 random bits, and known by their hash.

A key is ``lamella_``, 43 characters, and 6 more that follow from those, so that a scanner finds one in a repository and
a mistyped one is refused without a look into the catalog. Its bits are all random, so a plain hash keeps it: there is
nothing to guess that a slow one would protect.
"""

from __future__ import annotations

import base64
import hashlib
import re
import zlib
from typing import Final

PREFIX: Final = "lamella_"
RANDOM_BYTES: Final = 32
_BODY_CHARACTERS: Final = 43
_CHECK_CHARACTERS: Final = 6
_FORM: Final = re.compile(rf"{PREFIX}[A-Za-z0-9_-]{{{_BODY_CHARACTERS + _CHECK_CHARACTERS}}}")


def key_text(random: bytes) -> str:
    """The key of 32 random bytes."""
    if len(random) != RANDOM_BYTES:
        raise ValueError(f"a key is made of {RANDOM_BYTES} random bytes, not {len(random)}")
    body = base64.urlsafe_b64encode(random).decode().rstrip("=")
    return PREFIX + body + _check_of(body)


def is_key(text: str) -> bool:
    """Whether a text can be a key: its form and its last characters are right."""
    if _FORM.fullmatch(text) is None:
        return False
    body = text[len(PREFIX) : -_CHECK_CHARACTERS]
    return text[-_CHECK_CHARACTERS:] == _check_of(body)


def key_sha256(text: str) -> str:
    """The hash by which a key is known, hexadecimal."""
    return hashlib.sha256(text.encode()).hexdigest()


def unspelt(text: str) -> str:
    """A text without the keys that stand in it, for what is written down; nobody should have put one there."""
    return _FORM.sub(f"{PREFIX}hidden", text) if PREFIX in text else text


def _check_of(body: str) -> str:
    crc = zlib.crc32(body.encode()).to_bytes(4, "big")
    return base64.urlsafe_b64encode(crc).decode().rstrip("=")
