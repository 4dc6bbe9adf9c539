"""Options, client and output shared by every command that calls a service."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Concatenate, Final, ParamSpec

import click
import msgspec
from click.core import ParameterSource

from lamella.client.cli.failure import CommandFailure, needs_extra
from lamella.client.http import Lamella, RetryPolicy
from lamella.client.http.credential import TOKEN, TOKEN_FILE
from lamella.client.http.transport import CATALOG, folder_of
from lamella.snapshot.errors import InvalidRequest, LamellaError, TableNotFound

P = ParamSpec("P")

#: The default address of `lamella serve`.
DEFAULT_URL = "http://127.0.0.1:8181"


class Target(msgspec.Struct, frozen=True, kw_only=True):
    """The address of a service, and how to call it."""

    url: str
    token: str | None
    timeout_s: float
    token_file: str | None = None


#: Makes the client for a target. Tests pass another one as the context's ``obj``.
Connect = Callable[[Target], Lamella]


#: What a local folder begins with where the URL of a service is expected.
_FOLDERS: Final = ("file://", "/", "./", "../", "~")


def connect(target: Target, *, policy: RetryPolicy | None = None, traces: bool = True) -> Lamella:
    """Return a client connected over HTTP, or, for a folder in which there is a lake, one with the service in this
    process. Raises InvalidRequest for another folder: a mistyped one must not be made into an empty lake."""
    if target.url.startswith(_FOLDERS):
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


class Session(msgspec.Struct, frozen=True):
    """One run of a command: the client, and whether to write JSON."""

    lake: Lamella
    as_json: bool

    def emit(self, answer: object) -> None:
        """Write a wire answer as one line of JSON."""
        click.echo(msgspec.json.encode(answer).decode())


def service_options(
    timeout_s: float = 60.0, json_help: str = "Write the service's answer as JSON, and nothing else."
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Add the options ``--url``, ``--token``, ``--token-file``, ``--timeout`` (``timeout_s``) and ``--json``
    (``as_json``). :func:`key_options` decides between the token and its file."""
    options = (
        click.option(
            "--url",
            envvar="LAMELLA_URL",
            default=DEFAULT_URL,
            show_default=True,
            show_envvar=True,
            help="The service, or the local folder of a lake, which is then opened in this process.",
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
        click.option("--json", "as_json", is_flag=True, help=json_help),
    )

    def decorate(function: Callable[..., None]) -> Callable[..., None]:
        for option in reversed(options):
            function = option(function)
        return function

    return decorate


@contextmanager
def near_tables(lake: Lamella) -> Iterator[None]:
    """Add a table with a similar name, if there is one, to the error that there is no such table."""
    try:
        yield
    except (TableNotFound, CommandFailure) as failure:
        error = failure.error if isinstance(failure, CommandFailure) else failure
        if isinstance(error, TableNotFound):
            namespace, name = str(error.details.get("namespace", "")), str(error.details.get("table", ""))
            with suppress(LamellaError):  # the first error counts
                near = get_close_matches(name, lake.tables(namespace), 1) if namespace else []
                error.details.update({"did_you_mean": f"{namespace}.{near[0]}"} if near else {})
        raise


def with_session(timeout_s: float = 60.0) -> Callable[[Callable[Concatenate[Session, P], None]], Callable[..., None]]:
    """Add the options of :func:`service_options`, and pass a :class:`Session`."""

    def decorate(function: Callable[Concatenate[Session, P], None]) -> Callable[..., None]:
        @service_options(timeout_s)
        @click.pass_context
        @functools.wraps(function)
        def command(ctx: click.Context, /, *args: Any, **kwargs: Any) -> None:
            token, token_file = key_options(ctx, kwargs.pop("token"), kwargs.pop("token_file"))
            target = Target(
                url=kwargs.pop("url"), token=token, token_file=token_file, timeout_s=kwargs.pop("timeout_s")
            )
            make: Connect = connect if ctx.obj is None else ctx.obj
            with make(target) as lake, near_tables(lake):
                function(Session(lake, kwargs.pop("as_json")), *args, **kwargs)

        return command

    return decorate
