"""Delta logs with what the library at hand cannot write: deletion vectors, mapped columns, features."""

from __future__ import annotations

import json
import struct
import uuid
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

_Z85 = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"


def actions(table: Path, kind: str) -> list[dict[str, Any]]:
    """The actions of one kind in all commits, oldest first."""
    lines = [line for log in sorted((table / "_delta_log").glob("*.json")) for line in log.read_text().splitlines()]
    return [action[kind] for line in lines if kind in (action := json.loads(line))]


def commit(table: Path, *written: dict[str, Any]) -> None:
    """One more commit."""
    log = table / "_delta_log"
    version = len(list(log.glob("*.json")))
    (log / f"{version:020}.json").write_text("".join(json.dumps(action) + "\n" for action in written))


def protocol(*features: str) -> dict[str, Any]:
    """A protocol action with reader features."""
    both = {"readerFeatures": list(features), "writerFeatures": list(features)}
    return {"protocol": {"minReaderVersion": 3, "minWriterVersion": 7, **both}}


class MappedTable:
    """A Delta table with column mapping. Its columns are given as name, type, id and name in the files."""

    def __init__(self, folder: Path, mode: str, *partition_columns: str) -> None:
        self.folder = folder
        self._mode = mode
        self._partition_columns = partition_columns
        (folder / "_delta_log").mkdir(parents=True)

    def columns(self, *columns: tuple[str, Any, int, str], **configuration: str) -> None:
        """Write a commit with the table's columns."""
        fields = [
            {
                "name": name,
                "type": kind,
                "nullable": True,
                "metadata": {"delta.columnMapping.id": number, "delta.columnMapping.physicalName": in_files},
            }
            for name, kind, number, in_files in columns
        ]
        metadata = {
            "id": "3c5e7f0a-0000-4000-8000-000000000001",
            "format": {"provider": "parquet", "options": {}},
            "schemaString": json.dumps({"type": "struct", "fields": fields}),
            "partitionColumns": list(self._partition_columns),
            "configuration": {"delta.columnMapping.mode": self._mode, **configuration},
            "createdTime": 0,
        }
        commit(self.folder, protocol("columnMapping"), {"metaData": metadata})

    def add(self, name: str, rows: pa.Table, partition: Mapping[str, str | None] | None = None, **written: Any) -> None:
        """Write a file, whose columns have the names for files, and a commit that adds it; ``written``: how."""
        pq.write_table(rows, self.folder / name, **written)
        size = (self.folder / name).stat().st_size
        values = dict(partition or {})
        add = {"path": name, "partitionValues": values, "size": size, "modificationTime": 0, "dataChange": True}
        commit(self.folder, {"add": add})


def with_deleted_rows(table: Path, add: dict[str, Any], vector: Mapping[str, Any] | None) -> None:
    """Give a file another deletion vector, or none."""
    before = [each for each in actions(table, "add") if each["path"] == add["path"]][-1]
    after = {name: value for name, value in add.items() if name != "deletionVector"}
    commit(
        table,
        protocol("deletionVectors"),
        {"remove": {**before, "deletionTimestamp": 1}},
        {"add": after if vector is None else {**after, "deletionVector": vector}},
    )


def inline_vector(rows: Sequence[int]) -> dict[str, Any]:
    """A vector inside of the log."""
    body = _bitmap(rows)
    text = _z85(body + bytes(-len(body) % 4))
    return {"storageType": "i", "pathOrInlineDv": text, "sizeInBytes": len(body), "cardinality": len(rows)}


def vectors_in_file(
    table: Path, *each: Sequence[int], prefix: str = "", path: Path | None = None
) -> list[dict[str, Any]]:
    """Vectors in one file of the table, in a folder ``prefix``; ``path``: in this file instead."""
    number = uuid.uuid4()
    file = path or table / prefix / f"deletion_vector_{number}.bin"
    file.parent.mkdir(parents=True, exist_ok=True)
    data = b"\1"
    found = []
    for rows in each:
        body = _bitmap(rows)
        where = {"storageType": "u", "pathOrInlineDv": prefix + _z85(number.bytes)}
        if path is not None:
            where = {"storageType": "p", "pathOrInlineDv": path.as_uri()}
        found.append({**where, "offset": len(data), "sizeInBytes": len(body), "cardinality": len(rows)})
        data += struct.pack(">I", len(body)) + body + struct.pack(">I", zlib.crc32(body))
    file.write_bytes(data)
    return found


def _bitmap(rows: Sequence[int]) -> bytes:
    """A 64-bit roaring bitmap array with one array container (row numbers below 65,536)."""
    roaring = struct.pack("<IIHHI", 12346, 1, 0, len(rows) - 1, 16) + b"".join(struct.pack("<H", row) for row in rows)
    return struct.pack("<IQI", 1681511377, 1, 0) + roaring


def _z85(data: bytes) -> str:
    text = ""
    for at in range(0, len(data), 4):
        value, digits = int.from_bytes(data[at : at + 4], "big"), ""
        for _ in range(5):
            value, digit = divmod(value, 85)
            digits = _Z85[digit] + digits
        text += digits
    return text
