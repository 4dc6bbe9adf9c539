"""The root command group, with a trace span for each command."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any, Final

import click
from click.shell_completion import get_completion_class

from lamella.client import tracing
from lamella.client.advice.commands import advise, recorded, what_if, why_not
from lamella.client.backup.commands import add_backup_commands
from lamella.client.cli import service, tables
from lamella.client.cli.access import grants, keys, whoami
from lamella.client.cli.failure import CommandFailure, LamellaGroup
from lamella.client.cli.history import changes, rollback, tag
from lamella.client.cli.index import index
from lamella.client.cli.jobs import job, policy, schedule, worker
from lamella.client.cli.layout import cluster_by, clustering, regroup
from lamella.client.cli.maintenance import vacuum, verify
from lamella.client.cli.prune import aggregate, diff, prune
from lamella.client.cli.register import external, register
from lamella.client.cli.rewrite import compact, delete, recluster, update
from lamella.client.cli.service import config, serve
from lamella.client.cli.tables import schema
from lamella.client.cli.usage import audit, feedback, prune_rates
from lamella.client.iceberg.commands import export


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Print the script that completes this command in a shell.

    For bash: lamella completion bash > ~/.local/share/bash-completion/completions/lamella
    """
    found = get_completion_class(shell)
    if found is None:
        raise click.UsageError(f"there is no completion for {shell}")
    root = ctx.find_root()
    click.echo(found(root.command, {}, "lamella", "_LAMELLA_COMPLETE").source())


#: Commands without a span of their own: the service has its own traces, and a worker traces each job.
_WITHOUT_SPAN: Final = frozenset({"completion", "serve", "worker"})
_SPAN: Final = "lamella.span"


class RootGroup(LamellaGroup):
    """Adds a span around each command if the environment enables traces. The span contains only the command's name."""

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command and set its outcome in the span."""
        try:
            return super().invoke(ctx)
        except CommandFailure as failure:
            self._fail(ctx, failure.error.code)
            raise
        except click.ClickException:
            self._fail(ctx, "usage")
            raise
        except click.exceptions.Exit as end:
            if end.exit_code:
                self._fail(ctx, "refused")
            raise

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the command that the arguments begin with."""
        name, command, rest = super().resolve_command(ctx, args)
        if not ctx.resilient_parsing and name != "serve":
            with ExitStack() as opened:
                opened.enter_context(tracing.process_traces("lamella-worker" if name == "worker" else "lamella-cli"))
                if name not in _WITHOUT_SPAN:
                    ctx.meta[_SPAN] = opened.enter_context(tracing.part(f"lamella {name}", {}))
                ctx.call_on_close(opened.pop_all().close)
        return name, command, rest

    def _fail(self, ctx: click.Context, code: str) -> None:
        span = ctx.meta.get(_SPAN)
        if span is not None:
            tracing.fail(span, code)


@click.group(cls=RootGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="lamella")
def cli() -> None:
    """Lamella: which Parquet blocks a query needs, and why."""


for command in (
    serve,
    tables.namespaces,
    tables.tables,
    schema,
    index,
    tables.snapshots,
    tag,
    rollback,
    changes,
    register,
    external,
    export,
    prune,
    diff,
    aggregate,
    advise,
    what_if,
    why_not,
    recorded,
    clustering,
    compact,
    recluster,
    regroup,
    delete,
    update,
    vacuum,
    verify,
    feedback,
    prune_rates,
    audit,
    job,
    schedule,
    policy,
    worker,
    config,
    service.catalog,
    keys,
    grants,
    whoami,
    completion,
):
    cli.add_command(command)
tables.tables.add_command(cluster_by)
add_backup_commands(service.catalog)
