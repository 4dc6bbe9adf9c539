"""Threads for questions, by what they cost: narrow ones wait for nobody, wide ones for each other."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar, TypeVar

from starlette.requests import Request

from lamella.service.access.principal import actor_of
from lamella.service.http.admission import Admission
from lamella.service.http.streaming import MIN_BLOCK_BYTES, WHOLE_BYTES, LargeAnswers
from lamella.service.process.threads import Threads, ThreadUse
from lamella.snapshot.prune.pipeline import Deferred, NotNow

_T = TypeVar("_T")


class Lanes:
    """Runs questions in the lane that their cost calls for. ``readers`` are the threads of the narrow ones.

    ``wide_at_once``: wide questions at work at a time; each keeps a core busy, and takes no other read's place.
    """

    #: Questions with more tests than this are wide: they take some milliseconds, and others do not wait for them.
    WIDE_TESTS: ClassVar[int] = 50_000

    def __init__(
        self, *, admission: Admission, readers: Threads, wide_at_once: int, large_answers: LargeAnswers
    ) -> None:
        self._admission = admission
        self._readers = readers
        self._testers = Threads(wide_at_once)
        self._large_answers = large_answers

    @property
    def wide_use(self) -> ThreadUse:
        """How busy the threads of wide questions are."""
        return self._testers.use

    async def read(self, work: Callable[[], _T]) -> _T:
        """Run blocking work that changes nothing in a thread; slow mutations do not take its place."""
        return await self._readers.run(work)

    async def test(self, work: Callable[[], _T]) -> _T:
        """Run a question that tests many blocks in a thread; it keeps a core busy, and takes no other read's place."""
        return await self._testers.run(work)

    async def narrow(self, request: Request, work: Callable[[], _T]) -> _T:
        """Run a question that tests few blocks, once it has its place; raises Overloaded."""
        async with self._admission.reading(request):
            return await self.read(work)

    async def weighed(self, request: Request, work: Callable[[int | None], _T]) -> _T:
        """Run a question in the lane that its cost calls for; its operation takes its own place.

        ``work`` is given the tests that it may do (None: any number), and raises NotNow before it does more.
        Raises what it raises, and as :meth:`in_lane`.
        """
        try:
            return await self.narrow(request, lambda: work(self.WIDE_TESTS))
        except NotNow as error:
            cost = error.cost
        return await self.in_lane(request, cost, lambda: work(None))

    async def in_lane(self, request: Request, cost: Deferred, work: Callable[[], _T]) -> _T:
        """Run a question of that cost: what tests many blocks has places and threads of its own.

        Raises:
            Overloaded: too much is under way. Nothing was done then, also where the answer surely is a large one and
                there is neither a turn nor room to wait for one.
        """
        tests = cost.block_tests or 0
        if cost.selected_blocks * MIN_BLOCK_BYTES > WHOLE_BYTES:
            self._large_answers.check(actor_of(request))
        if tests > self.WIDE_TESTS:
            async with self._admission.testing(request, tests):
                return await self.test(work)
        return await self.narrow(request, work)

    def check_wide(self, request: Request, tests: int) -> None:
        """Raise Overloaded where a question of so many tests would be refused now."""
        self._admission.check_testing(request, tests)
