"""External tables beside everything else: indexes, clean-ups, concurrent refreshes, failing stores, the command."""

from __future__ import annotations

import asyncio
import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

from lamella.client import Lamella
from lamella.client.cli.app import cli
from lamella.client.http import AsyncLamella
from lamella.snapshot.errors import StoreError
from lamella.snapshot.wire import RefreshProgress


def put(path: Path, start: int, count: int = 5) -> None:
    """A file of ``a``, spread wide so that bounds tell nothing, and ``s``."""
    path.parent.mkdir(parents=True, exist_ok=True)
    values = [start + 1000 * i for i in range(count)]
    beside = path.with_name(f".{path.name}")
    pq.write_table(pa.table({"a": values, "s": [f"s{v}" for v in values]}), beside)
    beside.rename(path)


def followed(lake: Lamella, name: str, folder: Path) -> None:
    """A table that follows a folder."""
    lake.create_external(name, {"kind": "directory", "location": str(folder)})


def test_indexes_keep_what_they_know_of_files_that_stayed(lake: Lamella, name: str, tmp_path: Path) -> None:
    """Parts are about files by their content: a refresh makes only new and replaced ones unknown, and they are kept."""
    for at in range(4):
        put(tmp_path / "d" / f"{at}.parquet", at)
    followed(lake, name, tmp_path / "d")
    table = lake.table(name)
    table.refresh()
    table.create_index("by_a", "value_set", "a")
    table.refresh_index("by_a")
    put(tmp_path / "d" / "0.parquet", 50)
    put(tmp_path / "d" / "4.parquet", 60)
    table.refresh()
    coverage = table.index("by_a").coverage
    assert coverage is not None
    assert (coverage.blocks, coverage.indexed, coverage.not_indexed, coverage.stale) == (5, 3, 2, 1)
    assert table.scan("a = 2050").count() == 1
    assert {use.name: use.not_indexed for use in table.prune("a = 2002").report.indexes} == {"by_a": 2}
    assert table.scan("a = 2000").count() == 0  # that row was in the file that was replaced
    again = table.refresh_index("by_a")
    assert again.coverage is not None
    assert again.coverage.not_indexed == 0


def test_a_clean_up_leaves_the_source_alone(lake: Lamella, name: str, tmp_path: Path) -> None:
    """Even where it is asked for external files: they are not Lamella's."""
    put(tmp_path / "d" / "x.parquet", 0)
    followed(lake, name, tmp_path / "d")
    lake.table(name).refresh()
    lake.drop_table(name, purge=True)
    lake.purge_dropped(execute=True, include_external_blocks=True)
    assert (tmp_path / "d" / "x.parquet").exists()


def test_refreshes_at_once_end_in_the_same_table(lake: Lamella, name: str, tmp_path: Path) -> None:
    """Each answers for a state that is the source's; nothing is there twice."""
    put(tmp_path / "d" / "x.parquet", 0)
    followed(lake, name, tmp_path / "d")
    table = lake.table(name)
    table.refresh()
    for round in range(3):
        for at in range(6):
            put(tmp_path / "d" / f"{at}.parquet", 10 * at + round, count=5 + round)
        with ThreadPoolExecutor(4) as pool:
            answers = list(pool.map(lambda _: table.refresh(), range(4)))
        assert sum(answer.changed for answer in answers) == 1
        assert table.info().block_count == 7
        assert table.scan().count() == 5 + 6 * (5 + round)


def test_the_same_key_refreshes_once(lake: Lamella, name: str, tmp_path: Path) -> None:
    """The answer is replayed, also that of a refresh that had nothing to do."""
    put(tmp_path / "d" / "x.parquet", 0)
    followed(lake, name, tmp_path / "d")
    table = lake.table(name)
    first = table.refresh(idempotency_key=f"{name}-1")
    idle = table.refresh(idempotency_key=f"{name}-2")
    put(tmp_path / "d" / "y.parquet", 1)
    assert table.refresh(idempotency_key=f"{name}-1") == first
    assert table.refresh(idempotency_key=f"{name}-2") == idle
    assert not idle.changed
    assert table.refresh().added == 1


def test_a_file_that_cannot_be_reached_changes_nothing(lake: Lamella, name: str, tmp_path: Path) -> None:
    """A store that fails says nothing of the file, so no row may leave for it, strict or not."""
    put(tmp_path / "d" / "x.parquet", 0)
    put(tmp_path / "d" / "y.parquet", 1)
    followed(lake, name, tmp_path / "d")
    table = lake.table(name)
    before = table.refresh()
    put(tmp_path / "d" / "x.parquet", 2)
    (tmp_path / "d" / "x.parquet").chmod(0)
    try:
        (tmp_path / "d" / "x.parquet").read_bytes()
    except PermissionError:
        with pytest.raises(StoreError):
            table.refresh(strict=False)
        assert table.info().snapshot_id == before.snapshot_id
    else:  # nobody keeps root from reading
        assert table.refresh(strict=False).replaced == 1


def test_the_async_client_does_the_same(lake: Lamella, name: str, tmp_path: Path) -> None:
    """Made, refreshed and watched."""
    put(tmp_path / "d" / "x.parquet", 0)
    seen: list[RefreshProgress] = []

    async def work() -> None:
        async with AsyncLamella(lake.url) as other:
            await other.create_external(name, {"kind": "directory", "location": str(tmp_path / "d")})
            table = other.table(name)
            assert (await table.refresh(on_progress=seen.append)).added == 1
            assert not (await table.refresh_progress()).running

    asyncio.run(work())
    assert all(each.running or each.files_total == 0 for each in seen)


def test_the_command_makes_and_refreshes(lake: Lamella, name: str, tmp_path: Path) -> None:
    """``external create`` fills the table; ``external refresh`` says what it did, for people and programs."""
    put(tmp_path / "d" / "x.parquet", 0)

    def run(*words: str) -> str:
        result = CliRunner().invoke(cli, ["external", *words, "--url", lake.url])
        assert result.exit_code == 0, result.output
        return result.stdout

    assert "1 added" in run("create", name, "directory", str(tmp_path / "d"))
    assert "up to date" in run("refresh", name)
    put(tmp_path / "d" / "y.parquet", 1)
    (tmp_path / "d" / "z.parquet").touch()
    assert json.loads(run("refresh", name, "--dry-run", "--json"))["added"] == 2
    assert "1 added" in run("refresh", name)
    result = CliRunner().invoke(cli, ["external", "refresh", name, "--strict", "--url", lake.url])
    assert result.exit_code == 1
    assert "z.parquet" in result.output
