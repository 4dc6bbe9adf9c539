"""The typed HTTP client: :class:`Lamella` and, for asyncio, :class:`AsyncLamella`.

``call`` (what can be asked) and ``exchange`` (requests, retries, errors) do no I/O; ``client`` and ``async_client``
carry them out over a transport.
"""

from lamella.client.http.aggregated import Aggregated
from lamella.client.http.async_client import AsyncLamella, AsyncTable
from lamella.client.http.client import Lamella, Table
from lamella.client.http.pruned import Pruned
from lamella.client.http.retry import NO_RETRY, RetryPolicy

__all__ = ["NO_RETRY", "Aggregated", "AsyncLamella", "AsyncTable", "Lamella", "Pruned", "RetryPolicy", "Table"]
