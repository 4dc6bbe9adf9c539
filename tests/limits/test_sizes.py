"""Every member of every request is bounded: blown up, it is refused by name, and memory stays within bounds."""

from __future__ import annotations

import itertools
import tempfile
from collections.abc import Iterator
from functools import cache
from typing import Any

import msgspec
import pytest

from fuzz.guard import peak_bytes
from lamella.service.app import create_app
from lamella.service.config.settings import Settings
from lamella.service.http.admission import MAX_VALUES, read_json
from lamella.snapshot.errors import LimitExceeded
from lamella.snapshot.wire import CommitRequest, PruneRequest
from support.app_client import AppClient
from support.service_api import read_problem

COLUMNS = [{"name": "a", "type": "int64"}, {"name": "s", "type": "string"}]
#: What holds values of any form, whose size the filter language or the setting ``job_value_bytes`` bounds.
FREE = ("filter", "checkpoint", "result", "values", "ranges", "filters", "options", "arguments")
#: Types that are also parts of what is stored. They are bounded where they are looked at; tests below say how.
STORED = ("Block", "Column", "AddColumn", "Progress", "JobLine", "JobError")
#: Changes of a schema name columns; a path that is too long leads nowhere.
CHANGES = (
    "DropColumn",
    "RenameColumn",
    "WidenColumn",
    "MoveColumn",
    "SetNullable",
    "SetDefault",
    "SetDoc",
    "SetShredding",
)
#: The longest text that a body of a mebibyte can have is sent in place of one that may be longer.
LONGEST = 3_000_000
MIB = 1 << 20


@pytest.fixture(scope="module")
def app(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AppClient]:
    """An app with a table that has an index, a schedule's kind, and nothing else."""
    folder = tmp_path_factory.mktemp("sizes")
    settings = Settings(warehouse=str(folder / "w"), feedback=True, log_requests=False, max_body_bytes=256 * MIB)
    with AppClient(create_app(settings), raise_server_exceptions=False) as made:
        assert made.post("/v1/namespaces", json={"name": "n"}).status_code == 201
        properties = {"lamella.feedback.enabled": "true"}
        body = {"name": "t", "schema": COLUMNS, "properties": properties}
        assert made.post("/v1/namespaces/n/tables", json=body).status_code == 201
        index = {"name": "i", "kind": "bloom", "expression": "a"}
        assert made.post("/v1/namespaces/n/tables/t/indexes", json=index).status_code == 200
        yield made


@cache
def document() -> dict[str, Any]:
    """The API's description."""
    with tempfile.TemporaryDirectory() as folder:
        return dict(create_app(Settings(warehouse=folder)).openapi())


class Spot(msgspec.Struct, frozen=True):
    """A member of a request: the operation, the way to it, its schema, and the type that it is a member of."""

    method: str
    path: str
    way: tuple[str | int, ...]
    schema: dict[str, Any]
    owner: str

    @property
    def name(self) -> str:
        """For people."""
        return f"{self.method.upper()} {self.path} {'.'.join(map(str, self.way))}"


def spots() -> Iterator[tuple[Spot, dict[str, Any]]]:
    """Every list, map and text of every request, with the whole request that it is in."""
    for path, operations in document()["paths"].items():
        for method, operation in operations.items():
            content = operation.get("requestBody", {}).get("content", {})
            if "application/json" in content:
                schema = content["application/json"]["schema"]
                for way, found, owner in walk(schema, (), "", ()):
                    yield Spot(method, path, way, found, owner), schema


def resolved(schema: dict[str, Any]) -> tuple[dict[str, Any], str]:
    """A schema behind its reference, and its name there."""
    if "$ref" not in schema:
        return schema, ""
    name = schema["$ref"].rpartition("/")[2]
    return document()["components"]["schemas"][name], name


def walk(
    schema: dict[str, Any], way: tuple[str | int, ...], owner: str, above: tuple[str, ...]
) -> Iterator[tuple[tuple[str | int, ...], dict[str, Any], str]]:
    """What is bounded, or should be, below a schema."""
    found, name = resolved(schema)
    if name in above:
        return
    above, owner = (*above, name) if name else above, name or owner
    for each in itertools.chain(*(found.get(kind, ()) for kind in ("anyOf", "oneOf", "allOf"))):
        yield from walk(each, way, owner, above)
    kind = found.get("type")
    if kind == "object":
        for member, each in found.get("properties", {}).items():
            yield from walk(each, (*way, member), owner, above)
        more = found.get("additionalProperties")
        if isinstance(more, dict):
            yield way, found, owner
            yield from walk(more, (*way, "key"), owner, above)
    elif kind == "array":
        yield way, found, owner
        yield from walk(found["items"], (*way, 0), owner, above)
    elif kind == "string" and "enum" not in found and "const" not in found:
        yield way, found, owner


