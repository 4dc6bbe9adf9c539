"""The reference of commands, and pages for those who run the service."""

from __future__ import annotations

from pathlib import Path

from docs.fenced import ROOT
from docs.scene import scene
from docs.scenes.access import settings_file
from docs.scenes.rows import line_items, now_and_then, orders
from docs.stage import Stage


@scene("docs/cli.md")
def cli(stage: Stage) -> None:
    """The tables of the examples, a worker for their jobs, and the folders of completions."""
    items = stage.table("tpch.lineitem", line_items(), cluster=["l_shipdate"])
    earlier = items.info().snapshot_id
    items.commit(properties={"a": "b"}, operation="set")
    items.tag("nightly")
    now_and_then(stage, "2026-01-31T00:00Z")
    stage.swaps["01a1fdeb-0b71-7faa-b6b1-ce2fe27b2760"] = earlier
    stage.table("shop.orders", orders())
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
    stage.swaps["scripts/"] = f"{ROOT}/scripts/"


@scene("docs/deploy.md")
def deploy(_stage: Stage) -> None:
    """Nothing: what its commands start is tried by tests/deploy."""
