"""Checks whether a service would start with a configuration, and whether that would expose it unintentionally."""

from __future__ import annotations

import os
import ssl
import time
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Final, Literal

import msgspec

from lamella.service.access.oidc import Issuer
from lamella.service.catalog import open_catalog
from lamella.service.catalog.engine import catalog_url
from lamella.service.catalog.migrate import look_at_schema
from lamella.service.config.moved import misplaced_tables
from lamella.service.config.settings import ENV_PREFIX, Settings
from lamella.service.config.sources import Configuration, shown_settings, without_secrets
from lamella.service.process.readiness import MARKER
from lamella.service.tables.names import check_rules
from lamella.snapshot.errors import InvalidRequest, InvalidSettings, LamellaError, ObjectNotFound
from lamella.snapshot.storage import FsspecStore, Store
from lamella.snapshot.storage.location import parse

_FILES: Final = ("tls_cert_file", "tls_key_file")


def refuse_unsafe(settings: Settings) -> None:
    """Raise InvalidRequest for an address that others can reach without ``auth``, or an incomplete access setup."""
    if not (settings.is_loopback or settings.insecure or settings.auth):
        raise InvalidRequest(
            f"refusing to listen on {settings.host}: without authentication, everyone who reaches that "
            f"address could read "
            f"and change every table. Set {ENV_PREFIX}AUTH=true, listen on 127.0.0.1, or pass --insecure "
            f"({ENV_PREFIX}INSECURE=true) if the network is private",
            host=settings.host,
        )
    if (settings.tls_cert_file is None) != (settings.tls_key_file is None):
        raise InvalidRequest("tls_cert_file and tls_key_file belong together: set both or neither")
    if settings.oidc_client_id is not None and (settings.oidc_issuer is None or settings.public_url is None):
        raise InvalidRequest("oidc_client_id needs oidc_issuer, and public_url for the redirect after the log-in")
    if not settings.auth and (settings.oidc_issuer is not None or settings.root_key_sha256 is not None):
        raise InvalidRequest(f"keys or tokens are configured, but requests do not need them: set {ENV_PREFIX}AUTH=true")


def refuse_certificate(settings: Settings) -> None:
    """Raise InvalidSettings if HTTPS cannot be served with the TLS files."""
    problems = [f"{name}: {message}" for name, message in certificate_problems(settings)]
    if problems:
        raise InvalidSettings("; ".join(problems), problems=problems)


def refuse_unwritable(settings: Settings) -> None:
    """Raise InvalidRequest if the service could not write its local folders."""
    problems = [f"{name}: {message}" for name, message in folder_problems(settings)]
    if problems:
        raise InvalidRequest("; ".join(problems))


def folder_problems(settings: Settings) -> list[tuple[str, str]]:
    """Return problems of the local folders, by setting: files must be creatable in them."""
    location = parse(settings.warehouse_url)
    folders = {"warehouse": location.path if location.scheme == "file" else None, "cache_dir": settings.cache_dir}
    return [
        (name, f"{folder} cannot be written to")
        for name, folder in folders.items()
        if folder is not None and not _is_writable(Path(folder))
    ]


def certificate_problems(settings: Settings) -> list[tuple[str, str]]:
    """Return problems of the TLS files, by setting: they must exist, be PEM, and belong together."""
    given = {name: path for name in _FILES if (path := getattr(settings, name)) is not None}
    found = [(name, f"{path} cannot be read") for name, path in given.items() if not os.access(path, os.R_OK)]
    if settings.tls_cert_file is None or found:
        return found
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(
            settings.tls_cert_file,
            settings.tls_key_file,
            password=lambda: "",  # otherwise OpenSSL would prompt on the terminal
        )
    except (OSError, ValueError) as error:  # includes ssl.SSLError
        why = getattr(error, "reason", None) or error
        return [("tls_cert_file", f"the certificate and its key cannot be used: {why}")]
    return []


def unsafe_warnings(settings: Settings) -> tuple[str, ...]:
    """Return what an operator should know, but may have reasons for."""
    found = []
    if settings.auth and not settings.is_loopback and settings.tls_cert_file is None and not settings.trusted_proxies:
        found.append("keys and tokens travel without encryption: set tls_cert_file, or trusted_proxies behind a proxy")
    if settings.trusted_proxies.strip() == "*":
        found.append("trusted_proxies is *: every client can claim any address")
    if settings.insecure and not settings.is_loopback and not settings.auth:
        found.append("everyone who reaches this service can read and change every table (insecure)")
    return tuple(found)


#: Libraries by their modules, and the extras that install them.
_LIBRARIES: Final = {
    "s3": ("s3fs", "s3"),
    "postgresql": ("psycopg", "postgres"),
    "traces": ("opentelemetry", "telemetry"),
}


class ConfigFinding(msgspec.Struct, frozen=True, kw_only=True):
    """A finding. ``error``: the service would not start, or not serve; ``warning``: it would, but look at this;
    ``info``: a fact.
    """

    severity: Literal["error", "warning", "info"]
    about: str
    message: str


