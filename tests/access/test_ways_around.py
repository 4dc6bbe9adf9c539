"""Ways around the rules that somebody once found: each is closed, and stays so."""

from __future__ import annotations

import asyncio
import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from lamella.service.app import create_app
from lamella.service.config.settings import Settings
from lamella.service.telemetry.logs import RequestLog, make_log
from lamella.snapshot.job_kinds import BUILTIN
from lamella.snapshot.tokens import unspelt
from support.app_client import AppClient
from support.tenants import ROOT_KEY, ROOT_SHA256, Asker, Tenants

MAINTAIN = {"role": "maintain", "namespace": "south"}


@pytest.fixture(scope="module")
def tenants(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tenants]:
    """A service of two tenants."""
    with Tenants(tmp_path_factory.mktemp("tenants")) as tenants:
        yield tenants


def refused(answer: httpx2.Response) -> bool:
    """Whether a role was missing."""
    return (answer.status_code, answer.json().get("code")) == (403, "permission_denied")


@pytest.mark.parametrize(
    "job",
    [
        {"kind": "update", "arguments": {"all": True, "set": {"id": "java_method('java.lang.System', 'getenv', 'X')"}}},
        {"kind": "compact", "arguments": {"scratch": "file:///etc"}},
        {"kind": "recluster", "arguments": {"memory_mib": 1_000_000}},
        {"kind": "delete", "arguments": {"where": "id = 1", "scratch": "s3://elsewhere/x"}},
        {"kind": "verify", "priority": 1},
    ],
)
def test_a_job_does_nothing_for_a_tenant_with_the_rights_of_its_worker(tenants: Tenants, job: dict[str, Any]) -> None:
    """SQL that calls what it likes, places to write to, the machine, a place before others: for the server's own."""
    resources = tenants.resources("south")
    mallory = tenants.asker(MAINTAIN)
    table = f"south.{resources.table}"
    assert refused(mallory.send("POST", "/v1/jobs", {"table": table, **job}))
    path = f"/v1/namespaces/south/tables/{resources.table}"
    assert refused(mallory.send("PUT", f"{path}/schedules/s", {"every_s": 60, **job}))
    if job["kind"] in ("compact", "recluster", "verify"):
        rule = {"every_s": 60, **{name: value for name, value in job.items() if name != "kind"}}
        assert refused(mallory.send("PUT", f"{path}/policy", {job["kind"]: rule}))
    made = tenants.root.call("POST", "/v1/jobs", {"table": table, **job})
    tenants.root.call("POST", f"/v1/jobs/{made['job_id']}/cancel")
    assert refused(mallory.send("POST", f"/v1/jobs/{made['job_id']}/retry"))


def test_a_job_belongs_to_its_table_under_the_tables_present_name(tenants: Tenants) -> None:
    """Who had rights on the earlier name can neither see nor retry it, also when another table has the name; a job of a
    dropped table is for the server's own."""
    tables = "/v1/namespaces/south/tables"
    resources = tenants.resources("south")
    table = f"south.{resources.table}"
    before = tenants.asker({**MAINTAIN, "table": resources.table})
    after = tenants.asker({**MAINTAIN, "table": "secret"})
    made = before.call("POST", "/v1/jobs", {"kind": "compact", "table": table})
    job = f"/v1/jobs/{made['job_id']}"
    assert before.call("POST", f"{job}/cancel")["state"] == "cancelled"
    tenants.root.call("DELETE", f"{tables}/{resources.table}")
    requests = (("GET", job), ("GET", f"{job}/log"), ("POST", f"{job}/cancel"), ("POST", f"{job}/retry"))

    def has_no_job(asker: Asker) -> bool:
        answers = [asker.send(*request) for request in requests]
        assert {answer.json().get("code") for answer in answers} == {"job_not_found"}
        return made["job_id"] not in listed(asker)

    def listed(asker: Asker) -> list[str]:
        return [each["job_id"] for each in asker.call("GET", "/v1/jobs")["jobs"]]

    assert has_no_job(before)
    assert has_no_job(tenants.asker(MAINTAIN))
    assert tenants.root.call("GET", job)["job_id"] == made["job_id"]
    tenants.root.call("POST", "/v1/namespaces/south/undrop", {"name": resources.table, "as": "secret"})
    assert has_no_job(before)
    tenants.root.call("POST", tables, {"name": resources.table, "schema": [{"name": "b", "type": "int64"}]})
    assert has_no_job(before)
    assert before.call("GET", f"/v1/jobs?table={table}")["jobs"] == []
    assert listed(after) == [made["job_id"]]
    assert after.call("POST", f"{job}/retry")["state"] == "queued"
    assert after.call("POST", f"{job}/cancel")["state"] == "cancelled"


