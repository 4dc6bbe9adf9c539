"""Rules about places, through every request that names one: what is refused is refused before it is looked at."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx2
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lamella.service.app import create_app
from lamella.service.config.check import check_configuration
from lamella.service.config.settings import Settings
from lamella.service.config.sources import load_settings
from lamella.service.tables.names import LocationRules
from lamella.snapshot.errors import InvalidRequest
from lamella.snapshot.ids import Ids
from lamella.snapshot.storage import AllLocations, AllowedLocations, normal
from lamella.snapshot.warehouse import Warehouse
from support.app_client import AppClient
from support.listed import put_lists
from support.service_api import fresh_name, parquet_bytes
from support.touched_store import TouchedStore

COLUMNS = [{"name": "a", "type": "int64"}]
PART = {"size_bytes": 1, "tail_bytes": 1, "tail_sha256": "0" * 64, "keys": "AAAAAAAAAAAAAAAAAAAAAA=="}
TABLE = "/v1/namespaces/db/tables/t"


class World:
    """A service whose tables of ``db`` may use ``sales`` and ``shared``, and those of others ``shared`` alone."""

    def __init__(self, folder: Path, opened: ExitStack) -> None:
        self.folder = folder
        self.opened = opened
        for name in ("sales", "shared", "secret"):
            (folder / name).mkdir()
            (folder / name / "x.parquet").write_bytes(parquet_bytes({"a": [1, 2, 3]}))
        self.rules = {"*": [str(folder / "shared")], "db": [str(folder / "sales")]}
        self.start(allowed_locations=self.rules)
        for namespace in ("db", "other"):
            self.post("/v1/namespaces", {"name": namespace})
            self.post(f"/v1/namespaces/{namespace}/tables", {"name": "t", "schema": COLUMNS})
        self.own = str(self.app.get(TABLE).json()["location"])
        self.foreign = str(self.app.get("/v1/namespaces/other/tables/t").json()["location"])

    def start(self, **options: Any) -> None:
        """The service over the same warehouse, with these settings."""
        self.store = TouchedStore()
        options = {"log_level": "error", "log_requests": False, **options}
        made = create_app(Settings(warehouse=f"{self.folder}/warehouse", **options), store=self.store)
        self.app = self.opened.enter_context(AppClient(made))

    def post(self, path: str, body: Any) -> httpx2.Response:
        """The answer, whatever it is; nothing outside of allowed places was asked of the store on the way."""
        self.store.touched.clear()
        answer: httpx2.Response = self.app.post(path, json=body)
        allowed = [f"file://{self.folder}/{name}" for name in ("sales", "shared", "warehouse")]
        for touched in self.store.touched:
            assert any(f"{normal(touched)}/".startswith(f"{each}/") for each in allowed), touched
        return answer

    def refused(self, path: str, body: Any, location: str | None = None) -> None:
        """It is refused with its name, and that place was not looked at, nor another table's."""
        answer = self.post(path, body)
        problem = answer.json()
        assert (answer.status_code, problem["code"]) == (403, "location_refused"), answer.text
        if location is not None:
            assert problem["details"] == {"location": location}
        assert not [each for each in self.store.touched if self.foreign in each]

    def block(self, location: object) -> dict[str, Any]:
        """A block without statistics."""
        return {"location": str(location), "row_count": 3, "file_size": 1}


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """One for all tests that change nothing."""
    with ExitStack() as opened:
        yield World(tmp_path_factory.mktemp("rules"), opened)


@pytest.fixture
def own_world(tmp_path: Path) -> Iterator[World]:
    """One that is this test's."""
    with ExitStack() as opened:
        yield World(tmp_path, opened)


