"""A service for all tests of this folder, and a table of each test's own."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest

from fixtures_server import ServerProcess, start_shared
from lamella.client import Lamella
from lamella.client.http import Table
from lamella.snapshot.schema import Column
from support.service_api import fresh_name

MakeTable = Callable[..., Table]


@pytest.fixture(scope="session")
def shared_server(pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """A service with SQLite and a local warehouse."""
    folder = tmp_path_factory.mktemp("write")
    server = start_shared(pytestconfig, folder, {"warehouse": folder / "warehouse"})
    yield server
    server.stop()


@pytest.fixture
def lake(shared_server: ServerProcess) -> Iterator[Lamella]:
    """A client of the service."""
    with Lamella(shared_server.url) as lake:
        yield lake


@pytest.fixture
def make_table(lake: Lamella) -> MakeTable:
    """Create a table in a namespace of its own: columns as ``name=type``, or as :class:`Column`."""

    def make(*columns: Column, cluster_key: Sequence[str] = (), **types: Any) -> Table:
        namespace = fresh_name("written")
        lake.create_namespace(namespace)
        options = {name: types.pop(name) for name in ("properties", "cluster_kind") if name in types}
        plain = [Column(name=name, type=kind) for name, kind in types.items()]
        name = f"{namespace}.t"
        lake.create_table(name, schema=[*columns, *plain], cluster_key=cluster_key, **options)
        return lake.table(name)

    return make
