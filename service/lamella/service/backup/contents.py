"""What of a catalog is in an export, and what of it an instant of the past takes away.

Every table of the schema has a line here; a test fails when one is missing.
"""

from __future__ import annotations

from typing import Final, Literal

import msgspec

Cut = Literal["tables", "as they are", "of kept tables", "of kept snapshots", "left out"]


class Part(msgspec.Struct, frozen=True):
    """A table of the catalog in an export as of an instant.

    ``tables``: taken back with the histories, see :mod:`lamella.service.backup.point_in_time`. ``as they are``: all
    rows, since nothing tells what they were. ``of kept tables``, ``of kept snapshots``: those rows of them, if there
    is a ``column`` those where it is not later. ``left out``: none.
    """

    cut: Cut
    why: str
    column: str | None = None


#: What an export of the present has not.
LEFT_OUT: Final[dict[str, str]] = {}

#: What becomes of each table in an export as of an instant.
PARTS: Final[dict[str, Part]] = {
    "namespaces": Part("tables", "those that were there; properties as they are"),
    "tables": Part("tables", "those that were there, at the snapshot that was current"),
    "snapshots": Part("tables", "the histories up to that instant"),
    "tags": Part("of kept snapshots", "where they are now; nothing tells what was moved or dropped", "created_at_ms"),
    "leases": Part("of kept snapshots", "readers may still be at it"),
    "idempotency": Part("left out", "nothing tells which of the changes that they tell of are taken back"),
    "condemned": Part("as they are", "what was deleted is not there, whatever the instant"),
    "sweeps": Part("as they are", "what was deleted is not there, whatever the instant"),
    "feedback": Part("of kept tables", "about blocks, which do not change"),
    "recorded": Part("of kept tables", "what was asked, was asked"),
    "prune_rates": Part("of kept tables", "what was asked, was asked"),
    "jobs": Part("left out", "what they did is taken back; schedules and policies ask again"),
    "job_log": Part("left out", "goes with the jobs"),
    "schedules": Part("of kept tables", "nothing tells what they were"),
    "policies": Part("of kept tables", "nothing tells what they were"),
    "audit": Part("as they are", "what was done, was done"),
    "secrets": Part("as they are", "page tokens and sessions hold on"),
    "api_keys": Part("as they are", "a key that was revoked since does not come back"),
    "grants": Part("as they are", "what was taken from somebody since does not come back"),
}
