"""Lamella's tables of synthetic blocks, made by its own code and kept under ``build/`` for the next run.

Segments are prepared by several processes; commits and the catalog follow in one. Up to 1e6 blocks a table has all 20
columns. The largest one (1e7 blocks) has the five that predicates ask for, and its segments' JSON manifests, which no
prune reads, are made but not kept: with all columns they would be 15 GB.
"""

from __future__ import annotations

import multiprocessing
import shutil
from collections.abc import Collection
from pathlib import Path
from typing import Final

import msgspec
from synthetic import FILTERED_COLUMNS, MODEL_VERSION, TYPES, Model, blocks_of, schema

from lamella.service.catalog import TableRecord, open_catalog
from lamella.service.history.history import history_entry
from lamella.snapshot.ids import Ids
from lamella.snapshot.manifest import FORMAT_VERSION, SegmentRef, SnapshotPointer
from lamella.snapshot.storage import FsspecStore, ObjectStat
from lamella.snapshot.warehouse import Warehouse
from lamella.snapshot.wire import NamespaceInfo
from speed.clock import process_cpu_s

#: Larger tables have only the columns of the predicates.
WHOLE_UP_TO: Final = 1_000_000
SEGMENT: Final = 1_000
#: Maximum disk space of all of Lamella's tables together; a table that would exceed it is not made.
LIMIT_BYTES: Final = 16 << 30
_BYTES_A_BLOCK: Final = {len(TYPES): 3_600, len(FILTERED_COLUMNS): 700}
_JOB_SEGMENTS = 10
_COMMIT_SEGMENTS = 250
_ENTRY = "table.json"


class Made(msgspec.Struct, frozen=True, kw_only=True):
    """A table on disk: ``pointer`` is its snapshot, ``build_s`` what making it took, in seconds of processor time."""

    folder: str
    count: int
    columns: tuple[str, ...]
    pointer: SnapshotPointer
    build_s: float

    @property
    def root(self) -> str:
        """The warehouse."""
        return _root(Path(self.folder))

    @property
    def catalog(self) -> str:
        """The catalog's URL; the table is ``bench.t``."""
        return _catalog(Path(self.folder))


class SidecarStore(FsspecStore):
    """A store that drops segment manifests: what is read of a segment in a prune is its sidecar."""

    def put(self, location: str, data: bytes) -> ObjectStat:
        """Store a new object, unless it is a segment's manifest."""
        if "/_sg/" in location and location.endswith(".json"):
            return ObjectStat(location=location, size_bytes=len(data), content_id="")
        return super().put(location, data)


def table(folder: Path, count: int, processes: int = 2, *, exact: bool = False) -> Made:
    """The table of ``count`` blocks below ``folder``, made if it is not there yet.

    ``exact``: its bounds are values of rows; an export as Iceberg gives no others of numbers.
    """
    columns: Collection[str] = TYPES if count <= WHOLE_UP_TO else FILTERED_COLUMNS
    kind = f"{len(columns)}{'-exact' if exact else ''}"
    table_folder = folder / f"lamella-model{MODEL_VERSION}-format{FORMAT_VERSION}-{kind}-{count}"
    entry = table_folder / _ENTRY
    if entry.exists():
        made = msgspec.json.decode(entry.read_bytes(), type=Made)
        if made.folder == str(table_folder):  # locations are absolute: a folder that was moved is made anew
            return made
    taken = sum(file.stat().st_size for other in folder.glob("lamella-*") for file in other.rglob("*"))
    if taken + count * _BYTES_A_BLOCK[len(columns)] > LIMIT_BYTES:
        raise OSError(f"{table_folder} would take {folder} beyond {LIMIT_BYTES >> 30} GiB: remove tables there")
    shutil.rmtree(table_folder, ignore_errors=True)
    table_folder.mkdir(parents=True)
    started = process_cpu_s()
    pointer = _make(table_folder, count, tuple(columns), processes, exact=exact)
    took_s = round(process_cpu_s() - started, 1)
    made = Made(folder=str(table_folder), count=count, columns=tuple(columns), pointer=pointer, build_s=took_s)
    entry.write_bytes(msgspec.json.encode(made))
    return made


def _make(table_folder: Path, count: int, columns: tuple[str, ...], processes: int, *, exact: bool) -> SnapshotPointer:
    root = _root(table_folder)
    catalog = open_catalog(_catalog(table_folder))
    store = SidecarStore() if columns == FILTERED_COLUMNS else FsspecStore()
    warehouse = Warehouse(store, root, cache_bytes=64 << 20)
    table_id = str(Ids().new())
    pointer = warehouse.create(table_id, schema(columns), now_ms=1)
    given = (root, table_id, count, columns, exact)
    with multiprocessing.get_context("spawn").Pool(processes, _start, given) as pool:
        step = _JOB_SEGMENTS * SEGMENT
        pending: list[SegmentRef] = []
        for refs in pool.imap(_prepare, range(0, count, step)):
            pending += refs
            if len(pending) >= _COMMIT_SEGMENTS:
                pointer = warehouse.commit(pointer, added=pending, now_ms=2).pointer
                pending = []
        pool.close()
        pool.join()
    if pending:
        pointer = warehouse.commit(pointer, added=pending, now_ms=2).pointer
    catalog.create_namespace(NamespaceInfo(name="bench"), now_ms=1)
    record = TableRecord(
        table_id=table_id,
        namespace="bench",
        name="t",
        location=warehouse.table_location(table_id),
        version=1,
        pointer=pointer,
        created_at_ms=1,
    )
    catalog.create_table(record, history_entry(1, pointer, warehouse.snapshot(pointer)))
    catalog.close()
    return pointer


def _root(table_folder: Path) -> str:
    return f"file://{table_folder}/warehouse"


def _catalog(table_folder: Path) -> str:
    return f"sqlite:///{table_folder}/catalog.db"


class _Worker:
    """What a process that prepares segments holds."""

    def __init__(self, root: str, table_id: str, count: int, columns: tuple[str, ...], exact: bool) -> None:
        self.exact = exact
        self.model = Model(count, columns)
        self.schema = schema(columns)
        self.table_id = table_id
        store = SidecarStore() if columns == FILTERED_COLUMNS else FsspecStore()
        self.warehouse = Warehouse(store, root, cache_bytes=0)

    def prepare(self, start: int) -> tuple[SegmentRef, ...]:
        """Some segments from block ``start`` on."""
        stop = min(self.model.count, start + _JOB_SEGMENTS * SEGMENT)
        some = list(blocks_of(self.model, start, stop, self.schema, exact=self.exact))
        return self.warehouse.prepare(self.table_id, self.schema, some)


_worker: _Worker


def _start(root: str, table_id: str, count: int, columns: tuple[str, ...], exact: bool) -> None:
    global _worker
    _worker = _Worker(root, table_id, count, columns, exact)


def _prepare(start: int) -> tuple[SegmentRef, ...]:
    return _worker.prepare(start)
