"""Skip indexes by the command line and by the asyncio client, over a real service."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator

import pytest
from click.testing import CliRunner, Result

from fixtures_server import ServerProcess, environment_of
from lamella.client import AsyncLamella
from lamella.client.cli.app import cli
from lamella.snapshot.errors import IndexNotFound
from lamella.snapshot.storage import FsspecStore
from support.service_api import TableApi, World

BLOCKS = 4


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """A service of this module's own."""
    folder = tmp_path_factory.mktemp("service")
    server = ServerProcess(environment_of({"warehouse": folder / "warehouse"}), folder).wait_ready()
    with World(server.url, f"file://{folder}/data", FsspecStore()) as made:
        yield made
    server.stop()


@pytest.fixture
def table(world: World) -> TableApi:
    """A table of a few blocks."""
    made = world.table()
    made.register(*world.numbers(world.folder(), BLOCKS))
    return made


class Lamella:
    """The command, about one table."""

    def __init__(self, world: World, table: TableApi) -> None:
        self._url = world.url
        self._name = f"{table.namespace}.{table.name}"

    def __call__(self, verb: str, *args: str, status: int = 0) -> Result:
        """Run ``lamella index VERB NAMESPACE.TABLE ...``."""
        done = CliRunner().invoke(cli, ["index", verb, self._name, *args, "--url", self._url])
        assert done.exit_code == status, done.output
        return done


def test_the_command_leads_an_index_through_its_life(world: World, table: TableApi) -> None:
    """Each verb does what it says, for people and as JSON."""
    run = Lamella(world, table)
    made = run("create", "i", "bloom", "lower(s)", "--option", "false_positives=0.02", "--refresh").stdout
    assert "lower(s)" in made
    assert "false_positives=0.02" in made
    assert f"{BLOCKS} of {BLOCKS} blocks indexed" in made
    listed = json.loads(run("list", "--json").stdout)
    assert [index["name"] for index in listed["indexes"]] == ["i"]
    assert "100.0 %" in run("list").stdout
    shown = json.loads(run("describe", "i", "--json").stdout)
    assert shown["coverage"]["indexed"] == BLOCKS
    world.numbers(folder := world.folder(), 1)
    table.register(folder)
    assert f"1 block with {10} rows indexed" in run("refresh", "i").stdout
    assert json.loads(run("refresh", "i", "--mode", "full", "--max-blocks", "2", "--json").stdout)["indexed"] == 5
    assert "written in place of" in run("optimise", "i").stdout
    assert "restore" in run("drop", "i").stdout
    assert "dropped" in run("list", "--dropped").stdout
    assert "in use" in run("restore", "i").stdout
    run("drop", "i")
    assert "removed" in run("vacuum", "i").stdout


def test_the_command_says_what_is_wrong(world: World, table: TableApi) -> None:
    """Mistakes are one line with a code; blocks that were left out end it with status 1."""
    run = Lamella(world, table)
    assert "[index_not_found]" in run("describe", "none", status=1).stderr
    assert "[invalid_request]" in run("create", "i", "none_such", "s", status=1).stderr
    assert "NAME=VALUE" in run("create", "i", "bloom", "s", "--option", "x", status=2).stderr
    run("create", "i", "value_set", "s")
    world.store.delete(table.locations()[0])
    failed = run("refresh", "i", status=1)
    assert f"{BLOCKS - 1} blocks" in failed.stdout
    assert "left out" in failed.stderr


def test_the_kinds_are_listed(world: World) -> None:
    """With options and bounds, also as JSON."""
    done = CliRunner().invoke(cli, ["index", "kinds", "--url", world.url])
    assert done.exit_code == 0
    assert "false_positives" in done.stdout
    done = CliRunner().invoke(cli, ["index", "kinds", "--json", "--url", world.url])
    assert {"bloom", "value_set"} <= {kind["name"] for kind in json.loads(done.stdout)["kinds"]}


def test_the_asyncio_client_does_the_same(world: World, table: TableApi) -> None:
    """Every method has its twin."""

    async def use() -> None:
        async with AsyncLamella(world.url) as lake:
            assert await lake.index_kinds()
            handle = lake.table(f"{table.namespace}.{table.name}")
            made = await handle.create_index("i", "value_set", "a")
            parts: list[int] = []
            answer = await handle.refresh_index("i", max_blocks=3, on_part=lambda part: parts.append(part.indexed))
            assert (answer.indexed, parts) == (BLOCKS, [3, 1])
            assert (await handle.optimise_index("i")).moved_from == 2
            shown = await handle.index("i")
            assert (shown.index_id, shown.parts) == (made.index_id, 1)
            await handle.drop_index("i")
            assert await handle.indexes() == ()
            await handle.restore_index("i")
            assert len(await handle.indexes()) == 1
            await handle.drop_index("i")
            await handle.vacuum_index("i")
            with pytest.raises(IndexNotFound):
                await handle.index("i")

    asyncio.run(use())
