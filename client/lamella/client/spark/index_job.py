"""Builds a skip index with Spark: executors write parts, the driver commits many parts at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any, Final, Literal

import msgspec
import numpy as np
import pyarrow as pa

from lamella.client.http import Lamella, Table
from lamella.client.spark.engine import SparkEngine
from lamella.client.spark.lake import client_of
from lamella.snapshot.errors import InvalidRequest
from lamella.snapshot.ids import Ids
from lamella.snapshot.index.building import PART_BLOCKS, Source, build_part
from lamella.snapshot.index.definition import term_in
from lamella.snapshot.index.directory import find_entries
from lamella.snapshot.manifest import Block, ObjectRef, TableIndex, decode_segment
from lamella.snapshot.manifest.block_key import bytes_of, no_keys
from lamella.snapshot.schema import Schema
from lamella.snapshot.storage import FsspecStore, TableLayout
from lamella.snapshot.warehouse.index_refresh import IndexBlocks
from lamella.snapshot.warehouse.indexing import index_named
from lamella.snapshot.warehouse.manifests import Manifests
from lamella.snapshot.wire import Coverage, LeftOutBlock, PartSent

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


# The work of one Spark task for an index: build the part of some blocks, write it to the table's folder, report it.
#
# Runs in Spark's Python workers, through ``mapInArrow``. Only parts that a successful attempt reports are committed, so
# a retry or a speculative attempt leaves only unreferenced objects.

#: The columns of a task's report, in Spark's spelling.
REPORT: Final = "report string"


class Piece(msgspec.Struct, frozen=True, kw_only=True):
    """Blocks that share a part: the manifests of their segments, and the row numbers among all blocks of these."""

    manifests: tuple[ObjectRef, ...]
    rows: tuple[int, ...]


class PieceReport(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a piece; ``part`` is None when none of its blocks could be indexed."""

    part: PartSent | None
    indexed: int
    row_count: int
    left_out: tuple[LeftOutBlock, ...] = ()


class _History(msgspec.Struct, frozen=True):
    """The schemas of a table."""

    history: tuple[Schema, ...]


class IndexPartition(msgspec.Struct, frozen=True, kw_only=True):
    """Maps numbers of pieces to one row each: a :class:`PieceReport` as JSON.

    ``location``: the table's folder. ``read_threads``: number of files that a task reads at once.
    """

    location: str
    index: TableIndex
    history: tuple[Schema, ...]
    pieces: tuple[Piece, ...]
    source: Source
    read_threads: int
    storage_options: dict[str, dict[str, Any]] = {}

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        store = FsspecStore(self.storage_options)
        for batch in batches:
            for number in batch.column(0).to_pylist():
                report = msgspec.json.encode(self._build(store, self.pieces[number])).decode()
                yield pa.record_batch([pa.array([report])], names=["report"])

    def _build(self, store: FsspecStore, piece: Piece) -> PieceReport:
        blocks: list[Block] = []
        for manifest in piece.manifests:
            data = store.read(manifest.location)
            blocks += decode_segment(data, sha256=manifest.sha256, location=manifest.location).blocks
        built = build_part(
            store,
            self.index,
            _History(self.history),
            [blocks[row] for row in piece.rows],
            source=self.source,
            workers=self.read_threads,
        )
        left_out = tuple(LeftOutBlock(location=each.location, reason=each.reason) for each in built.left_out)
        if built.part is None:
            return PieceReport(part=None, indexed=0, row_count=0, left_out=left_out)
        ref = built.part.ref(TableLayout(self.location).index_part(Ids().new()))
        store.put(ref.location, built.part.data)
        sent = PartSent(
            location=ref.location,
            size_bytes=ref.size_bytes,
            tail_bytes=ref.tail_bytes,
            tail_sha256=ref.tail_sha256,
            keys=bytes_of(built.part.keys),
        )
        return PieceReport(part=sent, indexed=len(built.part.keys), row_count=built.part.row_count, left_out=left_out)


#: Pieces per commit, per task that Spark runs at once.
_PIECES_PER_TASK: Final = 4
#: Minimum size of a piece; smaller pieces are not cut to keep all tasks busy.
_MIN_BLOCKS: Final = 16
_CACHE_BYTES: Final = 64 << 20
_REPORT: Final = msgspec.json.Decoder(PieceReport)


class BuildProgress(msgspec.Struct, frozen=True, kw_only=True):
    """Committed progress: the number of processed blocks, and their total."""

    blocks_done: int
    blocks_total: int


class BuildResult(msgspec.Struct, frozen=True, kw_only=True):
    """What a build added. The ``left_out`` blocks could not be indexed; queries keep reading them."""

    indexed: int
    row_count: int
    parts: int
    size_bytes: int
    left_out: tuple[LeftOutBlock, ...]
    coverage: Coverage | None


