"""Page tokens: where the next page of one answer begins, in a form that only the service can have written.

A token holds all that is needed, so any replica with the same secret serves the next page: the snapshot (which never
changes), a hash of the request, and a position. Text: a MessagePack array, signed (:mod:`lamella.snapshot.tokens`).
"""

from __future__ import annotations

import hashlib
from typing import Final

import msgspec

from lamella.snapshot.errors import InvalidPageToken
from lamella.snapshot.ids import canonical_id
from lamella.snapshot.tokens import SignedTokens
from lamella.snapshot.wire import PruneRequest

_VERSION: Final = 1
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


#: Made once, here: two threads that decode a struct for the first time at once end the process (msgspec 0.22).
_TOKEN = msgspec.msgpack.Decoder(_Token)


class PageTokens:
    """Writes and reads the tokens of one secret; ``secret`` is the same for all replicas of a service."""

    def __init__(self, secret: bytes) -> None:
        self._signed = SignedTokens(secret, "lamella page token")

    def write(self, snapshot_id: str, request: PruneRequest, position: Position) -> str:
        """The token of the page that begins there."""
        body = msgspec.msgpack.encode(_Token(_VERSION, snapshot_id, _digest(request), position))
        return self._signed.write(body)

    def read(self, request: PruneRequest) -> tuple[str, Position]:
        """The snapshot and position that ``request.page_token`` stands for.

        Raises:
            InvalidPageToken: not one of ours, altered, or of another request.
        """
        token = self._opened(request.page_token or "")
        if token.request != _digest(request):
            raise InvalidPageToken("the page token belongs to another request; repeat the same request with it")
        requested = None if request.snapshot_id is None else canonical_id(request.snapshot_id)
        if requested not in (None, token.snapshot_id):
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
        try:
            token = _TOKEN.decode(self._signed.read(text))
        except msgspec.MsgspecError as error:
            raise InvalidPageToken("the page token is from another version of this service") from error
        if token.version != _VERSION:
            raise InvalidPageToken("the page token is from another version of this service")
        return token


def _digest(request: PruneRequest) -> bytes:
    """What must be the same on every page: the whole request but the page and the snapshot, which the token names.

    URLs may be signed for some pages and not for others. A tag stays in, since it may name another snapshot by now:
    the token's is the one that it named then.
    """
    tag = request.snapshot_id if request.snapshot_id is not None and canonical_id(request.snapshot_id) is None else None
    same = msgspec.structs.replace(request, page_token=None, page_size=None, snapshot_id=tag, sign_urls=False)
    return hashlib.sha256(msgspec.json.encode(same, order="sorted")).digest()[:16]
