"""Tables in object storage; see :class:`Warehouse`."""

from lamella.snapshot.warehouse.changes import CommitResult
from lamella.snapshot.warehouse.warehouse import Warehouse

__all__ = ["CommitResult", "Warehouse"]
