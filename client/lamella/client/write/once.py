"""Appends that happen once under a key, also in another process, and whose lost answers are found again.

The service makes one commit under a key, and gives its answer again to the same request. A repeated write has other
files, so it would be another request. Therefore the request is stored in the table's scratch folder before it is sent,
under a name made from the key, and a repeated write sends that one.
"""

from __future__ import annotations

import hashlib
from typing import Final

import msgspec

from lamella.client.http.call import Call, TableName
from lamella.client.http.lake import Lake
from lamella.client.http.tables import commit_call
from lamella.client.rewrite.commit import TableState
from lamella.client.write.layout import WriteResult
from lamella.snapshot.errors import AlreadyExists, InvalidRequest, ObjectNotFound, OutcomeUnknown
from lamella.snapshot.ids import Ids, unix_ms, uuid7
from lamella.snapshot.storage import FsspecStore, TableLayout
from lamella.snapshot.wire import CommitAnswer

#: The longest key that the service accepts.
MAX_KEY_LENGTH: Final = 255
#: Times that a request is repeated, each with the client's own retries, when its outcome is unknown.
_REPEATS: Final = 3
#: The fraction of an answer's lifetime at the service in which a stored request is sent again. The rest is for clocks
#: that differ: when the service has forgotten the answer, the request would be another commit.
_SHARE: Final = 2


class SentCommit(msgspec.Struct, frozen=True, kw_only=True):
    """A commit's request as it was stored before it was sent, and the result of its write but the snapshot."""

    body: bytes
    min_timeout_s: float | None
    created_ms: int
    result: WriteResult


class CommitOnce:
    """The commit of one append. ``key``: the user's idempotency key; None: one for this commit alone."""

    def __init__(self, lake: Lake, state: TableState, store: FsspecStore, key: str | None) -> None:
        self._lake = lake
        self._name = state.name
        self._store = store
        if key is not None and not (0 < len(key) <= MAX_KEY_LENGTH and all(32 < ord(c) < 127 for c in key)):
            raise InvalidRequest(
                f"an idempotency key is printable ASCII without spaces, of at most {MAX_KEY_LENGTH} characters"
            )
        self._key = key or str(Ids().new())
        self._location: str | None = None
        self.result: WriteResult | None = None
        if key is not None:
            # A key belongs to a principal, and to a table.
            named = "\0".join((lake.whoami().principal, state.info.table_id, key))
            digest = hashlib.sha256(named.encode()).digest()
            self._location = TableLayout(state.info.location).sent_commit(uuid7(0, digest))

    def earlier(self) -> WriteResult | None:
        """Return the result of an earlier write with the key, whose commit is sent again if need be; None: there is
        none.

        Raises as the commit itself: when it was refused, the key cannot be used again.
        """
        stored = self._stored()
        if stored is None:
            return None
        self._send_stored(stored)
        return self.result

    def send(self, call: Call[CommitAnswer], result: WriteResult) -> CommitAnswer:
        """Send a commit, unless another write with the key was first; then send that one. :attr:`result` is the
        result of the one that was committed.

        Raises:
            OutcomeUnknown: the commit may have happened; a repeated write with the same key finds out.
            IdempotencyMismatch: the key was used for another commit, which cannot be repeated any more.
        """
        if self._location is not None:
            sent = SentCommit(body=call.body, min_timeout_s=call.min_timeout_s, created_ms=unix_ms(), result=result)
            data = msgspec.json.encode(sent)
            try:
                self._store.put(self._location, data)
            except AlreadyExists:
                stored = self._stored()
                if stored is not None:
                    return self._send_stored(stored)
                self._store.replace(self._location, data)
        return self._send(call, result)

    def _stored(self) -> SentCommit | None:
        if self._location is None:
            return None
        try:
            stored = msgspec.json.decode(self._store.read(self._location), type=SentCommit)
        except ObjectNotFound:
            return None
        lifetime_ms = self._lake.config().idempotency_ttl_s * 1000 // _SHARE
        return stored if unix_ms() - stored.created_ms < lifetime_ms else None

    def _send_stored(self, stored: SentCommit) -> CommitAnswer:
        call = commit_call(TableName.parse(self._name), (), (), None, "append", {})
        call = msgspec.structs.replace(call, body=stored.body, min_timeout_s=stored.min_timeout_s)
        return self._send(call, stored.result)

    def _send(self, call: Call[CommitAnswer], result: WriteResult) -> CommitAnswer:
        answer = send_resolved(self._lake, call, self._key)
        self.result = msgspec.structs.replace(result, snapshot_id=answer.snapshot_id)
        return answer


def send_resolved(lake: Lake, call: Call[CommitAnswer], key: str) -> CommitAnswer:
    """Send a commit; when its outcome is unknown, send it again under the same key, so that the service answers again.

    Raises:
        OutcomeUnknown: still unknown.
    """
    for left in range(_REPEATS, -1, -1):
        try:
            return lake.run(call, key)
        except OutcomeUnknown:
            if not left:
                raise
    raise AssertionError("unreachable")
