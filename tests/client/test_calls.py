"""Each method sends the request that the API describes and gives back the wire's type."""

from __future__ import annotations

import datetime as dt
import inspect
import json
from collections.abc import Callable
from typing import Any

import msgspec
import pyarrow as pa
import pytest

from lamella.client.http import AsyncLamella, AsyncTable, Lamella, PruneResult, Table
from lamella.client.http.call import TableName
from lamella.client.http.fake_transport import FakeTransport, json_response
from lamella.client.http.jobs import put_policy_call, put_schedule_call
from lamella.client.http.prune_request import read_order
from lamella.client.http.tables import create_table_call
from lamella.client.http.transport import HttpRequest, HttpResponse
from lamella.snapshot import wire
from lamella.snapshot.errors import InvalidRequest, InvalidSchema
from lamella.snapshot.manifest import Block, Segment, Snapshot, Summary
from lamella.snapshot.schema import Column, Schema
from support.both_clients import ClientFor

SCHEMA = Schema.assign([Column(name="a", type="int64")])
INFO = wire.TableInfo(
    namespace="db", name="t", table_id="x", location="memory://w/x", snapshot_id="s", timestamp_ms=1, schema=SCHEMA
)
REPORT = wire.Report(stages=(), blocks_total=3, rows_total=30, bytes_total=300)
COLUMNS = wire.BlockColumns(
    location=["memory://1", "memory://2"], row_count=[10, 20], file_size=[100, 200], verdict=["ALL", "SOME"]
)
SNAPSHOT = Snapshot(
    format_version=1,
    snapshot_id="s",
    table_id="x",
    timestamp_ms=1,
    timestamp="1970-01-01T00:00:00.001Z",
    prev_snapshot_id=None,
    schema=SCHEMA,
    summary=Summary(),
    segments=(),
)
SEGMENT = Segment(format_version=1, segment_id="g", summary=Summary(), blocks=())
PRUNED = wire.PruneAnswer(snapshot_id="s", timestamp_ms=1, report=REPORT, block_columns=COLUMNS)
REGISTERED = wire.RegisterAnswer(snapshot_id="s", registered=1, row_count=2, file_size_bytes=3)
COMMITTED = wire.CommitAnswer(snapshot_id="s2", prev_snapshot_id="s", added=1, removed=0, row_count=2, block_count=1)

