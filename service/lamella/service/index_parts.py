"""Parts of skip indexes: built from files here, taken over from elsewhere, regrouped.

Work and commit are two things: parts are put first, and then a snapshot takes them up. A process that dies in between
leaves objects that nothing refers to, and the index as it was; each request is whole by itself and can be sent again.
"""

from __future__ import annotations

import base64
import binascii
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final

import msgspec
import numpy as np

from lamella.service.catalog import Catalog, CommitGuard, TableRecord
from lamella.service.committer import Committer
from lamella.service.idempotency import Claim, Sealed
from lamella.service.pending import Pending
from lamella.service.settings import Settings
from lamella.service.state import History, trusted_manifests
from lamella.snapshot.errors import InvalidPageToken, InvalidRequest, LamellaError, ManifestError
from lamella.snapshot.index.definition import term_in
from lamella.snapshot.index.directory import Directory
from lamella.snapshot.index.part import Part, PartRef
from lamella.snapshot.index.widening import can_serve
from lamella.snapshot.layout import Store
from lamella.snapshot.layout.location import normal
from lamella.snapshot.manifest import Snapshot, SnapshotPointer, TableIndex
from lamella.snapshot.manifest.block_key import BlockKeys, no_keys
from lamella.snapshot.schema import parse_type
from lamella.snapshot.vacuum import object_name
from lamella.snapshot.warehouse import CommitResult, Warehouse
from lamella.snapshot.warehouse.index_refresh import Place
from lamella.snapshot.warehouse.indexing import index_named, index_with_id
from lamella.snapshot.wire import (
    LeftOutBlock,
    OptimiseAnswer,
    OptimiseRequest,
    PartsAnswer,
    PartSent,
    PartsRequest,
    RefreshAnswer,
    RefreshMode,
    RefreshRequest,
)

#: How long a request works when it does not say, and at most, in milliseconds; the block at hand is finished.
DEFAULT_MS: Final = 5_000.0
MOST_MS: Final = 60_000.0
#: Parts that one request can bring.
MOST_PARTS: Final = 1_000
_KEY_BYTES: Final = 16

#: Commits what was built.
Commit = Callable[[Claim], Sealed | Pending]


class _Token(msgspec.Struct, frozen=True, array_like=True):
    """Where a refresh goes on: through which snapshot, of which index, how, and at which place."""

    snapshot_id: str
    index_id: str
    mode: RefreshMode
    place: Place


_TOKEN: Final = msgspec.json.Decoder(_Token)


