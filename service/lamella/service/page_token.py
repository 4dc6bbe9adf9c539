"""Page tokens of work that is done in parts: where the next part goes on, as text.

They are not signed: whoever makes one up only leaves out parts of their own work.
"""

from __future__ import annotations

import base64
import binascii
from typing import TypeVar

import msgspec

from lamella.snapshot.errors import InvalidPageToken
from lamella.snapshot.ids import canonical_id

_Place = TypeVar("_Place")


def write_token(body: bytes) -> str:
    """The token that stands for some bytes."""
    return base64.urlsafe_b64encode(body).decode().rstrip("=")


def read_token(token: str, of: str) -> bytes:
    """The bytes in a token; raises InvalidPageToken when it is none, ``of`` says of what."""
    try:
        return base64.urlsafe_b64decode(token.encode() + b"=" * (-len(token) % 4))
    except (binascii.Error, ValueError) as error:
        raise no_token(of) from error


def read_id(token: str, prefix: bytes) -> str:
    """The id behind a prefix in the token of a listing; raises InvalidPageToken."""
    body = read_token(token, "this listing")
    text = body.removeprefix(prefix)
    found = canonical_id(text.decode("latin-1"))
    if text == body or found is None:
        raise no_token("this listing")
    return found


def read_place(decoder: msgspec.json.Decoder[_Place], token: str, of: str) -> _Place:
    """As :func:`read_token`, the JSON in it as a value."""
    data = read_token(token, of)
    try:
        return decoder.decode(data)
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        raise no_token(of) from error


def no_token(of: str) -> InvalidPageToken:
    """What is raised for a text that is no token."""
    return InvalidPageToken(f"page_token is not one of {of}", parameter="page_token")
