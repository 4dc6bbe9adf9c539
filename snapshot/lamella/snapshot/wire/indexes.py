"""Skip indexes: definitions, coverage, and operations on them."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from lamella.snapshot.wire.limits import MAX_LOCATIONS, Expression, Location, Moment, Options, Token, Word

RefreshMode = Literal["incremental", "full", "quick"]


class CreateIndex(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``POST .../indexes``: creates an index of a kind over a column or an expression of the filter language.

    ``options``: see ``GET /v1/index-kinds``; missing options have their defaults. ``time_zone``: for functions in the
    expression that depend on one.
    """

    name: Word
    kind: Word
    expression: Expression
    options: Options = {}
    time_zone: Moment = "UTC"


class Coverage(msgspec.Struct, frozen=True, kw_only=True):
    """The coverage of a snapshot's ``blocks`` by an index.

    ``not_indexed`` blocks are always kept by a prune. ``stale`` of them are at a location that the index has for
    another file. ``unused_entries``: entries for blocks that are not in the snapshot, and duplicate entries.
    """

    blocks: int
    indexed: int
    not_indexed: int
    stale: int = 0
    unused_entries: int = 0


class IndexInfo(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An index in a snapshot.

    ``dtype``: the type of the expression when the index was created. ``dropped_ms`` (Unix milliseconds): it is not used
    since then. ``not_usable``: why it is not used although it was not dropped. ``parts``, ``size_bytes``: objects and
    their bytes; ``bytes_per_block``: bytes divided by the blocks that they cover. ``coverage`` is None in the answers
    of drop and restore.
    """

    index_id: str
    name: str
    kind: str
    expression: str
    dtype: str
    options: dict[str, Any]
    time_zone: str
    created_ms: int
    snapshot_id: str
    dropped_ms: int | None = None
    not_usable: str | None = None
    parts: int = 0
    size_bytes: int = 0
    bytes_per_block: float = 0.0
    coverage: Coverage | None = None


class IndexList(msgspec.Struct, frozen=True, kw_only=True):
    """The indexes of a table, ordered by name."""

    snapshot_id: str
    indexes: tuple[IndexInfo, ...]


class IndexOption(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An option of an index kind. ``minimum`` and ``maximum`` limit numbers."""

    name: str
    type: str
    default: Any
    text: str
    minimum: float | None = None
    maximum: float | None = None


class IndexKind(msgspec.Struct, frozen=True, kw_only=True):
    """A kind of index that the service can build and use."""

    name: str
    text: str
    options: tuple[IndexOption, ...] = ()


class IndexKindList(msgspec.Struct, frozen=True, kw_only=True):
    """All kinds of indexes, ordered by name."""

    kinds: tuple[IndexKind, ...]


class RefreshRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """``POST .../indexes/{index}/refresh``: one part of a refresh.

    ``mode``: "incremental" indexes the blocks that the index does not cover, from the filters in their files if it can
    use these; "full" indexes all blocks again, from their values; "quick" reads no rows, and so only uses filters in
    files. "full" and "quick" also remove entries of blocks that left the table. ``max_blocks``, ``max_ms``: limits of
    this part; the time is approximate. ``page_token``: continues where the previous answer ended.
    """

    mode: RefreshMode = "incremental"
    max_blocks: int | None = None
    max_ms: float | None = None
    page_token: Token | None = None


class LeftOutBlock(msgspec.Struct, frozen=True, kw_only=True):
    """A block that was not indexed, and why."""

    location: str
    reason: str


class RefreshAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """One part of a refresh, or all of it.

    ``snapshot_id``: the current snapshot, with what was built. ``indexed`` blocks with ``row_count`` rows are in
    ``parts`` new objects of ``size_bytes``. ``left_out`` were tried and are not indexed; this refresh does not try them
    again. ``remaining`` blocks are still to be tried: send the request again with ``next_page_token`` until it is None.
    ``coverage``: of the table, in the last part.
    """

    snapshot_id: str
    mode: RefreshMode
    indexed: int
    row_count: int
    parts: int
    size_bytes: int
    left_out: tuple[LeftOutBlock, ...]
    remaining: int
    coverage: Coverage | None = None
    next_page_token: str | None = None

    @property
    def done(self) -> bool:
        """Returns whether this was the last part."""
        return self.next_page_token is None


class PartSent(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A part that was built elsewhere and written to the table's ``_ix`` folder.

    ``keys``: the keys of its blocks in order, 16 bytes each, both halves little-endian
    (:mod:`lamella.snapshot.manifest.block_key`); in JSON as Base64. ``blocks``: in a commit, instead of keys, the
    indexes of its blocks among those that are ``added`` (from 0; then those of ``added_from``), in the part's order.
    """

    location: Location
    size_bytes: int
    tail_bytes: int
    tail_sha256: Word
    keys: Annotated[bytes, Meta(max_length=16 * MAX_LOCATIONS)] = b""
    blocks: Annotated[tuple[int, ...], Meta(max_length=MAX_LOCATIONS)] = ()


class PartsRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``POST .../indexes/{index}/parts``: adds parts that were built elsewhere. ``index_id``: the index they are for;
    the request fails if the name now belongs to another index."""

    parts: Annotated[tuple[PartSent, ...], Meta(max_length=10_000)]
    index_id: Word


class PartsAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """The snapshot in which the index has the parts, and how many blocks they cover."""

    snapshot_id: str
    parts: int
    blocks: int


class OptimiseRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """``POST .../indexes/{index}/optimise``: one part of an optimization, of about ``max_ms``."""

    max_ms: float | None = None


class OptimiseAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """One part of an optimization, or all of it.

    ``regrouped`` parts were written in place of ``moved_from`` others. ``lost``: blocks in parts that cannot be read,
    which are no longer indexed. ``remaining`` groups of segments are still to be processed: send the same request again
    until there are none.
    """

    snapshot_id: str
    regrouped: int
    moved_from: int
    lost: int
    remaining: int


def merged_refresh(parts: list[RefreshAnswer]) -> RefreshAnswer:
    """Merges the parts of one refresh into one answer."""
    last = parts[-1]
    return msgspec.structs.replace(
        last,
        indexed=sum(part.indexed for part in parts),
        row_count=sum(part.row_count for part in parts),
        parts=sum(part.parts for part in parts),
        size_bytes=sum(part.size_bytes for part in parts),
        left_out=tuple(each for part in parts for each in part.left_out),
    )


def merged_optimise(parts: list[OptimiseAnswer]) -> OptimiseAnswer:
    """Merges the parts of one optimization into one answer."""
    return msgspec.structs.replace(
        parts[-1],
        regrouped=sum(part.regrouped for part in parts),
        moved_from=sum(part.moved_from for part in parts),
        lost=sum(part.lost for part in parts),
    )
