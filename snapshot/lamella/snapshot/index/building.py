"""Builds parts of an index from the rows of blocks.

A block whose values cannot be read exactly (its file was replaced, is encrypted, has days of the old calendar, or the
expression fails for a row) is left out with the reason. No part covers it then, so it is always read.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from itertools import islice
from typing import Any, Final, Literal, TypeVar

import msgspec
import numpy as np
import pyarrow as pa

from lamella.snapshot.concurrency import ContextThreadPool, check_deadline
from lamella.snapshot.errors import CorruptParquet, InvalidRequest, LamellaError
from lamella.snapshot.expression.bound import BoundTerm, leaves_in
from lamella.snapshot.function.base import Vector
from lamella.snapshot.index.definition import term_in
from lamella.snapshot.index.kind import Builder, FileBuilder
from lamella.snapshot.index.part import PartRef, pack, ref_of
from lamella.snapshot.index.registry import kind_named
from lamella.snapshot.manifest import Block, TableIndex
from lamella.snapshot.manifest.block_key import BlockKeys, block_keys
from lamella.snapshot.parquet.block import optional_in_files
from lamella.snapshot.parquet.columns import PlannedColumn, plan
from lamella.snapshot.parquet.file_values import DecodedFile, Unreadable
from lamella.snapshot.parquet.footer import Footer, read_footer
from lamella.snapshot.parquet.writer import legacy_calendar
from lamella.snapshot.row_filter import RowTerms
from lamella.snapshot.schema import Leaf, Schema
from lamella.snapshot.schema.arrow import absent, conform_leaf, constant_scalars, leaf_type, repeated
from lamella.snapshot.schema.evolution import Versioned, schema_at
from lamella.snapshot.stats.constant import constant_values
from lamella.snapshot.storage import Store
from lamella.snapshot.storage.store import ObjectStat


class ExpressionFails(Exception):
    """The expression has no value in some row."""


def term_values(store: Store, table: Versioned, term: BoundTerm, block: Block, footer: Footer) -> Iterator[Vector]:
    """Yields the values of a term in all rows of a block, in batches, in order; ``footer``: from :func:`own_footer`.

    Raises:
        Unreadable, ExpressionFails, CorruptParquet, SchemaMismatch, ObjectNotFound, StoreError: the values cannot be
            read.
    """
    columns = _columns(table, block, footer)
    written = schema_at(table, block.written_with)
    constants = constant_scalars(constant_values(block.constants, written), written)
    try:
        file = DecodedFile(store, footer)
    except Unreadable as error:
        raise Unreadable(f"the file cannot be decoded: {error}") from error
    try:
        yield from _batches(file, footer, table.history[-1], columns, leaves_in(term), term, constants)
    finally:
        file.close()


def index_in_file(table: Versioned, leaf: Leaf, block: Block, footer: Footer) -> int | None:
    """Returns the index of a column in the schema of a block's file, if its values there are exactly those of the
    table.

    Also None if the block's statistics come from the values, since its footer was not trusted.
    """
    column = _columns(table, block, footer).get(leaf.id)
    known = block.col_stats.get(leaf.id)
    if column is None or (known is not None and known.source == "scan"):
        return None
    try:
        _require_plain(footer, column)
    except Unreadable:
        return None
    return column.index


def _columns(table: Versioned, block: Block, footer: Footer) -> Mapping[int, PlannedColumn]:
    written = schema_at(table, block.written_with)
    in_file = plan(footer.metadata.schema, optional_in_files(written, block.constants)).present
    return {column.column_id: column for column in in_file}


def _batches(
    file: DecodedFile,
    footer: Footer,
    schema: Schema,
    columns: Mapping[int, PlannedColumn],
    leaves: Sequence[Leaf],
    term: BoundTerm,
    constants: Mapping[int, pa.Scalar],
) -> Iterator[Vector]:
    there = [leaf for leaf in leaves if leaf.id in columns]
    lacking = [leaf for leaf in leaves if leaf.id not in columns]
    for leaf in there:
        _require_plain(footer, columns[leaf.id])
    for count, arrays in _row_groups(file, footer, [columns[leaf.id].index for leaf in there]):
        if any(len(array) != count for array in arrays):
            raise CorruptParquet(f"{footer.location}: the columns of a row group have different numbers of rows")
        values: dict[int, Any] = {
            leaf.id: conform_leaf(_as_leaf(array, leaf), leaf.dtype, leaf.name)
            for leaf, array in zip(there, arrays, strict=True)
        }
        for leaf in lacking:
            if leaf.id in constants:
                values[leaf.id] = repeated(constants[leaf.id], count, leaf_type(leaf.dtype, leaf.name))
                continue
            column = next((each for each in schema.columns if each.id == leaf.id), None)
            values[leaf.id] = pa.nulls(count) if column is None else absent(column, count)
        vector = RowTerms(values, count).vector(term)
        if vector.failed is not None and vector.failed.any():
            raise ExpressionFails(f"the expression fails for a row: {vector.reason}")
        yield Vector(vector.values, np.asarray(vector.valid))


def _row_groups(file: DecodedFile, footer: Footer, indexes: Sequence[int]) -> Iterator[tuple[int, tuple[Any, ...]]]:
    """Yields the number of rows and the values of columns for each row group; without columns, the numbers alone."""
    if not indexes:  # the values of all columns are constants of the block, or those of rows without the columns
        yield from ((group.num_rows, ()) for group in footer.metadata.row_groups)
        return
    for arrays in zip(*(file.values(index) for index in indexes), strict=True):
        yield len(arrays[0]), arrays


def _as_leaf(array: Any, leaf: Leaf) -> Any:
    """Converts values to the leaf's type: files return text as bytes; raises Unreadable for invalid text."""
    if not leaf.dtype.is_text or not pa.types.is_large_binary(array.type):
        return array
    try:
        return array.cast(pa.large_string())
    except pa.ArrowInvalid as error:
        raise Unreadable(f"{leaf.name} has text that is not UTF-8") from error


