"""``lamella completion``."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class


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
