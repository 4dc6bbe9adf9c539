"""Tables, tags and upkeep over all namespaces, over SQLite and PostgreSQL, beside answers computed from all rows."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import msgspec
import pytest

from lamella.service.catalog import (
    DroppedUse,
    HistoryEntry,
    JobEnding,
    JobFilter,
    JobReport,
    ListedTable,
    PolicyRecord,
    ScheduleRecord,
    Scopes,
    SqlCatalog,
    TableFilter,
    TableOrder,
    TableRecord,
    TagRecord,
    open_catalog,
)
from lamella.snapshot.ids import Ids
from lamella.snapshot.manifest import ObjectRef, SnapshotPointer
from lamella.snapshot.wire import NamespaceInfo
from support.job_records import enqueue

BACKENDS = ("sqlite", pytest.param("postgres", marks=pytest.mark.postgres))
IDS = Ids(lambda: 1_700_000_000_000)
NAMESPACES = ("a", "a.b", "b", "big_area")
ORDERS: tuple[TableOrder, ...] = get_args(TableOrder)
#: Everywhere; nowhere; a namespace; one table of another; both, and what does not exist.
SCOPES: tuple[Scopes | None, ...] = (
    None,
    (),
    (("a", None),),
    (("b", "t_01"),),
    (("a.b", None), ("b", "t_02"), ("a", "b.t_01"), ("gone", None)),
)


@pytest.fixture(params=BACKENDS)
def catalog(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[SqlCatalog]:
    """An empty catalog with the namespaces."""
    sqlite = request.param == "sqlite"
    url = str(tmp_path / "catalog.db") if sqlite else str(request.getfixturevalue("postgres_database"))
    catalog = open_catalog(url)
    for name in NAMESPACES:
        catalog.create_namespace(NamespaceInfo(name=name), now_ms=1)
    yield catalog
    catalog.close()


def add(catalog: SqlCatalog, namespace: str, name: str, draw: random.Random) -> ListedTable:
    """A table with one snapshot of random figures."""
    table_id, snapshot_id = str(IDS.new()), str(IDS.new())
    ref = ObjectRef(location=f"s3://x/{table_id}/{name}.json", size_bytes=1, sha256="0" * 64)
    pointer = SnapshotPointer(snapshot_id=snapshot_id, timestamp_ms=draw.randrange(1, 9), manifest=ref, sidecar=ref)
    figures: dict[str, Any] = {
        "row_count": draw.randrange(5),
        "block_count": draw.randrange(5),
        "file_size_bytes": draw.randrange(5),
    }
    entry = HistoryEntry(seq=1, pointer=pointer, prev_snapshot_id=None, operation="create", segment_count=1, **figures)
    record = TableRecord(
        table_id=table_id,
        namespace=namespace,
        name=name,
        location=f"s3://Bucket/{draw.choice(('one', 'two'))}/100%_{name}",
        version=1,
        pointer=pointer,
        created_at_ms=1,
    )
    catalog.create_table(record, entry)
    return ListedTable(record=record, **figures)


@pytest.fixture
def tables(catalog: SqlCatalog) -> list[ListedTable]:
    """Live tables, beside some that were dropped."""
    draw = random.Random(5)
    found = [
        add(catalog, namespace, f"{kind}_{number:02}", draw)
        for namespace in NAMESPACES
        for number in range(5)
        for kind in ("t", "Table")
    ]
    for each in found[::7]:
        catalog.drop_table(each.record.namespace, each.record.name, now_ms=50)
    return [each for number, each in enumerate(found) if number % 7]


def is_within(scopes: Scopes | None, namespace: str, name: str) -> bool:
    """Whether the scopes have the table."""
    return scopes is None or any(scope in ((namespace, None), (namespace, name)) for scope in scopes)


def is_listed(which: TableFilter, record: TableRecord) -> bool:
    """Whether a filter has the table, by the filter's description."""
    return (
        is_within(which.within, record.namespace, record.name)
        and which.namespace in (None, record.namespace)
        and which.name_part.lower() in record.name.lower()
        and which.path_part.lower() in f"{record.namespace}.{record.name}".lower()
        and which.location_part.lower() in record.location.lower()
    )


