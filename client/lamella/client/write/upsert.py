"""Upserts: rows replace those with equal keys, and the others are inserted.

The new rows are written like those of an append. Of the blocks that may have rows with equal keys only the columns of
the key are read; the rows that are found are deleted in the commit that adds the new ones, by deletion vectors or by
rewriting their blocks, as the table's properties say. The commit is refused if
others changed one of these rows, or added rows that may have one of the keys; then the search is repeated on the newer
snapshot, and blocks that are still the same are not read again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Final

import msgspec
import numpy as np
import pyarrow as pa

from lamella.client.http.lake import Lake
from lamella.client.rewrite.block_writer import WrittenBlocks
from lamella.client.rewrite.commit import TableState, commit_result
from lamella.client.rewrite.engine import ScratchSpace, ThreadEngine, scratch_space
from lamella.client.rewrite.source import Source, source_rows, spread
from lamella.client.rewrite.stages import Bin, BlockRemoval, RemovalStage
from lamella.client.rewrite.target import Target, arrow_schema
from lamella.client.scan.progress import Progress
from lamella.client.write.append import WriteOptions, counted, prepared, progress_of, summary, table_of
from lamella.client.write.data import open_rows
from lamella.client.write.keys import KeyCollector, KeySet, Numbers, key_columns, key_leaves
from lamella.client.write.once import send_resolved
from lamella.client.write.rows import write_rows
from lamella.snapshot.delete_policy import DeletePolicy, delete_policy_of
from lamella.snapshot.deletes import decode_vector
from lamella.snapshot.errors import (
    BlockReplaced,
    CommitConflict,
    InvalidRequest,
    NotParquet,
    ObjectNotFound,
    SchemaConflict,
    SchemaMismatch,
)
from lamella.snapshot.ids import Ids
from lamella.snapshot.manifest import FEATURES
from lamella.snapshot.storage import Store
from lamella.snapshot.wire import BlockFacts, NoNewMatches

#: Attempts on a newer snapshot.
_TRIES: Final = 20
#: File bytes that one task reads from, at most.
_TASK_BYTES: Final = 256 << 20
_PAGE_BLOCKS: Final = 10_000


class UpsertResult(msgspec.Struct, frozen=True, kw_only=True):
    """The outcome of an upsert. ``snapshot_id``: the snapshot with the rows; without rows, the one that the table had.

    ``rows_inserted``: rows whose key was not in the table; ``rows_updated``: the others. ``rows_removed``: rows that
    they replaced, more than ``rows_updated`` if the table had several rows of one key. ``blocks``: written blocks, of
    ``size_bytes`` together, without rewritten ones. ``blocks_read``: blocks of which the key was read;
    ``blocks_changed``: those that lost rows, of which ``blocks_rewritten`` were rewritten. ``tries``: number of
    attempts, more than one when another writer committed first. ``committed``: False: there were no rows.
    """

    rows_inserted: int = 0
    rows_updated: int = 0
    rows_removed: int = 0
    blocks: int = 0
    size_bytes: int = 0
    blocks_read: int = 0
    blocks_changed: int = 0
    blocks_rewritten: int = 0
    tries: int = 1
    snapshot_id: str
    committed: bool = True


class KeyMatches(msgspec.Struct, frozen=True, kw_only=True):
    """What becomes of one block without the rows that have one of the keys. ``keys``: the numbers of these rows' keys,
    as little-endian 64-bit integers."""

    removal: BlockRemoval
    keys: bytes


class KeySearch(msgspec.Struct, frozen=True, kw_only=True):
    """What was found in some blocks, in order. ``failed``: why they cannot be read."""

    blocks: tuple[KeyMatches, ...] = ()
    failed: str | None = None


class RemoveKeys(RemovalStage, frozen=True, kw_only=True):
    """Removes the rows that have one of the keys; reads the columns of the key first."""

    keys: KeySet

    task_type: ClassVar[Any] = Bin
    result_type: ClassVar[Any] = KeySearch

    def __call__(self, task: Bin) -> KeySearch:
        store = self.target.store()
        try:
            return KeySearch(blocks=tuple(self._block(store, source) for source in task.sources))
        except (BlockReplaced, NotParquet, ObjectNotFound, SchemaMismatch) as error:
            return KeySearch(failed=error.message)

    def _block(self, store: Store, source: Source) -> KeyMatches:
        schema = self.target.schema
        tops = {leaf.path[0] for leaf in self.keys.leaves}
        wanted = pa.schema([field for field in arrow_schema(schema) if field.name in tops])
        batches = list(source_rows(store, source, self.schemas, schema, wanted))
        rows = pa.Table.from_batches(batches, wanted).combine_chunks().to_batches()
        numbers = [self.keys.positions(key_columns(batch, self.keys.leaves)) for batch in rows]
        found: Numbers = np.concatenate([np.zeros(0, dtype=np.int64), *numbers])
        is_match = found >= 0
        return KeyMatches(removal=self.removal(store, source, is_match), keys=found[is_match].astype("<i8").tobytes())


def upsert(
    lake: Lake,
    name: str,
    data: Any,
    on: Sequence[str],
    options: WriteOptions,
    *,
    properties: Mapping[str, str] | None = None,
) -> UpsertResult:
    """Replace and insert rows; see :meth:`lamella.client.http.Table.upsert`."""
    options.check()
    stream = open_rows(data)
    with table_of(lake, name, stream, options):
        state, target, columns = prepared(lake, name, stream, options)
        collector = KeyCollector(key_leaves(target.schema, on))
        with scratch_space(target, is_near=True, folder=options.layout.scratch) as space:
            with progress_of(options) as shown:
                batches = counted(collector.passing(map(columns.fit, stream)), shown)
                written = write_rows(batches, target, space, workers=options.threads, progress=shown.done)
            if not any(each.blocks for each in written):
                return UpsertResult(snapshot_id=state.info.snapshot_id, committed=False)
            with progress_of(options, "blocks searched") as shown:
                change = _Change(lake, state, target, space, options, collector.keys(), written, shown)
                return change.committed(properties)


class _Change:
    """The commit of written rows, with the search for the rows that they replace."""

    def __init__(
        self,
        lake: Lake,
        state: TableState,
        target: Target,
        space: ScratchSpace,
        options: WriteOptions,
        keys: KeySet,
        written: Sequence[WrittenBlocks],
        shown: Progress,
    ) -> None:
        self._lake = lake
        self._first = state
        self._target = target
        self._space = space
        self._options = options
        self._keys = keys
        self._written = written
        self._shown = shown
        self._filter = keys.filter()
        #: What was found in blocks as they were; blocks never change, so it holds as long as they are in the table.
        self._known: dict[BlockFacts, KeyMatches] = {}

    def committed(self, properties: Mapping[str, str] | None) -> UpsertResult:
        """Commit the rows; repeats the search when another writer was first."""
        for attempt in range(1, _TRIES + 1):
            state = self._state()
            blocks = self._candidates(state)
            policy = delete_policy_of(state.snapshot.properties)
            self._search(policy, [block for block in blocks if block not in self._known])
            found = [(block, self._known[block]) for block in blocks if self._known[block].keys]
            vectors = {
                block.location: decode_vector(each.removal.vector, block.row_count, location=block.location)
                for block, each in found
                if each.removal.vector is not None
            }
            try:
                answer = commit_result(
                    self._lake,
                    state,
                    self._target,
                    [*self._written, *(each.removal.written for _, each in found)],
                    operation="upsert",
                    removed=[block.location for block, each in found if each.removal.vector is None],
                    properties=properties,
                    deletes=vectors,
                    no_new_matches=NoNewMatches(filter=self._filter),
                    send=lambda call: send_resolved(self._lake, call, str(Ids().new())),
                )
            except CommitConflict:
                if attempt == _TRIES:
                    raise
            else:
                matches = [each for _, each in found]
                return self._result(state, matches, len(blocks), attempt, answer.snapshot_id)
        raise AssertionError("unreachable")

    def _state(self) -> TableState:
        """Return the table's current state; raises SchemaConflict if the written rows are not its rows any more."""
        state = TableState.read(self._lake, self._first.name)
        same = state.info.table_id == self._first.info.table_id
        if not same or state.snapshot.schema != self._first.snapshot.schema:
            raise SchemaConflict(f"the columns of {state.name} were changed during the upsert; nothing was done")
        return state

    def _candidates(self, state: TableState) -> Sequence[BlockFacts]:
        """Return the blocks that may have rows with one of the keys."""
        handle = self._lake.table(state.name)
        pages = handle.prune_pages(
            self._filter, page_size=_PAGE_BLOCKS, snapshot_id=state.snapshot.snapshot_id, reader_features=FEATURES
        )
        locations = [location for page in pages for location in page.locations]
        facts = handle.blocks(locations, snapshot_id=state.snapshot.snapshot_id, reader_features=FEATURES)
        if facts.missing:
            raise InvalidRequest(f"{facts.missing[0]} is not in snapshot {facts.snapshot_id}")
        return facts.blocks

    def _search(self, policy: DeletePolicy, blocks: Sequence[BlockFacts]) -> None:
        engine = ThreadEngine(self._options.threads)
        tasks = spread(blocks, lambda block: block.file_size, _TASK_BYTES, engine.parallelism)
        stage = RemoveKeys(target=self._target, scratch=self._space.scratch, policy=policy, keys=self._keys)
        done = 0
        for number, result in engine.run(stage, [Bin(sources=tuple(map(Source.of, task))) for task in tasks]):
            if result.failed is not None:
                raise BlockReplaced(result.failed)
            self._space.used(written=[each.removal.written for each in result.blocks])
            self._known.update(zip(tasks[number], result.blocks, strict=True))
            done += len(tasks[number])
            self._shown.done(done, len(blocks))

    def _result(
        self, state: TableState, found: Sequence[KeyMatches], read: int, attempt: int, snapshot_id: str
    ) -> UpsertResult:
        keys = [np.frombuffer(each.keys, dtype="<i8") for each in found]
        matched = np.concatenate([np.zeros(0, dtype=np.int64), *keys])
        is_updated = np.zeros(self._keys.count, dtype=bool)
        is_updated[matched] = True
        updated = int(np.count_nonzero(is_updated))
        whole = summary(self._written, state)
        return UpsertResult(
            rows_inserted=whole.rows - updated,
            rows_updated=updated,
            rows_removed=len(matched),
            blocks=whole.blocks,
            size_bytes=whole.size_bytes,
            blocks_read=read,
            blocks_changed=len(found),
            blocks_rewritten=sum(each.removal.disposition == "rewritten" for each in found),
            tries=attempt,
            snapshot_id=snapshot_id,
        )
