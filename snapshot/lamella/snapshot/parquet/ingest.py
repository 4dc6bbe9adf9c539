"""Reads many files at once: their footers in several threads, decoded together if they have the same shape."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future
from itertools import islice, takewhile
from typing import Final

import numpy as np

from lamella.snapshot.concurrency import ContextThreadPool
from lamella.snapshot.errors import LamellaError
from lamella.snapshot.manifest import Block
from lamella.snapshot.manifest.block_arrays import BlockSequence, LooseBlocks, Part
from lamella.snapshot.parquet.block import block_of
from lamella.snapshot.parquet.file_values import verified
from lamella.snapshot.parquet.footer import LOCAL_TAIL_BYTES, decode_footer, read_end_of, read_footer, read_footer_bytes
from lamella.snapshot.parquet.footer_batch import FooterDecoder
from lamella.snapshot.schema import Schema
from lamella.snapshot.storage.store import CachedEndStore, EndReadingStore, ObjectStat, Store
from lamella.snapshot.wire import RefusedFile

#: Called once per file, in the order of the files, in the caller's thread.
OnDone = Callable[[Block | RefusedFile], None]

#: Maximum number of files whose footers are decoded together, and that are read ahead; and the approximate bytes of
#: either.
_TOGETHER: Final = 2048
_AHEAD: Final = 512
_MAX_READ_AHEAD_BYTES: Final = 32 << 20
#: Local files that threads read after one that was not in the system's memory.
_SLOW: Final = 512
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
    """Returns the blocks of files in a table of ``schema``, and the refused files, as :func:`ingest_arrays`.

    An exception of ``on_done`` ends the whole.
    """
    blocks: list[Block] = []
    refused: list[RefusedFile] = []
    for some, few in _outcomes(store, locations, schema, workers, verify=verify):
        made = iter(some)
        outcomes = [next(made) if each is None else each for each in few]
        blocks += (each for each in outcomes if isinstance(each, Block))
        refused += (each for each in outcomes if isinstance(each, RefusedFile))
        if on_done is not None:
            for outcome in outcomes:
                on_done(outcome)
    return blocks, refused


def ingest_arrays(
    store: Store, locations: Iterable[str], schema: Schema, *, workers: int = 16, verify: bool = False
) -> tuple[BlockSequence, list[RefusedFile]]:
    """Returns the blocks of files in a table of ``schema``, and the refused files; each in the given order.

    A file is refused for any error in it or in reading it. ``verify``: the statistics come from the values, all of
    which are read (see :mod:`lamella.snapshot.parquet.file_values`), and not from the footers.

    Unless ``verify`` is set, the blocks of a store that reads ends (:class:`~lamella.snapshot.storage.EndReadingStore`)
    have the content ids of the versions whose footers were read. Elsewhere a file that is replaced meanwhile has an
    outdated content id, which a later check detects.
    """
    sequences: list[BlockSequence] = []
    refused: list[RefusedFile] = []
    for some, few in _outcomes(store, locations, schema, workers, verify=verify):
        sequences.append(some)
        refused += (each for each in few if each is not None)
    return BlockSequence.joined(sequences), refused


#: Blocks of some files, and for each file, in order, None if it has the next one of these blocks.
_Outcome = tuple[BlockSequence, list[RefusedFile | None]]


def _outcomes(
    store: Store, locations: Iterable[str], schema: Schema, workers: int, *, verify: bool
) -> Iterator[_Outcome]:
    with ContextThreadPool(max_workers=workers, thread_name_prefix="footer") as pool:
        waiting = iter(locations)
        yield from (
            _verified(pool, store, waiting, schema) if verify else _by_footer(pool, store, waiting, schema, workers)
        )


def _verified(pool: ContextThreadPool, store: Store, locations: Iterable[str], schema: Schema) -> Iterator[_Outcome]:
    def one(location: str) -> Block | RefusedFile:
        try:
            footer = read_footer(store, location)
            return verified(store, footer, schema, block_of(footer, schema))
        except LamellaError as error:
            return _refusal(location, error)

    outcomes = pool.map(one, locations)
    while some := list(islice(outcomes, _TOGETHER)):
        blocks = BlockSequence.of([each for each in some if isinstance(each, Block)])
        yield blocks, [None if isinstance(each, Block) else each for each in some]


def _by_footer(
    pool: ContextThreadPool, store: Store, locations: Iterator[str], schema: Schema, workers: int
) -> Iterator[_Outcome]:
    decoder = FooterDecoder(schema)
    batch: list[tuple[str, _Read | RefusedFile]] = []
    read_ahead_bytes = 0
    for location, read in _read(pool, store, locations, workers):
        batch.append((location, read))
        read_ahead_bytes += 0 if isinstance(read, RefusedFile) else len(read[1])
        if len(batch) == _TOGETHER or read_ahead_bytes >= _MAX_READ_AHEAD_BYTES:
            yield _together(batch, decoder, schema)
            batch, read_ahead_bytes = [], 0
    if batch:
        yield _together(batch, decoder, schema)


def _together(batch: Sequence[tuple[str, _Read | RefusedFile]], decoder: FooterDecoder, schema: Schema) -> _Outcome:
    outcomes = [read if isinstance(read, RefusedFile) else None for _, read in batch]
    good = np.array([index for index, each in enumerate(outcomes) if each is None], dtype=np.int64)
    reads = [read for _, read in batch if not isinstance(read, RefusedFile)]
    part_numbers, rows = np.full(len(batch), -1, dtype=np.int64), np.zeros(len(batch), dtype=np.int64)
    parts: list[Part] = []
    for numbers, arrays in decoder.decode([stat for stat, _ in reads], [footer for _, footer in reads]):
        here = good[numbers]
        part_numbers[here], rows[here] = len(parts), np.arange(len(here))
        parts.append(arrays)
    loose: list[Block] = []
    for index in good[part_numbers[good] < 0].tolist():
        location, read = batch[index]
        outcome = read if isinstance(read, RefusedFile) else _alone(location, read, schema)
        if isinstance(outcome, Block):
            part_numbers[index], rows[index] = len(parts), len(loose)
            loose.append(outcome)
        else:
            outcomes[index] = outcome
    parts.append(LooseBlocks(loose))
    taken = part_numbers >= 0
    return BlockSequence(parts, part_numbers[taken], rows[taken]), outcomes


def _read(
    pool: ContextThreadPool, store: Store, locations: Iterator[str], workers: int
) -> Iterator[tuple[str, _Read | RefusedFile]]:
    """Yields the stats and footers of files, in order; the read-ahead is bounded, in files and in bytes."""
    ends = store if isinstance(store, EndReadingStore) else None
    in_memory = store if isinstance(store, CachedEndStore) else None

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

    def cached(some: Sequence[str]) -> list[_Read | RefusedFile]:
        """Returns what is in the system's memory, of the first of these files."""
        if in_memory is None or not _is_local(some[0]):
            return []
        ends = in_memory.read_cached_ends(some, LOCAL_TAIL_BYTES)
        return [end_of(location, *ends[location]) for location in takewhile(ends.__contains__, some)]

    def end_of(location: str, stat: ObjectStat, tail: bytes) -> _Read | RefusedFile:
        try:
            return stat, read_footer_bytes(store, stat, tail)
        except LamellaError as error:
            return _refusal(location, error)

    under_way: deque[tuple[list[str], Future[list[_Read | RefusedFile]]]] = deque()
    ahead = largest = 0
    # Files that are still read by threads before the memory is asked again.
    slow = 0
    while True:
        # Until sizes are known, no more files than there are threads.
        allowed = min(_AHEAD, max(workers, _MAX_READ_AHEAD_BYTES // largest)) if largest else workers
        while ahead < allowed and (slow or not under_way) and (run := _run(locations)):
            if not slow:
                found = cached(run)
                yield from zip(run, found, strict=False)
                run = run[len(found) :]
                if not run:
                    continue
                slow = _SLOW
            under_way.append((run, pool.submit(several, run)))
            ahead += len(run)
            slow = max(0, slow - len(run)) if in_memory is not None and _is_local(run[0]) else _SLOW
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
    return [first, *islice(locations, _LOCAL_RUN - 1)] if _is_local(first) else [first]


def _is_local(location: str) -> bool:
    return location.startswith(("file:", "/"))


def _alone(location: str, read: _Read, schema: Schema) -> Block | RefusedFile:
    try:
        return block_of(decode_footer(*read), schema)
    except LamellaError as error:
        return _refusal(location, error)


def _refusal(location: str, error: LamellaError) -> RefusedFile:
    return RefusedFile(path=location, code=error.code, reason=error.message)
