"""One request for each operation of the API, made of what a table has; and a way to put another table's things in it.

A new operation has no probe, and the tests that run all of them fail until it gets one.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from itertools import chain, combinations
from typing import Any, Final
from urllib.parse import urlencode

import httpx2
import msgspec

from support.tenants import RUNNER, TenantResources, view_definition

Body = Callable[[TenantResources], Any]
_NAMED: Final = re.compile(r"{(\w+)}")


class Probe(msgspec.Struct, frozen=True, kw_only=True):
    """``needs``: what a tenant must have for it. ``body``, ``query``: made of the resources that they name."""

    needs: tuple[str, ...] = ()
    body: Body | None = None
    query: Body | None = None
    #: What the request may be answered when it is right; most say 2xx.
    also: tuple[int, ...] = ()


class ProbeRequest(msgspec.Struct, frozen=True):
    """A request. ``swapped``: which of its parts are another tenant's."""

    method: str
    path: str
    body: Any
    swapped: tuple[str, ...]


def requests(
    method: str, template: str, probe: Probe, own: TenantResources, other: TenantResources
) -> Iterator[ProbeRequest]:
    """The request with every choice of its parts taken from ``other``, and first with none; the others are of both."""
    parts = [name for name in _NAMED.findall(template) if getattr(own, name) != getattr(other, name)]
    parts += ["body"] if probe.body is not None else []
    parts += ["query"] if probe.query is not None else []
    for swapped in chain.from_iterable(combinations(parts, count) for count in range(len(parts) + 1)):
        yield probe_request(method, template, probe, own, other, swapped)


def probe_request(
    method: str, template: str, probe: Probe, own: TenantResources, other: TenantResources, swapped: tuple[str, ...]
) -> ProbeRequest:
    """The request with those of its parts taken from ``other``."""

    def of(part: str) -> TenantResources:
        return other if part in swapped else own

    path = _NAMED.sub(lambda found: str(getattr(of(found[1]), found[1])), template)
    if probe.query is not None:
        path += "?" + urlencode(probe.query(of("query")))
    return ProbeRequest(method, path, None if probe.body is None else probe.body(of("body")), swapped)


def _table(resources: TenantResources) -> str:
    return f"{resources.namespace}.{resources.table}"


def _snapshot(resources: TenantResources) -> dict[str, Any]:
    return {"snapshot_id": resources.snapshot_id}


def _grant(resources: TenantResources) -> dict[str, Any]:
    return {"principal": "user:ann", "role": "read", "namespace": resources.namespace, "table": resources.table}


def _nothing(_resources: TenantResources) -> dict[str, Any]:
    return {}


