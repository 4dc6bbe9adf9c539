"""An issuer of tokens without a network: real keys, and a ``fetch`` that can be held up, change its mind, or be out."""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa

from lamella.service.access.oidc import Issuer

URL = "https://issuer.test/realm"
KEYS_URL = "https://issuer.test/keys"
AUDIENCE = "lamella"
#: Longer than any test takes, so that a token's times lie on one side of now whatever the machine does.
LEEWAY_S = 600.0
_CURVES: dict[str, ec.EllipticCurve] = {"ES256": ec.SECP256R1(), "ES384": ec.SECP384R1(), "ES512": ec.SECP521R1()}


class Monotonic:
    """Seconds that go up when a test says so."""

    def __init__(self) -> None:
        self.now = 1_000.0

    def __call__(self) -> float:
        return self.now


@lru_cache
def private_key(algorithm: str, _number: int = 0, bits: int = 2048) -> Any:
    """A key of that algorithm; another number is another key."""
    if algorithm in _CURVES:
        return ec.generate_private_key(_CURVES[algorithm])
    if algorithm == "EdDSA":
        return ed25519.Ed25519PrivateKey.generate()
    return rsa.generate_private_key(65_537, bits)


def published(algorithm: str, key: Any, **more: Any) -> dict[str, Any]:
    """The public part of a key, as an issuer shows it (RFC 7517), without ``alg``."""
    made: dict[str, Any] = jwt.get_algorithm_by_name(algorithm).to_jwk(key.public_key(), as_dict=True)
    return {**made, "use": "sig", **more}


def encoded(part: object) -> str:
    """A part of a token: JSON, or bytes, in base64 for addresses."""
    data = part if isinstance(part, bytes) else json.dumps(part).encode()
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


class OfflineIssuer:
    """Signs with ``keys`` (by name: algorithm and private key) and publishes ``documents`` by address.

    ``fetched``: the addresses that were asked for. ``before``: called ahead of each answer.
    """

    def __init__(self, *algorithms: str) -> None:
        self.keys: dict[str, tuple[str, Any]] = {}
        self.fetched: list[str] = []
        self.before: Callable[[], None] = lambda: None
        self.documents: dict[str, Any] = {
            URL + "/.well-known/openid-configuration": {"issuer": URL, "jwks_uri": KEYS_URL},
            KEYS_URL: {"keys": []},
        }
        self.is_down = False
        for number, algorithm in enumerate(algorithms or ("RS256",)):
            self.add(f"key{number}", algorithm)

    def add(self, name: str, algorithm: str, number: int = 0, /, **more: Any) -> None:
        """Sign with one more key, and publish it."""
        key = private_key(algorithm, number)
        self.keys[name] = (algorithm, key)
        self.listed.append(published(algorithm, key, kid=name, **more))

    @property
    def listed(self) -> list[Any]:
        """What it publishes as its keys."""
        found: list[Any] = self.documents[KEYS_URL]["keys"]
        return found

    def withdraw(self, name: str) -> None:
        """Publish a key no longer."""
        self.listed[:] = [each for each in self.listed if each.get("kid") != name]

    def fetch(self, url: str) -> Any:
        """The document at an address."""
        self.fetched.append(url)
        self.before()
        if self.is_down:
            raise ConnectionError("refused")
        return json.loads(json.dumps(self.documents[url]))

    def token(self, name: str = "key0", *, headers: dict[str, Any] | None = None, **claims: Any) -> str:
        """A token of ann's that holds, but for the ``claims`` that are given; one that is None is left out."""
        algorithm, key = self.keys[name]
        given = {**self.claims(), **claims}
        payload = {name: value for name, value in given.items() if value is not None}
        shown = {"alg": algorithm, "kid": name, **(headers or {})}
        header = {part: value for part, value in shown.items() if value is not None}
        signed = f"{encoded(header)}.{encoded(payload)}"
        return f"{signed}.{encoded(jwt.get_algorithm_by_name(algorithm).sign(signed.encode(), key))}"

    def claims(self) -> dict[str, Any]:
        """What a good token says."""
        now_s = int(time.time())
        return {"iss": URL, "aud": AUDIENCE, "sub": "ann", "exp": now_s + 3_600}

    def issuer(self, monotonic: Callable[[], float] | None = None, **settings: Any) -> Issuer:
        """One who checks its tokens."""
        given: dict[str, Any] = {
            "url": URL,
            "algorithms": ("RS256", "ES256"),
            "leeway_s": LEEWAY_S,
            "fetch": self.fetch,
            "monotonic": monotonic or Monotonic(),
        }
        return Issuer(**{**given, **settings})
