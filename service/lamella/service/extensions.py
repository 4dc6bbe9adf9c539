"""The optional features of the service.

A feature is a folder and its entry here: both can be removed together, and the rest of the service stays as it is. The
core imports none of these folders, and none of them imports another (`tests/test_arrows.py`). The command line has
``lamella.service.backup`` as one more such folder, which a service that runs has no use for.
"""

from __future__ import annotations

from lamella.service.advice import register as advice
from lamella.service.composition import Core
from lamella.service.dashboard import register as dashboard
from lamella.service.iceberg import register as iceberg
from lamella.service.sharing import register as sharing


def register_all(core: Core) -> None:
    """Register each feature, in this order: the console shows advice, so that is there before it."""
    for register in (
        advice,
        sharing,
        iceberg,
        dashboard,
    ):
        core.features.append(register(core))
