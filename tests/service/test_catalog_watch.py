"""Prune rates and the audit trail in the catalog, over SQLite and PostgreSQL."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from lamella.service.catalog import PruneRateRow, SqlCatalog, open_catalog
from lamella.snapshot.wire import AuditEntry, NamespaceInfo, PruneRate
from support.job_records import IDS, new_table

BACKENDS = ("sqlite", pytest.param("postgres", marks=pytest.mark.postgres))
#: Adds one prune of each of two tables, again and again, the other one first where it is told to.
ADDS = """
import sys
from lamella.service.catalog import PruneRateRow, open_catalog

catalog, tables = open_catalog(sys.argv[1]), sys.argv[2].split(",")
for number in range(int(sys.argv[3])):
    catalog.add_prune_rates(
        PruneRateRow(table_id=table, bucket_ms=300_000, prunes=1, considered_blocks=10, kept_blocks=number % 2,
                     bytes_total=100.0, kept_bytes=5.0, ms=0.5)
        for table in tables
    )
catalog.close()
"""


@pytest.fixture(params=BACKENDS)
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """An empty database."""
    sqlite = request.param == "sqlite"
    return str(tmp_path / "catalog.db") if sqlite else str(request.getfixturevalue("postgres_database"))


@pytest.fixture
def catalog(url: str) -> Iterator[SqlCatalog]:
    """A catalog with the namespace ``db``."""
    catalog = open_catalog(url)
    catalog.create_namespace(NamespaceInfo(name="db"), now_ms=1)
    yield catalog
    catalog.close()


def row(table_id: str, bucket_ms: int, prunes: int = 1) -> PruneRateRow:
    """Prunes of 100 blocks each that kept two."""
    return PruneRateRow(
        table_id=table_id,
        bucket_ms=bucket_ms,
        prunes=prunes,
        considered_blocks=100 * prunes,
        kept_blocks=2 * prunes,
        bytes_total=1e18 * prunes,
        kept_bytes=2e16 * prunes,
        ms=0.25 * prunes,
    )


def rate(prunes: int, bucket_ms: int | None = None) -> PruneRate:
    """What comes of so many of them."""
    return PruneRate(
        prunes=prunes,
        considered_blocks=100 * prunes,
        kept_blocks=2 * prunes,
        bytes_total=10**18 * prunes,
        kept_bytes=2 * 10**16 * prunes,
        ms=0.25 * prunes,
        bucket_ms=bucket_ms,
    )


def entry(at_ms: int, target: str | None = "db.t", **values: object) -> AuditEntry:
    """A commit that was made."""
    given: dict[str, object] = {
        "audit_id": str(IDS.new()),
        "at_ms": at_ms,
        "actor": "anonymous",
        "client": "127.0.0.1",
        "operation": "commit",
        "target": target,
        "status": 200,
        "code": None,
        "request_id": "r",
    }
    return AuditEntry(**{**given, **values})  # type: ignore[arg-type]  # they are what the struct says


def test_prune_rates_add_up_by_table_and_time(catalog: SqlCatalog) -> None:
    """What is added to a bucket comes on top of what is there; sums hold more bytes than 64 bits can count."""
    catalog.add_prune_rates([])
    catalog.add_prune_rates([row("b", 600_000, 3), row("a", 300_000), row("a", 600_000, 40)])
    catalog.add_prune_rates([row("a", 600_000, 2)])
    assert catalog.prune_rate_series("a", since_ms=0) == [rate(1, 300_000), rate(42, 600_000)]
    assert catalog.prune_rate_series("a", since_ms=300_001) == [rate(42, 600_000)]
    assert catalog.prune_rates(["a", "b", "c"], since_ms=0) == {"a": rate(43), "b": rate(3)}
    assert catalog.prune_rates(["a"], since_ms=600_001) == {}
    assert catalog.prune_rates([], since_ms=0) == {}
    assert catalog.prune_rates([str(number) for number in range(1_200)] + ["b"], since_ms=0) == {"b": rate(3)}


def test_processes_add_to_the_same_prune_rates(url: str, catalog: SqlCatalog) -> None:
    """Nothing is lost when several add to the same tables at once, in whatever order they have them."""
    running = [
        subprocess.Popen([sys.executable, "-c", ADDS, url, tables, "100"])
        for tables in ("first,second", "second,first", "first,second")
    ]
    assert [process.wait(timeout=120) for process in running] == [0, 0, 0]
    expected = PruneRate(
        prunes=300, considered_blocks=3_000, kept_blocks=150, bytes_total=30_000, kept_bytes=1_500, ms=150.0
    )
    assert catalog.prune_rates(["first", "second"], since_ms=0) == {"first": expected, "second": expected}


def test_old_prune_rates_are_forgotten_some_at_a_time(catalog: SqlCatalog) -> None:
    """The oldest first, and none that is not old."""
    catalog.add_prune_rates(row(table, bucket_ms) for table in "ab" for bucket_ms in (1_000, 2_000, 3_000))
    assert catalog.forget_prune_rates(before_ms=3_000, limit=3) == 3
    left = [each.bucket_ms for table in "ab" for each in catalog.prune_rate_series(table, since_ms=0)]
    assert sorted(each for each in left if each is not None) == [2_000, 3_000, 3_000]
    assert catalog.forget_prune_rates(before_ms=3_000, limit=3) == 1
    assert catalog.forget_prune_rates(before_ms=3_000, limit=3) == 0


def test_a_table_that_is_gone_for_good_loses_its_prune_rates(catalog: SqlCatalog) -> None:
    """And no other one does; one that can be undropped keeps them."""
    table, other = new_table(catalog), new_table(catalog, "other")
    catalog.add_prune_rates([row(table.table_id, 1_000), row(other.table_id, 1_000)])
    catalog.drop_table("db", "t", now_ms=5, purge=True)
    assert catalog.prune_rates([table.table_id], since_ms=0) == {table.table_id: rate(1)}
    assert catalog.forget_table(table.table_id)
    ids = [table.table_id, other.table_id]
    assert catalog.prune_rates(ids, since_ms=0) == {other.table_id: rate(1)}


def test_the_health_of_the_newest_version_is_stored(catalog: SqlCatalog) -> None:
    """Two processes may measure at once: the one that is late with an older snapshot replaces nothing."""
    table, other = new_table(catalog), new_table(catalog, "other")
    assert catalog.table_health(table.table_id) is None
    catalog.put_table_health(table.table_id, 2, 20, "two")
    catalog.put_table_health(other.table_id, 1, 10, "of another")
    catalog.put_table_health(table.table_id, 1, 30, "one")
    assert catalog.table_health(table.table_id) == "two"
    catalog.put_table_health(table.table_id, 2, 40, "two again")
    assert catalog.table_health(table.table_id) == "two again"
    catalog.put_table_health(table.table_id, 3, 50, "three")
    assert catalog.table_health(table.table_id) == "three"
    catalog.drop_table("db", "t", now_ms=5, purge=True)
    assert catalog.forget_table(table.table_id)
    assert [catalog.table_health(each.table_id) for each in (table, other)] == [None, "of another"]


def test_service_rates_add_up_by_time_and_name(catalog: SqlCatalog) -> None:
    """What is added comes on top of what is there; the oldest are deleted first, some at a time."""
    catalog.add_service_rates(300_000, {})
    catalog.add_service_rates(300_000, {"requests": 2.0, "store_s": 0.5})
    catalog.add_service_rates(300_000, {"store_s": 0.25, "commits": 1.0})
    catalog.add_service_rates(600_000, {"requests": 7.0})
    first = {"requests": 2.0, "store_s": 0.75, "commits": 1.0}
    assert catalog.service_rates(since_ms=0) == {300_000: first, 600_000: {"requests": 7.0}}
    assert catalog.service_rates(since_ms=300_001) == {600_000: {"requests": 7.0}}
    assert catalog.forget_service_rates(before_ms=600_000, limit=2) == 2
    assert catalog.forget_service_rates(before_ms=600_000, limit=2) == 1
    assert catalog.service_rates(since_ms=0) == {600_000: {"requests": 7.0}}


def test_processes_add_to_the_same_service_rates(url: str, catalog: SqlCatalog) -> None:
    """Nothing is lost when several add to the same period at once."""
    adds = (
        "import sys; from lamella.service.catalog import open_catalog; catalog = open_catalog(sys.argv[1]); "
        "[catalog.add_service_rates(300_000, {'requests': 1.0, 'prunes': 2.0}) for _ in range(100)]; catalog.close()"
    )
    running = [subprocess.Popen([sys.executable, "-c", adds, url]) for _ in range(3)]
    assert [process.wait(timeout=120) for process in running] == [0, 0, 0]
    assert catalog.service_rates(since_ms=0) == {300_000: {"requests": 300.0, "prunes": 600.0}}


def test_the_audit_trail_gives_back_what_was_written_newest_first(catalog: SqlCatalog) -> None:
    """Page by page, of everything or of one target; an entry that is written twice is there once."""
    entries = [entry(number, "db.t" if number % 3 else None) for number in range(10)]
    entries.append(entry(10, "é \" '; DROP TABLE audit", status=409, code="commit_conflict", client="::1"))
    catalog.add_audit([])
    catalog.add_audit(entries[:6])
    catalog.add_audit(entries[3:])
    newest_first = entries[::-1]
    assert catalog.audit(before_id=None, limit=100) == newest_first
    found: list[AuditEntry] = []
    while part := catalog.audit(before_id=found[-1].audit_id if found else None, limit=4):
        assert len(part) <= 4
        found += part
    assert found == newest_first
    of_table = [each for each in newest_first if each.target == "db.t"]
    assert catalog.audit(before_id=None, limit=100, target="db.t") == of_table
    assert catalog.audit(before_id=of_table[1].audit_id, limit=1, target="db.t") == [of_table[2]]
    for target in ("db.nothing", "\0"):
        assert catalog.audit(before_id=None, limit=100, target=target) == []


def test_old_audit_entries_are_forgotten_some_at_a_time(catalog: SqlCatalog) -> None:
    """The oldest first, and none that is not old."""
    entries = [entry(number) for number in range(10)]
    catalog.add_audit(entries)
    assert catalog.forget_audit(before_ms=7, limit=5) == 5
    assert catalog.audit(before_id=None, limit=100) == entries[:4:-1]
    assert catalog.forget_audit(before_ms=7, limit=5) == 2
    assert catalog.forget_audit(before_ms=7, limit=5) == 0
    assert catalog.audit(before_id=None, limit=100) == entries[:6:-1]


def test_the_catalog_says_what_it_stands_on(url: str, catalog: SqlCatalog) -> None:
    """The kind of database, and the migration that it is at."""
    assert catalog.backend == ("postgresql" if "://" in url else "sqlite")
    assert catalog.schema_revision().isdigit()


def test_entries_are_found_by_the_snapshots_that_they_committed(catalog: SqlCatalog) -> None:
    """However many snapshots there are, and those of several requests with each."""
    entries = [entry(number, snapshot_id=f"snapshot-{number // 2}") for number in range(1_400)]
    catalog.add_audit([*entries, entry(1), entry(2, snapshot_id="other")])
    wanted = [f"snapshot-{number}" for number in range(5, 700)]
    assert catalog.audit_of_snapshots(wanted) == entries[10:]
    assert catalog.audit_of_snapshots([]) == []
