"""``Idempotency-Key``: a repeated mutation happens once, and both requests get the same response.

The answer is stored in the transaction that makes the change, so neither exists without the other. An error that the
catalog's state decided, such as a conflict, is stored before it is sent. Other errors are not stored, since a retry can
do no harm.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable
from concurrent.futures import Future
from typing import Final

import msgspec

from lamella.service.catalog import Catalog, StoredAnswer, StoredJson
from lamella.snapshot.errors import (
    BY_CODE,
    BlocksRefused,
    BranchNotFound,
    CatalogDamaged,
    Conflict,
    IdempotencyMismatch,
    IndexNotFound,
    InvalidRequest,
    InvalidSchema,
    LamellaError,
    LimitExceeded,
    NamespaceNotFound,
    OutcomeUnknown,
    PolicyNotFound,
    ScheduleNotFound,
    SchemaMismatch,
    SnapshotNotFound,
    TableNotFound,
    TagNotFound,
    Unavailable,
    UnknownColumn,
)

MAX_KEY_LENGTH: Final = 255
#: Longest scope (method, principal, path) that the catalog stores.
_MAX_SCOPE: Final = 600

_ANSWER: Final = StoredJson(msgspec.Raw, "an answer")

#: Errors that depend on the state of the catalog and of the table.
_FINAL: Final = (
    Conflict,
    IndexNotFound,
    InvalidSchema,
    NamespaceNotFound,
    PolicyNotFound,
    ScheduleNotFound,
    SchemaMismatch,
    SnapshotNotFound,
    TableNotFound,
    BranchNotFound,
    TagNotFound,
    UnknownColumn,
)


class StoredResponse(msgspec.Struct, frozen=True):
    """An answer as it is sent, and the row that stores it, if the request had a key.

    ``snapshot_id``: of the snapshot that the request committed.
    """

    status: int
    body: bytes
    stored: StoredAnswer | None = None
    replayed: bool = False
    snapshot_id: str | None = None


class IdempotencyKey(msgspec.Struct, frozen=True):
    """A mutation's key (None: the client sent none), its scope, and the hash of the request."""

    key: str | None
    scope: str
    request_sha256: str
    now_ms: int

    def store_as(self, status: int, value: object = None, *, snapshot_id: str | None = None) -> StoredResponse:
        """Return the answer ``value`` (None: no body) and the row to store with the change.

        ``snapshot_id``: of the snapshot that the change commits.
        """
        body = b"" if value is None else msgspec.json.encode(value)
        stored = None if self.key is None else self.stored(status, body)
        return StoredResponse(status, body, stored, snapshot_id=snapshot_id)

    def stored(self, status: int, body: bytes) -> StoredAnswer:
        """Return the row that stores an answer; only for a request with a key."""
        assert self.key is not None  # noqa: S101  # documented above
        return StoredAnswer(
            key=self.key,
            scope=self.scope,
            request_sha256=self.request_sha256,
            status=status,
            body=body,
            created_at_ms=self.now_ms,
        )


def read_key(key: str | None, method: str, path: str, query: str, body: bytes, now_ms: int) -> IdempotencyKey:
    """Read the header's value. The query counts as part of the body: another query makes another request.

    Raises:
        InvalidRequest: empty, longer than 255 characters, or not printable ASCII.
        LimitExceeded: the path is longer than any valid one.
    """
    if key is not None and not (0 < len(key) <= MAX_KEY_LENGTH and key.isascii() and key.isprintable()):
        raise InvalidRequest(f"an Idempotency-Key must be 1 to {MAX_KEY_LENGTH} printable ASCII characters")
    scope = f"{method} {path}"
    if key is not None and len(scope) > _MAX_SCOPE:
        raise LimitExceeded(f"the path is longer than {_MAX_SCOPE} characters", limit="path", maximum=_MAX_SCOPE)
    digest = hashlib.sha256(body)
    if query:
        digest.update(b"?" + query.encode())
    return IdempotencyKey(key, scope, digest.hexdigest(), now_ms)


def replay_of(catalog: Catalog, request: IdempotencyKey) -> StoredResponse | None:
    """Return the answer stored under the request's key; None without one, or without a key.

    Raises:
        IdempotencyMismatch: the key belongs to another request.
    """
    if request.key is None:
        return None
    stored = catalog.answer(request.key, request.scope)
    if stored is None:
        return None
    if stored.request_sha256 != request.request_sha256:
        raise IdempotencyMismatch("the Idempotency-Key was used for another request", key=request.key)
    _check_stored(stored)
    return StoredResponse(stored.status, stored.body, replayed=True)


