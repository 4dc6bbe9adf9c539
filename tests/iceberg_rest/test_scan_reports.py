"""Scans that Iceberg clients planned by themselves are among the recorded filters of a table, by their reports."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lamella.service.app import create_app
from lamella.service.config.settings import Settings
from support.app_client import AppClient

TABLE = "/v1/namespaces/n/tables/t"
REPORTS = "/iceberg/v1/namespaces/n/tables/t/metrics"
#: As Java's client writes it: constants are replaced, and counters have a unit.
FILTER = {
    "type": "and",
    "left": {"type": "gt-eq", "term": "id", "value": "(2-digit-int)"},
    "right": {"type": "eq", "term": "name", "value": "(hash-6ae2d4e1)"},
}
TEXT = "id >= '?' AND name = '?'"


@pytest.fixture
def app(tmp_path: Path) -> Iterator[AppClient]:
    """A service with a table of four blocks."""
    with AppClient(create_app(Settings(warehouse=str(tmp_path / "warehouse")))) as app:
        assert app.post("/v1/namespaces", json={"name": "n"}).status_code == 201
        for number in range(4):
            rows = pa.table({"id": pa.array([number], pa.int64()), "name": ["x"]})
            pq.write_table(rows, tmp_path / f"{number}.parquet")
        body = {"name": "t", "schema_from": f"{tmp_path}/0.parquet"}
        assert app.post("/v1/namespaces/n/tables", json=body).status_code == 201
        assert app.post(f"{TABLE}/register", json={"paths": [f"{tmp_path}/*.parquet"]}).status_code == 200
        yield app


def reported(app: AppClient, *, files: int = 1, size_bytes: int = 100, **more: Any) -> httpx2.Response:
    """The answer to a report of a scan."""
    metrics = {
        "total-planning-duration": {"count": 1, "time-unit": "nanoseconds", "total-duration": 2644235116},
        "result-data-files": {"unit": "count", "value": files},
        "skipped-data-files": {"unit": "count", "value": 3},
        "total-file-size-in-bytes": {"unit": "bytes", "value": size_bytes},
    }
    report = {
        "report-type": "scan-report",
        "table-name": "lake.n.t",
        "snapshot-id": 2,
        "filter": FILTER,
        "schema-id": 0,
        "projected-field-ids": [1, 2],
        "projected-field-names": ["id", "name"],
        "metrics": metrics,
        "metadata": {"engine-name": "spark", "iceberg-version": "1.11.0"},
    }
    answer: httpx2.Response = app.post(REPORTS, json={**report, **more})
    return answer


def recorded(app: AppClient) -> list[dict[str, Any]]:
    """The recorded filters of the table."""
    found: list[dict[str, Any]] = app.get(f"{TABLE}/recorded").json()["filters"]
    return found


def test_the_filter_of_a_report_is_recorded(app: AppClient) -> None:
    """With what the client read, together with equal prunes of the service."""
    assert reported(app).status_code == 204
    assert reported(app, files=2).status_code == 204
    (found,) = recorded(app)
    assert (found["filter"], found["times"], found["considered"], found["kept"]) == (TEXT, 2, 8, 3)
    assert app.post(f"{TABLE}/prune", json={"filter": "id >= 17 AND name = 'me'"}).status_code == 200
    (found,) = recorded(app)
    assert found["times"] == 3


@pytest.mark.parametrize("mode", ["hashed", "full", "shape", "off"])
def test_constants_of_a_report_are_recorded_by_no_setting(app: AppClient, mode: str) -> None:
    """They are not those of the query, or may be secret; nothing is recorded where the table says so."""
    properties = {"properties": {"lamella.record_prunes": mode}}
    assert app.post(f"{TABLE}/commits", json=properties).status_code == 200
    assert reported(app, filter={"type": "eq", "term": "name", "value": "secret"}).status_code == 204
    assert [each["filter"] for each in recorded(app)] == ([] if mode == "off" else ["name = '?'"])


def test_numbers_of_a_report_count_as_far_as_the_table_has_so_much(app: AppClient) -> None:
    """A client could claim anything."""
    assert reported(app, files=10**9, size_bytes=10**15).status_code == 204
    (found,) = recorded(app)
    size_bytes = app.post(f"{TABLE}/prune", json={}).json()["report"]["bytes_total"]
    assert (found["considered"], found["kept"], found["kept_bytes"]) == (4, 4, size_bytes)


def test_reports_say_nothing_about_how_well_the_service_skips(app: AppClient) -> None:
    """The client skipped by its manifests."""
    assert reported(app).status_code == 204
    assert app.get(f"{TABLE}/prune-rates").json()["total"]["prunes"] == 0


@pytest.mark.parametrize("filter", [True, None, {"type": "true"}, {"type": "no"}, "no filter"])
def test_a_report_without_a_filter_that_can_be_read_records_nothing(app: AppClient, filter: Any) -> None:
    """It is accepted: a scan of everything, or a predicate of a later release."""
    assert reported(app, filter=filter).status_code == 204
    assert recorded(app) == []


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"report-type": "something"},
        {"report-type": "scan-report", "filter": FILTER, "metrics": {"result-data-files": {"value": -1}}},
        {"report-type": "scan-report", "filter": FILTER, "metrics": {"result-data-files": "many"}},
        {"report-type": "scan-report", "filter": FILTER, "metrics": []},
    ],
)
def test_a_report_that_cannot_be_meant_is_an_error(app: AppClient, body: dict[str, Any]) -> None:
    """Of no kind, or with numbers that are none."""
    refused = app.post(REPORTS, json=body)
    assert (refused.status_code, refused.json()["error"]["type"]) == (400, "BadRequestException")


def test_a_report_of_a_commit_is_accepted(app: AppClient) -> None:
    """The table's history has the commit."""
    commit = {"report-type": "commit-report", "table-name": "t", "snapshot-id": 1, "sequence-number": 1}
    assert app.post(REPORTS, json={**commit, "operation": "append", "metrics": {}}).status_code == 204
    assert recorded(app) == []
