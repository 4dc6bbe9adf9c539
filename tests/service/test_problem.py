"""The one table from errors to problem documents."""

from __future__ import annotations

import msgspec
import pytest

from lamella.service.http.problem import STATUS, problem_of, problem_response, status_of
from lamella.snapshot.errors import (
    BY_CODE,
    AlreadyExists,
    BodyTooLarge,
    CorruptParquet,
    HashMismatch,
    InvalidFilter,
    LamellaError,
    OutcomeUnknown,
    SchemaMismatch,
    SnapshotNotFound,
    StoreError,
    Unavailable,
)
from lamella.snapshot.wire import Problem


@pytest.mark.parametrize(
    ("kind", "status"),
    [
        (LamellaError, 500),
        (InvalidFilter, 400),
        (SchemaMismatch, 422),
        (CorruptParquet, 422),
        (BodyTooLarge, 413),
        (SnapshotNotFound, 404),
        (AlreadyExists, 409),
        (HashMismatch, 500),
        (StoreError, 502),
        (Unavailable, 503),
        (OutcomeUnknown, 503),
    ],
)
def test_an_error_has_the_status_of_its_nearest_listed_ancestor(kind: type[LamellaError], status: int) -> None:
    """A class that is not listed itself is answered like the one it descends from."""
    assert status_of(kind) == status


def test_every_error_has_a_status() -> None:
    """A class that is new in the tree is answered too, with an error status."""
    assert {status_of(kind) for kind in BY_CODE.values()} == set(STATUS.values())
    assert all(400 <= status < 600 for status in STATUS.values())


def test_a_problem_document_has_the_members_of_rfc_9457_and_ours() -> None:
    """Type, title, status, detail and instance, beside code and details."""
    problem = problem_of(InvalidFilter("no", position=4), instance="/v1/x")
    assert msgspec.to_builtins(problem) == {
        "type": "urn:lamella:error:invalid_filter",
        "title": "Invalid filter",
        "status": 400,
        "detail": "no",
        "code": "invalid_filter",
        "instance": "/v1/x",
        "details": {"position": 4},
    }


@pytest.mark.parametrize(("given", "header"), [({}, "1"), ({"retry_after_s": 0.2}, "1"), ({"retry_after_s": 7.5}, "8")])
def test_unavailable_tells_when_to_come_back(given: dict[str, float], header: str) -> None:
    """`Retry-After` is in whole seconds, at least one."""
    response = problem_response(Unavailable("later", **given))
    assert (response.status_code, response.headers["retry-after"]) == (503, header)


def test_details_that_json_has_no_form_for_are_sent_as_text() -> None:
    """An answer about an error does not fail in turn."""
    response = problem_response(StoreError("no", cause=OSError("disk")))
    assert msgspec.json.decode(response.body, type=Problem).details == {"cause": "disk"}
