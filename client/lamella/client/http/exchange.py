"""Requests, retries, waits, and the answer or error of one call, without I/O.

:meth:`Exchange.steps` is a generator. It yields the next step (:class:`Send` or :class:`Wait`), receives the outcome,
and returns the answer. :class:`~lamella.client.http.client.Lamella` and ``AsyncLamella`` only carry out the steps, so
every rule about retries, idempotency keys and errors is defined here once.
"""

from __future__ import annotations

import datetime as dt
import random
import threading
from collections.abc import Callable
from email.utils import parsedate_to_datetime
from typing import Any, Final, TypeVar

import msgspec

from lamella.client import tracing
from lamella.client.http.call import Call
from lamella.client.http.credential import Credential
from lamella.client.http.tracing import trace_steps
from lamella.client.http.transport import Address, HttpRequest, HttpResponse, Outcome, Send, Steps, Wait, parse_address
from lamella.snapshot.counts import counted
from lamella.snapshot.errors import InvalidRequest, LamellaError, OutcomeUnknown, Unavailable, from_code
from lamella.snapshot.ids import Ids, unix_ms
from lamella.snapshot.wire import Problem
from lamella.snapshot.wire.operation import Nothing

#: Statuses of temporary failures. 408: the request arrived too slowly, and nothing was done.
RETRYABLE: Final = frozenset({408, 429, 502, 503, 504})


class RetryPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """How often requests are retried, and how long the client waits in between.

    ``attempts`` includes the first attempt. After failure ``n`` the client waits for a random part of
    ``min(max_delay_s, base_delay_s * 2**(n - 1))`` ("full jitter", so that many clients do not retry at the same time).
    The time of a ``Retry-After`` header is added to it; one over ``max_retry_after_s`` ends the retries.
    """

    attempts: int = 5
    base_delay_s: float = 0.1
    max_delay_s: float = 5.0
    max_retry_after_s: float = 60.0

    def delay_s(self, failed: int, jitter: float, retry_after_s: float | None = None) -> float | None:
        """The wait in seconds after ``failed`` attempts, with ``jitter`` from [0, 1); None: give up.

        Example:
            >>> RetryPolicy(base_delay_s=0.5).delay_s(2, jitter=0.5)
            0.5
        """
        if failed >= self.attempts:
            return None
        if retry_after_s is not None and retry_after_s > self.max_retry_after_s:
            return None
        # The exponent is capped: a float would overflow before a policy with many attempts runs out of them.
        backoff = jitter * min(self.max_delay_s, self.base_delay_s * 2.0 ** min(failed - 1, 60))
        return backoff + (retry_after_s or 0.0)


#: For tests and for callers that have their own retry loop.
NO_RETRY: Final = RetryPolicy(attempts=1)


def retry_after_s(value: str | None, now_ms: int) -> float | None:
    """Read a ``Retry-After`` header, seconds or an HTTP date (RFC 9110, section 10.2.3); None when there is none."""
    if value is None:
        return None
    text = value.strip()
    # isdecimal alone would accept digits of other scripts
    if text.isascii() and text.isdigit():
        return float(text[:9])
    try:
        at = parsedate_to_datetime(text)
    except ValueError:
        return None
    if at.tzinfo is None:
        at = at.replace(tzinfo=dt.UTC)
    return max(0.0, at.timestamp() - now_ms / 1000)


Answer = TypeVar("Answer")


