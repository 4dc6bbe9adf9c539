"""A directory that is listed again and again: a folder of this machine, or below a bucket.

The store's listing is all there is to know, so a program that starts again sends every file once more; the service
knows which ones the table has. A file of a local folder may still be written: it is sent when it has not changed for
some time. A file that was sent too early is no Parquet file yet and is refused; it is sent again when it has changed.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

import msgspec

from lamella.client.arrivals.watch import Batch
from lamella.snapshot.arrivals import data_files, is_transient
from lamella.snapshot.errors import InvalidRequest, ObjectNotFound
from lamella.snapshot.storage import Store, normal
from lamella.snapshot.storage.location import SUFFIX, has_magic, parse
from lamella.snapshot.storage.store import ListedObject
from lamella.snapshot.wire import ArrivalsAnswer

#: Seconds until a refused file is sent again though it has not changed, and the most: every further wait is twice as
#: long. The table's columns may have changed meanwhile.
_REFUSED_S: Final = 60.0
_REFUSED_MAX_S: Final = 3_600.0
#: Where objects are whole as soon as they are listed.
_WHOLE: Final = "s3://"


class _Refused(msgspec.Struct, frozen=True):
    """A file that was refused: its contents, when it is sent again, and the wait that comes after that."""

    content_id: str
    again_s: float
    wait_s: float


class DirectorySource:
    """The files of one directory.

    ``poll_s``: seconds between listings. ``min_age_s``: seconds for which a local file must not have changed.
    ``max_files``: of one batch. ``once``: give what is old enough, wait for younger files, but not longer than twice
    ``min_age_s``, and end. ``clock``: Unix milliseconds.
    """

    def __init__(
        self,
        store: Store,
        location: str,
        sleep: Callable[[float], None],
        *,
        max_files: int,
        poll_s: float,
        min_age_s: float,
        suffix: str = SUFFIX,
        once: bool = False,
        monotonic: Callable[[], float] = time.monotonic,
        clock: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
    ) -> None:
        if has_magic(location):
            raise InvalidRequest(f"{location!r} is a pattern; a directory is watched with everything below it")
        self.location = normal(location).rstrip("/") + "/"
        self._store = store
        self._sleep = sleep
        self._max_files = max_files
        self._poll_s = poll_s
        self._min_age_s = 0.0 if self.location.startswith(_WHOLE) else min_age_s
        self._suffix = suffix
        self._once = once
        self._monotonic = monotonic
        self._clock = clock
        #: Contents of files that need not be sent again.
        self._sent: dict[str, str] = {}
        self._refused: dict[str, _Refused] = {}
        #: Files that may still be written, and since when they have not changed.
        self._young: dict[str, tuple[str, float]] = {}
        self._ready: list[ListedObject] = []
        self._removed: list[str] = []
        self._listed_s: float | None = None
        self._began_s = monotonic()

    def take(self) -> Batch | None:
        """Returns files that are new or changed, and those that are gone; None if there are none."""
        while not self._ready and not self._removed:
            self._wait()
            self._list()
            is_changing = bool(self._young) and self._monotonic() - self._began_s <= 2 * self._min_age_s
            if not self._ready and not self._removed and not (self._once and is_changing):
                return None
        some, self._ready = self._ready[: self._max_files], self._ready[self._max_files :]
        removed, self._removed = self._removed, []
        return Batch(files=tuple(each.location for each in some), removed=tuple(removed), marks=tuple(some))

    def done(self, batch: Batch, answer: ArrivalsAnswer) -> None:
        """Note which files need not be sent again until they change."""
        refused = {each.path: each for each in answer.refused}
        now_s = self._monotonic()
        for file in batch.marks:
            assert isinstance(file, ListedObject)  # noqa: S101  # this source made the batch
            wrong = refused.get(file.location)
            if wrong is None:
                self._sent[file.location] = file.content_id
                self._refused.pop(file.location, None)
            elif not is_transient(wrong.code):
                before = self._refused.get(file.location)
                wait_s = before.wait_s if before is not None and before.content_id == file.content_id else _REFUSED_S
                self._refused[file.location] = _Refused(
                    file.content_id, now_s + wait_s, min(_REFUSED_MAX_S, 2 * wait_s)
                )

    def _wait(self) -> None:
        if self._listed_s is not None:
            self._sleep(max(0.0, self._listed_s + self._poll_s - self._monotonic()))

    def _list(self) -> None:
        now_s = self._listed_s = self._monotonic()
        now_ms = self._clock()
        listed = {}
        young = {}
        for file in self._store.list(self.location):
            if not data_files((file.location,), prefix=self.location, suffix=self._suffix)[0]:
                continue
            listed[file.location] = file
            if self._sent.get(file.location) == file.content_id:
                continue
            refused = self._refused.get(file.location)
            if refused is not None and refused.content_id == file.content_id and now_s < refused.again_s:
                continue
            known = self._young.get(file.location)
            since_s = known[1] if known is not None and known[0] == file.content_id else now_s
            is_old = now_ms - file.modified_ms >= self._min_age_s * 1000
            if is_old or now_s - since_s >= self._min_age_s:
                self._ready.append(file)
            else:
                young[file.location] = (file.content_id, since_s)
        self._young = young
        for location in [each for each in self._sent if each not in listed]:
            del self._sent[location]
            self._removed.append(location)
        for location in [each for each in self._refused if each not in listed]:
            del self._refused[location]


def require_directory(location: str) -> None:
    """Raise ObjectNotFound if a local folder does not exist; below a bucket there may be nothing yet."""
    at = parse(location)
    if at.scheme == "file" and not Path(at.path).is_dir():
        raise ObjectNotFound(f"there is no directory {at.path}", location=location)
