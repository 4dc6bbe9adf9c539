"""The catalog's database stops and starts, in order or by a crash, under load."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from kill.arena import Ground, arena
from support.postgres_server import PostgresServer


def _run(postgres: PostgresServer, folder: Path, turns: int) -> dict[str, int]:
    ground = Ground(postgres.url.replace("postgresql://", "postgresql+psycopg://"), f"file://{folder}", {})
    with arena(ground, folder, services=2, seed=5) as built:
        built.start()
        for turn in range(turns):
            built.run_for_a_while()
            if turn % 3 == 2:
                built.services[0].kill()
            postgres.stop(immediate=turn % 2 == 0)
            time.sleep(built.random.uniform(0, 1))
            postgres.start()
            built.switch.close()
            built.check()
            if turn % 3 == 2:
                built.services[0].start()
                built.services[0].wait_ready()
            built.switch.open()
        return built.finish()


@pytest.mark.postgres
def test_no_commit_is_lost_when_the_database_fails(own_postgres: PostgresServer, tmp_path: Path) -> None:
    """What was acknowledged stays, what is unknown is resolved by its key, and the services need no restart."""
    assert _run(own_postgres, tmp_path, 3)["acknowledged"] > 0


@pytest.mark.soak
@pytest.mark.postgres
def test_no_commit_is_lost_when_the_database_fails_often(own_postgres: PostgresServer, tmp_path: Path) -> None:
    """Forty failures of the database; the figures are printed."""
    print(_run(own_postgres, tmp_path, 40))
