"""A story that calls every operation of the HTTP interface: the examples of the OpenAPI document are its requests and
answers.

The table `shop.orders` lies in a bucket. Each operation is recorded the first time that it is called.
"""

from __future__ import annotations

import io
import json
import re
from collections.abc import Callable, Mapping
from typing import Any, Final, Protocol
from urllib.parse import quote, urlencode

import httpx2
import pyarrow as pa
import pyarrow.parquet as pq

from lamella.snapshot.ids import Ids
from lamella.snapshot.wire.operation import Operation
from support.app_client import AppClient

#: Longer lists of answers are shortened; a shortened text ends with "...".
MAX_ITEMS: Final = 5
_MAX_LINES: Final = 8
_MAX_CHARACTERS: Final = 400
_VIEW_COLUMNS: Final = '{"type":"struct","fields":[{"name":"id","type":"long","nullable":true,"metadata":{}}]}'
_ORDERS: Final = [
    {"name": "id", "type": "int64", "nullable": False},
    {"name": "day", "type": "date"},
    {"name": "country", "type": "string"},
    {"name": "price", "type": "double"},
]
_CLICKS: Final = {
    "type": "struct",
    "fields": [
        {"id": 1, "name": "at", "type": "timestamptz", "required": True},
        {"id": 2, "name": "url", "type": "string", "required": False},
    ],
}
_COUNTRIES: Final = ("DE", "FR", "US")


class Recorder:
    """Calls operations and keeps the first call of each. ``operations``: by name; ``put`` writes an object."""

    def __init__(
        self, app: AppClient, key: str, operations: Mapping[str, Operation[Any]], put: Callable[[str, bytes], None]
    ) -> None:
        self._app = app
        self.key = key
        self._operations = operations
        self.put = put
        self.examples: dict[str, dict[str, Any]] = {}

    def call(
        self,
        name: str,
        body: Any = None,
        query: Mapping[str, Any] | None = None,
        refused: int | None = None,
        **path: str,
    ) -> Any:
        """The answer of an operation, which must be the one that it promises, or the status ``refused`` of one that no
        table has. ``path``: beside ``shop`` and ``orders``."""
        operation = self._operations[name]
        parts = {each: {"namespace": "shop", "table": "orders", **path}[each] for each in operation.path_parameters}
        address = operation.path.format(**{key: quote(value, safe="") for key, value in parts.items()})
        if query:
            address += "?" + urlencode(query)
        headers = {} if operation.permission.scope == "public" else {"Authorization": f"Bearer {self.key}"}
        how = {"json": body} if operation.request_media_type == "application/json" else {"data": body}
        answer: httpx2.Response = self._app.request(
            operation.method, address, headers=headers, follow_redirects=False, **(how if body is not None else {})
        )
        assert answer.status_code == (refused or operation.status), f"{name}: {answer.status_code} {answer.text}"
        value = answer.json() if operation.media_type == "application/json" and answer.content else answer.text or None
        value = None if refused else value
        example = {"path": parts or None, "query": query, "request": body, "answer": value}
        self.examples.setdefault(name, {key: each for key, each in example.items() if each is not None})
        return value

    def write(self, location: str, first: int, last: int) -> str:
        """Write a Parquet file of the orders with these numbers; returns its location."""
        ids = range(first, last + 1)
        rows = pa.table(
            {
                "id": pa.array(ids, pa.int64()),
                "day": pa.array([19_800 + each for each in ids], pa.int32()).cast(pa.date32()),
                "country": [_COUNTRIES[each % 3] for each in ids],
                "price": [10.0 * each for each in ids],
            }
        )
        buffer = io.BytesIO()
        pq.write_table(rows, buffer)
        self.put(location, buffer.getvalue())
        return location


class Behind(Protocol):
    """What the story needs and HTTP does not do."""

    def begin_action(self, table_id: str, runner: str) -> str:
        """Begin an action of automatic upkeep of a table; returns its id."""

    def blocks(self, table_id: str, files: list[str]) -> list[Any]:
        """Files as the blocks of a commit, with statistics."""

    def index_parts(self, table_id: str, index: str, files: list[str]) -> list[Any]:
        """Write parts of an index about some blocks of a table; returns what is sent of them."""


