"""Rows as text: a table for people, one JSON object on each line, or CSV."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final, Literal

import click
import msgspec

from lamella.client.cli.output import print_table

RowFormat = Literal["table", "json", "csv"]
FORMATS: Final[tuple[RowFormat, ...]] = ("table", "json", "csv")
#: Characters for which a field of CSV is quoted (RFC 4180).
_SPECIAL: Final = frozenset('",\r\n')


def form_of(output: RowFormat | None, *, as_json: bool) -> RowFormat:
    """Return the form that the options ``-o`` and ``--json`` ask for; raises UsageError if they differ."""
    if as_json and output not in (None, "json"):
        raise click.UsageError(f"give one of --json and -o {output}")
    return "json" if as_json else output or "table"


def write_rows(form: RowFormat, names: Sequence[str], rows: Iterable[Sequence[Any]]) -> int:
    """Write rows of JSON values to stdout and return their number. JSON and CSV are written as the rows come.

    In CSV a null is an empty field, and empty text is ``""``; nested values are JSON. The first line has the names.
    """
    if form == "table":
        found = [["null" if value is None else _text(value) for value in row] for row in rows]
        print_table(names, found)
        return len(found)
    count = 0
    if form == "csv":
        click.echo(",".join(_field(name) for name in names))
    for row in rows:
        if form == "csv":
            click.echo(",".join("" if value is None else _field(_text(value)) for value in row))
        else:
            click.echo(msgspec.json.encode(dict(zip(names, row, strict=True))).decode())
        count += 1
    return count


def _text(value: Any) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def _field(text: str) -> str:
    return '"' + text.replace('"', '""') + '"' if not text or _SPECIAL & set(text) else text
