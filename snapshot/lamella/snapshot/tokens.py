"""API keys, and tokens signed by the service."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import re
import zlib
from typing import Final

from lamella.snapshot.errors import InvalidPageToken, InvalidRequest

# API keys as texts: 256 random bits, stored as their hash.
#
# A key is ``lamella_``, 43 characters, and a checksum of 6 more, so that a scanner finds one in a repository and a
# mistyped one is refused without a catalog look-up. All its bits are random, so a plain hash is sufficient: a slow hash
# would not protect anything that can be guessed.

PREFIX: Final = "lamella_"
RANDOM_BYTES: Final = 32
_BODY_CHARACTERS: Final = 43
_CHECK_CHARACTERS: Final = 6
_FORM: Final = re.compile(rf"{PREFIX}[A-Za-z0-9_-]{{{_BODY_CHARACTERS + _CHECK_CHARACTERS}}}")


def key_text(random: bytes) -> str:
    """Returns the key of 32 random bytes."""
    if len(random) != RANDOM_BYTES:
        raise ValueError(f"a key needs {RANDOM_BYTES} random bytes, not {len(random)}")
    body = base64.urlsafe_b64encode(random).decode().rstrip("=")
    return PREFIX + body + _check_of(body)


def is_key(text: str) -> bool:
    """Returns whether a text can be a key: its form and its checksum are right."""
    if _FORM.fullmatch(text) is None:
        return False
    body = text[len(PREFIX) : -_CHECK_CHARACTERS]
    return text[-_CHECK_CHARACTERS:] == _check_of(body)


def key_sha256(text: str) -> str:
    """Returns the hash that identifies a key, hexadecimal."""
    return hashlib.sha256(text.encode()).hexdigest()


def unspelt(text: str) -> str:
    """Returns a text without any keys in it, for logging."""
    return _FORM.sub(f"{PREFIX}hidden", text) if PREFIX in text else text


def _check_of(body: str) -> str:
    crc = zlib.crc32(body.encode()).to_bytes(4, "big")
    return base64.urlsafe_b64encode(crc).decode().rstrip("=")


_MAC_BYTES: Final = 16
_MAX_CHARACTERS: Final = 1_000


class SignedTokens:
    """Writes and reads the tokens of one secret for one ``purpose``; those of another purpose are refused.

    ``max_characters``: longer ones are refused.
    """

    def __init__(self, secret: bytes, purpose: str, *, max_characters: int = _MAX_CHARACTERS) -> None:
        if len(secret) < 16:
            raise InvalidRequest("the secret for page tokens must have at least 16 bytes")
        self._secret = secret
        self._purpose = purpose.encode() + b"\0"
        self._max_characters = max_characters

    def write(self, body: bytes) -> str:
        """Returns the token of bytes."""
        return base64.urlsafe_b64encode(self._mac(body) + body).decode().rstrip("=")

    def read(self, text: str) -> bytes:
        """Returns the bytes of a token; raises InvalidPageToken for a foreign or altered one."""
        if len(text) > self._max_characters or not text.isascii():
            raise InvalidPageToken("the page token was not issued by this service")
        try:
            data = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
        except (binascii.Error, ValueError) as error:
            raise InvalidPageToken("the page token was not issued by this service") from error
        # The last character has bits that mean nothing: another one there is the same data.
        is_altered = base64.urlsafe_b64encode(data).rstrip(b"=").decode() != text
        mac, body = data[:_MAC_BYTES], data[_MAC_BYTES:]
        if is_altered or not hmac.compare_digest(mac, self._mac(body)):
            raise InvalidPageToken("the page token was not issued by this service, or was altered")
        return body

    def _mac(self, body: bytes) -> bytes:
        return hmac.digest(self._secret, self._purpose + body, "sha256")[:_MAC_BYTES]