def test_a_table_is_renamed_by_who_maintains_it_and_may_write_where_it_goes(tenants: Tenants) -> None:
    """Rights on the table alone take no name in a namespace, and grants on the old name do not follow."""
    resources = tenants.resources("south")
    tables = "/v1/namespaces/south/tables"
    rename = f"{tables}/{resources.table}/rename"
    table_only = tenants.asker({**MAINTAIN, "table": resources.table})
    assert refused(table_only.send("POST", rename, {"name": "other"}))
    maintainer = tenants.asker(MAINTAIN)
    north = tenants.asker({"role": "admin", "namespace": "north"})
    for asker in (maintainer, north):  # neither may know of the other's
        assert asker.send("POST", rename, {"name": "other", "namespace": "north"}).status_code == 404
    assert maintainer.call("POST", rename, {"name": "other"})["table_id"] == resources.table_id
    assert table_only.send("GET", f"{tables}/other").status_code == 404
    assert tenants.asker({**MAINTAIN, "table": "other"}).call("GET", f"{tables}/other")["name"] == "other"
    maintainer.call("POST", f"{tables}/other/rename", {"name": resources.table})


def test_a_job_writes_nowhere_else(tenants: Tenants) -> None:
    """Only who maintains the server says where an export goes, and then it is a place that the table may use."""
    job = {"kind": "export_iceberg", "arguments": {"location": "s3://elsewhere/x"}}
    body = {"table": f"south.{tenants.resources('south').table}", **job}
    assert refused(tenants.asker(MAINTAIN).send("POST", "/v1/jobs", body))
    answer = tenants.root.send("POST", "/v1/jobs", body)
    assert (answer.status_code, answer.json()["code"]) == (403, "location_refused")


def test_a_kind_of_job_of_another_package_is_for_the_servers_own_unless_it_says_not() -> None:
    """Nobody knows what its program does with a worker's rights; of ours, it is said of each."""
    assert {kind.name for kind in BUILTIN if kind.server_only} == {"update", "vacuum_dropped"}


def test_a_namespace_is_made_and_dropped_by_the_servers_own(tenants: Tenants) -> None:
    """Else a tenant could drop one with its quotas, and make it again without."""
    admin = tenants.asker({"role": "admin", "namespace": "west"})
    assert refused(admin.send("POST", "/v1/namespaces", {"name": "west"}))
    tenants.root.call("POST", "/v1/namespaces", {"name": "west"})
    assert refused(admin.send("DELETE", "/v1/namespaces/west"))


def test_tables_of_an_earlier_namespace_are_not_those_of_the_next(tenants: Tenants) -> None:
    """Whoever has a name now does not find, or bring back, what another one dropped under it."""
    tenants.root.call("POST", "/v1/namespaces", {"name": "reused"})
    resources = tenants.resources("reused")
    tenants.root.call("DELETE", f"/v1/namespaces/reused/tables/{resources.table}")
    tenants.root.call("DELETE", "/v1/namespaces/reused")
    tenants.root.call("POST", "/v1/namespaces", {"name": "reused"})
    successor = tenants.asker({"role": "admin", "namespace": "reused"})
    assert successor.call("GET", "/v1/namespaces/reused/dropped")["tables"] == []
    for body in ({"name": resources.table}, {"table_id": resources.table_id}):
        assert successor.send("POST", "/v1/namespaces/reused/undrop", body).status_code == 404
    assert len(tenants.root.call("GET", "/v1/namespaces/reused/dropped")["tables"]) == 1


