"""Pages of the dashboard whose figures are made beside the requests: asked again until they are there."""

from __future__ import annotations

import time
from typing import Any

import httpx2

#: What stands in the place of figures that are not there yet.
WAITING = "Computing …"
_LONGEST_S = 60.0


def when_ready(http: httpx2.Client, path: str, params: dict[str, Any] | None = None) -> httpx2.Response:
    """The page once it waits for nothing, or as it is after a minute."""
    give_up = time.monotonic() + _LONGEST_S
    while True:
        answer: httpx2.Response = http.get(path, params=params)
        if WAITING not in answer.text or time.monotonic() > give_up:
            return answer
        time.sleep(0.05)