def test_files_in_allowed_locations_are_taken(own_world: World) -> None:
    """The namespace's own prefixes, those of every namespace, and the table's folder; by folder, glob and name."""
    folder = own_world.folder
    (folder / "sales" / "y.parquet").write_bytes(parquet_bytes({"a": [4]}))
    for paths, count in (([f"{folder}/sales"], 2), ([f"{folder}/shared/*.parquet"], 1)):
        answer = own_world.post(f"{TABLE}/register", {"paths": paths})
        assert (answer.status_code, answer.json()["registered"]) == (200, count)
    own = f"{own_world.own}/_b/{Ids().new()}_v1.parquet"
    own_world.store.put(own, parquet_bytes({"a": [5]}))
    assert own_world.post(f"{TABLE}/commits", {"added": [own_world.block(own)]}).status_code == 200
    made = {"name": "made", "schema_from": f"{folder}/shared/x.parquet"}
    assert own_world.post("/v1/namespaces/db/tables", made).status_code == 201


def test_a_prefix_of_one_namespace_is_not_anothers(world: World) -> None:
    """``sales`` belongs to ``db``."""
    for path, body in (
        ("tables/t/register", {"paths": [f"{world.folder}/sales/x.parquet"]}),
        ("tables/t/commits", {"added": [world.block(world.folder / "sales" / "x.parquet")]}),
        ("tables", {"name": "new", "schema_from": f"{world.folder}/sales/x.parquet"}),
    ):
        world.refused(f"/v1/namespaces/other/{path}", body)


@pytest.mark.parametrize(
    "template",
    [
        "{folder}/secret/x.parquet",
        "{folder}/secret/nothing.parquet",
        "{folder}/sales/../secret/x.parquet",
        "{folder}/sales/%2e%2e/secret/x.parquet",
        "{folder}/Sales/x.parquet",
        "{folder}/sales-secret/x.parquet",
        "{foreign}/_b/x.parquet",
        "{folder}/warehouse/_catalog.db",
        "s3://sales/x.parquet",
        "memory://sales/x.parquet",
    ],
)
def test_a_location_elsewhere_is_refused_by_every_request(world: World, template: str) -> None:
    """Whether something is there makes no difference to the answer."""
    location = template.format(folder=world.folder, foreign=world.foreign)
    lists = put_lists(world.store, world.own, [world.block(location)])
    bad, good = world.block(location), world.block(world.folder / "sales" / "x.parquet")
    before = world.app.get(TABLE).json()
    world.refused(f"{TABLE}/register", {"paths": [location]}, location)
    world.refused(f"{TABLE}/register", {"paths": [f"{world.folder}/sales", location]}, location)
    world.refused(f"{TABLE}/commits", {"added": [bad]}, location)
    world.refused(f"{TABLE}/commits", {"added": [good, bad]}, location)
    world.refused(f"{TABLE}/commits", {"added_from": lists}, location)
    world.refused("/v1/namespaces/db/tables", {"name": "new", "schema_from": location}, location)
    for kind in ("directory", "delta", "iceberg"):
        body = {"name": "new", "source": {"kind": kind, "location": location}}
        world.refused("/v1/namespaces/db/tables", body)
    job = {"kind": "export_iceberg", "arguments": {"location": location}}
    world.refused("/v1/jobs", {"table": "db.t", **job}, location)
    schedule = world.app.put(f"{TABLE}/schedules/s", json={"every_s": 60, **job})
    assert (schedule.status_code, schedule.json()["code"]) == (403, "location_refused")
    assert world.app.get(TABLE).json() == before


@pytest.mark.parametrize(
    "url", ["{folder}", "{folder}/*", "{folder}/se*", "{folder}/warehouse", "/", "{folder}/**/x.parquet"]
)
def test_a_folder_or_glob_with_more_in_it_is_refused(world: World, url: str) -> None:
    """Nothing is listed, although some of what it stands for would be allowed."""
    world.refused(f"{TABLE}/register", {"paths": [url.format(folder=world.folder)]})
    body = {"name": "new", "source": {"kind": "directory", "location": url.format(folder=world.folder)}}
    world.refused("/v1/namespaces/db/tables", body)


