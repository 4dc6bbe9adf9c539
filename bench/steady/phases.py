"""Phases of a load: requests at a fixed rate, each timed from when it was due, and their outcomes."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec
import numpy as np

from steady.caller import Answer, Caller
from steady.mix import Mix, Request

#: Status codes of an overloaded service, which says when to retry.
SHED: Final = (429, 503)


class Call(msgspec.Struct, frozen=True):
    """One request, due at ``due_s`` of its phase and answered ``took_s`` later; ``status`` 0: not answered."""

    kind: str
    due_s: float
    took_s: float
    status: int
    failure: str

    @property
    def is_done(self) -> bool:
        """True when it was answered as it should be."""
        return 200 <= self.status < 300

    @property
    def is_shed(self) -> bool:
        """Whether it was refused temporarily."""
        return self.status in SHED


class Phase(msgspec.Struct, frozen=True, kw_only=True):
    """A phase. ``lag_s``: how much later than due the client sent a request, at worst."""

    rate: float
    seconds: float
    calls: list[Call]
    lag_s: float

    @property
    def errors(self) -> dict[str, int]:
        """Return the failures by kind: requests neither completed nor shed."""
        found = Counter(
            call.failure or f"{call.kind}: {call.status}" for call in self.calls if not (call.is_done or call.is_shed)
        )
        return dict(sorted(found.items()))

    @property
    def shed(self) -> int:
        """Requests that were refused for now."""
        return sum(call.is_shed for call in self.calls)

    def latency_ms(self, kind: str | None = None) -> dict[str, float]:
        """Quantiles of the requests that were done, from when each was due."""
        return latency_ms([call.took_s for call in self.calls if call.is_done and kind in (None, call.kind)])

    def summary(self) -> dict[str, Any]:
        """For the report."""
        return {
            "rate": round(self.rate, 1),
            "seconds": round(self.seconds, 1),
            "sent": len(self.calls),
            "done": sum(call.is_done for call in self.calls),
            "shed": self.shed,
            "errors": self.errors,
            "client_lag_ms": round(self.lag_s * 1e3, 1),
            "latency_ms": {
                "all": self.latency_ms(),
                **{kind: self.latency_ms(kind) for kind in sorted({c.kind for c in self.calls})},
            },
        }


def latency_ms(took_s: Sequence[float]) -> dict[str, float]:
    """p50, p99, p99.9 and the longest, in milliseconds."""
    if not took_s:
        return {}
    values = np.asarray(took_s) * 1e3
    names = {"p50": 50, "p99": 99, "p99.9": 99.9, "max": 100}
    return {name: round(float(np.percentile(values, percentile)), 2) for name, percentile in names.items()}


class Load:
    """Sends a mix to a service."""

    def __init__(self, caller: Caller, mix: Mix, pid: int) -> None:
        self._caller = caller
        self._mix = mix
        self._requests: Iterator[Request] = mix.requests()
        self._pid = pid

    async def phase(self, rate: float, seconds: float) -> Phase:
        """So many requests a second for so long, and all that came of them."""
        loop = asyncio.get_running_loop()
        calls: list[Call] = []
        tasks: set[asyncio.Task[None]] = set()
        lag_s = 0.0

        async def one(request: Request, due_s: float) -> None:
            answer: Answer = await self._caller.send(request.data)
            self._mix.record(request, answer.status)
            took_s = loop.time() - began_s - due_s
            calls.append(Call(request.kind, due_s, took_s, answer.status, answer.failure))

        began_s = loop.time()
        for number in range(int(rate * seconds)):
            due_s = number / rate
            early_s = due_s - (loop.time() - began_s)
            if early_s > 0:
                await asyncio.sleep(early_s)
            elif number % 16 == 0:
                await asyncio.sleep(0)  # answers are taken although we are late
            lag_s = max(lag_s, loop.time() - began_s - due_s)
            task = asyncio.create_task(one(next(self._requests), due_s))
            tasks.add(task)
            task.add_done_callback(tasks.discard)
        while tasks:
            await asyncio.wait(set(tasks))
        return Phase(rate=rate, seconds=seconds, calls=calls, lag_s=lag_s)

    def rss_bytes(self) -> int:
        """The memory of the service's processes."""
        return sum(_rss_bytes(pid) for pid in _with_children(self._pid))


def _rss_bytes(pid: int) -> int:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024
    return 0


def _with_children(pid: int) -> list[int]:
    found = [pid]
    for task in Path(f"/proc/{pid}/task").iterdir():
        for child in (task / "children").read_text().split():
            found += _with_children(int(child))
    return found