class EffectiveSetting(msgspec.Struct, frozen=True, kw_only=True):
    """A setting, its printable value, and where it comes from."""

    name: str
    value: str
    origin: str
    is_default: bool


class ConfigReport(msgspec.Struct, frozen=True, kw_only=True):
    """All settings in effect, and the findings about them."""

    is_usable: bool
    config: str | None
    settings: tuple[EffectiveSetting, ...]
    findings: tuple[ConfigFinding, ...] = ()


def effective_settings(configuration: Configuration) -> tuple[EffectiveSetting, ...]:
    """Return every setting, with secrets hidden, in the order of docs/settings.md."""
    origins = configuration.origins
    return tuple(
        EffectiveSetting(
            name=shown.name,
            value=shown.value,
            origin=str(origins[shown.name]),
            is_default=origins[shown.name].kind == "default",
        )
        for shown in shown_settings(configuration.settings)
    )


def check_configuration(
    configuration: Configuration, *, connect: bool, open_store: Callable[[Settings], Store] | None = None
) -> ConfigReport:
    """Check everything that a start would refuse. ``connect``: also connect to the catalog and the warehouse.

    Writes nothing anywhere.
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
        settings=effective_settings(configuration),
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
        ("iceberg_static_keys", settings.require_one_source_of_credentials),
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
    location = None if "warehouse" in refused else parse(settings.warehouse_url)
    if location is not None:
        yield from (_error(name, message) for name, message in folder_problems(settings))
    wanted = {
        "warehouse": None if location is None else location.scheme,
        "catalog": None if "catalog" in refused else catalog_url(settings.catalog_url).get_backend_name(),
        "traces": "traces" if settings.traces else None,
    }
    for about, kind in wanted.items():
        library, extra = _LIBRARIES.get(kind or "", (None, None))
        if library is not None and find_spec(library) is None:
            yield _error(about, f"{library} is not installed; run: pip install 'lamella[{extra}]'")


def _issuer(settings: Settings) -> None:
    """Raise InvalidRequest for an issuer whose tokens would be refused."""
    if settings.oidc_issuer is not None:
        Issuer(
            url=settings.oidc_issuer,
            algorithms=settings.oidc_algorithms,
            leeway_s=settings.oidc_leeway_s,
            monotonic=time.monotonic,
        )


def _is_writable(folder: Path) -> bool:
    """Return whether files can be created in the folder, once it exists."""
    there = next(parent for parent in (folder.absolute(), *folder.absolute().parents) if parent.exists())
    return there.is_dir() and os.access(there, os.W_OK | os.X_OK)


def _catalog(settings: Settings) -> ConfigFinding:
    try:
        state = look_at_schema(settings.catalog_url, timeout_s=settings.catalog_timeout_s)
    except LamellaError as error:
        cause = "" if error.__cause__ is None else f": {error.__cause__}"
        return _error("catalog", without_secrets(" ".join(f"{error.message}{cause}".split())))
    if not state.is_known:
        return _error("catalog", f"this release does not know schema revision {state.revision or 'none'}")
    if state.is_new:
        return _info("catalog", f"{state.backend}, empty: it is set up at the start")
    if state.is_current:
        if (misplaced := _misplaced(settings)) is not None:
            return _error("catalog", misplaced)
        return _info("catalog", f"{state.backend}, schema revision {state.revision}")
    behind = f"{state.backend}, schema revision {state.revision}, this release needs {state.newest}"
    if settings.auto_migrate if settings.auto_migrate is not None else state.backend == "sqlite":
        return _info("catalog", f"{behind}: it is migrated at the start")
    return _error("catalog", f"{behind}: run `lamella catalog migrate`")


def _misplaced(settings: Settings) -> str | None:
    catalog = open_catalog(settings.catalog_url, timeout_s=settings.catalog_timeout_s, auto_migrate=False)
    try:
        return misplaced_tables(catalog, settings)
    except LamellaError as error:
        return without_secrets(error.message)
    finally:
        catalog.close()


def _open_store(settings: Settings) -> Store:
    return FsspecStore(settings.store_options)


def _store(settings: Settings, open_store: Callable[[Settings], Store]) -> ConfigFinding:
    try:
        open_store(settings).stat(f"{settings.warehouse_url}/{MARKER}")
    except ObjectNotFound:
        return _info(
            "warehouse",
            "it answers; no service was ready on it yet, so the first one will check that it lets nobody replace an "
            "object",
        )
    except LamellaError as error:
        return _error("warehouse", without_secrets(error.message))
    return _info("warehouse", "it answers")


def _error(about: str, message: str) -> ConfigFinding:
    return ConfigFinding(severity="error", about=about, message=message)


def _info(about: str, message: str) -> ConfigFinding:
    return ConfigFinding(severity="info", about=about, message=message)
