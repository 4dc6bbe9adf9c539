"""Commit queues, one for each table: changes run in the order of arrival, several at a time, with one leader.

The leader is a pool thread, not a caller. It commits one group and then lets the next table run, so that a busy table
does not delay others. A leader that fails, in whatever way, answers every entry that it took.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, InvalidStateError, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, Final, Generic, TypeVar

import msgspec
from cachetools import LRUCache

from lamella.service.catalog import CommitGuard, HistoryEntry, RefChanges
from lamella.service.http.idempotency import IdempotencyKey
from lamella.service.telemetry.tracing import SpanContext
from lamella.snapshot.errors import OutcomeUnknown, Unavailable
from lamella.snapshot.index.directory import Addition
from lamella.snapshot.manifest import Block, RowChange, SegmentRef, SnapshotPointer
from lamella.snapshot.warehouse import CommitResult
from lamella.snapshot.wire import BlockDeletes, NoNewMatches, SchemaUpdate, TableRead

_APPEND: Final = "append"

#: Makes the body of a caller's answer; ``added`` and ``removed`` of the result are those of the caller.
MakeAnswer = Callable[[CommitResult], msgspec.Struct]


#: Makes what happens to other branches and tags together with a commit.
MakeRefs = Callable[[CommitResult], RefChanges]


class CheckedRead(msgspec.Struct, frozen=True):
    """What a change depends on: rows of a table of this service, at a snapshot."""

    table_id: str
    pointer: SnapshotPointer
    read: TableRead


class BlockChange(msgspec.Struct, frozen=True, kw_only=True):
    """Blocks to add, whose ``schema_id`` says what they were checked against, and locations to remove.

    ``segments``: used instead of ``blocks`` if they were written before the change was queued.

    ``index_parts``: entries of skip indexes for the blocks. ``no_new_matches``: see
    :class:`~lamella.snapshot.commit.ChangeSet`; such a change has a snapshot of its own. ``guard``: the state of
    clean-ups before the files of the blocks were checked. ``only_new``: refuse it if one of its files was in the table
    before. ``deletes``, ``row_change``: see :class:`~lamella.snapshot.commit.ChangeSet`. ``reads``: what it depends on,
    with the snapshots; it has a snapshot of its own then. ``schema_update``: schema changes of the same snapshot, which
    is its own as well.
    """

    idempotency_key: IdempotencyKey
    answer: MakeAnswer
    blocks: Sequence[Block] = ()
    segments: tuple[SegmentRef, ...] = ()
    removed: tuple[str, ...] = ()
    read_at: SnapshotPointer | None = None
    operation: str = _APPEND
    properties: dict[str, str] = {}
    removed_properties: frozenset[str] = frozenset()
    index_parts: tuple[Addition, ...] = ()
    no_new_matches: NoNewMatches | None = None
    guard: CommitGuard | None = None
    only_new: bool = False
    deletes: tuple[BlockDeletes, ...] = ()
    row_change: RowChange = _APPEND
    reads: tuple[CheckedRead, ...] = ()
    schema_update: SchemaUpdate | None = None

    @property
    def added(self) -> int:
        """Return how many blocks are added."""
        return len(self.blocks) + sum(ref.summary.block_count for ref in self.segments)

    @property
    def changes_blocks(self) -> bool:
        """Return whether it adds, removes or changes blocks."""
        return self.adds_files or bool(self.removed)

    @property
    def adds_files(self) -> bool:
        """Return whether it adds files that a clean-up might have deleted."""
        return bool(self.blocks or self.segments or self.deletes)

    @property
    def wrote_since_ms(self) -> int | None:
        """Return when its first object may have been written, if that was before the leader took it."""
        return self.guard.since_ms if self.segments and self.guard is not None else None

    @property
    def is_plain_append(self) -> bool:
        """Return whether it may share segments with other appends."""
        is_append = bool(self.blocks) and not (self.removed or self.deletes) and self.operation == _APPEND
        changes_more = self.properties or self.removed_properties or self.index_parts or self.is_alone
        return is_append and self.row_change == _APPEND and not changes_more

    @property
    def is_alone(self) -> bool:
        """Return whether it has a snapshot of its own: it depends on what it read, or changes the columns."""
        return self.no_new_matches is not None or bool(self.reads) or self.schema_update is not None


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """A commit of another kind, which has a snapshot of its own.

    ``step`` writes the snapshot that follows a base, and is called again if the swap was lost. ``required``: only if
    this snapshot is still in the history. ``guard``: the state of clean-ups before the objects that
    the step uses were checked or written. ``refs``: called after each ``step``; returns what happens to other branches
    and tags of the table at the same time.
    """

    idempotency_key: IdempotencyKey
    answer: MakeAnswer
    step: Callable[[SnapshotPointer], CommitResult]
    required: HistoryEntry | None = None
    guard: CommitGuard | None = None
    refs: MakeRefs | None = None

    @property
    def adds_files(self) -> bool:
        """Return whether objects are used that a clean-up might have deleted."""
        return self.guard is not None

    @property
    def wrote_since_ms(self) -> int | None:
        """Return when its first object may have been written, if that was before the leader took it."""
        return None if self.guard is None else self.guard.since_ms


Change = TypeVar("Change")
Answer = TypeVar("Answer")

_LOG: Final = logging.getLogger("lamella.commits")
#: Tables whose last group size is remembered.
_MAX_SIZES: Final = 1024


class Entry(Generic[Change, Answer]):
    """A change that waits for its answer. ``blocks``: its share of a group; ``alone``: it has a group of its own.

    ``span_context``: the trace that it belongs to.
    """

    __slots__ = ("alone", "answered", "blocks", "change", "deadline_s", "queued_s", "span_context")

    def __init__(
        self,
        change: Change,
        *,
        blocks: int,
        alone: bool,
        queued_s: float,
        deadline_s: float,
        span_context: SpanContext | None = None,
    ) -> None:
        self.change = change
        self.blocks = blocks
        self.alone = alone
        self.queued_s = queued_s
        self.deadline_s = deadline_s
        self.span_context = span_context
        self.answered: Future[Answer] = Future()

    def answer(self, value: Answer) -> None:
        """Set the answer; the first one counts."""
        try:
            self.answered.set_result(value)
        except InvalidStateError:
            return

    def refuse(self, error: BaseException) -> None:
        """Set an error as the answer, unless it was answered."""
        try:
            self.answered.set_exception(error)
        except InvalidStateError:
            return


class _Turn(Entry[Any, Any]):
    """Waits for its turn without a change; the answer is the line, which is held until it is handed on."""

    __slots__ = ()


class _Line(Generic[Change, Answer]):
    """The entries of one table, and whether a leader is running or scheduled."""

    def __init__(self) -> None:
        self.waiting: deque[Entry[Change, Answer]] = deque()
        self.has_leader = False


class CommitQueue(Generic[Change, Answer]):
    """Accepts changes and calls ``lead(table_id, group)`` to answer them in groups, ``threads`` tables at a time.

    A group has at most ``max_changes`` entries and, unless its first one alone has more, ``max_blocks`` blocks. If the
    last group had several entries, the leader waits ``batch_wait_s`` for more before it takes the next: clients that
    were answered together tend to send their next commits together.
    """

    def __init__(
        self,
        run_group: Callable[[str, Sequence[Entry[Change, Answer]]], None],
        *,
        threads: int,
        max_changes: int,
        max_blocks: int,
        batch_wait_s: float,
        timer: Callable[[], float] = time.monotonic,
    ) -> None:
        self._run_group = run_group
        self._max_changes = max_changes
        self._max_blocks = max_blocks
        self._batch_wait_s = batch_wait_s
        self._timer = timer
        self._lock = threading.Lock()
        self._lines: dict[str, _Line[Change, Answer]] = {}
        self._last_sizes: LRUCache[str, int] = LRUCache(_MAX_SIZES)
        self._leaders = ThreadPoolExecutor(threads, thread_name_prefix="lamella-commit")
        self._is_closed = False

    def submit(
        self,
        table_id: str,
        change: Change,
        *,
        blocks: int = 0,
        alone: bool = False,
        deadline_s: float,
        span_context: SpanContext | None = None,
    ) -> Entry[Change, Answer]:
        """Append a change to its table's queue; it is not started after ``deadline_s`` of the queue's timer.

        The answer is Unavailable, with nothing done, if the service is stopping or cannot start the change.
        """
        entry: Entry[Change, Answer] = Entry(
            change, blocks=blocks, alone=alone, queued_s=self._timer(), deadline_s=deadline_s, span_context=span_context
        )
        self._enqueue(table_id, entry)
        return entry

    def _enqueue(self, table_id: str, entry: Entry[Change, Answer]) -> None:
        with self._lock:
            line = self._lines.get(table_id)
            if line is None:
                line = self._lines[table_id] = _Line()
            line.waiting.append(entry)
            begin, line.has_leader = not line.has_leader, True
        if begin:
            self._send_leader(table_id, line)

    @contextmanager
    def holding(self, table_ids: Iterable[str], *, deadline_s: float) -> Iterator[None]:
        """Hold the queues of tables while the block runs: no group of them is committed by this process meanwhile.

        They are taken in the order of their ids, so that no two callers wait for each other, and each takes its turn
        behind the changes that came first. No thread is used while they are held.

        Raises:
            Unavailable: a turn did not come by ``deadline_s`` of the queue's timer, or the service is stopping.
        """
        lines: list[tuple[str, _Line[Change, Answer]]] = []
        try:
            for table_id in sorted(table_ids):
                line = self._turn(table_id, deadline_s)
                lines.append((table_id, line))  # those that were taken are handed on if one fails
            yield
        finally:
            for table_id, line in lines:
                self._hand_on(table_id, line, 1)

    def _turn(self, table_id: str, deadline_s: float) -> _Line[Change, Answer]:
        """Wait until a table's queue is held."""
        turn = _Turn(None, blocks=0, alone=True, queued_s=self._timer(), deadline_s=deadline_s)
        self._enqueue(table_id, turn)
        line: _Line[Change, Answer]
        try:
            line = turn.answered.result(max(deadline_s - self._timer(), 0.0))
        except TimeoutError:
            if turn.answered.cancel():
                raise Unavailable("too many concurrent commits to the table", retry_after_s=1) from None
            line = turn.answered.result()  # it came a moment ago
        return line

    def waiting(self) -> int:
        """Return how many changes are waiting for a leader, over all tables."""
        with self._lock:
            return sum(len(line.waiting) for line in self._lines.values())

    def close(self) -> None:
        """Finish the groups that run or are next, refuse the entries behind them, and accept nothing more."""
        self._is_closed = True
        self._leaders.shutdown()

    def _send_leader(self, table_id: str, line: _Line[Change, Answer]) -> None:
        try:
            self._leaders.submit(self._serve, table_id, line)
        except BaseException as error:  # the executor was shut down, or no thread could be started
            self._refuse_line(table_id, line, error)
            if not isinstance(error, Exception):
                raise

    def _refuse_line(self, table_id: str, line: _Line[Change, Answer], error: BaseException) -> None:
        """Refuse all waiting entries, since no leader will take them; the next change starts a new line."""
        with self._lock:
            if self._lines.get(table_id) is line:
                del self._lines[table_id]
            left = list(line.waiting)
            line.waiting.clear()
        for entry in left:
            entry.refuse(self._not_begun(error))

    def _not_begun(self, error: BaseException) -> Unavailable:
        text = "the service is stopping" if self._is_closed else "the service could not start the commit; send it again"
        refusal = Unavailable(text, retry_after_s=1)
        refusal.__cause__ = error
        return refusal

    def _serve(self, table_id: str, line: _Line[Change, Answer]) -> None:
        group: list[Entry[Change, Answer]] = []
        try:
            self._take_group(table_id, line, group)
        except BaseException as error:
            # Nothing was started, and the next leader would most likely fail in the same way.
            self._refuse_line(table_id, line, error)
            for entry in group:
                entry.refuse(self._not_begun(error))
            _LOG.warning("cannot start a group of commits", exc_info=error)
            return
        if group and isinstance(group[0], _Turn):
            group[0].answer(line)  # whoever holds the line hands it on
            return
        try:
            if group:
                self._run_group(table_id, group)
        except Exception as error:
            for entry in group:
                entry.refuse(error)
        except BaseException as error:
            unknown = OutcomeUnknown("the service failed during a commit; send it again with the same idempotency key")
            unknown.__cause__ = error
            for entry in group:
                entry.refuse(unknown)
        finally:
            for entry in group:
                entry.refuse(OutcomeUnknown("the commit ended without an answer"))
            self._hand_on(table_id, line, len(group))

    def _hand_on(self, table_id: str, line: _Line[Change, Answer], size: int) -> None:
        """Schedule another leader for the entries that arrived meanwhile."""
        with self._lock:
            if self._lines.get(table_id) is not line:
                return
            again = bool(line.waiting)
            if not again:
                del self._lines[table_id]
            self._last_sizes[table_id] = size
        if again:
            self._send_leader(table_id, line)

    def _take_group(self, table_id: str, line: _Line[Change, Answer], group: list[Entry[Change, Answer]]) -> None:
        """Move the next group from the line to ``group``, which has what was taken even if this fails half-way."""
        with self._lock:
            expected = min(self._last_sizes.get(table_id, 0), self._max_changes)
        if expected > 1:
            self._wait_for_batch(line, expected)
        blocks = 0
        with self._lock:
            waiting = line.waiting
            while waiting and len(group) < self._max_changes:
                entry = waiting[0]
                if group and (entry.alone or blocks + entry.blocks > self._max_blocks):
                    break
                group.append(entry)
                waiting.popleft()
                if not entry.answered.set_running_or_notify_cancel():
                    group.pop()  # its caller gave up
                    continue
                blocks += entry.blocks
                if entry.alone:
                    break

    def _wait_for_batch(self, line: _Line[Change, Answer], expected: int) -> None:
        until = self._timer() + self._batch_wait_s
        while len(line.waiting) < expected and self._timer() < until:
            time.sleep(self._batch_wait_s / 8)