def _check_stored(answer: StoredAnswer) -> None:
    """Raise CatalogDamaged for a stored answer that this service cannot have written."""
    if not isinstance(answer.status, int) or not 200 <= answer.status < 600:
        raise CatalogDamaged(
            f"a stored answer in the catalog is damaged: its status is {answer.status!r}", what="an answer"
        )
    if answer.body:
        _ANSWER.decode(answer.body)


def answered(catalog: Catalog, request: IdempotencyKey, value: object) -> StoredResponse:
    """Return the answer of a request that changed nothing, and store it if the request has a key.

    Raises as :meth:`~lamella.service.catalog.Catalog.keep_answer`.
    """
    stored_response = request.store_as(200, value)
    if stored_response.stored is not None:
        catalog.keep_answer(stored_response.stored)
    return stored_response


def resolve(
    catalog: Catalog, request: IdempotencyKey, error: LamellaError, body: Callable[[], tuple[int, bytes]]
) -> StoredResponse:
    """Return the answer to a request that failed with ``error``: the stored answer if there is one, otherwise the
    error.

    A second request may run at the same time. At most one of them commits. The other fails in some way (the name
    exists, the blocks are there, the key is taken) and then finds the first one's answer here.

    A final error is stored, with the status and ``body`` that will be sent, before it is reported. So no later retry,
    and no delayed copy of the request, can do what a client was told did not happen.

    Raises:
        LamellaError: ``error``, if no answer is stored.
        IdempotencyMismatch: the key belongs to another request.
        Unavailable: ``error`` is final and could not be stored; nothing was done.
    """
    if request.key is None:
        raise error
    try:
        earlier = replay_of(catalog, request)
    except Unavailable:
        if not is_final(error):
            raise error from error.__cause__  # the error of the change matters more than this one
        raise
    if earlier is not None:
        return earlier
    if is_final(error):
        status, data = body()
        try:
            catalog.keep_answer(request.stored(status, data))
        except IdempotencyMismatch:
            earlier = replay_of(catalog, request)
            if earlier is not None:
                return earlier
        except OutcomeUnknown as failed:
            raise Unavailable(failed.message, retry_after_s=1) from failed
    raise error


def is_final(error: LamellaError) -> bool:
    """Return whether a retry must get the same answer: the state of the catalog decided it, not of the storage.

    Not final: errors that depend on the request alone (a retry fails in the same way), on which files exist, and
    internal errors of the service.
    """
    if isinstance(error, BlocksRefused):
        refused = error.details.get("refused", ())
        return bool(refused) and all(_is_final_code(entry["code"]) for entry in refused)
    return isinstance(error, _FINAL) and not isinstance(error, IdempotencyMismatch)


def _is_final_code(code: str) -> bool:
    kind = BY_CODE.get(code, LamellaError)
    return issubclass(kind, _FINAL) and kind is not Conflict  # the file changed during the request


class Pending(msgspec.Struct, frozen=True):
    """An answer that may not be ready. ``again``: what to do if it is an error: raise it, or return another answer.

    ``again`` may block.
    """

    answered: Future[StoredResponse]
    again: Callable[[LamellaError], Pending] | None = None

    def wait(self) -> StoredResponse:
        """Wait for the answer, in a thread that has nothing else to do. Raises the error that it fails with."""
        pending = self
        while True:
            try:
                return pending.answered.result()
            except LamellaError as error:
                if pending.again is None:
                    raise
                pending = pending.again(error)


def finished(stored_response: StoredResponse) -> Pending:
    """Return an answer that is ready."""
    answered: Future[StoredResponse] = Future()
    answered.set_result(stored_response)
    return Pending(answered)


async def answer_of(future: Future[StoredResponse], timeout_s: float) -> StoredResponse:
    """Wait for the answer in an event loop.

    Raises:
        Unavailable: the request was not started within the time, and will not be.
    """
    try:
        async with asyncio.timeout(timeout_s):
            return await asyncio.wrap_future(future)
    except TimeoutError as error:
        if future.cancelled():
            raise Unavailable("the table's commit queue did not start this request in time", retry_after_s=1) from error
    return await asyncio.wrap_future(future)  # it was started, so its outcome counts
