"""Options, client and output shared by every command that calls a service."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Concatenate, Final, ParamSpec

import click
import msgspec
from click.core import ParameterSource

from lamella.client.cli.failure import needs_extra
from lamella.client.cli.rows import DataWriter, RowFormat, form_of, output_options
from lamella.client.http import Lamella, RetryPolicy
from lamella.client.http.credential import TOKEN, TOKEN_FILE
from lamella.client.http.profiles import DEFAULT, PROFILE, URL, Service, profile_of
from lamella.client.http.transport import CATALOG, folder_of
from lamella.snapshot.errors import InvalidRequest

P = ParamSpec("P")

#: The default address of `lamella serve`.
DEFAULT_URL = "http://127.0.0.1:8181"


class Target(msgspec.Struct, frozen=True, kw_only=True):
    """The address of a service, and how to call it."""

    url: str
    token: str | None
    timeout_s: float
    token_file: str | None = None


def target_of(service: Service, timeout_s: float) -> Target:
    """Return a service as a target."""
    file = None if service.token_file is None else str(service.token_file)
    return Target(url=service.url, token=service.token, token_file=file, timeout_s=timeout_s)


#: Makes the client for a target. Tests pass another one as the context's ``obj``.
Connect = Callable[[Target], Lamella]


#: What a local folder begins with where the URL of a service is expected.
_FOLDERS: Final = ("file://", "/", "./", "../", "~")


def connect(target: Target, *, policy: RetryPolicy | None = None, traces: bool = True) -> Lamella:
    """Return a client connected over HTTP, or, for a folder in which there is a lake, one with the service in this
    process. Raises InvalidRequest for another folder: a mistyped one must not be made into an empty lake."""
    if target.url.startswith(_FOLDERS) or Path(target.url, CATALOG).is_file():
        folder = folder_of(target.url)
        if not Path(folder, CATALOG).is_file():
            raise InvalidRequest(
                f"there is no lake in {folder}; `lamella serve --warehouse {target.url}` makes one", folder=folder
            )
        with needs_extra("service"):
            return Lamella.embedded(folder, timeout_s=target.timeout_s, policy=policy, traces=traces)
    return Lamella(
        target.url,
        token=target.token,
        token_file=target.token_file,
        timeout_s=target.timeout_s,
        policy=policy,
        traces=traces,
    )


def key_options(ctx: click.Context, token: str | None, token_file: str | None) -> tuple[str | None, str | None]:
    """Return the token and the token file, at most one of them not None. An option overrides a variable. Raises
    UsageError."""
    if token is None or token_file is None:
        return token, token_file
    is_option = [ctx.get_parameter_source(name) is ParameterSource.COMMANDLINE for name in ("token", "token_file")]
    if is_option[0] == is_option[1]:
        raise click.UsageError(f"give one of --token and --token-file ({TOKEN} and {TOKEN_FILE})")
    return (token, None) if is_option[0] else (None, token_file)


def service_option(
    ctx: click.Context, url: str | None, profile: str | None, token: str | None, token_file: str | None
) -> Service:
    """Return the service that the options of :func:`service_options` name.

    An option overrides a variable, and ``LAMELLA_URL`` a profile. A profile has the key that belongs to it; only an
    option replaces that. Without any of them it is the default address.

    Raises UsageError, and InvalidRequest for a profile that is missing or not valid.
    """
    given = {name for name in ("url", "profile", "token", "token_file") if is_given(ctx, name)}
    if {"url", "profile"} <= given:
        raise click.UsageError("give one of --url and --profile")
    token, token_file = key_options(ctx, token, token_file)
    if url is not None and "profile" not in given:
        return Service(url=url, token=token, token_file=token_file)
    found = profile_of(profile or DEFAULT, os.environ, required=profile is not None)
    if found is None:
        return Service(url=DEFAULT_URL, token=token, token_file=token_file)
    return Service(url=found.url, token=token, token_file=token_file) if given & {"token", "token_file"} else found


def is_given(ctx: click.Context, name: str) -> bool:
    """Whether an option was given on the command line."""
    return ctx.get_parameter_source(name) is ParameterSource.COMMANDLINE


class Session:
    """One run of a command: the client ``lake``, and the ``form`` of its result."""

    def __init__(self, lake: Lamella, form: RowFormat) -> None:
        self.lake = lake
        self.form = form
        self._writer = DataWriter(form)

    @property
    def as_data(self) -> bool:
        """Whether the result is for a program: the answer itself as JSON or CSV, instead of text for people."""
        return self.form != "table"

    def emit(self, answer: object, rows: Iterable[Any] | None = None) -> None:
        """Write a wire answer as JSON or CSV; ``rows``: as for :meth:`DataWriter.write`."""
        self._writer.write(answer, rows)


def service_options(timeout_s: float = 60.0) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Add the options ``--url``, ``--profile``, ``--token``, ``--token-file`` and ``--timeout`` (``timeout_s``).
    :func:`service_option` decides between the first four."""
    options = (
        click.option(
            "--url",
            envvar=URL,
            show_envvar=True,
            help="The service, or the local folder of a lake, which is then opened in this process."
            f"  [default: {DEFAULT_URL}, if there is no profile]",
        ),
        click.option(
            "--profile", envvar=PROFILE, show_envvar=True, metavar="NAME", help="A profile with its address and key."
        ),
        click.option("--token", envvar=TOKEN, show_envvar=True, help="API key or token, if the service requires one."),
        click.option(
            "--token-file",
            envvar=TOKEN_FILE,
            show_envvar=True,
            metavar="FILE",
            help="A file that contains it; it is read again when it is replaced.",
        ),
        click.option(
            "--timeout",
            "timeout_s",
            type=click.FloatRange(min=0, min_open=True),
            default=timeout_s,
            show_default=True,
            help="Seconds to wait for a connection or the next part of an answer.",
        ),
    )

    def decorate(function: Callable[..., None]) -> Callable[..., None]:
        for option in reversed(options):
            function = option(function)
        return function

    return decorate


def with_session(timeout_s: float = 60.0) -> Callable[[Callable[Concatenate[Session, P], None]], Callable[..., None]]:
    """Add the options of :func:`service_options` and :func:`output_options`, and pass a :class:`Session`."""

    def decorate(function: Callable[Concatenate[Session, P], None]) -> Callable[..., None]:
        @service_options(timeout_s)
        @output_options("The same as -o json: the service's answer, and nothing else.")
        @click.pass_context
        @functools.wraps(function)
        def command(ctx: click.Context, /, *args: Any, **kwargs: Any) -> None:
            form = form_of(kwargs.pop("output"), as_json=kwargs.pop("as_json"))
            named = (kwargs.pop(name) for name in ("url", "profile", "token", "token_file"))
            target = target_of(service_option(ctx, *named), kwargs.pop("timeout_s"))
            make: Connect = connect if ctx.obj is None else ctx.obj
            with make(target) as lake:
                function(Session(lake, form), *args, **kwargs)

        return command

    return decorate
