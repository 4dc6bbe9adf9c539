"""Readers' reports in the catalog's database: for each filter the blocks that held no row for it, within bounds."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from sqlalchemy import Connection, and_, bindparam, delete, func, insert, select, update

from lamella.service.catalog.expiry import LOCK_TABLE
from lamella.service.catalog.port import FeedbackBounds, FeedbackRecord
from lamella.service.catalog.session import SqlSession
from lamella.service.catalog.tables import feedback
from lamella.snapshot.errors import TableNotFound
from lamella.snapshot.manifest.block_key import KEY_BYTES

#: What a row takes beside what it holds, roughly.
_ROW_BYTES: Final = 128

_of_table = feedback.c.table_id == bindparam("id")
_one = and_(_of_table, feedback.c.question == bindparam("asks"))
_SELECT = select(feedback).where(_of_table).order_by(feedback.c.question)
_SELECT_ONE = select(feedback).where(_one)
_INSERT = insert(feedback)
_DELETE_ONE = delete(feedback).where(_one)
_DELETE_ALL = delete(feedback).where(_of_table)
_COUNT = select(func.coalesce(func.sum(feedback.c.block_count), 0)).where(_of_table)
_AGES = (
    select(feedback.c.question, feedback.c.block_count, feedback.c.size_bytes)
    .where(_of_table)
    .order_by(feedback.c.used_at_ms.desc(), feedback.c.question)
)
_TOUCH = (
    update(feedback).where(_one, feedback.c.used_at_ms < bindparam("now_ms")).values(used_at_ms=bindparam("now_ms"))
)


class SqlFeedback(SqlSession):
    """The part of :class:`~lamella.service.catalog.port.Catalog` that knows what readers reported."""

    def feedback(self, table_id: str) -> list[FeedbackRecord]:
        return [FeedbackRecord(**row) for row in self._rows(_SELECT, {"id": table_id})]

    def add_feedback(self, record: FeedbackRecord, bounds: FeedbackBounds) -> int:
        which = {"id": record.table_id, "asks": record.question}
        with self._transaction(None) as connection:
            _lock(connection, record.table_id)
            held = connection.execute(_SELECT_ONE, which).mappings().first()
            before = _keys(b"" if held is None else held["blocks"])
            known = set(before)
            fresh = [key for key in dict.fromkeys(_keys(record.blocks)) if key not in known]
            room = (bounds.most_bytes - _ROW_BYTES - len(record.asked.encode())) // KEY_BYTES
            kept = [*before, *fresh][-min(bounds.most_facts, max(room, 0)) :] if room > 0 else []
            connection.execute(_DELETE_ONE, which)
            if kept:
                row = {
                    "table_id": record.table_id,
                    "question": record.question,
                    "asked": record.asked,
                    "schema_id": record.schema_id,
                    "blocks": b"".join(kept),
                    "block_count": len(kept),
                    "size_bytes": _ROW_BYTES + len(record.asked.encode()) + KEY_BYTES * len(kept),
                    "used_at_ms": record.used_at_ms,
                }
                connection.execute(_INSERT, row)
                _shrink(connection, record.table_id, record.question, bounds)
            return len(fresh)

    def touch_feedback(self, table_id: str, questions: Iterable[str], *, now_ms: int) -> None:
        rows = [{"id": table_id, "asks": question, "now_ms": now_ms} for question in sorted(questions)]
        if rows:
            with self._transaction(None) as connection:
                for row in rows:
                    connection.execute(_TOUCH, row)

    def drop_feedback(self, table_id: str, question: str, blocks: Iterable[bytes]) -> int:
        which = {"id": table_id, "asks": question}
        false = set(blocks)
        with self._transaction(None) as connection:
            _lock(connection, table_id)
            held = connection.execute(_SELECT_ONE, which).mappings().first()
            if held is None:
                return 0
            before = _keys(held["blocks"])
            kept = [key for key in before if key not in false]
            connection.execute(_DELETE_ONE, which)
            if kept:
                size = held["size_bytes"] - KEY_BYTES * (len(before) - len(kept))
                row = {**held, "blocks": b"".join(kept), "block_count": len(kept), "size_bytes": size}
                connection.execute(_INSERT, row)
            return len(before) - len(kept)

    def clear_feedback(self, table_id: str) -> int:
        with self._transaction(None) as connection:
            count = int(connection.execute(_COUNT, {"id": table_id}).scalar_one())
            connection.execute(_DELETE_ALL, {"id": table_id})
        return count


def _lock(connection: Connection, table_id: str) -> None:
    """Two who change the same table's reports at once wait for each other."""
    held = connection.execute(LOCK_TABLE, {"id": table_id}).mappings().first()
    if held is None or held["dropped_at_ms"] is not None:
        raise TableNotFound("the table was dropped", table_id=table_id)


def _shrink(connection: Connection, table_id: str, newest: str, bounds: FeedbackBounds) -> None:
    """Let go of the filters that were not used for longest, until the rest is within bounds."""
    facts = size_bytes = 0
    rows = connection.execute(_AGES, {"id": table_id}).mappings().all()
    for row in sorted(rows, key=lambda row: row["question"] != newest):
        facts += row["block_count"]
        size_bytes += row["size_bytes"]
        if row["question"] != newest and (facts > bounds.most_facts or size_bytes > bounds.most_bytes):
            connection.execute(_DELETE_ONE, {"id": table_id, "asks": row["question"]})
            facts -= row["block_count"]
            size_bytes -= row["size_bytes"]


def _keys(blocks: bytes) -> list[bytes]:
    return [bytes(blocks[at : at + KEY_BYTES]) for at in range(0, len(blocks), KEY_BYTES)]
