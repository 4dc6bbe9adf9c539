"""The kinds of jobs: the arguments that each takes, and the command that runs it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from importlib.metadata import entry_points
from typing import Annotated, Any, Final, Literal

import msgspec

from lamella.snapshot.errors import InvalidRequest

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
    sidecar. ``history``: look at so many snapshots back. ``repair``: write damaged sidecars again.
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


# The registry of job kinds. A kind is one entry: its name, its arguments, its command.
#
# The service checks the arguments of a job by it, the worker makes a command line of it; neither knows a kind by name.
# Packages add their own by an entry point of the group ``lamella.job_kinds`` that gives a ``JobKind``.

GROUP: Final = "lamella.job_kinds"
_PLACE: Final = re.compile(r"(?P<message>.*) - at `\$(?P<path>.*)`", re.DOTALL)


class JobKind(msgspec.Struct, frozen=True, kw_only=True):
    """A kind of job. ``name`` is what users write; ``text`` says in one sentence what it does.

    ``command``: words of the program, which is ``lamella``, or ``program`` where that is given. The table's name and
    the arguments called ``positional`` stand behind them, all other arguments are options. ``is_spark``: the program
    can work on a cluster, so a worker may start it by ``spark-submit``. ``final_statuses``: exit statuses after which
    trying again cannot help: 2, a wrong command line, and others if the program gave its answer all the same.

    ``server_only``: a job of this kind can do with the worker's own rights what the one who asks for it could not do
    alone, as by SQL that calls functions, so only who maintains the whole server asks for one. True unless it is said.
    ``server_arguments``: those that only such a one gives. ``location_arguments``: those that say where the job writes,
    which has to be a place that the table may use.
    """

    name: str
    text: str
    command: tuple[str, ...] = ()
    arguments: type[Arguments] = Arguments
    positional: tuple[str, ...] = ()
    needs_table: bool = True
    is_spark: bool = False
    final_statuses: tuple[int, ...] = (2,)
    program: tuple[str, ...] = ()
    server_only: bool = True
    server_arguments: tuple[str, ...] = ()
    location_arguments: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        # msgspec 0.22 learns a type when it first meets it, and crashes if two threads do that at once.
        msgspec.json.Decoder(self.arguments)


#: They are about the worker's machine, and where it writes.
_OF_THE_WORKER: Final = ("memory_mib", "processes", "scratch")
BUILTIN: Final = (
    JobKind(
        name="compact",
        text="Write small blocks together into larger ones.",
        command=("compact",),
        arguments=CompactArguments,
        is_spark=True,
        final_statuses=(1, 2),  # 1: some blocks could not be read as they should be
        server_only=False,
        server_arguments=_OF_THE_WORKER,
    ),
    JobKind(
        name="recluster",
        text="Sort blocks that overlap on the cluster key anew, the worst first.",
        command=("recluster",),
        arguments=ReclusterArguments,
        is_spark=True,
        final_statuses=(1, 2),
        server_only=False,
        server_arguments=_OF_THE_WORKER,
    ),
    JobKind(
        name="regroup",
        text="Move blocks between segments so that segments prune better; no data is written.",
        command=("regroup",),
        arguments=RegroupArguments,
        server_only=False,
    ),
    JobKind(
        name="index_refresh",
        text="Index the blocks that a skip index does not know.",
        command=("index", "refresh"),
        arguments=IndexRefreshArguments,
        positional=("index",),
        final_statuses=(1, 2),  # 1: some blocks cannot be indexed
        server_only=False,
    ),
    JobKind(
        name="delete",
        text="Delete rows.",
        command=("delete",),
        arguments=DeleteArguments,
        is_spark=True,
        server_only=False,
        server_arguments=_OF_THE_WORKER,
    ),
    JobKind(
        name="update",
        text="Change rows.",
        command=("update",),
        arguments=UpdateArguments,
        is_spark=True,
    ),
    JobKind(
        name="vacuum",
        text="Expire snapshots and delete what no snapshot needs.",
        command=("vacuum",),
        arguments=VacuumArguments,
        server_only=False,
    ),
    JobKind(
        name="vacuum_dropped",
        text="Delete the files of dropped tables whose grace is over.",
        command=("vacuum", "--dropped"),
        arguments=VacuumDroppedArguments,
        needs_table=False,
    ),
    JobKind(
        name="verify",
        text="Hold everything that a table says of itself against what it is derived from.",
        command=("verify",),
        arguments=VerifyArguments,
        final_statuses=(1, 2),  # 1: there are findings
        server_only=False,
    ),
    JobKind(
        name="refresh",
        text="Bring an external table up to date with its source.",
        command=("external", "refresh"),
        arguments=RefreshArguments,
        server_only=False,
    ),
    JobKind(
        name="export_iceberg",
        text="Write Iceberg metadata for a table, for engines that plan by themselves; no data is copied.",
        command=("export", "iceberg"),
        arguments=ExportIcebergArguments,
        server_only=False,
        server_arguments=("location",),  # it is written with the worker's rights
        location_arguments=("location",),
    ),
)


@cache
def job_kinds() -> dict[str, JobKind]:
    """All kinds there are, by name: Lamella's own, and those of other packages."""
    found = {kind.name: kind for kind in BUILTIN}
    for point in entry_points(group=GROUP):
        kind = point.load()
        if kind.name in found:
            raise InvalidRequest(f"two job kinds are called {kind.name!r}", kind=kind.name)
        found[kind.name] = kind
    return found


