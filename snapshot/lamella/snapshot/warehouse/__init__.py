"""Tables in object storage; see :class:`Warehouse`."""

from lamella.snapshot.commit import Applied, ChangeSet
from lamella.snapshot.warehouse.commits import CommitResult, ManyCommitted
from lamella.snapshot.warehouse.objects import SnapshotObjects
from lamella.snapshot.warehouse.planning import PURGE_SHARE
from lamella.snapshot.warehouse.warehouse import Warehouse

__all__ = ["PURGE_SHARE", "Applied", "ChangeSet", "CommitResult", "ManyCommitted", "SnapshotObjects", "Warehouse"]
