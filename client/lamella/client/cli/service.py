"""``lamella serve``, ``lamella config``, ``lamella catalog``: commands that run the installed service's code.

The service is imported by name, since the client may be installed without it.
"""

from __future__ import annotations

import functools
import gc
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any, Concatenate, Final, ParamSpec

import click

from lamella.client.cli.failure import needs_extra
from lamella.client.cli.output import print_table
from lamella.client.cli.rows import DataWriter, RowFormat, form_of, output_options
from lamella.client.http.transport import CATALOG
from lamella.snapshot.errors import InvalidSettings

P = ParamSpec("P")

_CONFIG = click.option(
    "--config",
    metavar="FILE",
    envvar="LAMELLA_CONFIG",
    show_envvar=True,
    help="Configuration file in TOML; variables override it, options override both.",
)
_STATE = (
    click.option("--warehouse", metavar="URL", help="Folder of all tables: a path, file:// or s3://bucket/prefix."),
    click.option(
        "--catalog",
        metavar="URL",
        help="Database: a path, sqlite:/// or postgresql+psycopg://. Default: in the warehouse.",
    ),
)
_SERVER = (
    click.option("--host", help="Address to listen on.  [default: 127.0.0.1]"),
    click.option("--port", type=int, help="Port to listen on.  [default: 8181]"),
    click.option("--workers", type=int, help="Processes that serve requests.  [default: 1]"),
    click.option("--insecure", is_flag=True, help="Allow an address that other machines can reach."),
)
#: The warehouse of a service without settings, in the current folder.
FOLDER: Final = "lamella"
_NAMES = ("warehouse", "catalog", "host", "port", "workers", "insecure")


class ServiceSettings:
    """The settings given as options; others come from the environment and from files."""

    def __init__(
        self, config: str | None, given: dict[str, Any], folder: str | None = None, lake: str | None = None
    ) -> None:
        """``folder``: the warehouse where nothing is set; ``lake``: an existing one, where no other is set."""
        self._config = config
        self._folder = folder
        self._lake = lake
        self._given = given

    def load(self, **more: Any) -> Any:
        """Return the service's ``Configuration``; ``more``: additional options. Raises UsageError with all faults of
        the settings."""
        # Imported by name: the client never depends on the service, which may not be installed.
        with needs_extra("service"):
            configuration = import_module("lamella.service.config.sources")
        try:
            return configuration.load_settings(
                {**self._given, **more}, config=self._config, folder=self._folder, lake=self._lake
            )
        except InvalidSettings as error:
            raise click.UsageError("; ".join(error.details["problems"])) from error


def with_settings(
    *, server: bool = False
) -> Callable[[Callable[Concatenate[ServiceSettings, P], None]], Callable[..., None]]:
    """Add options for settings (``server``: the server's too); pass :class:`ServiceSettings`."""
    options = (_CONFIG, *_STATE, *(_SERVER if server else ()))

    def decorate(function: Callable[Concatenate[ServiceSettings, P], None]) -> Callable[..., None]:
        @functools.wraps(function)
        def command(*args: Any, **kwargs: Any) -> None:
            config = kwargs.pop("config")
            given = {name: kwargs.pop(name, None) for name in _NAMES}
            # A flag that is not given sets nothing.
            given["insecure"] = given["insecure"] or None
            # What looks at a catalog finds that of `lamella serve` alone, and makes none.
            lake = FOLDER if Path(FOLDER, CATALOG).is_file() else None
            function(ServiceSettings(config, given, FOLDER if server else None, lake), *args, **kwargs)

        decorated: Callable[..., None] = command
        for option in reversed(options):
            decorated = option(decorated)
        return decorated

    return decorate


@click.command()
@with_settings(server=True)
@click.option("--json", "as_json", is_flag=True, help="Log JSON lines even to a terminal.")
def serve(settings: ServiceSettings, as_json: bool) -> None:
    """Run the service until it is stopped.

    Without any setting it serves the folder `lamella` below the current one, and makes it if it is missing. A lake that
    is there already is also served with other settings, unless they name a warehouse or a catalog. Every setting can
    also be set by an environment variable, LAMELLA_WAREHOUSE and so on, or in a configuration file; see
    docs/settings.md. An option overrides both. Needs lamella[service].
    """
    gc.disable()  # loading makes no garbage; the service enables the collector when it has started
    try:
        loaded = settings.load(log_format="json" if as_json else None)
        if loaded.origins["log_format"].kind == "default" and sys.stderr.isatty():
            loaded = settings.load(log_format="text")
        if loaded.origins["warehouse"].kind == "default":
            used = loaded.settings
            _require_lake(Path(used.warehouse).absolute())
            is_set = any(each.kind not in ("default", "option") for each in loaded.origins.values())
            where = f"{Path(used.warehouse).absolute()} on http://{used.host}:{used.port}"
            click.echo(
                f"{'no warehouse is set' if is_set else 'no settings'}: serving the lake in {where}",
                err=True,
            )
        with needs_extra("service"):
            import_module("lamella.service.process.server").serve(loaded.settings)
    finally:
        gc.enable()


def _require_lake(folder: Path) -> None:
    """Raise ClickException for a folder of other files: somebody else's folder may have the default name."""
    if folder.is_dir() and any(folder.iterdir()) and not Path(folder, CATALOG).is_file():
        raise click.ClickException(
            f"the folder {folder} has other files and no lake; name a folder with --warehouse, or start elsewhere"
        )


