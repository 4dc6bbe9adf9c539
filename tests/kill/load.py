"""Clients that append, delete and compact until they are told to stop, and ask again until they know the outcome."""

from __future__ import annotations

import itertools
import random
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import httpx2

from kill.ledger import Intent, Kind, Ledger

ROWS = 2
_PAUSE_S = 0.02
#: How often one thread asks with one key before that counts as a failure of its own.
_MAX_TRIES = 4_000


class LoadSwitch:
    """Lets requests through while it is open; closing it returns when none is on its way."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._open = False
        self._inside = 0
        self.ended = False

    @contextmanager
    def through(self) -> Iterator[bool]:
        """Wait until the switch is open; False: it never will be again."""
        with self._changed:
            self._changed.wait_for(lambda: self._open or self.ended)
            if self.ended:
                yield False
                return
            self._inside += 1
        try:
            yield True
        finally:
            with self._changed:
                self._inside -= 1
                self._changed.notify_all()

    def open(self) -> None:
        """Let requests through."""
        with self._changed:
            self._open = True
            self._changed.notify_all()

    def close(self) -> None:
        """Let no more through and wait for those inside."""
        with self._changed:
            self._open = False
            self._changed.wait_for(lambda: not self._inside)

    def end(self) -> None:
        """Close it for good."""
        with self._changed:
            self.ended = True
            self._changed.notify_all()


class Client(threading.Thread):
    """One client. ``urls`` are services over the same tables.

    ``fresh`` names a file that was never registered, in the folder of the table given or in none.
    """

    def __init__(
        self,
        number: int,
        *,
        seed: int,
        urls: Sequence[str],
        tables: Sequence[str],
        fresh: Callable[[str | None], str],
        ledger: Ledger,
        switch: LoadSwitch,
    ) -> None:
        super().__init__(name=f"client {number}", daemon=True)
        self._number = number
        self._random = random.Random(f"{seed}-{number}")
        self._urls = urls
        self._tables = tables
        self._fresh = fresh
        self._ledger = ledger
        self._switch = switch
        self._keys = itertools.count()
        #: When set, open intents are brought to their end and no new one is begun.
        self.finishing = False

    def run(self) -> None:
        """Until the switch ends, or everything is resolved while finishing."""
        try:
            with httpx2.Client(timeout=120) as http:
                while not self._switch.ended and not self.finishing:
                    intent = self._invent()
                    self._ledger.begin(intent)
                    if not self._resolve(http, intent):
                        return
        except Exception as error:
            self._ledger.violation(f"a client failed: {error!r}")
            raise

    def _resolve(self, http: httpx2.Client, intent: Intent) -> bool:
        """Ask until the outcome is known; False: the load ended first."""
        last = "no answer"
        for _ in range(_MAX_TRIES):
            with self._switch.through() as may_go:
                if not may_go:
                    return False
                answer = self._send(http, intent)
                if answer is not None and answer.status_code < 500:
                    self._know(intent, answer)
                    if answer.status_code == 200 and self._random.random() < 0.1:
                        self._ask_again(http, intent, answer)
                    return True
                self._ledger.unknown(intent)
                last = "no answer" if answer is None else f"{answer.status_code} {answer.text}"
            time.sleep(self._random.uniform(0, _PAUSE_S))
        self._ledger.violation(f"{intent.key}: no outcome after {_MAX_TRIES} requests; the last one: {last}")
        return False

    def _know(self, intent: Intent, answer: httpx2.Response) -> None:
        if answer.status_code == 200:
            replayed = answer.headers.get("idempotency-replayed") == "true"
            self._ledger.acknowledge(intent, answer.json()["snapshot_id"], replayed=replayed)
        else:
            self._ledger.refuse(intent, answer.json()["code"])

    def _ask_again(self, http: httpx2.Client, intent: Intent, first: httpx2.Response) -> None:
        """The same key again, perhaps at another service: the same answer, if there is one."""
        again = self._send(http, intent)
        if again is None or again.status_code >= 500:
            return
        if (again.status_code, again.content) != (200, first.content):
            self._ledger.violation(f"{intent.key}: first {first.text}, then {again.status_code} {again.text}")

    def _send(self, http: httpx2.Client, intent: Intent) -> httpx2.Response | None:
        """The answer; None when the connection failed."""
        try:
            return http.post(
                self._random.choice(self._urls) + intent.path,
                json=intent.body,
                headers={"Idempotency-Key": intent.key},
            )
        except httpx2.TransportError:
            return None

    def _invent(self) -> Intent:
        chosen = self._random
        table = chosen.choice(self._tables)
        with self._ledger.lock:
            believed = sorted(self._ledger.believed[table])
            newest = self._ledger.newest.get(table)
        dice = chosen.random()
        # More removals the more there is, so that tables stay small however long this runs.
        crowded = min(1.0, len(believed) / 40)
        if len(believed) < 4 or dice > 0.2 + 0.5 * crowded:
            files = [self._fresh(None) for _ in range(chosen.choice((1, 1, 1, 3)))]
            return self._intent(table, "append", "register", {"paths": files, "strict": True}, files, [])
        removed = chosen.sample(believed, chosen.choice((1, 2, 4)))
        body: dict[str, object] = {"removed": removed, "operation": "delete"}
        if newest is not None and chosen.random() < 0.5:
            body["base_snapshot_id"] = newest
        if chosen.random() < 0.4:
            return self._intent(table, "delete", "commits", body, [], removed)
        merged = self._fresh(table)  # as a job leaves it: a clean-up may take it before this commit is made
        block = {"location": merged, "row_count": ROWS, "file_size": 0}
        return self._intent(
            table, "compact", "commits", {**body, "added": [block], "operation": "compact"}, [merged], removed
        )

    def _intent(
        self, table: str, kind: Kind, end: str, body: dict[str, object], added: list[str], removed: list[str]
    ) -> Intent:
        key = f"k-{self._number}-{next(self._keys)}"
        return Intent(key, table, kind, f"{table}/{end}", body, frozenset(added), frozenset(removed))
