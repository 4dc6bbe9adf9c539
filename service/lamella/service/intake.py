"""Files on their way into a table: which ones a request names, and what is said of those that cannot be taken."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Final

import msgspec

from lamella.service.metrics import Metrics
from lamella.snapshot.carrying import CarryingPool
from lamella.snapshot.errors import BlocksRefused, Conflict, DuplicateBlock, LamellaError, StoreError
from lamella.snapshot.layout import Store
from lamella.snapshot.manifest import Block
from lamella.snapshot.wire import RefusedFile

_NAMED_BLOCKS: Final = 100
_LOCAL_RUN: Final = 64


class Intake:
    """Looks at files in the store, ``threads`` at a time for one request."""

    def __init__(self, store: Store, metrics: Metrics, threads: int) -> None:
        self._store = store
        self._metrics = metrics
        self._threads = threads

    def expand(self, paths: Sequence[str], *, plain: bool) -> tuple[list[str], list[RefusedFile]]:
        """Every location that the paths name, once each, in their order.

        ``plain``: no folder that is another format's table.
        """
        found: dict[str, None] = {}
        refused = []
        for path in paths:
            try:
                locations = self._store.expand(path, plain=plain)
            except LamellaError as error:
                refused.append(RefusedFile(path=path, code=error.code, reason=error.message))
                continue
            for location in locations:
                if location in found:
                    reason = "the file is named twice in the request"
                    refused.append(RefusedFile(path=location, code=DuplicateBlock.code, reason=reason))
                found[location] = None
        return list(found), refused

    def unchanged(self, blocks: Sequence[Block]) -> tuple[list[Block], list[RefusedFile]]:
        """The blocks whose files still are what their statistics came from."""

        def checked(block: Block) -> Block:
            stat = self._store.stat(block.location)
            if (stat.size_bytes, stat.content_id) != (block.file_size, block.content_id):
                raise Conflict("the file changed while it was being registered")
            return block

        return self.each(blocks, checked)

    def each_at_once(
        self, blocks: Sequence[Block], check: Callable[[Block], Block]
    ) -> tuple[list[Block], list[RefusedFile]]:
        """:meth:`each` for a check that waits for nothing, in the caller's thread."""
        return _sorted([_attempt(check, block) for block in blocks])

    def each(self, blocks: Sequence[Block], check: Callable[[Block], Block]) -> tuple[list[Block], list[RefusedFile]]:
        """What ``check`` makes of the blocks, several at a time, and what it raised for the others; in their order."""
        if len(blocks) < 2:
            return self.each_at_once(blocks, check)
        # Local files answer faster than threads hand over, so a thread takes several of a long list.
        run = _LOCAL_RUN if len(blocks) > _LOCAL_RUN and all(b.location.startswith("file:") for b in blocks) else 1
        parts = [blocks[at : at + run] for at in range(0, len(blocks), run)]
        with CarryingPool(min(self._threads, len(parts))) as pool:
            done = pool.map(lambda part: [_attempt(check, block) for block in part], parts)
            return _sorted([each for part in done for each in part])

    def refuse(self, refused: Sequence[RefusedFile], *, all_or_nothing: bool) -> None:
        """Raise the error that says best why nothing was done: DuplicateBlock, StoreError or BlocksRefused."""
        if not refused or not all_or_nothing:
            return
        self.count(refused)
        codes = {entry.code for entry in refused}
        listed = msgspec.to_builtins(refused)
        first = refused[0]
        where = "" if first.listed_in is None else f" (block {first.listed_at} of {first.listed_in})"
        text = f"{len(refused)} files were refused, first {first.path!r}{where}: {first.reason}"
        if codes == {DuplicateBlock.code}:
            raise DuplicateBlock(text, blocks=[entry.path for entry in refused][:_NAMED_BLOCKS], refused=listed)
        if StoreError.code in codes:
            raise StoreError(text, refused=listed)
        raise BlocksRefused(text, refused=listed)

    def count(self, refused: Sequence[RefusedFile]) -> None:
        """Add files that were not taken to the metrics."""
        for entry in refused:
            self._metrics.files_refused.labels(entry.code).inc()


def _attempt(check: Callable[[Block], Block], block: Block) -> Block | RefusedFile:
    try:
        return check(block)
    except LamellaError as error:
        return RefusedFile(path=block.location, code=error.code, reason=error.message)


def _sorted(done: Sequence[Block | RefusedFile]) -> tuple[list[Block], list[RefusedFile]]:
    return [b for b in done if isinstance(b, Block)], [r for r in done if isinstance(r, RefusedFile)]


def once(refused: Sequence[RefusedFile]) -> list[RefusedFile]:
    """One entry for each file: the last one, since that a file is named twice is found before anything else."""
    return list({entry.path: entry for entry in refused}.values())


def duplicate(location: str) -> RefusedFile:
    """What is said of a file that is in the table."""
    return RefusedFile(path=location, code=DuplicateBlock.code, reason="the file is in the table already")


def replaced(location: str) -> RefusedFile:
    """What is said of a file that was in the table before."""
    reason = (
        "the file was in the table before, or lies in the folder of its blocks, and its rows may have been rewritten "
        "or removed since; to register it all the same, set take_replaced (--take-replaced)"
    )
    return RefusedFile(path=location, code=DuplicateBlock.code, reason=reason)


def refuse_doubled(member: str, locations: Sequence[str], kind: type[LamellaError]) -> None:
    """Raise ``kind`` when a location is named twice."""
    doubled = sorted(place for place, count in Counter(locations).items() if count > 1)
    if doubled:
        raise kind(f"{member} names {doubled[0]!r} twice", blocks=doubled[:_NAMED_BLOCKS])
