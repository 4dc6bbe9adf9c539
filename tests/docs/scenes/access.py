"""The page about access, and services that ask for keys."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path

from docs.scene import scene
from docs.stage import ROOT_KEY, Stage
from lamella.service.config.settings import Settings
from lamella.snapshot.tokens import key_sha256


def with_root_key(folder: Path) -> dict[str, str]:
    """Settings of a service that asks for keys, knows one, and takes files of this folder."""
    return {
        "auth": "true",
        "root_key_sha256": key_sha256(ROOT_KEY),
        "allowed_locations": json.dumps({"*": [f"file://{folder}/"]}),
    }


def settings_file(_stage: Stage, text: str) -> None:
    """TOML that a service would take as its configuration file."""
    given = tomllib.loads(text)
    assert set(given) <= set(Settings.model_fields)
    Settings(**{"warehouse": "/w", **given})


@scene("docs/access.md", starts_service=True, data=[settings_file] * 4)
def access(stage: Stage) -> None:
    """The page starts the service itself: with folders in place of S3 and PostgreSQL, and on loopback."""
    (stage.folder / "data" / "lake").mkdir(parents=True)
    stage.swaps |= {
        "postgresql+psycopg://...": f"sqlite:///{stage.folder}/data/lake/catalog.db",
        "--host 0.0.0.0": "--host 127.0.0.1",
        "d2b3...": key_sha256(ROOT_KEY),
        "lamella_...": ROOT_KEY,
        "s3://lake/warehouse": f"file://{stage.folder}/data/lake/warehouse",
        "https://lake.example.com": stage.url,
    }
