"""The registry of job kinds. A kind is one entry: its name, its arguments, its command.

The service checks the arguments of a job by it, the worker makes a command line of it; neither knows a kind by name.
Packages add their own by an entry point of the group ``lamella.job_kinds`` that gives a :class:`JobKind`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from importlib.metadata import entry_points
from typing import Any, Final

import msgspec

from lamella.snapshot.errors import InvalidRequest
from lamella.snapshot.jobs import arguments as args

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
    arguments: type[args.Arguments] = args.Arguments
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
        arguments=args.CompactArguments,
        is_spark=True,
        final_statuses=(1, 2),  # 1: some blocks could not be read as they should be
        server_only=False,
        server_arguments=_OF_THE_WORKER,
    ),
    JobKind(
        name="recluster",
        text="Sort blocks that overlap on the cluster key anew, the worst first.",
        command=("recluster",),
        arguments=args.ReclusterArguments,
        is_spark=True,
        final_statuses=(1, 2),
        server_only=False,
        server_arguments=_OF_THE_WORKER,
    ),
    JobKind(
        name="regroup",
        text="Move blocks between segments so that segments prune better; no data is written.",
        command=("regroup",),
        arguments=args.RegroupArguments,
        server_only=False,
    ),
    JobKind(
        name="index_refresh",
        text="Index the blocks that a skip index does not know.",
        command=("index", "refresh"),
        arguments=args.IndexRefreshArguments,
        positional=("index",),
        final_statuses=(1, 2),  # 1: some blocks cannot be indexed
        server_only=False,
    ),
    JobKind(
        name="delete",
        text="Delete rows.",
        command=("delete",),
        arguments=args.DeleteArguments,
        is_spark=True,
        server_only=False,
        server_arguments=_OF_THE_WORKER,
    ),
    JobKind(
        name="update",
        text="Change rows.",
        command=("update",),
        arguments=args.UpdateArguments,
        is_spark=True,
    ),
    JobKind(
        name="vacuum",
        text="Expire snapshots and delete what no snapshot needs.",
        command=("vacuum",),
        arguments=args.VacuumArguments,
        server_only=False,
    ),
    JobKind(
        name="vacuum_dropped",
        text="Delete the files of dropped tables whose grace is over.",
        command=("vacuum", "--dropped"),
        arguments=args.VacuumDroppedArguments,
        needs_table=False,
    ),
    JobKind(
        name="verify",
        text="Hold everything that a table says of itself against what it is derived from.",
        command=("verify",),
        arguments=args.VerifyArguments,
        final_statuses=(1, 2),  # 1: there are findings
        server_only=False,
    ),
    JobKind(
        name="refresh",
        text="Bring an external table up to date with its source.",
        command=("external", "refresh"),
        arguments=args.RefreshArguments,
        server_only=False,
    ),
    JobKind(
        name="export_iceberg",
        text="Write Iceberg metadata for a table, for engines that plan by themselves; no data is copied.",
        command=("export", "iceberg"),
        arguments=args.ExportIcebergArguments,
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
