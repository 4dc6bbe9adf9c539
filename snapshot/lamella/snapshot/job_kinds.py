"""The kinds of jobs: their arguments, and the command that runs them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from importlib.metadata import entry_points
from typing import Annotated, Any, Final, Literal

import msgspec

from lamella.snapshot.delete_policy import DeleteMode
from lamella.snapshot.errors import InvalidRequest
from lamella.snapshot.near_names import did_you_mean, near_member

Count = Annotated[int, msgspec.Meta(ge=1)]
Whole = Annotated[int, msgspec.Meta(ge=0)]
Share = Annotated[float, msgspec.Meta(gt=0, le=1)]
#: Words of a command line must not contain NUL.
_NO_NUL = r"\A[^\x00]*\Z"
Text = Annotated[str, msgspec.Meta(min_length=1, max_length=100_000, pattern=_NO_NUL)]
Name = Annotated[str, msgspec.Meta(min_length=1, max_length=255, pattern=_NO_NUL)]


class Arguments(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """No arguments; the base of all others."""


class RewriteArguments(Arguments, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """How blocks are rewritten. ``memory_mib``: memory for the rows of one task. ``processes``: processes of the engine
    on the worker's machine. ``scratch``: a folder for intermediate rows that all tasks can access."""

    memory_mib: Count | None = None
    processes: Count | None = None
    scratch: Text | None = None


