"""Changes of several tables that are committed together: those of a block are collected, and sent at its end."""

from __future__ import annotations

from collections.abc import Mapping
from types import TracebackType
from typing import Any, Final, Generic, Protocol, Self, TypeVar
from urllib.parse import unquote

import msgspec

from lamella.client.filters import plain_filter
from lamella.client.http.call import Answer, Call, Filter, TableName, make_call
from lamella.client.http.tables import table_call
from lamella.snapshot.errors import InvalidRequest
from lamella.snapshot.ids import Ids
from lamella.snapshot.wire import (
    CommitAnswer,
    CommitRequest,
    TableCommit,
    TableRead,
    TransactionAnswer,
    TransactionRequest,
    operations,
)

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)
#: What a result of a change in a transaction has as the id of its snapshot.
PENDING: Final = "pending"
#: Calls that change something and are carried out at once: tables have to exist before rows are written to them, and a
#: lease changes no table.
_AT_ONCE: Final = frozenset(
    operation.path
    for operation in (
        operations.tables.CREATE_NAMESPACE,
        operations.tables.CREATE_TABLE,
        operations.maintenance.TAKE_LEASE,
        operations.maintenance.RENEW_LEASE,
        operations.maintenance.RELEASE_LEASE,
    )
)
_COMMITTED: Final = "the transaction has ended: begin another one"


class TransactionLake(Protocol[T_co]):
    """The members of :class:`lamella.client.Lamella` that a transaction uses."""

    def table(self, name: str) -> T_co:
        """The handle of a table."""
        ...

    def run(self, call: Call[Answer], idempotency_key: str | None = None) -> Answer:
        """Carry out a call."""
        ...


class AsyncTransactionLake(Protocol[T_co]):
    """The members of :class:`lamella.client.AsyncLamella` that a transaction uses."""

    def table(self, name: str) -> T_co:
        """The handle of a table."""
        ...

    async def run(self, call: Call[Answer], idempotency_key: str | None = None) -> Answer:
        """Carry out a call."""
        ...


class _Changes:
    """The changes of a transaction that has not been committed."""

    def __init__(self) -> None:
        self._commits: dict[str, CommitRequest] = {}
        self._reads: list[TableRead] = []
        self._call: Call[TransactionAnswer] | None = None
        self.key = Ids().new_text()
        self.is_over = False

    def take(self, call: Call[Answer]) -> Answer | None:
        """Collect a commit; returns a provisional answer. None: another call, which may be carried out."""
        if call.template != operations.commits.COMMIT.path:
            if call.mutates and call.template not in _AT_ONCE:
                raise InvalidRequest(
                    f"{call.method} {call.template} cannot be part of a transaction: call it on the lake itself"
                )
            return None
        if self.is_over:
            raise InvalidRequest(_COMMITTED)
        parts = call.path.split("/")
        name = str(TableName(unquote(parts[3]), unquote(parts[5])))
        if name in self._commits:
            raise InvalidRequest(f"the transaction changes {name} already: make all changes of a table in one call")
        request = msgspec.json.decode(call.body, type=CommitRequest)
        if request.added_from is not msgspec.UNSET:
            raise InvalidRequest(f"the change of {name} has too many blocks for a transaction; write larger blocks")
        self._commits[name] = request
        # The service counts blocks and rows when the transaction is committed.
        provisional = CommitAnswer(
            snapshot_id=PENDING, prev_snapshot_id=None, added=0, removed=0, row_count=0, block_count=0
        )
        return msgspec.convert(provisional, call.answer, from_attributes=True)

    def add_read(self, read: TableRead) -> None:
        """Add what the transaction depends on."""
        if self.is_over:
            raise InvalidRequest(_COMMITTED)
        self._reads.append(read)

    def end(self, *, is_committed: bool) -> Call[TransactionAnswer] | None:
        """Return the call that commits the changes; None: there are none. No change is taken any more.

        The same call again while it is unknown whether they are committed: :attr:`key` makes that safe.
        """
        if is_committed or (self.is_over and self._call is None):
            raise InvalidRequest(_COMMITTED)
        if self._call is not None:
            return self._call
        self.is_over = True
        if not self._commits:
            return None
        named = dict(self._commits)
        if self._reads:
            first, request = next(iter(named.items()))
            own = () if request.reads is msgspec.UNSET else request.reads
            named[first] = msgspec.structs.replace(request, reads=(*own, *self._reads))
        self._call = transaction_call(named)
        return self._call


