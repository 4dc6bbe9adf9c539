"""Which settings a service does not start with, since they would open it to people whom nobody meant."""

from __future__ import annotations

import os
import ssl
from typing import Final

from lamella.service.settings import ENV_PREFIX, Settings
from lamella.snapshot.errors import InvalidRequest, InvalidSettings

_FILES: Final = ("tls_cert_file", "tls_key_file")


def refuse_unsafe(settings: Settings) -> None:
    """Raises InvalidRequest: an address that others can reach without ``auth``, or half of what access needs."""
    if not (settings.is_loopback or settings.insecure or settings.auth):
        raise InvalidRequest(
            f"refusing to listen on {settings.host}: without authentication, whoever reaches that address could read "
            f"and change every table. Set {ENV_PREFIX}AUTH=true, listen on 127.0.0.1, or say --insecure "
            f"({ENV_PREFIX}INSECURE=true) if the network is closed to others",
            host=settings.host,
        )
    if (settings.tls_cert_file is None) != (settings.tls_key_file is None):
        raise InvalidRequest("tls_cert_file and tls_key_file belong together: set both, or none")
    if settings.oidc_client_id is not None and (settings.oidc_issuer is None or settings.public_url is None):
        raise InvalidRequest("oidc_client_id needs oidc_issuer, and public_url for the way back from there")
    if not settings.auth and (settings.oidc_issuer is not None or settings.root_key_sha256 is not None):
        raise InvalidRequest(
            f"keys and tokens are set up, but requests are not asked for them: set {ENV_PREFIX}AUTH=true"
        )


def refuse_certificate(settings: Settings) -> None:
    """Raises InvalidSettings: HTTPS cannot be served with the files of TLS."""
    problems = [f"{name}: {message}" for name, message in certificate_problems(settings)]
    if problems:
        raise InvalidSettings("; ".join(problems), problems=problems)


def certificate_problems(settings: Settings) -> list[tuple[str, str]]:
    """What is wrong with the files of TLS, by setting: they must be there, be PEM, and belong together."""
    given = {name: path for name in _FILES if (path := getattr(settings, name)) is not None}
    found = [(name, f"{path} cannot be read") for name, path in given.items() if not os.access(path, os.R_OK)]
    if settings.tls_cert_file is None or found:
        return found
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(
            settings.tls_cert_file,
            settings.tls_key_file,
            password=lambda: "",  # or it would be asked for on the terminal
        )
    except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
        why = getattr(error, "reason", None) or error
        return [("tls_cert_file", f"the certificate and its key cannot be used: {why}")]
    return []


def unsafe_warnings(settings: Settings) -> tuple[str, ...]:
    """What an operator should know, and may have reasons for."""
    found = []
    if settings.auth and not settings.is_loopback and settings.tls_cert_file is None and not settings.trusted_proxies:
        found.append("keys and tokens travel without encryption: set tls_cert_file, or trusted_proxies behind a proxy")
    if settings.trusted_proxies.strip() == "*":
        found.append("trusted_proxies is *: whoever reaches this service can say from which address a request comes")
    if settings.insecure and not settings.is_loopback and not settings.auth:
        found.append("whoever reaches this service can read and change every table (insecure)")
    return tuple(found)