class IndexParts:
    """Fills indexes. Every method does the work and returns what commits it; ``timer`` gives seconds."""

    def __init__(
        self,
        *,
        catalog: Catalog,
        warehouse: Warehouse,
        store: Store,
        history: History,
        committer: Committer,
        clock: Callable[[], int],
        settings: Settings,
        timer: Callable[[], float] = time.monotonic,
    ) -> None:
        self._catalog = catalog
        self._warehouse = warehouse
        self._store = store
        self._history = history
        self._committer = committer
        self._clock = clock
        self._threads = settings.index_threads
        self._look_threads = settings.ingest_threads
        self._most_blocks = settings.index_refresh_blocks
        self._timer = timer

    def refresh(self, record: TableRecord, name: str, request: RefreshRequest) -> Commit:
        """Build a part of a refresh.

        Raises:
            IndexNotFound: no such index, or it was dropped.
            InvalidRequest: bounds that cannot be, or the index cannot be used with the table's columns any more.
            InvalidPageToken: the token is none, or of another refresh.
            SnapshotExpired: the refresh took so long that the snapshot which it goes through is gone.
            StoreError: storage failed; nothing was committed.
        """
        until = self._until(request.max_ms)
        guard = self._guard(record)
        with trusted_manifests():
            index = index_named(self._warehouse.head(record.pointer).skip_indexes, name)
            token = self._token(record, index, request)
            pinned = self._history.pointer(record, snapshot_id=token.snapshot_id)
            built = self._warehouse.index_refresh.run(
                pinned,
                index,
                request.mode,
                token.place,
                max_blocks=self._blocks(request.max_blocks),
                workers=self._threads,
                until=until,
            )
            is_last = built.following is None
            is_whole = is_last and request.mode != "incremental"
            forget = built.left_out_keys if request.mode == "full" else no_keys()
            if is_whole:
                forget = np.concatenate([forget, self._warehouse.index_blocks.gone(record.pointer, index)])
            coverage = None
            if is_last:
                more = Directory.of(built.parts)
                (coverage,) = self._warehouse.index_blocks.coverage(record.pointer, [index], more=more, forget=forget)
        changes = bool(built.parts or len(forget) or (is_whole and coverage is not None and coverage.unused_entries))
        if is_whole and coverage is not None:
            coverage = msgspec.structs.replace(coverage, unused_entries=0)

        def answer(snapshot_id: str) -> RefreshAnswer:
            return RefreshAnswer(
                snapshot_id=snapshot_id,
                mode=request.mode,
                indexed=sum(ref.block_count for ref, _ in built.parts),
                row_count=built.row_count,
                parts=len(built.parts),
                size_bytes=sum(ref.size_bytes for ref, _ in built.parts),
                left_out=tuple(LeftOutBlock(location=each.location, reason=each.reason) for each in built.left_out),
                remaining=built.remaining,
                coverage=coverage,
                next_page_token=None
                if built.following is None
                else _written(msgspec.structs.replace(token, place=built.following)),
            )

        def step(base: SnapshotPointer) -> CommitResult:
            return self._warehouse.indexing.add_parts(
                base, index.index_id, built.parts, forget=forget, compact=is_whole, now_ms=self._clock()
            )

        return self._commit(record, guard, step if changes else None, answer)

    def take_up(self, record: TableRecord, name: str, request: PartsRequest) -> Commit:
        """Check parts that were built elsewhere: each is there, is whole, and is one of this index.

        Raises:
            IndexNotFound: no such index, or it was dropped, or it is another one by now.
            InvalidRequest: a part that is not where the table's parts are, or is not of this index.
            ObjectNotFound: a part is not there.
            StoreError: storage failed.
        """
        if not 1 <= len(request.parts) <= MOST_PARTS:
            raise InvalidRequest(f"parts are 1 to {MOST_PARTS} in one request, not {len(request.parts)}")
        locations = [normal(part.location) for part in request.parts]
        if len(set(locations)) < len(locations):
            raise InvalidRequest("a part is there twice")
        guard = self._guard(record, locations)
        with trusted_manifests():
            head = self._warehouse.head(record.pointer)
        index_named(head.skip_indexes, name)
        index = index_with_id(head.skip_indexes, request.index_id)
        if index.name.lower() != name.lower():
            raise InvalidRequest(f"the index with the id {request.index_id} is {index.name!r}, not {name!r}")
        with ThreadPoolExecutor(max_workers=self._look_threads, thread_name_prefix="index-parts") as pool:
            parts = list(pool.map(lambda part: self._checked(record, head, index, part), request.parts))

        def answer(snapshot_id: str) -> PartsAnswer:
            return PartsAnswer(
                snapshot_id=snapshot_id, parts=len(parts), blocks=sum(ref.block_count for ref, _ in parts)
            )

        def step(base: SnapshotPointer) -> CommitResult:
            return self._warehouse.indexing.add_parts(base, index.index_id, parts, now_ms=self._clock())

        return self._commit(record, guard, step, answer)

    def optimise(self, record: TableRecord, name: str, request: OptimiseRequest) -> Commit:
        """Regroup some parts.

        Raises:
            IndexNotFound: no such index, or it was dropped.
            InvalidRequest: bounds that cannot be, or the index's kind is not installed.
            StoreError: storage failed; nothing was committed.
        """
        until = self._until(request.max_ms)
        guard = self._guard(record)
        with trusted_manifests():
            index = index_named(self._warehouse.head(record.pointer).skip_indexes, name)
            made = self._warehouse.index_regrouping.run(record.pointer, index, until=until)
            is_last = not made.remaining
            forget = made.lost
            if is_last:
                forget = np.concatenate([forget, self._warehouse.index_blocks.gone(record.pointer, index)])
        changes = bool(made.parts or len(forget) or (is_last and len(index.directories) > 1))

        def answer(snapshot_id: str) -> OptimiseAnswer:
            return OptimiseAnswer(
                snapshot_id=snapshot_id,
                regrouped=len(made.parts),
                moved_from=len(made.moved_from),
                lost=len(made.lost),
                remaining=made.remaining,
            )

        def step(base: SnapshotPointer) -> CommitResult:
            return self._warehouse.indexing.add_parts(
                base,
                index.index_id,
                made.parts,
                moved_from=made.moved_from,
                forget=forget,
                compact=is_last,
                now_ms=self._clock(),
            )

        return self._commit(record, guard, step if changes else None, answer)

    def _commit(
        self,
        record: TableRecord,
        guard: CommitGuard,
        step: Callable[[SnapshotPointer], CommitResult] | None,
        answer: Callable[[str], msgspec.Struct],
    ) -> Commit:
        """What commits a step; None: there is nothing to be changed."""

        def commit(claim: Claim) -> Sealed | Pending:
            if step is None:
                return claim.seal(200, answer(record.pointer.snapshot_id))
            return self._committer.alone(
                record, step, lambda result: answer(result.pointer.snapshot_id), claim, guard=guard
            )

        return commit

    def _guard(self, record: TableRecord, locations: list[str] | None = None) -> CommitGuard:
        return self._catalog.guard(record.table_id, locations or (), since_ms=self._clock())

    def _token(self, record: TableRecord, index: TableIndex, request: RefreshRequest) -> _Token:
        if request.page_token is None:
            return _Token(record.pointer.snapshot_id, index.index_id, request.mode, Place())
        token = _read(request.page_token)
        if (token.index_id, token.mode) != (index.index_id, request.mode):
            raise InvalidPageToken("page_token belongs to another refresh", parameter="page_token")
        return token

    def _checked(
        self, record: TableRecord, head: Snapshot, index: TableIndex, sent: PartSent
    ) -> tuple[PartRef, BlockKeys]:
        location = normal(sent.location)

        def wrong(reason: str) -> InvalidRequest:
            return InvalidRequest(f"{location} cannot be taken up: {reason}", location=location)

        found = object_name(self._warehouse.table_location(record.table_id), location)
        if found is None or found.kind != "index" or not location.endswith(".part"):
            raise wrong("it is not a part in the table's own folder")
        if not sent.keys or len(sent.keys) % _KEY_BYTES:
            raise wrong(f"it comes with {len(sent.keys)} bytes of keys, {_KEY_BYTES} for each block")
        keys = np.frombuffer(sent.keys, dtype="<u8").reshape(-1, 2).astype(np.uint64)
        size_bytes = self._store.stat(location).size_bytes
        if size_bytes != sent.size_bytes or not 0 < sent.tail_bytes <= size_bytes:
            raise wrong(f"it has {size_bytes} bytes, not {sent.size_bytes} with a tail of {sent.tail_bytes}")
        ref = PartRef(
            location=location,
            size_bytes=size_bytes,
            tail_bytes=sent.tail_bytes,
            tail_sha256=sent.tail_sha256,
            block_count=len(keys),
        )
        try:
            header = Part(ref, lambda ranges: [self._store.read_range(location, *each) for each in ranges]).header
        except ManifestError as error:
            raise wrong(error.message) from error
        if header.block_count != len(keys):
            raise wrong(f"it knows {header.block_count} blocks, and comes with keys of {len(keys)}")
        if header.kind != index.kind or header.options != index.options:
            raise wrong("it was built by another definition")
        term = term_in(index, head)
        try:
            fits = term is not None and can_serve(parse_type(header.dtype), term.dtype)
        except LamellaError:
            fits = False
        if not fits:
            raise wrong(f"it was built over {header.dtype}")
        return ref, keys

    def _blocks(self, asked: int | None) -> int:
        if asked is None:
            return self._most_blocks
        if not 1 <= asked <= self._most_blocks:
            raise InvalidRequest(
                f"max_blocks is a number from 1 to {self._most_blocks}, not {asked}", parameter="max_blocks"
            )
        return asked

    def _until(self, max_ms: float | None) -> Callable[[], bool]:
        if max_ms is not None and not 0 < max_ms <= MOST_MS:
            raise InvalidRequest(f"max_ms is above 0 and up to {MOST_MS:.0f}, not {max_ms}", parameter="max_ms")
        deadline_s = self._timer() + (DEFAULT_MS if max_ms is None else max_ms) / 1_000
        return lambda: self._timer() >= deadline_s


def _written(token: _Token) -> str:
    return base64.urlsafe_b64encode(msgspec.json.encode(token)).decode().rstrip("=")


def _read(text: str) -> _Token:
    # Not signed: whoever makes one up only leaves out blocks of their own refresh.
    try:
        token = _TOKEN.decode(base64.urlsafe_b64decode(text.encode() + b"=" * (-len(text) % 4)))
    except (binascii.Error, ValueError) as error:
        raise InvalidPageToken("page_token is not one of a refresh", parameter="page_token") from error
    if min(token.place.group, token.place.row, token.place.remaining or 0) < 0:
        raise InvalidPageToken("page_token is not one of a refresh", parameter="page_token")
    return token
