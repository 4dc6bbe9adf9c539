"""``lamella demo``."""

from __future__ import annotations

from pathlib import Path

import click

from lamella.client.cli.failure import needs_extra


@click.command()
@click.option(
    "--build-dir",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path("build"),
    show_default=True,
    help="Where demo/ (data) and demo.json (results) are made.",
)
@click.option(
    "--scale", type=click.FloatRange(min=0, min_open=True), default=1.0, show_default=True, help="TPC-H scale factor."
)
@click.option("--json", "as_json", is_flag=True, help="Write the results as JSON to stdout, and nothing else.")
def demo(build_dir: Path, scale: float, as_json: bool) -> None:
    """Run queries through Lamella and as full scans of the same TPC-H tables, and compare answers and blocks read.

    Exit status 1 when an answer differs, or the narrow range reads more than 5 % of the blocks.
    """
    with needs_extra("demo"):
        from lamella.client.demo.run import run
    raise SystemExit(run(build_dir, scale=scale, as_json=as_json))
