"""Two tenants of one service that asks for keys, each with tables and all that a table can have."""

from __future__ import annotations

import io
import itertools
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Self
from urllib.parse import urlsplit
from urllib.request import url2pathname
from uuid import uuid4

import httpx2
import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from lamella.service.app import create_app
from lamella.service.catalog import AutoRecord, open_catalog
from lamella.service.config.settings import Settings
from lamella.snapshot.tokens import key_sha256, key_text
from lamella.snapshot.wire import AutoAction, Candidate
from support.app_client import AppClient

ROOT_KEY = key_text(bytes(range(32)))
ROOT_SHA256 = key_sha256(ROOT_KEY)
#: Who does actions of automatic upkeep.
RUNNER = "0199dddd-0000-7000-8000-000000000000"
_ABSENT = "0199aaaa-0000-7000-8000-000000000000"


class TenantResources(msgspec.Struct, frozen=True, kw_only=True):
    """One table of a tenant, and the names of what it has; what was not asked for has names of nothing."""

    namespace: str
    table: str
    table_id: str
    location: str
    snapshot_id: str
    first_snapshot_id: str
    segment_id: str
    blocks: tuple[str, ...]
    column: str
    value: str
    tag: str = "none"
    branch: str = "none"
    index: str = "none"
    schedule: str = "none"
    lease_id: str = _ABSENT
    job_id: str = _ABSENT
    lease_token: str = _ABSENT
    key: str = "none"
    dropped: str = "none"
    view: str = "none"
    plan_id: str = "none"
    action_id: str = _ABSENT
    #: The same for all: a share is what each may read.
    share: str = "lamella"

    def words(self) -> tuple[str, ...]:
        """All that another tenant must not learn: names that no other tenant has, and ids."""
        named = (self.namespace, self.table, self.column, self.value, self.tag, self.index, self.schedule, self.key)
        ids = (self.table_id, self.snapshot_id, self.first_snapshot_id, self.segment_id)
        others = (self.lease_id, self.job_id, self.action_id, self.dropped, self.view)
        return tuple(each for each in (*named, *ids, *others, *self.blocks) if each not in ("none", _ABSENT))


class Asker:
    """One who asks, by a key; None: by nothing."""

    def __init__(self, app: httpx2.Client, key: str | None) -> None:
        self._app = app
        self._headers = {} if key is None else {"Authorization": f"Bearer {key}"}

    def send(self, method: str, path: str, body: Any = None, **headers: str) -> httpx2.Response:
        """The answer, whatever it is."""
        answer: httpx2.Response = self._app.request(
            method, path, json=body, headers={**self._headers, **headers}, follow_redirects=False
        )
        return answer

    def call(self, method: str, path: str, body: Any = None) -> Any:
        """The JSON of an answer that must be one."""
        answer = self.send(method, path, body)
        assert answer.status_code < 300, f"{method} {path}: {answer.status_code} {answer.text}"
        return answer.json() if answer.content else None


