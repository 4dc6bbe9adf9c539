"""Feedback through a real service: off by default, taken from scans, shown, checked and cleared."""

from __future__ import annotations

import asyncio
import json
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
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
from lamella.service.catalog import open_catalog
from lamella.service.composition import Core
from lamella.service.config.settings import Settings
from lamella.snapshot.errors import InvalidFilter, InvalidRequest, LimitExceeded, SnapshotNotFound, UnknownColumn
from lamella.snapshot.expression import read_filter
from lamella.snapshot.ids import Ids
from lamella.snapshot.reader_feedback import feedback_filter_of
from lamella.snapshot.schema.evolution import RenameColumn
from lamella.snapshot.storage import FsspecStore
from lamella.snapshot.wire import PruneRequest

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
    places = []
    for at in range(4):
        place = folder / f"{name}-{at}.parquet"
        values = [at, *(4 * i + at for i in range(1, 50)), 200 + at]
        pq.write_table(pa.table({"a": values, "s": [f"s{v}" for v in values]}), place)
        places.append(str(place))
    lake.create_table(f"f.{name}", schema_from=f"file://{places[0]}", properties=properties or {})
    table = lake.table(f"f.{name}")
    table.register(places)
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
    assert table.feedback().filters == 1, "its blocks were left out because of the first"
    assert table.scan(feedback=True).count() == 204
    assert table.scan("a = 42", limit=1, order_by="a", feedback=True).to_arrow().num_rows == 1
    assert table.feedback().facts == 3 + 3
    assert table.clear_feedback() == 6
    assert table.feedback().facts == 0


def test_what_one_reader_found_empty_the_next_one_leaves_out(lake: Lamella, folder: Path) -> None:
    """For the same question however it is spelled, and for one that asks for more; the report says how many."""
    table = made(lake, folder, "told", ON)

    def left(text: str, table: Table = table) -> int:
        columns = table.prune(text).block_columns
        assert columns is not None
        return len(columns.location)

    assert left("a = 41") == 4
    table.scan("a = 41", feedback=True).count()
    for text, count in (("41 = a", 1), ("a = 41 AND s = 's41'", 1), ("a = 42", 4), ("a = 41 OR a = 42", 4)):
        assert left(text) == count, text
        used = table.prune(text).report.feedback
        assert (0 if used is None else used.ruled_out) == 4 - count
    assert table.scan("a = 41").count() == 1
    table.clear_feedback()
    assert left("a = 41") == 4
    assert left("a = 41", made(lake, folder, "untold")) == 4


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
        ("a RLIKE 'x'", {}, InvalidRequest),
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
    asked = {"locations": [], "snapshot_id": table.info().snapshot_id, **given}
    with pytest.raises(error):
        table.report_empty(filter, **asked)
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


def test_verify_finds_and_drops_a_false_report(lake: Lamella, folder: Path) -> None:
    """True ones stay; after a rename they are checked under the names of their time."""
    table = made(lake, folder, "lied", ON)
    places = [f"file://{folder}/lied-{at}.parquet" for at in range(4)]
    snapshot_id = table.info().snapshot_id
    table.report_empty("a = 41", [place for place in places if "lied-1" not in place], snapshot_id=snapshot_id)
    table.report_empty("s = 's42'", places, snapshot_id=snapshot_id)
    table.evolve([RenameColumn(column="a", name="b")])
    answer = table.verify(deep=True, sample=1.0)
    (finding,) = [each for each in answer.findings if each.code == "feedback_false"]
    assert finding.repaired
    assert finding.block is not None
    assert "lied-2" in finding.block
    assert answer.checked.feedback == 7
    assert table.feedback().facts == 6
    assert table.verify(deep=True, sample=1.0).checked.feedback == 6


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
    assert "3 of 100,000 facts about 1 filters" in result.stdout
    result = CliRunner().invoke(cli, ["feedback", "clear", "f.shown", "--url", lake.url])
    assert "3 facts deleted" in result.stdout


def test_what_is_remembered_is_read_once_and_again_when_it_is_old(folder: Path, lake: Lamella) -> None:
    """A table without feedback costs nothing; another process's reports are seen within seconds."""
    table = made(lake, folder, "near", ON)
    plain = made(lake, folder, "far")
    now = 100.0
    settings = Settings(warehouse=str(folder / "warehouse"), feedback=True)
    catalog = open_catalog(settings.catalog_url)
    core = Core(settings, store=FsspecStore(), catalog=catalog, ids=Ids(), clock=lambda: int(time.time() * 1_000))
    try:
        feedback = core.feedback
        feedback._timer = lambda: now
        warehouse = core.warehouse
        record = catalog.table("f", "near")
        head = warehouse.head(record.pointer)
        request = PruneRequest(filter="s = 's41' AND a = 41")

        def left() -> int:
            found = warehouse.find(record.pointer, request)
            refs = list(warehouse.segments(record.pointer))
            told = feedback_filter_of(
                feedback,
                head,
                read_filter(request.filter),
                request,
                lambda row: warehouse.block_keys(refs[row]),
                time.perf_counter,
            )
            parts = tuple(found.parts())
            return sum(len(part.rows) for part in (parts if told is None else told.refine(parts)))

        assert not feedback.is_near(head)
        before = left()
        assert before > 1
        assert feedback.is_near(head)
        table.scan("a = 41", feedback=True).count()
        assert left() == before
        now += 6
        assert not feedback.is_near(head)
        assert left() == 1
        assert feedback.is_near(warehouse.head(catalog.table("f", "far").pointer))
        assert plain.feedback().facts == 0
        table.clear_feedback()
        now += 6
        assert left() == before
    finally:
        core.close()
