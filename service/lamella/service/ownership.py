"""Whose files are whose: what stands in a table's folder belongs to that table and goes with it."""

from __future__ import annotations

from lamella.snapshot.errors import InvalidRequest
from lamella.snapshot.vacuum import foreign_table
from lamella.snapshot.warehouse import Warehouse


def require_own(warehouse: Warehouse, table_id: str, location: str) -> None:
    """Raise InvalidRequest for a file in another table's folder.

    That table's clean-up looks only at its own snapshots, and would delete a file that this one needs.
    """
    other = foreign_table(warehouse, table_id, location)
    if other is not None:
        raise InvalidRequest(f"the file belongs to another table, {other}; copy it", location=location, table_id=other)
