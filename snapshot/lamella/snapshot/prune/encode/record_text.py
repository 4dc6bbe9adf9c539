"""Blocks as JSON objects, many at once."""

from __future__ import annotations

from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lamella.snapshot.prune.encode.json_text import json_strings
from lamella.snapshot.prune.encode.slabs import OWN_SCHEMA, Numbers
from lamella.snapshot.prune.found import VERDICTS
from lamella.snapshot.prune.kept import Indexes

#: The verdicts as JSON strings, by code.
VERDICT_TEXTS: Final = pa.array([f'"{name}"' for name in VERDICTS], pa.large_string())


def record_texts(location: pa.Array, numbers: Numbers) -> pa.Array:
    """One JSON object a block, as :class:`~lamella.snapshot.wire.PrunedBlock` is written."""
    parts = [
        _text('{"location":"'),
        json_strings(location),
        _text('","row_count":'),
        _digits(numbers.row_count),
        _text(',"file_size":'),
        _digits(numbers.file_size),
        _text(',"verdict":'),
        VERDICT_TEXTS.take(pa.array(numbers.codes)),
    ]
    if numbers.column_size_bytes is not None:
        parts += [_text(',"column_size_bytes":'), _digits(numbers.column_size_bytes)]
    if numbers.schema_id is not None:
        member = pc.binary_join_element_wise(_text(',"schema_id":'), _digits(numbers.schema_id), _text(""))
        parts.append(pc.if_else(pa.array(numbers.schema_id == OWN_SCHEMA), _text(""), member))
    if numbers.residual is not None:
        parts += [_text(',"residual":'), _digits(numbers.residual)]
    return pc.binary_join_element_wise(*parts, _text("}"), _text(""))


def _digits(values: Indexes) -> pa.Array:
    return pc.cast(pa.array(np.ascontiguousarray(values)), pa.large_string())


def _text(value: str) -> pa.Scalar:
    return pa.scalar(value, pa.large_string())