DIFF = wire.DiffAnswer(
    from_snapshot_id="s",
    to_snapshot_id="t",
    added=(),
    removed=(),
    unchanged_blocks=3,
    segments_skipped=1,
    segments_read=0,
)
CALLS: list[tuple[str, Callable[[Any], Any], str, str, Any, Any, Any]] = [
    (
        "namespaces",
        lambda lake: lake.namespaces(),
        "GET",
        "/v1/namespaces",
        None,
        wire.NamespaceList(namespaces=(wire.NamespaceInfo(name="db"),)),
        (wire.NamespaceInfo(name="db"),),
    ),
    (
        "create_namespace",
        lambda lake: lake.create_namespace("db", {"owner": "me"}),
        "POST",
        "/v1/namespaces",
        {"name": "db", "properties": {"owner": "me"}},
        wire.NamespaceInfo(name="db"),
        wire.NamespaceInfo(name="db"),
    ),
    (
        "drop_namespace",
        lambda lake: lake.drop_namespace("a/b c"),
        "DELETE",
        "/v1/namespaces/a%2Fb%20c",
        None,
        None,
        None,
    ),
    (
        "tables",
        lambda lake: lake.tables("db"),
        "GET",
        "/v1/namespaces/db/tables",
        None,
        wire.TableList(tables=("t",)),
        ("t",),
    ),
    (
        "create_table from columns",
        lambda lake: lake.create_table("db.t", schema=[Column(name="a", type="int64")], cluster_key=["a"]),
        "POST",
        "/v1/namespaces/db/tables",
        {
            "name": "t",
            "schema": [{"name": "a", "type": "int64"}],
            "schema_from": None,
            "cluster_key": ["a"],
            "properties": {},
        },
        INFO,
        INFO,
    ),
    (
        "create_table from a file",
        lambda lake: lake.create_table("a.b.t", schema_from="memory://x.parquet", properties={"k": "v"}),
        "POST",
        "/v1/namespaces/a.b/tables",
        {
            "name": "t",
            "schema": None,
            "schema_from": "memory://x.parquet",
            "cluster_key": [],
            "properties": {"k": "v"},
        },
        INFO,
        INFO,
    ),
    (
        "drop_table",
        lambda lake: lake.drop_table("db.tü"),
        "DELETE",
        "/v1/namespaces/db/tables/t%C3%BC",
        None,
        None,
        None,
    ),
    ("info", lambda lake: lake.table("db.t").info(), "GET", "/v1/namespaces/db/tables/t", None, INFO, INFO),
    (
        "register",
        lambda lake: lake.table("db.t").register(["memory://d/"], strict=True),
        "POST",
        "/v1/namespaces/db/tables/t/register",
        {"paths": ["memory://d/"], "strict": True, "verify": False},
        REGISTERED,
        REGISTERED,
    ),
    (
        "commit",
        lambda lake: lake.table("db.t").commit(
            added=[Block(location="memory://1", row_count=1, file_size=2), {"location": "memory://2", "row_count": 3}],
            removed=["memory://3"],
            base_snapshot_id="s",
            operation="replace",
            properties={"k": "v"},
        ),
        "POST",
        "/v1/namespaces/db/tables/t/commits",
        {
            "added": [
                {"location": "memory://1", "row_count": 1, "file_size": 2},
                {"location": "memory://2", "row_count": 3},
            ],
            "removed": ["memory://3"],
            "base_snapshot_id": "s",
            "operation": "replace",
            "properties": {"k": "v"},
        },
        COMMITTED,
        COMMITTED,
    ),
    (
        "snapshot",
        lambda lake: lake.table("db.t").snapshot("s"),
        "GET",
        "/v1/namespaces/db/tables/t/snapshots/s",
        None,
        SNAPSHOT,
        SNAPSHOT,
    ),
    (
        "segment",
        lambda lake: lake.table("db.t").segment("g", snapshot_id="s"),
        "GET",
        "/v1/namespaces/db/tables/t/segments/g?snapshot_id=s",
        None,
        SEGMENT,
        SEGMENT,
    ),
    (
        "prune",
        lambda lake: lake.table("db.t").prune(
            "a > 4",
            ["a"],
            timestamp=dt.datetime(2024, 5, 1, 12, tzinfo=dt.UTC),
            time_zone="Europe/Berlin",
            case_sensitive=True,
            explain=True,
        ),
        "POST",
        "/v1/namespaces/db/tables/t/prune",
        {
            "filter": "a > 4",
            "columns": ["a"],
            "timestamp": "2024-05-01T12:00:00+00:00",
            "time_zone": "Europe/Berlin",
            "case_sensitive": True,
            "shape": "columns",
            "explain": True,
        },
        PRUNED,
        PruneResult(snapshot_id="s", timestamp_ms=1, report=REPORT, block_columns=COLUMNS),
    ),
    (
        "prune with stages",
        lambda lake: lake.table("db.t").prune(
            limit=5,
            order_by=["a DESC", "`b,c` NULLS LAST"],
            join=wire.JoinKeys(column="k", values=(1, 2)),
            residuals=True,
            segments=["g"],
            max_ms=5.0,
        ),
        "POST",
        "/v1/namespaces/db/tables/t/prune",
        {
            "shape": "columns",
            "limit": 5,
            "order_by": [
                {"column": "a", "descending": True},
                {"column": "`b,c`", "nulls_first": False},
            ],
            "join": [{"column": "k", "values": [1, 2]}],
            "residuals": True,
            "segments": ["g"],
            "max_ms": 5.0,
        },
        PRUNED,
        PruneResult(snapshot_id="s", timestamp_ms=1, report=REPORT, block_columns=COLUMNS),
    ),
    (
        "prune batch",
        lambda lake: lake.table("db.t").prune_batch(["a > 4", None], ["a"], snapshot_id="s"),
        "POST",
        "/v1/namespaces/db/tables/t/prune/batch",
        {"filters": ["a > 4", None], "columns": ["a"], "snapshot_id": "s", "shape": "columns"},
        wire.BatchAnswer(snapshot_id="s", timestamp_ms=1, answers=(PRUNED,)),
        (PruneResult(snapshot_id="s", timestamp_ms=1, report=REPORT, block_columns=COLUMNS),),
    ),
    (
        "diff",
        lambda lake: lake.table("db.t").diff("s", None, "a > 4", ["a"]),
        "POST",
        "/v1/namespaces/db/tables/t/diff",
        {"from_snapshot_id": "s", "filter": "a > 4", "columns": ["a"]},
        DIFF,
        DIFF,
    ),
]


