"""What commands have in common that work with the service's own settings, where it is installed."""

from __future__ import annotations

import functools
from collections.abc import Callable
from importlib import import_module
from typing import Any, Concatenate, ParamSpec

import click

from lamella.client.cli.missing import needs_extra
from lamella.snapshot.errors import InvalidSettings

P = ParamSpec("P")

_CONFIG = click.option(
    "--config",
    metavar="FILE",
    envvar="LAMELLA_CONFIG",
    show_envvar=True,
    help="Configuration file in TOML; a variable wins over it, an option over both.",
)
_STATE = (
    click.option("--warehouse", metavar="URL", help="Folder of all tables: a path, file:// or s3://bucket/prefix."),
    click.option(
        "--catalog",
        metavar="URL",
        help="Database: a path, sqlite:/// or postgresql+psycopg://. Default: in the warehouse.",
    ),
)
_SERVER = (
    click.option("--host", help="Address to listen on.  [default: 127.0.0.1]"),
    click.option("--port", type=int, help="Port to listen on.  [default: 8181]"),
    click.option("--workers", type=int, help="Processes that serve requests.  [default: 1]"),
    click.option("--insecure", is_flag=True, help="Allow an address that other machines can reach."),
)
_NAMES = ("warehouse", "catalog", "host", "port", "workers", "insecure")


class ServiceSettings:
    """The settings that a command was given by options; the others stand in the environment and in files."""

    def __init__(self, config: str | None, given: dict[str, Any]) -> None:
        self._config = config
        self._given = given

    def load(self, **more: Any) -> Any:
        """The service's ``Configuration``; ``more``: options besides. UsageError with all that is wrong with them."""
        # By name, since the client never depends on the service: it may be installed without it.
        with needs_extra("service"):
            configuration = import_module("lamella.service.configuration")
        try:
            return configuration.load_settings({**self._given, **more}, config=self._config)
        except InvalidSettings as error:
            raise click.UsageError("; ".join(error.details["problems"])) from error


def with_settings(
    *, server: bool = False
) -> Callable[[Callable[Concatenate[ServiceSettings, P], None]], Callable[..., None]]:
    """Give a command options for settings, those of the server too if asked, and :class:`ServiceSettings`."""
    options = (_CONFIG, *_STATE, *(_SERVER if server else ()))

    def decorate(function: Callable[Concatenate[ServiceSettings, P], None]) -> Callable[..., None]:
        @functools.wraps(function)
        def command(*args: Any, **kwargs: Any) -> None:
            config = kwargs.pop("config")
            given = {name: kwargs.pop(name, None) for name in _NAMES}
            # A flag that is not there says nothing.
            function(ServiceSettings(config, {**given, "insecure": given["insecure"] or None}), *args, **kwargs)

        decorated: Callable[..., None] = command
        for option in reversed(options):
            decorated = option(decorated)
        return decorated

    return decorate
