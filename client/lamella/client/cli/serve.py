"""``lamella serve``."""

from __future__ import annotations

import os
import sys
from importlib import import_module
from typing import Any

import click

from lamella.client.cli.missing import needs_extra


@click.command()
@click.option("--warehouse", metavar="URL", help="Folder of all tables: a path, file:// or s3://bucket/prefix.")
@click.option(
    "--catalog", metavar="URL", help="Database: a path, sqlite:/// or postgresql+psycopg://. Default: in the warehouse."
)
@click.option("--host", help="Address to listen on.  [default: 127.0.0.1]")
@click.option("--port", type=int, help="Port to listen on.  [default: 8181]")
@click.option("--workers", type=int, help="Processes that serve requests.  [default: 1]")
@click.option("--insecure", is_flag=True, help="Allow an address that other machines can reach.")
@click.option("--json", "as_json", is_flag=True, help="Log as JSON also when a person is looking.")
def serve(as_json: bool, insecure: bool, **given: Any) -> None:
    """Run the service until it is stopped.

    Every setting can also stand in an environment variable, LAMELLA_WAREHOUSE and so on; see docs/settings.md. An
    option wins. Needs lamella[service].
    """
    with needs_extra("service"):
        # By name, since the client never depends on the service: it may be installed without it.
        app = import_module("lamella.service.app")
        make_settings = import_module("lamella.service.settings").Settings
        values = {name: value for name, value in given.items() if value is not None}
        if insecure:
            values["insecure"] = True
        if as_json:
            values["log_format"] = "json"
        elif "LAMELLA_LOG_FORMAT" not in os.environ and sys.stderr.isatty():
            values["log_format"] = "text"
        try:
            settings = make_settings(**values)
        except ValueError as error:
            raise click.UsageError(_explain(error)) from error
        app.serve(settings)


def _explain(error: ValueError) -> str:
    """What settings were refused; a pydantic error lists them."""
    listed: Any = getattr(error, "errors", None)
    if listed is None:
        return str(error)
    lines = []
    for found in listed():
        name = "_".join(str(part) for part in found["loc"])
        lines.append(f"{name} (option or LAMELLA_{name.upper()}): {found['msg']}")
    return "; ".join(lines)