def record(recorder: Recorder, incoming: str, behind: Behind) -> None:
    """Tell the story. ``incoming``: a folder for files."""
    call = recorder.call
    for name in (
        "startup",
        "live",
        "ready",
        "config",
        "whoami",
        "iceberg_config",
        "list_job_kinds",
        "list_index_kinds",
    ):
        call(name)
    _tables(recorder, incoming, behind)
    _reads(call)
    _layout(call, behind)
    _access(call)
    _jobs(call)
    _advice(call, behind)
    _other_protocols(call, recorder.key, recorder.put, incoming)
    _branches(recorder, behind)
    _ends(call)


def _tables(recorder: Recorder, incoming: str, behind: Behind) -> None:
    call = recorder.call
    call("create_namespace", {"name": "shop", "properties": {"owner": "sales"}})
    call("change_namespace", {"set": {"lamella.quota.tables": "10000"}})
    orders = {
        "name": "orders",
        "schema": _ORDERS,
        "cluster_key": ["day"],
        "properties": {"lamella.feedback.enabled": "true"},
    }
    folder = call("create_table", orders)["location"]
    files = [recorder.write(f"{folder}/orders-{number}.parquet", 1 + 4 * number, 4 + 4 * number) for number in range(2)]
    call("register", {"paths": [f"{folder}/*.parquet"], "strict": True})
    call("put_tag", {"name": "may", "max_age_ms": 31_536_000_000})
    june = recorder.write(f"{folder}/orders-2.parquet", 9, 12)
    base_id = call("get_table")["snapshot_id"]
    added = behind.blocks(call("get_table")["table_id"], [june])
    call("commit", {"added": added, "removed": files[:1], "base_snapshot_id": base_id, "operation": "replace"})
    lines = {"name": "lines", "schema": [{"name": "order_id", "type": "int64"}, {"name": "item", "type": "string"}]}
    call("create_table", lines)
    july = behind.blocks(call("get_table")["table_id"], [recorder.write(f"{folder}/orders-4.parquet", 17, 20)])
    both = [
        {"table": "shop.orders", "commit": {"added": july}},
        {"table": "shop.lines", "commit": {"properties": {"complete_to": "20"}, "operation": "set"}},
    ]
    call("commit_transaction", {"tables": both})
    call("current_snapshots", {"tables": ["shop.orders", "shop.lines"]})
    call("register_arrivals", {"files": [recorder.write(f"{folder}/orders-3.parquet", 13, 16)]})
    call("evolve", {"changes": [{"change": "add", "name": "note", "type": "string"}]})
    recorder.write(f"{incoming}/returns/returns-0.parquet", 1, 2)
    source = {"kind": "directory", "location": f"{incoming}/returns"}
    call("create_table", {"name": "returns", "source": source})
    call("refresh_table", {"mode": "incremental"}, table="returns")
    call("refresh_progress", table="returns")
    for name in ("list_namespaces", "get_namespace", "namespace_quota", "list_tables", "get_table", "show"):
        call(name)
    view = {"sql": "SELECT id FROM shop.orders WHERE price < 50", "schema_json": _VIEW_COLUMNS}
    call("create_view", {"name": "cheap", "definition": view})
    for name in ("list_views", "get_view"):
        call(name, view="cheap")
    call("replace_view", {**view, "sql": "SELECT id FROM shop.orders WHERE price < 60"}, view="cheap")
    call("rename_view", {"name": "inexpensive"}, view="cheap")
    call("drop_view", view="inexpensive")


def _reads(call: Callable[..., Any]) -> None:
    where = "country = 'DE' AND day >= DATE '2024-03-31'"
    pruned = call("prune", {"filter": where, "columns": ["id", "price"]})
    call("prune_batch", {"filters": ["id = 7", "price > 140.0"]})
    call("aggregate", {"aggregates": ["count(*)", "max(price)"], "filter": "id <= 8"})
    call("sample", {"filter": "country = 'FR'", "columns": ["id", "price"], "rows": 2})
    history = call("list_snapshots", query={"page_size": 3})["snapshots"]
    last_id, first_id = history[0]["snapshot_id"], history[-1]["snapshot_id"]
    segment_id = call("get_snapshot", snapshot_id=last_id)["segments"][0]["segment_id"]
    for name in ("get_segment", "get_segment_blocks"):
        call(name, query={"snapshot_id": last_id}, segment_id=segment_id)
    call("diff", {"from_snapshot_id": first_id, "to_snapshot_id": last_id, "filter": "price > 100.0"})
    call("changes", query={"since": first_id, "until": last_id})
    call("blocks", {"locations": [each["location"] for each in pruned["blocks"]]})
    call("report_feedback", {"snapshot_id": last_id, "filter": where, "empty": [pruned["blocks"][0]["location"]]})
    call("get_feedback")
    call("clear_feedback")
    call("list_tags")
    lease_id = call("take_lease", {"ttl_s": 600, "owner": "nightly-report"})["lease_id"]
    call("list_leases")
    call("renew_lease", {"ttl_s": 600}, lease_id=lease_id)
    call("release_lease", lease_id=lease_id)
    call("verify", {"files": True})
    for name in ("table_health", "show_prune_rates", "show_service_rates", "metrics"):
        call(name)


