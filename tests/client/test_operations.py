"""The client's calls follow from the table of operations."""

from __future__ import annotations

import ast
import importlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from lamella.client.http.call import TableName, decode_as, make_call
from lamella.snapshot.advice import operations as advice
from lamella.snapshot.errors import InvalidRequest
from lamella.snapshot.wire import RenewRequest, SnapshotList, operations
from lamella.snapshot.wire.operation import Operation, operations_of

CLIENT: Final = Path(__file__).resolve().parents[2] / "client" / "lamella" / "client"
NAME: Final = TableName("a.b", "t/u")
#: Operations that the client does not offer, with the reason.
NOT_OFFERED: Final = {
    "startup": "for the orchestrator's probe",
    "live": "for the orchestrator's probe",
    "ready": "for the orchestrator's probe",
    "metrics": "for Prometheus",
    "get_namespace": "`namespaces()` has the same of each",
}


def calls() -> Iterator[tuple[str, ast.Call, Operation[Any]]]:
    """The name of the function, the expression and the operation of each call that the client's modules make."""
    for path in CLIENT.rglob("*.py"):
        tree = ast.parse(path.read_text("utf-8"))
        homes = {
            alias.name: f"{node.module}.{alias.name}"
            for node in ast.walk(tree)
            if isinstance(node, ast.ImportFrom)
            for alias in node.names
            if alias.name == "operations"
        }
        for function in (each for each in ast.walk(tree) if isinstance(each, ast.FunctionDef)):
            for node in ast.walk(function):
                if isinstance(node, ast.Call) and ast.unparse(node.func) == "make_call":
                    found: Any = importlib.import_module(homes["operations"])
                    for part in ast.unparse(node.args[0]).split(".")[1:]:
                        found = getattr(found, part)
                    assert isinstance(found, Operation)
                    yield function.name, node, found


def test_the_client_offers_every_operation() -> None:
    """But for those that are listed here with the reason; Iceberg and Delta Sharing have clients of their own."""
    described = {each.name for each in (*operations.OPERATIONS, *operations_of(advice))}
    reached = {operation.name for _, _, operation in calls()}
    assert reached == described - set(NOT_OFFERED)
    assert set(NOT_OFFERED) <= described


def test_no_path_is_written_out_in_the_client() -> None:
    """It is in the table."""
    found = []
    for path in (*(CLIENT / "http").rglob("*.py"), *(CLIENT / "advice").rglob("*.py")):
        if path.name == "fake_transport.py":
            continue  # an example in its docstring
        tree = ast.parse(path.read_text("utf-8"))
        texts = [node.value for node in ast.walk(tree) if isinstance(node, ast.Constant)]
        found += [f"{path.name}: {text!r}" for text in texts if isinstance(text, str) and "/v1/" in text]
    assert found == []


def test_a_call_sends_what_its_operation_takes() -> None:
    """A body and parameters where it has them, every name of its path, and what to do where its answer can be lost."""
    for function, node, operation in calls():
        given = {keyword.arg for keyword in node.keywords}
        names = given - {"body", "query", "once"} | ({"namespace", "table"} if len(node.args) > 1 else set())
        assert names == set(operation.path_parameters), function
        assert ("body" in given) == (operation.request_type is not None), function
        assert ("once" in given) == (operation.resend == "never"), function
        assert "query" not in given or any(each.location == "query" for each in operation.parameters), function


def test_a_call_has_what_the_table_says() -> None:
    """Names are quoted, so that each stays one part of the path."""
    call = make_call(operations.maintenance.RENEW_LEASE, NAME, lease_id="l?", body=RenewRequest(ttl_s=5))
    assert (call.method, call.path) == ("POST", "/v1/namespaces/a.b/tables/t%2Fu/leases/l%3F")
    assert call.template == "/v1/namespaces/{namespace}/tables/{table}/leases/{lease_id}"
    assert call.answer is operations.maintenance.RENEW_LEASE.answer_type
    assert (call.body, call.mutates, call.once) == (b'{"ttl_s":5}', False, None)
    assert make_call(operations.commits.COMMIT, NAME).mutates
    assert make_call(operations.access.REVOKE_KEY, key="k").mutates


def test_parameters_that_say_nothing_are_not_sent() -> None:
    """None, False and an empty list; True is `true`, 0 is sent, and a list is sent one by one."""
    query = {"a": None, "b": False, "c": True, "d": 0, "e": ("x", "y z"), "f": ()}
    call = make_call(operations.history.LIST_SNAPSHOTS, NAME, query=query)
    assert call.path == "/v1/namespaces/a.b/tables/t%2Fu/snapshots?c=true&d=0&e=x&e=y+z"
    assert make_call(operations.history.LIST_SNAPSHOTS, NAME, query={"f": ()}).path.endswith("/snapshots")


def test_an_empty_name_is_refused_before_it_is_sent() -> None:
    """It would be the path of another operation."""
    with pytest.raises(InvalidRequest, match="the id of the lease is empty"):
        make_call(operations.maintenance.RENEW_LEASE, NAME, lease_id="")
    with pytest.raises(InvalidRequest, match="the name of the index is empty"):
        make_call(operations.indexes.SHOW_INDEX, NAME, index="")


def test_an_answer_can_be_decoded_as_another_type() -> None:
    """The rest of the call is the same."""

    class OfOurs(SnapshotList, frozen=True):
        """A type with methods."""

    call = make_call(operations.history.LIST_SNAPSHOTS, NAME)
    ours = decode_as(OfOurs, call)
    assert ours.answer is OfOurs
    assert (ours.method, ours.path, ours.mutates) == (call.method, call.path, call.mutates)