def bound_of(schema: dict[str, Any]) -> int | None:
    """How much there may be of it."""
    return next((schema[name] for name in ("maxLength", "maxItems", "maxProperties") if name in schema), None)


def is_free(spot: Spot) -> bool:
    """True for what has a bound of another kind."""
    return (
        any(part in FREE for part in spot.way)
        or spot.owner in (*STORED, *CHANGES)
        or any(part in ("added", "schema", "fields") for part in spot.way[:-1])
    )


def test_every_member_of_every_request_has_a_bound() -> None:
    """In the API's description, so that clients know it; what holds values of any form is bounded otherwise."""
    unbounded = {spot.name for spot, _ in spots() if bound_of(spot.schema) is None and not is_free(spot)}
    assert unbounded == set()
    assert len([spot for spot, _ in spots() if bound_of(spot.schema) is not None]) > 150


def smallest(schema: dict[str, Any]) -> Any:
    """A small value of a schema."""
    found, _ = resolved(schema)
    for kind in ("anyOf", "oneOf"):
        if kind in found:
            return smallest(found[kind][0])
    if "enum" in found:
        return found["enum"][0]
    if "const" in found:
        return found["const"]
    match found.get("type"):
        case "object":
            required = found.get("required", ())
            return {name: smallest(found["properties"][name]) for name in required}
        case "array":
            return [smallest(found["items"])] * found.get("minItems", 0)
        case "integer" | "number":
            return max(found.get("minimum", 1), 1)
        case "boolean":
            return False
        case "string":
            return "x" * max(found.get("minLength", 1), 1)
    return None


def blown_up(schema: dict[str, Any], maximum: int) -> Any:
    """A value with one more than may be."""
    if schema["type"] == "string":
        return "x" * (maximum + 1)
    if schema["type"] == "array":
        return [smallest(schema["items"]) if isinstance(schema.get("items"), dict) else 0] * (maximum + 1)
    return {f"k{number}": smallest(schema["additionalProperties"]) for number in range(maximum + 1)}


def request_with(schema: dict[str, Any], way: tuple[str | int, ...], value: Any) -> Any:
    """A small request of a schema with ``value`` in that place."""
    if not way:
        return value
    found, _ = resolved(schema)
    for kind in ("anyOf", "oneOf"):
        if kind in found:
            part = next(each for each in found[kind] if leads(each, way))
            return request_with(part, way, value)
    first, rest = way[0], way[1:]
    if first == 0:
        return [request_with(found["items"], rest, value)]
    if "additionalProperties" in found and isinstance(found["additionalProperties"], dict) and first == "key":
        return {"key": request_with(found["additionalProperties"], rest, value)}
    made = smallest(schema)
    made[first] = request_with(found["properties"][first], rest, value)
    return made


def leads(schema: dict[str, Any], way: tuple[str | int, ...]) -> bool:
    """True when there is such a way below a schema."""
    found, _ = resolved(schema)
    if not way and bound_of(found) is not None:
        return True
    for kind in ("anyOf", "oneOf"):
        if kind in found:
            return any(leads(each, way) for each in found[kind])
    if not way:
        return False
    first, rest = way[0], way[1:]
    if first == 0:
        return isinstance(found.get("items"), dict) and leads(found["items"], rest)
    if first == "key" and isinstance(found.get("additionalProperties"), dict):  # not a member of this name
        return leads(found["additionalProperties"], rest)
    return first in found.get("properties", {}) and leads(found["properties"][first], rest)


def target(path: str) -> str:
    """A path of the API with names of what is there."""
    names = {"namespace": "n", "table": "t", "index": "i", "share": "lamella"}
    return "/".join(names.get(part[1:-1], "none") if part.startswith("{") else part for part in path.split("/"))


def test_a_member_that_is_larger_than_it_may_be_is_refused_by_name(app: AppClient) -> None:
    """400 with the bound and the place, or 413 where no body can be that large."""
    wrong = []
    for spot, schema in spots():
        maximum = bound_of(spot.schema)
        if maximum is None or spot.schema.get("minItems") == maximum or "added" in spot.way:  # pairs; blocks' own
            continue
        value = blown_up(spot.schema, min(maximum, LONGEST))
        body = msgspec.json.encode(request_with(schema, spot.way, value))
        headers = {"content-type": "application/json"}
        answer = app.request(spot.method.upper(), target(spot.path), content=body, headers=headers)
        if spot.path.startswith(("/iceberg", "/delta-sharing")):  # their errors are in forms of their own
            is_refused = answer.status_code == 400 and f"more than {maximum}" in answer.text
            if not (is_refused or (answer.status_code == 413 and len(body) > MIB)):
                wrong.append(f"{spot.name}: {answer.status_code} {answer.text[:200]}")
            continue
        problem = read_problem(answer)
        if problem.status == 413 and len(body) > MIB:
            continue
        details = (problem.details.get("limit"), problem.details.get("maximum"))
        is_named = problem.code == "limit_exceeded" and details == ("length", maximum)
        if problem.status != 400 or not (is_named or maximum > LONGEST):
            wrong.append(f"{spot.name}: {problem.status} {problem.code} {problem.details}")
    assert wrong == []


