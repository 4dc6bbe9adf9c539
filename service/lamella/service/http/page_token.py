"""Page tokens of listings, and of work that is done in parts: where the next part goes on, as text.

They are signed, and hold for the listing and the table (or filter) that they were given for. A token that somebody made
up, altered, or took from another listing is refused, so that no page is left out without a word.
"""

from __future__ import annotations

import secrets
from typing import Final, TypeVar

import msgspec

from lamella.snapshot.errors import InvalidPageToken
from lamella.snapshot.ids import canonical_id
from lamella.snapshot.tokens import SignedTokens

_Place = TypeVar("_Place")

#: A place may be a location or a name.
_MAX_CHARACTERS: Final = 16_384


class PageTokens:
    """Writes and reads the tokens of one secret; without one they hold for this object alone.

    ``of`` says what is listed, in words for errors; ``scope`` what it is listed of, such as a table's id.
    """

    def __init__(self, secret: bytes | None = None) -> None:
        self._secret = secrets.token_bytes(32) if secret is None else secret

    def write(self, body: bytes, of: str, scope: str = "") -> str:
        """The token that stands for some bytes."""
        return self._signed(of, scope).write(body)

    def read(self, token: str, of: str, scope: str = "", *, parameter: str = "page_token") -> bytes:
        """The bytes in a token; raises InvalidPageToken when it is not one of this listing."""
        try:
            return self._signed(of, scope).read(token)
        except InvalidPageToken as error:
            raise no_token(of, parameter) from error

    def write_place(self, place: object, of: str, scope: str = "") -> str:
        """The token that stands for a value."""
        return self.write(msgspec.json.encode(place), of, scope)

    def read_place(self, decoder: msgspec.json.Decoder[_Place], token: str, of: str, scope: str = "") -> _Place:
        """As :meth:`read`, the JSON in it as a value: of this release, or one that wrote the same."""
        data = self.read(token, of, scope)
        try:
            return decoder.decode(data)
        except (msgspec.DecodeError, ValueError, RecursionError) as error:
            raise no_token(of) from error

    def read_id(self, token: str, of: str, scope: str = "") -> str:
        """As :meth:`read`, an id; raises InvalidPageToken for another text."""
        found = canonical_id(self.read(token, of, scope).decode("latin-1"))
        if found is None:
            raise no_token(of)
        return found

    def _signed(self, of: str, scope: str) -> SignedTokens:
        return SignedTokens(self._secret, f"lamella page of {of}\0{scope}", max_characters=_MAX_CHARACTERS)


def no_token(of: str, parameter: str = "page_token") -> InvalidPageToken:
    """What is raised for a text that is no token."""
    return InvalidPageToken(f"{parameter} is not one of {of}", parameter=parameter)
