"""The table of the operations of the HTTP API: one value for each, by topic.

The service gives each a handler, the OpenAPI document is written from them, and the client builds its calls from them.
What a value says is in :mod:`lamella.snapshot.wire.operation`. Iceberg's catalog, Delta Sharing and advice have their
operations in their own folders: ``snapshot/iceberg``, ``snapshot/sharing`` and ``snapshot/advice``.
"""

from __future__ import annotations

from typing import Any, Final

from lamella.snapshot.wire.operation import Operation, operations_of
from lamella.snapshot.wire.operations import (
    access,
    clustering,
    commits,
    external,
    health,
    history,
    indexes,
    jobs,
    maintenance,
    prune,
    tables,
    usage,
)

OPERATIONS: Final[tuple[Operation[Any], ...]] = tuple(
    operation
    for topic in (
        access,
        clustering,
        commits,
        external,
        health,
        history,
        indexes,
        jobs,
        maintenance,
        prune,
        tables,
        usage,
    )
    for operation in operations_of(topic)
)
