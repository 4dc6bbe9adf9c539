"""The reference of commands, and pages for those who run the service."""

from __future__ import annotations

import json
from pathlib import Path

from docs.scene import drawing, reads, scene
from docs.scenes.access import settings_file
from docs.scenes.rows import line_items, now_and_then, orders
from docs.stage import Stage
from support.ports import free_port


@scene("docs/cli.md")
def cli(stage: Stage) -> None:
    """The tables of the examples, a worker for their jobs, and the folders of completions."""
    items = stage.table("tpch.lineitem", line_items(), cluster=["l_shipdate"])
    earlier = items.info().snapshot_id
    items.commit(properties={"a": "b"}, operation="set")
    items.tag("nightly")
    now_and_then(stage, "2026-01-31T00:00Z")
    stage.swaps["01a1fdeb-0b71-7faa-b6b1-ce2fe27b2760"] = earlier
    stage.table("sales.orders", orders(), cluster=["day"])
    home = stage.folder / "home"
    for folder in (".local/share/bash-completion/completions", ".zfunc", ".config/fish/completions"):
        (home / folder).mkdir(parents=True)
    stage.start(["lamella", "worker", "--poll-s", "0.1"])


def _own_warehouse(folder: Path) -> dict[str, str]:
    """A warehouse that the page's commands look after, too."""
    return {"warehouse": str(folder / "warehouse")}


@scene("docs/operations.md", settings=_own_warehouse, data=[settings_file])
def operations(stage: Stage) -> None:
    """A table, and the settings of its service in the shell."""
    stage.table("sales.orders", orders())
    stage.variables["LAMELLA_WAREHOUSE"] = str(stage.folder / "warehouse")


@scene("docs/limits.md")
def limits(stage: Stage) -> None:
    """A namespace that gets a quota."""
    stage.table("sales.orders", orders())


@scene("docs/deploy.md", data=[reads, reads])
def deploy(_stage: Stage) -> None:
    """Nothing: what its commands start is tried by tests/deploy, what it adds to the compose file by test_deploy.py."""


@scene("docs/threat-model.md", texts=[drawing])
def threat_model(_stage: Stage) -> None:
    """A drawing of who talks to whom."""


def _log_line(_stage: Stage, text: str) -> None:
    """A line of the log of requests has the members that the service writes."""
    entry = json.loads(text)
    assert {"method", "path", "status", "ms", "bytes", "request_id", "event", "level", "time"} <= set(entry)


@scene("docs/telemetry.md", starts_service=True, data=[_log_line], texts=[drawing])
def telemetry(stage: Stage) -> None:
    """The page starts a service that sends traces: here to nobody, with folders in place of S3 and PostgreSQL."""
    (stage.folder / "data").mkdir()
    stage.swaps |= {
        "http://collector:4318": f"http://127.0.0.1:{free_port()}",
        "s3://lake/warehouse": f"file://{stage.folder}/data/warehouse",
        "postgresql+psycopg://...": f"sqlite:///{stage.folder}/data/catalog.db",
    }
