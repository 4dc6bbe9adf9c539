"""Tables whose files belong to somebody else: where they come from, and bringing them up to date."""

from __future__ import annotations

from typing import Literal

import msgspec

from lamella.snapshot.wire.bounds import Location, Word
from lamella.snapshot.wire.commit import PathColumns, RefusedFile

SourceKind = Literal["directory", "delta", "iceberg"]
SourceMode = Literal["incremental", "full", "dry_run"]


class ExternalSource(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """What an external table follows.

    ``directory``: ``location`` is a folder or a glob. ``delta``: the table's folder. ``iceberg``: ``location`` is a
    metadata file or the folder of a table with a ``version-hint.text``, or else ``catalog`` (one that the service
    knows) and ``table`` name it. ``path_columns``: what to do about a value that only a folder's name gives
    (``day=2024-01-31``): refuse the file, or take the name for a mere name.
    """

    kind: SourceKind
    location: Location | None = None
    catalog: Word | None = None
    table: Location | None = None
    path_columns: PathColumns = "refuse"


class RefreshTable(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``POST .../refresh``.

    ``incremental`` opens the files that are new or changed by size and content id; ``full`` opens all; ``dry_run``
    opens none, and changes nothing. ``strict``: change nothing when one file is refused (None: a Delta or Iceberg
    table is taken as a whole or not at all, and a directory as far as it can be). ``verify``: as of a registration.
    ``location``: the metadata file that an Iceberg table is at by now. ``allow_empty``: a directory without any file
    is no mistake.
    """

    mode: SourceMode = "incremental"
    strict: bool | None = None
    verify: bool = False
    location: Location | None = None
    allow_empty: bool = False


class RefreshTableAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """What a refresh did, or (``dry_run``) would do, in files.

    ``replaced``: other files by now, at the same locations. ``refused``: files that are not in the table, and why.
    ``schema_changes``: changes of columns that were made with it. ``changed`` False: the table is as it was, and
    ``snapshot_id`` is no new snapshot.
    """

    snapshot_id: str
    mode: SourceMode
    changed: bool
    added: int
    removed: int
    replaced: int
    unchanged: int
    source_version: str | None = None
    schema_changes: int = 0
    refused: tuple[RefusedFile, ...] = ()


class RefreshProgress(msgspec.Struct, frozen=True, kw_only=True):
    """``GET .../refresh``: the refresh that this process has under way, if any, and how many files it has opened."""

    running: bool
    phase: Literal["listing", "reading", "committing"] | None = None
    files_done: int = 0
    files_total: int = 0
    started_ms: int | None = None
