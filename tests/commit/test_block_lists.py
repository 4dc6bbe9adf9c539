"""Lists of blocks by themselves: how blocks are cut into them, and what is read of them."""

from __future__ import annotations

import hashlib
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lamella.snapshot.commit.block_lists import PackedList, checked_lists, listed_blocks, packed
from lamella.snapshot.errors import InvalidRequest, LamellaError, LimitExceeded, ObjectNotFound
from lamella.snapshot.manifest import Block
from lamella.snapshot.storage import FsspecStore, TableLayout
from lamella.snapshot.vacuum import object_name
from lamella.snapshot.wire import BlockListSent

ROOT = "memory://lists/0190a000-0000-7000-8000-000000000000"


def blocks_named(names: list[str]) -> list[Block]:
    """Blocks at these locations."""
    return [Block(location=name, row_count=number, file_size=1) for number, name in enumerate(names)]


def lists_of(blocks: list[Block], piece_bytes: int) -> list[PackedList]:
    """They as lists, not written anywhere."""
    return list(packed(TableLayout(ROOT), map(msgspec.json.encode, blocks), piece_bytes=piece_bytes))


class Reads(FsspecStore):
    """Counts the objects that are read."""

    def __init__(self) -> None:
        super().__init__()
        self.read_from: list[str] = []

    def read_range(self, location: str, start: int, length: int) -> bytes:
        """As the store does."""
        self.read_from.append(location)
        return super().read_range(location, start, length)


def put(store: FsspecStore, data: bytes, **said: Any) -> BlockListSent:
    """An object with these bytes, and what a commit says of it."""
    (one,) = lists_of(blocks_named(["memory://b/0"]), 1 << 20)
    location = TableLayout(ROOT).block_list("0190a000-0000-7000-8000-" + hashlib.sha256(data).hexdigest()[:12])
    store.delete(location)
    store.put(location, data)
    sent = msgspec.structs.replace(
        one.sent, location=location, size_bytes=len(data), sha256=hashlib.sha256(data).hexdigest()
    )
    return msgspec.structs.replace(sent, **said)


@given(names=st.lists(st.text(max_size=40), max_size=30), piece_bytes=st.integers(1, 2_000))
def test_what_is_packed_is_read_again(names: list[str], piece_bytes: int) -> None:
    """Every block comes back in its place, no list is larger than it may be, and packing again gives the same names."""
    blocks = blocks_named(names)
    lists = lists_of(blocks, piece_bytes)
    assert lists == lists_of(blocks, piece_bytes)
    for each in lists:
        assert each.sent.block_count == 1 or each.sent.size_bytes <= piece_bytes
    store = FsspecStore()
    for each in lists:
        store.delete(each.sent.location)
        store.put(each.sent.location, each.data)
    sent = checked_lists(ROOT, [each.sent for each in lists], max_blocks=30, max_bytes=1 << 20)
    found = list(listed_blocks(store, sent))
    assert [each.block for each in found] == blocks
    positions = [(each.sent.location, number) for each in lists for number in range(each.sent.block_count)]
    assert [(each.location, each.number) for each in found] == positions


def test_a_list_is_garbage_by_its_name() -> None:
    """A clean-up knows what it is, and takes its age from the store alone."""
    (one,) = lists_of(blocks_named(["memory://b/0"]), 1 << 20)
    name = object_name(ROOT, one.sent.location)
    assert name is not None
    assert (name.kind, name.folder, name.made_ms) == ("temporary", "_tmp", 0)


def test_lists_are_read_one_ahead() -> None:
    """However many lists there are, at most two of them are in memory."""
    blocks = blocks_named([f"memory://b/{number}" for number in range(12)])
    lists = lists_of(blocks, 1)
    store = Reads()
    for each in lists:
        store.delete(each.sent.location)
        store.put(each.sent.location, each.data)
    for number, _ in enumerate(listed_blocks(store, [each.sent for each in lists])):
        assert len(store.read_from) <= number + 2
    assert store.read_from == [each.sent.location for each in lists]


@pytest.mark.parametrize(
    "below",
    [
        "_tmp/0190a000-0000-7000-8000-000000000001_v1.part",
        "_tmp/x_v1.blocks",
        "_tmp/0190a000-0000-4000-8000-000000000001_v1.blocks",
        "_ix/0190a000-0000-7000-8000-000000000001_v1.blocks",
        "_tmp/../../other/_tmp/0190a000-0000-7000-8000-000000000001_v1.blocks",
        "../0190a000-0000-7000-8000-000000000009/_tmp/0190a000-0000-7000-8000-000000000001_v1.blocks",
        "_tmp/a/0190a000-0000-7000-8000-000000000001_v1.blocks",
    ],
)
def test_a_list_stands_in_the_tables_own_scratch_folder(below: str) -> None:
    """Nothing else is read, whatever it is called; the error names the place."""
    sent = BlockListSent(location=f"{ROOT}/{below}", size_bytes=1, sha256="", block_count=1)
    with pytest.raises(InvalidRequest, match="scratch folder") as caught:
        checked_lists(ROOT, [sent], max_blocks=10, max_bytes=10)
    assert "location" in caught.value.details


