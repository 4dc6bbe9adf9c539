"""A table as a job sees it, and the commits that jobs make."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from lamella.client.http import Lamella
from lamella.client.rewrite.block_lists import commit_blocks
from lamella.client.rewrite.block_writer import Written
from lamella.client.rewrite.index_entries import joined_parts
from lamella.client.rewrite.sorting import Order
from lamella.client.rewrite.target import MEMORY_BYTES, Target, bloom_filters_of
from lamella.snapshot.cluster.block_sizes import block_target_of
from lamella.snapshot.ids import Ids
from lamella.snapshot.manifest import ClusterKind, ClusterStats, Snapshot
from lamella.snapshot.wire import CommitAnswer, IndexPartsSent, NoNewMatches, TableInfo


class TableState(msgspec.Struct, frozen=True, kw_only=True):
    """A table and one snapshot of it."""

    name: str
    info: TableInfo
    snapshot: Snapshot

    @classmethod
    def read(cls, lake: Lamella, name: str, *, snapshot_id: str | None = None) -> TableState:
        """As it is now, or as it was; raises TableNotFound, NamespaceNotFound, SnapshotNotFound."""
        handle = lake.table(name)
        info = handle.info()
        return cls(name=name, info=info, snapshot=handle.snapshot(snapshot_id or info.snapshot_id))

    @property
    def cluster_key(self) -> tuple[str, ...]:
        """The columns of the table's cluster key."""
        key = self.snapshot.cluster_key
        return () if key is None else key.columns

    @property
    def cluster_kind(self) -> ClusterKind:
        """Its kind."""
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
        """How blocks of it are written; ``keys`` instead of the cluster key.

        ``block_rows``, ``block_bytes``: None: as the table's properties ``target_block_rows`` and
        ``target_block_bytes`` say.

        Raises:
            InvalidRequest: a property of the table cannot be read.
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


def commit_written(
    lake: Lamella,
    state: TableState,
    target: Target,
    written: Iterable[Written],
    *,
    operation: str,
    removed: Sequence[str] = (),
    properties: Mapping[str, str] | None = None,
    no_new_matches: NoNewMatches | None = None,
    idempotency_key: str | None = None,
) -> CommitAnswer:
    """One commit of what tasks wrote, with its entries in the indexes; ``removed`` as read in the state's snapshot.

    Blocks that are too many for one request go ahead in lists.

    Raises:
        CommitConflict: a removed block is not there any more; NewMatches: of ``no_new_matches``.
        OutcomeUnknown: it may have happened.
    """
    done = list(written)
    names = {index.index_id: index.name for index in target.indexes}
    store = target.store()
    parts = joined_parts(store, target.layout, Ids(), (part for each in done for part in each.parts))
    needs_base = bool(removed) or no_new_matches is not None
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
        idempotency_key=idempotency_key,
    )
