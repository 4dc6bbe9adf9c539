"""What the home page says about the health of the service, of an application in this process."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from lamella.service.access.principal import OPEN
from lamella.service.app import create_app
from lamella.service.catalog import JobRecord, TableVersion
from lamella.service.config.settings import Settings
from lamella.service.dashboard.health import KEYS_MS, failed_lines, key_lines, storage_lines, worker_lines
from lamella.service.dashboard.survey import Known, Reclaimable, best_known
from lamella.snapshot.wire import KeyInfo
from support.app_client import AppClient
from support.job_records import IDS, queued

_LONGEST_S = 60.0


class OwnService:
    """A service in this process, at a time of its own, that keeps what it knows of tables up to date by itself."""

    def __init__(self, folder: Path, **settings: Any) -> None:
        self.now_ms = 1_800_000_000_000
        app = create_app(
            Settings(warehouse=str(folder / "warehouse"), log_requests=False, **settings), clock=lambda: self.now_ms
        )
        self.http = AppClient(app)

    def call(self, method: str, path: str, body: Any = None, *, expect: int = 200) -> Any:
        """The JSON of an answer."""
        answer = self.http.request(method, path, json=body)
        assert answer.status_code == expect, answer.text
        return answer.json() if answer.content else None

    def home(self) -> str:
        """The home page's part about health, once all tables were checked."""
        give_up = time.monotonic() + _LONGEST_S
        while True:
            text: str = self.http.get("/ui").text
            if "checked so far" not in text or time.monotonic() > give_up:
                return text.partition('id="health"')[2].partition("</section>")[0]
            time.sleep(0.05)

    def ended_job(self, kind: str, outcome: str, result: Any = None) -> str:
        """The id of a job that a worker ended so."""
        job: dict[str, Any] = self.call("POST", "/v1/jobs", {"kind": kind, "table": "n.t"}, expect=201)
        token = str(IDS.new())
        self.call("POST", "/v1/jobs/claim", {"worker": "w", "lease_token": token, "lease_s": 60})
        report: dict[str, Any] = {"lease_token": token, "outcome": outcome, "retry": False}
        report |= {"error": {"code": "odd", "detail": "it is <odd>"}} if outcome == "failed" else {"result": result}
        self.call("POST", f"/v1/jobs/{job['job_id']}/finish", report)
        return str(job["job_id"])


@pytest.fixture
def service(tmp_path: Path) -> Iterator[OwnService]:
    """One with an empty table ``n.t``."""
    service = OwnService(tmp_path)
    with service.http:
        service.call("POST", "/v1/namespaces", {"name": "n"}, expect=201)
        schema = [{"name": "a", "type": "bigint"}]
        service.call("POST", "/v1/namespaces/n/tables", {"name": "t", "schema": schema}, expect=201)
        yield service


def test_where_nothing_is_wrong_the_page_says_so_and_when(service: OwnService) -> None:
    """With how many tables were checked, and what was not measured."""
    text = service.home()
    assert "Nothing needs attention." in text
    assert "1 table checked" in text
    assert "not measured for 1 table" in text
    assert "<li" not in text


def test_a_failed_job_counts_until_one_like_it_succeeds_or_a_day_has_passed(service: OwnService) -> None:
    """Its message is text, whatever it has."""
    service.ended_job("verify", "failed")
    assert "The job verify of n.t failed: it is &lt;odd&gt;" in service.home()
    service.now_ms += 1_000
    service.ended_job("compact", "succeeded")
    assert "The job verify" in service.home()
    service.ended_job("verify", "succeeded")
    assert "The job verify" not in service.home()
    service.now_ms += 1_000
    service.ended_job("compact", "failed")
    assert "The job compact" in service.home()
    service.now_ms += 86_400_001
    assert "The job compact" not in service.home()


