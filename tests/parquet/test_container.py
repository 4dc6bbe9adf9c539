"""Whether bytes are a Parquet file whose footer can be believed at all (rules A1 to A7)."""

from __future__ import annotations

import hashlib
from typing import Any

import msgspec
import pytest

from lamella.snapshot.errors import (
    Conflict,
    CorruptParquet,
    EncryptedParquet,
    LamellaError,
    LimitExceeded,
    NotParquet,
    ObjectNotFound,
    TruncatedParquet,
)
from lamella.snapshot.parquet import read_footer
from lamella.snapshot.parquet.footer import MAX_FOOTER_BYTES, TAIL_BYTES, decode_footer, read_end_of
from lamella.snapshot.storage import FsspecStore, ObjectStat
from parquet.crafted import (
    BYTE_ARRAY,
    INT64,
    OPTIONAL,
    REQUIRED,
    block,
    chunk,
    element,
    encode,
    file_bytes,
    flat,
    metadata,
    statistics,
    stored,
)

EIGHT = (8).to_bytes(8, "little")
GOOD = metadata(flat("a"), [(10, [chunk(["a"], INT64, statistics(EIGHT, EIGHT, nulls=0))])])


class CountingStore(FsspecStore):
    """The shipped store, with a record of the ranges that were asked for."""

    def __init__(self) -> None:
        super().__init__()
        self.ranges: list[tuple[int, int]] = []

    def read_range(self, location: str, start: int, length: int) -> bytes:
        """Read and remember."""
        self.ranges.append((start, length))
        return super().read_range(location, start, length)


def refused(data: bytes, error: type[LamellaError]) -> LamellaError:
    """The error that reading ``data`` must raise, which names the file."""
    store, location = stored(data)
    with pytest.raises(error) as caught:
        read_footer(store, location)
    assert type(caught.value) is error
    assert caught.value.details["location"] == location
    assert location in caught.value.message
    return caught.value


class EndReading(CountingStore):
    """A store that reads ends, and whose object is replaced after so many of its requests."""

    def __init__(self, replaced_after: int) -> None:
        super().__init__()
        self.requests: list[str] = []
        self._replaced_after = replaced_after

    def reads_ends(self, location: str) -> bool:
        """All of them."""
        return bool(location)

    def read_end(self, location: str, length: int) -> tuple[ObjectStat, bytes]:
        """The end, and the stat of what it is the end of."""
        self.requests.append("end")
        stat = super().stat(location)
        return stat, self.read(location)[-length:]

    def read_range(self, location: str, start: int, length: int) -> bytes:
        """As the store does."""
        self.requests.append("range")
        return super().read_range(location, start, length)

    def stat(self, location: str) -> ObjectStat:
        """As the store does, with another content id once the object was replaced."""
        stat = super().stat(location)
        if len(self.requests) >= self._replaced_after:
            stat = msgspec.structs.replace(stat, content_id="another")
        self.requests.append("stat")
        return stat


@pytest.mark.parametrize("key_bytes", [0, 2 * TAIL_BYTES])
def test_a_footer_is_read_with_the_end_of_its_file(key_bytes: int) -> None:
    """By one request; a footer that is longer than that takes two more, the last of which sees that it is the same."""
    data = file_bytes({**GOOD, 5: [{1: "k", 2: "v" * key_bytes}]})
    _, location = stored(data)
    store = EndReading(replaced_after=100)
    stat, footer = read_end_of(store, location)
    assert store.requests == ["end"] + ["range", "stat"] * (key_bytes > 0)
    assert (stat, footer) == (store.stat(location), data[-8 - len(footer) : -8])
    assert decode_footer(stat, footer).metadata.row_groups[0].num_rows == 10


def test_a_file_that_is_replaced_between_two_requests_for_its_footer_is_refused() -> None:
    """The second part may be that of another file, whose statistics would be taken for those of the first."""
    _, location = stored(file_bytes({**GOOD, 5: [{1: "k", 2: "v" * 2 * TAIL_BYTES}]}))
    with pytest.raises(Conflict, match="changed"):
        read_end_of(EndReading(replaced_after=1), location)


def test_a_good_file_is_read() -> None:
    """The footer is tied to the file by the store's stat and its own hash."""
    data = file_bytes(GOOD)
    store, location = stored(data)
    footer = read_footer(store, location)
    assert footer.stat == store.stat(location)
    assert footer.location == location
    assert footer.sha256 == hashlib.sha256(encode(GOOD)).hexdigest()
    assert footer.metadata.row_groups[0].num_rows == 10


def test_one_request_reads_a_usual_footer() -> None:
    """The tail is read at once, and the head of the file never."""
    data = file_bytes(GOOD, body_bytes=3 * TAIL_BYTES)
    _, location = stored(data)
    store = CountingStore()
    read_footer(store, location)
    assert store.ranges == [(len(data) - TAIL_BYTES, TAIL_BYTES)]


