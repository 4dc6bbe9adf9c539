"""The kinds of jobs: what each takes, and the command that does it."""

from lamella.snapshot.jobs.command import command_line
from lamella.snapshot.jobs.kind import JobKind, check_arguments, job_kind_named, job_kinds

__all__ = ["JobKind", "check_arguments", "command_line", "job_kind_named", "job_kinds"]
