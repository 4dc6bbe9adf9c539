"""Keys and grants by either client: the requests, what becomes of the answers, and what is never sent twice."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from lamella.client.http import NO_RETRY, RetryPolicy
from lamella.client.http.fake_transport import json_response, problem_response
from lamella.client.http.transport import HttpRequest, HttpResponse, TransportFailure
from lamella.snapshot import wire
from lamella.snapshot.errors import (
    AlreadyExists,
    InvalidRequest,
    KeyNotFound,
    LamellaError,
    OutcomeUnknown,
    PermissionDenied,
    RateLimited,
    Unauthenticated,
    Unavailable,
)
from support.both_clients import ClientFor

GRANT = wire.GrantInfo(principal="key:etl", role="read", namespace="db", table=None, created_ms=1, created_by="root")
INFO = wire.KeyInfo(name="etl", grants=(GRANT,), created_ms=1, created_by="root", requests_per_s=0.5)
NEW = wire.NewKey(key="lamella_x", info=INFO)
READ = wire.Grant(role="read", namespace="db")

Outcome = HttpResponse | TransportFailure
LOST = TransportFailure("reset", sent=True)
REFUSED = TransportFailure("Connection refused", sent=False)
MADE = json_response(NEW, 201)
NOTHING = HttpResponse(status=204)


def one_by_one(*outcomes: Outcome) -> Callable[[HttpRequest], Outcome]:
    """A handler that gives one outcome after another and none twice."""
    left = iter(outcomes)
    return lambda _: next(left)


def create(lake: Any) -> Any:
    """Make a key."""
    return lake.keys.create("etl", [READ], expires_s=60, requests_per_s=0.5)


def rotate(lake: Any) -> Any:
    """Give it another text."""
    return lake.keys.rotate("etl", overlap_s=5)


def test_the_service_says_who_asks(client_for: ClientFor) -> None:
    """With groups, grants and when that ends."""
    found = wire.WhoAmI(principal="user:ann", kind="token", groups=("a",), grants=(READ,), expires_ms=5)
    client = client_for(lambda _: json_response(found))
    assert client.run(lambda lake: lake.whoami()) == found
    assert [(each.method, each.target) for each in client.requests] == [("GET", "/v1/whoami")]


def test_keys_are_listed_and_looked_at(client_for: ClientFor) -> None:
    """By name, whatever characters it has."""
    client = client_for(one_by_one(json_response(wire.KeyList(keys=(INFO,))), json_response(INFO), json_response(INFO)))
    assert client.run(lambda lake: lake.keys.list()) == (INFO,)
    assert client.run(lambda lake: lake.keys.get("etl")) == INFO
    assert client.run(lambda lake: lake.keys.get("a/b ?")) == INFO
    assert [(each.method, each.target) for each in client.requests] == [
        ("GET", "/v1/keys"),
        ("GET", "/v1/keys/etl"),
        ("GET", "/v1/keys/a%2Fb%20%3F"),
    ]


def test_a_key_is_made_rotated_and_revoked(client_for: ClientFor) -> None:
    """What answers with a text has no idempotency key, which would say that it could be had again."""
    client = client_for(one_by_one(MADE, json_response(NEW), NOTHING))
    assert client.run(create) == NEW
    assert client.run(rotate) == NEW
    assert client.run(lambda lake: lake.keys.revoke("etl")) is None
    assert [(each.method, each.target) for each in client.requests] == [
        ("POST", "/v1/keys"),
        ("POST", "/v1/keys/etl/rotate"),
        ("DELETE", "/v1/keys/etl"),
    ]
    has_key = [each.header("Idempotency-Key") is not None for each in client.requests]
    assert has_key == [False, False, True]
    assert msgspec.json.decode(client.requests[0].body, type=wire.CreateKey) == wire.CreateKey(
        name="etl", grants=(READ,), expires_s=60, requests_per_s=0.5
    )
    assert msgspec.json.decode(client.requests[1].body, type=wire.RotateKey) == wire.RotateKey(overlap_s=5)


@pytest.mark.parametrize("use", [create, rotate])
@pytest.mark.parametrize(
    "trouble",
    [
        LOST,
        HttpResponse(status=502),
        HttpResponse(status=503, headers={"retry-after": "1"}),
        HttpResponse(status=504),
        HttpResponse(status=500, body=b"Internal Server Error"),
        problem_response(500, "lamella_error", "internal error"),
        problem_response(503, "outcome_unknown", "the catalog failed while committing"),
    ],
    ids=["lost", "502", "503", "504", "500", "mistake", "unknown"],
)
def test_what_makes_a_secret_is_not_sent_again_once_it_may_have_been_done(
    client_for: ClientFor, use: Callable[[Any], Any], trouble: Outcome
) -> None:
    """A second try could not bring the lost text back: it would refuse the name, or end the text that is in use."""
    client = client_for(one_by_one(trouble), policy=RetryPolicy(attempts=9))
    with pytest.raises(OutcomeUnknown) as caught:
        client.run(use)
    assert (len(client.requests), client.waits) == (1, [])
    assert "revoke" in caught.value.message
    assert "'etl'" in caught.value.message
    assert "idempotency_key" not in caught.value.details
    assert caught.value.details["url"] == "http://lake.test:80"


@pytest.mark.parametrize("use", [create, rotate])
@pytest.mark.parametrize(
    "trouble",
    [
        REFUSED,
        problem_response(429, "rate_limited", headers={"Retry-After": "2"}),
        problem_response(503, "unavailable", headers={"Retry-After": "2"}),
        problem_response(502, "store_error"),
    ],
    ids=["refused", "429", "503", "502"],
)
def test_what_makes_a_secret_is_sent_again_when_it_was_certainly_not_done(
    client_for: ClientFor, use: Callable[[Any], Any], trouble: Outcome
) -> None:
    """No connection, too many requests, or a service that says what failed before it did anything."""
    client = client_for(one_by_one(trouble, trouble, MADE))
    assert client.run(use) == NEW
    assert len(client.requests) == 3
    client = client_for(one_by_one(trouble, LOST))
    with pytest.raises(OutcomeUnknown):
        client.run(use)


@pytest.mark.parametrize("outcome", [REFUSED, problem_response(503, "unavailable", "busy")], ids=["refused", "503"])
def test_a_key_that_was_certainly_not_made_is_said_to_be_unavailable(client_for: ClientFor, outcome: Outcome) -> None:
    """When the tries run out there is nothing to revoke."""
    client = client_for(one_by_one(outcome), policy=NO_RETRY)
    with pytest.raises(Unavailable) as caught:
        client.run(create)
    assert type(caught.value) is Unavailable


@pytest.mark.parametrize(
    "use",
    [
        lambda lake: lake.keys.revoke("etl"),
        lambda lake: lake.grants.give("user:ann", "read", "db"),
        lambda lake: lake.grants.take("user:ann", "db"),
    ],
    ids=["revoke", "give", "take"],
)
def test_what_can_be_done_twice_is_tried_again(client_for: ClientFor, use: Callable[[Any], Any]) -> None:
    """A key that is gone and a role that stands are what was asked for, whichever try did it."""
    client = client_for(one_by_one(LOST, HttpResponse(status=502), json_response(GRANT)))
    client.run(use)
    assert len(set(map(repr, client.requests))) == 1
    client = client_for(one_by_one(LOST, LOST, LOST))
    with pytest.raises(OutcomeUnknown):
        client.run(use)


def test_grants_are_listed_given_and_taken(client_for: ClientFor) -> None:
    """On everything, on a namespace with its tables, or on a table."""
    listed = json_response(wire.GrantList(grants=(GRANT,)))
    client = client_for(one_by_one(listed, listed, json_response(GRANT), json_response(GRANT), NOTHING, NOTHING))
    assert client.run(lambda lake: lake.grants.list()) == (GRANT,)
    assert client.run(lambda lake: lake.grants.list("user:ann&b")) == (GRANT,)
    assert client.run(lambda lake: lake.grants.give("key:etl", "read", "db")) == GRANT
    assert client.run(lambda lake: lake.grants.give("user:ann", "admin")) == GRANT
    assert client.run(lambda lake: lake.grants.take("user:ann")) is None
    assert client.run(lambda lake: lake.grants.take("user:ann", "db", "t")) is None
    assert [(each.method, each.target) for each in client.requests] == [
        ("GET", "/v1/grants"),
        ("GET", "/v1/grants?principal=user%3Aann%26b"),
        ("PUT", "/v1/grants"),
        ("PUT", "/v1/grants"),
        ("POST", "/v1/grants/take"),
        ("POST", "/v1/grants/take"),
    ]
    bodies = [msgspec.json.decode(each.body, type=wire.GrantRequest) for each in client.requests[2:]]
    assert [(each.principal, each.namespace, each.table) for each in bodies] == [
        ("key:etl", "db", None),
        ("user:ann", None, None),
        ("user:ann", None, None),
        ("user:ann", "db", "t"),
    ]
    assert [each.role for each in bodies[:2]] == ["read", "admin"]


def test_a_key_without_a_name_is_not_requested(client_for: ClientFor) -> None:
    """Else it would be the list of all keys."""
    client = client_for(one_by_one())
    for use in (lambda lake: lake.keys.get(""), lambda lake: lake.keys.revoke("")):
        with pytest.raises(InvalidRequest):
            client.run(use)


@pytest.mark.parametrize(
    ("status", "code", "kind"),
    [
        (401, "unauthenticated", Unauthenticated),
        (403, "permission_denied", PermissionDenied),
        (404, "key_not_found", KeyNotFound),
        (409, "already_exists", AlreadyExists),
    ],
)
def test_a_refusal_is_reported_by_its_class_and_not_tried_again(
    client_for: ClientFor, status: int, code: str, kind: type[LamellaError]
) -> None:
    """With the service's words; another key, or an admin, may help, and another try does not."""
    client = client_for(one_by_one(problem_response(status, code, "because", role="admin")))
    with pytest.raises(LamellaError) as caught:
        client.run(create)
    assert type(caught.value) is kind
    assert (caught.value.message, caught.value.details["role"]) == ("because", "admin")


def test_a_client_that_asks_too_often_waits_as_long_as_it_must(client_for: ClientFor) -> None:
    """And says how long it would have to, when it has tried often enough."""
    limited = problem_response(429, "rate_limited", "too often", headers={"Retry-After": "7"}, retry_after_s=7)
    client = client_for(one_by_one(limited, json_response(wire.TableList(tables=("t",)))), jitter=lambda: 0.0)
    assert client.run(lambda lake: lake.tables("db")) == ("t",)
    assert client.waits == [7.0]
    client = client_for(one_by_one(limited, limited, limited))
    with pytest.raises(RateLimited) as caught:
        client.run(lambda lake: lake.tables("db"))
    assert caught.value.details["retry_after_s"] == 7
    client = client_for(one_by_one(limited, limited, limited))
    with pytest.raises(RateLimited):  # nothing was done, so nothing is unknown
        client.run(lambda lake: lake.create_namespace("db"))
