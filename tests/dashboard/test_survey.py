"""The survey of all tables: it follows the catalog, in turns, within its bounds. And lists that are sorted."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from starlette.requests import Request

from lamella.service.app import create_app
from lamella.service.catalog import SqlCatalog, TableRecord, TableVersion, open_catalog
from lamella.service.config.settings import Settings
from lamella.service.dashboard.pages import Sorting, sorting_of
from lamella.service.dashboard.survey import Known, Survey
from lamella.snapshot.errors import InvalidRequest
from lamella.snapshot.storage import FsspecStore
from lamella.snapshot.warehouse import Warehouse
from lamella.snapshot.wire import TableHealth
from support.app_client import AppClient

NAMES = ("a", "b", "c", "d")


class NoHealth:
    """Nothing may be measured: the tables are too small to need anything."""

    def get_uncached(self, record: TableRecord) -> TableHealth:
        """Fail the test."""
        raise AssertionError(f"{record} was measured")


class Surveyed:
    """A service with small tables, and a survey of them that works when it is told to, at a time of its own."""

    def __init__(self, folder: Path, *, max_characters: int = 1_000_000) -> None:
        self.app = AppClient(create_app(Settings(warehouse=str(folder / "warehouse"), log_requests=False)))
        self.now_s = 1_000.0
        self.step_s = 0.0
        self.catalog: SqlCatalog = open_catalog(str(folder / "warehouse" / "_catalog.db"))
        self.survey = Survey(
            catalog=self.catalog,
            warehouse=Warehouse(FsspecStore(), f"file://{folder / 'warehouse'}"),
            healths=NoHealth(),
            clock=lambda: int(self.now_s * 1000),
            drop_grace_ms=0,
            when_closing=lambda _: None,
            timer=self._time,
            max_characters=max_characters,
        )

    def _time(self) -> float:
        self.now_s += self.step_s
        return self.now_s

    def add(self, name: str, *columns: str) -> None:
        """Add a table."""
        schema = [{"name": column, "type": "bigint"} for column in columns]
        answer = self.app.post("/v1/namespaces/n/tables", json={"name": name, "schema": schema})
        assert answer.status_code == 201, answer.text

    def change(self, name: str, column: str) -> None:
        """Add a column to a table."""
        path = f"/v1/namespaces/n/tables/{name}"
        change = {"change": "add", "name": column, "type": "bigint"}
        answer = self.app.post(f"{path}/schema", json={"changes": [change]})
        assert answer.status_code == 200, answer.text

    def turn(self) -> Known:
        """What is known after one more turn, ten seconds later."""
        self.now_s += 10.0
        self.survey.work()
        return self.survey.peek()

    def columns(self, known: Known) -> dict[str, str]:
        """The known columns by table."""
        return {each.name: known.columns[each.table_id][1] for each in known.tables if each.table_id in known.columns}


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Callable[..., Surveyed]]:
    """Make services with the namespace ``n``."""
    made: list[Surveyed] = []

    def one(**options: Any) -> Surveyed:
        found = Surveyed(tmp_path, **options)
        found.app.__enter__()
        assert found.app.post("/v1/namespaces", json={"name": "n"}).status_code == 201
        made.append(found)
        return found

    yield one
    for each in made:
        each.app.__exit__(None, None, None)
        each.catalog.close()


def test_what_is_known_follows_the_catalog(make: Callable[..., Surveyed]) -> None:
    """New tables, changed columns, other names, and tables that were dropped."""
    service = make()
    service.add("a", "x", "y")
    service.add("b", "x", "y")
    known = service.turn()
    assert service.columns(known) == {"a": "x\ny", "b": "x\ny"}
    first, second = (known.columns[each.table_id][1] for each in known.tables)
    assert first is second  # tables with the same columns share the text
    assert len(known.checked) == 2
    service.change("a", "z")
    service.add("c", "w")
    assert service.app.post("/v1/namespaces/n/tables/b/rename", json={"namespace": "n", "name": "bb"}).is_success
    assert service.columns(service.turn()) == {"a": "x\ny\nz", "bb": "x\ny", "c": "w"}
    assert service.app.delete("/v1/namespaces/n/tables/a").is_success
    known = service.turn()
    assert service.columns(known) == {"bb": "x\ny", "c": "w"}
    assert set(known.checked) == {each.table_id for each in known.tables} == set(known.by_id)


def test_what_is_known_is_of_one_moment(make: Callable[..., Surveyed]) -> None:
    """A table that is checked after its findings were copied does not count as checked without findings."""
    service = make()
    service.add("a", "x")
    before = service.survey.peek()
    assert len(service.turn().checked) == 1
    assert not before.checked


def test_a_turn_ends_after_its_time_and_the_next_goes_on(make: Callable[..., Surveyed]) -> None:
    """However slow tables are, one after the other is learnt."""
    service = make()
    for name in NAMES:
        service.add(name, "x")
    service.step_s = 0.06  # each look at the clock takes as long
    counts = [len(service.turn().columns) for _ in range(len(NAMES))]
    assert counts[0] < len(NAMES)
    assert counts == sorted(set(counts))
    for _ in NAMES:
        known = service.turn()
    assert len(known.columns) == len(known.checked) == len(NAMES)


def test_the_names_of_columns_in_memory_are_bounded(
    make: Callable[..., Surveyed], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The others are not known, and pages say of how many tables they are; those that are known stay up to date."""
    service = make(max_characters=25)
    for name in NAMES:
        service.add(name, "ten_letter")
    known = service.turn()
    assert list(service.columns(known)) == ["a", "b"]
    reads: list[str] = []
    record = service.survey._record

    def noted(table: TableVersion) -> TableRecord | None:
        reads.append(table.name)
        return record(table)

    monkeypatch.setattr(service.survey, "_record", noted)
    assert list(service.columns(service.turn())) == ["a", "b"]
    assert reads == []  # what did not fit is not read again and again
    for name in ("a", "b"):
        assert service.app.delete(f"/v1/namespaces/n/tables/{name}").is_success
    service.turn()
    assert list(service.columns(service.turn())) == ["c", "d"]


def request_with(query: str) -> Request:
    """A request with that query."""
    return Request({"type": "http", "query_string": query.encode(), "headers": []})


@pytest.mark.parametrize(
    ("query", "expected", "links"),
    [
        ("", Sorting("name", False, "name"), ("-name", "-rows")),
        ("sort=name", Sorting("name", False, "name"), ("-name", "-rows")),
        ("sort=-name", Sorting("name", True, "name"), (None, "-rows")),
        ("sort=rows", Sorting("rows", False, "name"), (None, "-rows")),
        ("sort=-rows", Sorting("rows", True, "name"), (None, "rows")),
    ],
)
def test_headers_lead_to_the_other_order(query: str, expected: Sorting, links: tuple[str | None, str | None]) -> None:
    """Numbers begin with the largest; the order of an address without one has no parameter."""
    found = sorting_of(request_with(query), ("name", "rows"))
    assert found == expected
    assert (found.next("name", is_number=False), found.next("rows", is_number=True)) == links
    direction = "descending" if expected.descending else "ascending"
    assert [found.direction(column) for column in ("name", "rows")] == [
        direction if column == expected.column else None for column in ("name", "rows")
    ]


@pytest.mark.parametrize("query", ["sort=nothing", "sort=--rows", "sort=-"])
def test_other_orders_are_refused(query: str) -> None:
    """With those that there are."""
    with pytest.raises(InvalidRequest, match="must be one of name, rows, -name, -rows"):
        sorting_of(request_with(query), ("name", "rows"))
