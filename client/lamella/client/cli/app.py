"""The root of the command."""

from __future__ import annotations

import click

from lamella.client.cli import catalog
from lamella.client.cli.advice import advise, recorded, what_if, why_not
from lamella.client.cli.aggregate import aggregate
from lamella.client.cli.completion import completion
from lamella.client.cli.demo import demo
from lamella.client.cli.diff import diff
from lamella.client.cli.external import external
from lamella.client.cli.failure import LamellaGroup
from lamella.client.cli.feedback import feedback
from lamella.client.cli.history import changes, rollback, tag
from lamella.client.cli.index import index
from lamella.client.cli.prune import prune
from lamella.client.cli.register import register
from lamella.client.cli.schema import schema
from lamella.client.cli.serve import serve
from lamella.client.cli.vacuum import vacuum
from lamella.client.cli.verify import verify


@click.group(cls=LamellaGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="lamella")
def cli() -> None:
    """Lamella: which Parquet blocks a query needs, and why."""


for command in (
    serve,
    demo,
    catalog.namespaces,
    catalog.tables,
    schema,
    index,
    catalog.snapshots,
    tag,
    rollback,
    changes,
    register,
    external,
    prune,
    diff,
    aggregate,
    advise,
    what_if,
    why_not,
    recorded,
    vacuum,
    verify,
    feedback,
    completion,
):
    cli.add_command(command)