@pytest.mark.parametrize(
    ("use", "method", "target", "body", "answer", "expected"), [c[1:] for c in CALLS], ids=[c[0] for c in CALLS]
)
def test_a_method_sends_its_request_and_reads_its_answer(
    client_for: ClientFor, use: Callable[[Any], Any], method: str, target: str, body: Any, answer: Any, expected: Any
) -> None:
    """Method, path and body are the API's, and the answer comes back as the wire's own type."""

    def handler(_: HttpRequest) -> HttpResponse:
        return HttpResponse(status=204) if answer is None else json_response(answer)

    client = client_for(handler)
    assert client.run(use) == expected
    (request,) = client.requests
    assert (request.method, request.target) == (method, target)
    assert (json.loads(request.body) if request.body else None) == body
    assert request.header("content-type") == ("application/json" if request.body else None)


def test_what_is_sent_can_be_read_by_the_service(client_for: ClientFor) -> None:
    """The bodies are those of the wire's own request structs, which refuse members they do not know."""
    bodies = {name: body for name, _, _, _, body, _, _ in CALLS if body is not None}
    kinds = {
        "create_namespace": wire.CreateNamespace,
        "create_table from columns": wire.CreateTable,
        "create_table from a file": wire.CreateTable,
        "register": wire.Register,
        "commit": wire.CommitRequest,
        "prune": wire.PruneRequest,
        "prune with stages": wire.PruneRequest,
        "prune batch": wire.BatchRequest,
        "diff": wire.DiffRequest,
    }
    assert bodies.keys() == kinds.keys()
    for name, use, *_ in CALLS:
        if name in kinds:
            client = client_for(lambda _: HttpResponse(status=418))
            with pytest.raises(Exception, match="418"):
                client.run(use)
            msgspec.json.decode(client.requests[0].body, type=kinds[name])


def test_the_history_is_fetched_page_by_page(client_for: ClientFor) -> None:
    """Iterating over snapshots follows the page tokens to the end, with the page size that was asked for."""
    lines = [
        wire.SnapshotInfo(
            snapshot_id=str(n),
            prev_snapshot_id=None,
            timestamp_ms=n,
            operation="append",
            row_count=0,
            block_count=0,
            segment_count=0,
            file_size_bytes=0,
        )
        for n in range(5)
    ]

    def handler(request: HttpRequest) -> HttpResponse:
        start = int(request.target.partition("page_token=t%2F")[2] or 0)
        more = f"t/{start + 2}" if start + 2 < len(lines) else None
        return json_response(wire.SnapshotList(snapshots=tuple(lines[start : start + 2]), next_page_token=more))

    client = client_for(handler)
    assert client.run(lambda lake: lake.table("db.t").snapshots(page_size=2)) == lines
    assert [request.target for request in client.requests] == [
        "/v1/namespaces/db/tables/t/snapshots?page_size=2",
        "/v1/namespaces/db/tables/t/snapshots?page_size=2&page_token=t%2F2",
        "/v1/namespaces/db/tables/t/snapshots?page_size=2&page_token=t%2F4",
    ]


def test_pages_that_are_not_looked_at_are_not_fetched() -> None:
    """The first snapshot of a long history costs one request."""
    line = wire.SnapshotInfo(
        snapshot_id="s",
        prev_snapshot_id=None,
        timestamp_ms=0,
        operation="append",
        row_count=0,
        block_count=0,
        segment_count=0,
        file_size_bytes=0,
    )
    fake = FakeTransport(lambda _: json_response(wire.SnapshotList(snapshots=(line,), next_page_token="more")))
    assert next(Lamella("http://lake.test", transport=fake).table("db.t").snapshots()) == line
    assert len(fake.requests) == 1


def test_the_token_and_the_base_path_are_on_every_request() -> None:
    """A bearer token goes with each request, and a service behind a prefix is found there."""
    fake = FakeTransport(lambda _: json_response(wire.TableList(tables=())))
    Lamella("https://lake.test/lamella/", token="s3cret", transport=fake).tables("db")
    assert fake.requests[0].target == "/lamella/v1/namespaces/db/tables"
    assert fake.requests[0].header("Authorization") == "Bearer s3cret"


