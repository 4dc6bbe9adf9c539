"""Event notifications of S3: which files they say were created and deleted.

S3 delivers each event at least once and in any order, so an event only says where to look: the store knows whether the
file is still there and what it holds, and the table knows whether it has it. Sizes, etags, versions and sequencers of
events are therefore not used.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Final
from urllib.parse import unquote_plus

import msgspec

from lamella.snapshot.errors import Conflict, InvalidRequest, StoreError
from lamella.snapshot.storage.location import SUFFIX, is_hidden, normal
from lamella.snapshot.wire.arrivals import ArrivalsRequest, S3Entity, S3Record

_MESSAGE: Final = msgspec.json.Decoder(ArrivalsRequest)
#: SNS wraps an event once; EventBridge may be behind SNS.
_MAX_WRAPPED: Final = 2
_TEST: Final = "s3:TestEvent"
_CREATED: Final = "Object Created"
_DELETED: Final = "Object Deleted"
#: Codes of refusals that may be over when the file is tried again: the store failed, or a writer was still at work.
_TRANSIENT: Final = frozenset({StoreError.code, Conflict.code})


class FileEvents(msgspec.Struct, frozen=True, kw_only=True):
    """What a message says: locations of files that were created and deleted, without duplicates, in their order.

    ``ignored``: the number of other events, by reason (see :class:`lamella.snapshot.wire.ArrivalsAnswer`).
    """

    created: tuple[str, ...] = ()
    deleted: tuple[str, ...] = ()
    ignored: dict[str, int] = {}


def read_message(text: str | bytes) -> FileEvents:
    """Returns the events of a message of a queue, as S3, SNS or EventBridge wrote it; raises InvalidRequest."""
    return file_events(_decoded(text))


def file_events(message: ArrivalsRequest) -> FileEvents:
    """Returns the events of a message, or of a list of files.

    Raises:
        InvalidRequest: not an event notification; a key that is no UTF-8; a location that is not one.
    """
    for _ in range(_MAX_WRAPPED):
        if message.message is None or _is_event(message):
            break
        message = _decoded(message.message)
    if not _is_event(message):
        raise InvalidRequest("the message is not an event notification of S3, and names no files")
    ignored: Counter[str] = Counter()
    created = [normal(each) for each in message.files]
    deleted = [normal(each) for each in message.removed]
    if message.event == _TEST:
        ignored["test"] += 1
    for record in message.records or ():
        kind = _kind_of(record)
        if record.s3 is None or kind is None:
            ignored["other_event"] += 1
        else:
            (created if kind == _CREATED else deleted).append(_location(record.s3, is_escaped=True))
    if message.detail_type is not None:
        if message.detail is None or message.detail_type not in (_CREATED, _DELETED):
            ignored["other_event"] += 1
        else:
            found = _location(message.detail, is_escaped=False)
            (created if message.detail_type == _CREATED else deleted).append(found)
    return FileEvents(created=tuple(dict.fromkeys(created)), deleted=tuple(dict.fromkeys(deleted)), ignored=ignored)


def is_transient(code: str) -> bool:
    """Returns whether a file that was refused with this code should be tried again soon."""
    return code in _TRANSIENT


def data_files(
    locations: Iterable[str], *, prefix: str | None = None, suffix: str = SUFFIX
) -> tuple[tuple[str, ...], int]:
    """Returns the locations of data files, and how many others there are.

    ``prefix``: only files whose location begins with it; without a slash at its end it may end within a name.
    ``suffix``: the end of their names. Files whose path, after the prefix, has a hidden part (which begins with ``.``,
    or with ``_`` and contains no ``=``: Spark's rule) are no data files.

    Raises:
        InvalidRequest: the prefix is not a location.
    """
    start = "" if prefix is None else _prefix(prefix)
    folder = start.rpartition("/")[0] + "/" if start else ""
    found, others = [], 0
    for location in locations:
        below = location.removeprefix(folder) if folder else _without_root(location)
        is_data = location.endswith(suffix) and not any(is_hidden(part) for part in below.split("/") if part)
        if is_data and location.startswith(start):
            found.append(location)
        else:
            others += 1
    return tuple(found), others


def _without_root(location: str) -> str:
    """Returns an S3 key, or the name of another file: folders above a local table say nothing about its files."""
    _, is_s3, path = location.partition("s3://")
    return path.partition("/")[2] if is_s3 else location.rpartition("/")[2]


def _prefix(prefix: str) -> str:
    """Returns a normalized prefix; a slash at its end is kept."""
    found = normal(prefix)
    return found + "/" if prefix.endswith("/") and not found.endswith("/") else found


def _decoded(text: str | bytes) -> ArrivalsRequest:
    try:
        return _MESSAGE.decode(text)
    except (msgspec.DecodeError, UnicodeError) as error:
        raise InvalidRequest(f"the message is not an event notification of S3: {error}") from error
    except RecursionError as error:
        raise InvalidRequest("the message is nested too deeply") from error


def _is_event(message: ArrivalsRequest) -> bool:
    named = message.files or message.removed or message.event == _TEST
    return bool(named) or message.records is not None or message.detail_type is not None


def _kind_of(record: S3Record) -> str | None:
    """Returns whether a record is about a new or a deleted object; None: about something else."""
    name = record.event_name.removeprefix("s3:")
    if name.startswith("ObjectCreated:"):
        return _CREATED
    return _DELETED if name.startswith(("ObjectRemoved:", "LifecycleExpiration:")) else None


def _location(entity: S3Entity, *, is_escaped: bool) -> str:
    key = entity.object.key
    if is_escaped:
        try:
            key = unquote_plus(key, errors="strict")
        except UnicodeDecodeError as error:
            raise InvalidRequest(f"the key {key!r} of an event is not UTF-8") from error
    if not entity.bucket.name or "/" in entity.bucket.name or not key:
        raise InvalidRequest(f"an event has no valid bucket and key: {entity.bucket.name!r}, {key!r}")
    return normal(f"s3://{entity.bucket.name}/{key}")
