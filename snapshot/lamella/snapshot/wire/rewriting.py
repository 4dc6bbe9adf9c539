"""What jobs ask before they rewrite blocks: which ones, and what these are."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from lamella.snapshot.stats import ColumnStats
from lamella.snapshot.wire.bounds import Locations, Moment, Word


class BlocksRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``POST .../blocks``: what tells some blocks of a snapshot (by default the current one) from other files.

    ``sign_urls``: with each a URL by which it can be read for a time, without credentials for the store.
    """

    locations: Locations
    snapshot_id: Word | None = None
    sign_urls: bool = False


class BlockFacts(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A block as a file. ``schema_id``: the schema that it was written with.

    ``key_id``, ``level``: of the cluster key that it was written for, if any. ``url``: whoever has it can read the
    block.
    """

    location: str
    row_count: int
    file_size: int
    content_id: str | None = None
    schema_id: int = 0
    key_id: int | None = None
    level: int = 0
    url: str | None = None


class BlocksAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """The blocks, in the order asked; ``missing`` locations are not in the snapshot.

    ``url_expires_ms``: until when the URLs hold (Unix milliseconds).
    """

    snapshot_id: str
    blocks: tuple[BlockFacts, ...]
    missing: tuple[str, ...] = ()
    url_expires_ms: int | None = None


class PlanRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """``POST .../plan``: what a job would rewrite now.

    ``job``: "compact" puts small blocks together and splits large ones, "recluster" puts rows into the order of the
    cluster key. ``filter``: only blocks that may match it. ``max_bytes``, ``max_blocks``: of blocks that are rewritten.
    ``target_rows``, ``target_bytes``: the size that a block should have. ``target_depth``: how many blocks a key value
    lies in, where it can be had; ``min_gain``: what must be gained for each part of the table that is rewritten (see
    docs/clustering.md).
    """

    job: Literal["compact", "recluster"]
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


class PlannedTask(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Blocks that are written anew together. Tasks have nothing in common: each can be done, and fail, by itself.

    ``pieces``: into how many blocks, about. ``level``: of these. ``blocks_saved``, ``bytes_saved``: what a look-up of a
    thousandth of the rows along the key reads less, expected; of a recluster. ``col_stats``: of each block the key's
    columns, by column id, when the key is a curve.
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
    """The tasks of one run, those that help most first.

    ``reason``: why there is none, or none besides these. ``remaining_blocks``, ``remaining_bytes``: about what later
    runs would rewrite. ``cluster_key``, ``cluster_kind``, ``key_id``: the key in force.
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
