"""The program of a job: its command line, and its environment."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import msgspec

from lamella.client.http.credential import TOKEN, TOKEN_FILE
from lamella.client.jobs.events import ATTEMPT, CHECKPOINT, JOB_ID, LEASE
from lamella.snapshot.errors import InvalidRequest
from lamella.snapshot.jobs import command_line, job_kind_named
from lamella.snapshot.wire import ClaimAnswer

#: A variable that is longer cannot be handed to a program (Linux: 32 pages of 4 KiB).
_LONGEST_VARIABLE: Final = 128 * 1024 - 64


def program_of(claimed: ClaimAnswer, prefix: Sequence[str]) -> list[str]:
    """The words of a job's command.

    ``prefix``: stands before the programs of kinds that bring a Spark session, which are then given as a file:
    ``spark-submit --master ... <the lamella command> compact ...``.

    Raises:
        InvalidRequest: a kind that is not known here, or arguments that it does not take.
    """
    job = claimed.job
    assert job is not None  # noqa: S101  # there is a job to be run
    kind = job_kind_named(job.kind)
    if kind.program:
        own = list(kind.program)
        extra: tuple[str, ...] = ()
    else:
        # `--json`: the answer is a line of its own, which is then the job's result.
        extra = ("--json",)
        main = Path(__file__).parents[1] / "cli" / "__main__.py"
        own = [str(main)] if prefix and kind.is_spark else [sys.executable, "-m", "lamella.client.cli"]
    words = command_line(kind, claimed.table, job.arguments, extra=extra)
    return [*(prefix if kind.is_spark else ()), *own, *words]


def environment_of(
    claimed: ClaimAnswer,
    lease_token: str,
    url: str,
    token: str | None,
    base: Mapping[str, str] | None = None,
    *,
    token_file: str | None = None,
) -> dict[str, str]:
    """The variables of a job's program: those of this process, where the service is, what to show it (``token``, or the
    file that holds it), and which job it is.

    Raises:
        InvalidRequest: a checkpoint that is too long for a variable.
    """
    job = claimed.job
    assert job is not None  # noqa: S101  # there is a job to be run
    found = {
        **(os.environ if base is None else base),
        "LAMELLA_URL": url,
        JOB_ID: job.job_id,
        LEASE: lease_token,
        ATTEMPT: str(job.attempts),
        "PYTHONUNBUFFERED": "1",
    }
    found.pop(CHECKPOINT, None)
    shown = {TOKEN: token, TOKEN_FILE: token_file}
    if any(value is not None for value in shown.values()):
        for name in shown:  # of both a program would not know which is meant
            found.pop(name, None)
        found |= {name: value for name, value in shown.items() if value is not None}
    if claimed.checkpoint is not None:
        text = msgspec.json.encode(claimed.checkpoint).decode()
        if len(text.encode()) > _LONGEST_VARIABLE:
            raise InvalidRequest("the job's checkpoint is too long to be handed to its program")
        found[CHECKPOINT] = text
    return found
