"""Page tokens: where the next page of one answer begins, in a form that only the service can have written.

A token holds all that is needed, so any replica with the same secret serves the next page: the snapshot (which never
changes), a hash of the request, and a position. Text: base64 of a MessagePack array, and its HMAC-SHA256.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
from typing import Final

import msgspec

from lamella.snapshot.errors import InvalidPageToken, InvalidRequest
from lamella.snapshot.wire import PruneRequest

_VERSION: Final = 1
_MAC_BYTES: Final = 16
_MAX_CHARACTERS: Final = 1_000
#: Largest ``page_size``.
MAX_PAGE_SIZE: Final = 1_000_000


class Position(msgspec.Struct, frozen=True, array_like=True):
    """The first block that was not answered yet: a segment's row and a row in it.

    In an answer with an order of its own (``limit``, ``order_by``), ``row`` counts the blocks that were answered.
    """

    segment: int
    row: int


class _Token(msgspec.Struct, frozen=True, array_like=True):
    version: int
    snapshot_id: str
    request: bytes
    position: Position


class PageTokens:
    """Writes and reads the tokens of one secret; ``secret`` is the same for all replicas of a service."""

    def __init__(self, secret: bytes) -> None:
        if len(secret) < 16:
            raise InvalidRequest("the secret of page tokens has at least 16 bytes")
        self._secret = secret

    def write(self, snapshot_id: str, request: PruneRequest, position: Position) -> str:
        """The token of the page that begins there."""
        body = msgspec.msgpack.encode(_Token(_VERSION, snapshot_id, _digest(request), position))
        return base64.urlsafe_b64encode(self._mac(body) + body).decode().rstrip("=")

    def read(self, request: PruneRequest) -> tuple[str, Position]:
        """The snapshot and position that ``request.page_token`` stands for.

        Raises:
            InvalidPageToken: not one of ours, altered, or of another request.
        """
        token = self._opened(request.page_token or "")
        if token.request != _digest(request):
            raise InvalidPageToken("the page token belongs to another request; send the same one with it")
        if request.snapshot_id not in (None, token.snapshot_id):
            raise InvalidPageToken("the page token belongs to another snapshot", snapshot_id=token.snapshot_id)
        return token.snapshot_id, token.position

    def position(self, request: PruneRequest, snapshot_id: str) -> Position:
        """Where the page that is asked for begins, in that snapshot; raises InvalidPageToken."""
        pinned, position = self.read(request)
        if pinned != snapshot_id:
            raise InvalidPageToken("the page token belongs to another snapshot", snapshot_id=pinned)
        return position

    def following(self, snapshot_id: str, request: PruneRequest, position: Position | None) -> str | None:
        """The token of the page that begins there; None when there is none."""
        return None if position is None else self.write(snapshot_id, request, position)

    def _opened(self, text: str) -> _Token:
        if len(text) > _MAX_CHARACTERS or not text.isascii():
            raise InvalidPageToken("the page token is not one of this service")
        try:
            data = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
        except (binascii.Error, ValueError) as error:
            raise InvalidPageToken("the page token is not one of this service") from error
        mac, body = data[:_MAC_BYTES], data[_MAC_BYTES:]
        if not hmac.compare_digest(mac, self._mac(body)):
            raise InvalidPageToken("the page token is not one of this service, or was altered")
        try:
            token = msgspec.msgpack.decode(body, type=_Token)
        except msgspec.MsgspecError as error:
            raise InvalidPageToken("the page token is of another version of this service") from error
        if token.version != _VERSION:
            raise InvalidPageToken("the page token is of another version of this service")
        return token

    def _mac(self, body: bytes) -> bytes:
        return hmac.digest(self._secret, b"lamella page token\0" + body, "sha256")[:_MAC_BYTES]


def _digest(request: PruneRequest) -> bytes:
    """What must be the same on every page: the whole request but the page and the snapshot, which the token names."""
    same = msgspec.structs.replace(request, page_token=None, page_size=None, snapshot_id=None)
    return hashlib.sha256(msgspec.json.encode(same, order="sorted")).digest()[:16]
