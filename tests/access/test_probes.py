"""Every operation of the API, asked by those who may not: nothing is shown, nothing is done, nothing is hinted at."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest

from support.probes import PROBES, ProbeRequest, code_of, probe_request, requests
from support.tenants import Asker, TenantResources, Tenants

#: And the answer that they give.
NOBODY_NEEDED = {"startup": 200, "live": 200, "ready": 200, "iceberg_token": 400}
#: Done by names that a tenant gives within a table of its own; what the other tenant has by that name stays as it is.
OWN_NAMES = {("release_lease", "lease_id"), ("put_schedule", "schedule")}
ROLES = ("read", "write", "maintain", "admin")
_IDS = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")


@pytest.fixture(scope="module")
def tenants(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tenants]:
    """A service of two tenants."""
    with Tenants(tmp_path_factory.mktemp("tenants")) as tenants:
        yield tenants


def described(tenants: Tenants) -> dict[str, tuple[str, str, bool]]:
    """Method, path and whether a key is needed, of each operation of the OpenAPI document."""
    document = tenants.root.call("GET", "/openapi.json")
    return {
        operation["operationId"]: (method.upper(), path, bool(operation["security"]))
        for path, methods in document["paths"].items()
        for method, operation in methods.items()
    }


def test_every_operation_has_a_probe(tenants: Tenants) -> None:
    """One that has none would be one that nobody tried to get around."""
    assert set(PROBES) == set(described(tenants))


def test_nothing_is_answered_without_a_key(tenants: Tenants) -> None:
    """Without a key, with a wrong one, and with another scheme, all but the probes of health answers 401."""
    resources = tenants.resources("north")
    wrong = Asker(tenants.app, "lamella_" + "A" * 49)
    for name, (method, path, needs_key) in described(tenants).items():
        assert needs_key == (name not in NOBODY_NEEDED), name
        one = probe_request(method, path, PROBES[name], resources, resources, ())
        for who, headers in ((Asker(tenants.app, None), {}), (wrong, {}), (wrong, {"Authorization": "Basic YTpi"})):
            answer = who.send(one.method, one.path, one.body, **headers)
            if name in NOBODY_NEEDED:
                assert answer.status_code == NOBODY_NEEDED[name], name
            else:
                assert (answer.status_code, code_of(answer)) == (401, "unauthenticated"), name
                assert answer.headers["WWW-Authenticate"] == "Bearer"


@pytest.mark.slow
def test_an_admin_of_a_namespace_gets_nothing_of_another(tenants: Tenants) -> None:
    """Whichever parts of a request are another tenant's, nothing of that one is shown or changed."""
    mallory = tenants.asker({"role": "admin", "namespace": "south"})
    leaks = []
    for name, (method, path, _needs_key) in described(tenants).items():
        probe = PROBES[name]
        own, other = tenants.resources("south", *probe.needs), tenants.resources("north", *probe.needs)
        before = tenants.state(other)
        for one in requests(method, path, probe, own, other):
            if not one.swapped:
                continue
            answer = mallory.send(one.method, one.path, one.body)
            leaks += [f"{name} {one.swapped}: {answer.status_code} shows {word}" for word in shown(one, answer, other)]
            named = {part for part in re.findall(r"{(\w+)}", path) if (name, part) not in OWN_NAMES}
            if named & set(one.swapped) and answer.status_code < 400:
                leaks.append(f"{name} {one.swapped}: {answer.status_code}")
        after = tenants.state(other)
        if after != before:  # a change stays; an answer that a busy machine gave once does not
            after = tenants.state(other)
        leaks += [f"{name} changed {at}: {before[at]} to {after[at]}" for at in after if after[at] != before[at]]
    assert not leaks, "\n".join(leaks)


def shown(one: ProbeRequest, answer: Any, other: TenantResources) -> list[str]:
    """What of another tenant stands in an answer, but for what the request itself said."""
    said = one.path + json.dumps(one.body)
    text = answer.text + " ".join(f"{name}: {value}" for name, value in answer.headers.items())
    return [word for word in other.words() if word in text and word not in said]


@pytest.mark.slow
def test_what_may_not_be_seen_is_as_if_it_were_not_there(tenants: Tenants) -> None:
    """The answer about another's table is, word for word, that about a table that never was."""
    mallory = tenants.asker({"role": "admin", "namespace": "south"})
    differing = []
    for name, (method, path, _needs_key) in described(tenants).items():
        probe = PROBES[name]
        parts = tuple(re.findall(r"{(\w+)}", path))
        own, other = tenants.resources("south", *probe.needs), tenants.resources("north", *probe.needs)
        if all(getattr(own, part) == getattr(other, part) for part in parts):  # it names nothing of anybody's
            continue
        absent = absent_like(other)
        there, nowhere = (
            mallory.send(one.method, one.path, one.body)
            for one in (probe_request(method, path, probe, own, each, parts) for each in (other, absent))
        )
        one, two = plain(there, other), plain(nowhere, absent)
        if one != two:
            differing.append(f"{name}: {one} and {two}")
    assert not differing, "\n".join(differing)


def absent_like(resources: TenantResources) -> TenantResources:
    """Resources with names and ids that were never given."""
    words = {name: getattr(resources, name) for name in resources.__struct_fields__}
    changed = {
        name: f"{value}"[:-1] + "9" if _IDS.fullmatch(str(value)) else f"no{value}"
        for name, value in words.items()
        if isinstance(value, str) and name != "share"  # the one that all have
    }
    return TenantResources(**{**words, **changed})


def plain(answer: Any, resources: TenantResources) -> tuple[int, str]:
    """An answer's status and body, with the names of the resources taken out.

    So are suggestions of Mallory's own names, which depend on the spelling that was asked for
    (``test_suggestions.py``): another's name that was suggested would stay.
    """
    text = re.sub(r',"did_you_mean":"south[^"]*"', "", answer.text)
    for word in sorted(resources.words(), key=len, reverse=True):
        text = text.replace(word, "~")
    return answer.status_code, text


@pytest.mark.slow
@pytest.mark.parametrize("role", ROLES)
def test_the_role_that_is_said_is_enough_and_needed(tenants: Tenants, role: str) -> None:
    """With just the role that an operation says it needs it is done, and with the next lower one it is refused."""
    document = tenants.root.call("GET", "/openapi.json")
    wrong = []
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            found = re.search(r"Requires `(\w+)` on the (\w+)\.$", operation["description"])
            if found is None or found[1] != role:
                continue
            name = operation["operationId"]
            probe = PROBES[name]
            own = tenants.resources("south", *probe.needs)
            tenants.write(own.location, "another.parquet", own.column, own.value, 3)
            one = probe_request(method.upper(), path, probe, own, own, ())
            lower = ROLES[ROLES.index(role) - 1] if role != "read" else None
            if lower is not None:
                refused = tenants.asker(grant(lower, found[2], own)).send(one.method, one.path, one.body)
                if (refused.status_code, code_of(refused)) != (403, "permission_denied"):
                    wrong.append(f"{name} with {lower}: {refused.status_code} {refused.text}")
            done = tenants.asker(grant(role, found[2], own)).send(one.method, one.path, one.body)
            if not (done.status_code < 300 or done.status_code in probe.also):
                wrong.append(f"{name} with {role}: {done.status_code} {done.text}")
    assert not wrong, "\n".join(wrong)


def grant(role: str, on: str, resources: TenantResources) -> dict[str, str]:
    """A role on the server, on the namespace of the resources, or on its table."""
    found = {"role": role}
    if on != "server":
        found["namespace"] = resources.namespace
    if on == "table":
        found["table"] = resources.table
    return found