class Exchange:
    """Turns calls into requests to one service, and responses into answers and errors."""

    def __init__(
        self,
        url: str | Address,
        *,
        credential: Credential | None = None,
        policy: RetryPolicy | None = None,
        ids: Ids | None = None,
        jitter: Callable[[], float] = random.random,
        clock: Callable[[], int] = unix_ms,
        traces: bool = True,
    ) -> None:
        self.address = url if isinstance(url, Address) else parse_address(url)
        self.policy = policy if policy is not None else RetryPolicy()
        self._ids = ids if ids is not None else Ids()
        self._jitter = jitter
        self._clock = clock
        self._traces = traces
        self._headers: tuple[tuple[str, str], ...] = (
            ("Accept", "application/json"),
            ("Accept-Encoding", "identity"),
            ("User-Agent", "lamella-python"),
        )
        self._credential = credential

    def steps(self, call: Call[Answer], idempotency_key: str | None = None) -> Steps[Answer]:
        """The steps of one call; each attempt sends the same request with the same key.

        Raises:
            LamellaError: the service's error, as the class that its code names.
            Unavailable: all attempts failed with a temporary error; nothing was changed.
            OutcomeUnknown: all attempts failed, and a mutation may have been made; repeat it with the
                ``idempotency_key`` in ``details``. A call that is made ``once`` has no such key.
        """
        tracer = tracing.tracer() if self._traces else None
        steps = self._steps(call, idempotency_key)
        return steps if tracer is None else trace_steps(tracer, call, self.address, steps)

    def _steps(self, call: Call[Answer], idempotency_key: str | None) -> Steps[Answer]:
        key = (idempotency_key or str(self._ids.new())) if call.mutates else None
        request = self._request(call, key)
        maybe_done = False
        failed = 0
        while True:
            outcome = yield Send(request)
            if isinstance(outcome, HttpResponse) and 200 <= outcome.status < 300:
                return self._answer(call, outcome)
            failed += 1
            judged = self._judge(outcome, failed)
            maybe_done = (maybe_done or judged.maybe_done) and not judged.settles
            if call.once is not None and maybe_done:
                raise self._lost(judged.error, call.once)
            if judged.delay_s is not None:
                yield Wait(judged.delay_s)
            elif key is not None and maybe_done:
                raise self._gave_up(judged.error, key, failed)
            else:
                raise judged.error

    def _judge(self, outcome: Outcome | None, failed: int) -> _Judged:
        if isinstance(outcome, HttpResponse):
            error, named = self._problem(outcome)
            delay_s = None
            if outcome.status in RETRYABLE:
                after_s = retry_after_s(outcome.headers.get("retry-after"), self._clock())
                delay_s = self.policy.delay_s(failed, self._jitter(), after_s)
            vague = not named or type(error) in (LamellaError, OutcomeUnknown)
            return _Judged(
                error=error,
                delay_s=delay_s,
                maybe_done=outcome.status >= 500 and vague,
                settles=outcome.status < 500 and outcome.status not in RETRYABLE and named,
            )
        if outcome is None:
            raise RuntimeError("the steps of a call were sent None as the outcome of a request")
        return _Judged(
            error=Unavailable(f"cannot reach {self.address}: {outcome.reason}", url=str(self.address)),
            delay_s=self.policy.delay_s(failed, self._jitter()) if outcome.transient else None,
            maybe_done=outcome.sent,
            settles=False,
        )

    def _gave_up(self, error: LamellaError, key: str, tries: int) -> OutcomeUnknown:
        details: dict[str, Any] = {**error.details, "url": str(self.address), "idempotency_key": key}
        unknown = OutcomeUnknown(
            f"after {counted(tries, 'try', 'tries')} it is not known whether the change was made: {error.message}"
        )
        unknown.details.update(details)
        return unknown

    def _lost(self, error: LamellaError, advice: str) -> OutcomeUnknown:
        unknown = OutcomeUnknown(f"it is not known whether the change was made: {error.message}; {advice}")
        unknown.details.update({**error.details, "url": str(self.address)})
        return unknown

    def _request(self, call: Call[Any], key: str | None) -> HttpRequest:
        headers = self._headers
        if self._credential is not None:
            headers = (*headers, ("Authorization", f"Bearer {self._credential()}"))
        if call.body:
            headers = (*headers, ("Content-Type", "application/json"))
        if key is not None:
            if not key or any(ord(c) <= 32 or ord(c) > 126 for c in key):
                raise InvalidRequest("an idempotency key is printable ASCII without spaces")
            headers = (*headers, ("Idempotency-Key", key))
        return HttpRequest(
            method=call.method,
            target=self.address.path + call.path,
            headers=headers,
            body=call.body,
            min_timeout_s=call.min_timeout_s,
        )

    def _answer(self, call: Call[Answer], response: HttpResponse) -> Answer:
        if call.answer is Nothing:
            return call.answer()
        try:
            return _decode(call.answer, response.body if response.status != 204 else b"{}")
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise LamellaError(
                f"{self.address} answered {response.status}, but not with a {call.answer.__name__}: {error}. "
                "Is this a Lamella service of this version?",
                url=str(self.address),
                status=response.status,
            ) from error

    def _problem(self, response: HttpResponse) -> tuple[LamellaError, bool]:
        """The error of a response, and whether the service named it in a problem document."""
        after_s = retry_after_s(response.headers.get("retry-after"), self._clock())
        try:
            problem = _decode(Problem, response.body)
        except (msgspec.MsgspecError, UnicodeDecodeError):
            named = False
            text = f"{self.address} answered {response.status} without a problem document"
            if response.status in RETRYABLE:
                error: LamellaError = Unavailable(text)
            else:
                error = LamellaError(f"{text}. Is this a Lamella service?")
            error.details.update(url=str(self.address), status=response.status)
        else:
            named = True
            # Set afterwards: the service chooses the names of details, and they must not clash with parameters.
            error = from_code(problem.code, problem.detail, {})
            error.details.update(problem.details)
        if after_s is not None:
            error.details.setdefault("retry_after_s", after_s)
        return error, named


class _Judged(msgspec.Struct, frozen=True, kw_only=True):
    """The meaning of a failed attempt.

    ``error``: raised if this was the last attempt. ``delay_s``: the wait before the next attempt; None: there is none.
    ``maybe_done``: a mutation may have been made. An error code of the service (``unavailable``, ``store_error``, ...)
    says that it was not; a 5xx without a code, from a proxy or a failing service, leaves it open, and so does a lost
    connection. 429 is sent before any work. ``settles``: a definite refusal, which also settles earlier attempts, since
    they have the same key.
    """

    error: LamellaError
    delay_s: float | None
    maybe_done: bool
    settles: bool


_decoders: Final[dict[Any, msgspec.json.Decoder[Any]]] = {}
#: msgspec analyses a struct when a decoder is made; when two threads do this at the same time, the process crashes
#: (msgspec 0.22).
_making: Final = threading.Lock()


def _decode(answer: type[Answer], body: bytes) -> Answer:
    decoder = _decoders.get(answer)
    if decoder is None:
        with _making:
            decoder = _decoders.setdefault(answer, msgspec.json.Decoder(answer))
    value: Answer = decoder.decode(body)
    return value
