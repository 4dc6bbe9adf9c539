"""What is said of what is not there. Access control says the same, word for word, of what somebody may not see."""

from __future__ import annotations

from lamella.snapshot.errors import JobNotFound, NamespaceNotFound, TableNotFound


def no_namespace(name: str) -> NamespaceNotFound:
    """There is no such namespace."""
    return NamespaceNotFound(f"there is no namespace {name!r}", namespace=name)


def no_table(namespace: str, name: str) -> TableNotFound:
    """There is a namespace, but no such table in it."""
    return TableNotFound(f"there is no table {namespace}.{name}", namespace=namespace, table=name)


def no_job(job_id: str) -> JobNotFound:
    """There is no such job."""
    return JobNotFound(f"there is no job {job_id!r}", job_id=job_id)
