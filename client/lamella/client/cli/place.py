"""What roles are given on, as it stands on a command line, and the names of keys."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import click
from click.shell_completion import CompletionItem

from lamella.client.cli.connection import Connect, Target, connect, shown_by
from lamella.client.http.call import TableName
from lamella.snapshot.errors import InvalidRequest, LamellaError
from lamella.snapshot.wire import ROLES, Grant

_ALL = "*"
_WITHIN = ".*"
#: A shell waits for names no longer than this.
_COMPLETION_S = 2.0


def place_of(text: str, option: str) -> tuple[str | None, str | None]:
    """Namespace and table: ``*`` is everything, ``NS.*`` a namespace with its tables; raises BadParameter."""
    if text == _ALL:
        return None, None
    if text.endswith(_WITHIN) and len(text) > len(_WITHIN):
        return text.removesuffix(_WITHIN), None
    try:
        name = TableName.parse(text)
    except InvalidRequest as error:
        raise click.BadParameter(
            f"{text!r} is no place: * is everything, NAMESPACE.* a namespace with its tables, NAMESPACE.TABLE a table",
            param_hint=option,
        ) from error
    return name.namespace, name.table


def place_text(grant: Grant) -> str:
    """The place of a grant, as :func:`place_of` reads it."""
    if grant.namespace is None:
        return _ALL
    return f"{grant.namespace}.{grant.table}" if grant.table is not None else grant.namespace + _WITHIN


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
