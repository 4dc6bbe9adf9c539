"""Arguments and options shared by several commands: paths, KEY=VALUE, snapshots and times, stores, job kinds."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Final

import click
import msgspec
from click.shell_completion import CompletionItem

from lamella.snapshot.manifest.features import FEATURES
from lamella.snapshot.schema.column import split_key


def location_of(text: str) -> str:
    """Return a URL unchanged, and a path made absolute, since the service has another working directory.

    A trailing slash is kept: it means a directory.
    """
    if "://" in text or text.lower().startswith("file:/"):
        return text
    absolute = str(Path(text).expanduser().absolute())
    return absolute + "/" if text.endswith("/") and not absolute.endswith("/") else absolute


def pairs_of(texts: Iterable[str], option: str, form: str = "KEY=VALUE") -> dict[str, str]:
    """Parse ``KEY=VALUE`` texts; raises BadParameter."""
    pairs = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not (key and equals):
            raise click.BadParameter(f"{text!r} is not {form}", param_hint=option)
        pairs[key] = value
    return pairs


def values_of(texts: Iterable[str], option: str) -> dict[str, Any]:
    """Parse ``NAME=VALUE`` texts. A value that is a JSON number or boolean becomes one; other values stay text."""
    return {name: _value(text) for name, text in pairs_of(texts, option, "NAME=VALUE").items()}


def _value(text: str) -> Any:
    try:
        read = msgspec.json.decode(text.encode())
    except (msgspec.DecodeError, RecursionError):
        return text
    return read if isinstance(read, bool | int | float | str) else text


_AGE: Final = re.compile(r"(\d{1,9})([smhdw])")
_UNITS: Final = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}


def time_of(text: str | None) -> int | str | None:
    """Return a time as the client accepts it: digits alone are Unix milliseconds."""
    return int(text) if text is not None and text.removeprefix("-").isdecimal() else text


def snapshot_of(text: str | None) -> tuple[str | None, int | str | None]:
    """Return an id, tag or number, and a time, one of them None. Text that begins with ``@`` is a time: no tag does."""
    if text is None or not text.startswith("@"):
        return text, None
    return None, time_of(text[1:])


def one_snapshot(snapshot_id: str | None, timestamp: str | None) -> None:
    """Raise UsageError when both options that name a snapshot are given."""
    if snapshot_id is not None and timestamp is not None:
        raise click.UsageError("give at most one of --snapshot and --timestamp")


def age_of(text: str | None) -> dt.timedelta | None:
    """Parse ``90s``, ``15m``, ``12h``, ``30d`` or ``4w``; raises BadParameter."""
    if text is None:
        return None
    found = _AGE.fullmatch(text)
    if found is None:
        raise click.BadParameter(f"{text!r} is not a time such as 12h or 30d", param_hint="--max-age")
    try:
        return dt.timedelta(**{_UNITS[found[2]]: int(found[1])})
    except OverflowError as error:
        raise click.BadParameter(f"{text!r} is too long", param_hint="--max-age") from error


def instant_of(text: str | None) -> int | dt.datetime | None:
    """Parse ISO 8601 (UTC when it names no zone) or Unix milliseconds; raises BadParameter."""
    if text is None or text.isdecimal():
        return None if text is None else int(text)
    try:
        at = dt.datetime.fromisoformat(text)
    except ValueError as error:
        raise click.BadParameter(f"{text!r} is not a time such as 2026-12-31T00:00Z", param_hint="--expires") from error
    return at if at.tzinfo is not None else at.replace(tzinfo=dt.UTC)


class _Options(click.ParamType[dict[str, dict[str, Any]]]):
    """A parameter type: fsspec options by scheme, as JSON."""

    name = "JSON"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> dict[str, dict[str, Any]]:
        """Return the decoded options; fails with the position of a syntax error."""
        try:
            return msgspec.json.decode(value, type=dict[str, dict[str, Any]])
        except msgspec.DecodeError as error:
            self.fail(f"not JSON by scheme: {error}", param, ctx)


def reader_features_option(function: Callable[..., None]) -> Callable[..., None]:
    """Add the option ``--reader-features``."""
    return click.option(
        "--reader-features",
        metavar="A,B,...",
        help="With --json: what the program that reads the blocks supports, such as constants.",
    )(function)


def reader_features_of(text: str | None, *, as_data: bool) -> tuple[str, ...]:
    """Return what a reader of the output supports: people see constants and the like beside each block, and a program
    must say that it applies them."""
    return FEATURES if not as_data else tuple(name for part in (text or "").split(",") if (name := part.strip()))


def store_options(function: Callable[..., None]) -> Callable[..., None]:
    """Add the option ``--storage-options``."""
    return click.option(
        "--storage-options",
        envvar="LAMELLA_STORE_OPTIONS",
        metavar="JSON",
        type=_Options(),
        default="{}",
        help='fsspec options by scheme, {"s3": {"endpoint_url": ...}}.',
    )(function)


def complete_kind(_ctx: click.Context, _parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Complete the job kinds known to this installation; the service may know more."""
    from lamella.snapshot.job_kinds import job_kinds

    return [
        CompletionItem(name, help=kind.text)
        for name, kind in sorted(job_kinds().items())
        if name.startswith(incomplete)
    ]


def kind_argument(function: Callable[..., None]) -> Callable[..., None]:
    """Add the argument ``KIND``."""
    return click.argument("kind", shell_complete=complete_kind)(function)


def argument_options(function: Callable[..., None]) -> Callable[..., None]:
    """Add the repeatable option for a job's arguments."""
    return click.option(
        "--argument",
        "-a",
        "arguments",
        multiple=True,
        metavar="NAME=VALUE",
        help="An argument of the kind, as `lamella job kinds` lists them; repeatable.",
    )(function)


def arguments_of(texts: tuple[str, ...]) -> dict[str, Any]:
    """Parse arguments by name. A value that is a JSON number or boolean is parsed as one; any other value is text.
    ``set.a=b+1`` gives ``{"set": {"a": "b+1"}}``."""
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


def key_option(help: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Add ``--cluster-by`` (``cluster_by``, the terms of a cluster key): a list, or the option several times."""
    return click.option("--cluster-by", metavar="A,B,...", multiple=True, callback=_terms, help=help)


def _terms(_ctx: click.Context, _parameter: click.Parameter, texts: Iterable[str]) -> tuple[str, ...]:
    return tuple(term for text in texts for term in split_key(text))


def since_option(function: Callable[..., None]) -> Callable[..., None]:
    """Add ``--since`` (``since_s``, in seconds)."""
    return click.option(
        "--since",
        "since_s",
        metavar="AGE",
        default="24h",
        show_default=True,
        callback=_since_s,
        help="Look back so far: 90s, 15m, 12h, 30d, 4w.",
    )(function)


def _since_s(_ctx: click.Context, _parameter: click.Parameter, text: str) -> int:
    seconds = seconds_of(text, "--since")
    if not seconds:
        raise click.BadParameter("must be at least one second", param_hint="--since")
    return seconds


def seconds_of(text: str | None, option: str) -> int | None:
    """Parse ``90s``, ``15m``, ``12h``, ``30d``, ``4w`` or a number of seconds; raises BadParameter."""
    if text is None:
        return None
    if text.isdecimal():
        return int(text)
    try:
        age = age_of(text)
    except click.BadParameter as error:
        raise click.BadParameter(error.message, param_hint=option) from error
    return None if age is None else int(age.total_seconds())
