"""Layout of a table, and the requests of jobs that rewrite blocks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import msgspec

from lamella.snapshot.manifest import ClusterKind, DeleteFile, live_rows
from lamella.snapshot.stats import Bound, ColumnStats
from lamella.snapshot.wire.advice import Cost
from lamella.snapshot.wire.limits import FewPaths, Locations, Moment, ReaderFeatures, Word


class DepthFigures(msgspec.Struct, frozen=True, kw_only=True):
    """How many of n blocks or segments overlap on a key.

    Depth of one: the maximum number that overlap at a point within it, including itself; overlaps: how many others
    share a part of the key's range with it. ``histogram``: how many of the n have a depth up to each key and above the
    previous one: 1 to 16, then powers of two. ``is_exact``: False if a sample was evaluated.
    """

    average_depth: float
    average_overlaps: float
    p50_depth: int
    p95_depth: int
    p99_depth: int
    max_depth: int
    histogram: dict[int, int]
    is_exact: bool = True


class LookUpFigures(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The expected cost of look-ups: a range of the key with the fraction ``share`` of all rows (0: the value of one
    row), beginning anywhere; and their cost in the best layout of blocks of these sizes.

    ``column``: for a key along a curve, ranges of this column alone; None: of all columns of the key.
    """

    share: float
    blocks: float
    bytes: float
    ideal_blocks: float
    ideal_bytes: float
    column: str | None = None


class RecordedCost(msgspec.Struct, frozen=True, kw_only=True):
    """A filter that was used ``times`` times, and what it reads of the snapshot."""

    filter: str
    times: int
    cost: Cost


class ClusteringAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """The layout of a snapshot for a key: its own (``key_id``) or a candidate (None).

    ``blocks`` with ``row_count`` rows and ``file_size_bytes`` were evaluated, of ``blocks_total``: those that have
    rows, and may match the filter. Of these ``constant_blocks`` have a single key value, ``unclustered_blocks`` were
    not written for this key, ``unimprovable_blocks`` are no longer rewritten for it, and ``unknown_blocks`` have an
    unknown bound; ``small_blocks``, ``perfect_blocks`` and ``large_blocks`` compare with the target size of jobs.
    ``levels``: number of blocks of each level, among those written for this key.

    ``depth``: of the blocks. ``segment_depth``: of all ``segments_total`` segments, by their recorded bounds;
    ``segments_opened``: the expected number of them that a look-up of a thousandth of the rows opens. ``recorded``:
    what the recorded filters of the table read; ``left_out``: why some cannot be replayed.
    """

    snapshot_id: str
    timestamp_ms: int
    columns: tuple[str, ...]
    kind: ClusterKind
    key_id: int | None
    blocks_total: int
    segments_total: int
    blocks: int
    row_count: int
    file_size_bytes: int
    depth: DepthFigures
    segment_depth: DepthFigures
    segments_opened: float
    constant_blocks: int
    unclustered_blocks: int
    unimprovable_blocks: int
    unknown_blocks: int
    small_blocks: int
    perfect_blocks: int
    large_blocks: int
    levels: dict[int, int] = {}
    look_ups: tuple[LookUpFigures, ...] = ()
    recorded: tuple[RecordedCost, ...] = ()
    left_out: dict[str, str] = {}


class RegroupRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """``POST .../regroup``: one part of a regrouping. ``key``, ``kind``: for another key than the table's own.

    ``max_segments``: maximum number of segments to replace; the part ends after about ``max_ms``. ``target_depth``: how
    many segments may cover a key value, where possible; ``min_gain``: minimum ratio of gain to the fraction of the
    segments that is replaced. ``dry_run``: only report what would be done.
    """

    key: FewPaths = ()
    kind: ClusterKind = "linear"
    max_segments: int | None = None
    max_ms: float | None = None
    target_depth: int | None = None
    min_gain: float | None = None
    dry_run: bool = False


class RegroupAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """One part of a regrouping, or all of it.

    ``replaced`` segments with ``blocks`` blocks became ``made`` ones, in ``groups`` groups; ``given_up`` groups were
    not regrouped, because concurrent commits rewrote one of their segments. ``predicted_before`` and
    ``predicted_after``: the expected number of segments that a look-up of a thousandth of the rows opens, by the
    positions of blocks; ``measured_before`` and ``measured_after``: the same by the recorded bounds of the old and of
    the new segments (None: nothing was written). ``remaining``: the approximate number of segments still to be
    replaced; send the request again until there are none, or nothing was replaced. ``reason``: why there was nothing
    (more) to do.
    """

    snapshot_id: str
    groups: int
    replaced: int
    made: int
    blocks: int
    predicted_before: float
    predicted_after: float
    reason: str
    remaining: int
    given_up: int = 0
    measured_before: float | None = None
    measured_after: float | None = None


