"""Who may see a job, and do something with it: who may do that with its table; a job of no table is the server's."""

from __future__ import annotations

from typing import Final

import msgspec
from starlette.requests import Request

from lamella.service.access import decided, principal_of, require
from lamella.service.catalog import JobFilter
from lamella.service.catalog.missing import no_job
from lamella.snapshot.wire import JobInfo, Role

_TABLE: Final = "."


def require_of_job(request: Request, role: Role, table: str | None) -> None:
    """Raises as :func:`~lamella.service.access.require`; ``table``: ``namespace.table``, as a job was asked for."""
    namespace, _, name = (table or "").rpartition(_TABLE)
    if not namespace:  # of no table, or of a text that names none: nobody learns which but who may do all
        require(request, role)
    else:
        require(request, role, namespace, name)


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
