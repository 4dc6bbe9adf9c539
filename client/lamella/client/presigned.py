"""Reading blocks by signed URLs: with the service's permission, without credentials for the store.

The service signs a URL for each block that may be read (``docs/data-access.md``). URLs are valid for some minutes; a
refused one is requested again, together with those needed next.
"""

from __future__ import annotations

import datetime as dt
import os
import random
import re
import threading
import time
import weakref
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final, NoReturn
from urllib.parse import urlsplit

import msgspec

from lamella.client.http.blocks import blocks_calls, join_answers
from lamella.client.http.call import TableName
from lamella.client.http.credential import token_of
from lamella.client.http.exchange import RetryPolicy, retry_after_s
from lamella.client.http.prune_request import Stages, merge_pages, prune_call
from lamella.client.http.sync.connection import Connection
from lamella.client.http.sync.runner import CallRunner
from lamella.client.http.transport import (
    HttpRequest,
    HttpResponse,
    PooledTransport,
    Transport,
    TransportFailure,
    parse_address,
)
from lamella.snapshot import wire
from lamella.snapshot.errors import (
    BlockReplaced,
    LamellaError,
    ObjectNotFound,
    PermissionDenied,
    StoreError,
    TableNotFound,
    Unauthenticated,
)
from lamella.snapshot.ids import unix_ms
from lamella.snapshot.manifest import FEATURES, DeleteFile
from lamella.snapshot.storage import ListedObject, ObjectStat
from lamella.snapshot.wire import BlocksAnswer

if TYPE_CHECKING:
    from lamella.client.scan.plan import Planner
    from lamella.snapshot.manifest import Snapshot


#: Looks up blocks of a snapshot (None: the current one) by location, with URLs.
UrlSource = Callable[[Sequence[str], str | None], BlocksAnswer]

#: Blocks per request for URLs: the one that is needed and those after it.
AT_ONCE: Final = 1_000
#: Maximum number of cached URLs, of about 500 bytes each.
_MAX_CACHED_URLS: Final = 10_000


class SignedBlock(msgspec.Struct, frozen=True, kw_only=True):
    """A URL and the file that it must return. ``content_id`` None: unknown. ``turn``: the number of the request that
    returned it. ``deletes``: with their data."""

    url: str
    size_bytes: int
    content_id: str | None
    turn: int
    deletes: tuple[DeleteFile, ...] = ()

    def __repr__(self) -> str:
        return f"SignedBlock(size_bytes={self.size_bytes}, content_id={self.content_id!r}, turn={self.turn})"


class BlockUrls:
    """A cache of signed URLs. Safe to share between threads: while one thread requests URLs, the others wait for them.

    Expiry times are not computed here, since clocks differ: a store's refusal shows that a URL has expired.
    """

    def __init__(self, ask: UrlSource) -> None:
        self._request = ask
        self._lock = threading.Lock()
        self._cached: OrderedDict[str, SignedBlock] = OrderedDict()
        self._snapshot_id: str | None = None
        self._order: Sequence[str] = ()
        self._positions: dict[str, int] = {}
        self._turn = 0
        self._vectors: dict[tuple[str, int], bytes] = {}

    def begin(self, snapshot_id: str, locations: Sequence[str]) -> None:
        """Set the blocks that will be read, approximately in order."""
        with self._lock:
            self._snapshot_id = snapshot_id
            self._order = locations
            self._positions = {location: position for position, location in enumerate(locations)}

    def learn(
        self,
        locations: Sequence[str],
        sizes_bytes: Sequence[int],
        urls: Sequence[str],
        deletes: Sequence[Sequence[DeleteFile] | None] = (),
    ) -> None:
        """Add URLs that are already known, and the blocks' deleted rows, if some have any."""
        with self._lock:
            self._turn += 1
            blocks = zip(locations, sizes_bytes, urls, deletes or [None] * len(urls), strict=True)
            for location, size_bytes, url, entries in blocks:
                self._add_to_cache(
                    location,
                    SignedBlock(
                        url=url,
                        size_bytes=size_bytes,
                        content_id=None,
                        turn=self._turn,
                        deletes=tuple(entries or ()),
                    ),
                )

    def vector(self, location: str, offset: int) -> bytes | None:
        """Return a deletion vector of a block whose URL is known; None: there is none at this place."""
        with self._lock:
            return self._vectors.get((location, offset))

    def of(self, location: str) -> SignedBlock:
        """Return a block's URL.

        Raises:
            ObjectNotFound: the location is not a block of the snapshot.
            LamellaError: the service's error.
        """
        with self._lock:
            return self._cached.get(location) or self._request_urls(location, older_than=0)

    def renewed(self, location: str, refused: SignedBlock) -> SignedBlock:
        """Return another URL than the refused one; raises as :meth:`of`."""
        with self._lock:
            cached = self._cached.get(location)
            if cached is not None and cached.turn > refused.turn:
                return cached  # another thread has renewed it already
            return self._request_urls(location, older_than=refused.turn + 1)

    def _request_urls(self, location: str, *, older_than: int) -> SignedBlock:
        """Request URLs for this block and for later blocks without one, or with one of an earlier request."""
        position = self._positions.get(location)
        following = (location,) if position is None else self._order[position : position + AT_ONCE]
        wanted = [each for each in following if (cached := self._cached.get(each)) is None or cached.turn < older_than]
        answer = self._request(wanted, self._snapshot_id)
        self._turn += 1
        for block in answer.blocks:
            if block.url is None:
                raise LamellaError("the service signed no URLs: it is an older release than this client")
            self._add_to_cache(
                block.location,
                SignedBlock(
                    url=block.url,
                    size_bytes=block.file_size,
                    content_id=block.content_id,
                    turn=self._turn,
                    deletes=block.deletes,
                ),
            )
        found = self._cached.get(location)
        if found is None:
            raise ObjectNotFound(f"{location} is no block of the snapshot", location=location)
        return found

    def _add_to_cache(self, location: str, block: SignedBlock) -> None:
        self._cached[location] = block
        self._cached.move_to_end(location)
        for entry in block.deletes:
            if entry.data is not None:
                self._vectors[entry.location, entry.offset] = entry.data
        while len(self._cached) > _MAX_CACHED_URLS:
            _, gone = self._cached.popitem(last=False)
            for entry in gone.deletes:
                self._vectors.pop((entry.location, entry.offset), None)


