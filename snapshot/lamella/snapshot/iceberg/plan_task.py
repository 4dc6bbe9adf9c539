"""Plan tasks: one part of a plan as text that only the service can have written.

A token holds all that is needed, so that any replica with the same secret serves it, and nobody keeps plans: the
snapshot, the request, and from which block to which. Text: a MessagePack array, signed, the request in it compressed.
"""

from __future__ import annotations

import zlib
from typing import Final

import msgspec

from lamella.snapshot.errors import InvalidPageToken
from lamella.snapshot.iceberg.wire import MOST_CHARACTERS, PlanTableScan
from lamella.snapshot.prune.paging import Position
from lamella.snapshot.prune.signed import SignedTokens

_VERSION: Final = 1
#: What a request may be once it is decompressed. Only requests of ours are, but they were a client's.
_MOST_BYTES: Final = 64 << 20
#: Behind every block of a snapshot.
END: Final = Position(1 << 62, 0)
START: Final = Position(0, 0)


class PlanTask(msgspec.Struct, frozen=True, array_like=True):
    """``spoken``: the snapshot whose schema has the request's names. Blocks from ``start`` to before ``stop``."""

    version: int
    table_id: str
    snapshot_id: str
    spoken: str
    request: bytes
    start: Position
    stop: Position


_TASK: Final = msgspec.msgpack.Decoder(PlanTask)
_REQUEST: Final = msgspec.json.Decoder(PlanTableScan)


class PlanTasks:
    """Writes and reads the tokens of one secret."""

    def __init__(self, secret: bytes) -> None:
        self._signed = SignedTokens(secret, "lamella plan task", most_characters=MOST_CHARACTERS)

    def first(self, table_id: str, snapshot_id: str, spoken: str, request: PlanTableScan) -> PlanTask:
        """The task that is all of a plan."""
        packed = zlib.compress(msgspec.json.encode(request), 1)
        return PlanTask(_VERSION, table_id, snapshot_id, spoken, packed, START, END)

    def write(self, task: PlanTask) -> str:
        """The token of a task."""
        return self._signed.write(msgspec.msgpack.encode(task))

    def read(self, text: str) -> tuple[PlanTask, PlanTableScan]:
        """The task of a token, and the request that it is a part of; raises InvalidPageToken."""
        try:
            task = _TASK.decode(self._signed.read(text))
            # One that is longer than this is cut, and no JSON any more.
            request = _REQUEST.decode(zlib.decompressobj().decompress(task.request, _MOST_BYTES))
        except (msgspec.MsgspecError, zlib.error) as error:
            raise InvalidPageToken("the plan task is of another version of this service") from error
        if task.version != _VERSION:
            raise InvalidPageToken("the plan task is of another version of this service")
        return task, request