def job_kind_named(name: str) -> JobKind:
    """The kind of that name; raises InvalidRequest."""
    found = job_kinds().get(name)
    if found is None:
        raise InvalidRequest(f"there is no job kind {name!r}; there are {', '.join(sorted(job_kinds()))}", kind=name)
    return found


def check_arguments(kind: JobKind, given: Mapping[str, Any], *, root: str = "$.arguments") -> dict[str, Any]:
    """The arguments of a job as plain values, without those that are as they would be anyway.

    Raises:
        InvalidRequest: one that the kind does not have, one that is missing, or a wrong value; ``details.path`` is its
            JSON path below ``root``.
    """
    try:
        checked = msgspec.convert(dict(given), kind.arguments)
    except msgspec.ValidationError as error:
        found = _PLACE.fullmatch(str(error))
        message, path = (found["message"], root + found["path"]) if found else (str(error), root)
        raise InvalidRequest(f"{message} at {path}, for a job of kind {kind.name!r}", path=path) from error
    plain: dict[str, Any] = msgspec.to_builtins(checked)
    return plain


def command_line(
    kind: JobKind, table: str | None, arguments: Mapping[str, Any], *, extra: Sequence[str] = ()
) -> list[str]:
    """What stands behind the program's name for a job: ``vacuum --execute -- db.t``. ``extra``: more options.

    A member of the arguments that is true is a flag; a list and a mapping are options that are given again and again;
    options that are at their default are left out. Values stand behind ``=`` and names behind ``--``, so that none is
    taken for an option.

    Raises:
        InvalidRequest: arguments that the kind does not take, or a kind that needs a table without one.
    """
    if kind.needs_table and table is None:
        raise InvalidRequest(f"a job of kind {kind.name!r} is about a table", kind=kind.name)
    checked = check_arguments(kind, arguments)
    names = [] if table is None else [table]
    names += [str(checked[name]) for name in kind.positional if name in checked]
    options = [
        word
        for field in msgspec.structs.fields(kind.arguments)
        if field.name in checked and field.name not in kind.positional
        for word in _option("--" + field.name.replace("_", "-"), checked[field.name])
    ]
    return [*kind.command, *extra, *options, *(["--", *names] if names else [])]


def _option(name: str, value: object) -> Iterator[str]:
    if isinstance(value, bool):
        if value:
            yield name
    elif isinstance(value, Mapping):
        for key, part in value.items():
            yield f"{name}={key}={part}"
    elif isinstance(value, list | tuple):
        for part in value:
            yield f"{name}={part}"
    else:
        yield f"{name}={value}"
