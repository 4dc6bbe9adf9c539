"""Samples of rows."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from lamella.snapshot.wire.limits import ColumnPaths, Moment, Word

#: Most rows, and most blocks that are read, of one sample.
MAX_SAMPLE_ROWS = 1_000
MAX_SAMPLE_BLOCKS = 1_000

#: What ended the reading: enough rows; the bounds on blocks, on bytes of files, on time, or on the size of the answer.
SampleBound = Literal["rows", "blocks", "bytes", "time", "answer_bytes"]


#: A value of a row in JSON.
SampleValue = bool | int | float | str | list[Any] | dict[str, Any] | None


class SampleRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """``POST .../sample``: some rows of a table, which the service reads from its files.

    ``filter``: only rows for which it is true; None: any rows. ``columns``: None: all that have a form in JSON.
    ``rows``: at most so many. ``max_blocks``, ``max_bytes``, ``max_ms``: what may be read, and for how long; the
    service reads no more than its settings allow. At most one of ``snapshot_id`` (an id, tag or number) and
    ``timestamp``.
    """

    filter: Any = None
    columns: ColumnPaths | None = None
    rows: Annotated[int, Meta(ge=1, le=MAX_SAMPLE_ROWS)] = 100
    snapshot_id: Word | None = None
    timestamp: int | Moment | None = None
    time_zone: Moment = "UTC"
    case_sensitive: bool = False
    max_blocks: Annotated[int, Meta(ge=1, le=MAX_SAMPLE_BLOCKS)] = 16
    max_bytes: Annotated[int, Meta(ge=1)] | None = None
    max_ms: float | None = None


class SampleColumn(msgspec.Struct, frozen=True, kw_only=True):
    """A column of the rows, and its type as text: ``list<struct<int32, string>>``."""

    name: str
    type: str


class SampleAnswer(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Rows of a snapshot. Each is a list with a value for each of ``columns``, as ``docs/scan.md`` describes.

    Of ``blocks_total`` blocks ``blocks_selected`` may have a row for which the filter is true, and ``blocks_read`` of
    these were read, ``bytes_read`` bytes of their files. ``complete``: all of them were, and the answer has every row
    that matches; otherwise ``stopped`` says what ended the reading. The rows are any that match, not drawn at random.
    ``left_out``: columns that have no form in JSON, and why.
    """

    snapshot_id: str
    timestamp_ms: int
    columns: tuple[SampleColumn, ...]
    rows: list[list[SampleValue]]
    complete: bool
    stopped: SampleBound | None = None
    blocks_total: int
    blocks_selected: int
    blocks_read: int
    bytes_read: int
    left_out: dict[str, str] = {}
