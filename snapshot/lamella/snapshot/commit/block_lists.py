"""Block lists: objects in a table's scratch folder through which a commit adds more blocks than one request can carry.

A list is JSON, one block per line, in the order in which the commit adds them. It is needed until the commit has
finished. The writer names a list by its content, so a repeated commit names the same objects.
"""

from __future__ import annotations

import hashlib
import re
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future
from typing import Final, NamedTuple

import msgspec

from lamella.snapshot.concurrency import ContextThreadPool
from lamella.snapshot.errors import InvalidRequest, LimitExceeded, ObjectNotFound
from lamella.snapshot.ids import uuid7
from lamella.snapshot.manifest import Block, content_hash
from lamella.snapshot.storage import Store, TableLayout
from lamella.snapshot.storage.location import normal
from lamella.snapshot.vacuum import object_name
from lamella.snapshot.wire import BlockListSent

_ENDING: Final = ".blocks"
#: Lists that are read ahead of the one in use.
_AHEAD: Final = 1
_DECODER: Final = msgspec.json.Decoder(Block)
_ERROR_PATH: Final = re.compile(r"(?P<message>.*) - at (?P<key>`key` in )?`(?P<path>\$.*)`", re.DOTALL)


class Listed(NamedTuple):
    """A block of a list, with the list's location and its index there (from 0)."""

    block: Block
    location: str
    number: int


class PackedList(NamedTuple):
    """A list ready to be stored, and its entry in the commit."""

    data: bytes
    sent: BlockListSent


def packed(layout: TableLayout, blocks: Iterable[bytes], *, piece_bytes: int) -> Iterator[PackedList]:
    """Yields encoded blocks as lists of at most ``piece_bytes`` each; a larger block is a list of its own."""
    lines: list[bytes] = []
    size_bytes = 0
    for block in blocks:
        if lines and size_bytes + len(block) + 1 > piece_bytes:
            yield _packed(layout, lines)
            lines, size_bytes = [], 0
        lines.append(block)
        size_bytes += len(block) + 1
    if lines:
        yield _packed(layout, lines)


def _packed(layout: TableLayout, lines: Sequence[bytes]) -> PackedList:
    data = b"\n".join((*lines, b""))
    digest = hashlib.sha256(data)
    # The name contains no time: clean-up uses the store's own time.
    location = layout.block_list(uuid7(0, digest.digest()))
    sent = BlockListSent(location=location, size_bytes=len(data), sha256=digest.hexdigest(), block_count=len(lines))
    return PackedList(data, sent)


def checked_lists(
    folder: str, sent: Sequence[BlockListSent], *, max_blocks: int, max_bytes: int
) -> tuple[BlockListSent, ...]:
    """Returns the lists of a commit to the table in ``folder`` with normalized locations; nothing is read.

    Raises:
        InvalidRequest: a list is not in the table's own scratch folder, occurs twice, or has no blocks.
        LimitExceeded: more than ``max_blocks`` in all, or a list of more than ``max_bytes``.
    """
    found = [msgspec.structs.replace(each, location=normal(each.location)) for each in sent]
    if len({each.location for each in found}) < len(found):
        raise InvalidRequest("added_from contains a list twice")
    for each in found:
        name = object_name(folder, each.location)
        if name is None or name.kind != "temporary" or not each.location.endswith(_ENDING):
            raise _wrong(each, "it is not a list in the table's scratch folder")
        if each.block_count < 1 or each.size_bytes < 1:
            raise _wrong(each, f"it has {each.size_bytes} bytes for {each.block_count} blocks")
        if each.size_bytes > max_bytes:
            raise LimitExceeded(
                f"a list of blocks may have at most {max_bytes} bytes, not {each.size_bytes}",
                limit="list_bytes",
                maximum=max_bytes,
                location=each.location,
            )
    count = sum(each.block_count for each in found)
    if count > max_blocks:
        raise LimitExceeded(
            f"a commit may add at most {max_blocks} blocks in lists, not {count}",
            limit="list_blocks",
            maximum=max_blocks,
        )
    return tuple(found)


def listed_blocks(store: Store, lists: Sequence[BlockListSent]) -> Iterator[Listed]:
    """Yields the blocks of lists that :func:`checked_lists` accepted, in order; few lists are in memory at a time.

    Raises:
        ObjectNotFound: a list does not exist, or no longer.
        InvalidRequest: a list does not match its entry in the commit, or contains something other than blocks;
            ``location`` and ``index`` name the place.
        LimitExceeded: a block is nested too deeply.
        StoreError: storage failed.
    """
    with ContextThreadPool(_AHEAD, thread_name_prefix="block-lists") as pool:
        waiting = iter(lists)
        under_way: deque[tuple[BlockListSent, Future[bytes]]] = deque()

        def begin() -> None:
            following = next(waiting, None)
            if following is not None:
                under_way.append((following, pool.submit(_read, store, following)))

        begin()
        try:
            while under_way:
                sent, future = under_way.popleft()
                data = future.result()
                del future
                for _ in range(_AHEAD):
                    begin()
                yield from _blocks(sent, data)
        finally:
            for _, future in under_way:
                future.cancel()


def _read(store: Store, sent: BlockListSent) -> bytes:
    try:
        # One more byte shows whether the object is longer, without reading an object of unknown size.
        data = store.read_range(sent.location, 0, sent.size_bytes + 1)
    except ObjectNotFound as error:
        raise ObjectNotFound(
            f"the list of blocks {sent.location} does not exist, or was deleted", location=sent.location
        ) from error
    if len(data) != sent.size_bytes:
        more = "more than " if len(data) > sent.size_bytes else ""
        raise _wrong(sent, f"it has {more}{min(len(data), sent.size_bytes)} bytes, not {sent.size_bytes}")
    if content_hash(data) != sent.sha256:
        raise _wrong(sent, "its SHA-256 does not match")
    count = data.count(b"\n") + (not data.endswith(b"\n"))
    if count != sent.block_count:
        raise _wrong(sent, f"it has {count} lines, not {sent.block_count}")
    return data


def _blocks(sent: BlockListSent, data: bytes) -> Iterator[Listed]:
    whole = memoryview(data)
    start = 0
    for number in range(sent.block_count):
        end = data.find(b"\n", start)
        end = len(data) if end < 0 else end
        yield Listed(_block(sent.location, number, whole[start:end]), sent.location, number)
        start = end + 1


def _block(location: str, number: int, line: memoryview) -> Block:
    where = f"block {number} of {location}"
    try:
        return _DECODER.decode(line)
    except msgspec.ValidationError as error:
        found = _ERROR_PATH.fullmatch(str(error))
        message, path = (found["message"], found["path"]) if found else (str(error), "$")
        where_in_block = f"a key of {path}" if found and found["key"] else path
        raise InvalidRequest(
            f"{message} at {where_in_block} of {where}", location=location, index=number, path=path
        ) from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise InvalidRequest(f"{where} is not JSON: {error}", location=location, index=number) from error
    except RecursionError as error:
        raise LimitExceeded(f"{where} is nested too deeply", limit="depth", location=location, index=number) from error


def _wrong(sent: BlockListSent, reason: str) -> InvalidRequest:
    return InvalidRequest(f"{sent.location} cannot be read as blocks: {reason}", location=sent.location)
