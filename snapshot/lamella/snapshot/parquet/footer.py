"""Parquet footers: read by ranged requests, decoded once, and checked for consistency and against the file's size."""

from __future__ import annotations

import hashlib
import io
from typing import Final

import msgspec

from lamella.snapshot.errors import (
    Conflict,
    CorruptParquet,
    EncryptedParquet,
    LamellaError,
    LimitExceeded,
    NotParquet,
    TruncatedParquet,
)
from lamella.snapshot.parquet import thrift
from lamella.snapshot.parquet.schema import FileLeaf, FileSchema, build
from lamella.snapshot.parquet.thrift import ANY, BINARY, BOOL, INT, SKIP, Fields, Memo, Spec, ThriftError
from lamella.snapshot.storage.store import EndReadingStore, ObjectStat, Store


class StoreFile(io.RawIOBase):
    """A read-only file over ranges of an object of known size."""

    def __init__(self, store: Store, stat: ObjectStat) -> None:
        super().__init__()
        self._store = store
        self._stat = stat
        self._at = 0

    def readable(self) -> bool:
        """Returns True."""
        return True

    def seekable(self) -> bool:
        """Returns True."""
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Move to an offset and return it."""
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._stat.size_bytes}[whence]
        self._at = max(0, base + offset)
        return self._at

    def tell(self) -> int:
        """Returns the offset of the next read."""
        return self._at

    def read(self, size: int = -1) -> bytes:
        """Returns ``size`` bytes from the current offset, fewer at the end; raises as the store."""
        left = max(0, self._stat.size_bytes - self._at)
        length = left if size is None or size < 0 else min(size, left)
        data = self._store.read_range(self._stat.location, self._at, length) if length else b""
        self._at += len(data)
        return data

    def readall(self) -> bytes:
        """Returns the rest of the file."""
        return self.read()


#: Size of the first request, in bytes.
TAIL_BYTES: Final = 64 << 10
#: The same for stores where a second request is cheap.
LOCAL_TAIL_BYTES: Final = 16 << 10
#: A longer footer is refused: decoding takes time and memory in proportion. About 100,000 column chunks fit.
MAX_FOOTER_BYTES: Final = 16 << 20

_MAGIC: Final = b"PAR1"
_ENCRYPTED: Final = b"PARE"


class Footer(msgspec.Struct, frozen=True, kw_only=True):
    """A file's metadata with its link to the file: the store's own stat, and the footer's SHA-256."""

    stat: ObjectStat
    sha256: str
    footer_size: int
    metadata: FileMetadata

    @property
    def location(self) -> str:
        """Returns the location of the file."""
        return self.stat.location


def read_footer(store: Store, location: str, stat: ObjectStat | None = None) -> Footer:
    """Read and check the footer of the file at ``location``; ``stat`` saves a request to the store.

    The size is requested before the bytes are read, so a file replaced in between has an outdated content id, which a
    later check detects.

    Raises:
        ObjectNotFound, StoreError: as the store.
        NotParquet: no Parquet magic at the end, nor at the start.
        TruncatedParquet: the end is missing, or something is outside the file.
        EncryptedParquet: the footer is encrypted.
        CorruptParquet: the footer contradicts itself.
        LimitExceeded: the footer is longer than 16 MiB.
    """
    stat = stat or store.stat(location)
    return decode_footer(stat, read_footer_bytes(store, stat))


def read_end_of(store: EndReadingStore, location: str) -> tuple[ObjectStat, bytes]:
    """Returns the stat of a file and its footer, still encoded; most often by one request.

    Both are of one version of the file. Raises as :func:`read_footer`, except CorruptParquet, and Conflict if the file
    was replaced between two requests.
    """
    stat, tail = store.read_end(location, TAIL_BYTES)
    footer = read_footer_bytes(store, stat, tail)
    if len(footer) + 8 > len(tail) and store.stat(location) != stat:
        raise Conflict("the file changed while its footer was read", location=location)
    return stat, footer


