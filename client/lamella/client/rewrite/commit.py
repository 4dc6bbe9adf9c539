"""The table state that a job works on, and the commits of jobs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import chain
from typing import Any, Final

import msgspec

from lamella.client.http.call import Call, TableName
from lamella.client.http.lake import Lake
from lamella.client.http.tables import commit_call
from lamella.client.rewrite.block_writer import WrittenBlocks, join_parts
from lamella.client.rewrite.sort import Order
from lamella.client.rewrite.target import MEMORY_BYTES, Target, bloom_filters_of
from lamella.snapshot.cluster.extent import block_target_of
from lamella.snapshot.commit import seen_with_update
from lamella.snapshot.commit.block_lists import packed
from lamella.snapshot.counts import counted
from lamella.snapshot.deletes import Positions, VectorFile, Vectors, deleted_rows, union
from lamella.snapshot.errors import AlreadyExists, InvalidRequest, LamellaError, OutcomeUnknown, StoreError
from lamella.snapshot.ids import Ids
from lamella.snapshot.manifest import (
    FEATURES,
    WRITER_FEATURES,
    Block,
    ClusterKind,
    ClusterStats,
    RowChange,
    Snapshot,
)
from lamella.snapshot.storage import Store, TableLayout
from lamella.snapshot.wire import (
    BlockDeletes,
    BlockListSent,
    CommitAnswer,
    IndexPartsSent,
    NoNewMatches,
    SchemaUpdate,
    TableInfo,
    TableRead,
)

# Commits with more blocks than fit into a request: the blocks are written ahead as lists in the table's scratch folder.
#
# Blocks are encoded one after another and leave memory with their list, so that at most one encoded list is in memory
# besides the blocks.

#: Sends a commit and returns its answer.
SendCommit = Callable[[Call[CommitAnswer]], CommitAnswer]

#: Bytes of a list, if the service accepts as much.
LIST_BYTES: Final = 16 << 20
#: The fraction of a request body that blocks may use; the rest is for other members.
_SHARE: Final = 2


def commit_blocks(
    lake: Lake,
    name: str,
    blocks: Iterable[Block],
    *,
    store: Store,
    location: str | None = None,
    removed: Sequence[str] = (),
    base_snapshot_id: str | None = None,
    operation: str = "append",
    properties: Mapping[str, str] | None = None,
    index_parts: Sequence[IndexPartsSent] = (),
    no_new_matches: NoNewMatches | None = None,
    deletes: Sequence[BlockDeletes] = (),
    row_change: RowChange | None = None,
    reads: Sequence[TableRead] = (),
    schema_update: SchemaUpdate | None = None,
    idempotency_key: str | None = None,
    send: SendCommit | None = None,
    writer_features: Sequence[str] = (),
) -> CommitAnswer:
    """:meth:`lamella.client.http.Table.commit` for any number of blocks: those that do not fit into a request are sent
    ahead in lists.

    ``store`` can write the table's folder, ``location`` (None: requested from the service). ``send``: sends the
    request; None: it is sent with ``idempotency_key``. Lists are removed at the end, unless it is unknown whether the
    commit happened: repeating the call with the same key needs them.

    Raises as ``Table.commit``, and StoreError.
    """
    max_bytes = min(LIST_BYTES, lake.config().max_body_bytes)
    within, beyond = _divide(blocks, max_bytes // _SHARE)
    lists: list[BlockListSent] = []
    is_over = True
    try:
        if beyond is not None:
            layout = TableLayout(lake.table(name).info().location if location is None else location)
            for each in packed(layout, beyond, piece_bytes=max_bytes):
                lists.append(each.sent)
                with suppress(AlreadyExists):  # left by an earlier attempt; the name is a content hash
                    store.put(each.sent.location, each.data)
        is_over = False
        call = commit_call(
            TableName.parse(name),
            within,
            removed,
            base_snapshot_id,
            operation,
            properties or {},
            index_parts,
            no_new_matches,
            lists,
            deletes=deletes,
            row_change=row_change,
            reads=reads,
            schema_update=schema_update,
            writer_features=writer_features,
        )
        answer = lake.run(call, idempotency_key) if send is None else send(call)
        is_over = True
    except LamellaError as error:
        is_over = not isinstance(error, OutcomeUnknown)
        raise
    finally:
        if lists and is_over:
            with suppress(StoreError):  # vacuum removes them
                store.delete_many([each.location for each in lists])
    return answer


def _divide(blocks: Iterable[Block], max_bytes: int) -> tuple[list[msgspec.Raw], Iterator[bytes] | None]:
    """Return all blocks encoded if they fit into ``max_bytes``; otherwise none, and an iterator that encodes all."""
    encoded = map(msgspec.json.Encoder().encode, blocks)
    begun: list[bytes] = []
    size_bytes = 0
    for block in encoded:
        begun.append(block)
        size_bytes += len(block) + 1
        if size_bytes > max_bytes:
            return [], chain(begun, encoded)
    return [msgspec.Raw(block) for block in begun], None


class TableState(msgspec.Struct, frozen=True, kw_only=True):
    """A table and one snapshot of it.

    ``schema_update``: schema changes that the snapshot is seen with. The commit of the rows makes them.
    """

    name: str
    info: TableInfo
    snapshot: Snapshot
    schema_update: SchemaUpdate | None = None

    @classmethod
    def read(cls, lake: Lake, name: str, *, snapshot_id: str | None = None) -> TableState:
        """Read the table's current state or that of a snapshot, for a write.

        Raises:
            PermissionDenied: the caller may not write to the table. Raised here, so before any file is written.
            TableNotFound, NamespaceNotFound, SnapshotNotFound.
        """
        handle = lake.table(name)
        info = handle.info(role="write")
        return cls(name=name, info=info, snapshot=handle.snapshot(snapshot_id or info.snapshot_id))

    def with_update(self, update: SchemaUpdate | None) -> TableState:
        """Return the state seen with schema changes, which the commit of the rows makes; the same if others have made
        them, or for None.

        Raises:
            SchemaConflict: others changed the columns in another way.
            InvalidSchema, UnknownColumn: a change that cannot be made.
        """
        seen = seen_with_update(self.snapshot, update)
        return self if seen is self.snapshot else msgspec.structs.replace(self, snapshot=seen, schema_update=update)

    @property
    def cluster_key(self) -> tuple[str, ...]:
        """The columns of the table's cluster key."""
        key = self.snapshot.cluster_key
        return () if key is None else key.columns

    @property
    def cluster_kind(self) -> ClusterKind:
        """The kind of the table's cluster key."""
        key = self.snapshot.cluster_key
        return "linear" if key is None else key.kind

    def target(
        self,
        *,
        keys: Sequence[str] | None = None,
        block_rows: int | None = None,
        block_bytes: int | None = None,
        memory_bytes: int = MEMORY_BYTES,
        compression: str = "zstd",
        indexes: bool = True,
        level: int = 0,
        storage_options: Mapping[str, Mapping[str, Any]] | None = None,
    ) -> Target:
        """Return how blocks of the table are written; ``keys`` replaces the cluster key.

        ``block_rows``, ``block_bytes``: None: the table's properties ``target_block_rows`` and ``target_block_bytes``.

        Raises:
            InvalidRequest: a property of the table is invalid.
        """
        size = block_target_of(self.snapshot.properties)
        key = self.snapshot.cluster_key
        chosen = self.cluster_key if keys is None else tuple(keys)
        is_own = key is not None and chosen == key.columns
        return Target(
            location=self.info.location,
            history=self.snapshot.history,
            order=Order(keys=chosen, kind=key.kind if is_own and key is not None else "linear"),
            cluster=ClusterStats(key_id=key.key_id, level=level) if is_own and key is not None else None,
            block_rows=size.rows if block_rows is None else block_rows,
            block_bytes=size.size_bytes if block_bytes is None else block_bytes,
            memory_bytes=memory_bytes,
            compression=compression,
            bloom_filters=bloom_filters_of(self.snapshot.properties),
            indexes=tuple(
                msgspec.structs.replace(index, directories=())
                for index in self.snapshot.skip_indexes
                if indexes and index.dropped_ms is None
            ),
            storage_options={scheme: dict(options) for scheme, options in (storage_options or {}).items()},
        )


