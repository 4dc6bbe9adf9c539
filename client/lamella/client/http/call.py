"""API calls as values: what is asked, and the type of what comes back. Nothing here does I/O."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, Generic, TypeVar
from urllib.parse import quote, urlencode

import msgspec

from lamella.client.http.aggregated import Aggregated
from lamella.client.http.pruned import Pruned, PrunedBatch
from lamella.client.http.stages import NO_STAGES, Stages
from lamella.snapshot import wire
from lamella.snapshot.errors import InvalidRequest
from lamella.snapshot.manifest import Block, ClusterKind, Segment, Snapshot
from lamella.snapshot.schema import Column, Schema
from lamella.snapshot.schema.evolution import SchemaChange

Answer = TypeVar("Answer")

#: How long a commit may take whose blocks come in lists, and so much longer for each of them.
_LISTED_S: Final = 60.0
_LISTED_BLOCK_S: Final = 0.02

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


def config() -> Call[wire.ServiceConfig]:
    """The service's version and limits."""
    return Call(method="GET", path="/v1/config", answer=wire.ServiceConfig)


def namespaces() -> Call[wire.NamespaceList]:
    """List the namespaces."""
    return Call(method="GET", path="/v1/namespaces", answer=wire.NamespaceList)


def create_namespace(name: str, properties: Mapping[str, str]) -> Call[wire.NamespaceInfo]:
    """Make a namespace."""
    body = wire.CreateNamespace(name=name, properties=dict(properties))
    return mutation("POST", "/v1/namespaces", wire.NamespaceInfo, body)


def change_namespace(name: str, set: Mapping[str, str], remove: Sequence[str]) -> Call[wire.NamespaceInfo]:
    """Set and remove properties of a namespace."""
    body = wire.NamespaceChange(set=dict(set), remove=texts("remove", remove))
    return mutation("POST", f"{namespace_path(name)}/properties", wire.NamespaceInfo, body)


def namespace_quota(name: str) -> Call[wire.NamespaceQuota]:
    """How much there is in a namespace, and may be."""
    return Call(method="GET", path=f"{namespace_path(name)}/quota", answer=wire.NamespaceQuota)


def drop_namespace(name: str) -> Call[Nothing]:
    """Drop an empty namespace."""
    return mutation("DELETE", namespace_path(name), Nothing)


def tables(namespace: str) -> Call[wire.TableList]:
    """List the tables of a namespace."""
    return Call(method="GET", path=f"{namespace_path(namespace)}/tables", answer=wire.TableList)


def create_table(
    name: TableName,
    schema: Schema | Sequence[Column] | None,
    schema_from: str | None,
    cluster_key: Sequence[str],
    properties: Mapping[str, str],
    cluster_kind: ClusterKind = "linear",
) -> Call[wire.TableInfo]:
    """Make a table with its first, empty snapshot."""
    if (schema is None) == (schema_from is None):
        raise InvalidRequest("give exactly one of schema and schema_from")
    columns = schema.columns if isinstance(schema, Schema) else schema
    body = wire.CreateTable(
        name=name.table,
        schema=None if columns is None else tuple(columns),
        schema_from=schema_from,
        cluster_key=texts("cluster_key", cluster_key),
        properties=dict(properties),
        cluster_kind=msgspec.UNSET if cluster_kind == "linear" else cluster_kind,
    )
    return mutation("POST", f"{namespace_path(name.namespace)}/tables", wire.TableInfo, body)


def table(name: TableName) -> Call[wire.TableInfo]:
    """A table as it stands."""
    return Call(method="GET", path=name.path, answer=wire.TableInfo)


def register(
    name: TableName,
    paths: Sequence[str],
    *,
    strict: bool,
    verify: bool,
    path_columns: wire.PathColumns,
    other_formats: wire.OtherFormats,
    take_replaced: bool,
) -> Call[wire.RegisterAnswer]:
    """Append Parquet files that exist."""
    # Members that are as they would be anyway are not sent: services of earlier releases do not know them.
    body = wire.Register(
        paths=texts("paths", paths),
        strict=strict,
        verify=verify,
        path_columns=msgspec.UNSET if path_columns == "refuse" else path_columns,
        other_formats=msgspec.UNSET if other_formats == "refuse" else other_formats,
        take_replaced=take_replaced or msgspec.UNSET,
    )
    return mutation("POST", f"{name.path}/register", wire.RegisterAnswer, body)


def commit(
    name: TableName,
    added: Iterable[Block | Mapping[str, Any] | msgspec.Raw],
    removed: Sequence[str],
    base_snapshot_id: str | None,
    operation: str,
    properties: Mapping[str, str],
    index_parts: Sequence[wire.IndexPartsSent] = (),
    no_new_matches: wire.NoNewMatches | None = None,
    added_from: Sequence[wire.BlockListSent] = (),
    take_replaced: bool = False,
) -> Call[wire.CommitAnswer]:
    """Add and remove blocks in one new snapshot."""
    body = wire.CommitRequest(
        added=tuple(msgspec.Raw(msgspec.json.encode(block)) for block in added),
        removed=texts("removed", removed),
        base_snapshot_id=base_snapshot_id,
        operation=operation,
        properties=dict(properties),
        added_from=tuple(added_from) or msgspec.UNSET,
        index_parts=tuple(index_parts) or msgspec.UNSET,
        no_new_matches=msgspec.UNSET if no_new_matches is None else no_new_matches,
        take_replaced=take_replaced or msgspec.UNSET,
    )
    call = mutation("POST", f"{name.path}/commits", wire.CommitAnswer, body)
    if not added_from:
        return call
    patience_s = _LISTED_S + _LISTED_BLOCK_S * sum(each.block_count for each in added_from)
    return msgspec.structs.replace(call, patience_s=patience_s)