class CompactArguments(RewriteArguments, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """``where``: only blocks that may contain a row of this filter. ``max_bytes``, ``max_blocks``: maximum to rewrite.
    ``target_rows``, ``target_bytes``: target size of a block.
    """

    where: Text | None = None
    max_bytes: Count | None = None
    max_blocks: Count | None = None
    target_rows: Count | None = None
    target_bytes: Count | None = None


class ReclusterArguments(CompactArguments, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """``target_depth``: how many blocks may contain a key value. ``min_gain``: minimum ratio of gain to the fraction
    that is rewritten. ``repeat``: maximum number of runs; the job ends earlier if nothing is left."""

    target_depth: Count | None = None
    min_gain: Annotated[float, msgspec.Meta(ge=0)] | None = None
    repeat: Count | None = None


class PurgeArguments(CompactArguments, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """``min_deleted_share``: minimum share of deleted rows of a block that is rewritten; 0: any deleted row."""

    min_deleted_share: Annotated[float, msgspec.Meta(ge=0, le=1)] | None = None


class RegroupArguments(Arguments, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """``by``: columns, ``a,b``, of a key of that ``kind`` in place of the table's cluster key. ``kind``: of the key
    that ``by`` names. ``max_segments``: maximum number that is replaced at once. ``target_depth``: how many segments
    may contain a key value. ``min_gain``: minimum ratio of gain to the fraction of the segments that is replaced."""

    by: Text | None = None
    kind: Literal["linear", "zorder", "hilbert"] | None = None
    max_segments: Annotated[int, msgspec.Meta(ge=2, le=256)] | None = None
    target_depth: Count | None = None
    min_gain: Annotated[float, msgspec.Meta(ge=0)] | None = None


class IndexRefreshArguments(Arguments, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """``index``: its name. ``mode``: "incremental" indexes the blocks that it does not cover, "full" all blocks again,
    "quick" only what requires no rows to be read. ``max_blocks``: commit after at most this many blocks."""

    index: Name
    mode: Literal["incremental", "full", "quick"] = "incremental"
    max_blocks: Count | None = None


class AnalyzeArguments(Arguments, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """``columns``: ``a,b``; all by default. ``max_bytes``, ``max_blocks``: maximum to read. ``processes``: processes of
    the engine on the worker's machine."""

    columns: Text | None = None
    max_bytes: Count | None = None
    max_blocks: Count | None = None
    processes: Count | None = None


class DeleteArguments(RewriteArguments, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """``where``: the rows to delete. ``time_zone``: for timestamps in it without one. ``mode``: whether blocks are
    rewritten, in place of the table's property ``write.delete.mode``."""

    where: Text
    time_zone: Name | None = None
    mode: DeleteMode | None = None


class UpdateArguments(RewriteArguments, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """``set``: SQL by column. ``where``: the rows to change. ``all``: every row changes; one of the two is required."""

    set: Annotated[dict[Name, Text], msgspec.Meta(min_length=1)]
    where: Text | None = None
    all: bool = False

    def __post_init__(self) -> None:
        if (self.where is None) != self.all:
            raise ValueError("give exactly one of where and all")


class VacuumArguments(Arguments, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """Arguments of ``lamella vacuum``: without ``execute`` it only reports what would be done.

    ``older_than``: expire snapshots that were superseded at least this long ago (``7d``, ``12h``), in place of the
    table's retention. ``include_external_blocks``: also delete files outside of the table's folder that were blocks of
    the snapshots that expire now, and are in no remaining snapshot of any table.
    """

    execute: bool = False
    older_than: Name | None = None
    include_external_blocks: bool = False


class VacuumDroppedArguments(Arguments, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """Arguments of ``lamella vacuum --dropped``. ``include_external_blocks``: also delete files outside of the tables'
    folders that were blocks of these tables, and are in no remaining snapshot of any table."""

    execute: bool = False
    include_external_blocks: bool = False


class VerifyArguments(Arguments, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """Arguments of ``lamella verify``.

    ``snapshot``: one of the history instead of the current one. ``deep``: read the values of some blocks, and answer
    random filters from them. ``sample``: the share of blocks that this reads. ``blocks``: how many blocks it reads.
    ``seed``: selects these blocks and filters; random by default. ``filters``: number per block. ``no_files``: check
    only what Lamella wrote, not the blocks' files. ``pages``: every segment should have a page sidecar. ``history``:
    how many snapshots back to check. ``repair``: rewrite damaged sidecars.
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
    """Arguments of ``lamella external refresh``.

    ``full``: open every file, also those that appear unchanged. ``strict``: change nothing if a file is refused.
    ``lenient``: leave out a file that is refused. ``verify``: read every value instead of trusting the files'
    statistics. ``location``: the current metadata file of an Iceberg table. ``allow_empty``: accept a directory without
    any files.
    """

    full: bool = False
    strict: bool = False
    lenient: bool = False
    verify: bool = False
    location: Text | None = None
    allow_empty: bool = False


class AutoArguments(RewriteArguments, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """Arguments of ``lamella auto run``. ``max_actions``: maximum number of actions; the job ends earlier if no action
    is worth its cost, or a budget is used up."""

    max_actions: Count | None = None


class ExportIcebergArguments(Arguments, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """Arguments of ``lamella export iceberg``.

    ``snapshot``: an id, tag or number; by default the current one. ``location``: the folder of the export, in place of
    one in the table's own. ``columns``: ``a,b``, the columns whose statistics are exported, in place of the first
    hundred.
    ``hold``: the tag that keeps the exported snapshot from expiring. ``no_hold``: let it expire like any other.
    ``trust_files``: do not open registered files to check whether Iceberg's readers can read them.
    """

    snapshot: Name | None = None
    location: Text | None = None
    columns: Text | None = None
    hold: Name | None = None
    no_hold: bool = False
    trust_files: bool = False


# The registry of job kinds. A kind is one entry: its name, its arguments, its command.
#
# The service checks the arguments of a job with it, and the worker builds a command line from it; no code checks for a
# specific kind. Packages add kinds through an entry point of the group ``lamella.job_kinds`` that returns a
# ``JobKind``.

GROUP: Final = "lamella.job_kinds"
_ERROR_PATH: Final = re.compile(r"(?P<message>.*) - at `\$(?P<path>.*)`", re.DOTALL)


class JobKind(msgspec.Struct, frozen=True, kw_only=True):
    """A kind of job. ``name`` is what users write; ``text`` describes it in one sentence.

    ``command``: words of the program, which is ``lamella`` unless ``program`` is given. The table's name and the
    arguments called ``positional`` follow, all other arguments are options. ``is_spark``: the program can run on a
    cluster, so a worker may start it with ``spark-submit``. ``final_statuses``: exit statuses after which a retry
    cannot help: 2, a wrong command line, and others if the program still gave its answer.

    ``server_only``: a job of this kind can do with the worker's own rights what its submitter could not do alone, for
    example through SQL that calls functions, so only an administrator of the whole server may submit one. True by
    default. ``server_arguments``: those that only such an administrator may set. ``location_arguments``: those that
    name where the job writes, which must be a location that the table may use.
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
        # msgspec 0.22 analyses a type when it is first used, and crashes if two threads do that at once.
        msgspec.json.Decoder(self.arguments)


#: Arguments about the worker's machine, and where it writes.
_OF_THE_WORKER: Final = ("memory_mib", "processes", "scratch")
BUILTIN: Final = (
    JobKind(
        name="compact",
        text="Merge small blocks into larger ones.",
        command=("compact",),
        arguments=CompactArguments,
        is_spark=True,
        final_statuses=(1, 2),  # 1: some blocks could not be read correctly
        server_only=False,
        server_arguments=_OF_THE_WORKER,
    ),
    JobKind(
        name="recluster",
        text="Sort blocks that overlap on the cluster key, the worst first.",
        command=("recluster",),
        arguments=ReclusterArguments,
        is_spark=True,
        final_statuses=(1, 2),
        server_only=False,
        server_arguments=_OF_THE_WORKER,
    ),
    JobKind(
        name="purge",
        text="Write blocks anew without their deleted rows.",
        command=("purge",),
        arguments=PurgeArguments,
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
        text="Index the blocks that a skip index does not cover.",
        command=("index", "refresh"),
        arguments=IndexRefreshArguments,
        positional=("index",),
        final_statuses=(1, 2),  # 1: some blocks cannot be indexed
        server_only=False,
    ),
    JobKind(
        name="analyze",
        text="Read the values of blocks whose statistics are incomplete or inexact.",
        command=("analyze",),
        arguments=AnalyzeArguments,
        is_spark=True,
        final_statuses=(1, 2),  # 1: some blocks could not be read
        server_only=False,
        server_arguments=_OF_THE_WORKER,
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
        text="Delete the files of dropped tables whose grace period is over.",
        command=("vacuum", "--dropped"),
        arguments=VacuumDroppedArguments,
        needs_table=False,
    ),
    JobKind(
        name="verify",
        text="Compare the metadata of a table with the data that it is derived from.",
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
        name="auto",
        text="Do what saves the recorded filters most, within the budgets of the table's policy, and measure it.",
        command=("auto", "run"),
        arguments=AutoArguments,
        is_spark=True,
        server_only=False,
        server_arguments=_OF_THE_WORKER,
    ),
    JobKind(
        name="export_iceberg",
        text="Write Iceberg metadata for a table, for engines that do their own planning; no data is copied.",
        command=("export", "iceberg"),
        arguments=ExportIcebergArguments,
        server_only=False,
        server_arguments=("location",),  # it is written with the worker's rights
        location_arguments=("location",),
    ),
)


@cache
def job_kinds() -> dict[str, JobKind]:
    """Returns all job kinds by name: Lamella's own, and those of other packages."""
    found = {kind.name: kind for kind in BUILTIN}
    for point in entry_points(group=GROUP):
        kind = point.load()
        if kind.name in found:
            raise InvalidRequest(f"two job kinds have the name {kind.name!r}", kind=kind.name)
        found[kind.name] = kind
    return found


def job_kind_named(name: str) -> JobKind:
    """Returns the kind with a name; raises InvalidRequest."""
    found = job_kinds().get(name)
    if found is None:
        known = sorted(job_kinds())
        raise InvalidRequest(
            f"there is no job kind {name!r}; there are {', '.join(known)}", kind=name, **did_you_mean(name, known)
        )
    return found


def check_arguments(kind: JobKind, given: Mapping[str, Any], *, root: str = "$.arguments") -> dict[str, Any]:
    """Returns the arguments of a job as plain values, without those that equal their defaults.

    Raises:
        InvalidRequest: an unknown or missing argument, or an invalid value; ``details.path`` is its JSON path below
            ``root``.
    """
    try:
        checked = msgspec.convert(dict(given), kind.arguments)
    except msgspec.ValidationError as error:
        found = _ERROR_PATH.fullmatch(str(error))
        message, path = (found["message"], root + found["path"]) if found else (str(error), root)
        near = near_member(error, kind.arguments, given)
        raise InvalidRequest(f"{message} at {path}, for a job of kind {kind.name!r}", path=path, **near) from error
    plain: dict[str, Any] = msgspec.to_builtins(checked)
    return plain


def command_line(
    kind: JobKind, table: str | None, arguments: Mapping[str, Any], *, extra: Sequence[str] = ()
) -> list[str]:
    """Returns the words after the program's name for a job: ``vacuum --execute -- db.t``. ``extra``: more options.

    An argument that is true is a flag; lists and mappings become repeated options; options with their default are left
    out. Values follow ``=`` and names follow ``--``, so that none is taken for an option.

    Raises:
        InvalidRequest: arguments that the kind does not accept, or a kind that needs a table without one.
    """
    if kind.needs_table and table is None:
        raise InvalidRequest(f"a job of kind {kind.name!r} requires a table", kind=kind.name)
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
