"""Blocks of many files as arrays: another form of a list of :class:`~lamella.snapshot.manifest.Block`.

A registration reads a million footers of few shapes and writes their statistics into manifests and sidecars. An object
for each bound of each block takes most of the time of both; arrays of a shape's files take a fraction.
:class:`BlockArrays` has the files of one shape, and :class:`BlockSequence` the blocks of a registration in the order of
its files, each of which it makes when it is asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from functools import cached_property
from typing import Final, TypeVar, overload

import msgspec
import numpy as np

from lamella.snapshot.manifest.structs import Block, ColumnMeta
from lamella.snapshot.stats import ColumnStats
from lamella.snapshot.stats.column_arrays import (
    ColumnArrays,
    JsonPart,
    Numbers,
    joined,
    lines_of,
    numbers_json,
    rows_json,
)

_T = TypeVar("_T")
#: The statistics of a column in many blocks; None: a block has none.
ColumnOf = ColumnArrays | Sequence[ColumnStats | None]

_ENCODER: Final = msgspec.json.Encoder()


class ChunkArrays(msgspec.Struct, frozen=True):
    """The chunks of a column in one row group of many files: see :class:`~lamella.snapshot.manifest.ColumnMeta`."""

    offsets: Numbers
    lengths: Numbers
    values: Numbers

    def taken(self, rows: Numbers) -> ChunkArrays:
        """Returns the chunks of some files."""
        return ChunkArrays(self.offsets[rows], self.lengths[rows], self.values[rows])


class BlockArrays(msgspec.Struct, frozen=True, kw_only=True):
    """Blocks of files whose footers have one shape; see :class:`~lamella.snapshot.manifest.Block` for the members.

    ``columns`` and ``chunks`` (an entry for each row group) are by column id, in the order of the blocks' own.
    ``page_indexes``: offsets and lengths. ``bloom_sizes``: None: no block has a Bloom filter in its file.
    """

    locations: list[str]
    content_ids: list[str]
    footer_hashes: list[str]
    row_counts: Numbers
    file_sizes: Numbers
    block_sizes: Numbers
    columns: dict[int, ColumnArrays | list[ColumnStats]]
    chunks: dict[int, tuple[ChunkArrays, ...]]
    group_rows: tuple[Numbers, ...]
    bloom_sizes: Numbers | None
    page_indexes: tuple[Numbers, Numbers] | None
    compression: str
    created_by: str | None
    schema_id: int
    by_name: bool

    def __len__(self) -> int:
        return len(self.locations)

    @property
    def is_plain(self) -> bool:
        """Returns True: nothing but these members is to be known of a block."""
        return True

    @property
    def have_schemas(self) -> bool:
        """Returns True."""
        return True

    @property
    def schema_ids(self) -> list[int]:
        """Returns the ids of the schemas that the blocks were written with."""
        return [self.schema_id] * len(self)

    def bloom_bytes(self) -> int:
        """Returns the size of all Bloom filters."""
        return 0 if self.bloom_sizes is None else sum(self.bloom_sizes.tolist())

    def by_name_count(self) -> int:
        """Returns the number of blocks with :attr:`Block.by_name`."""
        return len(self) if self.by_name else 0

    def column(self, column_id: int) -> ColumnOf:
        """Returns the statistics of a column."""
        found = self.columns.get(column_id)
        return [None] * len(self) if found is None else found

    def column_bytes(self, column_id: int) -> Numbers:
        """Returns the compressed size of a column in each block."""
        sizes = np.zeros(len(self), dtype=np.int64)
        for chunk in self.chunks.get(column_id, ()):
            sizes += chunk.lengths
        return sizes

    def taken(self, rows: Numbers) -> BlockArrays:
        """Returns some of the blocks."""
        numbers = rows.tolist()
        return msgspec.structs.replace(
            self,
            locations=[self.locations[row] for row in numbers],
            content_ids=[self.content_ids[row] for row in numbers],
            footer_hashes=[self.footer_hashes[row] for row in numbers],
            row_counts=self.row_counts[rows],
            file_sizes=self.file_sizes[rows],
            block_sizes=self.block_sizes[rows],
            columns={
                column_id: each.taken(rows) if isinstance(each, ColumnArrays) else [each[row] for row in numbers]
                for column_id, each in self.columns.items()
            },
            chunks={
                column_id: tuple(chunk.taken(rows) for chunk in groups) for column_id, groups in self.chunks.items()
            },
            group_rows=tuple(counts[rows] for counts in self.group_rows),
            bloom_sizes=None if self.bloom_sizes is None else self.bloom_sizes[rows],
            page_indexes=None
            if self.page_indexes is None
            else (self.page_indexes[0][rows], self.page_indexes[1][rows]),
        )

    def blocks(self) -> list[Block]:
        """Returns the blocks."""
        count = len(self)
        stats = [each.stats() if isinstance(each, ColumnArrays) else each for each in self.columns.values()]
        metas = [
            list(zip(*(map(ColumnMeta, *_lists(chunk)) for chunk in groups), strict=True))
            for groups in self.chunks.values()
        ]
        blooms = [0] * count if self.bloom_sizes is None else self.bloom_sizes.tolist()
        pages = [None] * count if self.page_indexes is None else _pairs(*self.page_indexes)
        return [
            Block(
                location=location,
                row_count=row_count,
                file_size=file_size,
                block_size=block_size,
                col_stats=dict(zip(self.columns, of_stats, strict=True)),
                col_metas=dict(zip(self.chunks, of_metas, strict=True)),
                row_group_row_counts=group_rows,
                bloom_filter_index_location=None if self.bloom_sizes is None else location,
                bloom_filter_index_size=bloom_size,
                page_index_location=page_index,
                compression=self.compression,
                content_id=content_id,
                footer_sha256=footer_hash,
                created_by=self.created_by,
                schema_id=self.schema_id,
                by_name=self.by_name,
            )
            for (
                location,
                row_count,
                file_size,
                block_size,
                of_stats,
                of_metas,
                group_rows,
                bloom_size,
                page_index,
                content_id,
                footer_hash,
            ) in zip(
                self.locations,
                self.row_counts.tolist(),
                self.file_sizes.tolist(),
                self.block_sizes.tolist(),
                _by_block(stats, count),
                _by_block(metas, count),
                _by_block([counts.tolist() for counts in self.group_rows], count),
                blooms,
                pages,
                self.content_ids,
                self.footer_hashes,
                strict=True,
            )
        ]

    def json(self) -> list[bytes]:
        """Returns the JSON of each block, the same bytes as the encoder makes of it."""
        locations = lines_of(self.locations)
        parts: list[JsonPart] = [b'{"location":', locations]
        for name, numbers in (
            ("row_count", self.row_counts),
            ("file_size", self.file_sizes),
            ("block_size", self.block_sizes),
        ):
            # A default is left out.
            required = name != "block_size"
            parts += _member(name, numbers_json(numbers), left_out=None if required else b"0")
        if self.columns:
            parts.append(b',"col_stats":{')
            for number, (column_id, column) in enumerate(self.columns.items()):
                parts.append(b'%s"%d":' % (b"," if number else b"", column_id))
                parts += column.json() if isinstance(column, ColumnArrays) else [lines_of(column)]
            parts.append(b"}")
        if self.chunks:
            parts.append(b',"col_metas":{')
            for number, (column_id, groups) in enumerate(self.chunks.items()):
                parts.append(b'%s"%d":[' % (b"," if number else b"", column_id))
                for group, chunk in enumerate(groups):
                    parts += (b",[" if group else b"[", numbers_json(chunk.offsets))
                    parts += (b",", numbers_json(chunk.lengths), b",", numbers_json(chunk.values), b"]")
                parts.append(b"]")
            parts.append(b"}")
        for number, counts in enumerate(self.group_rows):
            parts += (b"," if number else b',"row_group_row_counts":[', numbers_json(counts))
        parts.append(b"]" if self.group_rows else b"")
        if self.bloom_sizes is not None:
            parts += (b',"bloom_filter_index_location":', locations)
            parts += _member("bloom_filter_index_size", numbers_json(self.bloom_sizes), left_out=b"0")
        if self.page_indexes is not None:
            offsets, lengths = self.page_indexes
            parts += (b',"page_index_location":[', numbers_json(offsets), b",", numbers_json(lengths), b"]")
        if self.compression:
            parts.append(b',"compression":' + _ENCODER.encode(self.compression))
        parts += (b',"content_id":', lines_of(self.content_ids), b',"footer_sha256":', lines_of(self.footer_hashes))
        if self.created_by is not None:
            parts.append(b',"created_by":' + _ENCODER.encode(self.created_by))
        parts.append(b',"schema_id":%d%s}' % (self.schema_id, b',"by_name":true' if self.by_name else b""))
        return rows_json(parts, len(self))


def _member(name: str, values: JsonPart, *, left_out: bytes | None) -> list[JsonPart]:
    """Returns the JSON of a member; blocks with the value ``left_out`` do not have it."""
    key = b',"%s":' % name.encode()
    if isinstance(values, bytes):
        return [] if values == left_out else [key, values]
    return [key, values] if left_out not in values else [[b"" if each == left_out else key + each for each in values]]


def _lists(chunk: ChunkArrays) -> tuple[list[int], list[int], list[int]]:
    return chunk.offsets.tolist(), chunk.lengths.tolist(), chunk.values.tolist()


def _pairs(left: Numbers, right: Numbers) -> list[tuple[int, int]]:
    return list(zip(left.tolist(), right.tolist(), strict=True))


def _by_block(columns: Sequence[Sequence[_T]], count: int) -> Sequence[tuple[_T, ...]]:
    """Converts values by column to values by block."""
    return list(zip(*columns, strict=True)) if columns else [()] * count


class LooseBlocks(msgspec.Struct, frozen=True):
    """Blocks that are objects, with the methods of :class:`BlockArrays`."""

    objects: list[Block]

    def __len__(self) -> int:
        return len(self.objects)

    @property
    def locations(self) -> list[str]:
        """Returns the locations."""
        return [block.location for block in self.objects]

    @property
    def content_ids(self) -> list[str | None]:
        """Returns the content ids."""
        return [block.content_id for block in self.objects]

    @property
    def footer_hashes(self) -> list[str | None]:
        """Returns the hashes of the footers."""
        return [block.footer_sha256 for block in self.objects]

    @property
    def row_counts(self) -> Numbers:
        """Returns the numbers of rows."""
        return np.array([block.row_count for block in self.objects], dtype=np.int64)

    @property
    def file_sizes(self) -> Numbers:
        """Returns the sizes of the files in bytes."""
        return np.array([block.file_size for block in self.objects], dtype=np.int64)

    @property
    def block_sizes(self) -> Numbers:
        """Returns the uncompressed sizes in bytes."""
        return np.array([block.block_size for block in self.objects], dtype=np.int64)

    @property
    def is_plain(self) -> bool:
        """Returns whether no block has constants, deletes, cluster statistics or sketches."""
        return not any(
            block.constants or block.deletes or block.cluster_stats or block.sketches for block in self.objects
        )

    @property
    def have_schemas(self) -> bool:
        """Returns whether each block says by which schema it was written."""
        return all(block.schema_id is not None for block in self.objects)

    @property
    def schema_ids(self) -> list[int]:
        """Returns the ids of the schemas that the blocks were written with."""
        return [block.written_with for block in self.objects]

    def bloom_bytes(self) -> int:
        """Returns the size of all Bloom filters."""
        return sum(block.bloom_filter_index_size for block in self.objects)

    def by_name_count(self) -> int:
        """Returns the number of blocks with :attr:`Block.by_name`."""
        return sum(block.by_name for block in self.objects)

    def column(self, column_id: int) -> ColumnOf:
        """Returns the statistics of a column."""
        return [block.col_stats.get(column_id) for block in self.objects]

    def column_bytes(self, column_id: int) -> Numbers:
        """Returns the compressed size of a column in each block."""
        sizes = [sum([chunk.len for chunk in block.col_metas.get(column_id, ())]) for block in self.objects]
        return np.array(sizes, dtype=np.int64)

    def taken(self, rows: Numbers) -> LooseBlocks:
        """Returns some of the blocks."""
        return LooseBlocks([self.objects[row] for row in rows.tolist()])

    def blocks(self) -> list[Block]:
        """Returns the blocks."""
        return self.objects

    def json(self) -> list[bytes]:
        """Returns the JSON of each block."""
        return lines_of(self.objects)


Part = BlockArrays | LooseBlocks

#: Blocks that are made together when all are asked for one after another.
_AT_ONCE: Final = 1_000


class BlockSequence(Sequence[Block]):
    """Blocks in order, each in one of several parts.

    ``part_numbers`` and ``rows``: of each block the number of its part, and its place there.
    """

    #: Whether the parts have no other blocks.
    _is_compact = False

    def __init__(self, parts: Sequence[Part], part_numbers: Numbers, rows: Numbers) -> None:
        self._parts = parts
        self._part_numbers = part_numbers
        self._rows = rows
        self._columns: dict[int, ColumnOf] = {}

    @classmethod
    def joined(cls, sequences: Sequence[BlockSequence]) -> BlockSequence:
        """Returns the blocks of several sequences, one after the other."""
        parts: list[Part] = []
        part_numbers: list[Numbers] = [np.zeros(0, dtype=np.int64)]
        for each in sequences:
            part_numbers.append(each._part_numbers + len(parts))
            parts += each._parts
        rows = [np.zeros(0, dtype=np.int64), *(each._rows for each in sequences)]
        return cls(parts, np.concatenate(part_numbers), np.concatenate(rows))

    @classmethod
    def of(cls, blocks: Sequence[Block]) -> BlockSequence:
        """Returns blocks as such a sequence."""
        if isinstance(blocks, BlockSequence):
            return blocks
        count = len(blocks)
        return cls([LooseBlocks(list(blocks))], np.zeros(count, dtype=np.int64), np.arange(count, dtype=np.int64))

    def __len__(self) -> int:
        return len(self._rows)

    @overload
    def __getitem__(self, index: int) -> Block: ...
    @overload
    def __getitem__(self, index: slice) -> BlockSequence: ...
    def __getitem__(self, index: int | slice) -> Block | BlockSequence:
        """Returns a block, or the sequence of some of them, which is compact."""
        if isinstance(index, slice):
            return BlockSequence(self._parts, self._part_numbers[index], self._rows[index]).compact()
        part = self._parts[int(self._part_numbers[index])]
        return part.taken(np.array([self._rows[index]], dtype=np.int64)).blocks()[0]

    def __iter__(self) -> Iterator[Block]:
        for start in range(0, len(self), _AT_ONCE):
            yield from self[start : start + _AT_ONCE].by_block(lambda part: part.blocks())

    def without(self, locations: AbstractSet[str]) -> BlockSequence:
        """Returns the blocks that are not at these locations."""
        if not locations:
            return self
        stays = np.array([location not in locations for location in self.locations], dtype=bool)
        return BlockSequence(self._parts, self._part_numbers[stays], self._rows[stays])

    def compact(self) -> BlockSequence:
        """Returns the same blocks, with nothing else in the parts."""
        if self._is_compact:
            return self
        used = np.unique(self._part_numbers).tolist()
        part_numbers, rows = np.empty_like(self._part_numbers), np.empty_like(self._rows)
        parts: list[Part] = []
        for number in used:
            here = np.flatnonzero(self._part_numbers == number)
            part_numbers[here] = len(parts)
            rows[here] = np.arange(len(here))
            parts.append(self._parts[number].taken(self._rows[here]))
        made = BlockSequence(parts, part_numbers, rows)
        made._is_compact = True
        return made

    @property
    def has_arrays(self) -> bool:
        """Returns whether a part may have blocks that are no objects."""
        return any(isinstance(part, BlockArrays) for part in self._parts)

    @property
    def have_schemas(self) -> bool:
        """Returns whether each block says by which schema it was written."""
        return all(part.have_schemas for part in self._parts)

    @property
    def parts(self) -> Sequence[Part]:
        """Returns the parts; those of a compact sequence have no other blocks than this one."""
        return self._parts

    @property
    def locations(self) -> list[str]:
        """Returns the locations of the blocks."""
        return self.by_block(lambda part: part.locations)

    @property
    def content_ids(self) -> list[str | None]:
        """Returns the content ids of the blocks."""
        return self.by_block(lambda part: part.content_ids)

    @property
    def footer_hashes(self) -> list[str | None]:
        """Returns the hashes of the footers of the blocks' files."""
        return self.by_block(lambda part: part.footer_hashes)

    @property
    def row_counts(self) -> list[int]:
        """Returns the numbers of rows of the blocks."""
        return self.by_block(lambda part: part.row_counts.tolist())

    @property
    def file_sizes(self) -> list[int]:
        """Returns the sizes of the blocks' files in bytes."""
        return self.by_block(lambda part: part.file_sizes.tolist())

    @property
    def schema_ids(self) -> list[int]:
        """Returns the ids of the schemas that the blocks were written with."""
        return self.by_block(lambda part: part.schema_ids)

    def by_block(self, values_of: Callable[[Part], Sequence[_T]]) -> list[_T]:
        """Returns a value for each block. ``values_of``: those of all blocks of a part, in their order there."""
        values = [values_of(part) for part in self._parts]
        if len(values) == 1:
            (only,) = values
            return [only[row] for row in self._rows.tolist()]
        return [
            values[number][row] for number, row in zip(self._part_numbers.tolist(), self._rows.tolist(), strict=True)
        ]

    def numbers(self, numbers_of: Callable[[Part], Numbers]) -> Numbers:
        """Returns a number for each block, of a compact sequence, as :meth:`by_block`."""
        found = np.concatenate([numbers_of(part) for part in self._parts])
        return found if self._order is None else found[self._order]

    @cached_property
    def _order(self) -> Numbers | None:
        """The places of the blocks in the parts, one part after the other; None: they are in this order."""
        starts = np.cumsum([0, *(len(part) for part in self._parts)])
        order: Numbers = starts[self._part_numbers] + self._rows
        return None if (order == np.arange(len(order))).all() else order

    def column(self, column_id: int) -> ColumnOf:
        """Returns the statistics of a column, of a compact sequence."""
        found = self._columns.get(column_id)
        if found is None:
            found = self._columns[column_id] = self._column(column_id)
        return found

    def _column(self, column_id: int) -> ColumnOf:
        found = [part.column(column_id) for part in self._parts]
        arrays = [each for each in found if isinstance(each, ColumnArrays)]
        if len(arrays) == len(found) > 0 and (whole := joined(arrays)) is not None:
            return whole if self._order is None else whole.taken(self._order)
        stats = [each.stats() if isinstance(each, ColumnArrays) else each for each in found]
        by_part = {id(part): of_part for part, of_part in zip(self._parts, stats, strict=True)}
        return self.by_block(lambda part: by_part[id(part)])


def joined_blocks(sequences: Sequence[Sequence[Block]]) -> Sequence[Block]:
    """Returns the blocks of several sequences, one after the other; as arrays if some are."""
    if len(sequences) == 1:
        return sequences[0]
    if any(isinstance(each, BlockSequence) and each.has_arrays for each in sequences):
        return BlockSequence.joined([BlockSequence.of(each) for each in sequences])
    return [block for each in sequences for block in each]


def locations_of(blocks: Sequence[Block]) -> list[str]:
    """Returns the locations of blocks."""
    return blocks.locations if isinstance(blocks, BlockSequence) else [block.location for block in blocks]


def footer_hashes_of(blocks: Iterable[Block]) -> dict[str, str | None]:
    """Returns the hashes of the footers of blocks' files by location; None: unknown."""
    if isinstance(blocks, BlockSequence):
        return dict(zip(blocks.locations, blocks.footer_hashes, strict=True))
    return {block.location: block.footer_sha256 for block in blocks}
