"""Skip indexes of tables: listed, created, dropped, restored and removed, each change in a snapshot of its own."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from lamella.service.catalog import TableRecord
from lamella.service.commits.committer import Committer
from lamella.service.history.history import History, trusted_manifests
from lamella.service.http.idempotency import IdempotencyKey, Pending
from lamella.snapshot.index import Kind, kinds
from lamella.snapshot.index.definition import term_in
from lamella.snapshot.manifest import Snapshot, SnapshotPointer, TableIndex
from lamella.snapshot.warehouse import CommitResult, Warehouse
from lamella.snapshot.warehouse.indexing import no_index
from lamella.snapshot.wire import (
    Coverage,
    CreateIndex,
    IndexInfo,
    IndexKind,
    IndexKindList,
    IndexList,
    IndexOption,
)


class Indexes:
    """The operations on indexes that read no files."""

    def __init__(
        self,
        *,
        warehouse: Warehouse,
        history: History,
        committer: Committer,
        clock: Callable[[], int],
    ) -> None:
        self._warehouse = warehouse
        self._history = history
        self._committer = committer
        self._clock = clock

    def kinds(self) -> IndexKindList:
        """Return the installed index kinds."""
        return IndexKindList(kinds=tuple(_kind(kind) for _, kind in sorted(kinds().items())))

    def list(self, record: TableRecord, snapshot_id: str | None = None, *, dropped: bool = False) -> IndexList:
        """Return the indexes of a snapshot (None: the current one) and their coverage; ``dropped``: all."""
        pointer = self._history.pointer(record, snapshot_id=snapshot_id)
        with trusted_manifests():
            head = self._warehouse.head(pointer)
            shown = [index for index in head.skip_indexes if dropped or index.dropped_ms is None]
            covered = self._warehouse.index_blocks.coverage(pointer, shown) if shown else []
        infos = [index_info(head, index, coverage) for index, coverage in zip(shown, covered, strict=True)]
        return IndexList(snapshot_id=head.snapshot_id, indexes=tuple(sorted(infos, key=lambda info: info.name)))

    def show(self, record: TableRecord, name: str, snapshot_id: str | None = None) -> IndexInfo:
        """Return one index, dropped or not. Raises IndexNotFound."""
        pointer = self._history.pointer(record, snapshot_id=snapshot_id)
        with trusted_manifests():
            head = self._warehouse.head(pointer)
            index = _by_name(head.skip_indexes, name)
            (coverage,) = self._warehouse.index_blocks.coverage(pointer, [index])
        return index_info(head, index, coverage)

    def create(self, record: TableRecord, request: CreateIndex, idempotency_key: IdempotencyKey) -> Pending:
        """Create an index that covers no block yet.

        Raises, when awaited: AlreadyExists: the name is taken, perhaps by a dropped index. InvalidRequest,
        InvalidFilter, UnknownColumn: the name, kind, options or expression.
        """

        def step(base: SnapshotPointer) -> CommitResult:
            return self._warehouse.indexing.create(
                base,
                name=request.name,
                kind=request.kind,
                expression=request.expression,
                options=request.options,
                time_zone=request.time_zone,
                now_ms=self._clock(),
            )

        def answer(result: CommitResult) -> IndexInfo:
            blocks = result.snapshot.summary.block_count
            return _named(result, request.name, Coverage(blocks=blocks, indexed=0, not_indexed=blocks))

        return self._committer.alone(record, step, answer, idempotency_key)

    def drop(self, record: TableRecord, name: str, idempotency_key: IdempotencyKey) -> Pending:
        """Stop using an index. Raises IndexNotFound when awaited."""

        def step(base: SnapshotPointer) -> CommitResult:
            return self._warehouse.indexing.drop(base, name, now_ms=self._clock())

        return self._committer.alone(record, step, lambda result: _named(result, name), idempotency_key)

    def restore(self, record: TableRecord, name: str, idempotency_key: IdempotencyKey) -> Pending:
        """Use a dropped index again. Raises IndexNotFound when awaited."""

        def step(base: SnapshotPointer) -> CommitResult:
            return self._warehouse.indexing.restore(base, name, now_ms=self._clock())

        return self._committer.alone(record, step, lambda result: _named(result, name), idempotency_key)

    def vacuum(self, record: TableRecord, name: str, idempotency_key: IdempotencyKey) -> Pending:
        """Delete a dropped index for good. Raises IndexNotFound when awaited.

        The answer is the index as it was. Its objects are deleted with the last snapshot that has them.
        """
        was: list[TableIndex] = []

        def step(base: SnapshotPointer) -> CommitResult:
            was[:] = [_by_name(self._warehouse.head(base).skip_indexes, name)]
            return self._warehouse.indexing.remove(base, name, now_ms=self._clock())

        return self._committer.alone(record, step, lambda result: index_info(result.snapshot, was[0]), idempotency_key)


def index_info(snapshot: Snapshot, index: TableIndex, coverage: Coverage | None = None) -> IndexInfo:
    """Return an index as of a snapshot."""
    return IndexInfo(
        index_id=index.index_id,
        name=index.name,
        kind=index.kind,
        expression=index.expression,
        dtype=index.dtype,
        options=index.options,
        time_zone=index.time_zone,
        created_ms=index.created_ms,
        snapshot_id=snapshot.snapshot_id,
        dropped_ms=index.dropped_ms,
        not_usable=_not_usable(snapshot, index),
        parts=sum(directory.part_count for directory in index.directories),
        size_bytes=index.size_bytes,
        bytes_per_block=index.size_bytes / max(index.block_count, 1),
        coverage=coverage,
    )


def _not_usable(snapshot: Snapshot, index: TableIndex) -> str | None:
    if index.kind not in kinds():
        return f"index kind {index.kind!r} is not installed here"
    if term_in(index, snapshot) is None:
        return f"a column of {index.expression} is missing, or the expression has another meaning now"
    return None


def _named(result: CommitResult, name: str, coverage: Coverage | None = None) -> IndexInfo:
    return index_info(result.snapshot, _by_name(result.snapshot.skip_indexes, name), coverage)


def _by_name(indexes: Sequence[TableIndex], name: str) -> TableIndex:
    found = next((index for index in indexes if index.name.lower() == name.lower()), None)
    if found is None:
        raise no_index(name, indexes)
    return found


def _kind(kind: Kind) -> IndexKind:
    return IndexKind(
        name=kind.name,
        text=kind.text,
        options=tuple(
            IndexOption(
                name=name,
                type=type(option.default).__name__,
                default=option.default,
                text=option.text,
                minimum=option.minimum,
                maximum=option.maximum,
            )
            for name, option in kind.known_options.items()
        ),
    )
