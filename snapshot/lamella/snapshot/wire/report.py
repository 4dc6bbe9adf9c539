"""What a prune says of its own work."""

from __future__ import annotations

from typing import Literal

import msgspec

from lamella.snapshot.wire.feedback import FeedbackUse


class NotUsed(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A part of the filter that could not prune, and why."""

    predicate: str
    reason: str


class PredicateUse(msgspec.Struct, frozen=True, kw_only=True):
    """With ``explain``: a predicate, its column, and how many of the considered blocks it rules out on its own."""

    predicate: str
    column: str
    considered: int
    ruled_out: int
    unknown: int


class LayerUse(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """With ``explain``: what one predicate decides in one layer, on its own.

    Of the ``considered`` entries ``none`` hold no match, ``all`` match wholly, ``some`` overlap, and ``unknown`` are
    kept for want of proof; ``reasons`` says what was wanting, with the number of entries for each reason.
    """

    predicate: str
    layer: Literal["snapshot", "segment", "block"]
    considered: int
    none: int
    some: int
    all: int
    unknown: int
    reasons: dict[str, int] = {}


class LimitUse(msgspec.Struct, frozen=True, kw_only=True):
    """What a ``limit`` did. ``certain_rows``: rows that are proven to match, in the blocks looked at.

    ``decided``: they are enough, so that blocks were left out (or, with ``order_by``, a boundary was found).
    """

    limit: int
    certain_rows: int
    decided: bool


class PageUse(msgspec.Struct, frozen=True, kw_only=True):
    """Where page statistics came from: columns of blocks out of memory and of page companions, files that were opened.

    ``reasons``: why pages of some blocks are not known or not told apart, with the number of blocks.
    """

    cells_cached: int
    cells_from_companions: int
    files_read: int
    reasons: dict[str, int] = {}


class Stage(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One step of the funnel: entries looked at and kept, the data bytes of what was kept, and the time it took.

    The entries of stage "page" are rows.
    """

    stage: str
    considered: int
    kept: int
    bytes: int
    ms: float


class IndexUse(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """A skip index that was asked: about ``considered`` blocks, of which it ruled out some.

    ``not_indexed``: blocks that it does not know, or knew as other files; they stay. ``parts`` objects were opened, and
    ``bytes`` of them read. ``stopped``: why not all blocks were asked about; ``failure``: what could not be read of
    the index, whose blocks stay.
    """

    name: str
    kind: str
    expression: str
    considered: int
    ruled_out: int
    not_indexed: int
    parts: int
    bytes: int
    ms: float
    stopped: str | None = None
    failure: str | None = None


class Report(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How the answer came about. Totals are the snapshot's own.

    ``from_cache``: the same question was asked of this snapshot before; the stages are those of then, and took no time
    now. ``reused_blocks``: blocks that an earlier prune, perhaps of another snapshot, had tested with this filter.
    """

    stages: tuple[Stage, ...]
    not_used: tuple[NotUsed, ...] = ()
    blocks_total: int
    rows_total: int
    bytes_total: int
    filter: str | None = None
    predicates: tuple[PredicateUse, ...] | None = None
    layers: tuple[LayerUse, ...] | None = None
    limit: LimitUse | None = None
    indexes: tuple[IndexUse, ...] = ()
    pages: PageUse | None = None
    feedback: FeedbackUse | None = None
    from_cache: bool = False
    reused_blocks: int = 0