def schema(name: TableName) -> Call[wire.SchemaInfo]:
    """A table's columns, now and before."""
    return Call(method="GET", path=f"{name.path}/schema", answer=wire.SchemaInfo)


def evolve(name: TableName, changes: Sequence[SchemaChange], base_schema_id: int | None) -> Call[wire.SchemaInfo]:
    """Change a table's columns."""
    body = wire.EvolveRequest(changes=tuple(changes), base_schema_id=base_schema_id)
    return mutation("POST", f"{name.path}/schema", wire.SchemaInfo, body)


def snapshot(name: TableName, snapshot_id: str) -> Call[Snapshot]:
    """A snapshot's manifest."""
    return Call(method="GET", path=f"{name.path}/snapshots/{_id(snapshot_id)}", answer=Snapshot)


def segment(name: TableName, segment_id: str, snapshot_id: str | None) -> Call[Segment]:
    """A segment's manifest; ``snapshot_id`` None: a segment of the current snapshot."""
    query = "" if snapshot_id is None else f"?{urlencode({'snapshot_id': snapshot_id})}"
    return Call(method="GET", path=f"{name.path}/segments/{_id(segment_id)}{query}", answer=Segment)


def prune(
    name: TableName,
    filter: Filter,
    columns: Sequence[str] | None,
    snapshot_id: str | None,
    timestamp: int | str | dt.datetime | None,
    time_zone: str,
    case_sensitive: bool,
    level: wire.Level,
    shape: wire.Shape,
    explain: bool,
    reader_columns: Sequence[str],
    behind: Stages = NO_STAGES,
) -> Call[Pruned]:
    """The blocks (or segments) that a filter leaves."""
    body = wire.PruneRequest(
        filter=filter,
        columns=None if columns is None else texts("columns", columns),
        snapshot_id=snapshot_id,
        timestamp=timestamp_of(timestamp),
        time_zone=time_zone,
        case_sensitive=case_sensitive,
        level=level,
        shape=shape,
        explain=explain,
        reader_columns=texts("reader_columns", reader_columns),
        **msgspec.structs.asdict(behind),
    )
    return Call(method="POST", path=f"{name.path}/prune", answer=Pruned, body=encoded(body))


def prune_batch(name: TableName, body: wire.BatchRequest) -> Call[PrunedBatch]:
    """The blocks that each of many filters leaves."""
    return Call(method="POST", path=f"{name.path}/prune/batch", answer=PrunedBatch, body=encoded(body))


def diff(name: TableName, body: wire.DiffRequest) -> Call[wire.DiffAnswer]:
    """The blocks that came and went between two snapshots."""
    return Call(method="POST", path=f"{name.path}/diff", answer=wire.DiffAnswer, body=encoded(body))


def aggregate(
    name: TableName,
    aggregates: Sequence[str],
    filter: Filter,
    group_by: Sequence[str],
    mode: wire.AggregateMode,
    snapshot_id: str | None,
    timestamp: int | str | dt.datetime | None,
    time_zone: str,
    case_sensitive: bool,
) -> Call[Aggregated]:
    """Counts, least and greatest values from statistics."""
    body = wire.AggregateRequest(
        aggregates=texts("aggregates", aggregates),
        group_by=texts("group_by", group_by),
        filter=filter,
        mode=mode,
        snapshot_id=snapshot_id,
        timestamp=timestamp_of(timestamp),
        time_zone=time_zone,
        case_sensitive=case_sensitive,
    )
    return Call(method="POST", path=f"{name.path}/aggregate", answer=Aggregated, body=encoded(body))


def timestamp_of(timestamp: int | str | dt.datetime | None) -> int | str | None:
    """A time as it travels; raises InvalidRequest for a datetime without a zone."""
    if not isinstance(timestamp, dt.datetime):
        return timestamp
    if timestamp.tzinfo is None:
        raise InvalidRequest("a datetime without a time zone does not name an instant")
    return timestamp.isoformat()


def mutation(method: str, path: str, answer: type[Answer], body: msgspec.Struct | None = None) -> Call[Answer]:
    """A call that changes something."""
    data = b"" if body is None else encoded(body)
    return Call(method=method, path=path, answer=answer, body=data, mutates=True)


def encoded(body: object) -> bytes:
    """A value as JSON; raises InvalidRequest when it cannot be written so."""
    try:
        return msgspec.json.encode(body)
    except (TypeError, ValueError, OverflowError) as error:
        raise InvalidRequest(f"the request cannot be written as JSON: {error}") from error


def _id(text: str) -> str:
    if not text:
        raise InvalidRequest("an id is empty")
    return quote(text, safe="")


def texts(name: str, values: Sequence[str]) -> tuple[str, ...]:
    """A list of strings; raises InvalidRequest for one string."""
    # A lone string is a sequence of one-letter strings: almost certainly a mistake, and costly to find.
    if isinstance(values, str):
        raise InvalidRequest(f"{name} is a list of strings, not one string")
    return tuple(values)
