"""Schema changes from the client and from the command line."""

from __future__ import annotations

import json
from typing import Any

import pytest
from click.testing import CliRunner, Result

from lamella.client.cli.app import cli
from lamella.client.cli.connection import Target
from lamella.client.http import NO_RETRY, Lamella
from lamella.client.http.fake_transport import FakeTransport, json_response
from lamella.snapshot.schema import Column, Schema
from lamella.snapshot.schema.evolution import AddColumn, DropColumn, RenameColumn, evolve
from lamella.snapshot.wire import SchemaInfo
from support.both_clients import ClientFor

BEFORE = Schema.assign([Column(name="a", type="int64"), Column(name="s", type="string")])
AFTER = evolve(BEFORE, [RenameColumn(column="s", name="text"), AddColumn(name="b", type="int32", default="7")])
INFO = SchemaInfo(snapshot_id="s1", schema=AFTER, schemas=(BEFORE,), schema_ids_in_use=(0,))


def test_the_client_sends_changes_and_reads_the_schemas(client_for: ClientFor) -> None:
    """Both clients post the changes in order, with a key, and give back every schema there was."""
    lake = client_for(lambda _: json_response(INFO))
    changes = [DropColumn(column="a.b"), DropColumn(column=("a", "b"))]
    assert lake.run(lambda lake: lake.table("db.t").evolve(changes, base_schema_id=4)) == INFO
    assert lake.run(lambda lake: lake.table("db.t").schema()).history == (BEFORE, AFTER)
    changed, shown = lake.requests
    assert json.loads(changed.body) == {
        "changes": [{"change": "drop", "column": "a.b"}, {"change": "drop", "column": ["a", "b"]}],
        "base_schema_id": 4,
    }
    assert changed.header("idempotency-key")
    assert [(r.method, r.target) for r in (changed, shown)] == [
        ("POST", "/v1/namespaces/db/tables/t/schema"),
        ("GET", "/v1/namespaces/db/tables/t/schema"),
    ]


def _run(*args: str) -> tuple[Result, list[Any]]:
    fake = FakeTransport(lambda _: json_response(INFO))

    def connect(target: Target) -> Lamella:
        return Lamella(target.url, transport=fake, policy=NO_RETRY)

    result = CliRunner().invoke(cli, ("schema", *args), obj=connect)
    return result, [json.loads(request.body) for request in fake.requests if request.body]


@pytest.mark.parametrize(
    ("args", "change"),
    [
        (
            ("add", "db.t", "b", "int", "--default", "7", "--required", "--after", "a", "--doc", "hm"),
            {"change": "add", "name": "b", "type": "int", "nullable": False, "default": "7", "after": "a", "doc": "hm"},
        ),
        (("add", "db.t", "x", "int", "--parent", "p"), {"change": "add", "name": "x", "type": "int", "parent": "p"}),
        (("drop", "db.t", "a"), {"change": "drop", "column": "a"}),
        (("rename", "db.t", "p.a", "b"), {"change": "rename", "column": "p.a", "name": "b"}),
        (("widen", "db.t", "a", "bigint"), {"change": "widen", "column": "a", "type": "bigint"}),
        (("move", "db.t", "a", "--first"), {"change": "move", "column": "a", "first": True}),
        (("nullable", "db.t", "a"), {"change": "set-nullable", "column": "a", "nullable": True}),
        (("required", "db.t", "a"), {"change": "set-nullable", "column": "a", "nullable": False}),
        (("doc", "db.t", "a", "text"), {"change": "set-doc", "column": "a", "doc": "text"}),
        (("doc", "db.t", "a"), {"change": "set-doc", "column": "a", "doc": None}),
    ],
)
def test_a_command_sends_its_change_and_shows_the_schema(args: tuple[str, ...], change: dict[str, Any]) -> None:
    """One command is one change; the schema that it left is printed, or the answer as JSON."""
    result, bodies = _run(*args, "--base", "3")
    assert result.exit_code == 0, result.output
    assert bodies == [{"changes": [change], "base_schema_id": 3}]
    assert "schema 1, in force" in result.output
    assert "text" in result.output
    as_json, _ = _run(*args, "--json")
    assert json.loads(as_json.output)["schema"]["schema_id"] == 1


def test_the_history_is_shown_on_request() -> None:
    """`schema show` prints the schema in force, and with --history the earlier ones before it."""
    shown, _ = _run("show", "db.t")
    assert "earlier" not in shown.output
    history, _ = _run("show", "db.t", "--history")
    assert history.output.index("schema 0, earlier") < history.output.index("schema 1, in force")


def test_a_move_needs_one_position() -> None:
    """Neither and both are wrong usage."""
    assert _run("move", "db.t", "a")[0].exit_code == 2
    assert _run("move", "db.t", "a", "--first", "--after", "s")[0].exit_code == 2
