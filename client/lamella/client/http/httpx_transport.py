"""The default asynchronous transport, over httpx2 (``pip install 'lamella[aio]'``)."""

from __future__ import annotations

import ssl

import httpx2

from lamella.client.http.transport import (
    CUT_OFF,
    MAX_IDLE_S,
    HttpRequest,
    HttpResponse,
    TransportFailure,
    parse_address,
    timeout_header,
)


class HttpxTransport:
    """Persistent connections to one service, for one event loop.

    ``timeout_s`` and ``ssl_context`` are those of :class:`~lamella.client.http.transport.PooledTransport`; neither
    transport takes proxies or passwords from the environment.
    """

    def __init__(self, url: str, *, timeout_s: float = 30.0, ssl_context: ssl.SSLContext | None = None) -> None:
        address = parse_address(url)
        self._origin = str(address).removesuffix(address.path)
        self._timeout_s = timeout_s
        self._ssl_context = ssl_context
        self._client: httpx2.AsyncClient | None = None

    async def send(self, request: HttpRequest) -> HttpResponse:
        """Send a request and return the complete response; raises :class:`TransportFailure`."""
        if self._client is None:
            # trust_env off: a ~/.netrc entry would replace the token.
            self._client = httpx2.AsyncClient(
                timeout=self._timeout_s,
                trust_env=False,
                verify=self._ssl_context if self._ssl_context is not None else True,
                limits=httpx2.Limits(max_connections=100, max_keepalive_connections=20, keepalive_expiry=MAX_IDLE_S),
            )
        begun = False
        min_timeout_s = max(self._timeout_s, request.min_timeout_s or 0)
        try:
            async with self._client.stream(
                request.method,
                self._origin + request.target,
                content=request.body,
                headers=[timeout_header(self._timeout_s, request.min_timeout_s), *request.headers],
                timeout=httpx2.Timeout(self._timeout_s, read=min_timeout_s),
            ) as answer:
                begun = True
                body = await answer.aread()
        except (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.PoolTimeout) as error:
            transient = not _is_certificate_error(error)
            raise TransportFailure(_reason(error), sent=False, transient=transient) from error
        except (httpx2.NetworkError, httpx2.RemoteProtocolError) as error:
            raise TransportFailure(CUT_OFF if begun else _reason(error), sent=True) from error
        except (httpx2.TransportError, httpx2.DecodingError) as error:
            raise TransportFailure(_reason(error), sent=True) from error
        headers = {name.lower(): value for name, value in answer.headers.items()}
        return HttpResponse(status=answer.status_code, headers=headers, body=body)

    async def close(self) -> None:
        """Close the connections. A later request opens new ones."""
        client, self._client = self._client, None
        if client is not None:
            await client.aclose()


def _is_certificate_error(error: BaseException | None) -> bool:
    while error is not None:
        if isinstance(error, ssl.SSLCertVerificationError):
            return True
        error = error.__cause__ or error.__context__
    return False


def _reason(error: httpx2.RequestError) -> str:
    if isinstance(error, httpx2.TimeoutException):
        return "no answer in time"
    return str(error) or type(error).__name__
