"""The table of the operations of the HTTP API: one value for each, by topic.

The service has a handler for each operation; the OpenAPI document and the client's calls are made from them. The values
are described in :mod:`lamella.snapshot.wire.operation`. The operations of Iceberg's catalog, Delta Sharing and advice
are in their own folders: ``snapshot/iceberg``, ``snapshot/sharing`` and ``snapshot/advice``.
"""

from __future__ import annotations

from typing import Any, Final

from lamella.snapshot.wire.operation import Operation, operations_of
from lamella.snapshot.wire.operations import (
    access,
    branches,
    clustering,
    commits,
    external,
    health,
    history,
    indexes,
    jobs,
    maintenance,
    prune,
    samples,
    tables,
    usage,
    views,
)

OPERATIONS: Final[tuple[Operation[Any], ...]] = tuple(
    operation
    for topic in (
        access,
        branches,
        clustering,
        commits,
        external,
        health,
        history,
        indexes,
        jobs,
        maintenance,
        prune,
        samples,
        tables,
        usage,
        views,
    )
    for operation in operations_of(topic)
)