class Tenants:
    """The service, its root, and tables of ``north`` and ``south``. ``app`` is asked without a socket."""

    def __init__(self, folder: Path, **settings: Any) -> None:
        options = {
            "auth": True,
            "root_key_sha256": ROOT_SHA256,
            "feedback": True,
            "auth_cache_s": 0.0,
            "auth_failures_per_minute": 100_000,
            "request_wait_s": 60.0,  # a busy machine may take longer than usual to find out who asks
        }
        chosen = Settings(warehouse=str(folder / "warehouse"), **{**options, **settings})
        self.app = AppClient(create_app(chosen))
        self.catalog_url = chosen.catalog_url
        self.root = Asker(self.app, ROOT_KEY)
        self._numbers = itertools.count()

    def __enter__(self) -> Self:
        self.app.__enter__()
        for name in ("north", "south"):
            self.root.call("POST", "/v1/namespaces", {"name": name, "properties": {"owner": f"{name}-owner"}})
        return self

    def __exit__(self, *_: object) -> None:
        self.app.__exit__(None, None, None)

    def asker(self, *grants: Mapping[str, str]) -> Asker:
        """One with a key of its own that has these grants."""
        return Asker(self.app, self.key(*grants)[1])

    def key(self, *grants: Mapping[str, str], by: Asker | None = None) -> tuple[str, str]:
        """A new key's name and text."""
        name = f"key{next(self._numbers)}"
        made = (by or self.root).call("POST", "/v1/keys", {"name": name, "grants": list(grants)})
        return name, made["key"]

    def resources(self, tenant: str, *needs: str) -> TenantResources:
        """A table of a tenant's, with a tag, a lease, an index, ... where ``needs`` names them (``lease_id``, ...)."""
        number = next(self._numbers)
        table, column, value = f"{tenant}table{number}", f"{tenant}column", f"{tenant}-value"
        path = f"/v1/namespaces/{tenant}/tables"
        schema = [{"name": "id", "type": "int64"}, {"name": column, "type": "string"}]
        properties = {"lamella.feedback.enabled": "true"}
        body = {"name": table, "schema": schema, "cluster_key": ["id"], "properties": properties}
        info = self.root.call("POST", path, body)
        one = f"{path}/{table}"
        for part in range(2):
            self.write(info["location"], f"{tenant}-{number}-{part}.parquet", column, value, part)
            at = f"{info['location']}/{tenant}-{number}-{part}.parquet"
            self.root.call("POST", f"{one}/register", {"paths": [at], "strict": True})
        history = self.root.call("GET", f"{one}/snapshots")["snapshots"]
        manifest = self.root.call("GET", f"{one}/snapshots/{history[0]['snapshot_id']}")
        blocks = self.root.call("POST", f"{one}/prune", {})["blocks"]
        resources = TenantResources(
            namespace=tenant,
            table=table,
            table_id=info["table_id"],
            location=info["location"],
            snapshot_id=history[0]["snapshot_id"],
            first_snapshot_id=history[1]["snapshot_id"],
            segment_id=manifest["segments"][0]["segment_id"],
            blocks=tuple(each["location"] for each in blocks),
            column=column,
            value=value,
        )
        for need in needs:
            resources = _MAKERS[need](self, resources)
        return resources

    def write(self, folder: str, name: str, column: str, value: str, part: int = 0) -> str:
        """A Parquet file in a folder, with a text that tells whose it is; its location."""
        rows = pa.table({"id": list(range(part * 10, part * 10 + 10)), column: [value] * 10})
        buffer = io.BytesIO()
        pq.write_table(rows, buffer)
        path = Path(url2pathname(urlsplit(folder).path)) / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(buffer.getvalue())
        return f"{folder}/{name}"

    def state(self, resources: TenantResources) -> dict[str, Any]:
        """All that the service says of a table and what it has, for finding out whether something was changed."""
        one = f"/v1/namespaces/{resources.namespace}/tables/{resources.table}"
        below = ("", "/snapshots", "/tags", "/leases", "/indexes?dropped=true", "/schedules", "/feedback", "/recorded")
        others = (
            f"/v1/jobs/{resources.job_id}",
            f"/v1/keys/{resources.key}",
            f"/v1/namespaces/{resources.namespace}/dropped",
            f"/v1/namespaces/{resources.namespace}/views",
            f"/v1/namespaces/{resources.namespace}/views/{resources.view}",
        )
        paths = (*(one + each for each in below), one + "/policy", *others, "/v1/grants", "/v1/keys")
        found = {}
        for path in paths:
            answer = self.root.send("GET", path)
            assert answer.status_code in (200, 404), f"GET {path}: {answer.status_code} {answer.text}"
            found[path] = (answer.status_code, answer.json())
        for key in (*found["/v1/keys"][1]["keys"], found[f"/v1/keys/{resources.key}"][1]):
            key.pop("used_ms", None)  # a key that was tried was used
        return found


def _branch(tenants: Tenants, resources: TenantResources) -> TenantResources:
    branch = f"{resources.namespace}branch"
    tenants.root.call("POST", f"{_path(resources)}/branches", {"name": branch})
    return msgspec.structs.replace(resources, branch=branch)


def _tag(tenants: Tenants, resources: TenantResources) -> TenantResources:
    tag = f"{resources.namespace}tag"
    tenants.root.call("POST", f"{_path(resources)}/tags", {"name": tag})
    return msgspec.structs.replace(resources, tag=tag)


def _lease(tenants: Tenants, resources: TenantResources) -> TenantResources:
    owner = f"{resources.namespace}-reader"
    lease = tenants.root.call("POST", f"{_path(resources)}/leases", {"ttl_s": 600, "owner": owner})
    return msgspec.structs.replace(resources, lease_id=lease["lease_id"])


def _index(tenants: Tenants, resources: TenantResources) -> TenantResources:
    index = f"{resources.namespace}index"
    body = {"name": index, "kind": "bloom", "expression": resources.column}
    tenants.root.call("POST", f"{_path(resources)}/indexes", body)
    return msgspec.structs.replace(resources, index=index)


VIEW_COLUMNS = '{"type":"struct","fields":[{"name":"id","type":"long","nullable":true,"metadata":{}}]}'


