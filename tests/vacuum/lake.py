"""Tables with a catalog, a warehouse and a clean-up, whose time the test moves."""

from __future__ import annotations

from collections.abc import Sequence

from lamella.service.catalog import (
    BranchRecord,
    HistoryEntry,
    LeaseRecord,
    SqlCatalog,
    TableRecord,
    TagRecord,
    open_catalog,
)
from lamella.service.history.history import history_entry
from lamella.service.maintenance.vacuum import Vacuum
from lamella.service.telemetry.metrics import Metrics
from lamella.snapshot.errors import Unavailable
from lamella.snapshot.ids import Ids
from lamella.snapshot.manifest import Block
from lamella.snapshot.schema import Column, Schema
from lamella.snapshot.vacuum import Retention
from lamella.snapshot.warehouse import Warehouse
from lamella.snapshot.wire import NamespaceInfo, VacuumAnswer, VacuumRequest
from support.timed_store import TimedStore

MINUTE = 60_000
HOUR = 60 * MINUTE
DAY = 24 * HOUR
MIN_AGE = DAY
GRACE = 3 * DAY
ROOT = "memory://lake"


class Lake:
    """One warehouse. ``now_ms`` is the time; each table is known by its id."""

    def __init__(self, catalog_url: str, *, max_age_ms: int = 7 * DAY, segment_blocks: int = 3) -> None:
        self.now_ms = 1_800_000_000_000
        self.ids = Ids(self.clock)
        self.store = TimedStore(self.clock)
        self.catalog: SqlCatalog = open_catalog(catalog_url)
        self.catalog.create_namespace(NamespaceInfo(name="db"), now_ms=self.now_ms)
        self._segment_blocks = segment_blocks
        self.warehouse = self.fresh_warehouse()
        self.max_age_ms = max_age_ms
        self.vacuum = self.cleaner()

    def clock(self) -> int:
        """Unix milliseconds."""
        return self.now_ms

    def fresh_warehouse(self) -> Warehouse:
        """One that has read nothing yet, so that nothing is answered from memory."""
        return Warehouse(self.store, ROOT, ids=self.ids, segment_blocks=self._segment_blocks)

    def cleaner(self, *, max_objects: int = 1_000) -> Vacuum:
        """A clean-up, as a service would have it after a restart."""
        return Vacuum(
            catalog=self.catalog,
            warehouse=self.fresh_warehouse(),
            store=self.store,
            metrics=Metrics(),
            clock=self.clock,
            retention=Retention(max_age_ms=self.max_age_ms),
            min_age_ms=MIN_AGE,
            drop_grace_ms=GRACE,
            max_objects=max_objects,
        )

    def table(self, name: str = "t", **properties: str) -> str:
        """A new, empty table."""
        table_id = str(self.ids.new())
        schema = Schema.assign([Column(name="a", type="int64")])
        named = {key.replace("__", "."): value for key, value in properties.items()}
        pointer = self.warehouse.create(table_id, schema, properties=named, now_ms=self.now_ms)
        record = TableRecord(
            table_id=table_id,
            namespace="db",
            name=name,
            location=self.warehouse.table_location(table_id),
            version=1,
            pointer=pointer,
            created_at_ms=self.now_ms,
        )
        self.catalog.create_table(record, history_entry(1, pointer, self.warehouse.snapshot(pointer)))
        return table_id

    def file(self, table_id: str, *, external: bool = False) -> str:
        """A data file, in the table's folder or elsewhere."""
        name = f"{self.ids.new()}_v1.parquet"
        main_id = self.catalog.table_by_id(table_id).main_id
        folder = "memory://data" if external else f"{self.warehouse.table_location(main_id)}/_b"
        return self.store.put(f"{folder}/{name}", b"rows").location

    def block(self, location: str) -> Block:
        """A file as a block."""
        stat = self.store.stat(location)
        return Block(location=location, row_count=1, file_size=stat.size_bytes, content_id=stat.content_id)

    def commit(
        self, table_id: str, *, add: Sequence[str] = (), remove: Sequence[str] = (), stop_before_swap: bool = False
    ) -> HistoryEntry:
        """Add and remove files, as the service does it: guard, look at the files, write, swap."""
        since_ms = self.ids.new().int >> 80
        guard = self.catalog.guard(table_id, add, since_ms=since_ms)
        blocks = [self.block(location) for location in add]
        record = self.catalog.table_by_id(table_id)
        snapshot = self.warehouse.snapshot(record.pointer)
        leaves = self.warehouse.prepare(record.main_id, snapshot, blocks)
        result = self.warehouse.commit(record.pointer, added=leaves, removed=remove, now_ms=self.now_ms)
        entry = history_entry(record.version + 1, result.pointer, result.snapshot)
        branch_of = record.branch_of
        if not stop_before_swap and not self.catalog.advance(table_id, entry, branch_of=branch_of, guard=guard):
            raise Unavailable("another commit came first", retry_after_s=0)
        return entry

    def branch(self, entry: HistoryEntry, name: str, *, replace: bool = False, max_idle_ms: int | None = None) -> str:
        """A branch that begins at a snapshot; its id."""
        main = self.catalog.table_by_id(entry.table_id)
        if main.branch_of is not None:
            main = self.catalog.table_by_id(main.branch_of)
        record = TableRecord(
            table_id=str(self.ids.new()),
            namespace=main.namespace,
            name=f"{main.name}@{name}",
            location=main.location,
            version=entry.seq,
            pointer=entry.pointer,
            created_at_ms=self.now_ms,
            branch_of=main.table_id,
        )
        fork_seq = self.catalog.fork_seq(entry.table_id)
        branch = BranchRecord(
            record=record, fork_seq=entry.seq if fork_seq is None else fork_seq, max_idle_ms=max_idle_ms
        )
        self.catalog.create_branch(branch, entry, replace=replace, now_ms=self.now_ms)
        return record.table_id

    def append(self, table_id: str, *, external: bool = False) -> str:
        """A commit of one new file; its location."""
        location = self.file(table_id, external=external)
        self.commit(table_id, add=[location])
        return location

    def tag(self, table_id: str, name: str, entry: HistoryEntry) -> None:
        """Name a snapshot."""
        tag = TagRecord(
            table_id=entry.table_id or table_id,
            name=name,
            seq=entry.seq,
            snapshot_id=entry.pointer.snapshot_id,
            timestamp_ms=entry.pointer.timestamp_ms,
            created_at_ms=self.now_ms,
        )
        self.catalog.put_tag(tag, move=False, now_ms=self.now_ms)

    def lease(self, table_id: str, entry: HistoryEntry, *, ttl_ms: int) -> str:
        """Hold a snapshot; the lease's id."""
        lease = LeaseRecord(
            lease_id=str(self.ids.new()),
            table_id=entry.table_id or table_id,
            seq=entry.seq,
            snapshot_id=entry.pointer.snapshot_id,
            owner="reader",
            created_at_ms=self.now_ms,
            expires_at_ms=self.now_ms + ttl_ms,
        )
        self.catalog.add_lease(lease)
        return lease.lease_id

    def rollback(self, table_id: str, to: HistoryEntry) -> None:
        """Make an old snapshot's blocks current again, by a new snapshot."""
        record = self.catalog.table_by_id(table_id)
        now = {*self.warehouse.block_locations(record.pointer)}
        then = {*self.warehouse.block_locations(to.pointer)}
        added = list(self.warehouse.segments(to.pointer)) if now != then else []
        result = self.warehouse.commit(record.pointer, added=added, removed=sorted(now), now_ms=self.now_ms)
        entry = history_entry(record.version + 1, result.pointer, result.snapshot)
        if not self.catalog.advance(table_id, entry, required=to):
            raise Unavailable("another commit came first", retry_after_s=0)

    def clean(self, table_id: str, *, cleaner: Vacuum | None = None, **options: object) -> list[VacuumAnswer]:
        """All parts of a clean-up; it executes unless it is told not to."""
        parts: list[VacuumAnswer] = []
        request: dict[str, object] = {"execute": True, **options}
        cleaner = self.cleaner() if cleaner is None else cleaner
        while not parts or parts[-1].next_page_token is not None:
            token = parts[-1].next_page_token if parts else None
            record = self.catalog.table_by_id(table_id)
            parts.append(cleaner.vacuum(record, VacuumRequest(page_token=token, **request)))  # type: ignore[arg-type]  # by name
        return parts

    def history(self, table_id: str) -> list[HistoryEntry]:
        """The history, newest first."""
        return self.catalog.whole_history(table_id)

    def verify(self, table_id: str) -> None:
        """Every snapshot of the history can be read, manifest by manifest, and every block's file is there."""
        warehouse = self.fresh_warehouse()
        for entry in self.history(table_id):
            needed = warehouse.objects(entry.pointer).needed
            assert all(self.store.stat(ref.location).size_bytes == ref.size_bytes for ref in needed)
            for ref in warehouse.segments(entry.pointer):
                for block in warehouse.segment(ref).blocks:
                    assert self.store.stat(block.location).content_id == block.content_id

    def needed(self, table_id: str) -> set[str]:
        """Every location that the history needs or may use."""
        warehouse = self.fresh_warehouse()
        found: set[str] = set()
        for entry in self.history(table_id):
            found |= warehouse.objects(entry.pointer).locations()
            found.update(warehouse.block_locations(entry.pointer))
        return found

    def folder(self, table_id: str) -> set[str]:
        """Every object in the table's folder."""
        root = self.warehouse.table_location(table_id) + "/"
        return {location for location in self.store.locations() if location.startswith(root)}