def test_a_long_footer_takes_a_second_request() -> None:
    """A footer longer than the tail is read exactly, and is the same."""
    long = {**GOOD, 5: [{1: "padding", 2: "x" * 3 * TAIL_BYTES}]}
    data = file_bytes(long)
    _, location = stored(data)
    store = CountingStore()
    footer = read_footer(store, location)
    assert store.ranges == [(len(data) - TAIL_BYTES, TAIL_BYTES), (204, len(encode(long)))]
    assert footer.sha256 == hashlib.sha256(encode(long)).hexdigest()


def test_bytes_behind_the_metadata_are_no_error() -> None:
    """The signature of a file with a plaintext footer stands there."""
    store, location = stored(file_bytes(encode(GOOD) + bytes(28)))
    assert read_footer(store, location).metadata.row_groups[0].num_rows == 10


@pytest.mark.parametrize("data", [b"", b"PAR1", b"PAR1PAR1", b"{}" * 100, bytes(12), b"x" * 100_000])
def test_what_is_not_parquet(data: bytes) -> None:
    """Other files, however short, are NotParquet; what starts as Parquet and ends at once is truncated."""
    refused(data, TruncatedParquet if data.startswith(b"PAR1") else NotParquet)


@pytest.mark.parametrize("cut", [1, 4, 8, 50])
def test_a_file_that_is_cut_off(cut: int) -> None:
    """A Parquet file without its end is told from a file of another kind."""
    refused(file_bytes(GOOD)[:-cut], TruncatedParquet)


def test_a_footer_longer_than_the_file() -> None:
    """A length that leads out of the file is an error, not a read before its start."""
    for length in (1 << 31, 0xFFFFFFFF, 300):
        refused(b"PAR1" + bytes(200) + length.to_bytes(4, "little") + b"PAR1", TruncatedParquet)


def test_an_encrypted_footer() -> None:
    """The magic PARE says that nothing can be read without keys."""
    refused(file_bytes(GOOD, magic=b"PARE"), EncryptedParquet)


def test_a_footer_that_takes_too_long_is_refused() -> None:
    """Above 16 MiB nothing is decoded."""
    size = MAX_FOOTER_BYTES + 1
    refused(bytes(size + 100) + size.to_bytes(4, "little") + b"PAR1", LimitExceeded)


def test_a_file_that_is_not_there() -> None:
    """The store's own error comes through."""
    with pytest.raises(ObjectNotFound):
        read_footer(FsspecStore(), "memory://crafted/nothing.parquet")


def test_a_file_that_shrinks_while_it_is_read() -> None:
    """Fewer bytes than the store's size promised are an error."""
    store, location = stored(file_bytes(GOOD))
    stat = store.stat(location)
    store.delete(location)
    store.put(location, file_bytes(GOOD)[:50])
    with pytest.raises(TruncatedParquet):
        read_footer(store, location, stat)


@pytest.mark.parametrize(
    "raw", [b"", b"\x00", b"\xff" * 50, encode(GOOD)[:-30], encode({1: 2}), encode({2: [], 4: []})]
)
def test_a_footer_that_is_no_metadata(raw: bytes) -> None:
    """Noise, cuts, and structures without a schema are corrupt."""
    refused(file_bytes(raw), CorruptParquet)


def one(**changes: Any) -> dict[int, Any]:
    """A file of one good column, changed."""
    return metadata(flat("a"), [(10, [chunk(["a"], INT64, **changes)])])


