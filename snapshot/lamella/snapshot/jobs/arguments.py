"""The arguments of each kind of job. A member is the option of the same name of the kind's command."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

Count = Annotated[int, msgspec.Meta(ge=1)]
Whole = Annotated[int, msgspec.Meta(ge=0)]
Share = Annotated[float, msgspec.Meta(gt=0, le=1)]
#: Words of a command line hold no NUL.
_NO_NUL = r"\A[^\x00]*\Z"
Text = Annotated[str, msgspec.Meta(min_length=1, max_length=100_000, pattern=_NO_NUL)]
Name = Annotated[str, msgspec.Meta(min_length=1, max_length=255, pattern=_NO_NUL)]


class Arguments(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """No arguments; the base of all others."""


class RewriteArguments(Arguments, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """How blocks are written anew. ``memory_mib``: of rows that one task holds. ``processes``: of the engine that runs
    on the worker's machine. ``scratch``: a folder for rows on their way, which all tasks see."""

    memory_mib: Count | None = None
    processes: Count | None = None
    scratch: Text | None = None


class CompactArguments(RewriteArguments, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """``where``: only blocks that may hold a row of this filter. ``max_bytes``, ``max_blocks``: rewrite no more than
    that. ``target_rows``, ``target_bytes``: how large a block should be.
    """

    where: Text | None = None
    max_bytes: Count | None = None
    max_blocks: Count | None = None
    target_rows: Count | None = None
    target_bytes: Count | None = None


class ReclusterArguments(CompactArguments, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """``target_depth``: how many blocks a key value should lie in. ``min_gain``: what must be gained for each part that
    is rewritten. ``repeat``: run so often, or until nothing is left."""

    target_depth: Count | None = None
    min_gain: Annotated[float, msgspec.Meta(ge=0)] | None = None
    repeat: Count | None = None


class RegroupArguments(Arguments, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """``by``: columns, ``a,b``, of a key of that ``kind`` in place of the table's cluster key. ``kind``: of the key
    that ``by`` names. ``max_segments``: that are replaced at once. ``target_depth``: how many segments a key value
    should lie in. ``min_gain``: what must be gained for each part of the segments that is replaced."""

    by: Text | None = None
    kind: Literal["linear", "zorder", "hilbert"] | None = None
    max_segments: Annotated[int, msgspec.Meta(ge=2, le=256)] | None = None
    target_depth: Count | None = None
    min_gain: Annotated[float, msgspec.Meta(ge=0)] | None = None


class IndexRefreshArguments(Arguments, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """``index``: its name. ``mode``: "incremental" indexes the blocks that it does not know, "full" all blocks anew,
    "quick" only what needs no row to be read. ``max_blocks``: commit after so many blocks at most."""

    index: Name
    mode: Literal["incremental", "full", "quick"] = "incremental"
    max_blocks: Count | None = None


class DeleteArguments(RewriteArguments, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """``where``: the rows that go. ``time_zone``: of timestamps in it that have none."""

    where: Text
    time_zone: Name | None = None


class UpdateArguments(RewriteArguments, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """``set``: SQL by column. ``where``: the rows that change. ``all``: every row changes; one of the two is needed."""

    set: Annotated[dict[Name, Text], msgspec.Meta(min_length=1)]
    where: Text | None = None
    all: bool = False

    def __post_init__(self) -> None:
        if (self.where is None) != self.all:
            raise ValueError("give exactly one of where and all")


class VacuumArguments(Arguments, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """As of ``lamella vacuum``: without ``execute`` it only says what would be done.

    ``older_than``: expire snapshots that were superseded so long ago (``7d``, ``12h``), in place of the table's
    retention. ``include_external_blocks``: also delete files outside of the table's folder that were blocks of the
    snapshots that expire now, and of no snapshot of any table that stays.
    """

    execute: bool = False
    older_than: Name | None = None
    include_external_blocks: bool = False


class VacuumDroppedArguments(Arguments, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """As of ``lamella vacuum --dropped``. ``include_external_blocks``: also delete files outside of the tables' folders
    that were blocks of these tables, and of no snapshot of any table that stays."""

    execute: bool = False
    include_external_blocks: bool = False


class VerifyArguments(Arguments, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """As of ``lamella verify``.

    ``snapshot``: one of the history instead of the current one. ``deep``: read the values of some blocks, and answer
    random filters from them. ``sample``: the share of blocks that this reads. ``blocks``: how many blocks it reads.
    ``seed``: draws these blocks and filters; another one each time unless it is said. ``filters``: of each block.
    ``no_files``: look only at what Lamella wrote, not at the blocks' files. ``pages``: every segment should have a page
    companion. ``history``: look at so many snapshots back. ``repair``: write damaged companions again.
    """

    snapshot: Name | None = None
    deep: bool = False
    sample: Share | None = None
    blocks: Whole | None = None
    seed: int | None = None
    filters: Whole | None = None
    no_files: bool = False
    pages: bool = False
    history: Whole | None = None
    repair: bool = False


class RefreshArguments(Arguments, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """As of ``lamella external refresh``.

    ``full``: open every file, also those that look unchanged. ``strict``: change nothing when a file is refused.
    ``lenient``: leave out a file that is refused. ``verify``: read every value, and do not believe the files'
    statistics. ``location``: the metadata file that an Iceberg table is at by now. ``allow_empty``: a directory without
    any file is no mistake.
    """

    full: bool = False
    strict: bool = False
    lenient: bool = False
    verify: bool = False
    location: Text | None = None
    allow_empty: bool = False


class ExportIcebergArguments(Arguments, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """As of ``lamella export iceberg``.

    ``snapshot``: an id or a tag; the current one unless it is said. ``location``: the folder of the export, in place of
    one in the table's own. ``columns``: ``a,b``, of which statistics are exported, in place of the first hundred.
    ``hold``: the tag that keeps the exported snapshot from expiring. ``no_hold``: let it expire as any other.
    ``trust_files``: do not open registered files to see whether Iceberg's readers can read them.
    """

    snapshot: Name | None = None
    location: Text | None = None
    columns: Text | None = None
    hold: Name | None = None
    no_hold: bool = False
    trust_files: bool = False
