"""Errors name what is spelled nearly like a thing that does not exist: indexes, tags, schedules, types, members of
bodies."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from lamella.service.app import create_app
from lamella.service.config.settings import Settings
from lamella.service.http.admission import read_json
from lamella.snapshot.errors import InvalidRequest, InvalidSchema
from lamella.snapshot.job_kinds import check_arguments, job_kind_named
from lamella.snapshot.near_names import near_member
from lamella.snapshot.schema import parse_type
from support.app_client import AppClient

TABLE = "/v1/namespaces/db/tables/t"


@pytest.fixture(scope="module")
def app(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AppClient]:
    """A service with the table ``db.t``, which has an index, a tag and a schedule."""
    with AppClient(create_app(Settings(warehouse=str(tmp_path_factory.mktemp("near"))))) as opened:
        for path, body in (
            ("/v1/namespaces", {"name": "db"}),
            ("/v1/namespaces/db/tables", {"name": "t", "schema": [{"name": "a", "type": "int64"}]}),
            (f"{TABLE}/indexes", {"name": "by_a", "kind": "value_set", "expression": "a"}),
            (f"{TABLE}/tags", {"name": "release"}),
        ):
            assert opened.post(path, json=body).is_success
        assert opened.put(f"{TABLE}/schedules/nightly", json={"kind": "compact", "every_s": 60}).status_code == 200
        yield opened


@pytest.mark.parametrize(
    ("method", "path", "body", "near"),
    [
        ("GET", "/indexes/by_b", None, "by_a"),
        ("DELETE", "/indexes/by_b", None, "by_a"),
        ("POST", "/indexes/by_b/refresh", {}, "by_a"),
        ("POST", "/why-not", {"filter": "a = 1", "index": "by_b"}, "by_a"),
        ("POST", "/indexes", {"name": "x", "kind": "value_sett", "expression": "a"}, "value_set"),
        ("POST", "/indexes", {"name": "x", "kind": "bloom", "expression": "a", "options": {"fp": 0.1}}, None),
        ("DELETE", "/tags/relaese", None, "release"),
        ("POST", "/tags", {"name": "relaese", "move": True}, "release"),
        ("GET", "/snapshots/relaese", None, "release"),
        ("POST", "/prune", {"filter": "a = 1", "snapshot_id": "relaese"}, "release"),
        ("GET", "/schedules/nightli", None, "nightly"),
        ("DELETE", "/schedules/nightli", None, "nightly"),
        ("POST", "/prune", {"filtr": "a = 1"}, "filter"),
        ("PUT", "/policy", {"compct": {}}, "compact"),
        ("PUT", "/policy", {"compact": {"smal_blocks": 3}}, "small_blocks"),
        ("PUT", "/policy", {"compact": {"small_blocks": 3, "arguments": {"target_row": 3}}}, "target_rows"),
        ("POST", "/schema", {"changes": [{"change": "drop", "colum": "a"}]}, "column"),
        ("POST", "/schema", {"changes": [{"change": "add", "name": "b", "type": "strng"}]}, "string"),
        ("GET", "/indexes/zebra", None, None),
        ("DELETE", "/tags/zebra", None, None),
        ("GET", "/schedules/zebra", None, None),
        ("POST", "/prune", {"zebra": 1, "filter": "a = 1"}, None),
    ],
)
def test_an_error_names_the_nearest(
    app: AppClient, method: str, path: str, body: dict[str, Any] | None, near: str | None
) -> None:
    """As ``details.did_you_mean``, where one is near."""
    answer = app.request(method, TABLE + path, json=body)
    assert answer.status_code in (400, 404, 422), answer.text
    assert answer.json()["details"].get("did_you_mean") == near


@pytest.mark.parametrize(
    ("text", "near"),
    [
        ("strng", "string"),
        ("Strng", "string"),
        ("decmal(10,2)", "decimal"),
        ("timestmp_ntz", "timestamp_ntz"),
        ("timestmp(us)", "timestamp"),
        ("zebra", None),
    ],
)
def test_a_misspelt_type_has_a_suggestion(text: str, near: str | None) -> None:
    """The name of the type, without parameters."""
    with pytest.raises(InvalidSchema, match="unknown type") as wrong:
        parse_type(text)
    assert wrong.value.details.get("did_you_mean") == near


def test_a_type_with_wrong_parameters_is_a_known_type() -> None:
    """Its name is right, so the parameters are named."""
    for text in ("decimal(a,b,c)", "decimal(99)", "timestamp(s)", "fixed(0)", "string(3)"):
        with pytest.raises(InvalidSchema, match="invalid parameters") as wrong:
            parse_type(text)
        assert "did_you_mean" not in wrong.value.details


def test_a_misspelt_argument_of_a_job_has_a_suggestion() -> None:
    """Like a member of a body."""
    with pytest.raises(InvalidRequest, match="did you mean target_rows") as wrong:
        check_arguments(job_kind_named("compact"), {"target_row": 3})
    assert wrong.value.details["path"] == "$.arguments"


class Inner(msgspec.Struct, forbid_unknown_fields=True):
    """An object in a list or a mapping."""

    colour: str = ""
    size: int = 0


class Cat(Inner, tag="cat", tag_field="kind"):
    """One of two objects that a tag tells apart."""

    whiskers: int = 0


class Dog(Inner, tag="dog", tag_field="kind"):
    """The other."""

    whistles: int = 0


class Outer(msgspec.Struct, forbid_unknown_fields=True):
    """A body."""

    named: dict[str, Inner] = {}
    listed: tuple[Inner, ...] = ()
    animals: list[Cat | Dog] = []


@pytest.mark.parametrize(
    ("document", "near"),
    [
        (b'{"nmed": {}}', "named"),
        (b'{"named": {"a": {"colour": "red"}, "b": {"sise": 1}}}', "size"),
        (b'{"listed": [{"size": 1}, {"color": "red"}]}', "colour"),
        (b'{"animals": [{"kind": "dog", "whistle": 3}]}', "whistles"),
        (b'{"animals": [{"kind": "cat", "whistlers": 3}]}', "whiskers"),
        (b'{"listed": [{"colour": "red", "color": "red"}]}', None),
        (b'{"listed": [{"size": "x"}]}', None),
    ],
)
def test_a_misspelt_member_has_a_suggestion_wherever_it_is(document: bytes, near: str | None) -> None:
    """In mappings, lists and tagged objects; a member that is there already is not suggested."""
    with pytest.raises(msgspec.ValidationError) as wrong:
        msgspec.json.decode(document, type=Outer)
    assert near_member(wrong.value, Outer, document).get("did_you_mean") == near
    assert near_member(wrong.value, Outer, msgspec.json.decode(document)).get("did_you_mean") == near


@pytest.mark.parametrize("rest", [b"Infinity}", b'"\xff"}', b"[" * 100_000, b"9e999}", b""])
def test_a_misspelt_member_before_a_body_that_breaks_off_has_no_suggestion(rest: bytes) -> None:
    """The error is still the one about the member."""
    document = b'{"nmed": {}, "x": ' + rest
    with pytest.raises(msgspec.ValidationError) as wrong:
        msgspec.json.decode(document, type=Outer)
    assert near_member(wrong.value, Outer, document) == {}
    with pytest.raises(InvalidRequest, match="unknown field `nmed`"):
        read_json(msgspec.json.Decoder(Outer), document)


def test_no_member_of_a_huge_body_is_looked_for() -> None:
    """It would be decoded a second time."""
    document = b'{"nmed": {}, "x": "' + b"x" * (1 << 20) + b'"}'
    with pytest.raises(msgspec.ValidationError) as wrong:
        msgspec.json.decode(document, type=Outer)
    assert near_member(wrong.value, Outer, document) == {}


@pytest.mark.parametrize(
    ("change", "path", "near"),
    [
        ({"name": "a", "type": "int64", "nulable": False}, "$.schema[0]", "nullable"),
        (
            {"name": "a", "type": "struct", "fields": [{"name": "x", "type": "int8", "dco": "d"}]},
            "$.schema[0].fields[0]",
            "doc",
        ),
        ({"name": "a", "type": "int64", "": 1}, "$.schema[0]", None),
    ],
)
def test_a_misspelt_member_of_a_column_is_refused(
    app: AppClient, change: dict[str, Any], path: str, near: str | None
) -> None:
    """Without an effect, it would make a column that is not as it was asked for."""
    answer = app.post("/v1/namespaces/db/tables", json={"name": "misspelt", "schema": [change]})
    assert (answer.status_code, answer.json()["details"]["path"]) == (400, path)
    assert answer.json()["details"].get("did_you_mean") == near
    assert app.get("/v1/namespaces/db/tables/misspelt").status_code == 404
    added = {"change": "add", "name": "b", "type": "struct", "fields": [change]}
    answer = app.post(f"{TABLE}/schema", json={"changes": [added]})
    assert (answer.status_code, "unknown field" in answer.json()["detail"]) == (400, True)


def test_the_members_that_a_column_has_are_accepted(app: AppClient) -> None:
    """All of them, and what the service itself says of a table's columns."""
    column = {
        "name": "a",
        "type": "int64",
        "id": 1,
        "nullable": False,
        "doc": "d",
        "default": "1",
        "write_default": None,
    }
    made = app.post("/v1/namespaces/db/tables", json={"name": "whole", "schema": [{**column, "fields": []}]})
    assert made.status_code == 201, made.text
    again = app.post("/v1/namespaces/db/tables", json={"name": "again", "schema": made.json()["schema"]["columns"]})
    assert again.status_code == 201, again.text


@pytest.mark.parametrize("depth", [100, 150, 10_000])
def test_columns_that_are_nested_deeply_are_refused_as_such(app: AppClient, depth: int) -> None:
    """Whatever the depth, the error is one of the request."""
    body = '{"name": "deep", "schema": [' + '{"name": "a", "type": "struct", "fields": [' * depth
    body += '{"name": "a", "type": "int8", "odd": 1}' + "]}" * depth + "]}"
    answer = app.post("/v1/namespaces/db/tables", content=body, headers={"content-type": "application/json"})
    assert 400 <= answer.status_code < 500, answer.text
