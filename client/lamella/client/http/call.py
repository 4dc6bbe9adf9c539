"""API calls as values: the request and the type of its answer. Nothing here does I/O."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar, cast
from urllib.parse import quote, urlencode

import msgspec

from lamella.snapshot.errors import InvalidRequest
from lamella.snapshot.near_names import near_member
from lamella.snapshot.schema import Column, Schema
from lamella.snapshot.wire.operation import Operation

if TYPE_CHECKING:
    from lamella.client.filters.columns import Condition, Term

Answer = TypeVar("Answer")


class ArrowExpression(Protocol):
    """An expression of pyarrow: ``pyarrow.compute.field("a") > 4``."""

    def to_substrait(self, *args: Any, **options: Any) -> Any:
        """What other libraries have not."""


class PolarsExpression(Protocol):
    """An expression of Polars: ``polars.col("a") > 4``."""

    @property
    def meta(self) -> Any:
        """What other libraries have not."""


#: A filter as requests hold it: SQL text in Spark's dialect, a JSON tree, or None for every row.
PlainFilter = str | bool | Mapping[str, Any] | None
if TYPE_CHECKING:
    #: A filter: the same, or an expression: of :func:`lamella.client.col`, of pyarrow or of Polars.
    Filter = PlainFilter | Condition | Term | ArrowExpression | PolarsExpression
else:
    Filter = Any  # its members are loaded when they are used


class ArrowSchema(Protocol):
    """A schema of pyarrow: ``pyarrow.schema(...)``, or the ``schema`` of a table."""

    @property
    def names(self) -> Any:
        """The names of the columns."""

    @property
    def types(self) -> Any:
        """What other libraries have not."""


#: The columns of a new table: a schema, columns, names with their types (``{"id": "int64"}``), or a schema of pyarrow.
Columns = Schema | Sequence[Column] | Mapping[str, str] | ArrowSchema


def columns_of(given: Columns) -> tuple[Column, ...]:
    """The columns of a new table; raises InvalidSchema for Arrow types that a table cannot have."""
    if isinstance(given, Schema):
        return given.columns
    if isinstance(given, Mapping):
        return tuple(Column(name=name, type=kind) for name, kind in given.items())
    if isinstance(given, Sequence):
        return tuple(given)
    from lamella.client.write.arrow_types import columns_of as columns_of_arrow

    return columns_of_arrow(given)


Struct = TypeVar("Struct", bound=msgspec.Struct)


def struct_of(kind: type[Struct], given: Struct | Mapping[str, Any], what: str) -> Struct:
    """A member of a request that may be given as a dictionary; raises InvalidRequest, which names it ``what``."""
    if isinstance(given, kind):
        return given
    try:
        return msgspec.convert(dict(cast("Mapping[str, Any]", given)), kind)
    except (msgspec.ValidationError, TypeError, ValueError) as error:
        near = near_member(error, kind, given) if isinstance(error, msgspec.ValidationError) else {}
        raise InvalidRequest(f"the {what} is not valid: {error}", **near) from error


class Call(msgspec.Struct, Generic[Answer], frozen=True, kw_only=True):
    """One call of the API. ``answer`` is :class:`Nothing` when the response has no body.

    ``mutates``: the call changes something, so it is sent with an idempotency key, which makes a retry safe.
    ``once``: the call changes something and the service cannot repeat its answer, so it is not retried once it may have
    been carried out; the text tells the caller what to do then. ``min_timeout_s``: wait at least this many seconds
    for the answer.
    """

    method: str
    path: str
    #: The path of the operation, with names in braces.
    template: str
    answer: type[Answer]
    body: bytes = b""
    mutates: bool = False
    once: str | None = None
    min_timeout_s: float | None = None


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
    """A time in its JSON form; raises InvalidRequest for a datetime without a time zone."""
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
    """A call of an operation. ``table`` and ``names`` fill in its path.

    ``query``: members that are None or False are not sent, True is sent as ``true``, and a tuple as one parameter per
    item. ``once``: for an operation that is never retried, what to do when its answer was lost.

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
    """The same call with its answer decoded as a type defined by the client."""
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
    """A value as JSON; raises InvalidRequest when it cannot be written as JSON."""
    try:
        return msgspec.json.encode(body)
    except (TypeError, ValueError, OverflowError) as error:
        raise InvalidRequest(f"the request cannot be written as JSON: {error}") from error


def text_tuple(name: str, values: Sequence[str]) -> tuple[str, ...]:
    """A list of strings as a tuple; raises InvalidRequest for a single string."""
    # A string is also a sequence of strings: passing one is almost certainly a mistake, and hard to find.
    if isinstance(values, str):
        raise InvalidRequest(f"{name} is a list of strings, not one string")
    return tuple(values)
