"""A thread that cleans up tables all the time, while clients commit and services are killed."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Sequence

import httpx2
import msgspec

from kill.ledger import Ledger
from kill.load import LoadSwitch
from lamella.snapshot.wire import VacuumAnswer

_ANSWER = msgspec.json.Decoder(VacuumAnswer)
_PAUSE_S = 0.15


class Cleaner(threading.Thread):
    """Expires whatever the services' minimum age allows, and deletes it, in parts that any of them may do.

    ``alone``: there is no other cleaner.
    """

    def __init__(
        self,
        number: int,
        *,
        seed: int,
        urls: Sequence[str],
        tables: Sequence[str],
        ledger: Ledger,
        switch: LoadSwitch,
        alone: bool,
    ) -> None:
        super().__init__(name=f"cleaner {number}", daemon=True)
        self._random = random.Random(f"{seed}-cleaner-{number}")
        self._urls = urls
        self._tables = tables
        self._ledger = ledger
        self._switch = switch
        self._allowed = {"unavailable", "outcome_unknown", "store_error"}
        if not alone:
            # A minimum age this short lets the other one delete what was current when this one asked.
            self._allowed.add("manifest_error")
        #: When set, the clean-up that is at work is the last one.
        self.finishing = False

    def run(self) -> None:
        """Until the switch ends, or the load does."""
        try:
            with httpx2.Client(timeout=120) as http:
                while not self._switch.ended and not self.finishing:
                    self._clean(http, self._random.choice(self._tables))
                    time.sleep(self._random.uniform(0, _PAUSE_S))
        except Exception as error:
            self._ledger.violation(f"a cleaner failed: {error!r}")
            raise

    def _clean(self, http: httpx2.Client, table: str) -> None:
        """All parts, or as many as there are until a service dies; the next clean-up finishes what it began."""
        request = {
            "execute": self._random.random() < 0.9,
            "older_than": "0s",
            "include_external_blocks": self._random.random() < 0.5,
            "max_objects": self._random.choice((5, 50, None)),
            "page_token": None,
        }
        while True:
            with self._switch.through() as may_go:
                if not may_go:
                    return
                try:
                    answer = http.post(f"{self._random.choice(self._urls)}{table}/vacuum", json=request)
                except httpx2.TransportError:
                    self._ledger.count("clean-ups cut off")
                    return
                if answer.status_code != 200:
                    self._refused(answer)
                    return
                part = _ANSWER.decode(answer.content)
                self._ledger.cleaned(part)
            if part.next_page_token is None:
                return
            request["page_token"] = part.next_page_token

    def _refused(self, answer: httpx2.Response) -> None:
        """Only because the database or the store fails: that commits are made meanwhile is no reason."""
        code = answer.json()["code"]
        self._ledger.count(f"clean-ups refused {code}")
        if code not in self._allowed:
            self._ledger.violation(f"a clean-up was refused: {answer.text}")
