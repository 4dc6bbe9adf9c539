"""Answers that are kept to be replayed."""

from __future__ import annotations

from typing import Final

from sqlalchemy import bindparam, delete, select, tuple_

from lamella.service.catalog import statements as sql
from lamella.service.catalog.port import StoredAnswer
from lamella.service.catalog.session import SqlSession
from lamella.service.catalog.tables import idempotency

_OLDEST: Final = (
    select(idempotency.c.key, idempotency.c.scope)
    .where(idempotency.c.created_at_ms < bindparam("before_ms"))
    .order_by(idempotency.c.created_at_ms)
    .limit(bindparam("rows"))
)
_DELETE_OLDEST: Final = delete(idempotency).where(tuple_(idempotency.c.key, idempotency.c.scope).in_(_OLDEST))


class SqlAnswers(SqlSession):
    """The part of :class:`~lamella.service.catalog.port.Catalog` that keeps answers."""

    def answer(self, key: str, scope: str) -> StoredAnswer | None:
        for row in self._rows(sql.SELECT_ANSWER, {"wanted_key": key, "wanted_scope": scope}):
            return StoredAnswer(**row)
        return None

    def keep_answer(self, answer: StoredAnswer) -> None:
        with self._transaction(answer):
            pass  # the answer is all there is to store

    def forget_answers(self, *, before_ms: int, limit: int = 1000) -> int:
        with self._transaction(None) as connection:
            return connection.execute(_DELETE_OLDEST, {"before_ms": before_ms, "rows": limit}).rowcount
