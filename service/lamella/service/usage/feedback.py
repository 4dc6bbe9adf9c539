"""Readers' reports of empty blocks: stored in the catalog within limits, used by prunes, checked against the files.

Off unless it is enabled for the service and the table. Without it, only the table's properties are checked; otherwise
the stored reports are read at the first prune, in its thread, and again when they are older than a few seconds.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterator, Sequence
from random import Random
from typing import Any, Final

import msgspec
import numpy as np

from lamella.service.catalog import Catalog, FeedbackBounds, FeedbackRecord, StoredJson, TableRecord
from lamella.service.config.settings import Settings
from lamella.service.history.history import History, trusted_manifests
from lamella.snapshot.cache import CacheNamespace
from lamella.snapshot.errors import InvalidRequest, InvalidSchema, LimitExceeded, Unavailable
from lamella.snapshot.expression import bind, read_filter
from lamella.snapshot.manifest import Block, Snapshot, SnapshotPointer
from lamella.snapshot.manifest.block_key import KEY_BYTES, BlockKeys, are_among, block_keys, bytes_of, keys_of
from lamella.snapshot.reader_feedback import ENABLED, Facts, digest_of, is_enabled
from lamella.snapshot.schema.evolution import schema_at
from lamella.snapshot.storage import Store, normal
from lamella.snapshot.verify import CHECKS, Deep
from lamella.snapshot.verify.files import matching_rows
from lamella.snapshot.verify.reading import DEFAULT_BLOCKS, DEFAULT_SHARE
from lamella.snapshot.warehouse import Warehouse
from lamella.snapshot.wire import FeedbackAnswer, FeedbackCleared, FeedbackInfo, FeedbackRequest, Finding, VerifyAnswer

#: Maximum number of blocks in one report.
MAX_LOCATIONS: Final = 10_000
#: Seconds until changes by other processes are noticed.
FRESH_S: Final = 5.0


class FeedbackQuery(msgspec.Struct, frozen=True, kw_only=True):
    """A filter as it was reported, so that the report can be checked later."""

    filter: Any
    time_zone: str
    case_sensitive: bool


class _Held(msgspec.Struct, frozen=True):
    facts: Facts
    at_s: float


_FORGOTTEN: Final = _Held(Facts({}), float("-inf"))


class Feedback:
    """:class:`~lamella.snapshot.reader_feedback.FeedbackSource` over the catalog; ``timer`` returns seconds."""

    def __init__(
        self,
        catalog: Catalog,
        warehouse: Warehouse,
        history: History,
        clock: Callable[[], int],
        timer: Callable[[], float],
        settings: Settings,
    ) -> None:
        self._catalog = catalog
        self._warehouse = warehouse
        self._history = history
        self._clock = clock
        self._timer = timer
        self._on = settings.feedback
        self._bounds = FeedbackBounds(max_facts=settings.feedback_facts, max_bytes=settings.feedback_bytes)
        self._lock = threading.Lock()
        self._held: CacheNamespace[_Held] = CacheNamespace(warehouse.resident, "feedback")
        self._used: dict[str, set[bytes]] = {}
        self._changes = 0

    def report(self, table: TableRecord, request: FeedbackRequest) -> FeedbackAnswer:
        """Store a reader's report.

        Raises:
            InvalidRequest: feedback is off, the filter is constant, readers cannot evaluate it exactly, or a location
            is not a block of the snapshot.
            InvalidFilter, UnknownColumn, FilterTypeMismatch, LimitExceeded: the filter, or too many locations.
            SnapshotNotFound: no such snapshot in the history.
        """
        if len(request.empty) > MAX_LOCATIONS:
            raise LimitExceeded(
                f"a report names at most {MAX_LOCATIONS} blocks, not {len(request.empty)}",
                limit="empty",
                most=MAX_LOCATIONS,
            )
        pointer = self._history.pointer(table, snapshot_id=request.snapshot_id)
        self._require_on(table)
        with trusted_manifests():
            schema = self._warehouse.head(pointer).schema
        predicate = read_filter(request.filter, time_zone=request.time_zone)
        bind(predicate, schema, time_zone=request.time_zone, case_sensitive=request.case_sensitive)
        digest = digest_of(predicate, schema, time_zone=request.time_zone, case_sensitive=request.case_sensitive)
        if digest is None:
            raise InvalidRequest("the filter is constant, or has a part that no reader decides exactly")
        places = list(dict.fromkeys(normal(location) for location in request.empty))
        with trusted_manifests():
            found = self._warehouse.identities_of(pointer, places)
        missing = [place for place in places if place not in found]
        if missing:
            raise InvalidRequest(
                f"{len(missing)} locations are no blocks of the snapshot, first {missing[0]!r}", blocks=missing[:100]
            )
        asked = FeedbackQuery(filter=request.filter, time_zone=request.time_zone, case_sensitive=request.case_sensitive)
        if not places:
            return FeedbackAnswer(remembered=0, known_before=0)
        record = FeedbackRecord(
            table_id=table.table_id,
            question=digest.hex(),
            asked=msgspec.json.encode(asked).decode(),
            schema_id=schema.schema_id,
            blocks=bytes_of(block_keys(found[place] for place in places)),
            block_count=len(places),
            size_bytes=0,
            used_at_ms=self._clock(),
        )
        fresh = self._catalog.add_feedback(record, self._bounds)
        self._forget(table.table_id)
        return FeedbackAnswer(remembered=fresh, known_before=len(places) - fresh)

    def info(self, table: TableRecord) -> FeedbackInfo:
        """Return the amount of feedback stored for a table."""
        records = self._catalog.feedback(table.table_id)
        with trusted_manifests():
            enabled = self._on and is_enabled(self._warehouse.head(table.pointer).properties)
        return FeedbackInfo(
            enabled=enabled,
            filters=len(records),
            facts=sum(record.block_count for record in records),
            size_bytes=sum(record.size_bytes for record in records),
            max_facts=self._bounds.max_facts,
            max_bytes=self._bounds.max_bytes,
        )

    def clear(self, table: TableRecord) -> FeedbackCleared:
        """Delete all feedback of a table; other processes stop using it within a few seconds."""
        count = self._catalog.clear_feedback(table.table_id)
        self._forget(table.table_id)
        return FeedbackCleared(facts=count)

    def drop(self, table_id: str, question: str, blocks: BlockKeys) -> int:
        """Delete facts that turned out to be false; returns how many were deleted."""
        raw = bytes_of(blocks)
        false = [raw[at : at + KEY_BYTES] for at in range(0, len(raw), KEY_BYTES)]
        dropped = self._catalog.drop_feedback(table_id, question, false)
        self._forget(table_id)
        return dropped

    def records(self, table_id: str) -> list[FeedbackRecord]:
        """Return the stored feedback by filter."""
        return self._catalog.feedback(table_id)

    def is_near(self, head: Snapshot) -> bool:
        if not self._on or not is_enabled(head.properties):
            return True
        return self._fresh(head.table_id) is not None

    def facts(self, head: Snapshot) -> Facts | None:
        if not self._on or not is_enabled(head.properties):
            return None
        held = self._fresh(head.table_id)
        if held is not None:
            return held
        try:
            return self._load(head.table_id)
        except Unavailable:
            return None  # feedback is optional, so a failure is ignored

    def used(self, head: Snapshot, digests: Sequence[bytes]) -> None:
        with self._lock:
            self._used.setdefault(head.table_id, set()).update(digests)

    def _fresh(self, table_id: str) -> Facts | None:
        held = self._held.get(table_id)
        return held.facts if held is not None and self._timer() - held.at_s < FRESH_S else None

    def _load(self, table_id: str) -> Facts:
        with self._lock:
            used, changes = self._used.pop(table_id, set()), self._changes
        self._catalog.touch_feedback(table_id, [digest.hex() for digest in used], now_ms=self._clock())
        at_s = self._timer()
        records = self._catalog.feedback(table_id)
        facts = Facts({bytes.fromhex(record.question): keys_of(record.blocks) for record in records})
        with self._lock:
            if changes == self._changes:  # otherwise this may be from before a change made by this process
                self._held.put(table_id, _Held(facts, at_s), facts.size_bytes)
        return facts

    def _forget(self, table_id: str) -> None:
        with self._lock:
            self._changes += 1
            self._held.put(table_id, _FORGOTTEN, 0)

    def _require_on(self, table: TableRecord) -> None:
        if not self._on:
            raise InvalidRequest("the service takes no feedback: its setting feedback is off")
        with trusted_manifests():
            if not is_enabled(self._warehouse.head(table.pointer).properties):
                raise InvalidRequest(f"the table takes no feedback: its property {ENABLED} is not true")


_ASKED = StoredJson(FeedbackQuery, "feedback")
_CODE = "feedback_false"


class FeedbackCheck:
    """Re-reads some pairs of a filter and a block."""

    def __init__(self, feedback: Feedback, warehouse: Warehouse, store: Store) -> None:
        self._feedback = feedback
        self._warehouse = warehouse
        self._store = store

    def added_to(self, answer: VerifyAnswer, table: TableRecord, pointer: SnapshotPointer, deep: Deep) -> VerifyAnswer:
        """Return the answer with findings for as many pairs as a deep verification reads blocks.

        Raises StoreError: storage failed.
        """
        records = self._feedback.records(table.table_id)
        if not records:
            return answer
        with trusted_manifests():
            head = self._warehouse.head(pointer)
            pairs = list(self._pairs(records, pointer, deep))
        findings = []
        read = 0
        for record, block in pairs:
            found = self._matching(record, block, head)
            read += found is not None
            if found:
                self._feedback.drop(table.table_id, record.question, block_keys([block]))
                findings.append(_finding(record, block, found))
        checked = msgspec.structs.replace(answer.checked, feedback=answer.checked.feedback + read)
        counts = {**answer.counts, **({_CODE: len(findings)} if findings else {})}
        return msgspec.structs.replace(answer, findings=(*answer.findings, *findings), counts=counts, checked=checked)

    def _pairs(
        self, records: list[FeedbackRecord], pointer: SnapshotPointer, deep: Deep
    ) -> Iterator[tuple[FeedbackRecord, Block]]:
        """A sample, drawn with the seed, of the pairs whose blocks are in the snapshot."""
        total = sum(record.block_count for record in records)
        wanted = max(DEFAULT_BLOCKS, math.ceil(DEFAULT_SHARE * total))
        if deep.blocks is not None:
            wanted = deep.blocks
        elif deep.sample is not None:
            wanted = math.ceil(deep.sample * total)
        rng = Random(deep.seed)  # noqa: S311  # a reproducible sample, not a secret
        chosen = np.array(sorted(rng.sample(range(total), min(wanted, total))), dtype=np.int64)
        starts = np.cumsum([0, *(record.block_count for record in records)])
        picked = [
            (record, keys_of(record.blocks)[chosen[(chosen >= first) & (chosen < stop)] - first])
            for record, first, stop in zip(records, starts[:-1], starts[1:], strict=True)
        ]
        for ref in self._warehouse.segments(pointer):
            keys = self._warehouse.block_keys(ref)
            for record, some in picked:
                rows = are_among(keys, some).nonzero()[0] if len(some) else ()
                if len(rows):
                    blocks = self._warehouse.segment(ref).blocks
                    yield from ((record, blocks[int(row)]) for row in rows)

    def _matching(self, record: FeedbackRecord, block: Block, head: Snapshot) -> int | None:
        """The number of rows that match the filter; None: it cannot be determined."""
        try:
            asked = _ASKED.decode(record.asked)
            schema = schema_at(head, record.schema_id)
            written = schema_at(head, block.written_with)
            predicate = read_filter(asked.filter, time_zone=asked.time_zone)
        except (msgspec.DecodeError, InvalidSchema, InvalidRequest):
            return None
        zone, case = asked.time_zone, asked.case_sensitive
        digest = digest_of(predicate, schema, time_zone=zone, case_sensitive=case)
        if digest is None or digest.hex() != record.question:
            return None
        return matching_rows(self._store, block, predicate, written, schema, time_zone=zone, case_sensitive=case)


def _finding(record: FeedbackRecord, block: Block, rows: int) -> Finding:
    check = CHECKS[_CODE]
    return Finding(
        code=_CODE,
        severity=check.severity,
        object=block.location,
        message=f"{rows} rows match {record.asked}, for which the block was reported to be empty",
        advice=check.advice,
        block=block.location,
        repaired=True,
    )