@pytest.mark.parametrize(
    "template", ["{folder}/secret/x.part", "{foreign}/_ix/{part}", "{own}/../x/_ix/{part}", "{folder}/sales/x.part"]
)
def test_parts_of_indexes_are_in_the_tables_own_folder(world: World, template: str) -> None:
    """Allowed prefixes are for data files; a part anywhere else is no part, and is not looked at."""
    name = f"{Ids().new()}_v1.part"
    location = template.format(folder=world.folder, foreign=world.foreign, own=world.own, part=name)
    index = {"name": f"i{Ids().new().hex}", "kind": "value_set", "expression": "a"}
    made = world.app.post(f"{TABLE}/indexes", json=index)
    assert made.status_code == 200, made.text
    sent = {"index_id": made.json()["index_id"], "parts": [{"location": location, **PART}]}
    answer = world.post(f"{TABLE}/indexes/{index['name']}/parts", sent)
    assert (answer.status_code, answer.json()["code"]) == (400, "invalid_request")
    assert not [touched for touched in world.store.touched if touched == location]


#: Ways out that programs know, and ways in.
STEPS = st.lists(
    st.sampled_from(
        (
            "..",
            ".",
            "",
            "%2e%2e",
            "%252e%252e",
            "..%2f",
            "sales",
            "SALES",
            "secret",
            "shared",
            "warehouse",
            "x.parquet",
            "*",
        )
    ),
    max_size=6,
).map("/".join)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    start=st.sampled_from(["sales", "shared", "", "warehouse", "sales/..", "secret"]),
    steps=STEPS,
    scheme=st.sampled_from(["", "file://", "FILE:"]),
)
def test_no_spelling_of_a_location_leads_the_store_elsewhere(world: World, start: str, steps: str, scheme: str) -> None:
    """Whatever the answer is, :meth:`World.post` saw that nothing outside was asked of the store; and none is a 5xx."""
    location = f"{scheme}{world.folder}/{start}/{steps}"
    for path, body in (
        (f"{TABLE}/register", {"paths": [location], "strict": True}),
        (f"{TABLE}/commits", {"added": [world.block(location)], "removed": [f"{world.folder}/none"]}),
        ("/v1/namespaces/db/tables", {"name": fresh_name(), "schema_from": location}),
        ("/v1/namespaces/db/tables", {"name": fresh_name(), "source": {"kind": "iceberg", "location": location}}),
    ):
        assert world.post(path, body).status_code < 500


def test_a_rollback_brings_nothing_back_from_where_the_table_may_not_be(own_world: World) -> None:
    """The rules may have become tighter since; what is in the table stays readable all the same."""
    folder = own_world.folder
    own_world.start()  # without rules
    first = own_world.app.post(f"{TABLE}/register", json={"paths": [f"{folder}/secret"]}).json()["snapshot_id"]
    gone = {"removed": [f"{folder}/secret/x.parquet"]}
    assert own_world.app.post(f"{TABLE}/commits", json=gone).status_code == 200
    own_world.start(allowed_locations=own_world.rules)
    own_world.refused(f"{TABLE}/rollback", {"snapshot_id": first}, f"file://{folder}/secret/x.parquet")
    old = own_world.post(f"{TABLE}/prune", {"snapshot_id": first})
    assert [block["location"] for block in old.json()["blocks"]] == [f"file://{folder}/secret/x.parquet"]


def test_a_table_does_not_follow_a_source_where_it_may_not_be(own_world: World) -> None:
    """Each refresh asks the rules anew, and nothing is listed."""
    own_world.start()
    source = {"kind": "directory", "location": f"{own_world.folder}/secret"}
    made = own_world.app.post("/v1/namespaces/db/tables", json={"name": "followed", "source": source})
    assert made.status_code == 201, made.text
    own_world.start(allowed_locations=own_world.rules)
    for mode in ("incremental", "dry_run"):
        path = "/v1/namespaces/db/tables/followed/refresh"
        own_world.refused(path, {"mode": mode}, f"file://{own_world.folder}/secret")


def test_a_clean_up_deletes_nothing_where_the_table_may_not_be(own_world: World) -> None:
    """A file that was registered before there were rules is not the table's to delete."""
    folder = own_world.folder
    own_world.start()
    for name in ("secret", "sales"):
        path = f"{folder}/{name}/x.parquet"
        assert own_world.app.post(f"{TABLE}/register", json={"paths": [path]}).status_code == 200
        assert own_world.app.post(f"{TABLE}/commits", json={"removed": [path]}).status_code == 200
    own_world.start(allowed_locations=own_world.rules, retention_max_age_s=0, vacuum_min_age_s=0)
    body = {"execute": True, "include_external_blocks": True}
    answer = own_world.post(f"{TABLE}/vacuum", body)
    assert answer.status_code == 200, answer.text
    assert not (folder / "sales" / "x.parquet").exists()
    assert (folder / "secret" / "x.parquet").exists()
    left = {each["location"]: each["reason"] for each in answer.json()["left"]}
    assert "may not use its location" in left[f"file://{folder}/secret/x.parquet"]


