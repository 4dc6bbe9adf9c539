"""The real Delta Sharing client, in a process of its own: it leaves connections open, which pytest would be told of."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from typing import Any

import delta_sharing


class Refused(Exception):
    """What the client raised, as text."""


def pool() -> ProcessPoolExecutor:
    """One process that runs the functions below."""
    return ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn"))


def run(work: Callable[..., Any], *args: Any, **options: Any) -> Any:
    """Call one of the functions below there; errors of other packages may not be able to travel."""
    try:
        return work(*args, **options)
    except Exception as error:
        raise Refused(f"{type(error).__name__}: {error}") from None


def load(url: str, **options: Any) -> Any:
    """A table as a frame."""
    return delta_sharing.load_as_pandas(url, **options)


def version(url: str, starting: str | None) -> int:
    """A table's version."""
    return int(delta_sharing.get_table_version(url, starting))


def metadata(url: str) -> Any:
    """What a table looks like."""
    return delta_sharing.get_table_metadata(url)


def names(profile: str) -> list[str]:
    """Everything that the client lists, found in the two ways that it has."""
    client = delta_sharing.SharingClient(profile)
    found = [
        f"{table.share}.{table.schema}.{table.name}"
        for share in client.list_shares()
        for schema in client.list_schemas(share)
        for table in client.list_tables(schema)
    ]
    every = [f"{table.share}.{table.schema}.{table.name}" for table in client.list_all_tables()]
    assert found == every, (found, every)
    return found
