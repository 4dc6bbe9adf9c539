"""The JVM's own scan over the kept blocks of one read, whatever their columns were called when they were written.

Five ways, the first that is right for the blocks at hand:

``name``    every block has the columns that are read under their names of today (or lacks them, and has nothing under
            those names): Spark's Parquet reader, as ever.
``renamed`` all blocks have them under the same other names: the same reader, told the names of the files.
``id``      names differ from block to block, and Lamella's own writer made all of them: the same reader finds columns
            by the field ids that it wrote into the files, which are the column ids.
``python``  names differ from block to block in files of other writers: the blocks are read by pyarrow in Spark's
            Python workers, several times slower. Compaction ends it.
``signed``  the blocks are read by signed URLs, whatever their columns are called; in Python workers too, since Spark's
            own readers know no such URLs.

Spark's own skipping inside files goes by the names of its plan, so it is off in all ways but the first.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal

from lamella.client.spark.block_names import identified_struct, layouts
from lamella.client.spark.file_index import file_index
from lamella.client.spark.gateway import DATASOURCES, SQL, Gateway
from lamella.client.spark.lake import Kept, LakeTable
from lamella.client.spark.python_blocks import python_scan

Way = Literal["name", "renamed", "id", "python", "signed"]
#: What a plan's text says of the ways that are not the usual one.
NOTES: Final[dict[Way, str]] = {
    "renamed": "columns by earlier names",
    "id": "columns by field ids",
    "python": "READ IN PYTHON, files name columns differently",
    "signed": "READ IN PYTHON, by signed URLs",
}

_BY_ID: Final = {"spark.sql.parquet.fieldId.read.enabled": "true"}


class BlockScan:
    """A scan of the JVM's, and what Spark is told of it. ``schema`` is what it reads, by the names of the plan."""

    def __init__(
        self,
        gateway: Gateway,
        table: LakeTable,
        kept: Kept,
        required: Any,
        required_json: str,
        options: Any,
        *,
        pushed: Sequence[Any] = (),
    ) -> None:
        wanted = _with_defaults(json.loads(required_json), table)
        found = layouts(wanted, table.history, kept.schema_ids)
        plain = json.dumps(wanted)
        self.way: Way = _way(table, kept, list(found) or [plain], plain)
        self.schema = required
        if self.way in ("python", "signed"):
            self._native = None
            self._batch = python_scan(gateway, table, kept, plain).toBatch()
            return
        if self.way == "name":
            struct = gateway.struct_type(table.columns.readable)
            options_used = options
        else:
            text = json.dumps(identified_struct(wanted, table.schema)) if self.way == "id" else next(iter(found))
            struct = required = gateway.struct_type(text)
            options_used = _with_options(gateway, options, _BY_ID if self.way == "id" else {})
        index = file_index(gateway, kept, kept.digest(), struct)
        builder = gateway.java_class(DATASOURCES + "v2.parquet.ParquetScanBuilder")(
            _session(gateway, _settings(gateway, wanted)), index, struct, struct, options_used
        )
        if pushed and self.way == "name":
            builder.pushFilters(gateway.seq(pushed))
        builder.pruneColumns(gateway.struct_type(plain) if self.way == "name" else required)
        self._native = builder.build()
        self._batch = self._native.toBatch()
        if self.way == "name":
            self.schema = self._native.readSchema()

    def partitions(self) -> Any:
        """``InputPartition[]``."""
        return self._batch.planInputPartitions()

    def reader_factory(self) -> Any:
        """``PartitionReaderFactory``."""
        return self._batch.createReaderFactory()

    def size_bytes(self) -> int | None:
        """Spark's own estimate for the columns that are read; None when it has none."""
        if self._native is None:
            return None
        return int(self._native.estimateStatistics().sizeInBytes().getAsLong())


def _way(table: LakeTable, kept: Kept, found: Sequence[str], plain: str) -> Way:
    if table.settings.signed_urls:
        return "signed"
    if list(found) == [plain]:
        return "name"
    if len(found) == 1:
        return "renamed"
    return "id" if table.wrote_all(kept) else "python"


def _with_defaults(struct: dict[str, Any], table: LakeTable) -> dict[str, Any]:
    """The struct with the defaults of the table's columns in its metadata, whatever became of them in Spark's plan."""
    ours = {field["name"].lower(): field["metadata"] for field in json.loads(table.columns.shown)["fields"]}
    return {
        **struct,
        "fields": [
            {**field, "metadata": {**field["metadata"], **ours.get(field["name"].lower(), {})}}
            for field in struct["fields"]
        ],
    }


def _settings(gateway: Gateway, wanted: dict[str, Any]) -> dict[str, str]:
    """Session settings under which Spark's reader reads these columns right, where they differ from the session's."""
    settings = {}
    if gateway.spark.conf.get("spark.sql.caseSensitive", "false") == "true":
        settings["spark.sql.caseSensitive"] = "false"  # files may spell a name another way; the table has each once
    if any(field["type"] == "binary" and "EXISTS_DEFAULT" in field["metadata"] for field in wanted["fields"]):
        settings["spark.sql.parquet.enableVectorizedReader"] = "false"  # it has no default values of that type
    return settings


def _session(gateway: Gateway, settings: Mapping[str, str]) -> Any:
    """The session, or a copy of it with other settings: a scan takes them from the session that it is made with."""
    if not settings:
        return gateway.session
    copy = gateway.session.cloneSession()
    for name, value in settings.items():
        copy.sessionState().conf().setConfString(name, value)
    return copy


def _with_options(gateway: Gateway, options: Any, more: Mapping[str, str]) -> Any:
    if not more:
        return options
    merged = gateway.java_map(dict(more))
    merged.putAll(options.asCaseSensitiveMap())
    return gateway.java_class(SQL + "util.CaseInsensitiveStringMap")(merged)
