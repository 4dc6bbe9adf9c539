"""Feedback through a real service: off by default, taken from scans, shown and cleared; answers do not change."""

from __future__ import annotations

import asyncio
import json
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

from fixtures_server import start_shared
from lamella.client import Lamella
from lamella.client.cli.app import cli
from lamella.client.http import AsyncLamella, Table
from lamella.snapshot.errors import InvalidFilter, InvalidRequest, LimitExceeded, SnapshotNotFound, UnknownColumn

ON = {"lamella.feedback.enabled": "true"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the service's warehouse and the files are."""
    return tmp_path_factory.mktemp("feedback")


@pytest.fixture(scope="module")
def lake(pytestconfig: pytest.Config, folder: Path) -> Iterator[Lamella]:
    """A service that takes feedback."""
    server = start_shared(pytestconfig, folder, {"warehouse": folder / "warehouse", "feedback": "true"})
    with Lamella(server.url) as lake:
        lake.create_namespace("f")
        yield lake
    assert server.stop() == 0, server.log_text()


def made(lake: Lamella, folder: Path, name: str, properties: dict[str, str] | None = None) -> Table:
    """A table of four files whose bounds tell nothing: multiples of four, and one, two, three more."""
    paths = []
    for at in range(4):
        path = folder / f"{name}-{at}.parquet"
        values = [at, *(4 * i + at for i in range(1, 50)), 200 + at]
        pq.write_table(pa.table({"a": values, "s": [f"s{v}" for v in values]}), path)
        paths.append(str(path))
    lake.create_table(f"f.{name}", schema_from=f"file://{paths[0]}", properties=properties or {})
    table = lake.table(f"f.{name}")
    table.register(paths)
    return table


def test_a_scan_reports_the_blocks_that_it_read_for_nothing(lake: Lamella, folder: Path) -> None:
    """Only where it is asked to; of the whole filter, whatever it was read for."""
    table = made(lake, folder, "scanned", ON)
    assert table.scan("a = 41").count() == 1
    assert table.feedback().facts == 0
    assert table.scan("a = 41", feedback=True).count() == 1
    info = table.feedback()
    assert (info.enabled, info.filters, info.facts) == (True, 1, 3)
    assert table.scan("a = 41 AND s = 's41'", feedback=True).to_arrow().num_rows == 1
    assert (table.feedback().filters, table.feedback().facts) == (2, 3 + 3)
    assert table.scan(feedback=True).count() == 204
    assert table.scan("a = 42", limit=1, order_by="a", feedback=True).to_arrow().num_rows == 1
    assert table.feedback().facts == 3 + 3 + 3
    assert table.clear_feedback() == 9
    assert table.feedback().facts == 0


def test_a_report_changes_no_answer(lake: Lamella, folder: Path) -> None:
    """Not even a false one: every prune, and the rows of every scan, are as before."""
    table = made(lake, folder, "told", ON)
    texts = ("a = 41", "41 = a", "a = 41 AND s = 's41'", "a = 42", "a = 41 OR a = 42")

    def answers() -> list[tuple[list[str], int]]:
        return [(sorted(_locations(table, text)), table.scan(text).count()) for text in texts]

    before = answers()
    assert [len(locations) for locations, _ in before] == [4] * 5
    assert [rows for _, rows in before] == [1, 1, 1, 1, 2]
    locations = [f"file://{folder}/told-{at}.parquet" for at in range(4)]
    table.report_empty("a = 41", locations, snapshot_id=table.info().snapshot_id)
    table.scan("a = 42", feedback=True).count()
    assert table.feedback().facts == 4 + 3
    assert answers() == before


def _locations(table: Table, text: str) -> Sequence[str]:
    columns = table.prune(text).block_columns
    assert columns is not None
    return columns.location


def test_it_is_off_unless_the_table_wants_it(lake: Lamella, folder: Path) -> None:
    """A scan that offers it is not disturbed; a report is refused with the reason."""
    table = made(lake, folder, "plain")
    assert table.scan("a = 41", feedback=True).count() == 1
    snapshot_id = table.info().snapshot_id
    with pytest.raises(InvalidRequest, match="property"):
        table.report_empty("a = 41", [], snapshot_id=snapshot_id)
    table.commit(properties=ON, operation="set")
    assert not table.feedback().facts
    with pytest.raises(InvalidRequest, match="true or false"):
        table.commit(properties={"lamella.feedback.enabled": "yes"}, operation="set")


@pytest.mark.parametrize(
    ("filter", "given", "error"),
    [
        ("a = ", {}, InvalidFilter),
        ("b = 1", {}, UnknownColumn),
        ("a RLIKE 'x.'", {}, InvalidRequest),
        ("rand() < 0.5", {}, InvalidRequest),
        (None, {}, InvalidRequest),
        ("a = 1", {"locations": ["file:///not/there"]}, InvalidRequest),
        ("a = 1", {"locations": ["nonsense"]}, InvalidRequest),
        ("a = 1", {"snapshot_id": "00000000-0000-7000-8000-000000000000"}, SnapshotNotFound),
        ("a = 1", {"time_zone": "Not/There"}, InvalidRequest),
    ],
)
def test_bad_reports_are_refused(
    lake: Lamella, folder: Path, filter: Any, given: dict[str, Any], error: type[Exception]
) -> None:
    """With what is wrong; nothing is remembered."""
    try:
        table = lake.table("f.refused")
        table.info()
    except Exception:
        table = made(lake, folder, "refused", ON)
    report = {"locations": [], "snapshot_id": table.info().snapshot_id, **given}
    with pytest.raises(error):
        table.report_empty(filter, **report)
    assert table.feedback().facts == 0


def test_too_many_locations_are_refused(lake: Lamella, folder: Path) -> None:
    """The client cuts long lists; the service insists."""
    table = made(lake, folder, "many", ON)
    body = {"snapshot_id": table.info().snapshot_id, "filter": "a = 1", "empty": ["file:///x"] * 10_001}
    request = urllib.request.Request(  # noqa: S310  # the test's own service
        f"{lake.url}/v1/namespaces/f/tables/many/feedback",
        json.dumps(body).encode(),
        {"Content-Type": "application/json"},
    )
    with pytest.raises(urllib.error.HTTPError) as caught:
        urllib.request.urlopen(request, timeout=30)  # noqa: S310
    assert json.loads(caught.value.read())["code"] == LimitExceeded.code


def test_the_commands_and_the_async_client_show_and_clear(lake: Lamella, folder: Path) -> None:
    """For people."""
    table = made(lake, folder, "shown", ON)
    table.scan("a = 41", feedback=True).count()

    async def facts() -> int:
        async with AsyncLamella(lake.url) as other:
            return (await other.table("f.shown").feedback()).facts

    assert asyncio.run(facts()) == 3
    result = CliRunner().invoke(cli, ["feedback", "show", "f.shown", "--url", lake.url])
    assert result.exit_code == 0
    assert "3 of 100,000 facts about 1 filter" in result.stdout
    result = CliRunner().invoke(cli, ["feedback", "clear", "f.shown", "--url", lake.url])
    assert "3 facts deleted" in result.stdout