def commit_result(
    lake: Lake,
    state: TableState,
    target: Target,
    written: Iterable[WrittenBlocks],
    *,
    operation: str,
    removed: Sequence[str] = (),
    properties: Mapping[str, str] | None = None,
    no_new_matches: NoNewMatches | None = None,
    deletes: Mapping[str, Positions] | None = None,
    row_change: RowChange | None = None,
    reads: Sequence[TableRead] = (),
    idempotency_key: str | None = None,
    send: SendCommit | None = None,
) -> CommitAnswer:
    """Commit the blocks that tasks wrote, with their index entries; ``removed``: blocks of the state's snapshot.

    ``deletes``: rows of blocks of the state's snapshot that are deleted, in addition to those that are deleted there:
    ascending positions in the file, by the block's location. A block of which no row is left is removed.
    ``row_change``: what the commit does to rows; None: "append" if blocks are only added, else "overwrite".
    ``reads``: rows that must not have changed. The commit makes the schema changes of the state.

    Blocks that do not fit into one request are sent ahead in lists. ``send``: see :func:`commit_blocks`.

    Raises:
        CommitConflict: a block to remove no longer exists, or others changed the rows to delete.
        NewMatches: see ``no_new_matches``.
        ReadConflict: see ``reads``.
        SchemaConflict: others changed the columns that the state changes.
        OutcomeUnknown: the commit may have happened.
    """
    done = list(written)
    names = {index.index_id: index.name for index in target.indexes}
    store = target.store()
    parts = join_parts(store, target.layout, Ids(), (part for each in done for part in each.parts))
    sent, emptied = write_vectors(lake, state, target, deletes or {})
    removed = [*removed, *emptied]
    needs_base = bool(removed or sent) or no_new_matches is not None
    return commit_blocks(
        lake,
        state.name,
        (block for each in done for block in each.blocks),
        store=store,
        location=target.location,
        removed=removed,
        base_snapshot_id=state.snapshot.snapshot_id if needs_base else None,
        operation=operation,
        properties=properties,
        index_parts=[
            IndexPartsSent(name=names[index_id], index_id=index_id, parts=tuple(sent))
            for index_id, sent in parts.items()
        ],
        no_new_matches=no_new_matches,
        deletes=sent,
        row_change=row_change,
        reads=reads,
        schema_update=state.schema_update,
        idempotency_key=idempotency_key,
        send=send,
        # Blocks were written with one of these schemas, and checked by it.
        writer_features=WRITER_FEATURES if any(each.has_constraints for each in target.history) else (),
    )


