"""Commits of written rows: appended, or replacing the rows that a filter selects."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import msgspec

from lamella.client.http.lake import Lake
from lamella.client.jobs.context import JobContext
from lamella.client.jobs.delete import delete_rows
from lamella.client.rewrite.block_writer import WrittenBlocks
from lamella.client.rewrite.commit import TableState, commit_result
from lamella.client.rewrite.engine import Engine
from lamella.client.rewrite.target import Target
from lamella.snapshot.errors import InvalidRequest
from lamella.snapshot.expression import read_filter
from lamella.snapshot.manifest import FEATURES
from lamella.snapshot.row_filter import RowFilter
from lamella.snapshot.schema import Schema
from lamella.snapshot.wire import NoNewMatches, TableRead

#: A filter that matches every row.
EVERY_ROW: Final[dict[str, Any]] = {"type": "true"}
_PAGE_BLOCKS: Final = 10_000


class RowsCommitted(msgspec.Struct, frozen=True):
    """The snapshot that contains the rows, and the number of removed rows. ``committed``: False: there was nothing to
    commit."""

    snapshot_id: str
    rows_removed: int = 0
    committed: bool = True


class RowsCommit(msgspec.Struct, frozen=True, kw_only=True):
    """One commit. ``properties``: table properties set with it.

    ``replaces``: delete the rows that match this filter (SQL text or tree, in ``time_zone``); None: delete nothing.
    ``rests_on``: called after the rows are written; returns the snapshot of the table from which they were computed, if
    they were: rows added since must not be deleted, since the computation did not include them. ``before``: called
    right before the commit, which does not happen when it raises. ``idempotency_key``: of the commit, when nothing is
    replaced. ``reads``: rows of tables that must not have changed; when nothing is replaced.
    """

    replaces: Any = None
    time_zone: str = "UTC"
    rests_on: Callable[[], str | None] = lambda: None
    before: Callable[[], object] = lambda: None
    properties: Mapping[str, str] = {}
    idempotency_key: str | None = None
    reads: Sequence[TableRead] = ()

    def check(self, schema: Schema) -> None:
        """Raise FilterNotEvaluable, InvalidFilter, UnknownColumn or FilterTypeMismatch for an invalid ``replaces``."""
        if self.replaces is not None:
            RowFilter(read_filter(self.replaces, time_zone=self.time_zone), schema, time_zone=self.time_zone)

    def apply(
        self,
        lake: Lake,
        engine: Engine,
        state: TableState,
        target: Target,
        written: Sequence[WrittenBlocks],
        *,
        scratch: str | None = None,
    ) -> RowsCommitted:
        """Commit; makes no snapshot when there is nothing to add, remove or change. The commit makes the schema changes
        of the state. ``scratch``: for rewritten blocks.

        Raises:
            CommitConflict: other writers committed first.
            NewMatches: rows were added that ``rests_on`` protects. Nothing was done.
            ReadConflict: rows of ``reads`` changed. Nothing was done.
            IdempotencyMismatch: the key was used for another commit.
            OutcomeUnknown: the commit may have happened.
            FilterNotEvaluable, EvaluationFailed, ...: see ``delete_rows``.
        """
        self.before()
        if self.replaces is None:
            return self._append(lake, state, target, written)
        read_at = self.rests_on()
        if read_at is not None:
            return self._replace_read_rows(
                lake,
                target,
                written,
                TableState.read(lake, state.name, snapshot_id=read_at).with_update(state.schema_update),
            )
        context = JobContext(
            lake=lake,
            table=state.name,
            engine=engine,
            storage_options=target.storage_options,
            scratch=scratch,
            compression=target.compression,
        )
        added = [each for each in written if each.blocks]
        done = delete_rows(
            context,
            self.replaces,
            time_zone=self.time_zone,
            added=added,
            operation="overwrite",
            properties=self.properties,
            schema_update=state.schema_update,
        )
        changed = bool(added or done.dropped or done.rows or state.schema_update)
        return RowsCommitted(done.snapshot_id, done.rows, committed=changed)

    def _append(self, lake: Lake, state: TableState, target: Target, written: Sequence[WrittenBlocks]) -> RowsCommitted:
        if not any(each.blocks for each in written) and state.schema_update is None:
            return RowsCommitted(state.info.snapshot_id, committed=False)
        answer = commit_result(
            lake,
            state,
            target,
            written,
            operation="append",
            properties=self.properties,
            idempotency_key=self.idempotency_key,
            reads=self.reads,
        )
        return RowsCommitted(answer.snapshot_id)

    def _replace_read_rows(
        self, lake: Lake, target: Target, written: Sequence[WrittenBlocks], state: TableState
    ) -> RowsCommitted:
        if self.replaces != EVERY_ROW:
            raise InvalidRequest(
                "rows that are computed from the table cannot replace a part of it; write them elsewhere first, or use"
                " lamella.client.spark.merge or update"
            )
        handle = lake.table(state.name)
        pages = handle.prune_pages(
            None, page_size=_PAGE_BLOCKS, snapshot_id=state.snapshot.snapshot_id, reader_features=FEATURES
        )
        removed = [block.location for page in pages for block in page.records()]
        if not (removed or any(each.blocks for each in written) or state.schema_update):
            return RowsCommitted(state.snapshot.snapshot_id, committed=False)
        answer = commit_result(
            lake,
            state,
            target,
            written,
            operation="overwrite",
            removed=removed,
            properties=self.properties,
            no_new_matches=NoNewMatches(),
        )
        summary = state.snapshot.summary
        live = summary.live_row_count
        return RowsCommitted(answer.snapshot_id, summary.row_count if live is None else live)