def test_a_worker_that_is_needed_and_was_not_seen_is_missed(service: OwnService) -> None:
    """By jobs that are due, policies and schedules; a worker that asks for a job, of any process, ends that."""
    assert "worker" not in service.home()
    service.call("PUT", "/v1/namespaces/n/tables/t/policy", {"verify": {"every_s": 86_400}})
    assert "No worker has asked for a job in the last minutes" in service.home()
    service.call("POST", "/v1/jobs", {"kind": "verify", "table": "n.t"}, expect=201)
    service.now_ms += 120_000
    text = service.home()
    assert "No worker asks for jobs: 1 job waits" in text
    assert "lamella worker --url" in text
    body = {"worker": "w", "lease_token": str(IDS.new()), "lease_s": 60, "kinds": ["compact"]}
    service.call("POST", "/v1/jobs/claim", body, expect=204)
    assert "No worker" not in service.home()
    service.http.get("/ui/service")  # stores what was counted, as is done every ten seconds
    assert "No worker" not in service.home()
    service.now_ms += 1_200_000
    assert "No worker asks for jobs" in service.home()


def test_storage_is_reported_as_a_trial_run_found_it_until_a_clean_up_ran(service: OwnService) -> None:
    """What nobody measured is said to be not measured; the survey reads results of jobs every two seconds."""
    answer = {"executed": False, "before_ms": 1, "garbage": {"block": {"objects": 3, "size_bytes": 5 << 30}}}
    service.ended_job("vacuum", "succeeded", answer)

    def when(wanted: str) -> str:
        give_up = time.monotonic() + _LONGEST_S
        while wanted not in (text := service.home()) and time.monotonic() < give_up:
            time.sleep(0.1)
        return text

    text = when("A clean-up of n.t would free 5.0 GiB")
    assert "A clean-up of n.t would free 5.0 GiB" in text
    assert "not measured" not in text
    service.ended_job("vacuum", "succeeded", {**answer, "executed": True})
    assert "Nothing needs attention" in when("Nothing needs attention")


def test_a_damaged_table_is_a_problem_and_hides_no_other(tmp_path: Path) -> None:
    """Its line on the list says so too."""
    with (service := OwnService(tmp_path)).http:
        service.call("POST", "/v1/namespaces", {"name": "n"}, expect=201)
        schema = [{"name": "a", "type": "bigint"}]
        for name in ("bad", "good"):
            info = service.call("POST", "/v1/namespaces/n/tables", {"name": name, "schema": schema}, expect=201)
            if name == "bad":
                for file in (tmp_path / "warehouse" / info["table_id"]).rglob("*.arrow"):
                    file.unlink()
    with (service := OwnService(tmp_path)).http:  # which has nothing of it in memory
        text = service.home()
        assert "n.bad cannot be read" in text
        assert "kind=verify&amp;table=n.bad" in text
        assert "n.good" not in text
        page = service.http.get("/ui").text
        assert page.count("cannot be read") == 2
        assert "n.good" in page


def test_keys_are_named_before_they_end_and_a_while_after() -> None:
    """The sooner the worse; those without an end, or that ended long ago, are not."""
    now_ms, day_ms = 1_800_000_000_000, 86_400_000
    ends = {"over": -day_ms, "soon": 2 * day_ms, "later": 10 * day_ms, "past": -KEYS_MS - 1, "never": None}
    keys = [
        KeyInfo(name=name, created_ms=1, created_by="x", grants=(), expires_ms=None if end is None else now_ms + end)
        for name, end in ends.items()
    ]
    lines = sorted(key_lines(keys, now_ms), key=lambda line: line.rank)
    assert [(line.name, line.tone) for line in lines] == [("over", "bad"), ("soon", "warn"), ("later", "")]
    assert all(line.action is not None and line.name in line.action.href for line in lines)


def test_jobs_that_failed_again_and_again_are_one_finding() -> None:
    """Of each table and kind; the button leads to the last."""
    table = TableVersion(table_id="1", namespace="n", name="t", version=1, block_count=0)

    def failed(kind: str, at_ms: int) -> JobRecord:
        of = {"table_id": table.table_id, "namespace": "n", "table_name": "t"}
        return queued(None, kind=kind, finished_ms=at_ms, error='{"code":"x","detail":"y"}', **of)

    jobs = [failed("compact", 30), failed("verify", 20), failed("compact", 10)]
    lines = failed_lines(jobs, [])
    assert [(line.text, line.at_ms) for line in lines] == [
        ("The job compact of n.t failed (2 times in the last day): y", 30),
        ("The job verify of n.t failed: y", 20),
    ]
    assert [line.action.href for line in lines if line.action] == [f"/ui/jobs/{job.job_id}" for job in jobs[:2]]
    done = msgspec.structs.replace(jobs[0], finished_ms=25, error=None)
    assert next(line.text for line in failed_lines(jobs, [done])) == "The job compact of n.t failed: y"
    assert len(failed_lines(jobs, [msgspec.structs.replace(done, finished_ms=30)])) == 1