def _require_plain(footer: Footer, column: PlannedColumn) -> None:
    if column.repeated or column.opaque:
        raise Unreadable(f"{column.name} is not a column of single values")
    if any(group.chunks[column.index].encrypted for group in footer.metadata.row_groups):
        raise Unreadable(f"{column.name} is encrypted")
    if column.gregorian_from is not None and legacy_calendar(footer.metadata.properties):
        raise Unreadable(f"{column.name} may have dates of the Julian calendar")


def own_footer(store: Store, block: Block) -> Footer:
    """Returns the footer of a block's file, if it is still the registered one.

    Raises:
        CorruptParquet: the file was replaced. NotParquet, ObjectNotFound, StoreError: as for reading.
    """
    stat = ObjectStat(location=block.location, size_bytes=block.file_size, content_id=block.content_id or "")
    now = store.stat(block.location)
    replaced = block.content_id is not None and now.content_id != block.content_id
    if now.size_bytes != block.file_size or replaced:
        raise CorruptParquet(f"{block.location} was replaced by another file")
    footer = read_footer(store, block.location, stat)
    if block.footer_sha256 is not None and footer.sha256 != block.footer_sha256:
        raise CorruptParquet(f"{block.location} was replaced by another file")
    return footer


_T = TypeVar("_T")

#: Blocks of a new part: those of a full segment.
PART_BLOCKS: Final = 1_000
#: Blocks that are read ahead per worker.
_AHEAD: Final = 2

#: What a part is built from: "either" uses the filters in the files if the kind supports them and otherwise the values;
#: "values" reads only the values, with the precision of the options; "filters" reads only the filters, so no rows are
#: read.
Source = Literal["either", "values", "filters"]


class SkippedBlock(msgspec.Struct, frozen=True):
    """A block that no part covers, with the reason."""

    location: str
    reason: str


class BuiltPart(msgspec.Struct, frozen=True):
    """A part in memory: its bytes, the size of its tail, and the keys of its blocks in order."""

    data: bytes
    tail_bytes: int
    keys: BlockKeys
    row_count: int

    def ref(self, location: str) -> PartRef:
        """Returns the reference to the part after it is stored at ``location``."""
        return ref_of(location, self.data, self.tail_bytes, len(self.keys))


class Built(msgspec.Struct, frozen=True):
    """The result of a build: one part (None: no block could be used), the blocks that are left out, and their keys in
    the same order."""

    part: BuiltPart | None
    left_out: tuple[SkippedBlock, ...]
    left_out_keys: BlockKeys


