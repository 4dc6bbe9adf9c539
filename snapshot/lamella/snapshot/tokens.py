"""API keys, and tokens that only the service can have written."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import re
import zlib
from typing import Final

from lamella.snapshot.errors import InvalidPageToken, InvalidRequest

# API keys as texts: made of 256 random bits, and known by their hash.
#
# A key is ``lamella_``, 43 characters, and 6 more that follow from those, so that a scanner finds one in a repository
# and a mistyped one is refused without a look into the catalog. Its bits are all random, so a plain hash keeps it:
# there is nothing to guess that a slow one would protect.

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


_MAC_BYTES: Final = 16
_MAX_CHARACTERS: Final = 1_000


class SignedTokens:
    """Writes and reads the tokens of one secret for one ``purpose``: those of another purpose are not taken.

    ``max_characters``: longer ones are not read.
    """

    def __init__(self, secret: bytes, purpose: str, *, max_characters: int = _MAX_CHARACTERS) -> None:
        if len(secret) < 16:
            raise InvalidRequest("the secret of page tokens has at least 16 bytes")
        self._secret = secret
        self._purpose = purpose.encode() + b"\0"
        self._max_characters = max_characters

    def write(self, body: bytes) -> str:
        """The token of these bytes."""
        return base64.urlsafe_b64encode(self._mac(body) + body).decode().rstrip("=")

    def read(self, text: str) -> bytes:
        """The bytes of a token; raises InvalidPageToken for one that is not ours, or was altered."""
        if len(text) > self._max_characters or not text.isascii():
            raise InvalidPageToken("the page token is not one of this service")
        try:
            data = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
        except (binascii.Error, ValueError) as error:
            raise InvalidPageToken("the page token is not one of this service") from error
        mac, body = data[:_MAC_BYTES], data[_MAC_BYTES:]
        if not hmac.compare_digest(mac, self._mac(body)):
            raise InvalidPageToken("the page token is not one of this service, or was altered")
        return body

    def _mac(self, body: bytes) -> bytes:
        return hmac.digest(self._secret, self._purpose + body, "sha256")[:_MAC_BYTES]
