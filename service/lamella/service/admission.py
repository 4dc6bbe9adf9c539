"""What stands between a request that may be made and its handler: its body, a place, and the time that it has.

It comes after access control, since places are shared among those who ask. Health probes and metrics do not come
through here, so that a busy process is still seen to be alive.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from typing import Final

from starlette.requests import Request
from starlette.responses import Response

from lamella.service.access.principal import actor_of
from lamella.service.bodies import Bodies, too_large
from lamella.service.deadline import asked_s, begin_change, begin_read, end
from lamella.service.metrics import Metrics
from lamella.service.places import Places
from lamella.service.settings import Settings
from lamella.snapshot.errors import Unavailable

Handler = Callable[[Request], Awaitable[Response]]

#: Larger requests are not looked at on the event loop.
QUICK_BODY_BYTES: Final = 2_048
#: What a body may have of an operation that needs no large one.
SMALL_BODY_BYTES: Final = 1 << 20


class Admission:
    """Belongs to one event loop."""

    def __init__(self, settings: Settings, metrics: Metrics) -> None:
        is_shared = settings.auth  # without, all are one
        self._reads = Places(
            "read",
            at_once=settings.requests_at_once,
            waiting=settings.requests_waiting,
            wait_s=settings.request_wait_s,
            shared=is_shared,
            metrics=metrics,
        )
        self._wide = Places(
            "wide",
            at_once=settings.wide_prunes_at_once,
            waiting=settings.requests_waiting,
            wait_s=None,  # what is before it is bounded by its cost
            shared=is_shared,
            metrics=metrics,
            most_cost=settings.wide_prunes_tests,
        )
        self._changes = Places(
            "change",
            at_once=settings.changes_at_once,
            waiting=0,
            wait_s=settings.request_wait_s,
            shared=is_shared,
            metrics=metrics,
        )
        self._bodies = Bodies(most_bytes=settings.body_memory_bytes, shared=is_shared, metrics=metrics)
        self._most_body_bytes = settings.max_body_bytes
        self._deadline_s = settings.request_deadline_s
        self._late = metrics.limits.late

    def reading(self, request: Request) -> AbstractAsyncContextManager[None]:
        """A place for a request that only reads; raises as :meth:`admitted`."""
        return self._reads.held(actor_of(request))

    def check_testing(self, request: Request, block_tests: int) -> None:
        """Raises Overloaded where :meth:`testing` would."""
        self._wide.check_cost(actor_of(request), block_tests)

    def testing(self, request: Request, block_tests: int) -> AbstractAsyncContextManager[None]:
        """A place for a request that tests so many blocks, beside those of others; raises as :meth:`admitted`."""
        return self._wide.held(actor_of(request), block_tests)

    def admitted(
        self, handler: Handler, *, changes: bool, has_body: bool, is_large: bool, takes_place: bool = True
    ) -> Handler:
        """A handler that is called once there is a place for its request, with the body read.

        ``takes_place`` False: the handler itself takes one (:meth:`reading`, :meth:`testing`) unless it can answer on
        the event loop, in a moment.

        Its caller knows by then who asks. The handler's work is given up when the request's time is over, unless it
        ``changes`` something. The answer is sent without the place: slow clients take none.

        Raises, beside what the handler raises:
            BodyTooLarge, InvalidRequest: its body, or how long it says that it waits.
            Overloaded: too much is under way.
            Unavailable: its time is over.
        """
        places, bodies, late = self._changes if changes else self._reads, self._bodies, self._late
        most_bytes = self._most_body_bytes if is_large else min(SMALL_BODY_BYTES, self._most_body_bytes)
        deadline_s = self._deadline_s

        async def admitted(request: Request) -> Response:
            whose = actor_of(request)
            waits_s = asked_s(request.scope)
            held_bytes = 0
            if has_body:
                if not is_large:
                    _check_announced(request, most_bytes)
                if takes_place or not _is_small(request):
                    places.check(whose)
                held_bytes = await bodies.read(request, whose, most_bytes)
            try:
                if changes:
                    begin_change(waits_s)
                else:
                    begin_read(deadline_s, waits_s)
                if not takes_place:
                    return await handler(request)
                if not places.take(whose):
                    await places.wait(whose)
                try:
                    return await handler(request)
                finally:
                    places.give_back(whose)
            except Unavailable as error:
                if error.details.get("reason") == "deadline":
                    late.inc()
                raise
            finally:
                end()
                bodies.forget(whose, held_bytes)

        return admitted


def _is_small(request: Request) -> bool:
    """Whether a body is announced that is read at once."""
    announced = request.headers.get("content-length", "")
    return announced.isdigit() and len(announced) <= 18 and int(announced) <= QUICK_BODY_BYTES


def _check_announced(request: Request, most_bytes: int) -> None:
    announced = request.headers.get("content-length", "")
    if announced.isdigit() and (len(announced) > 18 or int(announced) > most_bytes):
        raise too_large(most_bytes)
