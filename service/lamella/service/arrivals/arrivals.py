"""Registers files that arrived, each of them once, however often and in whatever order it is told of.

Nothing is remembered for this: a snapshot knows its files and those that left it, and is committed by a compare-and-
swap. So a message that comes again, from a crashed consumer or two at once, finds its file in the table.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Final

import msgspec

from lamella.service.catalog import Catalog, TableRecord
from lamella.service.commits.blocks import FileChecker
from lamella.service.commits.committer import Committer
from lamella.service.external.external import External
from lamella.service.history.history import trusted_manifests
from lamella.service.http.idempotency import IdempotencyKey, Pending, StoredResponse
from lamella.service.telemetry.metrics import Metrics
from lamella.snapshot.arrivals import FileEvents, data_files, is_transient
from lamella.snapshot.counts import counted
from lamella.snapshot.errors import (
    BlocksRefused,
    DuplicateBlock,
    InvalidRequest,
    ObjectNotFound,
    StoreError,
)
from lamella.snapshot.source import source_of
from lamella.snapshot.storage import normal
from lamella.snapshot.warehouse import Warehouse
from lamella.snapshot.wire import (
    ArrivalsAnswer,
    ExternalSource,
    RefreshTable,
    RefreshTableAnswer,
    RefusedFile,
    Register,
    RegisterAnswer,
)

_REGISTERED: Final = msgspec.json.Decoder(RegisterAnswer)
_REFRESHED: Final = msgspec.json.Decoder(RefreshTableAnswer)
#: The request is safe to repeat, so its parts are not stored under a key.
_NO_KEY: Final = IdempotencyKey(None, "", "", 0)


class Arrivals:
    """Takes files that arrived into tables."""

    def __init__(
        self,
        *,
        catalog: Catalog,
        warehouse: Warehouse,
        committer: Committer,
        external: External,
        intake: FileChecker,
        metrics: Metrics,
    ) -> None:
        self._catalog = catalog
        self._warehouse = warehouse
        self._committer = committer
        self._external = external
        self._file_checker = intake
        self._metrics = metrics

    def take(
        self, table: TableRecord, events: FileEvents, *, prefix: str | None, suffix: str, must_report: bool
    ) -> ArrivalsAnswer:
        """Register the files that are new; in an external table, refresh it. Waits for the commit.

        ``prefix``, ``suffix``: see :func:`lamella.snapshot.arrivals.data_files`. ``must_report``: raise StoreError if a
        file should be tried again soon, since the sender reads nothing but the status. The other files are registered.

        Raises: InvalidRequest: the table follows a source without a location. NotProven: the table has constraints.
        The errors of :meth:`Committer.register` and :meth:`External.refresh` that do not depend on a file.
        """
        with trusted_manifests():
            source = source_of(self._warehouse.head(table.pointer).properties)
        if source is None:
            answer = self._register(table, events, prefix, suffix)
        else:
            answer = self._refresh(table, source, events, prefix)
        self._metrics.arrived(answer)
        if must_report and (again := [each for each in answer.refused if is_transient(each.code)]):
            text = (
                f"{counted(len(again), 'file')} could not be read, first {again[0].path!r}: "
                f"{again[0].reason}; send it again"
            )
            raise StoreError(text, refused=msgspec.to_builtins(again))
        return answer

    def _register(self, table: TableRecord, events: FileEvents, prefix: str | None, suffix: str) -> ArrivalsAnswer:
        files, others = data_files(events.created, prefix=prefix, suffix=suffix)
        ignored = Counter(events.ignored) + Counter(other_file=others, deleted=len(events.deleted))
        if not files:
            return ArrivalsAnswer(snapshot_id=table.pointer.snapshot_id, changed=False, ignored=dict(ignored))
        try:
            pending = self._committer.register(table, Register(paths=files), _NO_KEY, only_files=True)
            done = _REGISTERED.decode(_waited(pending).body)
        except (DuplicateBlock, BlocksRefused, StoreError) as error:
            if "refused" not in error.details:
                raise
            refused = msgspec.convert(error.details["refused"], tuple[RefusedFile, ...])
            done = RegisterAnswer(snapshot_id="", registered=0, row_count=0, file_size_bytes=0, refused=refused)
        known = [each.path for each in done.refused if each.code == DuplicateBlock.code]
        gone = sum(each.code == ObjectNotFound.code for each in done.refused)
        others_refused = [each for each in done.refused if each.code not in (DuplicateBlock.code, ObjectNotFound.code)]
        duplicates, changed, current = self._compared(table, known)
        return ArrivalsAnswer(
            snapshot_id=done.snapshot_id or current,
            changed=done.registered > 0,
            registered=done.registered,
            row_count=done.row_count,
            file_size_bytes=done.file_size_bytes,
            duplicates=duplicates,
            earlier=len(known) - duplicates - len(changed),
            ignored=dict(ignored + Counter(gone=gone)),
            refused=(*others_refused, *changed),
        )

    def _compared(self, table: TableRecord, locations: Sequence[str]) -> tuple[int, list[RefusedFile], str]:
        """Return how many files the table has as they are now, refusals of those that it has with other contents, and
        the id of its current snapshot. Others were in the table before."""
        pointer = self._catalog.table_by_id(table.table_id).pointer
        with trusted_manifests():
            blocks = self._warehouse.identities_of(pointer, locations) if locations else {}
        changed = self._file_checker.overwritten(blocks.values())
        return len(blocks) - len(changed), changed, pointer.snapshot_id

    def _refresh(
        self, table: TableRecord, source: ExternalSource, events: FileEvents, prefix: str | None
    ) -> ArrivalsAnswer:
        if source.location is None:
            raise InvalidRequest("the table follows a table of a catalog, which has no location that files arrive at")
        below = normal(source.location).rstrip("/") + "/"
        files = [
            each
            for each in dict.fromkeys((*events.created, *events.deleted))
            if each.startswith(below) and (prefix is None or each.startswith(normal(prefix)))
        ]
        others = len(events.created) + len(events.deleted) - len(files)
        ignored = Counter(events.ignored) + Counter(other_file=max(0, others))
        if not files:
            return ArrivalsAnswer(snapshot_id=table.pointer.snapshot_id, changed=False, ignored=dict(ignored))
        done = _REFRESHED.decode(_waited(self._external.refresh(table, RefreshTable(), _NO_KEY)).body)
        named = set(files)
        refused = tuple(each for each in done.refused if each.path in named)
        return ArrivalsAnswer(
            snapshot_id=done.snapshot_id,
            changed=done.changed,
            registered=done.added + done.replaced,
            row_count=None,
            file_size_bytes=None,
            ignored=dict(ignored),
            refused=refused,
        )


def _waited(pending: Pending | StoredResponse) -> StoredResponse:
    return pending.wait() if isinstance(pending, Pending) else pending