def write_vectors(
    lake: Lake, state: TableState, target: Target, deletes: Mapping[str, Positions]
) -> tuple[list[BlockDeletes], list[str]]:
    """Write deletion vectors of blocks of the state's snapshot, all in one file below the table's folder; returns them,
    and the blocks of which no row is left.

    ``deletes``: see :func:`commit_result`.

    Raises:
        InvalidRequest: a block is not in the snapshot, or does not have that many rows.
        CorruptDeletes, HashMismatch: its vector is damaged.
        StoreError: storage failed.
    """
    wanted = {location: positions for location, positions in deletes.items() if len(positions)}
    if not wanted:
        return [], []
    facts = lake.table(state.name).blocks(
        list(wanted), snapshot_id=state.snapshot.snapshot_id, reader_features=FEATURES
    )
    if facts.missing:
        raise InvalidRequest(f"{facts.missing[0]} is not in snapshot {facts.snapshot_id}")
    store = target.store()
    before = Vectors(store, (entry for block in facts.blocks for entry in block.deletes))
    file = VectorFile(target.layout.deletes(Ids().new()))
    sent: list[BlockDeletes] = []
    emptied: list[str] = []
    for block in facts.blocks:
        own = wanted[block.location]
        if own[0] < 0 or own[-1] >= block.row_count:
            raise InvalidRequest(f"{block.location} has {counted(block.row_count, 'row')}, and no row {own[-1]}")
        positions = union([own, deleted_rows(before, block.deletes, block.row_count)])
        if len(positions) == block.row_count:
            emptied.append(block.location)
        else:
            sent.append(BlockDeletes(location=block.location, deletes=file.add(block.location, positions)))
    if sent:
        store.put(file.location, file.finished())
    return sent, emptied
