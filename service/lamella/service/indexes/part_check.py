"""Checks parts of skip indexes that were built elsewhere: each must exist, be intact, and belong to its index."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from lamella.snapshot.concurrency import ContextThreadPool
from lamella.snapshot.errors import IndexNotFound, InvalidRequest, LamellaError, ManifestError
from lamella.snapshot.index.definition import term_in
from lamella.snapshot.index.directory import Addition
from lamella.snapshot.index.part import Part, PartRef
from lamella.snapshot.index.widening import can_serve
from lamella.snapshot.manifest import Snapshot, TableIndex
from lamella.snapshot.manifest.block_key import KEY_BYTES, BlockKeys, keys_of
from lamella.snapshot.schema import parse_type
from lamella.snapshot.storage import Store
from lamella.snapshot.storage.location import normal
from lamella.snapshot.vacuum import object_name
from lamella.snapshot.warehouse import Warehouse
from lamella.snapshot.warehouse.indexing import index_with_id
from lamella.snapshot.wire import IndexPartsSent, PartSent

#: Most parts in one request, and in a commit, which may have any number of blocks.
MAX_PARTS: Final = 1_000
MAX_COMMIT_PARTS: Final = 10_000


class TakenParts(NamedTuple):
    """Parts to add, and by the name of an index why its parts are left out."""

    additions: tuple[Addition, ...]
    left_out: dict[str, str]


class PartCheck:
    """Checks parts in the store, ``threads`` at a time for one request."""

    def __init__(self, warehouse: Warehouse, store: Store, *, threads: int) -> None:
        self._warehouse = warehouse
        self._store = store
        self._threads = threads

    def of_index(
        self, table_id: str, head: Snapshot, index: TableIndex, parts: Sequence[PartSent]
    ) -> list[tuple[PartRef, BlockKeys]]:
        """Return the parts of one index, with the keys that were sent with them.

        Raises:
            InvalidRequest: a part is not in the table's folder, or does not belong to this index.
            ObjectNotFound: a part does not exist.
            StoreError: storage failed.
        """
        found = self._looked_at(table_id, head, index, parts, None)
        for each in found:
            if each.misfit is not None:
                raise each.misfit
        return [(each.ref, each.keys) for each in found]

    def of_commit(self, table_id: str, head: Snapshot, sent: Sequence[IndexPartsSent], blocks: BlockKeys) -> TakenParts:
        """Return the parts that were sent with ``blocks``: the keys of these, in the order of the commit.

        Parts of an index that the table does not use any more, or whose column has another type by now, are left out:
        they would never be read. Raises as :meth:`of_index`.
        """
        additions: list[Addition] = []
        left_out: dict[str, str] = {}
        for of_index in sent:
            try:
                index = index_with_id(head.skip_indexes, of_index.index_id)
            except IndexNotFound as error:
                left_out[of_index.name] = error.message
                continue
            require_name(index, of_index.name)
            found = self._looked_at(table_id, head, index, of_index.parts, blocks)
            misfit = next((each.misfit for each in found if each.misfit is not None), None)
            if misfit is not None:
                left_out[of_index.name] = misfit.message
            else:
                additions.append(Addition(index.index_id, tuple((each.ref, each.keys) for each in found)))
        return TakenParts(tuple(additions), left_out)

    def _looked_at(
        self,
        table_id: str,
        head: Snapshot,
        index: TableIndex,
        parts: Sequence[PartSent],
        blocks: BlockKeys | None,
    ) -> list[_Looked]:
        folder = self._warehouse.table_location(table_id)
        with ContextThreadPool(self._threads, thread_name_prefix="index-parts") as pool:
            return list(pool.map(lambda part: self._look(folder, head, index, part, blocks), parts))

    def _look(
        self, folder: str, head: Snapshot, index: TableIndex, sent: PartSent, blocks: BlockKeys | None
    ) -> _Looked:
        location = normal(sent.location)

        def wrong(reason: str) -> InvalidRequest:
            return InvalidRequest(f"{location} cannot be added: {reason}", location=location)

        found = object_name(folder, location)
        if found is None or found.kind != "index" or not location.endswith(".part"):
            raise wrong("it is not in the table's own folder")
        try:
            keys = _keys(sent, blocks)
        except ValueError as error:
            raise wrong(str(error)) from error
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
            raise wrong(f"it has entries for {header.block_count} blocks, but {len(keys)} were sent")
        if header.kind != index.kind or header.options != index.options:
            raise wrong("it was built for another definition")
        fits = _fits(index, head, header.dtype)
        return _Looked(ref, keys, None if fits else wrong(f"it was built over {header.dtype}"))


class _Looked(NamedTuple):
    """A valid part; ``misfit``: why the index cannot use it with the table's current columns."""

    ref: PartRef
    keys: BlockKeys
    misfit: InvalidRequest | None


def left_out_parts(snapshot: Snapshot, sent: Sequence[IndexPartsSent], taken: TakenParts) -> dict[str, str]:
    """Return, by index, why its parts are not in the next snapshot; an index may be dropped meanwhile."""
    left_out = dict(taken.left_out)
    for of_index in sent:
        if of_index.name not in left_out:
            try:
                index_with_id(snapshot.skip_indexes, of_index.index_id)
            except IndexNotFound as error:
                left_out[of_index.name] = error.message
    return left_out


def require_distinct(parts: Sequence[PartSent], max_parts: int = MAX_PARTS) -> list[str]:
    """Return the locations of a request's parts. Raises InvalidRequest for too many or a duplicate."""
    if not 1 <= len(parts) <= max_parts:
        raise InvalidRequest(f"a request must have 1 to {max_parts} parts, not {len(parts)}")
    locations = [normal(part.location) for part in parts]
    if len(set(locations)) < len(locations):
        raise InvalidRequest("a part is named twice")
    return locations


def require_name(index: TableIndex, name: str) -> None:
    """Raise InvalidRequest if an index named by id has another name."""
    if index.name.lower() != name.lower():
        raise InvalidRequest(f"the index with id {index.index_id} is {index.name!r}, not {name!r}")


def _keys(sent: PartSent, blocks: BlockKeys | None) -> BlockKeys:
    """Return the keys of a part's blocks. Raises ValueError that says what is wrong with them."""
    if sent.blocks:
        if blocks is None or sent.keys:
            raise ValueError("send keys or positions in a commit, not both")
        if len(set(sent.blocks)) < len(sent.blocks) or not all(0 <= position < len(blocks) for position in sent.blocks):
            raise ValueError(f"its blocks must be distinct positions from 0 to {len(blocks) - 1}")
        return blocks[list(sent.blocks)]
    if not sent.keys or len(sent.keys) % KEY_BYTES:
        raise ValueError(f"{len(sent.keys)} bytes of keys were sent; each block has {KEY_BYTES}")
    return keys_of(sent.keys)


def _fits(index: TableIndex, head: Snapshot, dtype: str) -> bool:
    term = term_in(index, head)
    try:
        return term is not None and can_serve(parse_type(dtype), term.dtype)
    except LamellaError:
        return False
