"""Rows of the catalog's database as values, and values as rows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Generic, TypeVar

import msgspec

from lamella.service.catalog.port import HistoryEntry, TableRecord
from lamella.snapshot.errors import CatalogDamaged
from lamella.snapshot.manifest import SnapshotPointer

_T = TypeVar("_T")


class StoredJson(Generic[_T]):
    """Reads the JSON text of a column as a value; ``what`` names it in errors."""

    def __init__(self, kind: type[_T], what: str) -> None:
        self._decoder = msgspec.json.Decoder(kind)
        self._what = what

    def decode(self, text: str | bytes) -> _T:
        """The value; raises CatalogDamaged for a text that nobody can have written there."""
        try:
            return self._decoder.decode(text)
        except (msgspec.MsgspecError, UnicodeError, RecursionError, TypeError) as error:
            raise CatalogDamaged(f"{self._what} in the catalog is damaged: {error}", what=self._what) from error


_POINTER = StoredJson(SnapshotPointer, "the pointer of a snapshot")


def json_text(value: object) -> str:
    """A value as the JSON text that a column holds."""
    return msgspec.json.encode(value).decode()


def table_record(row: Mapping[Any, Any]) -> TableRecord:
    """A table from its row, joined with its namespace's name."""
    return TableRecord(**{**row, "pointer": _POINTER.decode(row["pointer"])})


def entry_record(row: Mapping[Any, Any]) -> HistoryEntry:
    """A snapshot of a table's history from its row."""
    return HistoryEntry(**{**row, "pointer": _POINTER.decode(row["pointer"])})


def snapshot_row(table_id: str, entry: HistoryEntry) -> dict[str, Any]:
    """The row of a snapshot."""
    return {
        **msgspec.structs.asdict(entry),
        "table_id": table_id,
        "snapshot_id": entry.pointer.snapshot_id,
        "timestamp_ms": entry.pointer.timestamp_ms,
        "pointer": json_text(entry.pointer),
    }
