"""Answers as an Arrow IPC stream: a record batch for each segment, and all but the blocks as metadata of the schema.

======================  ==========================  =========================================================
column                  type                        there
======================  ==========================  =========================================================
``location``            large_string                always
``row_count``           int64                       always
``file_size``           int64                       always
``verdict``             dictionary<uint8, string>   always
``schema_id``           int64, null: the snapshot's always
``column_size_bytes``   int64                       when ``columns`` were asked for
``residual``            int64                       when ``residuals`` were asked for
``url``                 large_string                with ``sign_urls``
======================  ==========================  =========================================================

The metadata ``lamella.answer`` is the answer as JSON, with none of its blocks.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import msgspec
import numpy as np
import pyarrow as pa

from lamella.snapshot.prune.encode.blocks import OWN_SCHEMA, Numbers, Slab, slabs
from lamella.snapshot.prune.result import VERDICTS, Found, columns_of
from lamella.snapshot.prune.selection import Indexes
from lamella.snapshot.wire import BlockColumns

#: The metadata of the schema that holds the answer.
ANSWER: Final = b"lamella.answer"
#: How a whole stream ends: a message of no length.
ARROW_END: Final = b"\xff\xff\xff\xff\x00\x00\x00\x00"

_VERDICTS: Final = pa.array(VERDICTS, pa.string())
_VERDICT_TYPE: Final = pa.dictionary(pa.uint8(), pa.string())


def has_arrow_form(found: Found) -> bool:
    """True when the answer is blocks without pages and without the bounds of an order, which have no columns."""
    return found.parts is not None and found.bounds is None and found.pages is None and found.shape != "ranges"


def arrow_chunks(found: Found) -> Iterator[bytes | memoryview]:
    """The stream, piece by piece; :func:`has_arrow_form` must hold."""
    schema = _schema(found)
    sink = _Sink()
    with pa.ipc.new_stream(sink, schema) as writer:
        yield from sink.taken()
        for arrays in _batches(found):
            writer.write_batch(pa.record_batch([arrays[name] for name in schema.names], schema=schema))
            yield from sink.taken()
    yield from sink.taken()


class _Sink:
    """What a writer wrote since it was last taken."""

    closed = False

    def __init__(self) -> None:
        self._written: list[bytes] = []

    def write(self, data: pa.Buffer | bytes) -> int:
        """Keep a copy: the writer uses its memory again."""
        self._written.append(bytes(data))
        return len(data)

    def taken(self) -> list[bytes]:
        """All that was written since."""
        written, self._written = self._written, []
        return written

    def flush(self) -> None:
        """Nothing waits here."""

    def close(self) -> None:
        """What was written can still be taken."""


def _schema(found: Found) -> pa.Schema:
    fields = [
        pa.field("location", pa.large_string(), nullable=False),
        pa.field("row_count", pa.int64(), nullable=False),
        pa.field("file_size", pa.int64(), nullable=False),
        pa.field("verdict", _VERDICT_TYPE, nullable=False),
        pa.field("schema_id", pa.int64()),
    ]
    if found.column_ids is not None:
        fields.append(pa.field("column_size_bytes", pa.int64(), nullable=False))
    if found.residual is not None:
        fields.append(pa.field("residual", pa.int64(), nullable=False))
    if found.urls is not None:
        fields.append(pa.field("url", pa.large_string(), nullable=False))
    return pa.schema(fields, metadata={ANSWER: msgspec.json.encode(found.answer)})


def _batches(found: Found) -> Iterator[dict[str, pa.Array]]:
    if found.order is None and found.urls is None:
        yield from (_of_slab(slab) for slab in slabs(found))
    elif found.parts:
        yield _of_columns(columns_of(found, found.parts))


def _of_slab(slab: Slab) -> dict[str, pa.Array]:
    numbers = slab.numbers
    return {
        "location": slab.location,
        "row_count": pa.array(numbers.row_count),
        "file_size": pa.array(numbers.file_size),
        "verdict": pa.DictionaryArray.from_arrays(pa.array(numbers.codes), _VERDICTS),
        "schema_id": _schema_ids(numbers),
        "column_size_bytes": _numbers(numbers.column_size_bytes),
        "residual": _numbers(numbers.residual),
    }


def _numbers(values: Indexes | None) -> pa.Array | None:
    return None if values is None else pa.array(values, pa.int64())


def _schema_ids(numbers: Numbers) -> pa.Array:
    if numbers.schema_id is None:
        return pa.nulls(len(numbers.codes), pa.int64())
    return pa.array(numbers.schema_id, mask=np.asarray(numbers.schema_id == OWN_SCHEMA))


def _of_columns(columns: BlockColumns) -> dict[str, pa.Array]:
    codes = pa.array([VERDICTS.index(verdict) for verdict in columns.verdict], pa.uint8())
    count = len(columns.location)
    return {
        "location": pa.array(columns.location, pa.large_string()),
        "row_count": pa.array(columns.row_count, pa.int64()),
        "file_size": pa.array(columns.file_size, pa.int64()),
        "verdict": pa.DictionaryArray.from_arrays(codes, _VERDICTS),
        "schema_id": pa.array(columns.schema_id or [None] * count, pa.int64()),
        "column_size_bytes": pa.array(columns.column_size_bytes or [0] * count, pa.int64()),
        "residual": pa.array(columns.residual or [0] * count, pa.int64()),
        "url": None if columns.url is None else pa.array(columns.url, pa.large_string()),
    }