def _layout(call: Callable[..., Any], behind: Behind) -> None:
    by_country = {"name": "by_country", "kind": "bloom", "expression": "country"}
    index_id = call("create_index", by_country)["index_id"]
    files = [each["location"] for each in call("prune", {})["blocks"]]
    parts = behind.index_parts(call("get_table")["table_id"], "by_country", files)
    call("add_index_parts", {"parts": parts, "index_id": index_id}, index="by_country")
    call("refresh_index", {"mode": "full"}, index="by_country")
    call("optimise_index", {}, index="by_country")
    call("show_index", index="by_country")
    call("list_indexes")
    call("why_not", {"filter": "country = 'DE'", "index": "by_country"})
    call("drop_index", index="by_country")
    call("restore_index", index="by_country")
    call("drop_index", index="by_country")
    call("vacuum_index", index="by_country")
    call("set_cluster_key", {"columns": ["day", "country"]})
    call("show_cluster_key")
    call("show_clustering", query={"recorded": 10})
    call("regroup", {"dry_run": True})
    call("plan", {"job": "compact", "target_rows": 1_000_000})


def _access(call: Callable[..., Any]) -> None:
    read = {"role": "read", "namespace": "shop", "table": "orders"}
    call("create_key", {"name": "dashboards", "grants": [read], "expires_s": 7_776_000})
    call("list_keys")
    call("get_key", key="dashboards")
    call("rotate_key", {"overlap_s": 86_400}, key="dashboards")
    call("revoke_key", key="dashboards")
    call("give_grant", {**read, "principal": "user:ann"})
    call("list_grants", query={"principal": "user:ann"})
    call("take_grant", {**read, "principal": "user:ann"})
    call("list_audit", query={"table": "shop.orders", "page_size": 3})


def _jobs(call: Callable[..., Any]) -> None:
    nightly = {"kind": "compact", "cron": "0 3 * * *", "time_zone": "Europe/Berlin"}
    call("put_schedule", nightly, schedule="nightly")
    for name in ("list_schedules", "get_schedule", "drop_schedule"):
        call(name, schedule="nightly")
    call("put_policy", {"compact": {"small_blocks": 32}, "vacuum": {"every_s": 86_400}})
    call("get_policy")
    call("drop_policy")
    job_id = call("submit_job", {"kind": "verify", "table": "shop.orders"})["job_id"]
    token = Ids().new_text()
    call("claim_job", {"worker": "worker-1", "lease_token": token, "lease_s": 60})
    line = {"number": 1, "at_ms": 1_793_523_600_000, "text": "3 of 3 blocks verified"}
    call(
        "heartbeat_job",
        {"lease_token": token, "lease_s": 60, "progress": {"done": 3, "total": 3, "unit": "blocks"}, "log": [line]},
        job_id=job_id,
    )
    call("finish_job", {"lease_token": token, "outcome": "succeeded", "result": {"problems": 0}}, job_id=job_id)
    call("list_jobs", query={"table": "shop.orders", "page_size": 3})
    call("get_job", job_id=job_id)
    call("get_job_log", job_id=job_id)
    other = call("submit_job", {"kind": "verify", "table": "shop.orders", "unique": False})["job_id"]
    call("cancel_job", job_id=other)
    call("retry_job", job_id=other)
    call("cancel_job", job_id=other)
    call("enqueue_due_jobs")


def _advice(call: Callable[..., Any], behind: Behind) -> None:
    call("list_recorded")
    call("advise", {"columns": ["country"], "kinds": ["bloom"]})
    call("what_if", {"cluster_key": ["country"], "filters": ["country = 'DE'"], "sample_blocks": 3})
    call("candidates", {"top": 3})
    call("plan_auto", {"rule": {"dry_run": True}})
    # Without hours: with them the answer of "start_auto" depends on the time of day.
    call("put_policy", {"auto": {"payback_days": 14}})
    runner = Ids().new_text()
    call("start_auto", {"runner": runner, "lease_s": 60})
    action_id = behind.begin_action(call("get_table")["table_id"], runner)
    done = {"runner": runner, "outcome": "done", "rewritten_bytes": 4_096}
    call("report_auto", done, action_id=action_id)
    call("list_auto")
    call("clear_recorded")