def test_a_location_may_be_spelled_in_another_way() -> None:
    """What counts is the object."""
    (one,) = lists_of(blocks_named(["memory://b/0"]), 1 << 20)
    odd = msgspec.structs.replace(one.sent, location=one.sent.location.replace("/_tmp/", "/./_tmp//"))
    assert checked_lists(ROOT, [odd], max_blocks=1, max_bytes=1 << 20) == (one.sent,)
    with pytest.raises(InvalidRequest, match="twice"):
        checked_lists(ROOT, [odd, one.sent], max_blocks=9, max_bytes=1 << 20)


def test_lists_are_bounded_before_anything_is_read() -> None:
    """By their blocks together and the bytes of each."""
    sent = [each.sent for each in lists_of(blocks_named(["memory://b/0", "memory://b/1"]), 1)]
    assert len(checked_lists(ROOT, sent, max_blocks=2, max_bytes=sent[0].size_bytes)) == 2
    with pytest.raises(LimitExceeded, match="at most 1 blocks"):
        checked_lists(ROOT, sent, max_blocks=1, max_bytes=1 << 20)
    with pytest.raises(LimitExceeded, match="bytes"):
        checked_lists(ROOT, sent, max_blocks=2, max_bytes=sent[0].size_bytes - 1)
    for wrong in ({"block_count": 0}, {"block_count": -1}, {"size_bytes": 0}):
        with pytest.raises(InvalidRequest, match="it has"):
            checked_lists(ROOT, [msgspec.structs.replace(sent[0], **wrong)], max_blocks=2, max_bytes=1 << 20)


LINE = msgspec.json.encode(Block(location="memory://b/0", row_count=1, file_size=1))


@pytest.mark.parametrize(
    ("data", "said", "kind", "why"),
    [
        (LINE, {"size_bytes": len(LINE) - 1}, InvalidRequest, "more than"),
        (LINE, {"size_bytes": len(LINE) + 1}, InvalidRequest, "bytes, not"),
        (LINE, {"sha256": "0" * 64}, InvalidRequest, "SHA-256"),
        (LINE, {"block_count": 2}, InvalidRequest, "it has 1 lines, not 2"),
        (LINE + b"\n" + LINE, {}, InvalidRequest, "it has 2 lines, not 1"),
        (LINE + b"\n" + LINE[:-1], {"block_count": 2}, InvalidRequest, "block 1 of"),
        (LINE + b"\n\n", {"block_count": 2}, InvalidRequest, "block 1 of"),
        (b"\xff", {}, InvalidRequest, "block 0 of"),
        (b"[" + LINE + b"]", {}, InvalidRequest, r"block 0 of"),
        (LINE.replace(b'"row_count":1', b'"row_count":"1"'), {}, InvalidRequest, r"at \$.row_count of block 0"),
        (LINE[:-1] + b',"col_stats":{"x":{}}}', {}, InvalidRequest, r"a key of \$.col_stats"),
        (b"[" * 100_000, {}, LamellaError, "block 0 of"),
    ],
)
def test_a_list_that_is_not_what_was_said_is_refused_with_its_position(
    data: bytes, said: dict[str, Any], kind: type[LamellaError], why: str
) -> None:
    """Size, checksum, number of lines, and each line are held against what is wanted."""
    store = FsspecStore()
    sent = put(store, data, **said)
    with pytest.raises(kind, match=why) as caught:
        list(listed_blocks(store, [sent]))
    assert caught.value.details["location"] == sent.location


def test_a_line_may_end_or_not() -> None:
    """The line break behind the last block may be missing."""
    store = FsspecStore()
    for data in (LINE, LINE + b"\n"):
        assert [each.block.location for each in listed_blocks(store, [put(store, data)])] == ["memory://b/0"]


def test_a_list_that_is_not_there_is_named() -> None:
    """Also when another one before it was read."""
    store = FsspecStore()
    first = put(store, LINE)
    gone = msgspec.structs.replace(first, location=TableLayout(ROOT).block_list("0190a000-0000-7000-8000-00000000000a"))
    blocks = listed_blocks(store, [first, gone])
    assert next(blocks).location == first.location
    with pytest.raises(ObjectNotFound, match="or was deleted") as caught:
        next(blocks)
    assert caught.value.details["location"] == gone.location