@click.group()
def config() -> None:
    """Show and check the settings that `lamella serve` would use."""


@config.command()
@with_settings(server=True)
@output_options("The same as -o json: the settings, and nothing else.")
def show(settings: ServiceSettings, output: RowFormat | None, as_json: bool) -> None:
    """Show every setting in force and where it comes from. Secrets are hidden.

    Exit status 2 when the settings cannot be used.
    """
    form = form_of(output, as_json=as_json)
    loaded = settings.load()
    effective = import_module("lamella.service.config.check").effective_settings(loaded)
    if form != "table":
        DataWriter(form).write(effective)
    else:
        print_table(["setting", "value", "from"], [(each.name, each.value, each.origin) for each in effective])


@config.command()
@with_settings(server=True)
@click.option("--connect", is_flag=True, help="Also connect to the catalog and the warehouse. Writes nothing.")
@output_options("The same as -o json: the report, and nothing else.")
def check(settings: ServiceSettings, connect: bool, output: RowFormat | None, as_json: bool) -> None:
    """Check the settings and report whether the service would start.

    Exit status 0: it would; 1: a check failed; 2: the settings cannot be used at all.
    """
    form = form_of(output, as_json=as_json)
    loaded = settings.load()
    report = import_module("lamella.service.config.check").check_configuration(loaded, connect=connect)
    if form != "table":
        DataWriter(form).write(report, report.settings)
    else:
        _print_settings(report)
    if not report.is_usable:
        raise click.exceptions.Exit(1)


def _print_settings(report: Any) -> None:
    chosen = [each for each in report.settings if not each.is_default]
    print_table(["setting", "value", "from"], [(each.name, each.value, each.origin) for each in chosen])
    click.echo(f"{len(report.settings) - len(chosen)} other settings have their defaults")
    for finding in report.findings:
        click.echo(f"{finding.severity}: {finding.about}: {finding.message}")
    click.echo("a service would start" if report.is_usable else "a service would not start")


OUTPUT: Final = output_options("The same as -o json: the outcome, and nothing else.")


@click.group()
def catalog() -> None:
    """Migrate, export, import and verify the catalog's database, with the settings of `lamella serve`."""


@catalog.command()
@with_settings()
@OUTPUT
def status(settings: ServiceSettings, output: RowFormat | None, as_json: bool) -> None:
    """Show the catalog's schema revision and pending migrations. Changes nothing.

    Exit status 0: a service of this release can use it or would set it up; 1: it must be migrated, or a newer release
    wrote it.
    """
    form = form_of(output, as_json=as_json)
    loaded = settings.load().settings
    state = catalog_administration().look_at_schema(loaded.catalog_url, timeout_s=loaded.catalog_timeout_s)
    if form != "table":
        DataWriter(form).write(state)
    else:
        _print_state(state)
    if not (state.is_new or state.is_current):
        raise click.exceptions.Exit(1)


@catalog.command()
@with_settings()
@click.option("--to", metavar="REVISION", help="Stop at this revision. Default: the newest.")
@click.option("--dry-run", is_flag=True, help="Only show what would be done.")
@click.option("--sql", "as_sql", is_flag=True, help="Write the SQL instead of running it.")
@OUTPUT
def migrate(
    settings: ServiceSettings,
    to: str | None,
    dry_run: bool,
    as_sql: bool,
    output: RowFormat | None,
    as_json: bool,
) -> None:
    """Migrate the catalog to the schema of this release, in one transaction.

    A migration cannot be undone: make an export first.
    """
    form = form_of(output, as_json=as_json)
    if as_sql and form != "table":
        raise click.UsageError("--sql has no --output and no --json")
    loaded = settings.load().settings
    database = catalog_administration()
    state = database.look_at_schema(loaded.catalog_url, timeout_s=loaded.catalog_timeout_s)
    if as_sql:
        click.echo(database.migration_sql(state, to), nl=False)
        return
    missing = database.steps_to(state, to)
    if not dry_run:
        database.migrate_catalog(loaded.catalog_url, to=to, timeout_s=loaded.catalog_timeout_s)
    if form != "table":
        DataWriter(form).write({"done": not dry_run, "steps": missing}, missing)
        return
    for step in missing:
        click.echo(f"{'would apply' if dry_run else 'applied'} {step.revision}: {step.what}")
    if not missing:
        click.echo(f"nothing to do: the catalog has schema revision {state.revision}")


def catalog_administration() -> Any:
    return import_module("lamella.service.catalog.migrate")


def _print_state(state: Any) -> None:
    if not state.is_known:
        click.echo(
            f"{state.backend}: schema revision {state.revision or 'none'} is unknown to this release, which knows "
            f"revisions up to {state.newest}"
        )
    elif state.is_new:
        click.echo(f"{state.backend}: empty; a service sets it up when it starts")
    elif state.is_current:
        click.echo(f"{state.backend}: schema revision {state.revision}, that of this release")
    else:
        click.echo(f"{state.backend}: schema revision {state.revision}; `lamella catalog migrate` applies")
        print_table(["revision", "what"], [(step.revision, step.what) for step in state.pending])
