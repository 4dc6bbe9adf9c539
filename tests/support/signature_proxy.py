"""An S3 server that demands signatures: a reverse proxy in front of one that does not, with botocore as the judge.

It checks what a real one checks of a URL: the signature over method, host, path and query, the credentials, and the
time by a clock that tests can move on. Everything else is answered with 403, and so is a request that is signed in
another way than by its URL.
"""

from __future__ import annotations

import datetime as dt
import hmac
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, parse_qsl, quote, unquote, urlencode, urlsplit

from botocore.auth import S3SigV4QueryAuth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

_STAMP = "%Y%m%dT%H%M%SZ"


class SignatureProxy(ThreadingHTTPServer):
    """``clock_ahead_s``: how far its clock is ahead. ``seen``: (path, range, status) of each request.

    ``busy``: so many requests are answered with 503 first. ``meanwhile``: called with the path before each is answered.
    """

    daemon_threads = True

    def __init__(self, target: str, credentials: Credentials) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.target = target
        self.credentials = credentials
        self.clock_ahead_s = 0.0
        self.busy = 0
        self.seen: list[tuple[str, str | None, int]] = []
        self.meanwhile: Callable[[str], object] | None = None
        self.lock = threading.Lock()

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"http://127.0.0.1:{self.server_address[1]}"

    @property
    def refused(self) -> int:
        """How many requests were answered with 403."""
        return [status for _, _, status in self.seen].count(403)

    def refusal(self, command: str, host: str, target: str, signed_headers: bool) -> str | None:
        """Why a request must not be answered; None: it may."""
        query = {name: values[0] for name, values in parse_qs(urlsplit(target).query).items()}
        try:
            given = query["X-Amz-Signature"]
            access_key, _, region, service, _ = query["X-Amz-Credential"].split("/")
            signed_at = dt.datetime.strptime(query["X-Amz-Date"], _STAMP).replace(tzinfo=dt.UTC)
            lifetime = dt.timedelta(seconds=int(query["X-Amz-Expires"]))
        except (KeyError, ValueError):
            return "AccessDenied"
        if signed_headers or access_key != self.credentials.access_key:
            return "InvalidAccessKeyId"
        if query.get("X-Amz-Security-Token") != self.credentials.token:
            return "InvalidToken"
        unsigned = _canonical(target)
        auth = S3SigV4QueryAuth(self.credentials, service, region)
        request = AWSRequest(method=command, url=f"http://{host}{unsigned}")
        request.context["timestamp"] = query["X-Amz-Date"]
        wanted = auth.signature(auth.string_to_sign(request, auth.canonical_request(request)), request)
        if not hmac.compare_digest(given, wanted):
            return "SignatureDoesNotMatch"
        now = dt.datetime.now(dt.UTC) + dt.timedelta(seconds=self.clock_ahead_s)
        return None if signed_at - dt.timedelta(minutes=15) <= now < signed_at + lifetime else "AccessDenied"


def _canonical(target: str) -> str:
    """The target without its signature, quoted as S3 quotes it before it compares: some clients quote less."""
    parts = urlsplit(target)
    query = [(name, value) for name, value in parse_qsl(parts.query) if name != "X-Amz-Signature"]
    return quote(unquote(parts.path), safe="/~") + "?" + urlencode(query, quote_via=quote, safe="~")


@contextmanager
def signature_proxy(target: str, credentials: Credentials | None = None) -> Iterator[SignatureProxy]:
    """A proxy in front of ``target`` while the block runs; for the credentials that the other S3 fixtures have."""
    with SignatureProxy(target, credentials or Credentials("test", "test")) as proxy:
        thread = threading.Thread(target=proxy.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            yield proxy
        finally:
            proxy.shutdown()
            thread.join()


class _Handler(BaseHTTPRequestHandler):
    server: SignatureProxy
    protocol_version = "HTTP/1.1"

    def _serve(self) -> None:
        proxy = self.server
        if proxy.meanwhile is not None:
            proxy.meanwhile(self.path)
        wanted = self.headers.get("Range")
        signed = "Authorization" in self.headers
        given: dict[str, str] = {}
        refusal = proxy.refusal(self.command, self.headers["Host"], self.path, signed)
        with proxy.lock:
            is_busy = refusal is None and proxy.busy > 0
            proxy.busy -= is_busy
        if is_busy:
            status, data = 503, b"<Error><Code>SlowDown</Code></Error>"
        elif refusal is not None:
            status, data = 403, f"<Error><Code>{refusal}</Code></Error>".encode()
        else:
            with closing(HTTPConnection(proxy.target.removeprefix("http://"), timeout=30)) as upstream:
                upstream.request(self.command, self.path, headers={} if wanted is None else {"Range": wanted})
                answer = upstream.getresponse()
                status, given, data = answer.status, dict(answer.getheaders()), answer.read()
        with proxy.lock:
            proxy.seen.append((self.path, wanted, status))
        self.send_response(status)
        for name, value in given.items():
            if name.lower() in ("etag", "content-range", "last-modified"):
                self.send_header(name, value)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)

    do_GET = do_PUT = do_HEAD = do_DELETE = do_POST = _serve  # http.server's names

    def log_message(self, format: str, *args: object) -> None:  # http.server's signature
        """Say nothing."""
