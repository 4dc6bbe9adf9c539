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
    summary="Have a job done",
    tag="Jobs",
    description="It waits for a worker. With `unique`, a job that is pending and would be the same is "
    "answered in its place, with status 200.",
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
    description="Without what they answered; a job by its id has that.",
    answer_type=JobList,
    own_parameters=(
        Parameter(name="table", description="Only jobs that were asked for this `namespace.table`."),
        Parameter(
            name="state",
            description=f"Only jobs in one of these states, of {', '.join(get_args(JobState))}: `queued,running`.",
        ),
        Parameter(name="kind", description="Only jobs of one of these kinds: `compact,recluster`."),
        Parameter(
            name="page_size",
            description=f"Jobs in one answer; {DEFAULT_PAGE} when not given.",
            schema={"type": "integer", "minimum": 1},
            maximum_setting="page_size_max",
        ),
        Parameter(name="page_token", description="`next_page_token` of the answer before."),
    ),
    errors=(InvalidRequest, InvalidPageToken, Unavailable),
)

GET_JOB: Final = Operation(
    name="get_job",
    method="GET",
    path=_JOB,
    permission=BY_REQUEST,
    summary="Read a job as it stands",
    tag="Jobs",
    answer_type=JobInfo,
    errors=(JobNotFound, Unavailable),
)

GET_JOB_LOG: Final = Operation(
    name="get_job_log",
    method="GET",
    path=_JOB + "/log",
    permission=BY_REQUEST,
    summary="Read a job's log",
    tag="Jobs",
    description="To follow it, ask again with the `after` of the answer before.",
    answer_type=JobLog,
    own_parameters=(
        Parameter(
            name="after",
            description="Only lines behind the one with this number.",
            schema={"type": "integer", "minimum": 0},
        ),
        Parameter(
            name="limit",
            description=f"Lines in one answer; {DEFAULT_LINES} when not given.",
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
    description="A queued one is over at once. A running one is ended by its worker, which hears of it "
    "with its next heartbeat; until then it says `cancel_requested`. Saying it twice does no harm.",
    answer_type=JobInfo,
    errors=(JobNotFound, JobFinished, Unavailable),
)

RETRY_JOB: Final = Operation(
    name="retry_job",
    method="POST",
    path=_JOB + "/retry",
    permission=BY_REQUEST,
    summary="Try a job again",
    tag="Jobs",
    description="One that failed or was cancelled is queued again with all of its attempts, and goes on "
    "from its checkpoint. A queued one that waits for its time is due at once.",
    answer_type=JobInfo,
    errors=(JobNotFound, JobRunning, JobFinished, Unavailable),
)

_OF_A_WORKER: Final = (InvalidRequest, BodyTooLarge, JobNotFound, JobLeaseLost, Unavailable)

CLAIM_JOB: Final = Operation(
    name="claim_job",
    method="POST",
    path=_JOBS + "/claim",
    permission=on_server("maintain"),
    summary="Take the next job",
    tag="Workers",
    description="The oldest of the highest priority whose table has no running job. It is the worker's "
    "until its lease runs out; a heartbeat extends that. Status 204: there is nothing to do. The same "
    "`lease_token` again answers the same job.",
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
    summary="Enqueue what schedules and policies ask for now",
    tag="Workers",
    description="Workers send this every now and then. However many do at once, each job is enqueued once.",
    answer_type=DueAnswer,
    errors=(Unavailable,),
    is_recorded=False,
)

HEARTBEAT_JOB: Final = Operation(
    name="heartbeat_job",
    method="POST",
    path=_JOB + "/heartbeat",
    permission=on_server("maintain"),
    summary="Keep a job, and tell how far it is",
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
    summary="End an attempt at a job",
    tag="Workers",
    description="It succeeded, failed, was cancelled, or is handed back. Telling the same end twice does no harm.",
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
    summary="Read a schedule",
    tag="Jobs",
    answer_type=ScheduleInfo,
    errors=(*OF_A_TABLE, ScheduleNotFound, Unavailable),
)

PUT_SCHEDULE: Final = Operation(
    name="put_schedule",
    method="PUT",
    path=_SCHEDULE,
    permission=on_table("maintain"),
    summary="Have a job done again and again",
    tag="Jobs",
    description="Makes the schedule, or replaces it. Workers enqueue its jobs (`POST /v1/jobs/due`), so "
    "nothing happens while none runs; times that went by then count once.",
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
    description="Jobs that it asked for stay.",
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
    summary="Read a table's policy, and what its last check found",
    tag="Jobs",
    answer_type=PolicyInfo,
    errors=(*OF_A_TABLE, PolicyNotFound, Unavailable),
)

PUT_POLICY: Final = Operation(
    name="put_policy",
    method="PUT",
    path=_POLICY,
    permission=on_table("maintain"),
    summary="Have jobs done when a table needs them",
    tag="Jobs",
    description="Makes the policy, or replaces it as a whole. Workers have it checked (`POST /v1/jobs/due`).",
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
    description="Jobs that it asked for stay.",
    answer_type=Nothing,
    status=204,
    errors=(*OF_A_TABLE, PolicyNotFound, *_OF_A_REMOVAL),
    resend="with_key",
)
