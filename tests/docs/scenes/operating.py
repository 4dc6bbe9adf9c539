"""The reference of commands, and pages for those who run the service."""

from __future__ import annotations

from docs.scene import scene
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