FILTERS = [
    *(TableFilter(within=scopes) for scopes in SCOPES),
    TableFilter(namespace="a"),
    TableFilter(namespace="a\0"),
    TableFilter(namespace="gone"),
    TableFilter(name_part="TABLE"),
    TableFilter(name_part="t_0"),
    TableFilter(name_part="%"),
    TableFilter(name_part="\0"),
    TableFilter(path_part="b.t_01"),
    TableFilter(path_part="_area.T"),
    TableFilter(path_part="t_01", within=SCOPES[4]),
    TableFilter(location_part="bucket/TWO"),
    TableFilter(location_part="100%_t"),
    TableFilter(location_part="100__t"),
    TableFilter(location_part="\\"),
]


@pytest.mark.parametrize("which", FILTERS, ids=str)
def test_tables_are_those_that_the_filter_describes(
    catalog: SqlCatalog, tables: list[ListedTable], which: TableFilter
) -> None:
    """All of them, with their figures; a wildcard of SQL is a character like any other."""
    wanted = {each.record.table_id: each for each in tables if is_listed(which, each.record)}
    found = catalog.listed_tables(which, limit=100)
    assert {each.record.table_id: each for each in found} == wanted
    assert len(found) == len(wanted) == catalog.count_tables(which)


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("descending", [False, True])
def test_pages_of_tables_are_parts_of_one_order(
    catalog: SqlCatalog, tables: list[ListedTable], order: TableOrder, descending: bool
) -> None:
    """By the figure, and by name where it is equal; no table is on two pages, and none is left out."""
    figures = {
        "rows": lambda each: each.row_count,
        "size": lambda each: each.file_size_bytes,
        "blocks": lambda each: each.block_count,
        "commit": lambda each: each.record.pointer.timestamp_ms,
    }
    found = [
        each
        for offset in range(0, len(tables), 4)
        for each in catalog.listed_tables(TableFilter(), order=order, descending=descending, offset=offset, limit=4)
    ]
    assert sorted(each.record.table_id for each in found) == sorted(each.record.table_id for each in tables)
    if order != "name":
        keys = [figures[order](each) for each in found]
        assert keys == sorted(keys, reverse=descending)
    everything = catalog.listed_tables(TableFilter(), order=order, descending=descending, limit=100)
    assert found == everything
    assert catalog.listed_tables(TableFilter(), order=order, descending=descending, offset=100, limit=4) == []


def test_a_search_has_the_exact_name_first(catalog: SqlCatalog) -> None:
    """However many other tables contain it."""
    draw = random.Random(1)
    for namespace, name in (("a", "my_t"), ("a", "xt"), ("b", "T"), ("b", "at")):
        add(catalog, namespace, name, draw)
    found = catalog.listed_tables(TableFilter(path_part="t"), limit=2)
    assert [each.record.name for each in found] == ["T", "my_t"]


def test_versions_are_those_of_the_live_tables(catalog: SqlCatalog, tables: list[ListedTable]) -> None:
    """Each with its blocks."""
    found = {
        (each.table_id, each.namespace, each.name, each.version, each.block_count) for each in catalog.table_versions()
    }
    assert found == {
        (each.record.table_id, each.record.namespace, each.record.name, 1, each.block_count) for each in tables
    }


