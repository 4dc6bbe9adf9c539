"""The whole way, from generated TPC-H tables to a proof that pruned answers are the full ones.

    make demo ARGS="--scale 0.1"

Needs ``lamella[service,spark,demo]`` and Java 17 or newer; ``make demo`` brings both. Everything is made below one
build folder. The service and Spark listen on loopback only and end with the demo.
"""

from __future__ import annotations

from pathlib import Path

import click

from lamella.snapshot.errors import LamellaError
from tpch_demo.run import run


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

    Exit status 1 when an answer differs, or the narrow range reads more than 5 % of the blocks. A second run uses the
    tables of the first.
    """
    try:
        status = run(build_dir, scale=scale, as_json=as_json)
    except LamellaError as error:
        raise click.ClickException(error.message) from error
    raise SystemExit(status)


if __name__ == "__main__":
    demo()
