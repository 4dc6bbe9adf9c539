"""All of docker-compose.yml with a real S3 server, Spark and Prometheus; and what happens to it in trials."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from stack.tools import ROOT, debian
from support.stacked import Lake, RunningStack

# Long: Spark starts, an S3 server is built, trials take minutes.
pytestmark = [pytest.mark.soak, pytest.mark.spark, pytest.mark.postgres]

WAIT_S = 600


@pytest.fixture(scope="module")
def whole(java_home: Path) -> Iterator[RunningStack]:
    """Every service but Grafana."""
    assert java_home
    with RunningStack(ROOT / "build" / "whole-stack", "--profile", "spark", "--profile", "monitoring") as running:
        yield running


def sql(stack: RunningStack, *statements: str) -> list[str]:
    """What Spark SQL answers, on the cluster of the stack, with the image's own job."""
    address = stack.plan.addresses.own["spark-worker"]
    settings = {
        "spark.hadoop.fs.s3a.endpoint": "http://store:9000",
        "spark.driver.host": address,
        "spark.driver.bindAddress": address,
        "spark.executor.memory": "512m",
    }
    options = [word for name, value in settings.items() for word in ("--conf", f"{name}={value}")]
    master = ["--master", "spark://spark-master:7077"]
    variables = ["env", "LAMELLA_URL=http://proxy:8080", f"LAMELLA_TOKEN_FILE={stack.folder}/secrets/root_key"]
    job = "/opt/spark-jobs/sql.py"
    words = ["spark-worker", *variables, "/opt/entrypoint.sh", "spark-submit", *master, *options, job, *statements]
    command = [sys.executable, str(ROOT / "scripts" / "run_stack.py"), "--folder", str(stack.folder), "--exec", *words]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=WAIT_S)
    assert done.returncode == 0, done.stderr[-8_000:]
    return [line for line in done.stdout.splitlines() if line.startswith("{")]


def test_spark_sql_reads_and_writes_through_the_stack(whole: RunningStack) -> None:
    """Rows that were registered through nginx are read by executors from S3, and rows that they write are there."""
    with Lake(whole) as lake:
        name = lake.table({"n": "int64"})
        lake.client.table(name).register([lake.put({"n": list(range(100 * k, 100 * k + 100))}) for k in range(4)])
        found = sql(
            whole,
            f"SELECT count(*) AS c, sum(n) AS s FROM lake.{name} WHERE n >= 250",  # noqa: S608  # a name of ours
            f"EXPLAIN SELECT * FROM lake.{name} WHERE n >= 250",  # noqa: S608
        )
        assert json.loads(found[0]) == {"c": 150, "s": sum(range(250, 400))}
        assert "blocks=2/4" in found[1]
        compacted = lake.client.jobs.wait(lake.client.jobs.submit("compact", name, {}).job_id, poll_s=0.2)
        assert compacted.state == "succeeded", compacted.error
        counted = sql(whole, f"SELECT count(*) AS c FROM lake.{name}")  # noqa: S608
        assert json.loads(counted[0]) == {"c": 400}


def test_prometheus_reads_both_replicas_and_knows_the_rules(whole: RunningStack) -> None:
    """By the configuration of deploy/prometheus: two targets that are up, and every rule without an error."""
    base = f"http://{whole.plan.addresses.own['prometheus']}:9090/api/v1"

    def ask(path: str) -> dict[str, object]:
        with urllib.request.urlopen(f"{base}{path}", timeout=30) as answer:  # noqa: S310  # the server above
            found: dict[str, object] = json.load(answer)["data"]
            return found

    targets = []
    for _ in range(60):
        active = ask("/targets?state=active")["activeTargets"]
        assert isinstance(active, list)
        targets = [(each["scrapeUrl"], each["health"]) for each in active]
        if all(health == "up" for _, health in targets):
            break
        subprocess.run(["sleep", "1"], check=True)
    assert sorted(targets) == [(f"{whole.replica_url(number)}/metrics", "up") for number in (1, 2)]
    groups = ask("/rules")["groups"]
    assert isinstance(groups, list)
    rules = [rule for group in groups for rule in group["rules"]]
    assert len(rules) > 10
    assert [rule["name"] for rule in rules if rule.get("lastError")] == []


def test_the_alerts_do_what_their_cases_say() -> None:
    """promtool, of Debian's package prometheus, runs deploy/prometheus/alerts.test.yml."""
    program = debian("promtool", "prometheus")
    for words in (["test", "rules", "alerts.test.yml"], ["check", "config", "prometheus.yml"]):
        done = subprocess.run(
            [program, *words], check=False, cwd=ROOT / "deploy" / "prometheus", capture_output=True, text=True
        )
        assert done.returncode == 0, done.stdout + done.stderr


def test_no_fault_of_any_part_loses_a_commit(tmp_path: Path) -> None:
    """Each part is killed, frozen and cut off under load; all recover by themselves, and nothing is lost or doubled."""
    command = [sys.executable, str(ROOT / "scripts" / "run_chaos.py"), "--json"]
    with (tmp_path / "log").open("wb") as log:
        done = subprocess.run(command, check=False, stdout=subprocess.PIPE, stderr=log, env=dict(os.environ))
    output = (tmp_path / "log").read_text("utf-8")
    assert done.stdout, output
    report = json.loads(done.stdout)
    assert done.returncode == 0, f"{report['reckoning']}\n{output}"
    assert len(report["trials"]) > 20
    assert report["reckoning"]["acknowledged"] > 500
    assert [trial for trial in report["trials"] if trial["recovered_s"] is None] == []