@pytest.mark.parametrize("scopes", SCOPES, ids=str)
def test_tags_are_found_where_the_caller_may_read(
    catalog: SqlCatalog, tables: list[ListedTable], scopes: Scopes | None
) -> None:
    """By a part of their name; those that have expired, and those of dropped tables, are not."""
    names = ("Release_1", "release-2", "other", "old_release")
    for each in tables:
        for name in names:
            tag = TagRecord(
                table_id=each.record.table_id,
                name=name,
                seq=1,
                snapshot_id=each.record.pointer.snapshot_id,
                timestamp_ms=each.record.pointer.timestamp_ms,
                created_at_ms=1,
                expires_at_ms=10 if name.startswith("old") else None,
            )
            catalog.put_tag(tag, move=False, now_ms=5)
    seen = [each.record for each in tables if is_within(scopes, each.record.namespace, each.record.name)]
    found = catalog.find_tags("RELEASE", scopes, now_ms=20, limit=1_000)
    assert {(tag.namespace, tag.table, tag.name) for tag in found} == {
        (record.namespace, record.name, name) for record in seen for name in names[:2]
    }
    assert len(catalog.find_tags("release", scopes, now_ms=20, limit=3)) == min(3, 2 * len(seen))
    assert catalog.find_tags("_", scopes, now_ms=20, limit=1_000) == [tag for tag in found if "_" in tag.name]


def test_upkeep_is_a_policy_or_an_active_schedule_of_a_live_table(
    catalog: SqlCatalog, tables: list[ListedTable]
) -> None:
    """That the caller may read."""
    first, second = (next(each.record for each in tables if each.record.namespace == name) for name in ("a", "b"))
    elsewhere: Scopes = (("a.b", None), ("a", "nothing"))
    assert not catalog.has_upkeep(None)
    schedule = ScheduleRecord(
        table_id=first.table_id,
        name="s",
        kind="verify",
        arguments="{}",
        time_zone="UTC",
        enabled=False,
        created_ms=1,
        every_s=60,
    )
    catalog.put_schedule(schedule)
    assert not catalog.has_upkeep(None)
    catalog.put_schedule(msgspec.structs.replace(schedule, enabled=True, next_ms=99))
    assert catalog.has_upkeep(None)
    assert catalog.has_upkeep(((first.namespace, first.name),))
    assert not catalog.has_upkeep(elsewhere)
    catalog.drop_schedule(first.table_id, "s")
    catalog.put_policy(PolicyRecord(table_id=second.table_id, policy="{}", updated_ms=1))
    assert catalog.has_upkeep((("b", None),))
    assert not catalog.has_upkeep(elsewhere)
    catalog.drop_table(second.namespace, second.name, now_ms=60)
    assert not catalog.has_upkeep(None)


def test_dropped_tables_count_once_they_cannot_come_back(catalog: SqlCatalog) -> None:
    """By the time of the drop, or at once where they were purged; with the blocks of their last snapshot."""
    draw = random.Random(2)
    live, old, purged, fresh = (add(catalog, "a", name, draw) for name in ("live", "old", "purged", "fresh"))
    assert live.block_count >= 0
    assert catalog.dropped_use(before_ms=100) == DroppedUse(tables=0, size_bytes=0)
    catalog.drop_table("a", "old", now_ms=50)
    catalog.drop_table("a", "purged", now_ms=150, purge=True)
    catalog.drop_table("a", "fresh", now_ms=150)
    found = catalog.dropped_use(before_ms=100)
    assert found == DroppedUse(tables=2, size_bytes=old.file_size_bytes + purged.file_size_bytes)
    assert catalog.dropped_use(before_ms=151).size_bytes == found.size_bytes + fresh.file_size_bytes


def test_jobs_are_listed_by_when_they_ended(catalog: SqlCatalog) -> None:
    """Those that still run have not."""
    jobs = []
    for number, at_ms in enumerate((200, 300, 400)):
        enqueue(catalog, kind="verify")
        claimed = catalog.claim_job(
            worker="w", kinds=None, lease_token=str(IDS.new()), lease_expires_ms=10_000, now_ms=100 + number
        ).job
        assert claimed is not None
        assert claimed.lease_token is not None
        ending = JobEnding(outcome="failed", error='{"code":"x","detail":"y"}')
        catalog.finish_job(claimed.job_id, claimed.lease_token, JobReport(), ending, now_ms=at_ms)
        jobs.append(claimed.job_id)
    enqueue(catalog, kind="verify")
    found = catalog.jobs(JobFilter(finished_since_ms=300), before_id=None, limit=10)
    assert [job.job_id for job in found] == jobs[:0:-1]
