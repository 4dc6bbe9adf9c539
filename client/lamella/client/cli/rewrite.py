"""``lamella compact``, ``recluster``, ``purge``, ``delete`` and ``update``: jobs that rewrite blocks; and ``analyze``,
which reads them."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec

import click
import msgspec

from lamella.client.cli.arguments import pairs_of, store_options
from lamella.client.cli.connection import Session, with_session
from lamella.client.cli.failure import needs_extra
from lamella.client.cli.output import print_table, size_text
from lamella.snapshot.counts import counted

if TYPE_CHECKING:
    from lamella.client.jobs.analyze import AnalyzeResult
    from lamella.client.jobs.context import JobContext
    from lamella.client.jobs.rewrite import RewriteResult
    from lamella.client.rewrite.engine import Engine
    from lamella.client.spark import MergeResult
    from lamella.snapshot.delete_policy import DeleteMode
    from lamella.snapshot.wire import PlanAnswer, RewriteJob

P = ParamSpec("P")
#: At most this many tasks of a plan are shown to people; ``--json`` lists all.
MAX_LISTED = 20
_TARGETS = "Rows or file bytes of a written block, whichever limit is reached first."


class EngineOptions(msgspec.Struct, frozen=True):
    """Where a job runs, from the command line."""

    engine: str
    processes: int | None
    scratch: str | None
    memory_mib: int
    storage_options: dict[str, dict[str, Any]]

    @contextmanager
    def started(self, name: str) -> Iterator[Engine]:
        """Yield the engine, which is closed when the block ends."""
        if self.is_spark:
            from lamella.client.spark.engine import SparkEngine, job_session

            with job_session(name) as spark:
                yield SparkEngine(spark)
            return
        from lamella.client.rewrite.engine import LocalEngine

        with LocalEngine(self.processes) as local:
            yield local

    @property
    def is_spark(self) -> bool:
        """Whether Spark runs the tasks."""
        if self.engine != "auto":
            return self.engine == "spark"
        from lamella.client.spark.engine import is_submitted

        return is_submitted()


def engine_options(
    timeout_s: float = 600.0,
) -> Callable[[Callable[Concatenate[Session, EngineOptions, P], None]], Callable[..., None]]:
    """Give a command a table and the options that say where it runs; pass a :class:`Session` and an
    :class:`EngineOptions`."""

    def decorate(function: Callable[Concatenate[Session, EngineOptions, P], None]) -> Callable[..., None]:
        @click.argument("table", metavar="NAMESPACE.TABLE")
        @click.option(
            "--engine",
            type=click.Choice(["auto", "local", "spark"]),
            default="auto",
            show_default=True,
            help="Processes of this machine, or Spark; auto: Spark when spark-submit started this.",
        )
        @click.option(
            "--processes", type=click.IntRange(min=1), help="Processes of the local engine. Default: one per core."
        )
        @click.option("--scratch", metavar="URL", help="A folder for intermediate rows, which all tasks can reach.")
        @click.option(
            "--memory-mib",
            type=click.IntRange(min=1),
            default=256,
            show_default=True,
            help="Memory for rows per task, in MiB.",
        )
        @store_options
        @with_session(timeout_s)
        @functools.wraps(function)
        def command(session: Session, *args: Any, **kwargs: Any) -> None:
            names = ("engine", "processes", "scratch", "memory_mib", "storage_options")
            runtime = EngineOptions(**{name: kwargs.pop(name) for name in names})
            function(session, runtime, *args, **kwargs)

        return command

    return decorate


def _bound_options(function: Callable[..., None]) -> Callable[..., None]:
    """Add the options of compaction, reclustering and purges."""
    for option in reversed(
        [
            click.option("--where", metavar="SQL", help="Only blocks that may contain a matching row."),
            click.option("--max-bytes", type=click.IntRange(min=1), help="Maximum file bytes to rewrite."),
            click.option("--max-blocks", type=click.IntRange(min=1), help="Maximum number of blocks to rewrite."),
            click.option("--target-rows", type=click.IntRange(min=1), help=_TARGETS),
            click.option("--target-bytes", type=click.IntRange(min=1), help=_TARGETS),
            click.option("--dry-run", is_flag=True, help="Only show the plan and its predicted gain."),
        ]
    ):
        function = option(function)
    return function


@click.command()
@_bound_options
@engine_options()
def compact(session: Session, runtime: EngineOptions, /, table: str, **given: Any) -> None:
    """Merge small blocks into larger ones and split very large ones.

    Exit status 1: some blocks could not be read and were left unchanged.
    """
    _rewrite(session, runtime, table, "compact", given)


@click.command()
@_bound_options
@click.option("--target-depth", type=click.IntRange(min=1), help="Number of blocks that may overlap at a key value.")
@click.option("--min-gain", type=click.FloatRange(min=0), help="Minimum gain relative to the share that is rewritten.")
@click.option(
    "--repeat",
    type=click.IntRange(min=1),
    default=1,
    show_default=True,
    help="Maximum number of runs; ends earlier when nothing is left.",
)
@engine_options()
def recluster(session: Session, runtime: EngineOptions, /, table: str, **given: Any) -> None:
    """Rewrite blocks in the order of the cluster key, the worst clustered first.

    Exit status 1: some blocks could not be read and were left unchanged.
    """
    _rewrite(session, runtime, table, "recluster", given)


@click.command()
@_bound_options
@click.option(
    "--min-deleted-share",
    type=click.FloatRange(min=0, max=1),
    help="Minimum share of deleted rows of a block that is rewritten. Default: 0.1; 0: any.",
)
@engine_options()
def purge(session: Session, runtime: EngineOptions, /, table: str, **given: Any) -> None:
    """Write blocks anew without their deleted rows, those with the largest share of them first.

    Exit status 1: some blocks could not be read and were left unchanged.
    """
    _rewrite(session, runtime, table, "purge", given)


@click.command()
@click.option("--columns", metavar="A,B", help="Only these columns.")
@click.option("--max-bytes", type=click.IntRange(min=1), help="Maximum file bytes to read.")
@click.option("--max-blocks", type=click.IntRange(min=1), help="Maximum number of blocks to read.")
@engine_options()
def analyze(
    session: Session,
    runtime: EngineOptions,
    /,
    table: str,
    columns: str | None,
    max_bytes: int | None,
    max_blocks: int | None,
) -> None:
    """Read the values of blocks whose statistics are incomplete or inexact: bounds, nulls, sums, and counts of distinct
    values.

    Exit status 1: some blocks could not be read and were left unchanged.
    """
    from lamella.client.jobs.analyze import analyze as analyze_blocks

    wanted = None if columns is None else [name.strip() for name in columns.split(",")]
    with runtime.started("analyze") as engine, job_context(session, runtime, table, engine, {}, "analyzing") as context:
        done = analyze_blocks(context, wanted, max_bytes=max_bytes, max_blocks=max_blocks)
    if session.as_data:
        session.emit(done)
    else:
        _show_analyzed(done)
    if done.failures:
        raise click.exceptions.Exit(1)


def _require_one(condition: str | None, *, every_row: bool) -> None:
    if (condition is None) != every_row:
        raise click.UsageError("give exactly one of --where SQL and --all")


@click.command()
@click.option("--where", "condition", metavar="SQL", help="The rows to delete.")
@click.option("--all", "every_row", is_flag=True, help="Delete every row.")
@click.option("--time-zone", default="UTC", show_default=True, help="Time zone of timestamps without one.")
@click.option(
    "--mode",
    type=click.Choice(["auto", "copy-on-write", "merge-on-read"]),
    help="Whether blocks are rewritten; by default as the table's property write.delete.mode says.",
)
@engine_options()
def delete(
    session: Session,
    runtime: EngineOptions,
    /,
    table: str,
    condition: str | None,
    every_row: bool,
    time_zone: str,
    mode: DeleteMode | None,
) -> None:
    """Delete rows: those of --where, or --all.

    Blocks whose rows all match are removed without being read; only blocks that may match partly are read. These get
    deletion vectors, or are rewritten if they lose many rows.
    """
    _require_one(condition, every_row=every_row)
    from lamella.client.jobs.delete import delete_rows

    with runtime.started("delete") as engine, job_context(session, runtime, table, engine, {}, "deleting") as context:
        done = delete_rows(context, condition if condition is not None else "true", time_zone=time_zone, mode=mode)
    if session.as_data:
        session.emit(done)
        return
    click.echo(
        f"{counted(done.rows, 'row')} deleted: {counted(done.dropped, 'block')} dropped unread, {done.read:,} read, "
        f"{done.vectors:,} with deletion vectors, {done.rewritten:,} rewritten; snapshot {done.snapshot_id}"
    )


@click.command()
@click.option(
    "--set", "assignments", multiple=True, required=True, metavar="COLUMN=SQL", help="A column and its new value."
)
@click.option("--where", "condition", metavar="SQL", help="The rows to update.")
@click.option("--all", "every_row", is_flag=True, help="Update every row.")
@engine_options()
def update(
    session: Session,
    runtime: EngineOptions,
    /,
    table: str,
    assignments: tuple[str, ...],
    condition: str | None,
    every_row: bool,
) -> None:
    """Update rows by SQL: those of --where, or --all. Spark computes the values; only blocks that may contain matching
    rows are read."""
    _require_one(condition, every_row=every_row)
    with needs_extra("spark"):
        from lamella.client.spark import update as update_rows
        from lamella.client.spark.engine import job_session
        from lamella.client.spark.merge_job import Options

    options = Options(scratch=runtime.scratch, storage_options=runtime.storage_options)
    with job_session("update") as spark:
        values = pairs_of(assignments, "--set", "COLUMN=SQL")
        done: MergeResult = update_rows(spark, table, values, condition, client=session.lake, options=options)
    if session.as_data:
        session.emit(done)
        return
    click.echo(
        f"{counted(done.rows_updated, 'row')} changed: {counted(done.blocks_read, 'block')} read, "
        f"{done.blocks_with_vectors:,} with"
        f" deletion vectors, {done.blocks_removed:,} rewritten; snapshot {done.snapshot_id}"
    )


def _rewrite(session: Session, runtime: EngineOptions, /, table: str, job: RewriteJob, given: dict[str, Any]) -> None:
    from lamella.client.jobs.rewrite import Bounds, compact, plan, purge, recluster

    bounds = Bounds(
        where=given["where"],
        max_bytes=given["max_bytes"],
        max_blocks=given["max_blocks"],
        target_depth=given.get("target_depth"),
        min_gain=given.get("min_gain"),
        min_deleted_share=given.get("min_deleted_share"),
    )
    if given["dry_run"]:
        from lamella.client.rewrite.engine import SerialEngine

        with job_context(session, runtime, table, SerialEngine(), given, "planning") as context:
            planned = plan(context, job, bounds)
        _show_plan(session, planned)
        return
    doing = {"compact": "compacting", "recluster": "reclustering", "purge": "purging"}[job]
    with runtime.started(job) as engine, job_context(session, runtime, table, engine, given, doing) as context:
        if job == "recluster":
            done = recluster(context, bounds, max_runs=given["repeat"])
        else:
            done = compact(context, bounds) if job == "compact" else purge(context, bounds)
    if session.as_data:
        session.emit(done)
    else:
        _show(done)
    if done.failures:
        raise click.exceptions.Exit(1)


@contextmanager
def job_context(
    session: Session, runtime: EngineOptions, /, table: str, engine: Engine, given: dict[str, Any], doing: str
) -> Iterator[JobContext]:
    from lamella.client.jobs.context import JobContext, Sizes
    from lamella.client.jobs.report import job_reporter

    with job_reporter(doing, polls=True) as reporter:
        yield JobContext(
            lake=session.lake,
            table=table,
            engine=engine,
            sizes=Sizes(
                block_rows=given.get("target_rows"),
                block_bytes=given.get("target_bytes"),
                memory_bytes=runtime.memory_mib << 20,
            ),
            storage_options=runtime.storage_options,
            scratch=runtime.scratch,
            on_progress=reporter.progress,
            cancelled=reporter.cancelled,
        )


def _show(done: RewriteResult) -> None:
    if not done.tasks:
        click.echo(done.reason or "nothing to do")
    else:
        click.echo(
            f"{counted(done.blocks_before, 'block')} ({size_text(done.bytes_before)}) became {done.blocks_after:,} "
            f"({size_text(done.bytes_after)}), {counted(done.rows, 'row')}, in "
            f"{counted(done.tasks, 'task')}; snapshot {done.snapshot_id}"
        )
    if done.conflicts:
        click.echo(
            f"{counted(done.conflicts, 'task was', 'tasks were')} dropped because another writer changed their blocks"
        )
    for failure in done.failures:
        click.echo(f"left: {counted(len(failure.blocks), 'block')}, {failure.reason}", err=True)
    if done.remaining_blocks or done.remaining_bytes:
        click.echo(
            f"left for later runs: about {counted(done.remaining_blocks, 'block')}, {size_text(done.remaining_bytes)}"
        )


def _show_analyzed(done: AnalyzeResult) -> None:
    if done.snapshot_id is None:
        click.echo("no block got better statistics")
    else:
        click.echo(
            f"{counted(done.blocks, 'block')} ({size_text(done.file_bytes)}) with "
            f"{counted(done.rows, 'row')} got statistics of their"
            f" values; snapshot {done.snapshot_id}"
        )
    if done.conflicts:
        click.echo(f"{counted(done.conflicts, 'block was', 'blocks were')} left because another writer changed them")
    for failure in done.failures[:MAX_LISTED]:
        click.echo(f"left: {failure.location}: {failure.reason}", err=True)
    if len(done.failures) > MAX_LISTED:
        click.echo(f"and {len(done.failures) - MAX_LISTED:,} more", err=True)
    if done.remaining_blocks:
        click.echo(f"left for later runs: {counted(done.remaining_blocks, 'block')}")


def _show_plan(session: Session, planned: PlanAnswer) -> None:
    if session.as_data:
        session.emit(planned)
        return
    rows = [
        (
            f"{len(task.blocks):,}",
            size_text(task.file_size_bytes),
            f"{task.pieces:,}",
            f"{task.level}",
            f"{task.blocks_saved:.2f}",
            size_text(round(task.bytes_saved)),
        )
        for task in planned.tasks[:MAX_LISTED]
    ]
    print_table(
        [
            ("blocks", "right"),
            ("size", "right"),
            ("become", "right"),
            ("level", "right"),
            ("blocks saved", "right"),
            ("bytes saved", "right"),
        ],
        rows,
        title=f"{counted(len(planned.tasks), 'task')}",
    )
    click.echo(planned.reason)
