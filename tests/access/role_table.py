"""The table of docs/access.md: what each role is enough for, read from what the operations say that they need."""

from __future__ import annotations

from itertools import groupby
from typing import Any, Final

from lamella.snapshot.wire.operation import Operation, Permission

_TABLE: Final = "/v1/namespaces/{namespace}/tables/{table}"
#: Of operations that decide by what the request says, or shows: what they decide. Each needs its line here.
DECIDED: Final = {
    "change_namespace": "`maintain` on the namespace; for quotas `admin` on everything",
    "get_namespace": "any role on the namespace or on a table in it",
    "list_tables": "any role in the namespace; shows tables with `read`",
    "rename_table": "`maintain` on the table, and `write` on the namespace that gets the name",
    "list_views": "any role in the namespace; shows views with `read`",
    "rename_view": "`maintain` on the view, and `write` on the namespace that gets the name",
    "list_audit": "`admin` on the table, or on everything",
    "commit_transaction": "`write` on each table, `read` on those that it depends on",
    "current_snapshots": "`read` on each table",
    "submit_job": "`maintain` on its table; on everything for what uses a worker's rights",
    "list_jobs": "any key; shows jobs of tables with `read`",
    "get_job": "`read` on its table, or on everything",
    "get_job_log": "`read` on its table, or on everything",
    "cancel_job": "`maintain` on its table, or on everything",
    "retry_job": "the same as to submit it",
    "iceberg_namespace": "any role on the namespace or on a table in it",
    "iceberg_tables": "any role in the namespace; shows tables with `read`",
    "update_iceberg_namespace": "`maintain` on the namespace; for quotas `admin`",
    "rename_iceberg_table": "`maintain` on the table, and `write` on the namespace that gets the name",
    "commit_iceberg_transaction": "`write` on each table",
    "iceberg_views": "any role in the namespace; shows views with `read`",
    "rename_iceberg_view": "`maintain` on the view, and `write` on the namespace that gets the name",
    "iceberg_namespace_of_exports": "any role on the namespace or on a table in it",
    "iceberg_tables_of_exports": "any role in the namespace; shows tables with `read`",
    "list_shared_tables": "any role in the namespace; shows tables with `read`",
}
#: Additional conditions of operations that only require authentication.
KNOWN: Final = {
    "list_namespaces": "any key; shows namespaces with a role in them",
    "iceberg_namespaces": "any key; shows namespaces with a role in them",
    "iceberg_namespaces_of_exports": "any key; shows namespaces with a role in them",
    "list_shared_schemas": "any key; shows namespaces with a role in them",
    "list_all_shared_tables": "any key; shows tables with `read`",
    "list_keys": "any key; shows the keys that the caller created",
    "create_key": "`admin` on every scope that it is for",
    "get_key": "to be its creator",
    "rotate_key": "to be its creator, and `admin` on what was granted to it",
    "revoke_key": "to be its creator",
    "list_grants": "any key; shows the caller's own, and those on scopes with `admin`",
    "give_grant": "`admin` on the scope",
    "take_grant": "`admin` on the scope; nothing for one's own grants",
}
#: Additional requirements of some requests.
MORE: Final = {
    "get_table": "with `role` that role",
    "verify": "to repair `maintain`",
    "create_namespace": "for quotas `admin`",
    "put_schedule": "on everything for what uses a worker's rights",
    "put_policy": "on everything for what uses a worker's rights",
}
_SCOPES: Final = ("table", "view", "namespace", "server", "request", "authenticated", "public")
_ROLES: Final = (None, "read", "write", "maintain", "admin")


def needed(operation: Operation[Any]) -> str:
    """What an operation needs, in a cell."""
    need = operation.permission
    if need.scope == "public":
        return "nothing"
    if need.scope == "request":
        return DECIDED[operation.name]
    if need.scope == "authenticated":
        return KNOWN.get(operation.name, "any key")
    scope = "everything" if need.scope == "server" else f"the {need.scope}"
    more = MORE.get(operation.name)
    return f"`{need.role}` on {scope}" + ("" if more is None else f"; {more}")


def order(need: Permission) -> tuple[int, int]:
    """What is of one table first, and then what is around it."""
    return _SCOPES.index(need.scope), _ROLES.index(need.role)


def table_text(operations: tuple[Operation[Any], ...]) -> str:
    """A line for each need, with all operations that have it; ``...`` stands for a table's path."""
    found = sorted(operations, key=lambda each: (order(each.permission), needed(each), each.path, each.method))
    lines = ["| needs | requests |", "|---|---|"]
    for need, same in groupby(found, key=needed):
        lines.append(f"| {need} | {', '.join(f'`{each.method} {_shortened(each.path)}`' for each in same)} |")
    return "\n".join(lines) + "\n"


def _shortened(path: str) -> str:
    return "..." + path.removeprefix(_TABLE) if path.startswith(_TABLE) else path