@pytest.mark.parametrize(
    ("footer", "error"),
    [
        (one(outer={1: "part-0.parquet"}), CorruptParquet),  # A4: a summary file
        (metadata(flat("ab"), [(10, [chunk(["a"], INT64)])]), CorruptParquet),  # A3: chunks and leaves
        (metadata(flat("ab"), [(10, [chunk(["b"], INT64), chunk(["a"], INT64)])]), CorruptParquet),
        (metadata(flat("a"), [(10, [chunk(["a"], BYTE_ARRAY)])]), CorruptParquet),
        (metadata(flat("a"), [(10, [chunk(["a", "b"], INT64)])]), CorruptParquet),
        (metadata(flat("a"), [(-1, [chunk(["a"], INT64)])]), CorruptParquet),
        (metadata(flat("a"), [(1 << 62, [chunk(["a"], INT64)])] * 2), CorruptParquet),
        (one(num_values=-1), CorruptParquet),
        (one(meta={5: None}), CorruptParquet),
        (one(meta={6: -1}), CorruptParquet),
        (one(meta={7: -1}), CorruptParquet),
        (one(meta={9: -1}), CorruptParquet),
        (one(meta={9: None}), CorruptParquet),
        (one(meta={7: 201}), TruncatedParquet),  # runs into the footer
        (one(meta={9: 1 << 60}), TruncatedParquet),
        (one(meta={9: 2}), TruncatedParquet),  # in the magic
        (metadata([element("a", 8)], []), CorruptParquet),  # A2: physical type
        (metadata([element("a", -7)], []), CorruptParquet),
        (metadata([element("a", INT64, repetition=3)], []), CorruptParquet),
        (metadata([element("a", INT64, repetition=None)], []), CorruptParquet),
        (metadata([element(b"\xff", INT64)], []), CorruptParquet),
        (metadata([element("a", INT64, children=1)], []), CorruptParquet),
        (metadata([element("a")], []), CorruptParquet),
        (metadata([element("a", children=0)], []), CorruptParquet),
        (metadata([element("a", children=-1)], []), CorruptParquet),
        (metadata([element("a", children=5), element("b", INT64)], [], top=1), CorruptParquet),
        (metadata([element("a", children=1 << 40), element("b", INT64)], [], top=1), CorruptParquet),
        (metadata(flat("ab"), [], top=1), CorruptParquet),
        (metadata(flat("ab"), [], top=3), CorruptParquet),
        (metadata([element("a", children=1)] * 70 + flat("b"), [], top=1), CorruptParquet),
    ],
)
def test_a_footer_that_contradicts_itself(footer: dict[int, Any], error: type[LamellaError]) -> None:
    """Wrong counts, types, orders and places are found before any statistics are read."""
    refused(file_bytes(footer), error)


def test_values_in_a_row_group_without_rows() -> None:
    """Rows that are not counted would be pruned as if they were not there."""
    with pytest.raises(CorruptParquet):
        block(metadata(flat("a"), [(0, [chunk(["a"], INT64, num_values=10)])]))


def test_sizes_beyond_64_bits() -> None:
    """The sum of what chunks claim must fit where it is kept."""
    with pytest.raises(CorruptParquet):
        block(metadata(flat("a"), [(10, [chunk(["a"], INT64, meta={6: 1 << 62})])] * 2))


def test_row_counts_come_from_the_row_groups() -> None:
    """FileMetaData.num_rows is not looked at: some writers leave it at zero (A5)."""
    found, _ = block(metadata(flat("a"), [(10, [chunk(["a"], INT64)])] * 2, more={3: 0}))
    assert found.row_count == 20


@pytest.mark.parametrize(
    "encrypted",
    [
        chunk(["a"], INT64, statistics(EIGHT, EIGHT, nulls=0), outer={8: {1: {}}}),
        chunk(["a"], INT64, outer={3: None}),
        chunk(["a"], INT64, outer={3: None, 8: {2: {1: ["a"]}}, 9: b"ciphertext"}),
    ],
)
def test_an_encrypted_column_is_unknown(encrypted: dict[int, Any]) -> None:
    """Beside a plaintext footer, what an encrypted column says is not believed, and the others are (A7)."""
    good = chunk(["b"], INT64, statistics(EIGHT, EIGHT, nulls=0))
    found, _ = block(metadata(flat("ab"), [(10, [encrypted, good])]))
    assert found.col_stats[1].min is None
    assert found.col_stats[1].null_count is None
    assert found.col_stats[1].reason == "the column is encrypted"
    assert found.col_stats[2].min is not None
    assert set(found.col_metas) == {2}


def test_a_dictionary_page_without_an_offset_of_its_own() -> None:
    """An offset of zero means that there is none, on either side (G11)."""
    found, _ = block(one(meta={9: 20, 11: 0}))
    assert found.col_metas[1][0].offset == 20
    found, _ = block(one(meta={9: 20, 11: 4}))
    assert found.col_metas[1][0].offset == 4
    found, _ = block(metadata(flat("a"), [(0, [chunk(["a"], INT64, num_values=0, meta={9: 0, 11: 4})])]))
    assert found.col_metas[1][0].offset == 4


def test_a_codec_that_is_not_known_is_only_named() -> None:
    """A new codec says nothing about the statistics."""
    assert block(one(meta={4: 9}))[0].compression == "unknown(9)"
    assert block(one(meta={4: 6}))[0].compression == "zstd"
    two = metadata(flat("ab"), [(10, [chunk(["a"], INT64), chunk(["b"], INT64, meta={4: 0})])])
    assert block(two)[0].compression == "snappy,uncompressed"


def test_required_columns_have_no_levels() -> None:
    """A file of required columns is read like any other."""
    found, schema = block(metadata([element("a", INT64, repetition=REQUIRED)], [(10, [chunk(["a"], INT64)])]))
    assert not schema.leaves()[0].nullable
    assert found.col_stats[1].null_count == 0
    assert (
        block(metadata([element("a", INT64, repetition=OPTIONAL)], [(10, [chunk(["a"], INT64)])]))[0]
        .col_stats[1]
        .null_count
        is None
    )
