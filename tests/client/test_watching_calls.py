"""Prune rates, the audit trail and the health of tables by either client: requests and answers."""

from __future__ import annotations

from lamella.client.http.fake_transport import json_response
from lamella.snapshot import wire
from support.both_clients import ClientFor

RATES = wire.PruneRatesAnswer(
    since_ms=300_000,
    bucket_s=300,
    total=wire.PruneRate(prunes=2, considered_blocks=10, kept_blocks=1),
    series=(wire.PruneRate(prunes=2, considered_blocks=10, kept_blocks=1, bucket_ms=300_000),),
)
ENTRY = wire.AuditEntry(
    audit_id="a",
    at_ms=1,
    actor="anonymous",
    client="::1",
    operation="commit",
    target="db.t",
    status=200,
    code=None,
    request_id="r",
)


def test_prune_rates_are_requested_for_the_last_day(client_for: ClientFor) -> None:
    """Or of as many seconds as one says."""
    client = client_for(lambda _: json_response(RATES))
    assert client.run(lambda lake: lake.table("db.t").prune_rates()) == RATES
    assert client.run(lambda lake: lake.table("db.t").prune_rates(since_s=60)) == RATES
    path = "/v1/namespaces/db/tables/t/prune-rates"
    assert [(request.method, request.target) for request in client.requests] == [
        ("GET", f"{path}?since_s=86400"),
        ("GET", f"{path}?since_s=60"),
    ]


def test_the_trail_goes_on_page_by_page(client_for: ClientFor) -> None:
    """The table stands in each request; without one it is all of the trail."""
    pages = iter([wire.AuditList(entries=(ENTRY,), next_page_token="p"), wire.AuditList(entries=(ENTRY, ENTRY))])
    client = client_for(lambda _: json_response(next(pages)))
    assert client.run(lambda lake: lake.audit("db.t", page_size=1)) == [ENTRY] * 3
    query = "table=db.t&page_size=1"
    assert [request.target for request in client.requests] == [f"/v1/audit?{query}", f"/v1/audit?{query}&page_token=p"]
    all_of_it = client_for(lambda _: json_response(wire.AuditList(entries=())))
    assert all_of_it.run(lambda lake: lake.audit()) == []
    assert [request.target for request in all_of_it.requests] == ["/v1/audit"]


def test_the_health_of_a_table_is_requested(client_for: ClientFor) -> None:
    """One request, whose answer says of which snapshot it is."""
    health = wire.TableHealth(table_id="t", snapshot_id="s", timestamp_ms=1, measured_ms=2, version=3, commits_since=4)
    client = client_for(lambda _: json_response(health))
    assert client.run(lambda lake: lake.table("db.t").health()) == health
    assert [(request.method, request.target) for request in client.requests] == [
        ("GET", "/v1/namespaces/db/tables/t/health")
    ]
