"""Verifications, part by part: each request does some steps and returns a token for the next.

Long work thus needs no open connection, survives a restart, and can continue on another replica.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Sequence
from typing import Final

import msgspec

from lamella.service.catalog import Catalog, HistoryEntry, TableRecord
from lamella.service.history.history import History
from lamella.service.http.page_token import PageTokens, no_token
from lamella.service.process.deadline import time_is_up
from lamella.snapshot.errors import InvalidPageToken, InvalidRequest, StoreError
from lamella.snapshot.storage import Store
from lamella.snapshot.verify import Deep, Options, Recorded, Verification
from lamella.snapshot.wire import VerifyAnswer, VerifyRequest

_MAX_HISTORY: Final = 1_000_000


class _Position(msgspec.Struct, frozen=True, array_like=True):
    """Where a verification continues: on which snapshot, with which ``seq``, at which step, for which request.

    ``steps``: how many there were then; 0: unknown.
    """

    snapshot_id: str
    seq: int
    step: int
    request_digest: str
    steps: int = 0


_POSITION: Final = msgspec.json.Decoder(_Position)
_OF: Final = "a verification"


class Verifications:
    """Verifies tables. ``warehouse_url`` is the folder of all tables; ``timer`` returns seconds."""

    def __init__(
        self,
        catalog: Catalog,
        history: History,
        store: Store,
        warehouse_url: str,
        *,
        tokens: PageTokens,
        page_sidecars: bool,
        workers: int,
        timer: Callable[[], float] = time.monotonic,
    ) -> None:
        self._catalog = catalog
        self._history = history
        self._store = store
        self._warehouse_url = warehouse_url
        self._tokens = tokens
        self._page_sidecars = page_sidecars
        self._workers = workers
        self._timer = timer

    def verify(self, record: TableRecord, request: VerifyRequest) -> VerifyAnswer:
        """Do a part.

        Raises:
            InvalidRequest: invalid options.
            InvalidPageToken: the token is invalid, or of another request.
            SnapshotNotFound: no such snapshot in the history.
            StoreError: the store failed at the manifest of the snapshot or of a group, or returns another tree than
                before; the same part can be requested again.
        """
        if not 0 <= request.history <= _MAX_HISTORY:
            raise InvalidRequest(f"history must be a number from 0 to {_MAX_HISTORY}, not {request.history}")
        is_over = time_is_up(request.max_ms, self._timer)
        position = self._position(record, request)
        pointer = self._history.pointer(record, snapshot_id=position.snapshot_id)
        options = Options(
            files=request.files,
            pages=self._page_sidecars if request.pages is None else request.pages,
            history=(position.seq, request.history),
            deep=_deep(request),
            repair=request.repair,
            workers=self._workers,
        )
        verification = Verification(
            self._store,
            self._warehouse_url,
            record.main_id,
            pointer,
            options,
            lambda below, limit: self._records(record.table_id, below, limit),
        )
        if position.steps not in (0, verification.steps):
            # Steps are identified by number. In another tree some would be skipped silently.
            raise StoreError(
                f"the store returns a tree of {verification.steps} steps, and returned one of "
                f"{position.steps} before; try again"
            )
        answer = verification.run(position.step, until=lambda _done: is_over())
        if answer.steps_done >= answer.steps:
            return answer
        following = msgspec.structs.replace(position, step=answer.steps_done, steps=answer.steps)
        token = self._tokens.write_position(following, _OF, record.table_id)
        return msgspec.structs.replace(answer, next_page_token=token)

    def _position(self, record: TableRecord, request: VerifyRequest) -> _Position:
        digest = _digest(request)
        if request.page_token is not None:
            position = self._tokens.read_position(_POSITION, request.page_token, _OF, record.table_id)
            if not (position.step >= 0 and 0 <= position.seq < 1 << 63):
                raise no_token(_OF)
            if position.request_digest != digest:
                raise InvalidPageToken("page_token belongs to another request", parameter="page_token")
            return position
        pointer = self._history.pointer(record, snapshot_id=request.snapshot_id, timestamp=request.timestamp)
        if pointer.snapshot_id == record.pointer.snapshot_id:
            seq = record.version
        else:
            seq = self._catalog.snapshot(record.table_id, pointer.snapshot_id).seq
        return _Position(pointer.snapshot_id, seq, 0, digest)

    def _records(self, table_id: str, below: int, limit: int) -> Sequence[Recorded]:
        return [recorded(entry) for entry in self._catalog.history(table_id, before_seq=below, limit=limit)]


def _deep(request: VerifyRequest) -> Deep | None:
    deep = Deep(sample=request.sample, blocks=request.blocks, seed=request.seed, filters=request.filters)
    deep.check()
    if not request.deep and (request.sample is not None or request.blocks is not None):
        raise InvalidRequest("sample and blocks limit deep reads; set deep too")
    if request.deep and not request.files:
        raise InvalidRequest("deep reads the files of blocks; do not set files to false")
    return deep if request.deep else None


def recorded(entry: HistoryEntry) -> Recorded:
    """Return what a verification needs of a snapshot of the history."""
    return Recorded(**{name: getattr(entry, name) for name in Recorded.__struct_fields__})


def _digest(request: VerifyRequest) -> str:
    """Return a digest of the request without the limits of its parts."""
    same = msgspec.structs.replace(request, max_ms=None, page_token=None)
    return hashlib.sha256(msgspec.json.encode(same)).hexdigest()[:16]
