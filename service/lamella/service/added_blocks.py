"""The blocks that a commit adds: looked at in the store, and as they will stand in manifests.

Those of a request's body wait in the queue with it, so that small appends can share a segment. Those of lists may be
more than memory holds: they are taken a segment at a time, and each segment is written before the next one is looked
at. What was written of a commit that is refused later belongs to no snapshot, and a clean-up removes it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Final

import msgspec

from lamella.service.blocks import check_block, read_blocks
from lamella.service.catalog import Catalog, CommitGuard
from lamella.service.commit_check import spelled
from lamella.service.intake import Intake, refuse_doubled
from lamella.service.location_rules import require_places
from lamella.service.ownership import require_own
from lamella.service.settings import Settings
from lamella.service.state import trusted_manifests
from lamella.snapshot.block_lists import Listed, checked_lists, listed_blocks
from lamella.snapshot.errors import DuplicateBlock, Unavailable
from lamella.snapshot.layout import Places, Store
from lamella.snapshot.layout.location import normal
from lamella.snapshot.manifest import Block, SegmentRef, Snapshot
from lamella.snapshot.manifest.block_key import BlockKeys, block_keys, bytes_of, keys_of, no_keys
from lamella.snapshot.schema.evolution import schema_at
from lamella.snapshot.warehouse import Warehouse
from lamella.snapshot.wire import BlockListSent, CommitRequest, RefusedFile

#: Where a block of the request's body says that it stands: nowhere that must be told.
_BODY: Final = ""


class Added(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """What a commit adds: ``blocks`` or, when some came in lists, ``segments``.

    ``keys``: of all of them in their order, if something comes with them that needs these.
    """

    blocks: Sequence[Block] = ()
    segments: tuple[SegmentRef, ...] = ()
    keys: BlockKeys = msgspec.field(default_factory=no_keys)
    guard: CommitGuard | None = None


class AddedBlocks:
    """Takes in what requests add."""

    def __init__(
        self, *, catalog: Catalog, warehouse: Warehouse, store: Store, intake: Intake, settings: Settings
    ) -> None:
        self._catalog = catalog
        self._warehouse = warehouse
        self._store = store
        self._intake = intake
        self._most_blocks = settings.commit_list_blocks
        self._most_bytes = settings.max_body_bytes

    def lists(self, table_id: str, sent: Sequence[BlockListSent]) -> tuple[BlockListSent, ...]:
        """The lists of a request, of which nothing was read yet; raises InvalidRequest, LimitExceeded."""
        folder = self._warehouse.table_location(table_id)
        return checked_lists(folder, sent, most_blocks=self._most_blocks, most_bytes=self._most_bytes)

    def taken(
        self,
        table_id: str,
        places: Places,
        request: CommitRequest,
        lists: Sequence[BlockListSent],
        parts: Sequence[str],
        *,
        versions: Snapshot,
        unsaid: Snapshot,
        since_ms: int,
    ) -> Added:
        """All that is added. ``parts``: locations of what comes with it; ``unsaid``: has the schema that blocks were
        written with which do not say it; ``since_ms``: now.

        Raises:
            InvalidRequest, LimitExceeded, ObjectNotFound: no block, or a list that cannot be read.
            LocationRefused: a block that may not be where it is.
            BlocksRefused: a block's file or statistics.
            DuplicateBlock: a block that is twice in the body.
            StoreError: storage failed.
            Unavailable: a clean-up is at work.
        """
        check = _Check(self._warehouse, self._store, table_id, versions, unsaid)
        sent = read_blocks(request.added)
        require_places(places, sent)
        if not lists:
            if not sent:
                return Added()
            guard = self._catalog.guard(table_id, [*spelled(sent), *parts], since_ms=since_ms)
            blocks, refused = self._intake.each(sent, check)
            self._intake.refuse(refused, all_or_nothing=True)
            refuse_doubled("added", [block.location for block in blocks], DuplicateBlock)
            return Added(blocks=blocks, keys=block_keys(blocks if parts else ()), guard=guard)
        guard = self._catalog.guard(table_id, parts, since_ms=since_ms)
        segments: list[SegmentRef] = []
        keys: list[bytes] = []
        for some in self._batches(sent, lists):
            require_places(places, [each.block for each in some])
            now = self._catalog.guard(table_id, spelled([each.block for each in some]), since_ms=since_ms)
            if now.epochs != guard.epochs:
                raise Unavailable("a clean-up deleted files while this commit was made; send it again", retry_after_s=0)
            blocks, refused = self._intake.each([each.block for each in some], check)
            self._intake.refuse(_placed(refused, some), all_or_nothing=True)
            with trusted_manifests():
                segments += self._warehouse.prepare(table_id, versions, blocks)
            if parts:
                keys.append(bytes_of(block_keys(blocks)))
        guard = msgspec.structs.replace(guard, adds_files=True)
        return Added(segments=tuple(segments), keys=keys_of(b"".join(keys)), guard=guard)

    def _batches(self, sent: Sequence[Block], lists: Sequence[BlockListSent]) -> Iterator[list[Listed]]:
        """As many blocks at a time as a segment has."""

        def every() -> Iterator[Listed]:
            yield from (Listed(block, _BODY, place) for place, block in enumerate(sent))
            yield from listed_blocks(self._store, lists)

        waiting = every()
        while some := list(islice(waiting, self._warehouse.segment_blocks)):
            yield some


class _Check:
    """What must hold of a block, and what the store says of its file."""

    def __init__(self, warehouse: Warehouse, store: Store, table_id: str, versions: Snapshot, unsaid: Snapshot) -> None:
        self._warehouse = warehouse
        self._store = store
        self._table_id = table_id
        self._versions = versions
        self._unsaid_id = unsaid.schema.schema_id
        self._last_key_id = versions.greatest_cluster_key_id

    def __call__(self, block: Block) -> Block:
        require_own(self._warehouse, self._table_id, normal(block.location))
        schema_id = self._unsaid_id if block.schema_id is None else block.schema_id
        block = check_block(block, schema_at(self._versions, schema_id).by_id(), last_key_id=self._last_key_id)
        stat = self._store.stat(block.location)
        return msgspec.structs.replace(
            block, file_size=stat.size_bytes, content_id=stat.content_id, schema_id=schema_id
        )


def _placed(refused: Sequence[RefusedFile], some: Sequence[Listed]) -> list[RefusedFile]:
    """Refused files with the places of the lists that they came in."""
    if not refused:
        return []
    places = {each.block.location: each for each in reversed(some) if each.location != _BODY}
    return [
        entry
        if (place := places.get(entry.path)) is None
        else msgspec.structs.replace(entry, listed_in=place.location, listed_at=place.number)
        for entry in refused
    ]