def test_what_was_marked_before_there_were_rules_is_not_deleted(own_world: World) -> None:
    """A clean-up that could not delete a file notes that it must go; rules that came since count for more."""
    path = f"{own_world.folder}/secret/x.parquet"
    own_world.start(retention_max_age_s=0, vacuum_min_age_s=0)
    assert own_world.app.post(f"{TABLE}/register", json={"paths": [path]}).status_code == 200
    assert own_world.app.post(f"{TABLE}/commits", json={"removed": [path]}).status_code == 200
    own_world.store.stuck = True
    body = {"execute": True, "include_external_blocks": True}
    assert own_world.app.post(f"{TABLE}/vacuum", json=body).json()["left"]
    own_world.start(allowed_locations=own_world.rules, retention_max_age_s=0, vacuum_min_age_s=0)
    assert own_world.post(f"{TABLE}/vacuum", body).status_code == 200
    assert Path(path).exists()


def rules_of(tmp_path: Path, **options: Any) -> AllowedLocations:
    """The places of a table of ``db``, by settings."""
    made = Settings(warehouse=str(tmp_path), **options)
    warehouse = Warehouse(TouchedStore(), made.warehouse_url)
    return LocationRules(made, warehouse).of("db", "01920000-0000-7000-8000-000000000001")


def test_without_the_setting_rules_come_with_authentication(tmp_path: Path) -> None:
    """A service that asks nobody who they are allows all places; one that does allows the table's own folder."""
    assert isinstance(rules_of(tmp_path), AllLocations)
    elsewhere: dict[str, Any] = {"x": ["/data"]}
    cases: list[dict[str, Any]] = [{"auth": True}, {"allowed_locations": {}}]
    for options in (*cases, {"auth": True, "allowed_locations": elsewhere}):
        rules = rules_of(tmp_path, **options)
        assert rules.allows(f"{tmp_path}/01920000-0000-7000-8000-000000000001/x")
        assert not rules.allows("/data/x")
    assert rules_of(tmp_path, auth=True, allowed_locations={"*": ["/data"]}).allows("/data/x")


def test_prefixes_that_cannot_be_are_reported_at_the_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the name of the setting and the prefix; and by whoever checks the configuration before."""
    for prefix in ("data", f"{tmp_path}/landing", "s3://b/*", "s3://b/../c"):
        with pytest.raises(InvalidRequest, match="LAMELLA_ALLOWED_LOCATIONS") as caught:
            create_app(Settings(warehouse=str(tmp_path), allowed_locations={"db": [prefix]}))
        assert prefix in caught.value.message
        monkeypatch.setenv("LAMELLA_WAREHOUSE", str(tmp_path / "lake"))
        monkeypatch.setenv(
            "LAMELLA_ALLOWED_LOCATIONS", json.dumps({"db": [prefix.replace(str(tmp_path), f"{tmp_path}/lake")]})
        )
        report = check_configuration(load_settings(), connect=False)
        (finding,) = [found for found in report.findings if found.about == "allowed_locations"]
        assert (finding.severity, report.is_usable) == ("error", False)


def test_the_setting_is_read_from_the_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """As JSON, and it travels to worker processes so."""
    rules = {"*": ["s3://shared"], "sales": ["s3://sales/exports"]}
    monkeypatch.setenv("LAMELLA_WAREHOUSE", str(tmp_path))
    monkeypatch.setenv("LAMELLA_ALLOWED_LOCATIONS", json.dumps(rules))
    made = Settings()  # type: ignore[call-arg]  # from the environment
    assert made.allowed_locations == rules
    assert json.loads(made.model_dump_json())["allowed_locations"] == rules
