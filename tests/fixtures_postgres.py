"""A private PostgreSQL server for tests. A pytest plugin with the fixtures ``postgres_url`` and ``postgres_database``,
and ``own_postgres`` for tests that stop the server.

Mark tests that use it with ``postgres``. It fails, and does not skip, when the server programs are missing.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pytest

from support.postgres_server import PostgresServer


@contextmanager
def _running(programs: Path) -> Iterator[PostgresServer]:
    server = PostgresServer(programs)
    try:
        server.start()
        yield server
    finally:
        server.remove()


@pytest.fixture(scope="session")
def postgres_url(postgres_bin: Path) -> Iterator[str]:
    """The address of an empty database, ``postgresql+psycopg://...``, on a server that ends with the session."""
    with _running(postgres_bin) as server:
        yield server.url.replace("postgresql://", "postgresql+psycopg://")


@pytest.fixture
def own_postgres(postgres_bin: Path) -> Iterator[PostgresServer]:
    """A running server of this test's own, to be stopped and started."""
    with _running(postgres_bin) as server:
        yield server


@pytest.fixture(scope="session")
def new_postgres_database(postgres_url: str) -> Callable[[], str]:
    """Creates one more empty database and returns its address."""
    numbers = itertools.count()

    def create() -> str:
        name = f"test_{os.getpid()}_{next(numbers)}"
        with psycopg.connect(postgres_url.replace("+psycopg", ""), autocommit=True) as connection:
            connection.execute(f'CREATE DATABASE "{name}"')
        return f"{postgres_url.rpartition('/')[0]}/{name}"

    return create


@pytest.fixture
def postgres_database(new_postgres_database: Callable[[], str]) -> str:
    """The address of an empty database of this test's own."""
    return new_postgres_database()
