"""What docker-compose.yml describes works: its commands, variables, health checks and order, run as processes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from stack.process import members_of
from stack.tools import ROOT
from support.stacked import Lake, RunningStack
from support.worker_process import until

pytestmark = [pytest.mark.soak, pytest.mark.postgres]


def test_tables_are_made_filled_pruned_and_maintained_through_the_stack(lake: Lake) -> None:
    """Committed through nginx, pruned alike by both replicas, verified and compacted by the worker."""
    name = lake.table({"a": "int64"})
    table = lake.client.table(name)
    locations = [lake.put({"a": list(range(10 * n, 10 * n + 10))}) for n in range(4)]
    assert table.register(locations).refused == ()
    for url in (lake.stack.url, lake.stack.replica_url(1), lake.stack.replica_url(2)):
        with lake.at(url) as client:
            assert client.table(name).prune("a >= 30").locations == locations[3:]
    verified = lake.client.jobs.wait(lake.client.jobs.submit("verify", name, {"deep": True}).job_id, poll_s=0.1)
    assert (verified.state, verified.result["findings"]) == ("succeeded", [])
    compacted = lake.client.jobs.wait(lake.client.jobs.submit("compact", name, {}).job_id, poll_s=0.1)
    assert compacted.state == "succeeded", compacted.error
    (block,) = table.prune("a >= 0").records()
    assert block.row_count == 40
    assert block.location.startswith("s3://lamella/warehouse/")


def test_nobody_gets_in_without_a_key(lake: Lake) -> None:
    """The stack asks for a key, through nginx and past it; probes and only probes are answered without."""
    for url in (lake.stack.url, lake.stack.replica_url(1), lake.stack.replica_url(2)):
        with lake.http(url, Authorization="") as http:
            answer = http.get("/v1/namespaces")
            assert (answer.status_code, answer.json()["code"]) == (401, "unauthenticated")
            assert http.get("/health/ready").status_code == 200


def test_the_stack_tells_what_runs(stack: RunningStack) -> None:
    """All services are there; those that run once have ended, and only the others have a process."""
    started = {name: stack.state(name)["pid"] for name in stack.services()}
    assert {name for name, pid in started.items() if pid is None} == {"migrate", "bucket"}
    assert started.keys() == {name for name, service in stack.plan.compose.services.items() if not service.profiles}
    assert {pid for pid in started.values() if pid is not None} <= set(members_of(stack.folder))


def test_a_second_stack_in_the_same_folder_is_refused(stack: RunningStack) -> None:
    """Two would write to the same database."""
    command = [sys.executable, str(ROOT / "scripts" / "run_stack.py"), "--folder", str(stack.folder), "--moto"]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    assert done.returncode == 1
    assert "runs already" in done.stderr


def test_a_killed_stack_leaves_nothing(tmp_path: Path) -> None:
    """Its services and, where it was to delete them, its data and secrets, though nobody told it to end."""
    folder = tmp_path / "stack"
    command = [
        sys.executable,
        str(ROOT / "scripts" / "run_stack.py"),
        "--folder",
        str(folder),
        "--moto",
        "--rm",
        "--json",
    ]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        assert process.stdout is not None
        assert process.stdout.readline()
        assert len(members_of(folder)) > 5
        process.kill()
    until(lambda: not members_of(folder), "its services end")
    until(lambda: not (folder / "data").exists() and not (folder / "secrets").exists(), "its data is deleted")
