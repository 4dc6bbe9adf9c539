"""The typed HTTP client: :class:`Lamella` and, for asyncio, :class:`AsyncLamella`.

``call`` and one module for each feature define the requests; ``exchange`` (requests, retries, errors) does no I/O.
The methods that send calls over a transport are written in ``aio``; a script generates those in ``sync`` from them.
``client`` and ``async_client`` combine these methods. Names are loaded when they are first used, so a feature can be
imported without the clients.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lamella.client.http.async_client import AsyncLamella
    from lamella.client.http.async_rows import AsyncTable
    from lamella.client.http.client import Lamella, Table
    from lamella.client.http.exchange import NO_RETRY, RetryPolicy
    from lamella.client.http.maintenance import SnapshotLease
    from lamella.client.http.results import AggregateResult, PruneResult
    from lamella.client.http.sync.jobs import Jobs

_HOMES = {
    "NO_RETRY": "exchange",
    "AggregateResult": "results",
    "AsyncLamella": "async_client",
    "AsyncTable": "async_rows",
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