def merged_regroup(parts: Sequence[RegroupAnswer]) -> RegroupAnswer:
    """Merges the parts of one regrouping into one answer."""
    first, last = parts[0], parts[-1]
    measured = [part for part in parts if part.measured_after is not None]
    return msgspec.structs.replace(
        last,
        groups=sum(part.groups for part in parts),
        replaced=sum(part.replaced for part in parts),
        made=sum(part.made for part in parts),
        blocks=sum(part.blocks for part in parts),
        given_up=sum(part.given_up for part in parts),
        predicted_before=first.predicted_before,
        measured_before=measured[0].measured_before if measured else None,
        measured_after=measured[-1].measured_after if measured else None,
    )


class BlocksRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``POST .../blocks``: the file identity of some blocks of a snapshot (by default the current one).

    ``sign_urls``: with each a URL through which it can be read for a limited time, without credentials for the store.
    ``reader_features``: as in :class:`PruneRequest`.
    """

    locations: Locations
    snapshot_id: Word | None = None
    sign_urls: bool = False
    reader_features: ReaderFeatures = ()


class BlockFacts(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A block as a file. ``schema_id``: the schema that it was written with.

    ``key_id``, ``level``: of the cluster key that it was written for, if any. ``url``: anyone who has it can read the
    block. ``constants``, ``deletes``: as in :class:`PrunedBlock`.
    """

    location: str
    row_count: int
    file_size: int
    content_id: str | None = None
    schema_id: int = 0
    key_id: int | None = None
    level: int = 0
    url: str | None = None
    constants: dict[int, Bound | None] = {}
    deletes: tuple[DeleteFile, ...] = ()

    @property
    def live_row_count(self) -> int | None:
        """Returns the number of rows that are not deleted; None: unknown."""
        return live_rows(self.row_count, self.deletes)

    def __hash__(self) -> int:
        """Hashes what identifies the file; a dict of constants has no hash."""
        return hash((self.location, self.file_size, self.content_id))


class BlocksAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """The blocks, in the order of the request; ``missing`` locations are not in the snapshot.

    ``url_expires_ms``: until when the URLs are valid (Unix milliseconds).
    """

    snapshot_id: str
    blocks: tuple[BlockFacts, ...]
    missing: tuple[str, ...] = ()
    url_expires_ms: int | None = None


#: What can be planned.
RewriteJob = Literal["compact", "recluster", "purge"]


class PlanRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """``POST .../plan``: what a job would rewrite now.

    ``job``: "compact" merges small blocks and splits large ones, "recluster" sorts rows by the cluster key, "purge"
    writes blocks anew without their deleted rows. ``filter``: only blocks that may match it. ``max_bytes``,
    ``max_blocks``: limits on the blocks that are rewritten. ``target_rows``, ``target_bytes``: the target size of a
    block. ``target_depth``: how many blocks may cover a key value, where possible; ``min_gain``: minimum ratio of gain
    to the fraction of the table that is rewritten (see docs/clustering.md). ``min_deleted_share``: for a purge, minimum
    share of a block's rows that are deleted; by default a tenth. ``reader_features``: as in :class:`PruneRequest`.
    """

    job: RewriteJob
    snapshot_id: Word | None = None
    filter: Any = None
    time_zone: Moment = "UTC"
    case_sensitive: bool = False
    max_bytes: int | None = None
    max_blocks: int | None = None
    target_rows: int | None = None
    target_bytes: int | None = None
    target_depth: int | None = None
    min_gain: float | None = None
    min_deleted_share: float | None = None
    reader_features: ReaderFeatures = ()


class PlannedTask(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Blocks that are rewritten together. Tasks are independent: each can succeed or fail by itself.

    ``pieces``: the approximate number of new blocks. ``level``: of these. ``blocks_saved``, ``bytes_saved``: for a
    recluster, the expected reduction for a look-up of a thousandth of the rows along the key. ``col_stats``: the key's
    columns of each block, by column id, if the key is a curve.
    """

    blocks: tuple[BlockFacts, ...]
    row_count: int
    file_size_bytes: int
    pieces: int
    level: int = 0
    blocks_saved: float = 0.0
    bytes_saved: float = 0.0
    col_stats: tuple[dict[int, ColumnStats], ...] = ()


class PlanAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """The tasks of one run, the most effective ones first.

    ``reason``: why there are no tasks, or no more than these. ``remaining_blocks``, ``remaining_bytes``: about what
    later runs would rewrite. ``cluster_key``, ``cluster_kind``, ``key_id``: the current key.
    """

    snapshot_id: str
    tasks: tuple[PlannedTask, ...]
    reason: str
    blocks_total: int
    file_size_bytes_total: int
    cluster_key: tuple[str, ...] = ()
    cluster_kind: str = "linear"
    key_id: int | None = None
    remaining_blocks: int = 0
    remaining_bytes: int = 0
