"""What waits in the queue of a table: changes of blocks, which are folded together, and steps, which are not."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import msgspec

from lamella.service.catalog import CommitGuard
from lamella.service.idempotency import Claim
from lamella.snapshot.index.directory import Addition
from lamella.snapshot.manifest import Block, SegmentRef, SnapshotPointer
from lamella.snapshot.warehouse import CommitResult
from lamella.snapshot.wire import NoNewMatches

_APPEND: Final = "append"

#: Makes the body of a caller's answer; ``added`` and ``removed`` of the result are the caller's own.
Answer = Callable[[CommitResult], msgspec.Struct]


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """Blocks to be added, whose ``schema_id`` says what they were checked against, and locations to be removed.

    ``segments``: in the place of ``blocks``, when they were written before the change was put into the queue.

    ``index_parts``: what skip indexes know of the blocks. ``no_new_matches``: see
    :class:`~lamella.snapshot.commit.ChangeSet`; such a change shares its snapshot with nobody. ``guard``: what was
    known of clean-ups before the files of the blocks were looked at. ``only_new``: it is refused when one of its files
    was in the table before.
    """

    claim: Claim
    answer: Answer
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

    claim: Claim
    answer: Answer
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
