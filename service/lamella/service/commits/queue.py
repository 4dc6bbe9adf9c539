"""Queues of commits, one a table: in the order of arrival, several at a time, by one leader.

The leader is no caller but a thread that works for one group and then lets the next table have its turn, so that a
busy table does not keep others waiting. A leader that fails, in whatever way, answers everybody it took.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future, InvalidStateError, ThreadPoolExecutor
from typing import Final, Generic, TypeVar

import msgspec
from cachetools import LRUCache

from lamella.service.catalog import CommitGuard
from lamella.service.http.idempotency import IdempotencyKey
from lamella.service.telemetry.tracing import SpanContext
from lamella.snapshot.errors import OutcomeUnknown, Unavailable
from lamella.snapshot.index.directory import Addition
from lamella.snapshot.manifest import Block, SegmentRef, SnapshotPointer
from lamella.snapshot.warehouse import CommitResult
from lamella.snapshot.wire import NoNewMatches

_APPEND: Final = "append"

#: Makes the body of a caller's answer; ``added`` and ``removed`` of the result are the caller's own.
MakeAnswer = Callable[[CommitResult], msgspec.Struct]


class BlockChange(msgspec.Struct, frozen=True, kw_only=True):
    """Blocks to be added, whose ``schema_id`` says what they were checked against, and locations to be removed.

    ``segments``: in the place of ``blocks``, when they were written before the change was put into the queue.

    ``index_parts``: what skip indexes know of the blocks. ``no_new_matches``: see
    :class:`~lamella.snapshot.commit.ChangeSet`; such a change shares its snapshot with nobody. ``guard``: what was
    known of clean-ups before the files of the blocks were looked at. ``only_new``: it is refused when one of its files
    was in the table before.
    """

    claim: IdempotencyKey
    answer: MakeAnswer
    blocks: Sequence[Block] = ()
    segments: tuple[SegmentRef, ...] = ()
    removed: tuple[str, ...] = ()
    read_at: SnapshotPointer | None = None
    operation: str = _APPEND
    properties: dict[str, str] = {}
    index_parts: tuple[Addition, ...] = ()
    no_new_matches: NoNewMatches | None = None
    guard: CommitGuard | None = None
    only_new: bool = False

    @property
    def added(self) -> int:
        """How many blocks are added."""
        return len(self.blocks) + sum(ref.summary.block_count for ref in self.segments)

    @property
    def adds_files(self) -> bool:
        """Whether blocks are added that a clean-up might have deleted."""
        return bool(self.blocks or self.segments)

    @property
    def wrote_since_ms(self) -> int | None:
        """When the first of its objects may have been written, if that was before it was led."""
        return self.guard.since_ms if self.segments and self.guard is not None else None

    @property
    def is_plain_append(self) -> bool:
        """Whether it may share its segments with others."""
        is_append = bool(self.blocks) and not self.removed and self.operation == _APPEND
        return is_append and not (self.properties or self.index_parts or self.no_new_matches is not None)


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """A commit of another kind, which shares its snapshot with nobody.

    ``step`` writes the snapshot that follows a base, and is called again when the swap was lost. ``while_kept``: only
    if the snapshot with this ``seq`` is still in the history. ``guard``: what was known of clean-ups before the objects
    were looked at, or written, that the step takes up.
    """

    claim: IdempotencyKey
    answer: MakeAnswer
    step: Callable[[SnapshotPointer], CommitResult]
    while_kept: int | None = None
    guard: CommitGuard | None = None

    @property
    def adds_files(self) -> bool:
        """Whether objects are taken up that a clean-up might have deleted."""
        return self.guard is not None

    @property
    def wrote_since_ms(self) -> int | None:
        """When the first of its objects may have been written, if that was before it was led."""
        return None if self.guard is None else self.guard.since_ms


Change = TypeVar("Change")
Answer = TypeVar("Answer")

_LOG: Final = logging.getLogger("lamella.commits")
#: Tables whose last group's size is remembered.
_SIZES_KEPT: Final = 1024


class Entry(Generic[Change, Answer]):
    """A change that waits for its answer. ``blocks``: how much of a group it takes; ``alone``: it shares none.

    ``place``: in which trace it came.
    """

    __slots__ = ("alone", "answered", "blocks", "change", "deadline_s", "place", "queued_s")

    def __init__(
        self,
        change: Change,
        *,
        blocks: int,
        alone: bool,
        queued_s: float,
        deadline_s: float,
        place: SpanContext | None = None,
    ) -> None:
        self.change = change
        self.blocks = blocks
        self.alone = alone
        self.queued_s = queued_s
        self.deadline_s = deadline_s
        self.place = place
        self.answered: Future[Answer] = Future()

    def answer(self, value: Answer) -> None:
        """Let the caller have its answer; the first one counts."""
        try:
            self.answered.set_result(value)
        except InvalidStateError:
            return

    def refuse(self, error: BaseException) -> None:
        """Let the caller have an error, unless it was answered."""
        try:
            self.answered.set_exception(error)
        except InvalidStateError:
            return


class _Line(Generic[Change, Answer]):
    """The entries of one table, and whether a leader is at work or on its way."""

    def __init__(self) -> None:
        self.waiting: deque[Entry[Change, Answer]] = deque()
        self.led = False


class CommitQueue(Generic[Change, Answer]):
    """Takes changes and has ``lead(table_id, group)`` answer them in groups, ``threads`` tables at a time.

    A group holds at most ``max_changes`` entries and, unless its first one alone has more, ``max_blocks`` blocks.
    Where the last group had company, the leader waits ``linger_s`` for more before it takes the next: those who were
    answered together are about to come back together.
    """

    def __init__(
        self,
        lead: Callable[[str, Sequence[Entry[Change, Answer]]], None],
        *,
        threads: int,
        max_changes: int,
        max_blocks: int,
        linger_s: float,
        timer: Callable[[], float] = time.monotonic,
    ) -> None:
        self._lead = lead
        self._max_changes = max_changes
        self._max_blocks = max_blocks
        self._linger_s = linger_s
        self._timer = timer
        self._lock = threading.Lock()
        self._lines: dict[str, _Line[Change, Answer]] = {}
        self._last_sizes: LRUCache[str, int] = LRUCache(_SIZES_KEPT)
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
        place: SpanContext | None = None,
    ) -> Entry[Change, Answer]:
        """Put a change at the end of its table's queue; it is not begun after ``deadline_s`` of the queue's timer.

        The answer is Unavailable, with nothing done, where the service is ending or cannot begin the change.
        """
        entry: Entry[Change, Answer] = Entry(
            change, blocks=blocks, alone=alone, queued_s=self._timer(), deadline_s=deadline_s, place=place
        )
        with self._lock:
            line = self._lines.get(table_id)
            if line is None:
                line = self._lines[table_id] = _Line()
            line.waiting.append(entry)
            begin, line.led = not line.led, True
        if begin:
            self._send_leader(table_id, line)
        return entry

    def waiting(self) -> int:
        """How many changes no leader has taken yet, over all tables."""
        with self._lock:
            return sum(len(line.waiting) for line in self._lines.values())

    def close(self) -> None:
        """Finish the groups that are at work or next in line, refuse what waits behind, and take nothing more."""
        self._is_closed = True
        self._leaders.shutdown()

    def _send_leader(self, table_id: str, line: _Line[Change, Answer]) -> None:
        try:
            self._leaders.submit(self._serve, table_id, line)
        except BaseException as error:  # the executor was shut down, or the system starts no thread
            self._refuse_line(table_id, line, error)
            if not isinstance(error, Exception):
                raise

    def _refuse_line(self, table_id: str, line: _Line[Change, Answer], error: BaseException) -> None:
        """Refuse all that no leader has taken, since none comes for them; the next change begins a new line."""
        with self._lock:
            if self._lines.get(table_id) is line:
                del self._lines[table_id]
            left = list(line.waiting)
            line.waiting.clear()
        for entry in left:
            entry.refuse(self._not_begun(error))

    def _not_begun(self, error: BaseException) -> Unavailable:
        text = "the service is ending" if self._is_closed else "the service could not begin the commit; send it again"
        refusal = Unavailable(text, retry_after_s=1)
        refusal.__cause__ = error
        return refusal

    def _serve(self, table_id: str, line: _Line[Change, Answer]) -> None:
        group: list[Entry[Change, Answer]] = []
        try:
            self._take_group(table_id, line, group)
        except BaseException as error:
            # Nothing was begun, and the next leader would most likely fail in the same way.
            self._refuse_line(table_id, line, error)
            for entry in group:
                entry.refuse(self._not_begun(error))
            _LOG.warning("a group of commits could not be begun", exc_info=error)
            return
        try:
            if group:
                self._lead(table_id, group)
        except Exception as error:
            for entry in group:
                entry.refuse(error)
        except BaseException as error:
            unknown = OutcomeUnknown("the service failed in a commit; ask again with the same idempotency key")
            unknown.__cause__ = error
            for entry in group:
                entry.refuse(unknown)
        finally:
            for entry in group:
                entry.refuse(OutcomeUnknown("the commit ended without an answer"))
            self._hand_on(table_id, line, len(group))

    def _hand_on(self, table_id: str, line: _Line[Change, Answer], size: int) -> None:
        """Have another leader come for those that came meanwhile."""
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
            self._linger(line, expected)
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

    def _linger(self, line: _Line[Change, Answer], expected: int) -> None:
        until = self._timer() + self._linger_s
        while len(line.waiting) < expected and self._timer() < until:
            time.sleep(self._linger_s / 8)
