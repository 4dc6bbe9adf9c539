"""``Idempotency-Key``: a mutation that is requested twice happens once, and both responses are the same.

The answer is stored in the transaction that makes the change, so there is no moment at which one is there without
the other. An error that the catalog's state decided, such as a conflict, is stored before it is sent; other errors are
not, since asking again can do no harm.
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
#: Of the method, who asks, and the path: as the catalog keeps them.
_MAX_SCOPE: Final = 600

_ANSWER: Final = StoredJson(msgspec.Raw, "an answer")

#: Errors that the state of the catalog and of the table decides.
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
    TagNotFound,
    UnknownColumn,
)


class StoredResponse(msgspec.Struct, frozen=True):
    """An answer as it will be sent, and the row that keeps it, if the request had a key."""

    status: int
    body: bytes
    stored: StoredAnswer | None = None
    replayed: bool = False


class IdempotencyKey(msgspec.Struct, frozen=True):
    """A mutation's key (None: the client gave none), where it was used, and the hash of what it asked for."""

    key: str | None
    scope: str
    request_sha256: str
    now_ms: int

    def seal(self, status: int, value: object = None) -> StoredResponse:
        """The answer ``value`` (None: no body) with the row to be stored beside the change."""
        body = b"" if value is None else msgspec.json.encode(value)
        return StoredResponse(status, body, None if self.key is None else self.stored(status, body))

    def stored(self, status: int, body: bytes) -> StoredAnswer:
        """The row that keeps an answer; only for a request with a key."""
        assert self.key is not None  # noqa: S101  # see above
        return StoredAnswer(
            key=self.key,
            scope=self.scope,
            request_sha256=self.request_sha256,
            status=status,
            body=body,
            created_at_ms=self.now_ms,
        )


def claim(key: str | None, method: str, path: str, query: str, body: bytes, now_ms: int) -> IdempotencyKey:
    """Read the header's value. The query counts as part of the body: with another one it is another request.

    Raises:
        InvalidRequest: empty, longer than 255 characters, or not printable ASCII.
        LimitExceeded: the path is longer than that of anything there is.
    """
    if key is not None and not (0 < len(key) <= MAX_KEY_LENGTH and key.isascii() and key.isprintable()):
        raise InvalidRequest(f"an Idempotency-Key is 1 to {MAX_KEY_LENGTH} printable ASCII characters")
    scope = f"{method} {path}"
    if key is not None and len(scope) > _MAX_SCOPE:
        raise LimitExceeded(f"the path is longer than {_MAX_SCOPE} characters", limit="path", most=_MAX_SCOPE)
    asked = hashlib.sha256(body)
    if query:
        asked.update(b"?" + query.encode())
    return IdempotencyKey(key, scope, asked.hexdigest(), now_ms)


def replay_of(catalog: Catalog, request: IdempotencyKey) -> StoredResponse | None:
    """The answer that is stored under the request's key; None when there is none, or no key.

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
    """Raise CatalogDamaged for what cannot have been an answer of this service."""
    if not isinstance(answer.status, int) or not 200 <= answer.status < 600:
        raise CatalogDamaged(f"an answer in the catalog is damaged: its status is {answer.status!r}", what="an answer")
    if answer.body:
        _ANSWER.decode(answer.body)


def answered(catalog: Catalog, request: IdempotencyKey, value: object) -> StoredResponse:
    """The answer of a request that found nothing to change, stored by itself if it has a key.

    Raises as :meth:`~lamella.service.catalog.Catalog.keep_answer`.
    """
    sealed = request.seal(200, value)
    if sealed.stored is not None:
        catalog.keep_answer(sealed.stored)
    return sealed


def resolve(
    catalog: Catalog, request: IdempotencyKey, error: LamellaError, body: Callable[[], tuple[int, bytes]]
) -> StoredResponse:
    """What to answer when a request failed with ``error``: what it was answered before, or else the error.

    A second request may run beside the first. At most one of them commits; the other one fails in some way (the
    name exists, the blocks are there, the key is taken) and then finds the first one's answer here.

    A final error is stored, with the status and ``body`` that will be sent, before anybody hears of it. So no later
    try, and no copy of the request that was under way for long, can do what a client was told did not happen.

    Raises:
        LamellaError: ``error``, when no answer is stored.
        IdempotencyMismatch: the key belongs to another request.
        Unavailable: ``error`` is final and could not be stored; nothing was done.
    """
    if request.key is None:
        raise error
    try:
        earlier = replay_of(catalog, request)
    except Unavailable:
        if not is_final(error):
            raise error from error.__cause__  # what is known of the change matters more than this failure
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
    """Whether asking again must be answered the same: the state of the catalog decided it, not what is in storage.

    Not final: what the request alone decides (it is decided the same each time), what files are there or are not,
    and whatever is the service's trouble.
    """
    if isinstance(error, BlocksRefused):
        refused = error.details.get("refused", ())
        return bool(refused) and all(_is_final_code(entry["code"]) for entry in refused)
    return isinstance(error, _FINAL) and not isinstance(error, IdempotencyMismatch)


def _is_final_code(code: str) -> bool:
    kind = BY_CODE.get(code, LamellaError)
    return issubclass(kind, _FINAL) and kind is not Conflict  # a file that changed meanwhile


class Pending(msgspec.Struct, frozen=True):
    """``again``: what to do when the answer is an error: raise it, or wait for something else. It may block."""

    answered: Future[StoredResponse]
    again: Callable[[LamellaError], Pending] | None = None

    def wait(self) -> StoredResponse:
        """The answer, in a thread that has nothing else to do; raises what it fails with."""
        pending = self
        while True:
            try:
                return pending.answered.result()
            except LamellaError as error:
                if pending.again is None:
                    raise
                pending = pending.again(error)


def finished(sealed: StoredResponse) -> Pending:
    """An answer that is there."""
    answered: Future[StoredResponse] = Future()
    answered.set_result(sealed)
    return Pending(answered)


async def answer_of(future: Future[StoredResponse], timeout_s: float) -> StoredResponse:
    """The answer, waited for in an event loop.

    Raises:
        Unavailable: nobody began to work on it within the time, and nobody will.
    """
    try:
        async with asyncio.timeout(timeout_s):
            return await asyncio.wrap_future(future)
    except TimeoutError as error:
        if future.cancelled():
            raise Unavailable("the table's queue did not come to this request in time", retry_after_s=1) from error
    return await asyncio.wrap_future(future)  # it was begun, so its outcome counts
