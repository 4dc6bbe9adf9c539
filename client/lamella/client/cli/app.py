"""The root of the command."""

from __future__ import annotations

import click

from lamella.client.cli import catalog, catalog_database
from lamella.client.cli.advice import advise, recorded, what_if, why_not
from lamella.client.cli.aggregate import aggregate
from lamella.client.cli.clustering import cluster_by, clustering, regroup
from lamella.client.cli.completion import completion
from lamella.client.cli.config import config
from lamella.client.cli.demo import demo
from lamella.client.cli.diff import diff
from lamella.client.cli.export import export
from lamella.client.cli.external import external
from lamella.client.cli.feedback import feedback
from lamella.client.cli.grants import grants
from lamella.client.cli.history import changes, rollback, tag
from lamella.client.cli.index import index
from lamella.client.cli.job import job
from lamella.client.cli.keys import keys, whoami
from lamella.client.cli.policy import policy
from lamella.client.cli.prune import prune
from lamella.client.cli.register import register
from lamella.client.cli.rewrite import compact, delete, recluster, update
from lamella.client.cli.schedule import schedule
from lamella.client.cli.schema import schema
from lamella.client.cli.serve import serve
from lamella.client.cli.traced_group import TracedGroup
from lamella.client.cli.vacuum import vacuum
from lamella.client.cli.verify import verify
from lamella.client.cli.watching import audit, prune_rates
from lamella.client.cli.worker import worker


@click.group(cls=TracedGroup, context_settings={"help_option_names": ["-h", "--help"]})
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
    export,
    prune,
    diff,
    aggregate,
    advise,
    what_if,
    why_not,
    recorded,
    clustering,
    compact,
    recluster,
    regroup,
    delete,
    update,
    vacuum,
    verify,
    feedback,
    prune_rates,
    audit,
    job,
    schedule,
    policy,
    worker,
    config,
    catalog_database.catalog,
    keys,
    grants,
    whoami,
    completion,
):
    cli.add_command(command)
catalog.tables.add_command(cluster_by)
