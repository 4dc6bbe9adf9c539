"""The root command group, with a trace span for each command."""

from __future__ import annotations

from collections.abc import Iterator, MutableMapping
from contextlib import ExitStack
from importlib import import_module
from typing import Any, Final

import click
from click.shell_completion import get_completion_class

from lamella.client import tracing
from lamella.client.cli.failure import CommandFailure, LamellaGroup, one_form


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


#: Where each command is defined, below ``lamella.client``; after a colon, its name there if it is another one. It is
#: imported when it is used, so that none waits for the imports of the others.
_HOMES: Final = {
    "serve": "cli.service",
    "namespaces": "cli.tables",
    "tables": "cli.tables",
    "views": "cli.views",
    "schema": "cli.tables",
    "index": "cli.index",
    "snapshots": "cli.tables",
    "tag": "cli.history",
    "branch": "cli.history",
    "rollback": "cli.history",
    "changes": "cli.history",
    "append": "cli.append",
    "register": "cli.register",
    "arrivals": "arrivals.commands",
    "external": "cli.register",
    "import": "catalogs.commands:import_group",
    "export": "iceberg.commands",
    "prune": "cli.prune",
    "sample": "cli.sample",
    "scan": "cli.scan",
    "sql": "cli.sql",
    "diff": "cli.prune",
    "aggregate": "cli.prune",
    "advise": "advice.commands",
    "auto": "cli.auto",
    "what-if": "advice.commands",
    "why-not": "advice.commands",
    "recorded": "advice.commands",
    "clustering": "cli.layout",
    "analyze": "cli.rewrite",
    "compact": "cli.rewrite",
    "recluster": "cli.rewrite",
    "purge": "cli.rewrite",
    "regroup": "cli.layout",
    "delete": "cli.rewrite",
    "update": "cli.rewrite",
    "vacuum": "cli.maintenance",
    "verify": "cli.maintenance",
    "health": "cli.maintenance",
    "feedback": "cli.usage",
    "prune-rates": "cli.usage",
    "service-rates": "cli.usage",
    "audit": "cli.usage",
    "job": "cli.jobs",
    "schedule": "cli.jobs",
    "policy": "cli.jobs",
    "worker": "cli.jobs",
    "doctor": "cli.doctor",
    "config": "cli.service",
    "catalog": "cli.service",
    "keys": "cli.access",
    "grants": "cli.access",
    "whoami": "cli.access",
}
#: What adds commands of an optional package to a group.
_ADDITIONS: Final = {
    "catalog": "backup.commands:add_backup_commands",
}
#: Commands without a span of their own: the service has its own traces, a worker traces each job, and programs that
#: watch run for weeks.
_WITHOUT_SPAN: Final = frozenset({"arrivals", "completion", "serve", "worker"})
_SPAN: Final = "lamella.span"


class Commands(MutableMapping[str, click.Command]):
    """The commands by name, each imported when it is used."""

    def __init__(self) -> None:
        self._imported: dict[str, click.Command] = {}

    def __getitem__(self, name: str) -> click.Command:
        if name not in self._imported:
            home, _, attribute = _HOMES[name].partition(":")
            command: click.Command = _defined(home, attribute or name.replace("-", "_"))
            if name in _ADDITIONS:
                _defined(*_ADDITIONS[name].split(":"))(command)
            self._imported[name] = command
        return self._imported[name]

    def __setitem__(self, name: str, command: click.Command) -> None:
        self._imported[name] = command

    def __delitem__(self, name: str) -> None:
        del self._imported[name]

    def __iter__(self) -> Iterator[str]:
        return iter({**_HOMES, **self._imported})

    def __len__(self) -> int:
        return len({**_HOMES, **self._imported})


def _defined(module: str, name: str) -> Any:
    return getattr(import_module(f"lamella.client.{module}"), name)


class RootGroup(LamellaGroup):
    """Adds a span around each command if the environment enables traces. The span contains only the command's name."""

    def make_context(self, *args: Any, **kwargs: Any) -> click.Context:
        """Return the context of the root; errors of its options have the form of all errors."""
        with one_form():
            return super().make_context(*args, **kwargs)

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command and set its outcome in the span; errors have one form."""
        with one_form():
            return self._invoke(ctx)

    def _invoke(self, ctx: click.Context) -> Any:
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


@click.group(cls=RootGroup, commands=Commands(), context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="lamella")
def cli() -> None:
    """Lamella: which Parquet blocks a query needs, and why."""


cli.add_command(completion)