def read_footer_bytes(store: Store, stat: ObjectStat, tail: bytes | None = None) -> bytes:
    """Returns the footer of a file, still encoded; raises as :func:`read_footer`, except CorruptParquet.

    ``tail``: the last bytes of the file, if they were read already.
    """
    try:
        return _read(store, stat, tail)
    except LamellaError as error:
        error.details.setdefault("location", stat.location)
        raise


def decode_footer(stat: ObjectStat, footer: bytes) -> Footer:
    """Decodes and checks the bytes at the end of the file; raises CorruptParquet or TruncatedParquet."""
    try:
        metadata = read_metadata(footer, stat.size_bytes - 8 - len(footer))
    except NotParquet as error:
        details = {**error.details, "location": stat.location}
        raise type(error)(f"{stat.location}: {error.message}", **details) from error
    return Footer(stat=stat, sha256=hashlib.sha256(footer).hexdigest(), footer_size=len(footer), metadata=metadata)


def _read(store: Store, stat: ObjectStat, tail: bytes | None) -> bytes:
    size = stat.size_bytes
    wanted = min(size, LOCAL_TAIL_BYTES if stat.location.startswith("file:") else TAIL_BYTES)
    if tail is None:
        tail = store.read_range(stat.location, size - wanted, wanted)
    if len(tail) != wanted:
        raise TruncatedParquet(f"{stat.location} ends before the {size} bytes that the store reports as its size")
    magic = tail[-4:]
    if size < 12 or magic != _MAGIC:
        _refuse(store, stat, magic)
    length = int.from_bytes(tail[-8:-4], "little")
    if length > size - 12:
        raise TruncatedParquet(f"{stat.location} has a footer of {length} bytes in a file of {size} bytes")
    if length > MAX_FOOTER_BYTES:
        raise LimitExceeded(
            f"{stat.location} has a footer of {length} bytes; the limit is {MAX_FOOTER_BYTES}",
            limit="footer_bytes",
            maximum=MAX_FOOTER_BYTES,
        )
    if length + 8 <= len(tail):
        return tail[-8 - length : -8]
    footer = store.read_range(stat.location, size - 8 - length, length)
    if len(footer) != length:
        raise TruncatedParquet(f"{stat.location} ends before the end of its footer")
    return footer


def _refuse(store: Store, stat: ObjectStat, magic: bytes) -> None:
    """Raise the error for a file that does not end as Parquet does."""
    if magic == _ENCRYPTED:
        raise EncryptedParquet(f"{stat.location} has an encrypted footer")
    if store.read_range(stat.location, 0, 4) == _MAGIC:
        raise TruncatedParquet(f"{stat.location} starts like a Parquet file but does not end like one")
    raise NotParquet(f"{stat.location} is not a Parquet file")


# FileMetaData: decoded once, checked for consistency and against the file's size, and stored as small frozen values.
#
# Field numbers are those of ``parquet.thrift``. Here the container is checked; what the statistics prove is decided in
# ``snapshot.parquet.statistics_rules``.

_STATISTICS: Final[Spec] = {
    1: BINARY,  # max, in the order used by the writer's version
    2: BINARY,  # min
    3: INT,  # null_count
    5: BINARY,  # max_value, in the column's order
    6: BINARY,  # min_value
    7: BOOL,  # is_max_value_exact
    8: BOOL,  # is_min_value_exact
    9: INT,  # nan_count
}


def _chunk_spec() -> Spec:
    """Returns the spec of a ColumnChunk. Each leaf has its own, since repeated values differ from leaf to leaf."""
    meta: Spec = {
        1: INT,  # physical type
        2: Memo(SKIP),  # encodings
        3: Memo([BINARY]),  # path_in_schema
        4: INT,  # codec
        5: INT,  # num_values
        6: INT,  # total_uncompressed_size
        7: INT,  # total_compressed_size
        9: INT,  # data_page_offset
        11: INT,  # dictionary_page_offset
        12: _STATISTICS,
        13: Memo(SKIP),  # encoding_stats
        14: INT,  # bloom_filter_offset
        15: INT,  # bloom_filter_length
        16: {3: [INT]},  # size_statistics: definition_level_histogram
    }
    return {
        1: BINARY,  # file_path
        3: meta,
        4: INT,  # offset_index_offset
        5: INT,  # offset_index_length
        6: INT,  # column_index_offset
        7: INT,  # column_index_length
        8: ANY,  # crypto_metadata
        9: BINARY,  # encrypted_column_metadata
    }