def _view(tenants: Tenants, resources: TenantResources) -> TenantResources:
    view = f"{resources.table}view"
    body = {"name": view, "definition": view_definition(resources)}
    tenants.root.call("POST", f"/v1/namespaces/{resources.namespace}/views", body)
    return msgspec.structs.replace(resources, view=view)


def view_definition(resources: TenantResources) -> dict[str, str]:
    """The definition of a view of a table."""
    return {"sql": f"TABLE {resources.table}", "schema_json": VIEW_COLUMNS}


def _dropped_index(tenants: Tenants, resources: TenantResources) -> TenantResources:
    resources = _index(tenants, resources)
    tenants.root.call("DELETE", f"{_path(resources)}/indexes/{resources.index}")
    return resources


def _plan(tenants: Tenants, resources: TenantResources) -> TenantResources:
    plan = tenants.root.call("POST", f"/iceberg{_path(resources)}/plan", {})
    return msgspec.structs.replace(resources, plan_id=plan["plan-id"])


def _schedule(tenants: Tenants, resources: TenantResources) -> TenantResources:
    schedule = f"{resources.namespace}schedule"
    tenants.root.call("PUT", f"{_path(resources)}/schedules/{schedule}", {"kind": "verify", "every_s": 86_400})
    return msgspec.structs.replace(resources, schedule=schedule)


def _action(tenants: Tenants, resources: TenantResources) -> TenantResources:
    candidate = Candidate(kind="compact", text="Compacting 2 blocks", command="lamella compact")
    action = AutoAction(
        action_id=str(uuid4()),
        state="running",
        change="compact",
        candidate=candidate,
        snapshot_id=resources.snapshot_id,
        started_ms=1,
    )
    record = AutoRecord(
        action_id=action.action_id,
        table_id=resources.table_id,
        started_ms=1,
        runner=RUNNER,
        lease_expires_ms=1 << 50,
        action=msgspec.json.encode(action).decode(),
        filters='{"recorded":[],"seed":0}',
    )
    catalog = open_catalog(tenants.catalog_url)
    assert catalog.begin_auto(record, at_most=10)
    catalog.close()
    return msgspec.structs.replace(resources, action_id=action.action_id)


def _policy(tenants: Tenants, resources: TenantResources) -> TenantResources:
    tenants.root.call("PUT", f"{_path(resources)}/policy", {"verify": {"every_s": 86_400}, "auto": {"dry_run": True}})
    return resources


def _job(tenants: Tenants, resources: TenantResources) -> TenantResources:
    job = {"kind": "verify", "table": f"{resources.namespace}.{resources.table}", "unique": False}
    return msgspec.structs.replace(resources, job_id=tenants.root.call("POST", "/v1/jobs", job)["job_id"])


def _cancelled_job(tenants: Tenants, resources: TenantResources) -> TenantResources:
    resources = _job(tenants, resources)
    tenants.root.call("POST", f"/v1/jobs/{resources.job_id}/cancel")
    return resources


def _claimed_job(tenants: Tenants, resources: TenantResources) -> TenantResources:
    resources = _job(tenants, resources)
    while True:  # jobs of other tests come first: queued ones, and those whose worker's lease has ended
        token = f"0199bbbb-0000-7000-8000-{next(tenants._numbers):012}"
        body = {"worker": "w", "lease_token": token, "lease_s": 600}
        claimed = tenants.root.call("POST", "/v1/jobs/claim", body)["job"]
        if claimed["job_id"] == resources.job_id:
            return msgspec.structs.replace(resources, lease_token=token)
        tenants.root.call("POST", f"/v1/jobs/{claimed['job_id']}/cancel")


def _key(tenants: Tenants, resources: TenantResources) -> TenantResources:
    grant = {"role": "read", "namespace": resources.namespace, "table": resources.table}
    return msgspec.structs.replace(resources, key=tenants.key(grant)[0])


def _dropped(tenants: Tenants, resources: TenantResources) -> TenantResources:
    gone = tenants.resources(resources.namespace)
    tenants.root.call("DELETE", _path(gone))
    return msgspec.structs.replace(resources, dropped=gone.table, table_id=gone.table_id)


def _path(resources: TenantResources) -> str:
    return f"/v1/namespaces/{resources.namespace}/tables/{resources.table}"


_MAKERS: Mapping[str, Callable[[Tenants, TenantResources], TenantResources]] = {
    "view": _view,
    "plan_id": _plan,
    "tag": _tag,
    "branch": _branch,
    "lease_id": _lease,
    "index": _index,
    "dropped_index": _dropped_index,
    "schedule": _schedule,
    "policy": _policy,
    "action_id": _action,
    "job_id": _job,
    "cancelled_job": _cancelled_job,
    "claimed_job": _claimed_job,
    "key": _key,
    "dropped": _dropped,
}
