"""Refuses a catalog whose tables are in another warehouse than that of the settings.

Locations in the catalog and in manifests are absolute. A service on a copy would write new blocks into the folder of
the original, and its clean-ups would compare the copy's objects with names of the original's: nothing of the copy would
be in use. So such a service does not start.
"""

from __future__ import annotations

import shlex
from pathlib import Path

from lamella.service.catalog import Catalog
from lamella.service.config.settings import Settings
from lamella.snapshot.errors import InvalidSettings
from lamella.snapshot.storage.location import parse


def require_own_tables(catalog: Catalog, settings: Settings) -> None:
    """Raise InvalidSettings if the catalog has tables in another warehouse, dropped ones included.

    The message names both places, and what to do.
    """
    problem = misplaced_tables(catalog, settings)
    if problem is not None:
        raise InvalidSettings(problem, problems=[problem])


def misplaced_tables(catalog: Catalog, settings: Settings) -> str | None:
    """Return what is wrong, and what to do; None if all tables are in the warehouse of the settings."""
    opened = settings.warehouse_url
    elsewhere = catalog.tables_elsewhere(opened)
    if not elsewhere:
        return None
    recorded = elsewhere[0].rpartition("/")[0]
    count = f"{len(elsewhere)} table{'s' if len(elsewhere) > 1 else ''}"
    return (
        f"the catalog has {count} in the warehouse {_shown(recorded)}, not in {_shown(opened)}: a lake that was copied "
        "or moved, or a catalog of another warehouse. Locations are absolute, so it is not opened here. "
        f"{_remedy(opened, recorded)}"
    )


def _remedy(opened: str, recorded: str) -> str:
    here, there = _folder(opened), _folder(recorded)
    use = f"open it as {_shown(recorded)} (setting warehouse)"
    if here is None or there is None:
        return f"If that warehouse is there, {use}; otherwise restore its objects to it first."
    if there.exists():
        if here.exists() and here.samefile(there):
            return f"Both are names of one folder: {use}."
        return (
            f"For the original, {use}. For a second lake, make an empty one and copy the tables: see 'Copy or move' in "
            "docs/embedded.md."
        )
    parent = "" if there.parent.exists() else f"mkdir -p {shlex.quote(str(there.parent))} && "
    link = f"{parent}ln -s {shlex.quote(str(here))} {shlex.quote(str(there))}"
    return f"If it was moved, move it back, or run `{link}`; then {use}."


def _folder(warehouse: str) -> Path | None:
    location = parse(warehouse)
    return Path(location.path) if location.scheme == "file" else None


def _shown(warehouse: str) -> str:
    folder = _folder(warehouse)
    return warehouse if folder is None else str(folder)
