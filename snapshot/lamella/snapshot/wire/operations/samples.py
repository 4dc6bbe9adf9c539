"""Samples of rows."""

from __future__ import annotations

from typing import Final

from lamella.snapshot.errors import (
    CorruptDeletes,
    EvaluationFailed,
    FilterNotEvaluable,
    LocationRefused,
    NotParquet,
    Overloaded,
    PermissionDenied,
    ReaderFeatureMissing,
    SchemaMismatch,
)
from lamella.snapshot.wire import SampleAnswer, SampleRequest
from lamella.snapshot.wire.operation import OF_A_FILTER, OF_A_SNAPSHOT, TABLE, Operation, on_table

SAMPLE: Final = Operation(
    name="sample",
    method="POST",
    path=TABLE + "/sample",
    permission=on_table("read"),
    summary="Read some rows",
    tag="Rows",
    description="Returns rows of a snapshot, with a filter those for which it is true. The service reads them from "
    "the table's files, within bounds on rows, blocks, bytes and time; the answer says how much was read, and whether "
    "it has all rows that match. Deleted rows are not in it. The setting `sample_rows` switches it off.",
    request_type=SampleRequest,
    answer_type=SampleAnswer,
    errors=(
        *OF_A_SNAPSHOT,
        *OF_A_FILTER,
        FilterNotEvaluable,
        EvaluationFailed,
        ReaderFeatureMissing,
        PermissionDenied,
        LocationRefused,
        NotParquet,
        SchemaMismatch,
        CorruptDeletes,
        Overloaded,
    ),
    is_question=True,
    is_large=True,
)