@pytest.mark.parametrize(
    ("body", "limit", "maximum"),
    [
        ({"schema": [{"name": "x" * 1_025, "type": "int"}]}, "column_name", 1_024),
        ({"schema": [{"name": "x", "type": "t" * 1_025}]}, "column_type", 1_024),
        ({"schema": [{"name": "x", "type": "int", "doc": "d" * 65_537}]}, "column_doc", 65_536),
        (
            {
                "schema": [
                    {"name": "x", "type": "struct", "fields": [{"name": f"f{i}", "type": "int"} for i in range(20_000)]}
                ]
            },
            "columns",
            20_000,
        ),
    ],
)
def test_a_schema_is_bounded_as_a_whole(app: AppClient, body: dict[str, Any], limit: str, maximum: int) -> None:
    """The columns inside of others count, and texts are bounded each."""
    problem = read_problem(app.post("/v1/namespaces/n/tables", json={"name": "u", **body}))
    assert (problem.status, problem.code) == (400, "limit_exceeded")
    assert problem.details == {"limit": limit, "maximum": maximum}


def test_a_block_is_bounded_by_its_bytes(app: AppClient) -> None:
    """Whatever it holds."""
    block = {"location": "file:///x", "row_count": 1, "file_size": 1, "compression": "x" * (8 * MIB)}
    problem = read_problem(app.post("/v1/namespaces/n/tables/t/commits", json={"added": [block]}))
    assert (problem.status, problem.code) == (400, "limit_exceeded")
    assert problem.details == {"limit": "block_bytes", "maximum": 8 * MIB, "path": "$.added[0]"}


def test_lines_of_jobs_and_their_values_are_bounded(app: AppClient) -> None:
    """What a worker reports: so many lines, and values of so many bytes."""
    job = app.post("/v1/jobs", json={"kind": "vacuum", "table": "n.t"}).json()
    token = "0199aaaa-0000-7000-8000-000000000001"
    request = {"worker": "w", "lease_token": token, "lease_s": 60}
    assert app.post("/v1/jobs/claim", json=request).status_code == 200
    path, beat = f"/v1/jobs/{job['job_id']}/heartbeat", {"lease_token": token, "lease_s": 60}
    line = {"number": 1, "at_ms": 1, "text": "x"}
    for body in (
        {"log": [line] * 1_001},
        {"checkpoint": "x" * (256 << 10)},
        {"log": [{**line, "text": "x" * (70 * MIB)}], "checkpoint": ["x"] * 100_000},
    ):
        assert 400 <= app.post(path, json={**beat, **body}).status_code < 500
    long = {**line, "text": "x" * 10_000}
    assert app.post(path, json={**beat, "log": [long]}).status_code == 200
    text = app.get(f"/v1/jobs/{job['job_id']}/log").json()["lines"][0]["text"]
    assert len(text) <= 2_001


@pytest.mark.slow
@pytest.mark.parametrize("value", ["[]", "{}", '"ab"', "1.5", "0"])
@pytest.mark.few(2)
def test_reading_a_body_takes_bounded_memory(value: str) -> None:
    """A body of small values is refused before it is read when reading it would take many times its size."""
    text = f'{{"filter": [{",".join([value] * 6_000_000)}]}}'.encode()
    decoder = msgspec.json.Decoder(PruneRequest)

    def read() -> None:
        with pytest.raises(LimitExceeded) as refused:
            read_json(decoder, text)
        assert refused.value.details == {"limit": "json_values", "maximum": MAX_VALUES}

    assert peak_bytes(read) < 2 * len(text)
    allowed = f'{{"filter": [{",".join([value] * (MAX_VALUES // 3))}]}}'.encode()
    assert peak_bytes(lambda: read_json(decoder, allowed)) < 200 * MIB


def test_reading_a_commit_of_nothing_takes_bounded_memory() -> None:
    """Sixteen million blocks that are none."""
    text = b'{"added": [' + b"0," * 20_000_000 + b"0]}"

    def read() -> None:
        with pytest.raises(LimitExceeded):
            read_json(msgspec.json.Decoder(CommitRequest), text, max_values=16_000_000)

    assert peak_bytes(read) < 2 * len(text)


def test_an_operation_that_needs_no_large_body_takes_none(app: AppClient) -> None:
    """A mebibyte, said before it is sent or not."""
    body = msgspec.json.encode({"name": "x", "properties": {"a": "x" * MIB}})
    for content in (body, iter([body[:100], body[100:]])):
        answer = app.post("/v1/namespaces", content=content, headers={"content-type": "application/json"})
        problem = read_problem(answer)
        assert (problem.status, problem.code) == (413, "body_too_large")
        assert problem.details == {"limit": "body_bytes", "limit_bytes": MIB}
