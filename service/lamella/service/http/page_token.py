"""Page tokens of listings, and of work that is done in parts: the position of the next part, as text.

They are signed, and valid only for the listing and the table (or filter) that they were made for. An invented or
altered token, or one of another listing, is refused, so that no page is skipped silently.
"""

from __future__ import annotations

import secrets
from typing import Final, TypeVar

import msgspec

from lamella.snapshot.errors import InvalidPageToken
from lamella.snapshot.ids import canonical_id
from lamella.snapshot.tokens import SignedTokens

_Value = TypeVar("_Value")

#: The position may be a location or a name.
_MAX_CHARACTERS: Final = 16_384


class PageTokens:
    """Writes and reads tokens signed with a secret; without one, they are valid for this object only.

    ``of`` names the listing in errors; ``scope`` is what is listed, such as a table's id.
    """

    def __init__(self, secret: bytes | None = None) -> None:
        self._secret = secrets.token_bytes(32) if secret is None else secret

    def write(self, body: bytes, of: str, scope: str = "") -> str:
        """Return the token for some bytes."""
        return self._signed(of, scope).write(body)

    def read(self, token: str, of: str, scope: str = "", *, parameter: str = "page_token") -> bytes:
        """Return the bytes of a token. Raises InvalidPageToken for a token of another listing."""
        try:
            return self._signed(of, scope).read(token)
        except InvalidPageToken as error:
            raise no_token(of, parameter) from error

    def write_position(self, position: object, of: str, scope: str = "") -> str:
        """Return the token for a value."""
        return self.write(msgspec.json.encode(position), of, scope)

    def read_position(self, decoder: msgspec.json.Decoder[_Value], token: str, of: str, scope: str = "") -> _Value:
        """Return the value of a token, as :meth:`read`. Tokens of releases with another type are refused."""
        data = self.read(token, of, scope)
        try:
            return decoder.decode(data)
        except (msgspec.DecodeError, ValueError, RecursionError) as error:
            raise no_token(of) from error

    def read_id(self, token: str, of: str, scope: str = "") -> str:
        """Return the id in a token, as :meth:`read`. Raises InvalidPageToken for any other text."""
        found = canonical_id(self.read(token, of, scope).decode("latin-1"))
        if found is None:
            raise no_token(of)
        return found

    def _signed(self, of: str, scope: str) -> SignedTokens:
        return SignedTokens(self._secret, f"lamella page of {of}\0{scope}", max_characters=_MAX_CHARACTERS)


def no_token(of: str, parameter: str = "page_token") -> InvalidPageToken:
    """Return the error for an invalid token."""
    return InvalidPageToken(f"{parameter} is not a page token of {of}", parameter=parameter)
