"""What becomes of a configuration when a service is started with it, said beforehand."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Final, Literal

import msgspec

from lamella.service.access.oidc import Issuer
from lamella.service.access.starting import certificate_problems, refuse_unsafe, unsafe_warnings
from lamella.service.catalog.administration import look_at_schema
from lamella.service.catalog.engine import catalog_url
from lamella.service.configuration import Configuration
from lamella.service.location_rules import check_rules
from lamella.service.services import MARKER
from lamella.service.settings import Settings
from lamella.service.shown_settings import shown_settings, without_secrets
from lamella.snapshot.errors import LamellaError, ObjectNotFound
from lamella.snapshot.layout import FsspecStore, Store
from lamella.snapshot.layout.location import parse

#: Which library something needs, and the extra that brings it.
_LIBRARIES: Final = {
    "s3": ("s3fs", "s3"),
    "postgresql": ("psycopg", "postgres"),
    "traces": ("opentelemetry", "telemetry"),
}


class ConfigFinding(msgspec.Struct, frozen=True, kw_only=True):
    """``error``: the service would not start, or not serve; ``warning``: it would, and somebody should know;
    ``info``: what was seen."""

    severity: Literal["error", "warning", "info"]
    about: str
    message: str


class SettingInForce(msgspec.Struct, frozen=True, kw_only=True):
    """A setting, its value as people may see it, and where it comes from."""

    name: str
    value: str
    origin: str
    is_default: bool


class ConfigReport(msgspec.Struct, frozen=True, kw_only=True):
    """All settings in force, and what was found of them."""

    is_usable: bool
    config: str | None
    settings: tuple[SettingInForce, ...]
    findings: tuple[ConfigFinding, ...] = ()


def settings_in_force(configuration: Configuration) -> tuple[SettingInForce, ...]:
    """Every setting, secrets hidden, in the order of docs/settings.md."""
    origins = configuration.origins
    return tuple(
        SettingInForce(
            name=shown.name,
            value=shown.value,
            origin=str(origins[shown.name]),
            is_default=origins[shown.name].place == "default",
        )
        for shown in shown_settings(configuration.settings)
    )


def check_configuration(
    configuration: Configuration, *, connect: bool, open_store: Callable[[Settings], Store] | None = None
) -> ConfigReport:
    """Look at everything that a start would refuse. ``connect``: at the catalog and the warehouse as well.

    Nothing is written, neither there nor here.
    """
    settings = configuration.settings
    findings = [ConfigFinding(severity="warning", about="settings", message=text) for text in configuration.warnings]
    findings += _of_settings(settings)
    can_connect = all(finding.severity != "error" for finding in findings)
    if connect and can_connect:
        findings.append(_catalog(settings))
        findings.append(_store(settings, open_store or _open_store))
    return ConfigReport(
        is_usable=all(finding.severity != "error" for finding in findings),
        config=configuration.config,
        settings=settings_in_force(configuration),
        findings=tuple(findings),
    )


def _of_settings(settings: Settings) -> Iterator[ConfigFinding]:
    refused = set()
    checks: tuple[tuple[str, Callable[[], object]], ...] = (
        ("access", lambda: refuse_unsafe(settings)),
        ("access", lambda: _issuer(settings)),
        ("warehouse", lambda: settings.warehouse_url),
        ("catalog", lambda: catalog_url(settings.catalog_url)),
        ("allowed_locations", lambda: check_rules(settings)),
        ("iceberg_properties", settings.require_public_properties),
    )
    for about, check in checks:
        try:
            check()
        except LamellaError as error:
            refused.add(about)
            yield _error(about, error.message)
    for text in unsafe_warnings(settings):
        yield ConfigFinding(severity="warning", about="access", message=text)
    yield from (_error(name, message) for name, message in certificate_problems(settings))
    place = None if "warehouse" in refused else parse(settings.warehouse_url)
    if place is not None and place.scheme == "file" and not _is_writable(Path(place.path)):
        yield _error("warehouse", f"{place.path} cannot be written to")
    if settings.cache_dir is not None and not _is_writable(Path(settings.cache_dir)):
        yield _error("cache_dir", f"{settings.cache_dir} cannot be written to")
    wanted = {
        "warehouse": None if place is None else place.scheme,
        "catalog": None if "catalog" in refused else catalog_url(settings.catalog_url).get_backend_name(),
        "traces": "traces" if settings.traces else None,
    }
    for about, kind in wanted.items():
        library, extra = _LIBRARIES.get(kind or "", (None, None))
        if library is not None and find_spec(library) is None:
            yield _error(about, f"{library} is not installed; pip install 'lamella[{extra}]' brings it")


def _issuer(settings: Settings) -> None:
    """Raises InvalidRequest for an issuer whose tokens would not be taken."""
    if settings.oidc_issuer is not None:
        Issuer(
            url=settings.oidc_issuer,
            algorithms=settings.oidc_algorithms,
            leeway_s=settings.oidc_leeway_s,
            monotonic=time.monotonic,
        )


def _is_writable(folder: Path) -> bool:
    """Whether files can be made there, once the folder itself is."""
    there = next(parent for parent in (folder.absolute(), *folder.absolute().parents) if parent.exists())
    return there.is_dir() and os.access(there, os.W_OK | os.X_OK)


def _catalog(settings: Settings) -> ConfigFinding:
    try:
        state = look_at_schema(settings.catalog_url, timeout_s=settings.catalog_timeout_s)
    except LamellaError as error:
        cause = "" if error.__cause__ is None else f": {error.__cause__}"
        return _error("catalog", without_secrets(" ".join(f"{error.message}{cause}".split())))
    if not state.is_known:
        return _error("catalog", f"schema revision {state.revision or 'none'} is none that this release knows")
    if state.is_new:
        return _info("catalog", f"{state.backend}, empty: it is set up at the start")
    if state.is_current:
        return _info("catalog", f"{state.backend}, schema revision {state.revision}")
    behind = f"{state.backend}, schema revision {state.revision}, this release needs {state.newest}"
    if settings.auto_migrate if settings.auto_migrate is not None else state.backend == "sqlite":
        return _info("catalog", f"{behind}: it is migrated at the start")
    return _error("catalog", f"{behind}: run `lamella catalog migrate`")


def _open_store(settings: Settings) -> Store:
    return FsspecStore(settings.store_options)


def _store(settings: Settings, open_store: Callable[[Settings], Store]) -> ConfigFinding:
    try:
        open_store(settings).stat(f"{settings.warehouse_url}/{MARKER}")
    except ObjectNotFound:
        return _info(
            "warehouse",
            "it answers; no service was ready on it yet, so the first one will see whether it lets nobody replace an "
            "object",
        )
    except LamellaError as error:
        return _error("warehouse", without_secrets(error.message))
    return _info("warehouse", "it answers")


def _error(about: str, message: str) -> ConfigFinding:
    return ConfigFinding(severity="error", about=about, message=message)


def _info(about: str, message: str) -> ConfigFinding:
    return ConfigFinding(severity="info", about=about, message=message)