def transaction_call(changes: Mapping[str, CommitRequest]) -> Call[TransactionAnswer]:
    """Commit to several tables at once; ``changes`` by the tables' names."""
    request = TransactionRequest(tables=tuple(TableCommit(table=name, commit=each) for name, each in changes.items()))
    return make_call(operations.commits.COMMIT_TRANSACTION, body=request)


class Transaction(Generic[T]):
    """Changes of several tables that are committed together; made by :meth:`lamella.client.Lamella.transaction`.

    Changes of the tables of :meth:`table` are committed at the end of the ``with`` block, if it raises no error: all of
    them, or none. A table has one change at most. Until then they are not visible, not even in the block; their results
    have the ``snapshot_id`` "pending". Files that were written for a transaction that fails are removed by vacuum.
    Tables that a write creates are created at once.
    """

    def __init__(self, lake: TransactionLake[T]) -> None:
        self._lake = lake
        self._changes = _Changes()
        self._own: TransactionLake[T] = _collecting(lake, self._changes)
        self._answer: TransactionAnswer | None = None

    def table(self, name: str) -> T:
        """The handle of ``namespace.name``, whose changes are part of the transaction.

        Raises, when something else is changed by it (``register``, ``rollback``, ...): InvalidRequest.

        Example:
            >>> with lake.transaction() as tx:
            ...     appended = tx.table("shop.rates").append({"country": ["US"], "vat": [0]})
            ...     deleted = tx.table("shop.orders").delete("id = 1")
            >>> [each.table for each in tx.answer.tables]
            ['shop.rates', 'shop.orders']
        """
        return self._own.table(name)

    def require_unchanged(
        self, table: str, filter: Filter = None, *, time_zone: str = "UTC", snapshot_id: str | None = None
    ) -> str:
        """Refuse the commit if others change rows of a table for which ``filter`` is true (None: any row).

        Returns the id of the snapshot from which the rows are to be read: the current one, or ``snapshot_id``, for
        example of :meth:`lamella.client.Lamella.current_snapshots`. If others have changed such rows since, when the
        transaction is committed, it ends with TransactionConflict, and nothing is done.

        Example:
            >>> with lake.transaction() as tx:
            ...     at = tx.require_unchanged("shop.orders", "country = 'DE'")
            ...     count = lake.table("shop.orders").scan("country = 'DE'", snapshot_id=at).count()
            ...     appended = tx.table("shop.rates").append({"country": ["DE"], "vat": [count]})
        """
        if snapshot_id is None:
            snapshot_id = self._lake.run(table_call(TableName.parse(table))).snapshot_id
        self._changes.add_read(read_of(table, snapshot_id, filter, time_zone))
        return snapshot_id

    @property
    def answer(self) -> TransactionAnswer:
        """The snapshots of the tables, once the transaction is committed; raises InvalidRequest before."""
        return committed(self._answer)

    def commit(self) -> TransactionAnswer | None:
        """Commit the changes; None: there are none. The end of the ``with`` block does the same.

        After OutcomeUnknown, call it again to find out; the changes are committed once.

        Raises TransactionConflict (all conflicts are named), and the errors of commits.

        Example:
            >>> tx = lake.transaction()
            >>> appended = tx.table("shop.rates").append({"country": ["SE"], "vat": [25]})
            >>> [each.added for each in tx.commit().tables]
            [1]
        """
        call = self._changes.end(is_committed=self._answer is not None)
        if call is not None:
            self._answer = self._lake.run(call, self._changes.key)
        return self._answer

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None and not self._changes.is_over:
            self.commit()


