"""What roles are given on, as it stands on a command line, and the names of keys."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import click
from click.shell_completion import CompletionItem

from lamella.client.cli.connection import Connect, Target, connect, shown_by
from lamella.snapshot.errors import InvalidRequest, LamellaError
from lamella.snapshot.wire import ROLES, Grant
from lamella.snapshot.wire.place import read_place

#: A shell waits for names no longer than this.
_COMPLETION_S = 2.0


def place_of(text: str, option: str) -> tuple[str | None, str | None]:
    """Namespace and table, as of :func:`~lamella.snapshot.wire.place.read_place`; raises BadParameter."""
    try:
        return read_place(text)
    except InvalidRequest as error:
        raise click.BadParameter(error.message, param_hint=option) from error


def grants_of(texts: Iterable[str]) -> tuple[Grant, ...]:
    """Grants from ``ROLE:PLACE``; raises BadParameter."""
    found = []
    for text in texts:
        role, colon, place = text.partition(":")
        if not colon or role not in ROLES:
            raise click.BadParameter(
                f"{text!r} is not ROLE:PLACE, where ROLE is {', '.join(ROLES)}", param_hint="--grant"
            )
        namespace, table = place_of(place, "--grant")
        found.append(Grant(role=role, namespace=namespace, table=table))
    return tuple(found)


def complete_role(_ctx: click.Context, _parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Roles of ``ROLE:PLACE``, while there is no place yet."""
    return [CompletionItem(f"{role}:") for role in ROLES if role.startswith(incomplete)]


def complete_key(ctx: click.Context, _parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Names of keys, as the service knows them; none where it does not tell."""
    try:
        token, token_file = shown_by(ctx, ctx.params.get("token"), ctx.params.get("token_file"))
        target = Target(url=ctx.params["url"], token=token, token_file=token_file, timeout_s=_COMPLETION_S)
        make: Connect = connect if ctx.obj is None else ctx.obj
        with make(target) as lake:
            names = [key.name for key in lake.keys.list()]
    except (LamellaError, click.UsageError, KeyError):
        return []
    return [CompletionItem(name) for name in names if name.startswith(incomplete)]


def key_argument(function: Callable[..., None]) -> Callable[..., None]:
    """The argument ``NAME``, of a key that is there."""
    return click.argument("name", shell_complete=complete_key)(function)
