"""``lamella serve``."""

from __future__ import annotations

import sys
from importlib import import_module

import click

from lamella.client.cli.missing import needs_extra
from lamella.client.cli.service_options import ServiceSettings, with_settings


@click.command()
@with_settings(server=True)
@click.option("--json", "as_json", is_flag=True, help="Log as JSON also when a person is looking.")
def serve(settings: ServiceSettings, as_json: bool) -> None:
    """Run the service until it is stopped.

    Every setting can also stand in an environment variable, LAMELLA_WAREHOUSE and so on, or in a configuration file;
    see docs/settings.md. An option wins. Needs lamella[service].
    """
    found = settings.load(log_format="json" if as_json else None)
    if found.origins["log_format"].place == "default" and sys.stderr.isatty():
        found = settings.load(log_format="text")
    with needs_extra("service"):
        import_module("lamella.service.app").serve(found.settings)
