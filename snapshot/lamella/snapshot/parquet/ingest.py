"""Many footers at once."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor

from lamella.snapshot.errors import LamellaError
from lamella.snapshot.layout.store import Store
from lamella.snapshot.manifest import Block
from lamella.snapshot.parquet.block import block_of
from lamella.snapshot.parquet.footer import read_footer
from lamella.snapshot.parquet.verify import verified
from lamella.snapshot.schema import Schema
from lamella.snapshot.wire import RefusedFile

#: Called once a file, in the order of the files, in the caller's thread.
OnDone = Callable[[Block | RefusedFile], None]


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

    def one(location: str) -> Block | RefusedFile:
        try:
            footer = read_footer(store, location)
            block = block_of(footer, schema)
            return verified(store, footer, schema, block) if verify else block
        except LamellaError as error:
            return RefusedFile(path=location, code=error.code, reason=error.message)

    blocks: list[Block] = []
    refused: list[RefusedFile] = []
    with ThreadPoolExecutor(max_workers=workers, thread_name_prefix="footer") as pool:
        for outcome in pool.map(one, locations):
            if isinstance(outcome, Block):
                blocks.append(outcome)
            else:
                refused.append(outcome)
            if on_done is not None:
                on_done(outcome)
    return blocks, refused
