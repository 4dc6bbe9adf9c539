"""Every operation of the OpenAPI document, asked with requests that Schemathesis makes of it, by and without a key.

No request is answered with a 5xx, none with what the document does not say, none that is wrong by the document is
taken, and none is answered without a key that holds. A part of the requests is about a table that is there.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, Verbosity, given, seed, settings
from hypothesis.errors import Unsatisfiable
from schemathesis.checks import not_a_server_error
from schemathesis.core.failures import AcceptedNegativeData, FailureGroup
from schemathesis.specs.openapi import checks

from fixtures_server import start_shared
from lamella.service.config.settings import Settings
from support.probes import PROBES, probe_request
from support.served_tenants import SETTINGS, ServedTenants
from support.tenants import ROOT_KEY, TenantResources

KEY = {"Authorization": f"Bearer {ROOT_KEY}"}
#: All that can be judged of one answer by the document. Left out is the check that whatever fits the schemas is taken:
#: a name of any characters fits, and is refused.
CHECKS = [
    not_a_server_error,
    checks.status_code_conformance,
    checks.content_type_conformance,
    checks.response_headers_conformance,
    checks.response_schema_conformance,
    checks.negative_data_rejection,
    checks.ignored_auth,
    checks.unsupported_method,
]
MODES = (schemathesis.GenerationMode.POSITIVE, schemathesis.GenerationMode.NEGATIVE)
TIMEOUT = "Lamella-Timeout-Ms"
_NAMED = re.compile(r"{(\w+)}")


class Described:
    """A service and its description."""

    def __init__(self, url: str, tenants: ServedTenants) -> None:
        self.tenants = tenants
        self._schema: Any = schemathesis.openapi.from_url(f"{url}/openapi.json")

    def operation(self, name: str) -> Any:
        """An operation by its id."""
        return self._schema.find_operation_by_id(name)


@pytest.fixture(
    scope="module", params=["sqlite", pytest.param("postgres", marks=[pytest.mark.postgres, pytest.mark.soak])]
)
def service(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Described]:
    """One service for all operations, of two tenants."""
    folder = tmp_path_factory.mktemp("fuzz")
    given_settings: dict[str, Any] = {"warehouse": folder / "warehouse", **SETTINGS}
    if request.param == "postgres":
        given_settings["catalog"] = request.getfixturevalue("new_postgres_database")()
    server = start_shared(request.config, folder, given_settings)
    texts: dict[str, Any] = {name: str(value) for name, value in given_settings.items()}
    with ServedTenants(server.url, Settings(**texts).catalog_url) as tenants:
        yield Described(server.url, tenants)
    assert server.stop() == 0, server.log_text()


def judge(case: Any) -> int:
    """Send a request and hold its answer against the document; the status."""
    if str((case.headers or {}).get(TIMEOUT, "")).isdigit():
        case.headers[TIMEOUT] = "60000"  # less would be answered 503, and rightly
    answer = case.call(headers=KEY)
    try:
        case.validate_response(answer, checks=CHECKS, headers=KEY)
    except FailureGroup as group:
        wrong = [each for each in group.exceptions if not is_right(each, answer.status_code)]
        if wrong:
            raise FailureGroup(wrong) from None
    return int(answer.status_code)


def is_right(failure: BaseException, status: int) -> bool:
    """True for a request that was refused with a status that the check does not know, or wrong only in what does not
    count: a query parameter that there is none of, or a key in whose place we sent a right one."""
    if not isinstance(failure, AcceptedNegativeData):
        return False
    wrong = [line for line in str(failure).splitlines() if "violates" in line]
    return status >= 400 or all("Authorization" in line or "query: violates `additional" in line for line in wrong)


def right(operation: Any, name: str, resources: TenantResources) -> Any:
    """The request that the operation is for, about a table that is there."""
    probe = PROBES[name]
    one = probe_request(operation.method.upper(), operation.path, probe, resources, resources, ())
    path = {part: str(getattr(resources, part)) for part in _NAMED.findall(operation.path)}
    body = {} if one.body is None else {"body": one.body, "media_type": "application/json"}
    return operation.Case(path_parameters=path, query=dict(parse_qsl(urlsplit(one.path).query)), **body)


def generated(operation: Any, resources: TenantResources, mode: Any, count: int) -> Callable[[], None]:
    """Judges ``count`` requests of a kind, three of four of them about the resources where they fit the schemas."""
    numbers = itertools.count()

    @seed(1)
    @settings(
        max_examples=count,
        database=None,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
        verbosity=Verbosity.quiet,
    )
    @given(operation.as_strategy(generation_mode=mode))
    def run(case: Any) -> None:
        if next(numbers) % 4 and mode is schemathesis.GenerationMode.POSITIVE:
            for part in case.path_parameters or {}:
                case.path_parameters[part] = str(getattr(resources, part))
        judge(case)

    judged: Callable[[], None] = run
    return judged


def fuzz(service: Described, name: str, count: int) -> None:
    """Judge requests of an operation: the right one, and generated ones about another table."""
    operation, tenants = service.operation(name), service.tenants
    resources = tenants.resources("north", *PROBES[name].needs)
    tenants.write(resources.location, "another.parquet", resources.column, resources.value, part=2)
    status = judge(right(operation, name, resources))
    assert status < 300 or status in PROBES[name].also
    resources = tenants.resources("north", *PROBES[name].needs)
    for mode in MODES:
        try:
            generated(operation, resources, mode, count)()
        except Unsatisfiable:
            assert mode is schemathesis.GenerationMode.NEGATIVE  # nothing can be wrong where nothing is sent


@pytest.mark.parametrize("name", PROBES)
@pytest.mark.few(64)
def test_requests_are_answered_as_the_document_says(service: Described, name: str) -> None:
    """Right ones, generated ones that fit the schemas, and generated ones that do not."""
    fuzz(service, name, 2)


@pytest.mark.soak
@pytest.mark.parametrize("name", PROBES)
def test_many_requests_are_answered_as_the_document_says(service: Described, name: str) -> None:
    """As above, 200 of each kind."""
    fuzz(service, name, 200)
