"""The root of the command, with a span around the command that it runs."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any, Final

import click

from lamella.client import tracing
from lamella.client.cli.failure import Failure, LamellaGroup

#: The service has traces of its own; a worker has a span for each of its jobs.
_WITHOUT_SPAN: Final = frozenset({"completion", "serve", "worker"})
_SPAN: Final = "lamella.span"


class TracedGroup(LamellaGroup):
    """As its base; spans are sent if the environment wants that, and hold the name of the command and nothing else."""

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command, and say in its span how it ended."""
        try:
            return super().invoke(ctx)
        except Failure as failure:
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
        """The command that the words begin with."""
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
