"""What a job's program tells its worker: lines on standard output that begin with a mark, JSON behind it.

::

    @lamella {"type":"progress","done":3,"total":10,"unit":"blocks","message":"writing"}
    @lamella {"type":"log","level":"warning","text":"..."}
    @lamella {"type":"checkpoint","value":...}
    @lamella {"type":"result","value":...}
    @lamella {"type":"error","code":"commit_conflict","detail":"...","details":{}}

Standard output, since it is what comes through ``spark-submit``: a JVM between the worker and the program passes on no
other file. All other lines, and standard error, are the job's log; but a line that is a JSON object is the result
unless the program tells another, since that is what ``lamella ... --json`` writes.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from lamella.snapshot.wire import LogLevel

MARK: Final = "@lamella "

#: Variables of a job's program. The checkpoint is JSON.
JOB_ID: Final = "LAMELLA_JOB_ID"
LEASE: Final = "LAMELLA_JOB_LEASE"
ATTEMPT: Final = "LAMELLA_JOB_ATTEMPT"
CHECKPOINT: Final = "LAMELLA_JOB_CHECKPOINT"


class ProgressEvent(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag="progress"):
    """How far the job is; see :class:`~lamella.snapshot.wire.Progress`."""

    done: int = 0
    total: int | None = None
    unit: str = ""
    message: str = ""


class LogEvent(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag="log"):
    """A line for the log."""

    text: str
    level: LogLevel = "info"


class CheckpointEvent(msgspec.Struct, frozen=True, kw_only=True, tag="checkpoint"):
    """What the next attempt is to go on from, if there has to be one."""

    value: Any


class ResultEvent(msgspec.Struct, frozen=True, kw_only=True, tag="result"):
    """What the job answers."""

    value: Any


class ErrorEvent(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag="error"):
    """Why the program is about to end without success. The last one counts."""

    code: str
    detail: str
    details: dict[str, Any] = {}


Event = ProgressEvent | LogEvent | CheckpointEvent | ResultEvent | ErrorEvent

_DECODER: Final[msgspec.json.Decoder[Event]] = msgspec.json.Decoder(Event)
_ENCODER: Final = msgspec.json.Encoder(enc_hook=str)
_MARK: Final = MARK.encode()


def event_line(event: Event) -> bytes:
    """The line that tells an event, with its end."""
    return _MARK + _ENCODER.encode(event) + b"\n"


def read_event(line: bytes) -> Event | None:
    """The event that a line tells; None for a line that is none, or that only looks like one."""
    if not line.startswith(_MARK):
        return None
    try:
        return _DECODER.decode(line[len(_MARK) :])
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None


def read_object(line: bytes) -> dict[str, Any] | None:
    """The JSON object that a line is; None when it is none."""
    if not line.startswith(b"{"):
        return None
    try:
        found = msgspec.json.decode(line)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    return found if isinstance(found, dict) else None
