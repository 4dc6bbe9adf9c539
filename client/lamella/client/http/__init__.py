"""The typed HTTP client: :class:`Lamella` and, for asyncio, :class:`AsyncLamella`.

``call`` and a module for each feature say what can be requested; ``exchange`` (requests, retries, errors) does no I/O.
The methods that carry calls out over a transport are written in ``aio``, from which a script makes those in ``sync``;
``client`` and ``async_client`` are made of them. The names are loaded when they are first used: a feature can be
imported without the clients that are made of all of them.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lamella.client.http.async_client import AsyncLamella, AsyncTable
    from lamella.client.http.client import Lamella, Table
    from lamella.client.http.exchange import NO_RETRY, RetryPolicy
    from lamella.client.http.maintenance import SnapshotLease
    from lamella.client.http.results import AggregateResult, PruneResult
    from lamella.client.http.sync.jobs import Jobs

_HOMES = {
    "NO_RETRY": "exchange",
    "AggregateResult": "results",
    "AsyncLamella": "async_client",
    "AsyncTable": "async_client",
    "Jobs": "sync.jobs",
    "Lamella": "client",
    "PruneResult": "results",
    "RetryPolicy": "exchange",
    "SnapshotLease": "maintenance",
    "Table": "client",
}

__all__ = [
    "NO_RETRY",
    "AggregateResult",
    "AsyncLamella",
    "AsyncTable",
    "Jobs",
    "Lamella",
    "PruneResult",
    "RetryPolicy",
    "SnapshotLease",
    "Table",
]


def __getattr__(name: str) -> object:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{home}"), name)
