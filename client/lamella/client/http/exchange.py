"""The whole conversation about one call, without I/O: requests, tries, waits, and the answer or the error.

:meth:`Exchange.steps` is a generator. It yields what to do (:class:`Send` or :class:`Wait`), is sent what came of it,
and returns the answer. :class:`~lamella.client.http.client.Lamella` and ``AsyncLamella`` only carry the steps out, so
every rule about retries, idempotency keys and errors stands here once.
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
from lamella.client.http.transport import HttpRequest, HttpResponse, Outcome, Send, Steps, Wait, parse_address
from lamella.snapshot.errors import InvalidRequest, LamellaError, OutcomeUnknown, Unavailable, from_code
from lamella.snapshot.ids import Ids, unix_ms
from lamella.snapshot.wire import Problem
from lamella.snapshot.wire.operation import Nothing

#: Statuses that say "not now" rather than "no". 408: the request came too slowly, and nothing was done.
RETRYABLE: Final = frozenset({408, 429, 502, 503, 504})


class RetryPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """How often and how long.

    ``attempts`` counts the first try. After the ``n``-th failure the client waits a random part of
    ``min(max_delay_s, base_delay_s * 2**(n - 1))`` ("full jitter", so that many clients do not come back together). A
    ``Retry-After`` is waited for in full on top; one over ``max_retry_after_s`` ends the tries.
    """

    attempts: int = 5
    base_delay_s: float = 0.1
    max_delay_s: float = 5.0
    max_retry_after_s: float = 60.0

    def delay_s(self, failed: int, jitter: float, retry_after_s: float | None = None) -> float | None:
        """The wait after ``failed`` tries, with ``jitter`` from [0, 1); None: give up."""
        if failed >= self.attempts:
            return None
        if retry_after_s is not None and retry_after_s > self.max_retry_after_s:
            return None
        # The exponent is capped: a float overflows long before a patient policy runs out of tries.
        backoff = jitter * min(self.max_delay_s, self.base_delay_s * 2.0 ** min(failed - 1, 60))
        return backoff + (retry_after_s or 0.0)


#: For tests and for callers with a retry loop of their own.
NO_RETRY: Final = RetryPolicy(attempts=1)


def retry_after_s(value: str | None, now_ms: int) -> float | None:
    """Read a ``Retry-After`` header, seconds or an HTTP date (RFC 9110, section 10.2.3); None when there is none."""
    if value is None:
        return None
    text = value.strip()
    # isdecimal alone would take digits of other scripts
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
    """Turns calls into requests to one service and what comes back into answers and errors."""

    def __init__(
        self,
        url: str,
        *,
        credential: Credential | None = None,
        policy: RetryPolicy | None = None,
        ids: Ids | None = None,
        jitter: Callable[[], float] = random.random,
        clock: Callable[[], int] = unix_ms,
        traces: bool = True,
    ) -> None:
        self.address = parse_address(url)
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
        """The steps of one call; the same request, with the same key, on each try.

        Raises:
            LamellaError: what the service answered, as the class that its code names.
            Unavailable: no answer, or "not now", until the tries ran out; nothing was changed.
            OutcomeUnknown: the same for a mutation that may have happened; ``idempotency_key`` in ``details`` asks
                again for the same mutation, but there is none for a call that is made ``once``.
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
            raise RuntimeError("a request was answered by None; the generator was driven wrongly")
        return _Judged(
            error=Unavailable(f"cannot reach {self.address}: {outcome.reason}", url=str(self.address)),
            delay_s=self.policy.delay_s(failed, self._jitter()) if outcome.transient else None,
            maybe_done=outcome.sent,
            settles=False,
        )

    def _gave_up(self, error: LamellaError, key: str, tries: int) -> OutcomeUnknown:
        details: dict[str, Any] = {**error.details, "url": str(self.address), "idempotency_key": key}
        unknown = OutcomeUnknown(
            f"after {tries} {'try' if tries == 1 else 'tries'} it is not known whether the change was made: "
            f"{error.message}"
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
            patience_s=call.patience_s,
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
        """The error that an answer stands for, and whether the service named it in a problem document."""
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
            # Filled afterwards: details are the service's own names, which must not clash with parameters.
            error = from_code(problem.code, problem.detail, {})
            error.details.update(problem.details)
        if after_s is not None:
            error.details.setdefault("retry_after_s", after_s)
        return error, named


class _Judged(msgspec.Struct, frozen=True, kw_only=True):
    """What one try without success means.

    ``error``: to be raised if this was the last try; ``delay_s``: the wait before the next, None when there is none.
    ``maybe_done``: a mutation may have happened. A service that names what failed has said that it did not
    (``unavailable``, ``store_error``, ...); a bare 5xx, of a proxy or of a service in trouble, leaves it open, and so
    does a lost connection. 429 comes before any work. ``settles``: a clear no, which also answers for earlier tries,
    since their key makes them one request.
    """

    error: LamellaError
    delay_s: float | None
    maybe_done: bool
    settles: bool


_decoders: Final[dict[Any, msgspec.json.Decoder[Any]]] = {}
#: What msgspec has to know of a struct it finds out when it first decodes one, and two threads that do so at once end
#: the process (msgspec 0.22).
_making: Final = threading.Lock()


def _decode(answer: type[Answer], body: bytes) -> Answer:
    decoder = _decoders.get(answer)
    if decoder is None:
        with _making:
            decoder = _decoders.setdefault(answer, msgspec.json.Decoder(answer))
    value: Answer = decoder.decode(body)
    return value