def test_mutations_carry_a_key_and_reads_do_not(client_for: ClientFor) -> None:
    """Every mutation has an Idempotency-Key of its own, a UUID v7; reads, also the pruning POST, have none."""
    mutating = {"create_namespace", "drop_namespace", "drop_table", "register", "commit"}
    keys = set()
    for name, use, _, _, _, answer, _ in CALLS:
        client = client_for(lambda _, a=answer: HttpResponse(status=204) if a is None else json_response(a))
        client.run(use)
        key = client.requests[0].header("Idempotency-Key")
        assert (key is not None) == (name.split(" ")[0] in mutating | {"create_table"}), name
        if key is not None:
            assert key[14] == "7"
            keys.add(key)
    assert len(keys) == 7


def test_the_callers_own_idempotency_key_is_used(client_for: ClientFor) -> None:
    """A caller that repeats a mutation can say so by passing the key of the first."""
    client = client_for(lambda _: HttpResponse(status=204))
    client.run(lambda lake: lake.drop_table("db.t", idempotency_key="mine"))
    assert client.requests[0].header("Idempotency-Key") == "mine"


@pytest.mark.parametrize("name", ["t", ".t", "db.", "", "."])
def test_a_name_without_namespace_or_table_is_refused(name: str) -> None:
    """A name that is not namespace.table is an error before anything is sent."""
    with pytest.raises(InvalidRequest, match=r"namespace\.table"):
        Lamella("http://lake.test").table(name)


@pytest.mark.parametrize(
    ("text", "leaves"),
    [
        ("`s`.`z` DESC", [("s", "z")]),
        ("s.z, `s.z`", [("s", "z"), ("s.z",)]),
        ("`a,b` DESC, s.`o``o` NULLS LAST", [("a,b",), ("s", "o`o")]),
    ],
)
def test_quoted_names_of_an_order_mean_what_they_mean_in_filters(text: str, leaves: list[tuple[str, ...]]) -> None:
    """Each part of a path may be quoted, and a comma or dot inside of a quoted name separates nothing."""
    inner = (Column(name="z", type="int64"), Column(name="o`o", type="int64"))
    schema = Schema.assign(
        [
            Column(name="s", type="struct", fields=inner),
            Column(name="s.z", type="int64"),
            Column(name="a,b", type="int64"),
        ]
    )
    assert [schema.leaf(part.column).path for part in read_order(text)] == leaves


def test_the_table_is_what_follows_the_last_dot() -> None:
    """A namespace may hold dots."""
    assert TableName.parse("a.b.t") == TableName("a.b", "t")
    table = Lamella("http://lake.test").table("a.b.t")
    assert (table.namespace, table.name, str(table)) == ("a.b", "t", "a.b.t")


@pytest.mark.parametrize(
    "use",
    [
        lambda lake: lake.create_table("db.t"),
        lambda lake: lake.create_table("db.t", schema=[], schema_from="memory://x"),
        lambda lake: lake.table("db.t").register("memory://x"),
        lambda lake: lake.table("db.t").commit(removed="memory://x"),
        lambda lake: lake.table("db.t").prune(None, "a"),
        lambda lake: lake.table("db.t").prune(timestamp=dt.datetime(2024, 1, 1)),  # noqa: DTZ001  # that is the point
        lambda lake: lake.table("db.t").prune({"type": "eq", "term": "a", "value": object()}),
        lambda lake: lake.table("db.t").snapshot(""),
        lambda lake: lake.drop_namespace(""),
        lambda lake: lake.drop_namespace("db", idempotency_key="a\r\nb: c"),
    ],
)
def test_a_call_that_cannot_be_meant_is_refused_before_it_is_sent(
    client_for: ClientFor, use: Callable[[Any], Any]
) -> None:
    """What no service could answer is an InvalidRequest, and nothing leaves the machine."""
    client = client_for(lambda _: HttpResponse(status=204))
    with pytest.raises(InvalidRequest):
        client.run(use)
    assert client.requests == []


