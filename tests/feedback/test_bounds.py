"""What is remembered stays within its bounds, and what was reported the longest ago goes first."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from lamella.service.catalog import FeedbackBounds, FeedbackRecord, SqlCatalog, TableRecord, open_catalog
from lamella.service.history.history import history_entry
from lamella.snapshot.errors import TableNotFound
from lamella.snapshot.schema import Column, Schema
from lamella.snapshot.storage import FsspecStore
from lamella.snapshot.warehouse import Warehouse
from lamella.snapshot.wire import NamespaceInfo

WIDE = FeedbackBounds(max_facts=1_000_000, max_bytes=1 << 30)


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def catalog(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[SqlCatalog]:
    """A catalog with the table "t" in the namespace "n"."""
    url = str(tmp_path / "c.db") if request.param == "sqlite" else request.getfixturevalue("new_postgres_database")()
    opened = open_catalog(url)
    opened.create_namespace(NamespaceInfo(name="n"), now_ms=1)
    warehouse = Warehouse(FsspecStore(), f"file://{tmp_path}/w")
    pointer = warehouse.create("t", Schema.assign([Column(name="a", type="int64")]), now_ms=1)
    table = TableRecord(
        table_id="t", namespace="n", name="t", location="x", version=1, pointer=pointer, created_at_ms=1
    )
    opened.create_table(table, history_entry(1, pointer, warehouse.snapshot(pointer)))
    yield opened
    opened.close()


def report(catalog: SqlCatalog, question: str, numbers: range, at_ms: int, bounds: FeedbackBounds = WIDE) -> int:
    """Report blocks, named by numbers."""
    record = FeedbackRecord(
        table_id="t",
        question=question,
        filter_json="{}",
        schema_id=0,
        blocks=b"".join(number.to_bytes(16, "little") for number in numbers),
        block_count=len(numbers),
        size_bytes=0,
        used_at_ms=at_ms,
    )
    return catalog.add_feedback(record, bounds)


def stored(catalog: SqlCatalog) -> dict[str, list[int]]:
    """The numbers of the blocks by question."""
    return {
        record.question: [
            int.from_bytes(record.blocks[at : at + 16], "little") for at in range(0, len(record.blocks), 16)
        ]
        for record in catalog.feedback("t")
    }


def test_reports_of_one_question_are_joined(catalog: SqlCatalog) -> None:
    """Each block once, in the order that they came."""
    assert report(catalog, "q", range(3), 1) == 3
    assert report(catalog, "q", range(2, 5), 2) == 2
    assert stored(catalog) == {"q": [0, 1, 2, 3, 4]}
    (record,) = catalog.feedback("t")
    assert (record.block_count, record.used_at_ms) == (5, 2)


def test_the_number_of_facts_is_bounded(catalog: SqlCatalog) -> None:
    """Questions go that were not reported for longest; a large one by itself keeps what came last."""
    bounds = FeedbackBounds(max_facts=10, max_bytes=1 << 30)
    for number in range(5):
        report(catalog, f"q{number}", range(4), number, bounds)
        assert sum(map(len, stored(catalog).values())) <= 10
    assert sorted(stored(catalog)) == ["q3", "q4"]
    report(catalog, "large", range(25), 9, bounds)
    assert stored(catalog) == {"large": list(range(15, 25))}
    report(catalog, "large", range(100, 103), 9, bounds)
    assert stored(catalog)["large"][-3:] == [100, 101, 102]
    assert len(stored(catalog)["large"]) == 10


def test_the_bytes_are_bounded(catalog: SqlCatalog) -> None:
    """Of all questions together, what a row takes beside its blocks included."""
    bounds = FeedbackBounds(max_facts=1_000, max_bytes=2_000)
    for number in range(50):
        report(catalog, f"q{number:02}", range(number % 7 + 1), number, bounds)
        assert sum(record.size_bytes for record in catalog.feedback("t")) <= 2_000
    assert "q49" in stored(catalog)
    assert "q00" not in stored(catalog)
    assert report(catalog, "long", range(3), 99, FeedbackBounds(max_facts=9, max_bytes=100)) == 3
    assert "long" not in stored(catalog)  # it does not fit at all


def test_what_is_reported_again_stays(catalog: SqlCatalog) -> None:
    """The last report of a question counts, not the first, even when it names no new block."""
    bounds = FeedbackBounds(max_facts=8, max_bytes=1 << 30)
    report(catalog, "old", range(4), 1, bounds)
    report(catalog, "new", range(4), 2, bounds)
    assert report(catalog, "old", range(4), 3, bounds) == 0
    report(catalog, "newest", range(4), 4, bounds)
    assert sorted(stored(catalog)) == ["newest", "old"]


def test_facts_can_be_taken_back(catalog: SqlCatalog) -> None:
    """All of them; a table that is gone takes none."""
    report(catalog, "q", range(4), 1)
    report(catalog, "r", range(2), 1)
    assert catalog.clear_feedback("t") == 6
    assert stored(catalog) == {}
    report(catalog, "q", range(4), 1)
    catalog.drop_table("n", "t", now_ms=5, purge=True)
    with pytest.raises(TableNotFound):
        report(catalog, "q", range(4), 1)
    assert catalog.forget_table("t")
    assert stored(catalog) == {}
