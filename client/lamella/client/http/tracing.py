"""Tracing spans: one for a call and one for each attempt, which the service's spans continue."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from lamella.client import tracing
from lamella.client.http.call import Call
from lamella.client.http.transport import Address, HttpResponse, Outcome, Send, Steps

if TYPE_CHECKING:
    from opentelemetry.trace import Span, Tracer

Answer = TypeVar("Answer")


def trace_steps(tracer: Tracer, call: Call[Answer], address: Address, steps: Steps[Answer]) -> Steps[Answer]:
    """The same steps with spans around them; each request carries the trace context."""
    from opentelemetry import trace

    where: dict[str, Any] = {
        "http.request.method": call.method,
        "url.template": call.template,
        "server.address": address.host,
        "server.port": address.port,
    }
    name = f"{call.method} {where['url.template']}"
    whole = tracer.start_span(f"lamella {name}", attributes=where, record_exception=False)
    context = trace.set_span_in_context(whole)
    outcome: Outcome | None = None
    tries = 0
    try:
        while True:
            step = steps.send(outcome)
            if not isinstance(step, Send):
                outcome = yield step
                continue
            again = {"http.request.resend_count": tries} if tries else {}
            tries += 1
            one = tracer.start_span(name, context, kind=trace.SpanKind.CLIENT, attributes=where | again)
            try:
                headers = tuple(tracing.carried(trace.set_span_in_context(one)).items())
                request = msgspec.structs.replace(step.request, headers=(*step.request.headers, *headers))
                outcome = yield Send(request)
                _record_outcome(one, outcome)
            finally:
                one.end()
    except StopIteration as done:
        answer: Answer = done.value
        return answer
    except BaseException as error:
        tracing.fail(whole, error)
        raise
    finally:
        whole.end()


def _record_outcome(span: Span, outcome: Outcome | None) -> None:
    if isinstance(outcome, HttpResponse):
        span.set_attribute("http.response.status_code", outcome.status)
        if outcome.status >= 400:
            tracing.fail(span, str(outcome.status))
    elif outcome is not None:
        tracing.fail(span, "not_sent" if not outcome.sent else "no_answer")
