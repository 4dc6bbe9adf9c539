"""kill -9 of a service at random moments, under the load of clients that append, delete and compact."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from kill.arena import Ground, arena

KILLS = int(os.environ.get("LAMELLA_TEST_KILLS", "200"))


@pytest.mark.parametrize(
    ("ground", "kills"),
    [
        ("sqlite-local", 8),
        pytest.param("postgres-s3", 3, marks=[pytest.mark.postgres, pytest.mark.s3, pytest.mark.soak]),
    ],
    indirect=["ground"],
)
def test_no_commit_is_lost_or_doubled_by_a_few_kills(ground: Ground, kills: int, tmp_path: Path) -> None:
    """What was acknowledged is there once, what was refused is not, and the key resolves what is unknown."""
    with arena(ground, tmp_path, seed=1) as built:
        built.start()
        built.rounds(kills)
        figures = built.finish()
    print(figures)
    assert figures["objects deleted"] > 0
    assert figures["acknowledged"] > 0


@pytest.mark.soak
def test_no_commit_is_lost_or_doubled_by_two_hundred_kills(ground: Ground, tmp_path: Path) -> None:
    """The same over each combination of catalog and store; the figures are printed."""
    with arena(ground, tmp_path, seed=2) as built:
        built.start()
        built.rounds(KILLS)
        figures = built.finish()
    print(figures)
    assert figures["acknowledged"] > KILLS
