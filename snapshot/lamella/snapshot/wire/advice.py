"""Advice: scores and sizes of indexes, the effect of a change, and why an index does not help."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from lamella.snapshot.wire.limits import ColumnPaths, Expression, FewPaths, Filters, Moment, Options, Word, Words

AdviceLayer = Literal["block", "segment"]


class AdviceRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """``POST .../advice``: how well look-ups of single values skip blocks, and what indexes would add. Reads no data.

    ``columns``: None: the first 32 columns with an order. ``kinds``: None: all kinds. ``options``: by kind.
    ``budget_bytes``, or ``budget_share`` of the data's bytes: the answer has the most precise index of each kind within
    it. At most one of ``snapshot_id`` (an id, tag or number) and ``timestamp``.
    """

    columns: ColumnPaths | None = None
    kinds: Words | None = None
    options: Annotated[dict[Word, Options], Meta(max_length=1_000)] = {}
    budget_bytes: float | None = None
    budget_share: float | None = None
    snapshot_id: Word | None = None
    timestamp: int | Moment | None = None
    time_zone: Moment = "UTC"
    case_sensitive: bool = False


class IndexSize(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An index over all blocks: with ``options`` about ``size_bytes`` in ``parts`` objects.

    ``share``: relative to the data's bytes. ``fits``: within the budget; None: there is none, or it cannot be
    estimated. ``distinct_per_block`` is an upper limit, and so is the size, if ``is_counted`` is False. ``reason``:
    what cannot be estimated.
    """

    options: dict[str, Any]
    parts: int
    distinct_per_block: float
    is_counted: bool
    size_bytes: float | None = None
    bytes_per_block: float | None = None
    share: float | None = None
    fits: bool | None = None
    reason: str = ""


