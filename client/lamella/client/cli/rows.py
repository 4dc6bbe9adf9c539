"""Answers and rows for programs: the options ``--output`` and ``--json``, JSON, and CSV."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, Literal

import click
import msgspec

from lamella.client.cli.output import print_table

RowFormat = Literal["table", "json", "csv"]
FORMATS: Final[tuple[RowFormat, ...]] = ("table", "json", "csv")
#: Characters for which a field of CSV is quoted (RFC 4180).
_SPECIAL: Final = frozenset('",\r\n')


def output_options(json_help: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Add the options ``--output`` (``output``) and ``--json`` (``as_json``); :func:`form_of` reads both."""
    options = (
        click.option(
            "--output",
            "-o",
            type=click.Choice(FORMATS),
            help="The form of the result. Default: table; json with --json.",
        ),
        click.option("--json", "as_json", is_flag=True, help=json_help),
    )

    def decorate(function: Callable[..., None]) -> Callable[..., None]:
        for option in reversed(options):
            function = option(function)
        return function

    return decorate


def form_of(output: RowFormat | None, *, as_json: bool) -> RowFormat:
    """Return the form that the options ``-o`` and ``--json`` ask for; raises UsageError if they differ."""
    if as_json and output not in (None, "json"):
        raise click.UsageError(f"give one of --json and -o {output}")
    return "json" if as_json else output or "table"


class DataWriter:
    """Writes answers to stdout (``err``: to stderr) in the form "json" or "csv".

    JSON: a line for each answer. CSV: a line for each item of the list that the answer consists of, or else one line
    for the answer. A line with the members' names comes first, and again when other names follow.
    """

    def __init__(self, form: RowFormat, *, err: bool = False) -> None:
        self._form = form
        self._err = err
        self._names: tuple[str, ...] | None = None

    def write(self, answer: object, rows: Iterable[Any] | None = None) -> None:
        """Write an answer; ``rows``: what CSV has of it, if it has other members than the list of these."""
        if self._form == "json":
            click.echo(msgspec.json.encode(answer).decode(), err=self._err)
            return
        item: Any = None
        if rows is None:
            rows, item = _rows_of(answer)
        for row in rows:
            members = _members(row)
            self._head(tuple(members))
            if members:
                click.echo(_line(members.values()), err=self._err)
        if self._names is None and item is not None:
            self._head(tuple(field.encode_name for field in msgspec.structs.fields(item)))

    def _head(self, names: tuple[str, ...]) -> None:
        if names and names != self._names:
            click.echo(_line(names), err=self._err)
            self._names = names


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
        click.echo(_line(names))
    for row in rows:
        if form == "csv":
            click.echo(_line(row))
        else:
            click.echo(msgspec.json.encode(dict(zip(names, row, strict=True))).decode())
        count += 1
    return count


def _rows_of(answer: object) -> tuple[Iterable[Any], Any]:
    """Return the rows of an answer, and the type that names the columns if there are none."""
    if isinstance(answer, list | tuple):
        return answer, None
    members = _values(answer)
    members.pop("next_page_token", None)
    ((name, only),) = members.items() if len(members) == 1 else (("", None),)
    if not isinstance(only, list | tuple):
        return (answer,), None
    if only and isinstance(only[0], msgspec.Struct | Mapping):
        return only, None
    return [{name: value} for value in only], _item_type(answer, name)


def _item_type(answer: object, member: str) -> Any:
    """Return the type of the items of a list; None: they are not structs."""
    fields = msgspec.structs.fields(answer) if isinstance(answer, msgspec.Struct) else ()
    found = [each for field in fields if field.encode_name == member for each in getattr(field.type, "__args__", ())]
    return next((each for each in found if isinstance(each, type) and issubclass(each, msgspec.Struct)), None)


def _members(row: object) -> dict[str, Any]:
    """Return the members of one row as JSON values, with the names that JSON has."""
    return {name: msgspec.to_builtins(value) for name, value in _values(row).items()}


def _values(row: object) -> dict[str, Any]:
    if isinstance(row, msgspec.Struct):
        fields = msgspec.structs.fields(row)
        found = {field.encode_name: getattr(row, field.name) for field in fields}
        return {name: None if value is msgspec.UNSET else value for name, value in found.items()}
    return dict(row) if isinstance(row, Mapping) else {"value": row}


def _line(values: Iterable[Any]) -> str:
    return ",".join("" if value is None else _field(_text(value)) for value in values)


def _text(value: Any) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def _field(text: str) -> str:
    return '"' + text.replace('"', '""') + '"' if not text or _SPECIAL & set(text) else text
