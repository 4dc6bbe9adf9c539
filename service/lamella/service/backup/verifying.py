"""Every table of a catalog verified without a service, as after a restore."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from lamella.service.catalog import Catalog, TableRecord
from lamella.service.verification import recorded
from lamella.snapshot.errors import LamellaError
from lamella.snapshot.layout import Store
from lamella.snapshot.verify import Options, Recorded, Verification
from lamella.snapshot.wire import Finding


class TableVerified(msgspec.Struct, frozen=True, kw_only=True):
    """A table, what was looked at, and what is wrong. ``error``: why it could not be looked at to the end."""

    table: str
    snapshot_id: str
    segments: int = 0
    blocks: int = 0
    snapshots: int = 0
    findings: tuple[Finding, ...] = ()
    error: str | None = None

    @property
    def is_clean(self) -> bool:
        """True when nothing is wrong."""
        return self.error is None and all(finding.severity == "info" for finding in self.findings)


def verify_catalog(
    catalog: Catalog, store: Store, warehouse_url: str, *, files: bool, history: int, workers: int
) -> Iterator[TableVerified]:
    """Each table as it stands, in order of names. ``files``: the blocks' own files too; ``history``: so many snapshots
    back."""
    for namespace in catalog.namespaces():
        for name in catalog.tables(namespace.name):
            record = catalog.table(namespace.name, name)
            yield _verified(catalog, store, warehouse_url, record, files=files, history=history, workers=workers)


def _verified(
    catalog: Catalog, store: Store, warehouse_url: str, record: TableRecord, *, files: bool, history: int, workers: int
) -> TableVerified:
    def records(below: int, limit: int) -> Sequence[Recorded]:
        return [recorded(entry) for entry in catalog.history(record.table_id, before_seq=below, limit=limit)]

    table, snapshot_id = f"{record.namespace}.{record.name}", record.pointer.snapshot_id
    options = Options(files=files, pages=False, history=(record.version, history), deep=None, workers=workers)
    try:
        answer = Verification(store, warehouse_url, record.table_id, record.pointer, options, records).run()
    except LamellaError as error:
        return TableVerified(table=table, snapshot_id=snapshot_id, error=error.message)
    checked = answer.checked
    return TableVerified(
        table=table,
        snapshot_id=snapshot_id,
        segments=checked.segments,
        blocks=checked.blocks,
        snapshots=checked.snapshots,
        findings=answer.findings,
    )
