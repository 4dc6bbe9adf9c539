"""``CALL lake.system.<procedure>(...)``: what keeps tables in shape, as SQL.

Procedures that are kinds of jobs, too, have the arguments of the job. They rewrite on the executors of the session.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final, Literal

import msgspec
import pyarrow as pa

from lamella.client.http import Lamella
from lamella.client.http.client import Table
from lamella.client.jobs.analyze import analyze
from lamella.client.jobs.context import JobContext, Sizes
from lamella.client.jobs.report import job_reporter
from lamella.client.jobs.rewrite import Bounds, RewriteResult, compact, purge, recluster
from lamella.client.spark.engine import SparkEngine
from lamella.client.spark.gateway import CONNECTOR, Gateway
from lamella.client.spark.index_job import build_index
from lamella.client.spark.local_rows import LocalRows
from lamella.client.spark.proxy import Proxy
from lamella.client.spark.python_blocks import spark_arrow_schema
from lamella.client.write.layout import Layout
from lamella.snapshot.counts import counted
from lamella.snapshot.errors import InvalidRequest
from lamella.snapshot.job_kinds import (
    AnalyzeArguments,
    Arguments,
    CompactArguments,
    Name,
    PurgeArguments,
    ReclusterArguments,
    RefreshArguments,
    RegroupArguments,
    Text,
    VacuumArguments,
)
from lamella.snapshot.near_names import near_member

_CATALOG: Final = CONNECTOR + "catalog."
_PROCEDURES: Final = _CATALOG + "procedures."
#: The namespace of all procedures.
NAMESPACE: Final = "system"
#: Arguments of jobs that say where they run, which the session decides here.
_OF_THE_ENGINE: Final = frozenset({"memory_mib", "processes", "scratch"})
#: At most this many blocks that could not be read are named in a result.
_NAMED_FAILURES: Final = 10


class BuildIndexArguments(Arguments, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """``index``: its name. ``mode``: "incremental" indexes the blocks that it does not cover, "full" all of them."""

    index: Name
    mode: Literal["incremental", "full"] = "incremental"


class RollbackArguments(Arguments, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """``snapshot``: an id, tag or number. ``timestamp``: the snapshot that was current then. One is required."""

    snapshot: Name | None = None
    timestamp: Name | None = None

    def __post_init__(self) -> None:
        if (self.snapshot is None) == (self.timestamp is None):
            raise ValueError("give exactly one of snapshot and timestamp")


class TagArguments(Arguments, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """``name``: of the tag. ``snapshot``: an id or another tag, in place of the current one. ``move``: of an existing
    tag."""

    name: Name
    snapshot: Name | None = None
    move: bool = False


class DropTagArguments(Arguments, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """``name``: of the tag."""

    name: Name


class BranchArguments(Arguments, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """``branch``: its name. ``snapshot``: where it begins: an id, tag, branch or number, in place of the current one.
    ``replace``: drop the branch that has the name."""

    branch: Name
    snapshot: Name | None = None
    replace: bool = False


class DropBranchArguments(Arguments, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """``branch``: its name."""

    branch: Name


class FastForwardArguments(Arguments, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """``to``: the branch whose snapshots the table gets. ``branch``: the one that gets them, in place of ``main``."""

    to: Name
    branch: Name = "main"


class CherryPickArguments(Arguments, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """``snapshot``: an id, or a tag or branch for its current one. ``branch``: what gets the changes, in place of
    ``main``. ``strict``: refuse an update or a merge that has not seen all blocks."""

    snapshot: Name
    branch: Name = "main"
    strict: bool = False


class RegisterArguments(Arguments, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """``location``: the URL of a file or folder, or a glob. ``strict``: change nothing if a file is refused.
    ``verify``: read every value instead of trusting the files' statistics."""

    location: Text
    strict: bool = False
    verify: bool = False


