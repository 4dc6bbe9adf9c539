"""Errors as text for the terminal: one line with the error's code, and a caret for a position in a filter."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO, Any

import click

from lamella.client.jobs.report import ErrorEvent, is_job, send_event
from lamella.snapshot.errors import (
    LamellaError,
    OutcomeUnknown,
    PermissionDenied,
    Unauthenticated,
    Unavailable,
)

#: The extra that installs a module, where it is not the extra of the command itself.
_EXTRAS = {"psycopg": "postgres", "s3fs": "s3", "pyspark": "spark", "py4j": "spark", "httpx2": "aio"}


@contextmanager
def needs_extra(extra: str) -> Iterator[None]:
    """Turn a missing third-party module into one sentence that names the extra to install."""
    try:
        yield
    except ModuleNotFoundError as error:
        top = (error.name or "").partition(".")[0]
        if top in ("", "lamella"):
            raise
        name = _EXTRAS.get(top, extra)
        raise click.ClickException(f"{top} is not installed; pip install 'lamella[{name}]' installs it") from error


#: The exit status when the program that reads the output has ended: that of a program which SIGPIPE ended.
READER_ENDED = 141
#: At most this many refused files are listed; the others are counted.
MAX_LISTED = 10


class CommandFailure(click.ClickException):
    """Shows a :class:`LamellaError` on stderr and exits with status 1.

    ``source`` is the filter that the error's ``position`` refers to; ``done`` says what was completed before the error.
    """

    exit_code = 1

    def __init__(self, error: LamellaError, *, source: str | None = None, done: str | None = None) -> None:
        super().__init__(error.message)
        self.error = error
        self.source = source
        self.done = done

    def show(self, file: IO[Any] | None = None) -> None:
        """Write the error to stderr; in a job's program also send it to the worker, which reports it as the cause."""
        if is_job():
            send_event(ErrorEvent(code=self.error.code, detail=self.error.message, details=self.error.details))
        for line in self.lines():
            click.echo(line, file=file, err=file is None)

    def lines(self) -> list[str]:
        """Return the lines to show."""
        error = self.error
        lines = [f"error: {_one_line(_without_first_refused(error))} [{error.code}]{_hint(error)}"]
        position = error.details.get("position")
        if self.source is not None and isinstance(position, int):
            lines += caret(self.source, position)
        if "refused" in error.details:
            lines += refused_lines(error.details["refused"])
        if self.done is not None:
            lines.append(self.done)
        return lines


class UsageFailure(click.ClickException):
    """Shows an error of the command line in one line on stderr and exits with status 2."""

    exit_code = 2

    def __init__(self, error: click.UsageError) -> None:
        super().__init__(_one_line(error.format_message()).removesuffix("."))
        self._path = "" if error.ctx is None else error.ctx.command_path

    def show(self, file: IO[Any] | None = None) -> None:
        """Write the line, with the command whose help says more."""
        text = self.message[:1].lower() + self.message[1:] if self.message[1:2].islower() else self.message
        hint = f"; see `{self._path} --help`" if self._path else ""
        click.echo(f"error: {text} [usage]{hint}", file=file, err=file is None)


class OtherFailure(click.ClickException):
    """Shows another error of a command in the same form, and exits with status 1."""

    def show(self, file: IO[Any] | None = None) -> None:
        """Write the line."""
        click.echo(f"error: {_one_line(self.message)}", file=file, err=file is None)


class Interrupted(click.ClickException):
    """Says that Ctrl-C ended a command, and exits with the status that shells use for it."""

    exit_code = 130

    def __init__(self) -> None:
        super().__init__("interrupted")

    def show(self, file: IO[Any] | None = None) -> None:
        """Write the line, below the ``^C`` of the terminal."""
        click.echo(f"\nerror: {self.message}", file=file, err=file is None)


@contextmanager
def one_form() -> Iterator[None]:
    """Give all errors of commands one form: a line that begins with ``error:``. Help that is shown stays help."""
    try:
        yield
    except click.exceptions.NoArgsIsHelpError:
        raise
    except (KeyboardInterrupt, click.Abort) as stop:
        raise Interrupted from stop
    except BrokenPipeError as error:  # of stdout: those of connections are errors of Lamella
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115  # what is still buffered has no reader either
        raise click.exceptions.Exit(READER_ENDED) from error
    except SystemExit as stop:
        if isinstance(stop.__context__, BrokenPipeError):  # rich ends the program for it, with status 1
            raise click.exceptions.Exit(READER_ENDED) from stop
        raise
    except click.UsageError as error:
        raise UsageFailure(error) from error
    except click.ClickException as error:
        if isinstance(error, CommandFailure | UsageFailure | OtherFailure | Interrupted):
            raise
        raise OtherFailure(error.message) from error


class LamellaGroup(click.Group):
    """A command group whose commands may raise :class:`LamellaError`."""

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command; a :class:`LamellaError` becomes a :class:`CommandFailure`."""
        try:
            return super().invoke(ctx)
        except LamellaError as error:
            raise CommandFailure(error) from error


def caret(source: str, position: int) -> list[str]:
    """Return the line of ``source`` that contains ``position`` (0-based, in characters), and a caret below it."""
    from rich.cells import cell_len

    position = max(0, min(position, len(source)))
    start = source.rfind("\n", 0, position) + 1
    line = source[start:].partition("\n")[0].replace("\t", " ")
    return [f"  {line}", "  " + " " * cell_len(line[: position - start]) + "^"]


def refused_lines(refused: Any) -> list[str]:
    """Return one line for each refused file with its reason; unknown entries are shown as they are."""
    if not isinstance(refused, list | tuple):
        return [f"  {refused}"]
    lines = []
    for entry in refused[:MAX_LISTED]:
        if isinstance(entry, dict):
            path, reason = str(entry.get("path")), str(entry.get("reason"))
            lines.append(f"  {reason if path in reason else f'{path}: {reason}'} [{entry.get('code')}]")
        else:
            lines.append(f"  {entry}")
    if len(refused) > MAX_LISTED:
        lines.append(f"  and {len(refused) - MAX_LISTED:,} more")
    return lines


def _without_first_refused(error: LamellaError) -> str:
    """Return the message without the first refused file, which it names for clients that do not show the list."""
    refused = error.details.get("refused")
    first = refused[0] if isinstance(refused, list | tuple) and refused else None
    at = error.message.find(", first ")
    named = isinstance(first, dict) and error.message.startswith(f", first {first.get('path')!r}", at)
    return error.message[:at] if at >= 0 and named else error.message


def _hint(error: LamellaError) -> str:
    near = error.details.get("did_you_mean")
    if near is not None:
        return f"; did you mean {near}?"
    if isinstance(error, OutcomeUnknown):
        return "; check the state before you run it again"
    if isinstance(error, Unauthenticated):
        return "; set LAMELLA_TOKEN or LAMELLA_TOKEN_FILE, or give --token, --token-file or --profile"
    if isinstance(error, PermissionDenied):
        return "; `lamella whoami` shows what you may do"
    if isinstance(error, Unavailable) and "url" in error.details:
        return "; is the service running there? `lamella serve` starts one, --url or LAMELLA_URL names another"
    return ""


def _one_line(text: str) -> str:
    return " ".join(text.split())