def build_index(
    spark: SparkSession,
    lake: Lamella | str,
    name: str,
    index: str,
    *,
    mode: Literal["incremental", "full"] = "incremental",
    read_threads: int = 4,
    batch_pieces: int | None = None,
    storage_options: Mapping[str, Mapping[str, Any]] | None = None,
    on_batch: Callable[[BuildProgress], None] | None = None,
) -> BuildResult:
    """Index the blocks of ``namespace.table`` that an index does not cover ("full": all), on Spark's executors.

    Works on classic sessions and on Spark Connect; driver and executors need ``lamella`` and access to the warehouse. A
    task reads the files of one full segment, or of several small ones, ``read_threads`` at a time, and writes one part.
    After every ``batch_pieces`` parts they are committed and ``on_batch`` is called; the next build continues an
    interrupted one. ``lake``: the service's client or URL. ``storage_options``: fsspec options by scheme.

    "full" reads values even where "incremental" uses filters stored in the files.

    Raises:
        IndexNotFound, TableNotFound: no such index or table.
        PermissionDenied: the caller may not maintain the table; nothing was written.
        InvalidRequest: a column of the index was dropped; a number below 1.
        PythonException (pyspark): storage failed on an executor as often as Spark allows.
    """
    if read_threads < 1 or (batch_pieces is not None and batch_pieces < 1):
        raise InvalidRequest("read_threads and batch_pieces are at least 1")
    with client_of(lake) if isinstance(lake, str) else nullcontext(lake) as client:
        table = client.table(name)
        options = {scheme: dict(given) for scheme, given in (storage_options or {}).items()}
        job = _Job(spark, table, index, mode, read_threads, options)
        return job.run(batch_pieces, on_batch)


class _Job:
    def __init__(
        self,
        spark: SparkSession,
        table: Table,
        index: str,
        mode: Literal["incremental", "full"],
        read_threads: int,
        options: dict[str, dict[str, Any]],
    ) -> None:
        self._spark = spark
        self._table = table
        self._mode = mode
        self._read_threads = read_threads
        self._options = options
        info = table.info(role="maintain")  # before executors write parts that cannot be committed
        self._location = info.location
        self._snapshot = table.snapshot(info.snapshot_id)
        self._index = index_named(self._snapshot.skip_indexes, index)
        if term_in(self._index, self._snapshot) is None:
            raise InvalidRequest(f"{self._index.expression} has changed since the index was created", name=index)

    def run(self, batch_pieces: int | None, on_batch: Callable[[BuildProgress], None] | None) -> BuildResult:
        tasks = SparkEngine(self._spark).parallelism
        pieces, was_cut = self._pieces(tasks)
        total = sum(len(piece.rows) for piece in pieces)
        size = batch_pieces if batch_pieces is not None else _PIECES_PER_TASK * tasks
        reports: list[PieceReport] = []
        done = 0
        for start in range(0, len(pieces), size):
            batch = pieces[start : start + size]
            built = self._build(batch)
            parts = [report.part for report in built if report.part is not None]
            if parts:
                self._table.add_index_parts(self._index.name, self._index.index_id, parts)
            reports += built
            done += sum(len(piece.rows) for piece in batch)
            if on_batch is not None:
                on_batch(BuildProgress(blocks_done=done, blocks_total=total))
        if reports and (was_cut or self._mode == "full"):
            self._table.optimise_index(self._index.name)
        return BuildResult(
            indexed=sum(report.indexed for report in reports),
            row_count=sum(report.row_count for report in reports),
            parts=sum(report.part is not None for report in reports),
            size_bytes=sum(report.part.size_bytes for report in reports if report.part is not None),
            left_out=tuple(each for report in reports for each in report.left_out),
            coverage=self._table.index(self._index.name).coverage,
        )

    def _build(self, pieces: list[Piece]) -> list[PieceReport]:
        task = IndexPartition(
            location=self._location,
            index=msgspec.structs.replace(self._index, directories=()),
            history=self._snapshot.history,
            pieces=tuple(pieces),
            source="values" if self._mode == "full" else "either",
            read_threads=self._read_threads,
            storage_options=self._options,
        )
        numbers = self._spark.range(0, len(pieces), 1, len(pieces))
        # A lambda, since Spark reads a function's __name__, which an object does not have.
        rows = numbers.mapInArrow(lambda batches: task(batches), REPORT).collect()
        return [_REPORT.decode(row["report"]) for row in rows]

    def _pieces(self, tasks: int) -> tuple[list[Piece], bool]:
        """Return the blocks to index, one group of segments per piece; cut smaller where tasks would be idle."""
        manifests = Manifests(FsspecStore(self._options), _CACHE_BYTES)
        blocks = IndexBlocks(manifests)
        directories = [] if self._mode == "full" else blocks.directories(self._index)
        groups = blocks.groups(self._snapshot)
        keys = blocks.keys([ref for group in groups for ref in group])
        found: list[Piece] = []
        for group in groups:
            whole = np.concatenate([no_keys(), *(next(keys) for _ in group)])
            rows = np.flatnonzero(find_entries(directories, whole).number < 0).tolist()
            if rows:
                found.append(Piece(manifests=tuple(ref.manifest for ref in group), rows=tuple(rows)))
        total = sum(len(piece.rows) for piece in found)
        size = min(PART_BLOCKS, max(_MIN_BLOCKS, -(-total // tasks))) if len(found) < tasks else PART_BLOCKS
        cut = [
            msgspec.structs.replace(piece, rows=piece.rows[start : start + size])
            for piece in found
            for start in range(0, len(piece.rows), size)
        ]
        return cut, len(cut) > len(found)
