"""API calls as values: what is requested, and the type of the answer. Nothing here does I/O."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from typing import Any, Generic, TypeVar
from urllib.parse import quote, urlencode

import msgspec

from lamella.snapshot.errors import InvalidRequest
from lamella.snapshot.wire.operation import Operation

Answer = TypeVar("Answer")


#: A filter: SQL text in Spark's dialect, a JSON tree, or None for every row.
Filter = str | bool | Mapping[str, Any] | None


class Call(msgspec.Struct, Generic[Answer], frozen=True, kw_only=True):
    """One call of the API. ``answer`` :class:`Nothing`: the service answers without a body.

    ``mutates``: it changes something, so it is sent with an idempotency key, which makes a second try safe.
    ``once``: it changes something, and the service can give its answer no second time, so it is not tried again once
    it may have been carried out; what to do then. ``patience_s``: how long the answer may take at least before it is
    given up.
    """

    method: str
    path: str
    #: The path of the operation, with names in braces.
    template: str
    answer: type[Answer]
    body: bytes = b""
    mutates: bool = False
    once: str | None = None
    patience_s: float | None = None


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


def timestamp_of(timestamp: int | str | dt.datetime | None) -> int | str | None:
    """A time as it travels; raises InvalidRequest for a datetime without a zone."""
    if not isinstance(timestamp, dt.datetime):
        return timestamp
    if timestamp.tzinfo is None:
        raise InvalidRequest("a datetime without a time zone does not name an instant")
    return timestamp.isoformat()


def make_call(
    operation: Operation[Answer],
    table: TableName | None = None,
    /,
    *,
    body: msgspec.Struct | None = None,
    query: Mapping[str, object] | None = None,
    once: str | None = None,
    **names: str,
) -> Call[Answer]:
    """A call of an operation. ``table`` and ``names`` fill its path.

    ``query``: members that are None or False are not sent, True is sent as ``true``, and each of a tuple by itself.
    ``once``: for an operation that is never sent again, what to do when its answer was lost.

    Raises InvalidRequest when a name is empty, or the body cannot be written as JSON.
    """
    if table is not None:
        names.update(namespace=table.namespace, table=table.table)
    path = operation.path.format_map({name: _path_part(name, value) for name, value in names.items()})
    text = "" if query is None else _query_text(query)
    return Call(
        method=operation.method,
        path=f"{path}?{text}" if text else path,
        template=operation.path,
        answer=operation.answer_type,
        body=b"" if body is None else encode_json(body),
        mutates=operation.resend in ("with_key", "reported"),
        once=once,
    )


def decode_as(answer: type[Answer], call: Call[Any]) -> Call[Answer]:
    """The same call, whose answer is decoded as a type of the client's own."""
    replaced: Call[Answer] = msgspec.structs.replace(call, answer=answer)
    return replaced


def _query_text(query: Mapping[str, object]) -> str:
    given = {name: value for name, value in query.items() if value is not None and value is not False}
    return urlencode({name: "true" if value is True else value for name, value in given.items()}, doseq=True)


def _path_part(name: str, value: str) -> str:
    if not value:
        thing = name.removesuffix("_id").replace("_", " ")
        raise InvalidRequest(f"the {'id' if name.endswith('_id') else 'name'} of the {thing} is empty")
    return quote(value, safe="")


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
