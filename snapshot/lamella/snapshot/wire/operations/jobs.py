"""Jobs, workers, schedules and policies."""

from __future__ import annotations

from typing import Final, get_args

from lamella.snapshot.errors import (
    BodyTooLarge,
    IdempotencyMismatch,
    InvalidPageToken,
    InvalidRequest,
    JobFinished,
    JobLeaseLost,
    JobNotFound,
    JobRunning,
    LocationRefused,
    NamespaceNotFound,
    OutcomeUnknown,
    PolicyNotFound,
    ScheduleNotFound,
    TableNotFound,
    Unavailable,
)
from lamella.snapshot.wire import (
    ClaimAnswer,
    ClaimJob,
    DueAnswer,
    FinishJob,
    Heartbeat,
    HeartbeatAnswer,
    JobInfo,
    JobKindList,
    JobList,
    JobLog,
    JobState,
    Policy,
    PolicyInfo,
    PutSchedule,
    ScheduleInfo,
    ScheduleList,
    SubmitJob,
)
from lamella.snapshot.wire.operation import (
    AUTHENTICATED,
    BY_REQUEST,
    OF_A_TABLE,
    TABLE,
    Nothing,
    Operation,
    Parameter,
    on_server,
    on_table,
)

_JOBS: Final = "/v1/jobs"
_JOB: Final = "/v1/jobs/{job_id}"

#: Jobs in one answer, when the request does not say.
DEFAULT_PAGE: Final = 100
#: Lines of a log in one answer: when the request does not say, and at most.
DEFAULT_LINES: Final = 1_000
MAX_LINES: Final = 10_000

_SCHEDULES: Final = TABLE + "/schedules"
_SCHEDULE: Final = TABLE + "/schedules/{schedule}"

_POLICY: Final = TABLE + "/policy"

LIST_JOB_KINDS: Final = Operation(
    name="list_job_kinds",
    method="GET",
    path="/v1/job-kinds",
    permission=AUTHENTICATED,
    summary="List the kinds of jobs",
    tag="Jobs",
    answer_type=JobKindList,
)

SUBMIT_JOB: Final = Operation(
    name="submit_job",
    method="POST",
    path=_JOBS,
    permission=BY_REQUEST,
    summary="Submit a job",
    tag="Jobs",
    description="The job is queued until a worker claims it. With `unique`, if an identical job is pending, that job "
    "is returned instead, with status 200.",
    request_type=SubmitJob,
    answer_type=JobInfo,
    status=201,
    errors=(
        InvalidRequest,
        LocationRefused,
        BodyTooLarge,
        NamespaceNotFound,
        TableNotFound,
        IdempotencyMismatch,
        Unavailable,
        OutcomeUnknown,
    ),
    resend="with_key",
    is_large=True,
)

LIST_JOBS: Final = Operation(
    name="list_jobs",
    method="GET",
    path=_JOBS,
    permission=BY_REQUEST,
    summary="List jobs, newest first",
    tag="Jobs",
    description="Results are left out; get a job by its id to see its result.",
    answer_type=JobList,
    own_parameters=(
        Parameter(name="table", description="Only jobs for this `namespace.table`."),
        Parameter(
            name="state",
            description=f"Only jobs in one of these states, of {', '.join(get_args(JobState))}: `queued,running`.",
        ),
        Parameter(name="kind", description="Only jobs of one of these kinds: `compact,recluster`."),
        Parameter(
            name="page_size",
            description=f"Maximum number of jobs in the answer; default: {DEFAULT_PAGE}.",
            schema={"type": "integer", "minimum": 1},
            maximum_setting="page_size_max",
        ),
        Parameter(name="page_token", description="`next_page_token` of the previous answer."),
    ),
    errors=(InvalidRequest, InvalidPageToken, Unavailable),
)

GET_JOB: Final = Operation(
    name="get_job",
    method="GET",
    path=_JOB,
    permission=BY_REQUEST,
    summary="Get the current state of a job",
    tag="Jobs",
    answer_type=JobInfo,
    errors=(JobNotFound, Unavailable),
)

GET_JOB_LOG: Final = Operation(
    name="get_job_log",
    method="GET",
    path=_JOB + "/log",
    permission=BY_REQUEST,
    summary="Get a job's log",
    tag="Jobs",
    description="To follow the log, repeat the request with the `after` of the previous answer.",
    answer_type=JobLog,
    own_parameters=(
        Parameter(
            name="after",
            description="Only lines after the line with this number.",
            schema={"type": "integer", "minimum": 0},
        ),
        Parameter(
            name="limit",
            description=f"Maximum number of lines in the answer; default: {DEFAULT_LINES}.",
            schema={"type": "integer", "minimum": 1, "maximum": MAX_LINES},
        ),
    ),
    errors=(InvalidRequest, JobNotFound, Unavailable),
)

CANCEL_JOB: Final = Operation(
    name="cancel_job",
    method="POST",
    path=_JOB + "/cancel",
    permission=BY_REQUEST,
    summary="Cancel a job",
    tag="Jobs",
    description="A queued job ends at once. A running job is stopped by its worker after its next heartbeat; until "
    "then it has `cancel_requested`. The request can safely be repeated.",
    answer_type=JobInfo,
    errors=(JobNotFound, JobFinished, Unavailable),
)

