"""Remembered reports held against the files: a false one is a finding, and is forgotten."""

from __future__ import annotations

import math
from collections.abc import Iterator
from random import Random

import msgspec
import numpy as np

from lamella.service.catalog import FeedbackRecord, StoredJson, TableRecord
from lamella.service.feedback import Asked, Feedback
from lamella.service.state import trusted_manifests
from lamella.snapshot.errors import InvalidRequest, InvalidSchema
from lamella.snapshot.expression import read_filter
from lamella.snapshot.feedback import digest_of
from lamella.snapshot.feedback.recheck import matching_rows
from lamella.snapshot.layout import Store
from lamella.snapshot.manifest import Block, Snapshot, SnapshotPointer
from lamella.snapshot.manifest.block_key import are_among, block_keys, keys_of
from lamella.snapshot.schema.evolution import schema_at
from lamella.snapshot.verify import CHECKS, Deep
from lamella.snapshot.verify.sampling import DEFAULT_BLOCKS, DEFAULT_SHARE
from lamella.snapshot.warehouse import Warehouse
from lamella.snapshot.wire import Finding, VerifyAnswer

_ASKED = StoredJson(Asked, "feedback")
_CODE = "feedback_false"


class FeedbackCheck:
    """Re-reads some pairs of a filter and a block."""

    def __init__(self, feedback: Feedback, warehouse: Warehouse, store: Store) -> None:
        self._feedback = feedback
        self._warehouse = warehouse
        self._store = store

    def added_to(self, answer: VerifyAnswer, table: TableRecord, pointer: SnapshotPointer, deep: Deep) -> VerifyAnswer:
        """The answer with what was found of as many pairs as a deep verification reads blocks.

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
        """Some of the pairs whose blocks are in the snapshot, drawn by the seed."""
        total = sum(record.block_count for record in records)
        wanted = max(DEFAULT_BLOCKS, math.ceil(DEFAULT_SHARE * total))
        if deep.blocks is not None:
            wanted = deep.blocks
        elif deep.sample is not None:
            wanted = math.ceil(deep.sample * total)
        rng = Random(deep.seed)  # noqa: S311  # a sample that can be drawn again, no secret
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
        """How many rows match what was asked; None: that cannot be told."""
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
