"""A job as a command line."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from lamella.snapshot.errors import InvalidRequest
from lamella.snapshot.jobs.kind import JobKind, check_arguments


def command_line(
    kind: JobKind, table: str | None, arguments: Mapping[str, Any], *, extra: Sequence[str] = ()
) -> list[str]:
    """What stands behind the program's name for a job: ``vacuum --execute -- db.t``. ``extra``: more options.

    A member of the arguments that is true is a flag; a list and a mapping are options that are given again and again;
    options that are at their default are left out. Values stand behind ``=`` and names behind ``--``, so that none is
    taken for an option.

    Raises:
        InvalidRequest: arguments that the kind does not take, or a kind that needs a table without one.
    """
    if kind.needs_table and table is None:
        raise InvalidRequest(f"a job of kind {kind.name!r} is about a table", kind=kind.name)
    checked = check_arguments(kind, arguments)
    names = [] if table is None else [table]
    names += [str(checked[name]) for name in kind.positional if name in checked]
    options = [
        word
        for field in msgspec.structs.fields(kind.arguments)
        if field.name in checked and field.name not in kind.positional
        for word in _option("--" + field.name.replace("_", "-"), checked[field.name])
    ]
    return [*kind.command, *extra, *options, *(["--", *names] if names else [])]


def _option(name: str, value: object) -> Iterator[str]:
    if isinstance(value, bool):
        if value:
            yield name
    elif isinstance(value, Mapping):
        for key, part in value.items():
            yield f"{name}={key}={part}"
    elif isinstance(value, list | tuple):
        for part in value:
            yield f"{name}={part}"
    else:
        yield f"{name}={value}"
