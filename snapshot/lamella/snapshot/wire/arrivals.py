"""Requests and answers about files that arrived: S3 event notifications, and lists of locations."""

from __future__ import annotations

from typing import Annotated, Final

import msgspec
from msgspec import Meta, field

from lamella.snapshot.wire.commit import RefusedFile
from lamella.snapshot.wire.limits import Location, Word

#: The most files that one request may name.
MAX_ARRIVALS: Final = 100_000

_Bucket = Annotated[str, Meta(max_length=255)]
#: A key has at most 1,024 bytes, three times as many when they are escaped. With its bucket it is never longer than a
#: location may be, so that one event cannot have a whole list of locations refused.
_Key = Annotated[str, Meta(max_length=3_072)]
#: SQS, and SNS before it, send at most a mebibyte.
_Message = Annotated[str, Meta(max_length=1 << 20)]
_Files = Annotated[tuple[Location, ...], Meta(max_length=MAX_ARRIVALS)]


class S3Bucket(msgspec.Struct, frozen=True):
    """The bucket of an event."""

    name: _Bucket


class S3Key(msgspec.Struct, frozen=True):
    """The object of an event. In a record of S3 the key is escaped as in a form; in an event of EventBridge it is
    not."""

    key: _Key


class S3Entity(msgspec.Struct, frozen=True):
    """What a record of S3 is about."""

    bucket: S3Bucket
    object: S3Key


class S3Record(msgspec.Struct, frozen=True, kw_only=True):
    """A record of an event notification, such as ``ObjectCreated:Put``."""

    event_name: Word = field(name="eventName")
    s3: S3Entity | None = None


class ArrivalsRequest(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """``POST .../arrivals``: an event notification as S3 (``Records``, ``Event``), SNS (``Message``) or EventBridge
    (``detail-type``, ``detail``) sends it, whose other members are ignored; or ``files``, the locations of files that
    arrived, and ``removed``, those of files that were deleted.
    """

    files: _Files = ()
    removed: _Files = ()
    records: Annotated[tuple[S3Record, ...], Meta(max_length=MAX_ARRIVALS)] | None = field(name="Records", default=None)
    event: Word | None = field(name="Event", default=None)
    message: _Message | None = field(name="Message", default=None)
    detail_type: Word | None = field(name="detail-type", default=None)
    detail: S3Entity | None = None


class ArrivalsAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """What was done with files that arrived. Every file is counted once.

    ``registered``: files that the request added to the table; in an external table, files that its refresh added or
    replaced. ``row_count``, ``file_size_bytes``: of these files; None after a refresh. ``duplicates``: files that are
    in the table, unchanged. ``earlier``: files that were in the table before; their rows were rewritten or removed, and
    they are not added again. ``ignored``: the number of events and files without effect, by reason: ``gone`` (the file
    does not exist any more), ``deleted`` (an event about a deletion), ``other_file`` (not a data file, or outside of
    the prefix), ``other_event``, ``test``. ``refused``: files that are not in the table, or in it with other contents
    (``block_replaced``), and why. ``snapshot_id``: the snapshot that the files were added in, or the current one if
    ``changed`` is False.
    """

    snapshot_id: str
    changed: bool
    registered: int = 0
    row_count: int | None = 0
    file_size_bytes: int | None = 0
    duplicates: int = 0
    earlier: int = 0
    ignored: dict[str, int] = {}
    refused: tuple[RefusedFile, ...] = ()
