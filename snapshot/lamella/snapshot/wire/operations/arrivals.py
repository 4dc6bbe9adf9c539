"""Files that arrived."""

from __future__ import annotations

from typing import Final

from lamella.snapshot.errors import (
    BodyTooLarge,
    CommitConflict,
    DeletionPending,
    InvalidRequest,
    InvalidSchema,
    LimitExceeded,
    LocationRefused,
    NotProven,
    ObjectNotFound,
    OutcomeUnknown,
    Overloaded,
    QuotaExceeded,
    SchemaConflict,
    StoreError,
    Unavailable,
)
from lamella.snapshot.wire import ArrivalsAnswer, ArrivalsRequest
from lamella.snapshot.wire.operation import OF_A_TABLE, TABLE, Operation, Parameter, on_table

REGISTER_ARRIVALS: Final = Operation(
    name="register_arrivals",
    method="POST",
    path=TABLE + "/arrivals",
    permission=on_table("write"),
    summary="Register files that arrived",
    tag="Blocks",
    description="The body is an S3 event notification, also as SNS or EventBridge sends it, or a list of locations. "
    "Each new data file that it names is registered, all of them in one snapshot; a file that the table has, or had, "
    "is counted and not added again, so that a message may come any number of times. A file of the table that was "
    "overwritten is refused with `block_replaced`. An external table is refreshed if a file below its location was "
    "created or deleted. Refused files are listed in the answer, which is no error: to send the message again would "
    "change nothing. Only if storage failed for a file of an event notification, or a writer was still at work on it, "
    "is the answer the error `store_error`: then the message should be sent again.",
    request_type=ArrivalsRequest,
    answer_type=ArrivalsAnswer,
    own_parameters=(
        Parameter(name="prefix", description="Only files whose location begins with this text."),
        Parameter(name="suffix", description="Only files whose name ends with this text. Default: `.parquet`."),
    ),
    errors=(
        InvalidRequest,
        LimitExceeded,
        LocationRefused,
        InvalidSchema,
        BodyTooLarge,
        ObjectNotFound,
        Overloaded,
        *OF_A_TABLE,
        CommitConflict,
        DeletionPending,
        NotProven,
        QuotaExceeded,
        SchemaConflict,
        StoreError,
        Unavailable,
        OutcomeUnknown,
    ),
    is_large=True,
)
