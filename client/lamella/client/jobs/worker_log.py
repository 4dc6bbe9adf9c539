"""What a worker says of itself: a line an event, JSON for programs and text for people."""

from __future__ import annotations

import datetime as dt
import sys
import threading
from typing import Any, TextIO

import msgspec

from lamella.snapshot.wire import LogLevel


class WorkerLog:
    """Writes to standard error unless told otherwise. Safe to share between threads."""

    def __init__(self, stream: TextIO | None = None, *, as_json: bool = True) -> None:
        self._stream = stream if stream is not None else sys.stderr
        self._as_json = as_json
        self._lock = threading.Lock()

    def write(self, event: str, level: LogLevel = "info", **fields: Any) -> None:
        """One line: what happened, and members that say to what."""
        time = dt.datetime.now(dt.UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        given = {name: value for name, value in fields.items() if value is not None}
        if self._as_json:
            line = msgspec.json.encode({"time": time, "level": level, "event": event, **given}).decode()
        else:
            line = f"{time} {level:7} {event}" + "".join(f" {name}={value}" for name, value in given.items())
        with self._lock:
            self._stream.write(line + "\n")
            self._stream.flush()