def test_who_may_read_what_was_done_with_a_table_reads_nothing_of_a_namespace_of_its_name(tenants: Tenants) -> None:
    """``south.eu`` can be both."""
    tenants.root.call("POST", "/v1/namespaces", {"name": "south.eu"})
    admin = tenants.asker({"role": "admin", "namespace": "south"})
    assert admin.call("GET", "/v1/audit?table=south.eu")["entries"] == []
    assert tenants.root.call("GET", "/v1/audit?table=south.eu.*")["entries"] != []


def test_the_text_of_a_key_is_written_down_nowhere(tenants: Tenants) -> None:
    """Not even of one that was put where a name belongs."""
    tenants.root.send("DELETE", f"/v1/keys/{ROOT_KEY}")
    tenants.root.send("POST", "/v1/keys", {"name": ROOT_KEY, "grants": []})
    assert ROOT_KEY not in tenants.root.send("GET", "/v1/audit?page_size=1000").text
    stream = io.StringIO()
    for style in ("json", "text"):
        log = RequestLog(make_log("info", style, stream), "info", style, stream)
        log.write(method="GET", path=f"/v1/keys/{ROOT_KEY}/x\x1b[31m", status=404, ms=1, size_bytes=1, request_id="r")
    assert "lamella_hidden" in stream.getvalue()
    assert ROOT_KEY not in stream.getvalue()
    assert "\x1b" not in stream.getvalue()
    assert unspelt(f"a {ROOT_KEY} b {ROOT_KEY}") == "a lamella_hidden b lamella_hidden"


@pytest.mark.parametrize(
    "headers",
    [{"Sec-Fetch-Site": "cross-site"}, {"Sec-Fetch-Site": "same-site"}, {"Origin": "https://evil.example.org"}],
)
def test_a_page_of_another_site_changes_nothing_of_an_open_service(tmp_path: Path, headers: dict[str, str]) -> None:
    """A browser sends requests without a body wherever a page wants; it says from where."""
    with AppClient(create_app(Settings(warehouse=str(tmp_path)))) as app:
        assert app.post("/v1/jobs/due", headers=headers).status_code == 403
        assert app.get("/v1/namespaces", headers=headers).status_code == 200
        ours = {"Sec-Fetch-Site": "same-origin", "Origin": "http://testserver"}
        assert app.post("/v1/jobs/due", headers=ours).status_code == 200
        assert app.post("/v1/jobs/due").status_code == 200


def test_the_form_of_somebody_unknown_is_small(tenants: Tenants) -> None:
    """It is not read beyond that; and without the cookie that comes with the page it is not read at all."""
    visitor = AppClient(tenants.app.app)
    large = {"key": "x" * 100_000}
    assert visitor.post("/ui/login", data=large).status_code == 400
    visitor.get("/ui/login")
    assert visitor.post("/ui/login", data=large).status_code == 413


def test_many_wrong_keys_at_once_are_not_all_looked_up(tmp_path: Path) -> None:
    """Each counts before it is tried; a key that held a while ago is still taken from the same address."""
    folder = str(tmp_path)
    settings = Settings(
        warehouse=folder, auth=True, root_key_sha256=ROOT_SHA256, auth_failures_per_minute=5, auth_cache_s=0
    )
    app = create_app(settings)
    with AppClient(app) as http:
        root = Asker(http, ROOT_KEY)
        assert root.send("GET", "/v1/whoami").status_code == 200

        async def many() -> list[int]:
            transport = httpx2.ASGITransport(app=app)
            async with httpx2.AsyncClient(transport=transport, base_url="http://testserver") as client:
                wrong = [{"Authorization": f"Bearer lamella_{number:049}"} for number in range(50)]
                answers = await asyncio.gather(*(client.get("/v1/whoami", headers=each) for each in wrong))
            return [answer.status_code for answer in answers]

        found = asyncio.run(many())
        assert found.count(401) <= 6
        assert found.count(429) >= 44
        assert root.send("GET", "/v1/whoami").status_code == 200


def test_catalogs_of_others_are_read_for_the_servers_own(tenants: Tenants) -> None:
    """The service has its own rights there; a tenant learns nothing of a table, not even whether there is one."""
    writer = tenants.asker({"role": "admin", "namespace": "south"})
    source = {"kind": "iceberg", "catalog": "prod", "table": "secret.t"}
    assert refused(writer.send("POST", "/v1/namespaces/south/tables", {"name": "t", "source": source}))
