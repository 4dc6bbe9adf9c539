"""An OpenID Connect issuer on a loopback port: discovery, keys, and a token endpoint that checks PKCE."""

from __future__ import annotations

import base64
import hashlib
import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs

import jwt
from cryptography.hazmat.primitives.asymmetric import rsa


class FakeIssuer:
    """Signs what it is told to. ``codes``: claims by authorization code, with what its challenge was."""

    def __init__(self) -> None:
        self.key = rsa.generate_private_key(public_exponent=65_537, key_size=2_048)
        self.codes: dict[str, tuple[dict[str, Any], str]] = {}
        self.forms: list[dict[str, str]] = []
        self.url = ""

    def token(self, **claims: Any) -> str:
        """A token of these claims; those that are not given are right."""
        now = int(time.time())
        given = {"iss": self.url, "aud": "lamella", "sub": "ann", "iat": now, "exp": now + 600, **claims}
        return jwt.encode(given, self.key, algorithm="RS256", headers={"kid": "one"})

    def code(self, text: str, challenge: str, **claims: Any) -> None:
        """Let ``text`` be a code for a token of these claims, for whoever knows what the challenge is of."""
        self.codes[text] = (claims, challenge)

    def answer(self, path: str) -> Any:
        """The document at a path."""
        if path == "/.well-known/openid-configuration":
            return {
                "issuer": self.url,
                "jwks_uri": f"{self.url}/keys",
                "authorization_endpoint": f"{self.url}/authorize",
                "token_endpoint": f"{self.url}/token",
            }
        if path == "/keys":
            public = json.loads(jwt.algorithms.RSAAlgorithm.to_jwk(self.key.public_key()))
            return {"keys": [{**public, "kid": "one", "use": "sig", "alg": "RS256"}]}
        return None

    def exchange(self, form: dict[str, str]) -> Any:
        """The answer to a code; each is good once."""
        self.forms.append(form)
        claims, challenge = self.codes.pop(form.get("code", ""), ({}, ""))
        made = base64.urlsafe_b64encode(hashlib.sha256(form.get("code_verifier", "").encode()).digest())
        if not challenge or made.decode().rstrip("=") != challenge:
            return None
        return {"id_token": self.token(**claims), "access_token": "unused", "token_type": "Bearer"}


@contextmanager
def running_issuer() -> Iterator[FakeIssuer]:
    """One that answers until the end."""
    issuer = FakeIssuer()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._send(issuer.answer(self.path))

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"])).decode()
            form = {name: values[0] for name, values in parse_qs(body).items()}
            self._send(issuer.exchange(form) if self.path == "/token" else None)

        def _send(self, document: Any) -> None:
            data = json.dumps(document).encode()
            self.send_response(200 if document is not None else 400)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_: Any) -> None:
            return

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    issuer.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield issuer
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
