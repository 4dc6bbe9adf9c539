"""Two service processes on one PostgreSQL and one S3 server, either of which may be killed while the other goes on."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from kill.arena import Ground, arena

KILLS = int(os.environ.get("LAMELLA_TEST_KILLS", "100"))
LOCAL = pytest.param("postgres-local", marks=pytest.mark.postgres)
S3 = pytest.param("postgres-s3", marks=[pytest.mark.postgres, pytest.mark.s3])


def _run(ground: Ground, folder: Path, kills: int, seed: int) -> dict[str, int]:
    with arena(ground, folder, services=2, clients=6, seed=seed) as built:
        built.start()
        built.rounds(kills)
        return built.finish()


@pytest.mark.parametrize("ground", [LOCAL], indirect=True)
def test_two_services_lose_and_double_no_commit(ground: Ground, tmp_path: Path) -> None:
    """A key that one service got and did not answer is asked of either; what it did is there once."""
    assert _run(ground, tmp_path, 2, seed=3)["acknowledged"] > 0


@pytest.mark.soak
@pytest.mark.parametrize("ground", [LOCAL, S3], indirect=True)
def test_two_services_lose_and_double_no_commit_in_many_kills(ground: Ground, tmp_path: Path) -> None:
    """The same for longer; the figures are printed."""
    figures = _run(ground, tmp_path, KILLS, seed=4)
    print(figures)
    assert figures["acknowledged"] > KILLS