def url_source(lake: CallRunner, name: TableName) -> UrlSource:
    """Return a function that requests URLs from a table of a service."""

    def ask(locations: Sequence[str], snapshot_id: str | None) -> BlocksAnswer:
        found = blocks_calls(name, locations, snapshot_id, sign_urls=True, reader_features=FEATURES)
        return join_answers([lake.run(call) for call in found])

    return ask


_RANGE: Final = re.compile(r"bytes (?:(\d+)-\d+|\*)/(\d+)")
#: Status codes with which stores answer an expired URL, or one signed with expired credentials.
_REFUSED_STATUSES: Final = frozenset({400, 401, 403})
#: Status codes to retry.
_RETRYABLE: Final = frozenset({429, 500, 502, 503, 504})
_IDLE: Final = 32


class UrlStore:
    """A read-only :class:`~lamella.snapshot.storage.Store`; threads may share it.

    Ignores the environment: no credentials, no proxy. Errors never contain a URL.
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
        """Return all bytes of a block."""
        return self._get(location, None).body

    def read_range(self, location: str, start: int, length: int) -> bytes:
        """Return some bytes of a block, or a deletion vector of a block that was opened before."""
        if length <= 0:
            return b""
        vector = self._urls.vector(location, start)
        if vector is not None and len(vector) == length:
            return vector
        response = self._get(location, (start, length))
        if response.status == 200:  # the server ignores range requests
            return response.body[start : start + length]
        if response.status == 416:
            return b""
        first, _ = _range(location, response)
        if first != start or len(response.body) > length:
            raise StoreError(f"{location}: the store returned other bytes than requested", location=location)
        return response.body

    def stat(self, location: str) -> ObjectStat:
        """Return the size and etag, from a request for the first byte.

        Raises:
            BlockReplaced: the file is not the one that the service registered.
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
        """Raise StoreError: the store is read-only."""
        _read_only(location)

    def expand(self, url: str, *, plain: bool = False) -> list[str]:  # noqa: ARG002  # as above
        """Raise StoreError: nothing can be listed."""
        _read_only(url)

    def list(self, prefix: str, *, start_after: str | None = None) -> Iterator[ListedObject]:  # noqa: ARG002  # as above
        """Raise StoreError: nothing can be listed."""
        _read_only(prefix)

    def delete(self, location: str) -> None:
        """Raise StoreError: the store is read-only."""
        _read_only(location)

    def delete_many(self, locations: Iterable[str]) -> dict[str, str]:
        """Raise StoreError: the store is read-only."""
        _read_only(next(iter(locations), ""))

    def _get(self, location: str, span: tuple[int, int] | None) -> HttpResponse:
        """Return the response to a GET; renews an expired URL and retries a busy store."""
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
                if outcome.status in _REFUSED_STATUSES and not is_new:
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
        if outcome.status not in _RETRYABLE:
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
    """Return where the bytes of a response begin, and the size of the object."""
    found = _RANGE.fullmatch(response.headers.get("content-range", ""))
    if found is None:
        raise StoreError(f"{location}: the store does not say which bytes it sent", location=location)
    return int(found[1] or 0), int(found[2])


def _read_only(location: str) -> NoReturn:
    raise StoreError("signed URLs can only read blocks", location=location)


def _close(transports: dict[str, Transport]) -> None:
    for transport in transports.values():
        transport.close()


# Signed URLs for other processes without credentials for the store: workers of Spark, Dask, Ray.
#
# The planning process has the blocks signed, so a worker needs nothing but its part. URLs expire; a worker whose URL
# expired requests new ones from the service, with the token of ``LAMELLA_TOKEN`` or ``LAMELLA_TOKEN_FILE`` in its own
# environment if that environment names the same service. Keys of the planning process never leave it.