@pytest.mark.parametrize(
    ("waited_ms", "has_upkeep", "tone"),
    [(None, False, None), (None, True, "warn"), (1, False, "warn"), (60_000, False, "bad")],
)
def test_a_missing_worker_is_worse_when_jobs_wait(waited_ms: int | None, has_upkeep: bool, tone: str | None) -> None:
    """A job that was just added may still be claimed."""
    due = [] if waited_ms is None else [queued(None, created_ms=1_000)]
    lines = worker_lines(due, 1_000 + (waited_ms or 0), has_upkeep=has_upkeep)
    assert [line.tone for line in lines] == ([] if tone is None else [tone])
    assert all(line.steps for line in lines)


def test_the_home_page_asks_the_catalog_as_often_whatever_the_number_of_tables(service: OwnService) -> None:
    """And reads no manifest: what comes from these is known by then, or left out."""

    def calls() -> dict[str, float]:
        found: dict[str, float] = {"store": 0.0, "catalog": 0.0}
        for line in service.http.get("/metrics").text.splitlines():
            for name in found:
                if line.startswith(f"lamella_{name}_seconds_count"):
                    found[name] += float(line.rpartition(" ")[2])
        return found

    def of_the_page() -> dict[str, float]:
        while "…</td>" in service.http.get("/ui").text or "checked so far" in service.http.get("/ui").text:
            time.sleep(0.05)
        found = []
        for _ in range(5):  # the least: a turn of the survey may come between
            time.sleep(0.5)
            before = calls()
            assert service.http.get("/ui").status_code == 200
            after = calls()
            found.append({name: after[name] - before[name] for name in after})
        return min(found, key=lambda each: (each["store"], each["catalog"]))

    few = of_the_page()
    for number in range(60):
        schema = [{"name": "a", "type": "bigint"}]
        service.call("POST", "/v1/namespaces/n/tables", {"name": f"t{number}", "schema": schema}, expect=201)
    many = of_the_page()
    assert few["store"] == many["store"] == 0
    assert 0 < few["catalog"] == many["catalog"]


def test_storage_is_a_finding_if_a_trial_run_found_it_or_a_measurement_is_sure_of_much() -> None:
    """A measurement is sure of a part, so the text says at least; little that was measured is no finding."""
    found = {
        "trial": Reclaimable(size_bytes=10, job_id="j", measured_ms=1),
        "much": Reclaimable(size_bytes=64 << 20, job_id=None, measured_ms=2),
        "little": Reclaimable(size_bytes=(64 << 20) - 1, job_id=None, measured_ms=3),
        "done": Reclaimable(size_bytes=0, job_id="k", measured_ms=4),
        "gone": Reclaimable(size_bytes=1 << 40, job_id=None, measured_ms=5),
    }
    tables = {
        name: TableVersion(table_id=name, namespace="n", name=name, version=1, block_count=1)
        for name in found
        if name != "gone"
    }
    lines = {line.name: line for line in storage_lines(Known(by_id=tables, reclaimable=found), OPEN.rights)}
    assert sorted(lines) == ["n.much", "n.trial"]
    assert "would free at least 64.0 MiB, as measured" in lines["n.much"].text
    assert "would free 10 B, as its last trial run found" in lines["n.trial"].text


def test_a_trial_run_counts_before_a_measurement_and_a_clean_up_after_it() -> None:
    """A trial run looks at all objects; after a clean-up, what is measured tells what there is again."""
    measured = {name: Reclaimable(size_bytes=5, job_id=None, measured_ms=2) for name in ("a", "b", "c")}
    trial, done = (Reclaimable(size_bytes=size_bytes, job_id="j", measured_ms=1) for size_bytes in (9, 0))
    found = best_known(measured, {"a": trial, "b": done, "d": done})
    assert found == {"a": trial, "b": measured["b"], "c": measured["c"], "d": done}