class AsyncTransaction(Generic[T]):
    """:class:`Transaction` for asyncio; made by :meth:`lamella.client.AsyncLamella.transaction`."""

    def __init__(self, lake: AsyncTransactionLake[T]) -> None:
        self._lake = lake
        self._changes = _Changes()
        self._own: AsyncTransactionLake[T] = _collecting_async(lake, self._changes)
        self._answer: TransactionAnswer | None = None

    def table(self, name: str) -> T:
        """The handle of ``namespace.name``, whose changes are part of the transaction; see :meth:`Transaction.table`.

        Example:
            >>> async with lake.transaction() as tx:
            ...     appended = await tx.table("shop.rates").append({"country": ["US"], "vat": [0]})
            ...     deleted = await tx.table("shop.orders").delete("id = 1")
            >>> [each.table for each in tx.answer.tables]
            ['shop.rates', 'shop.orders']
        """
        return self._own.table(name)

    async def require_unchanged(
        self, table: str, filter: Filter = None, *, time_zone: str = "UTC", snapshot_id: str | None = None
    ) -> str:
        """Refuse the commit if others change these rows of a table; see :meth:`Transaction.require_unchanged`.

        Example:
            >>> async with lake.transaction() as tx:
            ...     at = await tx.require_unchanged("shop.orders", "country = 'DE'")
            ...     appended = await tx.table("shop.rates").append({"country": ["DE"], "vat": [19]})
        """
        if snapshot_id is None:
            snapshot_id = (await self._lake.run(table_call(TableName.parse(table)))).snapshot_id
        self._changes.add_read(read_of(table, snapshot_id, filter, time_zone))
        return snapshot_id

    @property
    def answer(self) -> TransactionAnswer:
        """The snapshots of the tables, once the transaction is committed; raises InvalidRequest before."""
        return committed(self._answer)

    async def commit(self) -> TransactionAnswer | None:
        """Commit the changes; None: there are none. See :meth:`Transaction.commit`.

        Example:
            >>> tx = lake.transaction()
            >>> appended = await tx.table("shop.rates").append({"country": ["SE"], "vat": [25]})
            >>> [each.added for each in (await tx.commit()).tables]
            [1]
        """
        call = self._changes.end(is_committed=self._answer is not None)
        if call is not None:
            self._answer = await self._lake.run(call, self._changes.key)
        return self._answer

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None and not self._changes.is_over:
            await self.commit()


def _collecting(lake: Any, changes: _Changes) -> Any:
    """Return a client over the connections of another, which closes them; it collects commits."""
    kind = type(lake)

    def run(self: Any, call: Call[Answer], idempotency_key: str | None = None) -> Answer:
        collected = changes.take(call)
        found: Answer = kind.run(self, call, idempotency_key) if collected is None else collected
        return found

    return _twin(lake, run=run)


def _collecting_async(lake: Any, changes: _Changes) -> Any:
    """Return the same for asyncio, also for what runs in threads."""
    kind = type(lake)

    async def run(self: Any, call: Call[Answer], idempotency_key: str | None = None) -> Answer:
        collected = changes.take(call)
        found: Answer = await kind.run(self, call, idempotency_key) if collected is None else collected
        return found

    return _twin(lake, run=run, _for_threads=lambda self: _collecting(kind._for_threads(self), changes))


def _twin(lake: Any, **methods: Any) -> Any:
    """Return a copy of a client with other methods."""
    kind = type(f"Transaction{type(lake).__name__}", (type(lake),), methods)
    twin: Any = object.__new__(kind)
    twin.__dict__.update(lake.__dict__)
    return twin


def read_of(table: str, snapshot_id: str, filter: Filter, time_zone: str) -> TableRead:
    """Return what a transaction depends on."""
    return TableRead(table=table, snapshot_id=snapshot_id, filter=plain_filter(filter), time_zone=time_zone)


def committed(answer: TransactionAnswer | None) -> TransactionAnswer:
    """Return an answer that is there. Raises InvalidRequest."""
    if answer is None:
        raise InvalidRequest("the transaction has committed nothing")
    return answer