def _other_protocols(call: Callable[..., Any], key: str, put: Callable[[str, bytes], None], incoming: str) -> None:
    for name in (
        "list_shares",
        "get_share",
        "list_shared_schemas",
        "list_shared_tables",
        "list_all_shared_tables",
        "get_shared_table",
        "shared_table_version",
        "shared_table_metadata",
    ):
        call(name, share="lamella", table="returns")
    call("shared_table_changes", refused=406, share="lamella", table="returns")
    call(
        "query_shared_table", {"predicateHints": ["country = 'DE'"], "limitHint": 100}, share="lamella", table="returns"
    )
    _iceberg(call, put, incoming)
    call("iceberg_token", {"grant_type": "client_credentials", "client_id": "", "client_secret": key})


def _iceberg(call: Callable[..., Any], put: Callable[[str, bytes], None], incoming: str) -> None:
    for name in ("iceberg_namespaces", "iceberg_namespace", "iceberg_tables"):
        call(name)
    for name in ("iceberg_namespaces_of_exports", "iceberg_namespace_of_exports", "iceberg_tables_of_exports"):
        call(name)
    call("load_iceberg_table", query={"snapshots": "refs"})
    call("load_exported_table", refused=406)  # nobody exported it
    call("create_iceberg_namespace", {"namespace": ["shop", "eu"], "properties": {"owner": "web"}})
    call("update_iceberg_namespace", {"removals": ["owner"], "updates": {"team": "web"}}, namespace="shop\x1feu")
    made = call("create_iceberg_table", {"name": "clicks", "schema": _CLICKS})
    call(
        "commit_iceberg_table",
        {
            "requirements": [{"type": "assert-table-uuid", "uuid": made["metadata"]["table-uuid"]}],
            "updates": [{"action": "set-properties", "updates": {"owner": "web"}}],
        },
        table="clicks",
    )
    changes = [
        {
            "identifier": {"namespace": ["shop"], "name": "clicks"},
            "requirements": [{"type": "assert-current-schema-id", "current-schema-id": 0}],
            "updates": [{"action": "set-properties", "updates": {"owner": "shop"}}],
        }
    ]
    call("commit_iceberg_transaction", {"table-changes": changes})
    call(
        "rename_iceberg_table",
        {
            "source": {"namespace": ["shop"], "name": "clicks"},
            "destination": {"namespace": ["shop", "eu"], "name": "clicks"},
        },
    )
    metadata = call("load_iceberg_table", namespace="shop\x1feu", table="clicks")["metadata"]
    location = f"{incoming}/clicks/metadata/v1.metadata.json"
    put(location, json.dumps({**metadata, "location": f"{incoming}/clicks"}).encode())
    call("drop_iceberg_table", namespace="shop\x1feu", table="clicks")
    call("drop_iceberg_namespace", namespace="shop\x1feu")
    call("register_iceberg_table", {"name": "clicks", "metadata-location": location})
    call("drop_iceberg_table", table="clicks")
    _iceberg_views(call, put, incoming)
    call("iceberg_credentials")
    to_sign = {"region": "eu-central-1", "uri": "https://lake.s3.eu-central-1.amazonaws.com/x", "method": "GET"}
    call("sign_iceberg_request", {**to_sign, "headers": {}}, refused=406)  # the setting is off
    planned = call("plan_table_scan", {"filter": {"type": "eq", "term": "country", "value": "DE"}})
    call("fetch_plan", plan_id=planned["plan-id"])
    call("fetch_scan_tasks", {"plan-task": planned["plan-id"]})
    call("cancel_plan", plan_id=planned["plan-id"])
    metrics = {"result-data-files": {"unit": "count", "value": 1}}
    reported = {"type": "eq", "term": "country", "value": "(hash-10ba60ed)"}  # as Java's clients report it
    call("report_iceberg_metrics", {"report-type": "scan-report", "filter": reported, "metrics": metrics})