RETRY_JOB: Final = Operation(
    name="retry_job",
    method="POST",
    path=_JOB + "/retry",
    permission=BY_REQUEST,
    summary="Retry a job",
    tag="Jobs",
    description="A failed or cancelled job is queued again with all of its attempts, and continues from its "
    "checkpoint. A queued job with a delay becomes due at once.",
    answer_type=JobInfo,
    errors=(JobNotFound, JobRunning, JobFinished, Unavailable),
)

_OF_A_WORKER: Final = (InvalidRequest, BodyTooLarge, JobNotFound, JobLeaseLost, Unavailable)

CLAIM_JOB: Final = Operation(
    name="claim_job",
    method="POST",
    path=_JOBS + "/claim",
    permission=on_server("maintain"),
    summary="Claim the next job",
    tag="Workers",
    description="Returns the oldest job of the highest priority whose table has no running job. The worker holds the "
    "job until its lease expires; a heartbeat extends the lease. Status 204: there is no job. A repeated request with "
    "the same `lease_token` returns the same job.",
    request_type=ClaimJob,
    answer_type=ClaimAnswer,
    errors=(InvalidRequest, BodyTooLarge, Unavailable),
    is_recorded=False,
)

ENQUEUE_DUE_JOBS: Final = Operation(
    name="enqueue_due_jobs",
    method="POST",
    path=_JOBS + "/due",
    permission=on_server("maintain"),
    summary="Enqueue jobs that are due by schedules and policies",
    tag="Workers",
    description="Workers send this request periodically. Each job is enqueued once, even if several workers send it at "
    "the same time.",
    answer_type=DueAnswer,
    errors=(Unavailable,),
    is_recorded=False,
)

HEARTBEAT_JOB: Final = Operation(
    name="heartbeat_job",
    method="POST",
    path=_JOB + "/heartbeat",
    permission=on_server("maintain"),
    summary="Renew the lease of a job and report its progress",
    tag="Workers",
    request_type=Heartbeat,
    answer_type=HeartbeatAnswer,
    errors=_OF_A_WORKER,
    is_recorded=False,
    is_large=True,
)

FINISH_JOB: Final = Operation(
    name="finish_job",
    method="POST",
    path=_JOB + "/finish",
    permission=on_server("maintain"),
    summary="Finish an attempt of a job",
    tag="Workers",
    description="The attempt succeeded, failed, was cancelled, or is handed back. The same request can safely be "
    "repeated.",
    request_type=FinishJob,
    answer_type=JobInfo,
    errors=_OF_A_WORKER,
    is_recorded=False,
    is_large=True,
)

_OF_A_REMOVAL: Final = (IdempotencyMismatch, Unavailable, OutcomeUnknown)

LIST_SCHEDULES: Final = Operation(
    name="list_schedules",
    method="GET",
    path=_SCHEDULES,
    permission=on_table("read"),
    summary="List the schedules of a table",
    tag="Jobs",
    answer_type=ScheduleList,
    errors=(*OF_A_TABLE, Unavailable),
)

GET_SCHEDULE: Final = Operation(
    name="get_schedule",
    method="GET",
    path=_SCHEDULE,
    permission=on_table("read"),
    summary="Get a schedule",
    tag="Jobs",
    answer_type=ScheduleInfo,
    errors=(*OF_A_TABLE, ScheduleNotFound, Unavailable),
)

PUT_SCHEDULE: Final = Operation(
    name="put_schedule",
    method="PUT",
    path=_SCHEDULE,
    permission=on_table("maintain"),
    summary="Create or replace a schedule",
    tag="Jobs",
    description="Workers enqueue the jobs of a schedule (`POST /v1/jobs/due`), so nothing happens while no worker "
    "runs; several missed times cause only one job.",
    request_type=PutSchedule,
    answer_type=ScheduleInfo,
    errors=(InvalidRequest, LocationRefused, BodyTooLarge, *OF_A_TABLE, Unavailable),
)

DROP_SCHEDULE: Final = Operation(
    name="drop_schedule",
    method="DELETE",
    path=_SCHEDULE,
    permission=on_table("maintain"),
    summary="Drop a schedule",
    tag="Jobs",
    description="Jobs that it submitted stay.",
    answer_type=Nothing,
    status=204,
    errors=(*OF_A_TABLE, ScheduleNotFound, *_OF_A_REMOVAL),
    resend="with_key",
)

GET_POLICY: Final = Operation(
    name="get_policy",
    method="GET",
    path=_POLICY,
    permission=on_table("read"),
    summary="Get a table's policy and the result of its last check",
    tag="Jobs",
    answer_type=PolicyInfo,
    errors=(*OF_A_TABLE, PolicyNotFound, Unavailable),
)

PUT_POLICY: Final = Operation(
    name="put_policy",
    method="PUT",
    path=_POLICY,
    permission=on_table("maintain"),
    summary="Create or replace a table's policy",
    tag="Jobs",
    description="A policy submits jobs when the table needs them. The whole policy is replaced. Workers cause it to be "
    "checked (`POST /v1/jobs/due`).",
    request_type=Policy,
    answer_type=PolicyInfo,
    errors=(InvalidRequest, BodyTooLarge, *OF_A_TABLE, Unavailable),
)

DROP_POLICY: Final = Operation(
    name="drop_policy",
    method="DELETE",
    path=_POLICY,
    permission=on_table("maintain"),
    summary="Drop a table's policy",
    tag="Jobs",
    description="Jobs that it submitted stay.",
    answer_type=Nothing,
    status=204,
    errors=(*OF_A_TABLE, PolicyNotFound, *_OF_A_REMOVAL),
    resend="with_key",
)