class SignedBlocks(msgspec.Struct, frozen=True, kw_only=True):
    """URLs and metadata of some blocks, and the service that renews them."""

    service_url: str
    table: str
    snapshot_id: str
    urls: tuple[str, ...]
    sizes: tuple[int, ...]
    deletes: tuple[tuple[DeleteFile, ...], ...] = ()

    def __repr__(self) -> str:
        return f"SignedBlocks({len(self.urls)} urls, table={self.table!r})"

    def part(self, start: int, count: int) -> SignedBlocks:
        """Return a part of the blocks."""
        end = start + count
        return msgspec.structs.replace(
            self, urls=self.urls[start:end], sizes=self.sizes[start:end], deletes=self.deletes[start:end]
        )

    def store(self, locations: Sequence[str]) -> UrlStore:
        """Return the store that a worker reads these blocks with."""
        urls = BlockUrls(self._request)
        urls.begin(self.snapshot_id, locations)
        urls.learn(locations, self.sizes, self.urls, self.deletes)
        return UrlStore(urls)

    def _request(self, locations: Sequence[str], snapshot_id: str | None) -> BlocksAnswer:
        own = os.environ.get("LAMELLA_URL")
        is_own = own is not None and str(parse_address(own)) == self.service_url
        token, token_file = token_of(os.environ) if is_own else (None, None)
        try:
            with Connection(self.service_url, token=token, token_file=token_file) as service:
                return url_source(service, TableName.parse(self.table))(locations, snapshot_id)
        except (Unauthenticated, PermissionDenied, TableNotFound) as error:
            raise LamellaError(
                f"signed URLs have expired, and this worker may not ask {self.service_url} for others"
                f" ({error.message}): plan again, make URLs valid for longer (signed_url_s of the service), or set"
                " LAMELLA_URL and LAMELLA_TOKEN_FILE in the environment of the workers"
            ) from error


#: Blocks per page: later pages need no URLs yet.
_REST: Final = 1_000_000


class SignedPlanner:
    """Plans through the table, and tells ``urls`` which blocks will be read.

    The URLs of the first blocks come with the plan; the others are requested when they are needed, so that they have
    not expired by then.
    """

    def __init__(self, table: Planner, lake: CallRunner, name: TableName, urls: BlockUrls) -> None:
        self._table = table
        self._lake = lake
        self._name = name
        self._urls = urls

    def prune(
        self,
        filter: Any = None,
        *,
        snapshot_id: str | None,
        timestamp: int | str | dt.datetime | None,
        time_zone: str,
        case_sensitive: bool,
        level: wire.Level,
        limit: int | None,
        order_by: Sequence[wire.OrderBy],
        reader_features: Sequence[str],
    ) -> wire.PruneAnswer:
        """Return the blocks that may contain matching rows."""
        behind = Stages(
            limit=limit,
            order_by=tuple(order_by),
            page_size=AT_ONCE,
            sign_urls=True,
            reader_features=tuple(reader_features),
        )
        call = prune_call(
            self._name,
            filter,
            None,
            snapshot_id,
            timestamp,
            time_zone,
            case_sensitive,
            level,
            "columns",
            False,
            (),
            behind,
        )
        request = msgspec.json.decode(call.body, type=wire.PruneRequest)
        request = msgspec.structs.replace(request, page_size=_REST, sign_urls=False)
        pages = [self._lake.run(call)]
        while (token := pages[-1].next_page_token) is not None:
            body = msgspec.json.encode(msgspec.structs.replace(request, page_token=token))
            pages.append(self._lake.run(msgspec.structs.replace(call, body=body)))
        first = pages[0].block_columns
        if first is not None and first.url is not None:
            self._urls.learn(first.location, first.file_size, first.url, first.deletes or ())
            bare = msgspec.structs.replace(first, url=None)
            pages[0] = msgspec.structs.replace(pages[0], block_columns=bare, url_expires_ms=None)
        answer = merge_pages(pages)
        self._urls.begin(answer.snapshot_id, answer.locations)
        return answer

    def aggregate(
        self,
        aggregates: Sequence[str],
        filter: Any = None,
        *,
        group_by: Sequence[str] = (),
        snapshot_id: str | None,
        timestamp: int | str | dt.datetime | None,
        time_zone: str,
        case_sensitive: bool,
        reader_features: Sequence[str],
        max_scan_blocks: int | None = None,
    ) -> wire.AggregateAnswer:
        """See the table."""
        return self._table.aggregate(
            aggregates,
            filter,
            group_by=group_by,
            snapshot_id=snapshot_id,
            timestamp=timestamp,
            time_zone=time_zone,
            case_sensitive=case_sensitive,
            reader_features=reader_features,
            max_scan_blocks=max_scan_blocks,
        )

    def info(self) -> wire.TableInfo:
        """See the table."""
        return self._table.info()

    def snapshot(self, snapshot_id: str) -> Snapshot:
        """See the table."""
        return self._table.snapshot(snapshot_id)
