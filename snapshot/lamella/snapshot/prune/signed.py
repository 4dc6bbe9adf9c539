"""Tokens that only this service can have written: some bytes, and their HMAC-SHA256, as URL-safe base64."""

from __future__ import annotations

import base64
import binascii
import hmac
from typing import Final

from lamella.snapshot.errors import InvalidPageToken, InvalidRequest

_MAC_BYTES: Final = 16
_MAX_CHARACTERS: Final = 1_000


class SignedTokens:
    """Writes and reads the tokens of one secret for one ``purpose``: those of another purpose are not taken.

    ``most_characters``: longer ones are not read.
    """

    def __init__(self, secret: bytes, purpose: str, *, most_characters: int = _MAX_CHARACTERS) -> None:
        if len(secret) < 16:
            raise InvalidRequest("the secret of page tokens has at least 16 bytes")
        self._secret = secret
        self._purpose = purpose.encode() + b"\0"
        self._most_characters = most_characters

    def write(self, body: bytes) -> str:
        """The token of these bytes."""
        return base64.urlsafe_b64encode(self._mac(body) + body).decode().rstrip("=")

    def read(self, text: str) -> bytes:
        """The bytes of a token; raises InvalidPageToken for one that is not ours, or was altered."""
        if len(text) > self._most_characters or not text.isascii():
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
