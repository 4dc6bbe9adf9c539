"""A store that reads blocks by HTTP, each by its signed URL. Nothing else can be asked of it."""

from __future__ import annotations

import random
import re
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Iterator
from typing import Final, NoReturn
from urllib.parse import urlsplit

from lamella.client.http.pool import PooledTransport
from lamella.client.http.retry import RetryPolicy, retry_after_s
from lamella.client.http.transport import HttpRequest, HttpResponse, Transport, TransportFailure
from lamella.client.presigned.urls import BlockUrls, SignedBlock
from lamella.snapshot.errors import BlockReplaced, ObjectNotFound, StoreError
from lamella.snapshot.ids import unix_ms
from lamella.snapshot.layout import ListedObject, ObjectStat

_RANGE: Final = re.compile(r"bytes (?:(\d+)-\d+|\*)/(\d+)")
#: What stores answer to a URL that has expired, or was signed with credentials that have.
_REFUSED: Final = frozenset({400, 401, 403})
#: "Not now": what a client tries again.
_LATER: Final = frozenset({429, 500, 502, 503, 504})
_IDLE: Final = 32


class UrlStore:
    """A :class:`~lamella.snapshot.layout.Store` for reading; threads may share it.

    Nothing is taken from the environment: no credentials, no proxy. A URL stands in no error.
    """

    def __init__(
        self,
        urls: BlockUrls,
        *,
        policy: RetryPolicy | None = None,
        open_transport: Callable[[str], Transport] = lambda origin: PooledTransport(origin, max_idle=_IDLE),
        sleep: Callable[[float], None] = time.sleep,
        jitter: Callable[[], float] = random.random,
    ) -> None:
        self._urls = urls
        self._policy = policy if policy is not None else RetryPolicy()
        self._open_transport = open_transport
        self._sleep = sleep
        self._jitter = jitter
        self._lock = threading.Lock()
        self._transports: dict[str, Transport] = {}
        weakref.finalize(self, _close, self._transports)

    def read(self, location: str) -> bytes:
        """All bytes of a block."""
        return self._get(location, None).body

    def read_range(self, location: str, start: int, length: int) -> bytes:
        """Some bytes of a block."""
        if length <= 0:
            return b""
        response = self._get(location, (start, length))
        if response.status == 200:  # a server that knows no ranges
            return response.body[start : start + length]
        if response.status == 416:
            return b""
        first, _ = _range(location, response)
        if first != start or len(response.body) > length:
            raise StoreError(f"{location}: the store answered with other bytes than were asked for", location=location)
        return response.body

    def stat(self, location: str) -> ObjectStat:
        """Size and etag, from the answer to a request for the first byte.

        Raises:
            BlockReplaced: the file is not the one that the service knows.
        """
        response = self._get(location, (0, 1))
        size_bytes = len(response.body) if response.status == 200 else _range(location, response)[1]
        etag = response.headers.get("etag", "").strip('"')
        found = ObjectStat(location=location, size_bytes=size_bytes, content_id=etag)
        known = self._urls.of(location)
        if known.size_bytes != size_bytes or known.content_id not in (None, etag):
            raise BlockReplaced(f"{location} is not the file that the table's statistics come from", location=location)
        return found

    def put(self, location: str, data: bytes) -> ObjectStat:  # noqa: ARG002  # the port's signature
        """Nothing can be written."""
        _read_only(location)

    def expand(self, url: str, *, plain: bool = False) -> list[str]:  # noqa: ARG002  # as above
        """Nothing can be listed."""
        _read_only(url)

    def list(self, prefix: str, *, start_after: str | None = None) -> Iterator[ListedObject]:  # noqa: ARG002  # as above
        """Nothing can be listed."""
        _read_only(prefix)

    def delete(self, location: str) -> None:
        """Nothing can be deleted."""
        _read_only(location)

    def delete_many(self, locations: Iterable[str]) -> dict[str, str]:
        """Nothing can be deleted."""
        _read_only(next(iter(locations), ""))

    def _get(self, location: str, span: tuple[int, int] | None) -> HttpResponse:
        """The answer to a GET; an expired URL is renewed, a busy store asked again."""
        block = self._urls.of(location)
        is_new = False
        failed = 0
        while True:
            outcome = self._send(block, span)
            if isinstance(outcome, HttpResponse):
                if outcome.status in (200, 206) or (outcome.status == 416 and span is not None):
                    return outcome
                if outcome.status == 404:
                    raise ObjectNotFound(f"no such object: {location}", location=location)
                if outcome.status in _REFUSED and not is_new:
                    block, is_new = self._urls.renewed(location, block), True
                    continue
            failed += 1
            delay_s = self._delay_s(outcome, failed)
            if delay_s is None:
                reason = outcome.reason if isinstance(outcome, TransportFailure) else f"answered {outcome.status}"
                raise StoreError(f"{location} cannot be read by its signed URL: {reason}", location=location)
            self._sleep(delay_s)

    def _delay_s(self, outcome: HttpResponse | TransportFailure, failed: int) -> float | None:
        if isinstance(outcome, TransportFailure):
            return self._policy.delay_s(failed, self._jitter()) if outcome.transient else None
        if outcome.status not in _LATER:
            return None
        after_s = retry_after_s(outcome.headers.get("retry-after"), unix_ms())
        return self._policy.delay_s(failed, self._jitter(), after_s)

    def _send(self, block: SignedBlock, span: tuple[int, int] | None) -> HttpResponse | TransportFailure:
        parts = urlsplit(block.url)
        headers = [("Accept-Encoding", "identity")]
        if span is not None:
            headers.append(("Range", f"bytes={span[0]}-{span[0] + span[1] - 1}"))
        request = HttpRequest(method="GET", target=f"{parts.path}?{parts.query}", headers=tuple(headers))
        try:
            return self._transport(f"{parts.scheme}://{parts.netloc}").send(request)
        except TransportFailure as failure:
            return failure

    def _transport(self, origin: str) -> Transport:
        with self._lock:
            found = self._transports.get(origin)
            if found is None:
                found = self._transports[origin] = self._open_transport(origin)
            return found


def _range(location: str, response: HttpResponse) -> tuple[int, int]:
    """Where the bytes of an answer begin, and how many the object has."""
    found = _RANGE.fullmatch(response.headers.get("content-range", ""))
    if found is None:
        raise StoreError(f"{location}: the store does not say which bytes it sent", location=location)
    return int(found[1] or 0), int(found[2])


def _read_only(location: str) -> NoReturn:
    raise StoreError("signed URLs are for reading blocks; nothing else can be done with them", location=location)


def _close(transports: dict[str, Transport]) -> None:
    for transport in transports.values():
        transport.close()
