"""API calls as values: what is requested, and the type of the answer. Nothing here does I/O."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from typing import Any, Generic, Protocol, TypeVar
from urllib.parse import quote

import msgspec

from lamella.snapshot.errors import InvalidRequest

Answer = TypeVar("Answer")


#: A filter: SQL text in Spark's dialect, a JSON tree, or None for every row.
Filter = str | bool | Mapping[str, Any] | None


class Call(msgspec.Struct, Generic[Answer], frozen=True, kw_only=True):
    """One call of the API. ``answer`` None: the service answers without a body.

    ``mutates``: it changes something, so it is sent with an idempotency key, which makes a second try safe.
    ``once``: it changes something, and the service can give its answer no second time, so it is not tried again once
    it may have been carried out; what to do then. ``patience_s``: how long the answer may take at least before it is
    given up.
    """

    method: str
    path: str
    answer: type[Answer]
    body: bytes = b""
    mutates: bool = False
    once: str | None = None
    patience_s: float | None = None


class Nothing(msgspec.Struct, frozen=True):
    """The answer of a call that has none."""


class TableName(msgspec.Struct, frozen=True):
    """A table's name in two parts. A namespace may hold dots; a table may not."""

    namespace: str
    table: str

    def __str__(self) -> str:
        return f"{self.namespace}.{self.table}"

    @classmethod
    def parse(cls, text: str) -> TableName:
        """``a.b.t`` is table ``t`` in namespace ``a.b``; raises :class:`InvalidRequest`."""
        namespace, dot, table = text.rpartition(".")
        if not (namespace and dot and table):
            raise InvalidRequest(f"{text!r} does not name a table; write namespace.table", table=text)
        return cls(namespace, table)

    @property
    def path(self) -> str:
        """The table's path in the API."""
        return f"{namespace_path(self.namespace)}/tables/{quote(self.table, safe='')}"


def namespace_path(name: str) -> str:
    """A namespace's path in the API; raises InvalidRequest for an empty name."""
    if not name:
        raise InvalidRequest("the name of a namespace is empty")
    return f"/v1/namespaces/{quote(name, safe='')}"


def timestamp_of(timestamp: int | str | dt.datetime | None) -> int | str | None:
    """A time as it travels; raises InvalidRequest for a datetime without a zone."""
    if not isinstance(timestamp, dt.datetime):
        return timestamp
    if timestamp.tzinfo is None:
        raise InvalidRequest("a datetime without a time zone does not name an instant")
    return timestamp.isoformat()


def mutation(method: str, path: str, answer: type[Answer], body: msgspec.Struct | None = None) -> Call[Answer]:
    """A call that changes something."""
    data = b"" if body is None else encode_json(body)
    return Call(method=method, path=path, answer=answer, body=data, mutates=True)


def encode_json(body: object) -> bytes:
    """A value as JSON; raises InvalidRequest when it cannot be written so."""
    try:
        return msgspec.json.encode(body)
    except (TypeError, ValueError, OverflowError) as error:
        raise InvalidRequest(f"the request cannot be written as JSON: {error}") from error


def text_tuple(name: str, values: Sequence[str]) -> tuple[str, ...]:
    """A list of strings; raises InvalidRequest for one string."""
    # A lone string is a sequence of one-letter strings: almost certainly a mistake, and costly to find.
    if isinstance(values, str):
        raise InvalidRequest(f"{name} is a list of strings, not one string")
    return tuple(values)


class CallRunner(Protocol):
    """:class:`lamella.client.Lamella`, as far as its parts need it."""

    @property
    def url(self) -> str:
        """The service's base URL."""
        ...

    def run(self, call: Call[Answer], idempotency_key: str | None = None) -> Answer:
        """Carry out a call."""
        ...


class AsyncCallRunner(Protocol):
    """The asyncio twin of :class:`CallRunner`."""

    async def run(self, call: Call[Answer], idempotency_key: str | None = None) -> Answer:
        """Carry out a call."""
        ...