class Score(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How much of what a look-up need not read is skipped, from 0 to 100.

    ``kind`` None: by the bounds in manifests; else by an index of that kind *in addition* to these. ``score`` None: it
    cannot be estimated from manifests, or only that it lies between ``min_score`` and ``max_score``. ``skip_present``,
    ``skip_absent``: the fraction of all blocks (segments) that is skipped for a value that is present, and for an
    absent one between minimum and maximum.
    """

    column: str
    layer: AdviceLayer
    min_score: float
    max_score: float
    kind: str | None = None
    score: float | None = None
    skip_present: float | None = None
    skip_absent: float | None = None
    size: IndexSize | None = None
    reason: str = ""


class AdviceAnswer(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The scores, best first within a column. ``blocks_seen``: number of evaluated blocks, of ``blocks_total``.

    ``rests_on``: for each column the source of its distinct counts. ``left_out``: columns without scores, and why.
    """

    snapshot_id: str
    blocks_total: int
    blocks_seen: int
    scores: tuple[Score, ...]
    rests_on: dict[str, str] = {}
    left_out: dict[str, str] = {}
    budget_bytes: float | None = None


class IndexChange(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """A candidate index of the table."""

    kind: Word
    expression: Expression
    options: Options = {}
    time_zone: Moment = "UTC"


class WhatIfRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """``POST .../what-if``: estimates what filters would read after one change: one more ``index``, another
    ``cluster_key``, or blocks of about ``rows_per_block`` rows.

    ``filters``: as in a prune; empty: recorded filters, the latest ``recorded`` of them. ``sample_blocks``: number of
    blocks to read, to measure instead of estimating; 0: nothing is read. ``seed``: for the sample of blocks and of
    literals.
    """

    index: IndexChange | None = None
    cluster_key: FewPaths | None = None
    rows_per_block: int | None = None
    filters: Filters = ()
    recorded: int = 100
    sample_blocks: int = 0
    seed: int = 0
    snapshot_id: Word | None = None
    timestamp: int | Moment | None = None
    time_zone: Moment = "UTC"
    case_sensitive: bool = False


class Cost(msgspec.Struct, frozen=True, kw_only=True):
    """What is read: blocks, their data bytes, and the fraction of all blocks that is skipped."""

    blocks: float
    bytes: float
    skip: float


class Forecast(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One filter, used ``times`` times: now, and after the change.

    ``then`` None: it cannot be estimated; ``reason`` states why. ``if_absent``: after the change, if no literal of the
    filter is in the table; ``then`` assumes that they are. ``reason`` with a ``then``: why nothing would change, or
    what is not considered.
    """

    filter: str
    now: Cost
    then: Cost | None = None
    times: int = 1
    if_absent: Cost | None = None
    reason: str = ""


class WhatIfAnswer(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """``now`` and ``then``: averages per filter, over the filters whose ``then`` can be estimated. ``unknown``: number
    of the others; if no filter can be estimated ``then`` is None, and ``now`` covers all of them. ``measured``: from
    a sample of ``blocks_read`` blocks, else nothing was read. ``size``: of the index. ``rests_on``: the sources of
    the answer. ``left_out``: filters that could not be used, and why.
    """

    snapshot_id: str
    blocks_total: int
    bytes_total: int
    now: Cost
    filters: tuple[Forecast, ...]
    then: Cost | None = None
    unknown: int = 0
    measured: bool = False
    blocks_read: int = 0
    size: IndexSize | None = None
    rests_on: tuple[str, ...] = ()
    left_out: dict[str, str] = {}


CandidateKind = Literal[
    "recluster", "cluster_key", "compact", "index", "index_refresh", "drop_index", "purge", "vacuum"
]


class CandidatesRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """``POST .../candidates``: what could be done for the table, the best first. Changes nothing.

    ``top``: how many with a prediction are returned. ``recorded``: the number of recorded filters to replay, the latest
    ones. ``sample_blocks``: number of blocks to read for each index or key, to measure instead of estimating; 0:
    nothing is read. ``seed``: for the sample of blocks and of literals. ``max_bytes``: a recluster, compaction or purge
    rewrites at most so many bytes of files.
    """

    top: Annotated[int, Meta(ge=1, le=100)] = 5
    recorded: Annotated[int, Meta(ge=1, le=1_000)] = 100
    sample_blocks: Annotated[int, Meta(ge=0, le=1_000)] = 0
    seed: Annotated[int, Meta(ge=0)] = 0
    max_bytes: Annotated[int, Meta(ge=1)] | None = None


class CandidateGain(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What one use of a recorded filter reads on average, before and after.

    ``at_least``, ``at_most``: limits of ``after`` where it is known only within them. ``filters``: number of filters
    that the averages cover, used ``times`` times; ``unknown``: number of the others, and ``reason`` why.
    """

    before: Cost
    after: Cost
    filters: int
    times: int
    at_least: Cost | None = None
    at_most: Cost | None = None
    unknown: int = 0
    reason: str = ""


class CandidateCost(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What it takes: ``blocks`` of ``rewritten_bytes`` bytes of files that are read and written anew, blocks of
    ``read_bytes`` that are only read, and ``index_bytes`` of a new index (None: cannot be estimated)."""

    blocks: int = 0
    rewritten_bytes: int = 0
    read_bytes: int = 0
    index_bytes: float | None = 0.0


class Candidate(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One thing that could be done. ``text``: one sentence with the prediction. ``command``: does it.

    ``gain`` None: the reads of the recorded filters do not change, or, with ``missing``, cannot be predicted; this
    says what is missing. ``freed_bytes``: bytes of files that are no longer needed afterwards, the old files of a
    rewrite not counted. ``rests_on``: the sources of the prediction. ``job`` and ``arguments``: the kind of job that
    does it, or a part of it; None: no job does. ``index``, ``index_name``, ``cluster_key``: what the command names.
    """

    kind: CandidateKind
    text: str
    command: str
    gain: CandidateGain | None = None
    freed_bytes: float | None = None
    cost: CandidateCost = CandidateCost()
    rests_on: tuple[str, ...] = ()
    missing: str = ""
    job: str | None = None
    arguments: dict[str, Any] = {}
    index: IndexChange | None = None
    index_name: str | None = None
    cluster_key: tuple[str, ...] = ()


class CandidatesAnswer(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """``candidates``: with a prediction, the best first. ``unpredicted``: those that cannot be predicted. ``tried``:
    number of changes that were evaluated.

    ``filters``: number of filters that were replayed, recorded and reported ones; ``left_out``: recorded filters that
    could not be, and why. ``reported_blocks``: blocks that the filters of readers' reports read now; ``empty_blocks``:
    of these, those reported to have no row.
    """

    snapshot_id: str
    blocks_total: int
    bytes_total: int
    candidates: tuple[Candidate, ...]
    unpredicted: tuple[Candidate, ...] = ()
    tried: int = 0
    filters: int = 0
    reported_blocks: int = 0
    empty_blocks: int = 0
    left_out: dict[str, str] = {}


class WhyNotRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """``POST .../why-not``: why indexes do not help with a filter. ``index``: only the index with this name."""

    filter: Any = None
    index: Word | None = None
    snapshot_id: Word | None = None
    timestamp: int | Moment | None = None
    time_zone: Moment = "UTC"
    case_sensitive: bool = False


WhyCode = Literal[
    "dropped",  # the index was dropped
    "not_usable",  # one of its columns was dropped, or has another type
    "empty",  # no block was indexed yet
    "other_term",  # the predicate is over something else
    "not_answered",  # the kind does not answer such a predicate
    "not_indexed",  # it does not cover the remaining blocks
    "nothing_left",  # bounds alone exclude all blocks
    "may_match",  # all blocks that it covers may match
    "useless",  # it was skipped, because it excluded almost nothing
    "unreadable",  # a part of it could not be read
    "helps",  # it excludes blocks
]


class Why(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One index and one predicate (``predicate`` None: all of them). ``considered``, ``ruled_out``: number of blocks
    that were checked and excluded; ``not_indexed``: remaining blocks that it does not cover."""

    index: str
    kind: str
    expression: str
    code: WhyCode
    reason: str
    predicate: str | None = None
    considered: int = 0
    ruled_out: int = 0
    not_indexed: int = 0


class WhyNotAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """Of ``blocks_total`` blocks, bounds left ``after_bounds``, and all indexes together ``after_indexes``."""

    snapshot_id: str
    blocks_total: int
    after_bounds: int
    after_indexes: int
    answers: tuple[Why, ...]
    predicates: tuple[str, ...]


class RecordedInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A filter that was used ``times`` times: total ``considered`` and ``kept`` blocks and ``kept_bytes``.

    ``mode``: "shape" (without constants), "hashed" (hashes of them), or "full".
    """

    filter: str
    mode: str
    times: int
    considered: int
    kept: int
    kept_bytes: int
    first_ms: int
    last_ms: int


class RecordedList(msgspec.Struct, frozen=True, kw_only=True):
    """The recorded filters of a table, the latest first. ``mode``: what is recorded now."""

    mode: str
    filters: tuple[RecordedInfo, ...]


class RecordedCleared(msgspec.Struct, frozen=True, kw_only=True):
    """How many recorded filters were deleted."""

    filters: int
