"""Which settings a service does not start with, since they would open it to people whom nobody meant."""

from __future__ import annotations

from lamella.service.settings import ENV_PREFIX, Settings
from lamella.snapshot.errors import InvalidRequest


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
