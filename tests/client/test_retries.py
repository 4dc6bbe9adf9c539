"""What is tried again, how long it waits, and which error is left when the tries run out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from lamella.client.http import NO_RETRY, RetryPolicy
from lamella.client.http.exchange import retry_after_s
from lamella.client.http.fake_transport import json_response, problem_response
from lamella.client.http.transport import HttpRequest, HttpResponse, TransportFailure
from lamella.snapshot import errors, wire
from lamella.snapshot.errors import (
    AlreadyExists,
    CommitConflict,
    InvalidFilter,
    LamellaError,
    OutcomeUnknown,
    StoreError,
    TableNotFound,
    TooSlow,
    Unavailable,
)
from support.both_clients import ClientFor

TABLES = json_response(wire.TableList(tables=("t",)))
CREATED = json_response(wire.NamespaceInfo(name="db"))
LOST = TransportFailure("reset", sent=True)
REFUSED = TransportFailure("Connection refused", sent=False)

Outcome = HttpResponse | TransportFailure


def one_by_one(*outcomes: Outcome) -> Callable[[HttpRequest], Outcome]:
    """A handler that gives one outcome after another and none twice."""
    left = iter(outcomes)
    return lambda _: next(left)


def read(lake: Any) -> Any:
    """A call that changes nothing."""
    return lake.tables("db")


def change(lake: Any) -> Any:
    """A mutation."""
    return lake.create_namespace("db")


@pytest.mark.parametrize(
    "trouble",
    [
        *(LOST, REFUSED),
        *(HttpResponse(status=s) for s in (408, 429, 502, 503, 504)),
        *(problem_response(503, "unavailable"), problem_response(408, "too_slow")),
    ],
    ids=["lost", "refused", "408", "429", "502", "503", "504", "problem", "slow"],
)
@pytest.mark.parametrize(("use", "good"), [(read, TABLES), (change, CREATED)], ids=["read", "mutation"])
def test_a_passing_trouble_is_tried_again(client_for: ClientFor, trouble: Outcome, use: Any, good: Any) -> None:
    """Lost connections and 408, 429, 502, 503 and 504 are followed by the same request, with the same key."""
    client = client_for(one_by_one(trouble, trouble, good))
    client.run(use)
    assert len(client.requests) == 3
    assert len(set(map(repr, client.requests))) == 1


def test_the_wait_doubles_and_is_jittered_in_full(client_for: ClientFor) -> None:
    """The n-th wait is a random part of base * 2**(n-1), up to the cap."""
    policy = RetryPolicy(attempts=6, base_delay_s=1.0, max_delay_s=5.0)
    parts = iter([0.5, 1.0, 0.0, 0.25, 1.0, 1.0])
    client = client_for(one_by_one(*[LOST] * 5, TABLES), policy=policy, jitter=lambda: next(parts))
    client.run(read)
    assert client.waits == [0.5, 2.0, 0.0, 1.25, 5.0]


def test_retry_after_is_waited_for_on_top(client_for: ClientFor) -> None:
    """The service's own word on when to come back is a lower bound."""
    busy = HttpResponse(status=503, headers={"retry-after": "7"})
    client = client_for(one_by_one(busy, TABLES))
    client.run(read)
    assert client.waits == [8.0]


def test_a_wait_that_is_too_long_is_left_to_the_caller(client_for: ClientFor) -> None:
    """A Retry-After over the policy's limit ends the tries; the error says when to come back."""
    busy = HttpResponse(status=429, headers={"retry-after": "3600"})
    client = client_for(one_by_one(busy))
    with pytest.raises(Unavailable) as caught:
        client.run(read)
    assert caught.value.details["retry_after_s"] == 3600
    assert client.waits == []


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        (None, None),
        ("0", 0.0),
        (" 12 ", 12.0),
        ("Thu, 01 Jan 1970 00:01:30 GMT", 60.0),
        ("Thu, 01 Jan 1970 00:00:00 GMT", 0.0),
        ("soon", None),
        ("-5", None),
        ("1.5", None),
        ("", None),
    ],
)
def test_retry_after_is_read_as_seconds_or_as_a_date(value: str | None, seconds: float | None) -> None:
    """Both forms of RFC 9110 are read; anything else is as if it were not there."""
    assert retry_after_s(value, now_ms=30_000) == seconds


def test_a_read_whose_tries_run_out_is_unavailable(client_for: ClientFor) -> None:
    """The error names the URL and the last reason, and is no OutcomeUnknown."""
    client = client_for(one_by_one(LOST, LOST, LOST))
    with pytest.raises(Unavailable, match=r"http://lake\.test:80.*reset") as caught:
        client.run(read)
    assert type(caught.value) is Unavailable
    assert len(client.requests) == 3


def test_a_mutation_that_never_left_is_unavailable(client_for: ClientFor) -> None:
    """When no try can have reached the service, nothing was changed, and the error says no more than that."""
    client = client_for(one_by_one(REFUSED, REFUSED, REFUSED))
    with pytest.raises(Unavailable, match="Connection refused") as caught:
        client.run(change)
    assert type(caught.value) is Unavailable