_ELEMENT: Final[Spec] = {1: INT, 2: INT, 3: INT, 4: BINARY, 5: INT, 6: INT, 7: INT, 8: INT, 9: INT, 10: ANY}
_SCHEMA: Final = 2


def _rest_spec(leaves: int) -> Spec:
    """Returns the spec of what follows the schema in FileMetaData."""
    return {
        4: [{1: tuple(_chunk_spec() for _ in range(leaves)), 3: INT}],  # row_groups: columns, num_rows
        5: Memo([{1: BINARY, 2: BINARY}]),  # key_value_metadata
        6: BINARY,  # created_by
        7: Memo([{1: ANY, 2: ANY, 3: ANY}]),  # column_orders; an unknown order decodes as {}
    }


CODECS: Final = ("uncompressed", "snappy", "gzip", "lzo", "brotli", "lz4", "zstd", "lz4_raw")
_MAX_COUNT: Final = 1 << 62


class Chunk(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One column of one row group. ``offset`` is that of its first page; sizes are in bytes, with page headers.

    ``statistics`` are raw fields by id. ``encrypted``: only the row count can be trusted. Index and Bloom filter
    locations are ``(offset, length)``; a Bloom filter's length may be 0, unknown.
    """

    offset: int = 0
    compressed_size: int = 0
    uncompressed_size: int = 0
    num_values: int = 0
    codec: str = ""
    statistics: Fields | None = None
    definition_levels: tuple[int, ...] = ()
    offset_index: tuple[int, int] | None = None
    column_index: tuple[int, int] | None = None
    bloom_filter: tuple[int, int] | None = None
    encrypted: bool = False


class RowGroup(msgspec.Struct, frozen=True, gc=False):
    """Rows, and one chunk per leaf in the schema's order."""

    num_rows: int
    chunks: tuple[Chunk, ...]


class FileMetadata(msgspec.Struct, frozen=True, kw_only=True):
    """A file's metadata. ``column_orders``: the member of the ColumnOrder union of each leaf (0: unknown), or empty."""

    schema: FileSchema
    row_groups: tuple[RowGroup, ...]
    column_orders: tuple[int, ...]
    created_by: str | None
    properties: dict[str, str]


def read_metadata(footer: bytes, data_end: int) -> FileMetadata:
    """Decodes and checks a footer; the pages of the file end before ``data_end`` (the footer's own offset).

    Raises:
        CorruptParquet: not Thrift, or inconsistent.
        TruncatedParquet: a chunk is outside the file.
    """
    try:
        schema, rest, end = _schema(footer)
        fields = thrift.decode(footer, rest, end, _SCHEMA)
    except ThriftError as error:
        raise CorruptParquet(f"the footer cannot be decoded: {error}") from error
    if 4 not in fields:
        raise CorruptParquet("the footer has no list of row groups after its schema")
    row_groups = tuple(_row_group(raw, schema, data_end) for raw in fields[4])
    if sum(group.num_rows for group in row_groups) > _MAX_COUNT:
        raise CorruptParquet("the sum of the row counts exceeds 64 bits")
    created_by = fields.get(6)
    return FileMetadata(
        schema=schema,
        row_groups=row_groups,
        column_orders=tuple(next(iter(order), 0) if len(order) == 1 else 0 for order in fields.get(7, ())),
        created_by=None if created_by is None else created_by.decode("utf-8", "replace"),
        properties={
            pair[1].decode("utf-8", "replace"): pair.get(2, b"").decode("utf-8", "replace")
            for pair in fields.get(5, ())
            if pair.get(1, b"").startswith(b"org.apache.spark")
        },
    )


def schema_end(footer: bytes) -> tuple[int, int]:
    """Returns the position after a footer's schema, and the schema's field number; raises ThriftError or
    CorruptParquet."""
    return _schema(footer)[2], _SCHEMA


class _Recent:
    """The most recent schemas, by all bytes up to their end, with the spec of what follows.

    Replaced as a whole, so that threads need no lock.
    """

    entries: tuple[tuple[bytes, FileSchema, Spec], ...] = ()


_RECENT: Final = _Recent()


def _schema(footer: bytes) -> tuple[FileSchema, Spec, int]:
    """Returns the schema and the position after it; files of one table usually begin with the same bytes, decoded
    once."""
    for prefix, schema, rest in _RECENT.entries:
        if footer.startswith(prefix):
            return schema, rest, len(prefix)
    try:
        elements, end = thrift.elements(footer, thrift.find(footer, _SCHEMA, 9), _ELEMENT)
    except IndexError:
        raise ThriftError("the data ends inside the schema") from None
    schema = build(elements)
    rest = _rest_spec(len(schema.leaves))
    _RECENT.entries = ((footer[:end], schema, rest), *_RECENT.entries[:15])
    return schema, rest, end


def _row_group(raw: Fields, schema: FileSchema, data_end: int) -> RowGroup:
    num_rows, chunks = raw.get(3), raw.get(1)
    if num_rows is None or chunks is None or not 0 <= num_rows <= _MAX_COUNT:
        raise CorruptParquet(f"a row group with {num_rows} rows")
    return RowGroup(num_rows, tuple([_chunk(*pair, data_end) for pair in zip(chunks, schema.leaves, strict=True)]))


def _chunk(raw: Fields, leaf: FileLeaf, data_end: int) -> Chunk:
    if raw.get(1):
        raise CorruptParquet(
            f"column {leaf.name!r} is in another file: this is a summary file, not a data file", column=leaf.name
        )
    meta = raw.get(3)
    if meta is None or 8 in raw or 9 in raw:
        return Chunk(encrypted=True)
    if meta.get(1) != leaf.physical or tuple(meta.get(3, ())) != leaf.file_path:
        raise CorruptParquet(f"the chunks are not in the schema's order at column {leaf.name!r}", column=leaf.name)
    num_values, uncompressed, compressed = meta.get(5, -1), meta.get(6, -1), meta.get(7, -1)
    offset, dictionary = meta.get(9, -1), meta.get(11, 0)
    if num_values < 0 or uncompressed < 0 or compressed < 0 or offset < 0 or max(num_values, uncompressed) > _MAX_COUNT:
        raise CorruptParquet(f"column {leaf.name!r} has a negative count, size or offset", column=leaf.name)
    if dictionary > 0 and (dictionary < offset or not offset):  # 0 means that there is none
        offset = dictionary
    if offset + compressed > data_end or (compressed and offset < 4):
        raise TruncatedParquet(f"column {leaf.name!r} is outside the file", column=leaf.name)
    codec = meta.get(4, -1)
    sizes = meta.get(16)
    return Chunk(
        offset=offset,
        compressed_size=compressed,
        uncompressed_size=uncompressed,
        num_values=num_values,
        codec=CODECS[codec] if 0 <= codec < len(CODECS) else f"unknown({codec})",
        statistics=meta.get(12),
        definition_levels=tuple(sizes.get(3, ())) if sizes else (),
        offset_index=_region(raw.get(4), raw.get(5), data_end),
        column_index=_region(raw.get(6), raw.get(7), data_end),
        bloom_filter=_bloom(meta.get(14), meta.get(15, 0), data_end),
    )


def _region(offset: int | None, length: int | None, data_end: int) -> tuple[int, int] | None:
    """Returns a region that the footer names, or None if it is invalid: an index is optional."""
    if offset is None or length is None or offset < 4 or length <= 0 or offset + length > data_end:
        return None
    return offset, length


def _bloom(offset: int | None, length: int, data_end: int) -> tuple[int, int] | None:
    if offset is None or offset < 4 or length < 0 or offset + length >= data_end + (length > 0):
        return None
    return offset, length