def build_part(
    store: Store,
    index: TableIndex,
    table: Versioned,
    blocks: Iterable[Block],
    *,
    source: Source = "either",
    workers: int = 1,
    on_block: Callable[[Block, str | None], object] | None = None,
) -> Built:
    """Builds one part over some blocks of a table, in their order.

    ``table`` knows all schemas of the table. ``workers``: files that are read concurrently; as many again are read
    ahead. ``on_block`` is called with each block and the reason why it was left out (None: it was not).

    Raises:
        StoreError: storage failed; blocks whose files no longer exist are left out.
        InvalidRequest: a column of the index was dropped or has another type.
    """
    kind = kind_named(index.kind)
    term = term_in(index, table)
    if term is None:
        raise InvalidRequest(f"{index.expression} has changed since the index was created", name=index.name)
    builder = kind.builder(term.dtype, index.options)
    reader = _Reader(store, table, term, source, builder)
    done: list[Block] = []
    left_out: list[tuple[Block, str]] = []
    for block, read in _ahead(reader, blocks, workers):
        check_deadline()
        reason = reader.feed(block, read)
        if reason is None:
            done.append(block)
        else:
            left_out.append((block, reason))
        if on_block is not None:
            on_block(block, reason)
    part = None
    if done:
        sections, facts = builder.sections()
        data, tail = pack(index.kind, str(term.dtype), len(done), sections, options=index.options, facts=facts)
        part = BuiltPart(data, tail, block_keys(done), sum(block.row_count for block in done))
    return Built(
        part,
        tuple(SkippedBlock(block.location, reason) for block, reason in left_out),
        block_keys(block for block, _ in left_out),
    )


def reads_filters(index: TableIndex, term: BoundTerm) -> bool:
    """Returns whether blocks of an index may be built from the filters in their files."""
    return isinstance(term, Leaf) and isinstance(kind_named(index.kind).builder(term.dtype, index.options), FileBuilder)


#: What was read of a block: its values; its file's footer if its filters are tried first; or the reason why it is left
#: out.
_Read = list[Vector] | Footer | str


class _Reader:
    """Reads blocks in any thread, and feeds them to the builder in one thread."""

    def __init__(self, store: Store, table: Versioned, term: BoundTerm, source: Source, builder: Builder) -> None:
        self._store = store
        self._table = table
        self._term = term
        self._source = source
        self._builder = builder
        self._files = builder if source != "values" and isinstance(builder, FileBuilder) else None

    def read(self, block: Block) -> _Read:
        """Read what :meth:`feed` needs of a block."""

        def found() -> _Read:
            footer = own_footer(self._store, block)
            if self._chunk_with_filters(block, footer) is not None:
                return footer
            if self._source == "filters":
                return "its file has no bloom filters for the column"
            return list(term_values(self._store, self._table, self._term, block, footer))

        return _or_reason(found)

    def feed(self, block: Block, read: _Read) -> str | None:
        """Feed a block to the builder; returns the reason if it is left out."""
        if isinstance(read, Footer):
            footer, chunk = read, self._chunk_with_filters(block, read)
            assert self._files is not None and chunk is not None  # noqa: S101, PT018  # see read
            files = self._files
            reason = _or_reason(lambda: files.add_file(self._store, footer, chunk))
            if reason is None or self._source == "filters":
                return reason
            read = _or_reason(lambda: list(term_values(self._store, self._table, self._term, block, footer)))
        if isinstance(read, str):
            return read
        for vector in read:
            self._builder.add(vector)
        self._builder.end_block()
        return None

    def _chunk_with_filters(self, block: Block, footer: Footer) -> int | None:
        """Returns the index of the column in a file that has filters of it, if the builder can use them."""
        if self._files is None or not isinstance(self._term, Leaf):
            return None
        chunk = index_in_file(self._table, self._term, block, footer)
        if chunk is None or not any(group.chunks[chunk].bloom_filter for group in footer.metadata.row_groups):
            return None
        return chunk


def _or_reason(work: Callable[[], _T]) -> _T | str:
    """Returns the result for a block, or the reason why there is none; raises StoreError."""
    try:
        return work()
    except (Unreadable, ExpressionFails) as error:
        return str(error)
    except LamellaError as error:
        if error.code == "store_error":
            raise
        return error.message


def _ahead(reader: _Reader, blocks: Iterable[Block], workers: int) -> Iterator[tuple[Block, _Read]]:
    """Yields each block with what was read of it, in order; reads ahead as far as necessary to keep the workers
    busy."""
    if workers <= 1:
        yield from ((block, reader.read(block)) for block in blocks)
        return
    waiting = iter(blocks)
    under_way: deque[tuple[Block, Future[_Read]]] = deque()
    with ContextThreadPool(max_workers=workers, thread_name_prefix="index") as pool:
        try:
            while True:
                for block in islice(waiting, _AHEAD * workers - len(under_way)):
                    under_way.append((block, pool.submit(reader.read, block)))
                if not under_way:
                    return
                block, future = under_way.popleft()
                yield block, future.result()
        finally:
            for _, future in under_way:
                future.cancel()
