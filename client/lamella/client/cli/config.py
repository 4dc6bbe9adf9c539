"""``lamella config``: the settings that a service would have here."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import click
import msgspec

from lamella.client.cli.output import print_table
from lamella.client.cli.service_options import ServiceSettings, with_settings


@click.group()
def config() -> None:
    """Show and check the settings that `lamella serve` would have here."""


@config.command()
@with_settings(server=True)
@click.option("--json", "as_json", is_flag=True, help="Write them as JSON, and nothing else.")
def show(settings: ServiceSettings, as_json: bool) -> None:
    """Show every setting in force, and where it comes from. Secrets are hidden.

    Exit status 2 when the settings cannot be used.
    """
    found = settings.load()
    in_force = import_module("lamella.service.configuration_check").settings_in_force(found)
    if as_json:
        click.echo(msgspec.json.encode(in_force).decode())
    else:
        print_table(["setting", "value", "from"], [(each.name, each.value, each.origin) for each in in_force])


@config.command()
@with_settings(server=True)
@click.option("--connect", is_flag=True, help="Also ask the catalog and the warehouse. Nothing is written there.")
@click.option("--json", "as_json", is_flag=True, help="Write the report as JSON, and nothing else.")
def check(settings: ServiceSettings, connect: bool, as_json: bool) -> None:
    """Say what is set, and whether the service would start with it.

    Exit status 0: it would; 1: something is in the way; 2: the settings cannot be used at all.
    """
    found = settings.load()
    report = import_module("lamella.service.configuration_check").check_configuration(found, connect=connect)
    if as_json:
        click.echo(msgspec.json.encode(report).decode())
    else:
        _print(report)
    if not report.is_usable:
        raise click.exceptions.Exit(1)


def _print(report: Any) -> None:
    chosen = [each for each in report.settings if not each.is_default]
    print_table(["setting", "value", "from"], [(each.name, each.value, each.origin) for each in chosen])
    click.echo(f"{len(report.settings) - len(chosen)} others have their defaults")
    for finding in report.findings:
        click.echo(f"{finding.severity}: {finding.about}: {finding.message}")
    click.echo("a service would start" if report.is_usable else "a service would not start")
