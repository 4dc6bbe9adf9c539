"""The service inside another process, for one user of a local folder. No port, no signal handlers, no console.

The installed distribution names :func:`open_app` in the entry point group ``lamella.embedded``, where
``Lamella.embedded`` of the client finds it. The application is the one that ``lamella serve`` runs; only settings
differ, so any number of processes may have one folder open, embedded or not, as the workers of one service do.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from pydantic import ValidationError
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource
from starlette.types import ASGIApp

from lamella.service.app import create_app
from lamella.service.config.check import refuse_unwritable
from lamella.service.config.settings import Settings
from lamella.service.config.sources import setting_problem
from lamella.snapshot.errors import InvalidSettings
from lamella.snapshot.storage.location import parse

#: Settings of a server, of its users, and of what else the folder says.
_OF_A_SERVER: Final = frozenset(
    (
        "warehouse",
        "catalog",
        "host",
        "port",
        "workers",
        "dashboard",
        "insecure",
        "auth",
        "root_key_sha256",
        "tls_cert_file",
        "tls_key_file",
        "allowed_hosts",
        "trusted_proxies",
    )
)
#: What differs from the defaults: nobody reads a line for each request, and no balancer waits for a probe.
_DEFAULTS: Final = {
    "dashboard": False,
    "log_level": "warning",
    "log_format": "text",
    "log_requests": False,
    "ready_timeout_s": 30.0,
}


class EmbeddedSettings(Settings):
    """Settings that ignore the environment, which may name the catalog and the warehouse of a service elsewhere."""

    @classmethod
    def settings_customise_sources(  # type: ignore[override]  # the others are named in the base class
        cls,
        settings_cls: type[BaseSettings],  # noqa: ARG003  # pydantic passes it by name
        init_settings: PydanticBaseSettingsSource,
        **_others: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Return the arguments as the only source."""
        return (init_settings,)


def open_app(folder: str, settings: Mapping[str, Any]) -> ASGIApp:
    """Return the application for the warehouse in a local folder, with its catalog in SQLite; both are made if missing.

    ``settings``: further settings by name, see docs/settings.md. Environment variables are not read.

    Raises:
        InvalidSettings: a setting is unknown, not valid, or one of a server; or the lake was copied or moved.
        InvalidRequest: the folder cannot be used.
        UnsupportedFormat: a newer release has written the catalog.
        Unavailable: the catalog does not answer.
    """
    refused = sorted(_OF_A_SERVER & settings.keys())
    if refused:
        raise _invalid([f"{name} is a setting of a server, and has no meaning in an embedded lake" for name in refused])
    if parse(folder).scheme != "file":
        raise _invalid([f"an embedded lake is in a local folder, not in {folder}"])
    try:
        effective = EmbeddedSettings(**{**_DEFAULTS, **settings, "warehouse": folder})
    except ValidationError as error:
        raise _invalid([setting_problem(found) for found in error.errors()]) from error
    refuse_unwritable(effective)
    return create_app(effective)


def _invalid(problems: list[str]) -> InvalidSettings:
    return InvalidSettings("; ".join(problems), problems=problems)