@pytest.mark.parametrize(
    "outcomes",
    [
        [LOST, REFUSED, REFUSED],
        [REFUSED, LOST, HttpResponse(status=429)],
        [LOST, problem_response(408, "too_slow"), problem_response(408, "too_slow")],
        [HttpResponse(status=502), REFUSED, REFUSED],
        [LOST, LOST, problem_response(503, "unavailable")],
        [problem_response(503, "outcome_unknown")] * 3,
        [problem_response(500, "lamella_error", "internal error")],
        [HttpResponse(status=500, body=b"Internal Server Error")],
        [LOST, LOST, HttpResponse(status=403, body=b"<html>")],
    ],
)
def test_a_mutation_that_may_have_happened_is_unknown(client_for: ClientFor, outcomes: list[Outcome]) -> None:
    """One try that may have been carried out makes the whole outcome unknown; the key to resolve it is in the error."""
    client = client_for(one_by_one(*outcomes))
    with pytest.raises(OutcomeUnknown) as caught:
        client.run(change)
    assert caught.value.details["idempotency_key"] == client.requests[0].header("Idempotency-Key")
    assert len(client.requests) == len(outcomes)


def test_the_key_of_an_unknown_outcome_resolves_it(client_for: ClientFor) -> None:
    """The same call with the error's key sends the same request again."""
    client = client_for(one_by_one(LOST, LOST, LOST, CREATED))
    with pytest.raises(OutcomeUnknown) as caught:
        client.run(change)
    key = caught.value.details["idempotency_key"]
    client.run(lambda lake: lake.create_namespace("db", idempotency_key=key))
    assert len(set(map(repr, client.requests))) == 1


@pytest.mark.parametrize(
    ("outcomes", "kind"),
    [
        ([problem_response(409, "already_exists")], AlreadyExists),
        ([LOST, problem_response(409, "already_exists")], AlreadyExists),
        ([problem_response(503, "unavailable")] * 3, Unavailable),
        ([problem_response(502, "store_error")] * 3, StoreError),
        ([problem_response(500, "store_error")], StoreError),
        ([HttpResponse(status=429)] * 3, Unavailable),
        ([problem_response(408, "too_slow")] * 3, TooSlow),
    ],
)
def test_a_clear_answer_to_a_mutation_is_taken_at_its_word(
    client_for: ClientFor, outcomes: list[Outcome], kind: type[LamellaError]
) -> None:
    """A problem document that names what failed settles the outcome, also of earlier tries under the same key."""
    client = client_for(one_by_one(*outcomes))
    with pytest.raises(LamellaError) as caught:
        client.run(change)
    assert type(caught.value) is kind


def test_no_retry_tries_once(client_for: ClientFor) -> None:
    """A caller with a loop of its own can have single tries."""
    client = client_for(one_by_one(LOST), policy=NO_RETRY)
    with pytest.raises(Unavailable):
        client.run(read)


def test_a_failure_that_will_not_pass_is_not_tried_again(client_for: ClientFor) -> None:
    """A certificate that cannot be trusted now cannot be trusted in a second."""
    client = client_for(one_by_one(TransportFailure("certificate", sent=False, transient=False)))
    with pytest.raises(Unavailable, match="certificate"):
        client.run(read)


@pytest.mark.parametrize("code", sorted(errors.BY_CODE))
def test_a_problem_document_becomes_the_same_error(client_for: ClientFor, code: str) -> None:
    """Class, message and details of an error survive the way over HTTP."""
    problem = problem_response(400, code, "what happened", position=3, column="a")
    with pytest.raises(LamellaError) as caught:
        client_for(one_by_one(problem)).run(read)
    assert type(caught.value) is errors.BY_CODE[code]
    assert caught.value.message == "what happened"
    assert caught.value.details == {"position": 3, "column": "a"}


def test_a_code_of_a_newer_service_is_still_an_error(client_for: ClientFor) -> None:
    """An unknown code becomes the base class, with the service's sentence."""
    with pytest.raises(LamellaError, match="new trouble") as caught:
        client_for(one_by_one(problem_response(422, "brand_new", "new trouble"))).run(read)
    assert type(caught.value) is LamellaError


def test_details_may_have_any_name(client_for: ClientFor) -> None:
    """A detail called like a parameter of the error does not break it."""
    with pytest.raises(InvalidFilter) as caught:
        client_for(one_by_one(problem_response(400, "invalid_filter", "bad", message="m", self="s"))).run(read)
    assert caught.value.details == {"message": "m", "self": "s"}


@pytest.mark.parametrize(
    "strange",
    [
        HttpResponse(status=404, body=b"<html>nothing here</html>"),
        HttpResponse(status=302, headers={"location": "http://elsewhere/"}),
        HttpResponse(status=200, body=b"<html>hello</html>"),
        HttpResponse(status=200, body=b'{"something": "else"}'),
        HttpResponse(status=200, body=b"\xff\xfe"),
        HttpResponse(status=400, body=b'{"error": "other style"}'),
    ],
)
def test_another_kind_of_server_is_recognised(client_for: ClientFor, strange: HttpResponse) -> None:
    """What does not speak the API gives one clear error that names the URL, and is not tried again."""
    with pytest.raises(LamellaError, match=r"http://lake\.test:80.*Lamella service"):
        client_for(one_by_one(strange)).run(read)


def test_errors_of_the_service_are_not_tried_again(client_for: ClientFor) -> None:
    """A 4xx is final."""
    client = client_for(one_by_one(problem_response(404, "table_not_found")))
    with pytest.raises(TableNotFound):
        client.run(lambda lake: lake.table("db.t").info())
    client = client_for(one_by_one(problem_response(409, "commit_conflict", blocks=["memory://1"])))
    with pytest.raises(CommitConflict) as caught:
        client.run(lambda lake: lake.table("db.t").commit(removed=["memory://1"]))
    assert caught.value.details == {"blocks": ["memory://1"]}