@pytest.mark.parametrize(
    "url",
    ["127.0.0.1:8080", "ftp://lake", "http://", "http://u:p@lake", "http://lake/?a=b", "http://lake:x", "http://a b/"],
)
def test_a_url_that_is_no_service_is_refused(url: str) -> None:
    """The base URL is checked when the client is made."""
    with pytest.raises(InvalidRequest):
        Lamella(url)


@pytest.mark.parametrize("token", ["", "a b", "a\nb", "ä"])
def test_a_token_that_cannot_stand_in_a_header_is_refused(token: str) -> None:
    """A token with a line break would forge headers."""
    with pytest.raises(InvalidRequest, match="token"):
        Lamella("http://lake.test", token=token)


def test_blocks_can_be_read_as_records_from_either_shape() -> None:
    """Columns and records give the same blocks, counts and sizes."""
    blocks = (
        wire.PrunedBlock(location="memory://1", row_count=10, file_size=100, verdict="ALL"),
        wire.PrunedBlock(location="memory://2", row_count=20, file_size=200, verdict="SOME"),
    )
    by_columns = PruneResult(snapshot_id="s", timestamp_ms=1, report=REPORT, block_columns=COLUMNS)
    by_records = PruneResult(snapshot_id="s", timestamp_ms=1, report=REPORT, blocks=blocks)
    for pruned in (by_columns, by_records):
        assert tuple(pruned.records()) == blocks
        assert pruned.locations == ["memory://1", "memory://2"]
        assert (pruned.block_count, pruned.size_bytes) == (2, 300)


def test_a_closed_client_closes_its_transport() -> None:
    """The context manager gives back the connections."""
    fake = FakeTransport(lambda _: json_response({"namespaces": []}))
    with Lamella("http://lake.test", transport=fake) as lake:
        lake.namespaces()
    assert fake.closed


def public(kind: type) -> dict[str, list[tuple[str, Any]]]:
    """The public methods of a class, also those of its parts, with their parameters and defaults."""
    return {
        name: [(p.name, p.default) for p in inspect.signature(value).parameters.values()]
        for name, value in inspect.getmembers(kind, inspect.isfunction)
        if not name.startswith("_")
    }


def test_the_async_client_has_the_same_methods() -> None:
    """The twins have the same names, parameters and defaults."""
    assert public(Lamella) == public(AsyncLamella)
    assert public(Table) == public(AsyncTable)
    assert {"scan", "append", "overwrite", "upsert", "delete"} <= public(Table).keys()


@pytest.mark.parametrize(
    "columns",
    [
        {"id": "int64", "s": "string"},
        pa.schema([("id", pa.int64()), ("s", pa.string())]),
        [Column(name="id", type="int64"), Column(name="s", type="string")],
        Schema.assign([Column(name="id", type="int64"), Column(name="s", type="string")]),
    ],
)
def test_columns_of_a_new_table_have_several_forms(columns: Any) -> None:
    """Names with types, a schema of pyarrow, columns, a schema: the request has the same columns."""
    call = create_table_call(TableName.parse("db.t"), columns, None, (), {})
    sent = msgspec.json.decode(call.body)["schema"]
    assert [(column["name"], column["type"]) for column in sent] == [("id", "int64"), ("s", "string")]


def test_arrow_types_that_a_table_cannot_hold_are_named() -> None:
    """Before anything is sent."""
    with pytest.raises(InvalidSchema, match="'d' has Arrow type"):
        create_table_call(TableName.parse("db.t"), pa.schema([("d", pa.duration("s"))]), None, (), {})


def test_policies_and_schedules_may_be_dictionaries() -> None:
    """As in HTTP; a member that there is not is an error with its place."""
    policy = put_policy_call(TableName.parse("db.t"), {"compact": {"small_blocks": 200}})
    assert msgspec.json.decode(policy.body) == {"compact": {"small_blocks": 200}}
    schedule = put_schedule_call(TableName.parse("db.t"), "s", {"kind": "compact", "every_s": 60})
    assert msgspec.json.decode(schedule.body) == msgspec.to_builtins(wire.PutSchedule(kind="compact", every_s=60))
    with pytest.raises(InvalidRequest, match=r"the policy is not valid: .*\$"):
        put_policy_call(TableName.parse("db.t"), {"compact": {"small_blocks": "many"}})
    with pytest.raises(InvalidRequest, match="the schedule is not valid"):
        put_schedule_call(TableName.parse("db.t"), "s", {"every": 60})
