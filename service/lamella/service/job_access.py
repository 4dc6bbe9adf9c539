"""Who may see a job, and do something with it: who may do that with its table; a job of no table is the server's."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec
from starlette.requests import Request

from lamella.service.access import decided, principal_of, require
from lamella.service.catalog import JobFilter
from lamella.service.catalog.missing import no_job
from lamella.snapshot.jobs import job_kinds
from lamella.snapshot.wire import JobInfo, Role

_TABLE: Final = "."


def require_of_job(request: Request, role: Role, table: str | None) -> None:
    """Raises as :func:`~lamella.service.access.require`; ``table``: ``namespace.table``, as a job was asked for."""
    namespace, _, name = (table or "").rpartition(_TABLE)
    if not namespace:  # of no table, or of a text that names none: nobody learns which but who may do all
        require(request, role)
    else:
        require(request, role, namespace, name)


def require_new_job(
    request: Request, kind: str, arguments: Mapping[str, Any], priority: int, table: str | None
) -> None:
    """The decision about a job that is asked for, now or by a schedule or policy; raises as :func:`require_of_job`.

    A job runs in a worker, with rights on everything. What could make use of these, or come before the jobs of all
    others, is asked for by those who have such rights themselves.
    """
    require_of_job(request, "maintain", table)
    known = job_kinds().get(kind)
    if known is None:
        return  # it will be refused for that
    if known.server_only or priority > 0 or any(name in arguments for name in known.server_arguments):
        require(request, "maintain")


def require_job(request: Request, role: Role, job: JobInfo) -> None:
    """As :func:`require_of_job`, for one that is there. Who may not see it learns no more than that it is not."""
    namespace, _, name = (job.table or "").rpartition(_TABLE)
    rights = principal_of(request).rights
    is_seen = rights.may("read", namespace, name) if namespace else rights.may("read")
    if not is_seen:
        raise no_job(job.job_id)
    require_of_job(request, role, job.table)


def seen_jobs(request: Request, which: JobFilter) -> JobFilter:
    """Those of them that a request may be shown."""
    return msgspec.structs.replace(which, within=decided(request).rights.places("read"))