_VERIFY_JOB: Final[Body] = lambda resources: {"kind": "verify", "table": _table(resources)}  # noqa: E731  # one of a table
_CLICKS: Final = {"type": "struct", "fields": [{"id": 1, "name": "at", "type": "long", "required": False}]}
_ICEBERG_VIEW: Final = {
    "schema": _CLICKS,
    "view-version": {
        "version-id": 1,
        "schema-id": 0,
        "timestamp-ms": 0,
        "summary": {},
        "representations": [{"type": "sql", "sql": "SELECT 1 AS at", "dialect": "spark"}],
        "default-namespace": [],
    },
}
PROBES: Final[Mapping[str, Probe]] = {
    "prune": Probe(body=lambda p: {**_snapshot(p), "filter": f"{p.column} = '{p.value}'"}),
    "prune_batch": Probe(body=lambda p: {**_snapshot(p), "filters": [f"{p.column} = '{p.value}'"]}),
    "diff": Probe(body=lambda p: {"from_snapshot_id": p.first_snapshot_id, "to_snapshot_id": p.snapshot_id}),
    "aggregate": Probe(body=lambda p: {"aggregates": ["count(*)", f"max({p.column})"], **_snapshot(p)}),
    "sample": Probe(body=lambda p: {**_snapshot(p), "filter": f"{p.column} = '{p.value}'", "rows": 5}),
    "startup": Probe(),
    "live": Probe(),
    "ready": Probe(),
    "metrics": Probe(),
    "register": Probe(body=lambda p: {"paths": [f"{p.location}/another.parquet"]}),
    "commit": Probe(
        body=lambda p: {
            "added": [{"location": f"{p.location}/another.parquet", "row_count": 1, "file_size": 1}],
            "removed": list(p.blocks[:1]),
            "base_snapshot_id": p.snapshot_id,
        }
    ),
    "commit_transaction": Probe(
        body=lambda p: {
            "tables": [{"table": _table(p), "commit": {"properties": {"owner": p.namespace}, "operation": "set"}}]
        }
    ),
    "current_snapshots": Probe(body=lambda p: {"tables": [_table(p)]}),
    "register_arrivals": Probe(body=lambda p: {"files": [f"{p.location}/another.parquet"]}),
    "refresh_table": Probe(body=lambda p: {"location": p.location}, also=(400,)),  # a table of its own blocks
    "convert_to_iceberg": Probe(body=lambda _: {"dry_run": True}, also=(406,)),
    "refresh_progress": Probe(also=(400,)),
    "create_table": Probe(body=lambda p: {"name": f"{p.table}new", "schema": [{"name": p.column, "type": "string"}]}),
    "list_tables": Probe(),
    "get_table": Probe(),
    "drop_table": Probe(),
    "rename_table": Probe(body=lambda p: {"name": f"{p.table}new"}),
    "create_view": Probe(body=lambda p: {"name": f"{p.table}new", "definition": view_definition(p)}),
    "list_views": Probe(),
    "get_view": Probe(needs=("view",)),
    "replace_view": Probe(needs=("view",), body=view_definition),
    "rename_view": Probe(needs=("view",), body=lambda p: {"name": f"{p.view}new"}),
    "drop_view": Probe(needs=("view",)),
    "show": Probe(),
    "evolve": Probe(body=lambda p: {"changes": [{"change": "drop", "column": p.column}]}),
    "create_namespace": Probe(body=lambda p: {"name": p.namespace}, also=(409,)),
    "change_namespace": Probe(body=lambda p: {"set": {"owner": f"{p.namespace}-other"}}),
    "namespace_quota": Probe(),
    "list_namespaces": Probe(),
    "get_namespace": Probe(),
    "drop_namespace": Probe(also=(409,)),
    "list_snapshots": Probe(query=_snapshot),
    "get_snapshot": Probe(),
    "get_segment": Probe(query=_snapshot),
    "get_segment_blocks": Probe(query=_snapshot),
    "list_tags": Probe(needs=("tag",)),
    "put_tag": Probe(body=lambda p: {"name": "fresh", **_snapshot(p)}),
    "drop_tag": Probe(needs=("tag",)),
    "list_branches": Probe(needs=("branch",)),
    "create_branch": Probe(body=lambda p: {"name": "fresh", **_snapshot(p)}),
    "drop_branch": Probe(needs=("branch",)),
    "fast_forward": Probe(needs=("branch",), body=lambda p: {"to": p.branch}),
    "cherry_pick": Probe(body=lambda p: {"snapshot_id": p.snapshot_id}, also=(400,)),  # it is in the history
    "rollback": Probe(body=lambda p: {"snapshot_id": p.first_snapshot_id}),
    "changes": Probe(query=lambda p: {"since": p.first_snapshot_id, "until": p.snapshot_id}),
    "list_dropped": Probe(needs=("dropped",)),
    "undrop_table": Probe(needs=("dropped",), body=lambda p: {"table_id": p.table_id}),
    "list_index_kinds": Probe(),
    "list_indexes": Probe(needs=("index",), query=_snapshot),
    "create_index": Probe(body=lambda p: {"name": "fresh", "kind": "bloom", "expression": p.column}),
    "show_index": Probe(needs=("index",)),
    "drop_index": Probe(needs=("index",)),
    "restore_index": Probe(needs=("dropped_index",)),
    "vacuum_index": Probe(needs=("dropped_index",)),
    "refresh_index": Probe(needs=("index",), body=_nothing),
    "add_index_parts": Probe(needs=("index",), body=lambda p: {"parts": [], "index_id": p.table_id}, also=(400, 404)),
    "optimise_index": Probe(needs=("index",), body=_nothing),
    "show_cluster_key": Probe(),
    "set_cluster_key": Probe(body=lambda p: {"columns": [p.column], "base_snapshot_id": p.snapshot_id}),
    "show_clustering": Probe(query=_snapshot),
    "regroup": Probe(body=_nothing),
    "plan": Probe(body=lambda p: {"job": "compact", **_snapshot(p)}),
    "blocks": Probe(body=lambda p: {"locations": list(p.blocks), **_snapshot(p)}),
    "advise": Probe(body=_snapshot),
    "candidates": Probe(body=_nothing),
    "list_auto": Probe(),
    "plan_auto": Probe(body=_nothing),
    "start_auto": Probe(needs=("policy",), body=lambda _: {"runner": RUNNER}),
    "report_auto": Probe(needs=("action_id",), body=lambda _: {"runner": RUNNER, "outcome": "failed"}),
    "what_if": Probe(body=lambda p: {**_snapshot(p), "cluster_key": [p.column], "filters": ["id = 1"]}),
    "why_not": Probe(body=lambda p: {**_snapshot(p), "filter": f"{p.column} = '{p.value}'"}),
    "list_recorded": Probe(),
    "clear_recorded": Probe(),
    "report_feedback": Probe(body=lambda p: {**_snapshot(p), "filter": "id = 3", "empty": [p.blocks[1]]}),
    "get_feedback": Probe(),
    "clear_feedback": Probe(),
    "verify": Probe(body=_snapshot),
    "vacuum": Probe(body=_nothing),
    "vacuum_dropped": Probe(body=_nothing),
    "table_health": Probe(),
    "take_lease": Probe(body=lambda p: {"ttl_s": 60, "owner": "probe", **_snapshot(p)}),
    "list_leases": Probe(needs=("lease_id",)),
    "renew_lease": Probe(needs=("lease_id",), body=lambda _: {"ttl_s": 60}),
    "release_lease": Probe(needs=("lease_id",)),
    "list_job_kinds": Probe(),
    "submit_job": Probe(body=_VERIFY_JOB),
    "list_jobs": Probe(needs=("job_id",), query=lambda p: {"table": _table(p)}),
    "get_job": Probe(needs=("job_id",)),
    "get_job_log": Probe(needs=("job_id",)),
    "cancel_job": Probe(needs=("job_id",)),
    "retry_job": Probe(needs=("cancelled_job",)),
    "claim_job": Probe(
        needs=("job_id",),
        body=lambda _: {"worker": "w", "lease_token": "0199cccc-0000-7000-8000-000000000000", "lease_s": 60},
    ),
    "enqueue_due_jobs": Probe(),
    "heartbeat_job": Probe(needs=("claimed_job",), body=lambda p: {"lease_token": p.lease_token, "lease_s": 60}),
    "finish_job": Probe(needs=("claimed_job",), body=lambda p: {"lease_token": p.lease_token, "outcome": "succeeded"}),
    "list_schedules": Probe(needs=("schedule",)),
    "get_schedule": Probe(needs=("schedule",)),
    "put_schedule": Probe(needs=("schedule",), body=lambda _: {"kind": "compact", "every_s": 3_600}),
    "drop_schedule": Probe(needs=("schedule",)),
    "get_policy": Probe(needs=("policy",)),
    "put_policy": Probe(body=lambda _: {"verify": {"every_s": 3_600}}),
    "drop_policy": Probe(needs=("policy",)),
    "show_prune_rates": Probe(),
    "show_service_rates": Probe(),
    "list_audit": Probe(query=lambda p: {"table": _table(p)}),
    "whoami": Probe(),
    "list_keys": Probe(needs=("key",)),
    "create_key": Probe(
        body=lambda p: {
            "name": f"made{p.table}",
            "grants": [{"role": "read", "namespace": p.namespace, "table": p.table}],
        },
        also=(409,),
    ),
    "get_key": Probe(needs=("key",)),
    "revoke_key": Probe(needs=("key",)),
    "rotate_key": Probe(needs=("key",), body=_nothing),
    "list_grants": Probe(needs=("key",), query=lambda p: {"principal": f"key:{p.key}"}),
    "give_grant": Probe(body=_grant),
    "take_grant": Probe(body=_grant),
    "config": Probe(),
    "list_shares": Probe(),
    "get_share": Probe(),
    "list_shared_schemas": Probe(),
    "list_shared_tables": Probe(),
    "list_all_shared_tables": Probe(),
    "get_shared_table": Probe(),
    "shared_table_version": Probe(),
    "shared_table_metadata": Probe(),
    "query_shared_table": Probe(
        body=lambda p: {"predicateHints": [f"{p.column} = '{p.value}'"]},
        also=(400,),  # of local files nobody can read one elsewhere
    ),
    "shared_table_changes": Probe(also=(406,)),
    "iceberg_config": Probe(),
    "iceberg_namespaces": Probe(query=lambda p: {"parent": p.namespace}),
    "iceberg_namespace": Probe(),
    "iceberg_tables": Probe(),
    "load_iceberg_table": Probe(),
    "iceberg_namespaces_of_exports": Probe(query=lambda p: {"parent": p.namespace}),
    "iceberg_namespace_of_exports": Probe(),
    "iceberg_tables_of_exports": Probe(),
    "load_exported_table": Probe(also=(406,)),  # of tables without an export
    "create_iceberg_namespace": Probe(body=lambda p: {"namespace": [p.namespace, "made"]}, also=(409,)),
    "update_iceberg_namespace": Probe(body=lambda _: {"updates": {"owner": "x"}}),
    "drop_iceberg_namespace": Probe(also=(409,)),
    "create_iceberg_table": Probe(body=lambda p: {"name": f"ice{p.table}", "schema": _CLICKS}, also=(409,)),
    "register_iceberg_table": Probe(
        body=lambda p: {"name": f"ice{p.table}", "metadata-location": "/nowhere/v1.metadata.json"}, also=(403, 404)
    ),
    "commit_iceberg_table": Probe(body=lambda _: {"updates": []}, also=(406,)),  # not a table of Iceberg clients
    "commit_iceberg_transaction": Probe(
        body=lambda p: {
            "table-changes": [{"identifier": {"namespace": [p.namespace], "name": p.table}, "updates": []}]
        },
        also=(406,),
    ),
    "drop_iceberg_table": Probe(),
    "rename_iceberg_table": Probe(
        body=lambda p: {
            "source": {"namespace": [p.namespace], "name": p.table},
            "destination": {"namespace": [p.namespace], "name": f"renamed{p.table}"},
        },
    ),
    "iceberg_views": Probe(),
    "load_iceberg_view": Probe(needs=("view",)),
    "create_iceberg_view": Probe(body=lambda p: {"name": f"ice{p.table}view", **_ICEBERG_VIEW}, also=(409,)),
    "register_iceberg_view": Probe(
        body=lambda p: {"name": f"ice{p.table}other", "metadata-location": "/nowhere/v1.metadata.json"}, also=(403, 404)
    ),
    "commit_iceberg_view": Probe(needs=("view",), body=lambda _: {"updates": []}),
    "drop_iceberg_view": Probe(needs=("view",)),
    "rename_iceberg_view": Probe(
        needs=("view",),
        body=lambda p: {
            "source": {"namespace": [p.namespace], "name": p.view},
            "destination": {"namespace": [p.namespace], "name": f"renamed{p.view}"},
        },
    ),
    "iceberg_credentials": Probe(),
    "sign_iceberg_request": Probe(
        body=lambda p: {"region": "us-east-1", "uri": f"https://s3.test/{p.location}", "method": "GET", "headers": {}},
        also=(406,),  # the setting is off
    ),
    "plan_table_scan": Probe(body=lambda p: {"filter": {"type": "eq", "term": p.column, "value": p.value}}),
    "fetch_scan_tasks": Probe(needs=("plan_id",), body=lambda p: {"plan-task": p.plan_id}),
    "fetch_plan": Probe(needs=("plan_id",)),
    "cancel_plan": Probe(needs=("plan_id",)),
    "report_iceberg_metrics": Probe(body=lambda _: {"report-type": "scan-report", "filter": True}),
    "iceberg_token": Probe(also=(400,)),
}
#: What Iceberg's errors are called, by the codes of ours that tests ask for.
_ICEBERG: Final = {"NotAuthorizedException": "unauthenticated", "ForbiddenException": "permission_denied"}


def code_of(answer: httpx2.Response) -> str:
    """The code of an error, in whichever protocol's form."""
    error = answer.json()
    if isinstance(error.get("error"), dict):
        kind = str(error["error"]["type"])
        return _ICEBERG.get(kind, kind)
    return str(error["code"] if "code" in error else error["errorCode"].lower())
