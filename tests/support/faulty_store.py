"""A store that fails in the way that stores fail, by a script or by chance, for tests.

It wraps any :class:`~lamella.snapshot.storage.store.Store` (local files do not go through fsspec, so a wrapper of one
of its file systems would miss them). The same script, or the same seed and the same calls, give the same faults.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Literal, Protocol, TypeVar

import msgspec

from lamella.snapshot.errors import StoreError
from lamella.snapshot.storage.store import ListedObject, ObjectStat, Store

_T = TypeVar("_T")

Operation = Literal["read", "read_range", "stat", "put", "expand", "list", "delete", "delete_many"]

#: ``before``: fails without any effect. ``after``: takes effect, but the answer is lost. ``partial``: a read returns
#: half of the bytes as if they were all; a put leaves half of its bytes under the name and fails; half of many
#: deletions are done. ``stale``: a listing is that of the last time, or empty. ``full``: no space left, only for puts.
#: ``denied``: permission denied. ``slow``: takes ``delay_s`` longer. A fault that an operation does not support acts as
#: ``before``.
How = Literal["before", "after", "partial", "stale", "full", "denied", "slow"]

_REASONS: Mapping[How, str] = {"full": "No space left on device", "denied": "Permission denied"}


class Fault(msgspec.Struct, frozen=True, kw_only=True):
    """A fault of the matching calls number ``nth`` (from 1) to ``nth + times - 1``.

    ``operation``: None matches all. ``within``: only locations that contain this text.
    """

    how: How
    operation: Operation | None = None
    within: str = ""
    nth: int = 1
    times: int = 1
    delay_s: float = 0.0


class Faults(Protocol):
    """Decides on the fault of each call; called by one thread at a time."""

    def next(self, operation: Operation, location: str, /) -> Fault | None:
        """Returns the fault of this call."""


class Script:
    """Faults by number of call."""

    def __init__(self, faults: Sequence[Fault] = ()) -> None:
        self._faults = list(faults)
        self._seen = [0] * len(self._faults)

    def next(self, operation: Operation, location: str, /) -> Fault | None:
        """Returns the first fault of the script that matches and is due."""
        found = None
        for position, fault in enumerate(self._faults):
            if fault.operation not in (None, operation) or fault.within not in location:
                continue
            self._seen[position] += 1
            if found is None and fault.nth <= self._seen[position] < fault.nth + fault.times:
                found = fault
        return found


class Chance:
    """Each call fails with a probability: ``rates`` by kind of fault; ``delay_s`` is that of slow ones."""

    def __init__(
        self,
        seed: int,
        rates: Mapping[How, float],
        *,
        operations: Sequence[Operation] | None = None,
        delay_s: float = 0.01,
    ) -> None:
        self._random = random.Random(seed)  # repeatable on purpose
        self._rates = dict(rates)
        self._operations = operations
        self._delay_s = delay_s

    def next(self, operation: Operation, _location: str, /) -> Fault | None:
        """Returns a random fault."""
        if self._operations is not None and operation not in self._operations:
            return None
        dice = self._random.random()
        for how, rate in self._rates.items():
            dice -= rate
            if dice < 0:
                return Fault(how=how, operation=operation, delay_s=self._delay_s)
        return None


class FaultyStore:
    """``store`` with ``faults``, which may be replaced at any time; ``happened`` lists the faults so far.

    Thread-safe. ``sleep`` delays slow calls.
    """

    def __init__(
        self, store: Store, faults: Faults | None = None, *, sleep: Callable[[float], None] = time.sleep
    ) -> None:
        self.faults: Faults = faults if faults is not None else Script()
        self.happened: list[tuple[Operation, str, How]] = []
        self._store = store
        self._sleep = sleep
        self._lock = threading.Lock()
        self._listed: dict[str, list[ListedObject]] = {}

    def read(self, location: str) -> bytes:
        """Returns all bytes of an object, or half of them."""
        how = self._at("read", location)
        return _cut(self._done(how, location, lambda: self._store.read(location)), how)

    def read_range(self, location: str, start: int, length: int) -> bytes:
        """Returns some bytes of an object, or half of them."""
        how = self._at("read_range", location)
        return _cut(self._done(how, location, lambda: self._store.read_range(location, start, length)), how)

    def stat(self, location: str) -> ObjectStat:
        """Returns size and content id of an object."""
        return self._done(self._at("stat", location), location, lambda: self._store.stat(location))

    def put(self, location: str, data: bytes) -> ObjectStat:
        """Create an object, or half of one."""
        how = self._at("put", location)
        if how == "partial":
            self._store.put(location, data[: len(data) // 2])
            raise _failed(how, location)
        if how == "full":
            raise _failed(how, location)
        return self._done(how, location, lambda: self._store.put(location, data))

    def expand(self, url: str, *, plain: bool = False) -> list[str]:
        """Returns the data files that a URL names."""
        return self._done(self._at("expand", url), url, lambda: self._store.expand(url, plain=plain))

    def list(self, prefix: str, *, start_after: str | None = None) -> Iterator[ListedObject]:
        """Yields every object below a folder, or those of the last listing."""
        how = self._at("list", prefix)
        if how == "stale":
            with self._lock:
                known = self._listed.get(prefix, [])
            return iter([found for found in known if start_after is None or found.location > start_after])
        found = list(self._done(how, prefix, lambda: self._store.list(prefix, start_after=start_after)))
        if start_after is None:
            with self._lock:
                self._listed[prefix] = found
        return iter(found)

    def delete(self, location: str) -> None:
        """Remove an object."""
        self._done(self._at("delete", location), location, lambda: self._store.delete(location))

    def delete_many(self, locations: Iterable[str]) -> dict[str, str]:
        """Remove objects, or half of them."""
        targets = sorted(locations)
        how = self._at("delete_many", targets[0] if targets else "")
        if how in (None, "slow"):
            return self._store.delete_many(targets)
        if how == "partial":
            half = len(targets) // 2
            return {**self._store.delete_many(targets[:half]), **dict.fromkeys(targets[half:], "the request broke off")}
        if how == "after":
            self._store.delete_many(targets)
        return dict.fromkeys(targets, _REASONS.get(how, "the request failed"))

    def _at(self, operation: Operation, location: str) -> How | None:
        with self._lock:
            fault = self.faults.next(operation, location)
            if fault is None:
                return None
            self.happened.append((operation, location, fault.how))
        if fault.how == "slow":
            self._sleep(fault.delay_s)
        return fault.how

    def _done(self, how: How | None, location: str, work: Callable[[], _T]) -> _T:
        if how in (None, "slow"):
            return work()
        if how in ("after", "partial"):
            result = work()
            if how == "partial" and isinstance(result, bytes):
                return result
        raise _failed(how, location)


def _cut(data: bytes, how: How | None) -> bytes:
    return data[: len(data) // 2] if how == "partial" else data


def _failed(how: How, location: str) -> StoreError:
    return StoreError(f"{location}: {_REASONS.get(how, f'the request failed ({how})')}", location=location)