def _iceberg_views(call: Callable[..., Any], put: Callable[[str, bytes], None], incoming: str) -> None:
    version = {
        "version-id": 1,
        "schema-id": 0,
        "timestamp-ms": 1_711_929_600_000,
        "summary": {"engine-name": "trino"},
        "representations": [{"type": "sql", "sql": "SELECT at, url FROM clicks", "dialect": "trino"}],
        "default-namespace": ["shop"],
    }
    made = call("create_iceberg_view", {"name": "recent", "schema": _CLICKS, "view-version": version})
    call("iceberg_views")
    call("load_iceberg_view", view="recent")
    sql = {"type": "sql", "sql": "SELECT at, url FROM clicks LIMIT 5", "dialect": "trino"}
    call(
        "commit_iceberg_view",
        {
            "requirements": [{"type": "assert-view-uuid", "uuid": made["metadata"]["view-uuid"]}],
            "updates": [
                {"action": "add-view-version", "view-version": {**version, "representations": [sql]}},
                {"action": "set-current-view-version", "view-version-id": -1},
            ],
        },
        view="recent",
    )
    names = [{"namespace": ["shop"], "name": name} for name in ("recent", "newest")]
    call("rename_iceberg_view", {"source": names[0], "destination": names[1]})
    call("drop_iceberg_view", view="newest")
    location = f"{incoming}/recent/metadata/v1.metadata.json"
    put(location, json.dumps({**made["metadata"], "location": f"{incoming}/recent"}).encode())
    call("register_iceberg_view", {"name": "recent", "metadata-location": location})
    call("drop_iceberg_view", view="recent")


def _branches(recorder: Recorder, behind: Behind) -> None:
    call, (audit, trial) = recorder.call, ("orders@audit", "orders@trial")
    call("create_branch", {"name": "audit", "max_idle_ms": 2_592_000_000})
    call("create_branch", {"name": "trial"})
    info = call("get_table")
    for table, number in ((audit, 5), (trial, 6)):
        file = recorder.write(f"{info['location']}/orders-{number}.parquet", 1 + 4 * number, 4 + 4 * number)
        call("commit", {"added": behind.blocks(info["table_id"], [file])}, table=table)
    call("list_branches")
    call("fast_forward", {"to": "audit"})
    call("cherry_pick", {"snapshot_id": "trial"})
    call("drop_branch", branch="trial")
    call("drop_branch", branch="audit")


def _ends(call: Callable[..., Any]) -> None:
    call("rollback", {"snapshot_id": call("list_snapshots")["snapshots"][-2]["snapshot_id"]})
    call("drop_tag", tag="may")
    call("vacuum", {"execute": False})
    call("create_table", {"name": "visits", "schema": [{"name": "id", "type": "int64"}]})
    call("convert_to_iceberg", {}, table="visits")
    call("drop_table", query={"purge": "true"}, table="visits")
    call("rename_table", {"name": "sales"})
    call("drop_table", table="sales")
    call("list_dropped")
    call("undrop_table", {"name": "sales"})
    call("drop_table", query={"purge": "true"}, table="sales")
    call("vacuum_dropped", {"execute": False})
    call("drop_table", table="returns")
    call("create_namespace", {"name": "attic"})
    call("drop_namespace", namespace="attic")


def shortened(value: Any) -> Any:
    """The value with lists of a few items and texts of a few lines."""
    if isinstance(value, dict) and "$ref" in value:  # a JSON Schema, whose references tools would follow
        return {"type": "object"}
    if isinstance(value, dict):
        return {key: shortened(each) for key, each in value.items()}
    if isinstance(value, list):
        return [shortened(each) for each in value[:MAX_ITEMS]]
    if isinstance(value, str):
        lines = value.splitlines(keepends=True)
        text = "".join(lines[:_MAX_LINES])
        return value if text == value and len(text) <= _MAX_CHARACTERS else text[:_MAX_CHARACTERS].rstrip() + "..."
    return value


def shape(value: Any, at: str = "") -> set[str]:
    """The paths of all members, with the kinds of their values; those of all items of a list at once."""
    if isinstance(value, dict):
        return {at, *(found for key, each in value.items() for found in shape(each, f"{at}.{key}"))}
    if isinstance(value, list):
        return {at, *(found for each in value for found in shape(each, f"{at}[]"))}
    kind = "number" if isinstance(value, int | float) and not isinstance(value, bool) else type(value).__name__
    return {f"{at}: {kind}"}


def written(examples: Mapping[str, Any], replaced: Mapping[str, str]) -> str:
    """The text of the file of examples. ``replaced``: texts by patterns."""
    shorter = {
        name: {**each, "answer": shortened(each["answer"])} if "answer" in each else each
        for name, each in examples.items()
    }
    text = json.dumps(shorter, indent=1, ensure_ascii=False) + "\n"
    for pattern, instead in replaced.items():
        text = re.sub(pattern, instead, text)
    return text
