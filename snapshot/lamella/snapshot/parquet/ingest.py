"""Many files at once: their footers read by several threads, and decoded together where they are alike."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from typing import Final

from lamella.snapshot.errors import LamellaError
from lamella.snapshot.layout.store import ObjectStat, Store
from lamella.snapshot.manifest import Block
from lamella.snapshot.parquet.alike import alike_blocks
from lamella.snapshot.parquet.block import block_of
from lamella.snapshot.parquet.footer import decode_footer, read_footer, read_footer_bytes
from lamella.snapshot.parquet.verify import verified
from lamella.snapshot.schema import Schema
from lamella.snapshot.wire import RefusedFile

#: Called once a file, in the order of the files, in the caller's thread.
OnDone = Callable[[Block | RefusedFile], None]

#: Files whose footers are held and decoded together.
_TOGETHER: Final = 2048
#: Local files that one thread reads before it takes the next; they answer faster than threads hand over.
_LOCAL_RUN: Final = 64

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
    """The blocks that files are in a table of ``schema``, and the files that cannot be one; each in the given order.

    A file is refused for whatever is wrong with it or with reaching it; an exception of ``on_done`` ends the whole.
    ``verify``: the statistics come from the values, all of which are read (see
    :mod:`lamella.snapshot.parquet.verify`), and not from the footers.
    """
    blocks: list[Block] = []
    refused: list[RefusedFile] = []
    with ThreadPoolExecutor(max_workers=workers, thread_name_prefix="footer") as pool:
        waiting = iter(locations)
        outcomes = _verified(pool, store, waiting, schema) if verify else _by_footer(pool, store, waiting, schema)
        for outcome in outcomes:
            if isinstance(outcome, Block):
                blocks.append(outcome)
            else:
                refused.append(outcome)
            if on_done is not None:
                on_done(outcome)
    return blocks, refused


def _verified(
    pool: ThreadPoolExecutor, store: Store, locations: Iterable[str], schema: Schema
) -> Iterator[Block | RefusedFile]:
    def one(location: str) -> Block | RefusedFile:
        try:
            footer = read_footer(store, location)
            return verified(store, footer, schema, block_of(footer, schema))
        except LamellaError as error:
            return _refusal(location, error)

    return pool.map(one, locations)


def _by_footer(
    pool: ThreadPoolExecutor, store: Store, locations: Iterator[str], schema: Schema
) -> Iterator[Block | RefusedFile]:
    while some := list(islice(locations, _TOGETHER)):
        read = list(_read(pool, store, some))
        good = [each for each in read if not isinstance(each, RefusedFile)]
        alike = iter(alike_blocks([stat for stat, _ in good], [footer for _, footer in good], schema))
        for location, each in zip(some, read, strict=True):
            if isinstance(each, RefusedFile):
                yield each
            else:
                yield next(alike) or _alone(location, each, schema)


def _read(pool: ThreadPoolExecutor, store: Store, locations: Sequence[str]) -> Iterator[_Read | RefusedFile]:
    """The stats and footers of files, in their order."""

    def one(location: str) -> _Read | RefusedFile:
        try:
            stat = store.stat(location)
            return stat, read_footer_bytes(store, stat)
        except LamellaError as error:
            return _refusal(location, error)

    def several(some: Sequence[str]) -> list[_Read | RefusedFile]:
        return [one(location) for location in some]

    if len(locations) <= _LOCAL_RUN or not all(location.startswith(("file:", "/")) for location in locations):
        yield from pool.map(one, locations)
        return
    for part in pool.map(several, [locations[at : at + _LOCAL_RUN] for at in range(0, len(locations), _LOCAL_RUN)]):
        yield from part


def _alone(location: str, read: _Read, schema: Schema) -> Block | RefusedFile:
    try:
        return block_of(decode_footer(*read), schema)
    except LamellaError as error:
        return _refusal(location, error)


def _refusal(location: str, error: LamellaError) -> RefusedFile:
    return RefusedFile(path=location, code=error.code, reason=error.message)
