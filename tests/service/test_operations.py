"""The table of operations and the routes of the service say the same."""

from __future__ import annotations

import pkgutil
from collections import Counter
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import msgspec
import pytest

from lamella import service
from lamella.service import composition
from lamella.service.catalog import open_catalog
from lamella.service.composition import Core
from lamella.service.config.settings import Settings
from lamella.service.extensions import register_all
from lamella.service.http.routing import ServedOperation
from lamella.snapshot import advice, iceberg, sharing
from lamella.snapshot.ids import Ids, unix_ms
from lamella.snapshot.storage import FsspecStore
from lamella.snapshot.wire import ServiceConfig
from lamella.snapshot.wire import operations as table
from lamella.snapshot.wire.operation import JSON, PATH_PARAMETERS, Nothing, Operation, operations_of

#: Each has its part of the table in its own folder.
WORLDS = (advice, iceberg, sharing)


def described() -> tuple[Operation[Any], ...]:
    """Every operation of the table."""
    worlds = (import_module(f"{world.__name__}.operations") for world in WORLDS)
    return (*table.OPERATIONS, *(each for world in worlds for each in operations_of(world)))


@pytest.fixture
def served(tmp_path: Path) -> Iterator[tuple[ServedOperation, ...]]:
    """The routes of a service with all of its parts."""
    settings = Settings(warehouse=str(tmp_path / "w"))
    catalog = open_catalog(settings.catalog_url)
    core = Core(settings, store=FsspecStore(), catalog=catalog, ids=Ids(), clock=unix_ms)
    register_all(core)
    try:
        yield composition.operations(core)
    finally:
        core.close()


def test_every_topic_is_in_the_table() -> None:
    """A module that is added beside the others would be missing from it otherwise."""
    topics = [import_module(f"{table.__name__}.{each.name}") for each in pkgutil.iter_modules(table.__path__)]
    assert Counter(each.name for each in table.OPERATIONS) == Counter(
        each.name for topic in topics for each in operations_of(topic)
    )


def test_every_operation_has_one_route(served: tuple[ServedOperation, ...]) -> None:
    """And every route is of an operation of the table, which is the very value and no copy."""
    assert Counter(id(each.operation) for each in served) == Counter(id(each) for each in described())


def test_no_two_operations_share_a_name_or_a_request() -> None:
    """Their names are ids of the OpenAPI document; a method of a path has one meaning."""
    names = Counter(each.name for each in described())
    requests = Counter((each.method, each.path) for each in described())
    assert set(names.values()) == set(requests.values()) == {1}


def test_a_permission_is_of_what_the_path_names() -> None:
    """A role on a table needs the table in the path, and one on a namespace the namespace."""
    for each in described():
        needed = {"table": {"namespace", "table"}, "namespace": {"namespace"}}.get(each.permission.scope, set())
        assert needed <= set(each.path_parameters), each.name
        assert (each.permission.role is None) == (each.permission.scope in ("public", "authenticated", "request"))


def test_the_service_asks_for_the_permission_of_the_table(served: tuple[ServedOperation, ...]) -> None:
    """For another one only where a setting opens an operation to all."""
    others = {each.operation.name for each in served if each.permission != each.operation.permission}
    assert others <= {"metrics"}


def test_what_is_said_of_a_request_fits_its_method() -> None:
    """A read is never sent with a key, a body comes with a POST or PUT, and 204 has no body."""
    for each in described():
        assert not (each.is_read and each.resend != "freely"), each.name
        assert each.request_type is None or each.method in ("POST", "PUT"), each.name
        assert each.status != 204 or each.answer_type is Nothing, each.name
        assert not each.is_large or each.request_type is not None, each.name
        assert not each.is_question or each.method == "POST", each.name


def test_every_parameter_is_described() -> None:
    """Of the path by its name, and a limit that is a setting by a setting that clients can look up."""
    for each in described():
        assert set(each.path_parameters) <= set(PATH_PARAMETERS), each.name
        assert len({(p.location, p.name) for p in each.parameters}) == len(each.parameters), each.name
        for parameter in each.parameters:
            if parameter.maximum_setting is not None:
                assert parameter.maximum_setting in ServiceConfig.__struct_fields__
                assert parameter.maximum_setting in Settings.model_fields


def test_handlers_decode_the_types_of_the_table() -> None:
    """What the table says a request is, is what the routes of the topic read; a form is no JSON."""
    decoded: dict[ModuleType, set[Any]] = {}  # several modules of routes may serve one topic
    for path in sorted(Path(service.__path__[0]).glob("*/*.py")):
        if "ServedOperation(operations." not in path.read_text("utf-8"):
            continue
        routes = import_module(f"{service.__name__}.{path.parent.name}.{path.stem}")
        read = {value.type for value in vars(routes).values() if isinstance(value, msgspec.json.Decoder)}
        decoded.setdefault(routes.operations, set()).update(read)
    for topic, types in decoded.items():
        assert types == {
            each.request_type
            for each in operations_of(topic)
            if each.request_type is not None and each.request_media_type == JSON
        }, topic
