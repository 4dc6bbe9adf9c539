"""Makes the app in a worker process.

This module imports nothing else of the project: without fork, a worker loads it before it can answer pings.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fastapi import FastAPI


class WorkerApp:
    """Makes the app from settings that came through a pipe, so that no secret is in an environment variable."""

    def __init__(self, settings_json: str) -> None:
        self._settings_json = settings_json

    def __call__(self) -> FastAPI:
        """Return the app as a worker serves it."""
        from lamella.service.app import served
        from lamella.service.config.settings import Settings

        return served(Settings(**json.loads(self._settings_json)), is_alone=False)
