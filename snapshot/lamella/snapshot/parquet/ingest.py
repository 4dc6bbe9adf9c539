"""Reads many files at once: their footers in several threads, decoded together if they have the same shape."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future
from itertools import islice
from typing import Final

from lamella.snapshot.concurrency import ContextThreadPool
from lamella.snapshot.errors import LamellaError
from lamella.snapshot.manifest import Block
from lamella.snapshot.parquet.block import block_of
from lamella.snapshot.parquet.file_values import verified
from lamella.snapshot.parquet.footer import decode_footer, read_end_of, read_footer, read_footer_bytes
from lamella.snapshot.parquet.footer_batch import decode_footer_batch
from lamella.snapshot.schema import Schema
from lamella.snapshot.storage.store import EndReadingStore, ObjectStat, Store
from lamella.snapshot.wire import RefusedFile

#: Called once per file, in the order of the files, in the caller's thread.
OnDone = Callable[[Block | RefusedFile], None]

#: Maximum number of files whose footers are decoded together, and that are read ahead; and the approximate bytes of
#: either.
_TOGETHER: Final = 2048
_AHEAD: Final = 512
_MAX_READ_AHEAD_BYTES: Final = 32 << 20
#: Local files that one thread reads in a row.
_LOCAL_RUN: Final = 16

_Read = tuple[ObjectStat, bytes]


def ingest(
    store: Store,
    locations: Iterable[str],
    schema: Schema,
    *,
    workers: int = 16,
    verify: bool = False,
    on_done: OnDone | None = None,
) -> tuple[list[Block], list[RefusedFile]]:
    """Returns the blocks of files in a table of ``schema``, and the refused files; each in the given order.

    A file is refused for any error in it or in reading it; an exception of ``on_done`` ends the whole. ``verify``: the
    statistics come from the values, all of which are read (see :mod:`lamella.snapshot.parquet.file_values`), and not
    from the footers.

    Unless ``verify`` is set, the blocks of a store that reads ends (:class:`~lamella.snapshot.storage.EndReadingStore`)
    have the content ids of the versions whose footers were read. Elsewhere a file that is replaced meanwhile has an
    outdated content id, which a later check detects.
    """
    blocks: list[Block] = []
    refused: list[RefusedFile] = []
    with ContextThreadPool(max_workers=workers, thread_name_prefix="footer") as pool:
        waiting = iter(locations)
        outcomes = (
            _verified(pool, store, waiting, schema) if verify else _by_footer(pool, store, waiting, schema, workers)
        )
        for outcome in outcomes:
            if isinstance(outcome, Block):
                blocks.append(outcome)
            else:
                refused.append(outcome)
            if on_done is not None:
                on_done(outcome)
    return blocks, refused


def _verified(
    pool: ContextThreadPool, store: Store, locations: Iterable[str], schema: Schema
) -> Iterator[Block | RefusedFile]:
    def one(location: str) -> Block | RefusedFile:
        try:
            footer = read_footer(store, location)
            return verified(store, footer, schema, block_of(footer, schema))
        except LamellaError as error:
            return _refusal(location, error)

    return pool.map(one, locations)


def _by_footer(
    pool: ContextThreadPool, store: Store, locations: Iterator[str], schema: Schema, workers: int
) -> Iterator[Block | RefusedFile]:
    batch: list[tuple[str, _Read | RefusedFile]] = []
    read_ahead_bytes = 0
    for location, read in _read(pool, store, locations, workers):
        batch.append((location, read))
        read_ahead_bytes += 0 if isinstance(read, RefusedFile) else len(read[1])
        if len(batch) == _TOGETHER or read_ahead_bytes >= _MAX_READ_AHEAD_BYTES:
            yield from _together(batch, schema)
            batch, read_ahead_bytes = [], 0
    yield from _together(batch, schema)


def _together(batch: Sequence[tuple[str, _Read | RefusedFile]], schema: Schema) -> Iterator[Block | RefusedFile]:
    good = [read for _, read in batch if not isinstance(read, RefusedFile)]
    same_shape = iter(decode_footer_batch([stat for stat, _ in good], [footer for _, footer in good], schema))
    for location, read in batch:
        yield read if isinstance(read, RefusedFile) else next(same_shape) or _alone(location, read, schema)


def _read(
    pool: ContextThreadPool, store: Store, locations: Iterator[str], workers: int
) -> Iterator[tuple[str, _Read | RefusedFile]]:
    """Yields the stats and footers of files, in order; the read-ahead is bounded, in files and in bytes."""
    ends = store if isinstance(store, EndReadingStore) else None

    def one(location: str) -> _Read | RefusedFile:
        try:
            if ends is not None and ends.reads_ends(location):
                return read_end_of(ends, location)
            stat = store.stat(location)
            return stat, read_footer_bytes(store, stat)
        except LamellaError as error:
            return _refusal(location, error)

    def several(some: Sequence[str]) -> list[_Read | RefusedFile]:
        return [one(location) for location in some]

    under_way: deque[tuple[list[str], Future[list[_Read | RefusedFile]]]] = deque()
    ahead = largest = 0
    while True:
        # Until sizes are known, no more files than there are threads.
        allowed = min(_AHEAD, max(workers, _MAX_READ_AHEAD_BYTES // largest)) if largest else workers
        while ahead < allowed and (run := _run(locations)):
            under_way.append((run, pool.submit(several, run)))
            ahead += len(run)
        if not under_way:
            return
        run, answer = under_way.popleft()
        for location, read in zip(run, answer.result(), strict=True):
            if not isinstance(read, RefusedFile):
                largest = max(largest, len(read[1]))
            yield location, read
        ahead -= len(run)


def _run(locations: Iterator[str]) -> list[str]:
    """Returns the files that one thread reads in a row: several local ones, which are fast."""
    first = next(locations, None)
    if first is None:
        return []
    return [first, *islice(locations, _LOCAL_RUN - 1)] if first.startswith(("file:", "/")) else [first]


def _alone(location: str, read: _Read, schema: Schema) -> Block | RefusedFile:
    try:
        return block_of(decode_footer(*read), schema)
    except LamellaError as error:
        return _refusal(location, error)


def _refusal(location: str, error: LamellaError) -> RefusedFile:
    return RefusedFile(path=location, code=error.code, reason=error.message)
