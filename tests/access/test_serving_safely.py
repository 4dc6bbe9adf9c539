"""What a service refuses to start with, HTTPS by its own certificate, and which proxies it believes."""

from __future__ import annotations

import datetime as dt
import ipaddress
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from fixtures_server import ServerProcess, StartServer, environment_of
from lamella.client import Lamella
from lamella.service.access.authenticator import COOKIE
from lamella.service.config.check import refuse_unsafe, unsafe_warnings
from lamella.service.config.settings import Settings
from lamella.snapshot.errors import InvalidRequest, Unavailable
from support.tenants import ROOT_KEY, ROOT_SHA256

Make = Callable[..., Settings]


@pytest.fixture
def made(tmp_path: Path) -> Make:
    """Settings of a local warehouse."""

    def make(**given: Any) -> Settings:
        return Settings(warehouse=str(tmp_path), **given)

    return make


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "10.0.0.1", "lake.example.com"])  # noqa: S104  # nothing listens
def test_an_address_of_others_needs_authentication(made: Make, host: str) -> None:
    """Or to be told that the network is closed; being told by mistake is warned of."""
    with pytest.raises(InvalidRequest, match="AUTH"):
        refuse_unsafe(made(host=host))
    refuse_unsafe(made(host=host, auth=True))
    insecure = made(host=host, insecure=True)
    refuse_unsafe(insecure)
    assert any("insecure" in text for text in unsafe_warnings(insecure))


@pytest.mark.parametrize("host", ["127.0.0.1", "::1", "[::1]", "localhost", "127.1.2.3"])
def test_a_loopback_address_needs_none(made: Make, host: str) -> None:
    """Who is on the machine may try it out."""
    refuse_unsafe(made(host=host))
    assert unsafe_warnings(made(host=host)) == ()


def test_half_of_what_access_needs_is_refused(made: Make) -> None:
    """Keys that nobody is asked for, a certificate without its key, a way to an issuer without the way back."""
    for given in (
        {"root_key_sha256": ROOT_SHA256},
        {"oidc_issuer": "https://issuer.example.com"},
        {"tls_cert_file": "cert.pem"},
        {"tls_key_file": "key.pem"},
        {"auth": True, "oidc_client_id": "x", "oidc_issuer": "https://issuer.example.com"},
        {"auth": True, "oidc_client_id": "x", "public_url": "https://lake.example.com"},
    ):
        with pytest.raises(InvalidRequest):
            refuse_unsafe(made(**given))


def test_keys_in_clear_and_believing_everybody_are_warned_of(made: Make) -> None:
    """Both may be right behind something, so neither is refused."""
    open_net = {"host": "0.0.0.0", "auth": True}  # noqa: S104  # nothing listens
    assert any("encryption" in text for text in unsafe_warnings(made(**open_net)))
    assert unsafe_warnings(made(**open_net, tls_cert_file="c", tls_key_file="k")) == ()
    assert any("*" in text for text in unsafe_warnings(made(**open_net, trusted_proxies="*")))


@pytest.fixture
def certificate(tmp_path: Path) -> tuple[Path, Path]:
    """A certificate for 127.0.0.1 that signs itself, and its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "lamella test")])
    now = dt.datetime.now(dt.UTC)
    address = x509.IPAddress(ipaddress.ip_address("127.0.0.1"))
    built = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(minutes=5))
        .not_valid_after(now + dt.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([address]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(key, hashes.SHA256())
    )
    cert_file, key_file = tmp_path / "cert.pem", tmp_path / "key.pem"
    cert_file.write_bytes(built.public_bytes(serialization.Encoding.PEM))
    plain = serialization.NoEncryption()
    key_file.write_bytes(key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, plain))
    return cert_file, key_file


@pytest.fixture
def secured(tmp_path: Path, certificate: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch) -> Iterator[ServerProcess]:
    """A service that speaks HTTPS and asks for keys."""
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate[0]))
    settings = {
        "warehouse": tmp_path / "warehouse",
        "auth": "true",
        "root_key_sha256": ROOT_SHA256,
        "tls_cert_file": certificate[0],
        "tls_key_file": certificate[1],
    }
    server = ServerProcess(environment_of(settings), tmp_path)
    server.url = server.url.replace("http:", "https:")
    yield server.wait_ready()
    server.stop()


def test_a_service_speaks_https_by_its_own_certificate(secured: ServerProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    """The client takes it when its authority is known, and not else; cookies are for HTTPS alone then."""
    with Lamella(secured.url, token=ROOT_KEY) as lake:
        lake.create_namespace("db")
        assert [each.name for each in lake.namespaces()] == ["db"]
    page = httpx2.get(f"{secured.url}/ui/login")
    cookie = page.headers["set-cookie"]
    assert "Secure" in cookie
    assert COOKIE not in cookie
    monkeypatch.delenv("SSL_CERT_FILE")
    with Lamella(secured.url, token=ROOT_KEY) as lake, pytest.raises(Unavailable, match="certificate"):
        lake.namespaces()


@pytest.mark.parametrize(
    ("trusted", "client"), [("127.0.0.1", "192.0.2.7"), ("", "127.0.0.1"), ("10.0.0.0/8", "127.0.0.1")]
)
def test_only_a_proxy_that_is_trusted_says_who_the_client_is(
    start_server: StartServer, tmp_path: Path, trusted: str, client: str
) -> None:
    """Else anybody could write another address into the audit trail, and escape the limits of their own."""
    server = start_server(
        warehouse=tmp_path / "warehouse", auth="true", root_key_sha256=ROOT_SHA256, trusted_proxies=trusted
    )
    headers = {"Authorization": f"Bearer {ROOT_KEY}", "X-Forwarded-For": "192.0.2.7"}
    answer = httpx2.post(f"{server.url}/v1/namespaces", json={"name": "db"}, headers=headers)
    assert answer.status_code == 201
    audit = httpx2.get(f"{server.url}/v1/audit", headers=headers).json()
    assert [(each["actor"], each["client"]) for each in audit["entries"]] == [("root", client)]