class AdviseArguments(Arguments, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """``columns``, ``kinds`` (of indexes): names separated by commas; none: all."""

    columns: Text | None = None
    kinds: Text | None = None


class Call(msgspec.Struct, frozen=True, eq=False):
    """A call of a procedure."""

    gateway: Gateway
    lake: Lamella
    name: str
    defaults: Layout

    @property
    def table(self) -> Table:
        """The table that it is about."""
        return self.lake.table(self.name)

    @contextmanager
    def job(self, doing: str, sizes: Sizes) -> Iterator[JobContext]:
        """Yield the context of a job on the session's executors, with a progress bar."""
        with job_reporter(doing) as reporter:
            yield JobContext(
                lake=self.lake,
                table=self.name,
                engine=SparkEngine(self.gateway.spark),
                sizes=sizes,
                storage_options=self.defaults.storage_options,
                scratch=self.defaults.scratch,
                on_progress=reporter.progress,
            )


class Procedure(msgspec.Struct, frozen=True, eq=False):
    """What can be called: ``columns`` are those of its result, with Spark's types; ``run`` returns the rows."""

    name: str
    text: str
    arguments: type[Arguments]
    columns: dict[str, str]
    run: Callable[[Call, Any], Iterable[Sequence[Any]]]

    def parameters(self) -> Iterator[tuple[str, str, bool]]:
        """Yield name, Spark's type, and whether it is required, of each parameter."""
        yield "table", "string", True
        for field in msgspec.structs.fields(self.arguments):
            if field.name not in _OF_THE_ENGINE:
                is_required = field.default is msgspec.NODEFAULT and field.default_factory is msgspec.NODEFAULT
                yield field.name, _spark_type(msgspec.inspect.type_info(field.type)), is_required

    def schema(self) -> str:
        """The schema of the result in Spark's JSON."""
        fields = [{"name": name, "type": kind, "nullable": True, "metadata": {}} for name, kind in self.columns.items()]
        return json.dumps({"type": "struct", "fields": fields})


def _spark_type(kind: msgspec.inspect.Type) -> str:
    if isinstance(kind, msgspec.inspect.UnionType):
        (kind,) = (each for each in kind.types if not isinstance(each, msgspec.inspect.NoneType))
    names = {"BoolType": "boolean", "IntType": "long", "FloatType": "double"}
    return names.get(type(kind).__name__, "string")


_REWRITE: Final = {
    "tasks": "long",
    "blocks_before": "long",
    "blocks_after": "long",
    "bytes_before": "long",
    "bytes_after": "long",
    "rows": "long",
    "conflicts": "long",
    "remaining_blocks": "long",
    "snapshot_id": "string",
    "reason": "string",
}


def _bounds(given: CompactArguments) -> tuple[Bounds, Sizes]:
    bounds = Bounds(
        where=given.where,
        max_bytes=given.max_bytes,
        max_blocks=given.max_blocks,
        target_depth=getattr(given, "target_depth", None),
        min_gain=getattr(given, "min_gain", None),
        min_deleted_share=getattr(given, "min_deleted_share", None),
    )
    return bounds, Sizes(block_rows=given.target_rows, block_bytes=given.target_bytes)


def _rewritten(done: RewriteResult) -> list[Sequence[Any]]:
    if done.failures:
        reasons = "; ".join(f"{counted(len(failure.blocks), 'block')}: {failure.reason}" for failure in done.failures)
        done = msgspec.structs.replace(done, reason=f"left as they are: {reasons}")
    return [tuple(getattr(done, name) for name in _REWRITE)]


def _compact(call: Call, given: CompactArguments) -> list[Sequence[Any]]:
    bounds, sizes = _bounds(given)
    with call.job("compacting", sizes) as context:
        return _rewritten(compact(context, bounds))


def _recluster(call: Call, given: ReclusterArguments) -> list[Sequence[Any]]:
    bounds, sizes = _bounds(given)
    with call.job("reclustering", sizes) as context:
        return _rewritten(recluster(context, bounds, max_runs=given.repeat or 1))


def _purge(call: Call, given: PurgeArguments) -> list[Sequence[Any]]:
    bounds, sizes = _bounds(given)
    with call.job("purging", sizes) as context:
        return _rewritten(purge(context, bounds))


def _analyze(call: Call, given: AnalyzeArguments) -> list[Sequence[Any]]:
    with call.job("analyzing", Sizes()) as context:
        done = analyze(context, _names(given.columns), max_bytes=given.max_bytes, max_blocks=given.max_blocks)
    failed = "; ".join(f"{each.location}: {each.reason}" for each in done.failures[:_NAMED_FAILURES])
    return [
        (
            done.blocks,
            done.rows,
            done.file_bytes,
            done.conflicts,
            len(done.failures),
            done.remaining_blocks,
            done.snapshot_id,
            failed or None,
        )
    ]


def _regroup(call: Call, given: RegroupArguments) -> list[Sequence[Any]]:
    done = call.table.regroup(
        _names(given.by) or [],
        given.kind or "linear",
        max_segments=given.max_segments,
        target_depth=given.target_depth,
        min_gain=given.min_gain,
    )
    return [(done.replaced, done.made, done.blocks, done.remaining, done.snapshot_id, done.reason)]


def _vacuum(call: Call, given: VacuumArguments) -> list[Sequence[Any]]:
    done = call.table.vacuum(
        execute=given.execute,
        older_than=given.older_than,
        include_external_blocks=given.include_external_blocks,
    )
    return [(kind, found.objects, found.size_bytes, done.executed) for kind, found in sorted(done.garbage.items())]


def _rollback(call: Call, given: RollbackArguments) -> list[Sequence[Any]]:
    zone = str(call.gateway.time_zone() or "UTC")
    done = call.table.rollback(given.snapshot, timestamp=given.timestamp, time_zone=zone)
    return [(done.snapshot_id, done.prev_snapshot_id, done.restored_snapshot_id, done.row_count, done.block_count)]


def _tag(call: Call, given: TagArguments) -> list[Sequence[Any]]:
    done = call.table.tag(given.name, given.snapshot, move=given.move)
    return [(done.name, done.snapshot_id)]


def _drop_tag(call: Call, given: DropTagArguments) -> list[Sequence[Any]]:
    call.table.drop_tag(given.name)
    return [(given.name,)]


def _create_branch(call: Call, given: BranchArguments) -> list[Sequence[Any]]:
    done = call.table.create_branch(given.branch, given.snapshot, replace=given.replace)
    return [(done.name, done.snapshot_id, done.number)]


def _drop_branch(call: Call, given: DropBranchArguments) -> list[Sequence[Any]]:
    call.table.drop_branch(given.branch)
    return [(given.branch,)]


def _fast_forward(call: Call, given: FastForwardArguments) -> list[Sequence[Any]]:
    done = call.table.branch(given.branch).fast_forward(given.to)
    return [(given.branch, done.prev_snapshot_id, done.snapshot_id, done.snapshots)]


def _cherry_pick(call: Call, given: CherryPickArguments) -> list[Sequence[Any]]:
    done = call.table.branch(given.branch).cherry_pick(given.snapshot, strict=given.strict)
    return [(given.branch, done.picked_snapshot_id, done.snapshot_id, done.added, done.removed, done.changed)]


def _register(call: Call, given: RegisterArguments) -> list[Sequence[Any]]:
    done = call.table.register([given.location], strict=given.strict, verify=given.verify)
    return [(done.registered, done.row_count, done.file_size_bytes, len(done.refused), done.snapshot_id)]


def _build_index(call: Call, given: BuildIndexArguments) -> list[Sequence[Any]]:
    done = build_index(
        call.gateway.spark,
        call.lake,
        call.name,
        given.index,
        mode=given.mode,
        storage_options=call.defaults.storage_options,
    )
    return [(done.indexed, done.row_count, done.parts, done.size_bytes, len(done.left_out))]


def _refresh(call: Call, given: RefreshArguments) -> list[Sequence[Any]]:
    strict = True if given.strict else False if given.lenient else None
    done = call.table.refresh(
        "full" if given.full else "incremental",
        strict=strict,
        verify=given.verify,
        location=given.location,
        allow_empty=given.allow_empty,
    )
    return [(done.changed, done.added, done.removed, done.replaced, done.unchanged, done.snapshot_id)]


def _advise(call: Call, given: AdviseArguments) -> list[Sequence[Any]]:
    answer = call.table.advise(_names(given.columns), _names(given.kinds))
    scores = [
        (
            each.column,
            each.kind,
            each.layer,
            each.score,
            each.min_score,
            each.max_score,
            each.skip_present,
            each.skip_absent,
            None if each.size is None or each.size.size_bytes is None else round(each.size.size_bytes),
            each.reason or answer.rests_on.get(each.column),
        )
        for each in answer.scores
    ]
    return [*scores, *((column, *[None] * 8, reason) for column, reason in answer.left_out.items())]


def _names(text: str | None) -> list[str] | None:
    return None if text is None else [name.strip() for name in text.split(",")]


PROCEDURES: Final = (
    Procedure("compact", "Merge small blocks into larger ones.", CompactArguments, _REWRITE, _compact),
    Procedure(
        "recluster",
        "Sort blocks that overlap on the cluster key, the worst first.",
        ReclusterArguments,
        _REWRITE,
        _recluster,
    ),
    Procedure("purge", "Write blocks anew without their deleted rows.", PurgeArguments, _REWRITE, _purge),
    Procedure(
        "analyze",
        "Read the values of blocks whose statistics are incomplete or inexact.",
        AnalyzeArguments,
        {
            "blocks": "long",
            "rows": "long",
            "file_bytes": "long",
            "conflicts": "long",
            "failures": "long",
            "remaining_blocks": "long",
            "snapshot_id": "string",
            "reason": "string",
        },
        _analyze,
    ),
    Procedure(
        "regroup",
        "Move blocks between segments so that segments prune better; no data is written.",
        RegroupArguments,
        {
            "replaced": "long",
            "made": "long",
            "blocks": "long",
            "remaining": "long",
            "snapshot_id": "string",
            "reason": "string",
        },
        _regroup,
    ),
    Procedure(
        "vacuum",
        "Expire snapshots and delete what no snapshot needs; without execute, say what would be deleted.",
        VacuumArguments,
        {"kind": "string", "objects": "long", "size_bytes": "long", "executed": "boolean"},
        _vacuum,
    ),
    Procedure(
        "rollback",
        "Return a table to an older snapshot, as a new one.",
        RollbackArguments,
        {
            "snapshot_id": "string",
            "prev_snapshot_id": "string",
            "restored_snapshot_id": "string",
            "row_count": "long",
            "block_count": "long",
        },
        _rollback,
    ),
    Procedure("tag", "Give a snapshot a name.", TagArguments, {"name": "string", "snapshot_id": "string"}, _tag),
    Procedure("drop_tag", "Drop a tag.", DropTagArguments, {"name": "string"}, _drop_tag),
    Procedure(
        "create_branch",
        "Create a branch, which is read and written as table.branch_name.",
        BranchArguments,
        {"branch": "string", "snapshot_id": "string", "number": "long"},
        _create_branch,
    ),
    Procedure("drop_branch", "Drop a branch.", DropBranchArguments, {"branch": "string"}, _drop_branch),
    Procedure(
        "fast_forward",
        "Give a branch the snapshots of another one that it lacks.",
        FastForwardArguments,
        {"branch": "string", "prev_snapshot_id": "string", "snapshot_id": "string", "snapshots": "long"},
        _fast_forward,
    ),
    Procedure(
        "cherry_pick",
        "Repeat in a branch what a snapshot changed in another one.",
        CherryPickArguments,
        {
            "branch": "string",
            "picked_snapshot_id": "string",
            "snapshot_id": "string",
            "added": "long",
            "removed": "long",
            "changed": "long",
        },
        _cherry_pick,
    ),
    Procedure(
        "register",
        "Add Parquet files to a table where they are.",
        RegisterArguments,
        {
            "registered": "long",
            "row_count": "long",
            "file_size_bytes": "long",
            "refused": "long",
            "snapshot_id": "string",
        },
        _register,
    ),
    Procedure(
        "build_index",
        "Index the blocks that a skip index does not cover.",
        BuildIndexArguments,
        {"indexed": "long", "row_count": "long", "parts": "long", "size_bytes": "long", "left_out": "long"},
        _build_index,
    ),
    Procedure(
        "refresh",
        "Bring an external table up to date with its source.",
        RefreshArguments,
        {
            "changed": "boolean",
            "added": "long",
            "removed": "long",
            "replaced": "long",
            "unchanged": "long",
            "snapshot_id": "string",
        },
        _refresh,
    ),
    Procedure(
        "advise",
        "Say how much look-ups of each column skip, and what skip indexes would add and take.",
        AdviseArguments,
        {
            "column": "string",
            "kind": "string",
            "layer": "string",
            "score": "double",
            "min_score": "double",
            "max_score": "double",
            "skip_present": "double",
            "skip_absent": "double",
            "size_bytes": "long",
            "reason": "string",
        },
        _advise,
    ),
)
_BY_NAME: Final = {procedure.name: procedure for procedure in PROCEDURES}


class LakeProcedure(Proxy):
    """A procedure of a catalog."""

    class Java:
        implements = [  # noqa: RUF012
            _PROCEDURES + "UnboundProcedure",
            _PROCEDURES + "BoundProcedure",
        ]

    def __init__(self, gateway: Gateway, catalog: str, lake: Lamella, defaults: Layout, procedure: Procedure) -> None:
        super().__init__(gateway)
        self._catalog = catalog
        self._lake = lake
        self._defaults = defaults
        self._procedure = procedure

    def _key(self) -> str:
        return f"Lamella procedure {self._catalog}.{NAMESPACE}.{self._procedure.name}"

    def name(self) -> str:
        return self._procedure.name

    def description(self) -> str:
        return self._procedure.text

    def bind(self, _input: Any) -> Any:
        return self

    def isDeterministic(self) -> bool:
        return False

    def parameters(self) -> Any:
        gateway = self._gateway
        make = getattr(gateway.java_class(_PROCEDURES + "ProcedureParameter"), "in")
        made = []
        for name, kind, is_required in self._procedure.parameters():
            builder = make(name, gateway.struct_type(_one_field(kind)).apply(0).dataType())
            made.append((builder if is_required else builder.defaultValue("NULL")).build())
        return gateway.array(_PROCEDURES + "ProcedureParameter", made)

    def call(self, row: Any) -> Any:
        procedure = self._procedure
        given = {}
        for at, (name, kind, _) in enumerate(procedure.parameters()):
            if not row.isNullAt(at):
                given[name] = _cell(row, at, kind)
        table = given.pop("table", None)
        if table is None:
            raise InvalidRequest(f"{procedure.name} needs the name of a table")
        try:
            arguments = msgspec.convert(given, procedure.arguments)
        except msgspec.ValidationError as error:
            text = str(error).replace(" - at `$.", ", argument `")
            near = near_member(error, procedure.arguments, given)
            raise InvalidRequest(f"{procedure.name}: {text}", **near) from error
        made = Call(self._gateway, self._lake, self._table_name(table), self._defaults)
        rows = list(procedure.run(made, arguments))
        target = spark_arrow_schema(procedure.schema())
        columns = [pa.array([each[at] for each in rows], field.type) for at, field in enumerate(target)]
        scan = LocalRows(self._gateway, procedure.schema(), pa.table(columns, schema=target))
        found = self._gateway.java_class("java.util.ArrayList")()
        found.add(scan)
        return found.iterator()

    def _table_name(self, text: str) -> str:
        """Return the name without the catalog's, which may stand before it."""
        parts = text.split(".")
        return ".".join(parts[1:]) if len(parts) > 2 and parts[0] == self._catalog else text


def _one_field(kind: str) -> str:
    return json.dumps({"type": "struct", "fields": [{"name": "value", "type": kind, "nullable": True, "metadata": {}}]})


def _cell(row: Any, at: int, kind: str) -> Any:
    if kind == "boolean":
        return bool(row.getBoolean(at))
    if kind == "long":
        return int(row.getLong(at))
    if kind == "double":
        return float(row.getDouble(at))
    return str(row.getUTF8String(at).toString())


def procedure_named(name: str) -> Procedure:
    """Return a procedure; raises InvalidRequest."""
    found = _BY_NAME.get(name.lower())
    if found is None:
        raise InvalidRequest(f"there is no procedure {name!r}; there are {', '.join(_BY_NAME)}")
    return found
