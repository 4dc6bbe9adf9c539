"""What the commands about jobs have in common: names of kinds, arguments, lengths of time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click
from click.shell_completion import CompletionItem

from lamella.client.cli.moment import age_of
from lamella.client.cli.pairs import values_of


def complete_kind(_ctx: click.Context, _parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Names of job kinds that are known here; the service may know more."""
    from lamella.snapshot.jobs import job_kinds

    return [
        CompletionItem(name, help=kind.text)
        for name, kind in sorted(job_kinds().items())
        if name.startswith(incomplete)
    ]


def kind_argument(function: Callable[..., None]) -> Callable[..., None]:
    """The argument ``KIND``."""
    return click.argument("kind", shell_complete=complete_kind)(function)


def argument_options(function: Callable[..., None]) -> Callable[..., None]:
    """The option by which a job's arguments are given, one after another."""
    return click.option(
        "--argument",
        "-a",
        "arguments",
        multiple=True,
        metavar="NAME=VALUE",
        help="An argument of the kind, as `lamella job kinds` lists them; repeatable.",
    )(function)


def arguments_of(texts: tuple[str, ...]) -> dict[str, Any]:
    """Arguments by name. A value that is a JSON number or truth value is one, and else text. ``set.a=b+1``, for an
    argument that has names itself, is ``{"set": {"a": "b+1"}}``."""
    found: dict[str, Any] = {}
    for name, value in values_of(texts, "--argument").items():
        outer, dot, inner = name.partition(".")
        if not dot:
            found[name] = value
            continue
        within = found.setdefault(outer, {})
        if not isinstance(within, dict):
            raise click.BadParameter(f"{outer} is given as a whole and by parts", param_hint="--argument")
        within[inner] = value
    return found


def seconds_of(text: str | None, option: str) -> int | None:
    """``90s``, ``15m``, ``12h``, ``30d``, ``4w``, or a number of seconds; raises BadParameter."""
    if text is None:
        return None
    if text.isdecimal():
        return int(text)
    try:
        age = age_of(text)
    except click.BadParameter as error:
        raise click.BadParameter(error.message, param_hint=option) from error
    return None if age is None else int(age.total_seconds())
