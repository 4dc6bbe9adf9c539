"""What a worker process is given: how to make its app.

This module imports nothing else of ours: where workers are not forked, one loads it before it can say that it is alive.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fastapi import FastAPI


class WorkerApp:
    """Makes the app of settings that came through a pipe, so that no secret has to stand in an environment."""

    def __init__(self, settings_json: str) -> None:
        self._settings_json = settings_json

    def __call__(self) -> FastAPI:
        """The app, as a worker serves it."""
        from lamella.service.app import served
        from lamella.service.config.settings import Settings

        return served(Settings(**json.loads(self._settings_json)), is_alone=False)
