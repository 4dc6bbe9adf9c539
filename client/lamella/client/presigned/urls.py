"""The URLs of a snapshot's blocks, asked for when they are needed."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Final

import msgspec

from lamella.client.http.call import TableName
from lamella.client.http.rewriting import blocks_calls, joined
from lamella.client.http.running import Runs
from lamella.snapshot.errors import LamellaError, ObjectNotFound
from lamella.snapshot.wire import BlocksAnswer

#: Looks up blocks of a snapshot (None: the current one) by their locations, with URLs.
Ask = Callable[[Sequence[str], str | None], BlocksAnswer]

#: Blocks that one request asks URLs for: the one that is needed, and those behind it.
AT_ONCE: Final = 1_000
#: URLs that are held, of some 500 bytes each.
_MOST_HELD: Final = 10_000


class SignedBlock(msgspec.Struct, frozen=True, kw_only=True):
    """A URL, and the file that it must lead to. ``content_id`` None: not known. ``turn``: grows with each request."""

    url: str
    size_bytes: int
    content_id: str | None
    turn: int

    def __repr__(self) -> str:
        return f"SignedBlock(size_bytes={self.size_bytes}, content_id={self.content_id!r}, turn={self.turn})"


class BlockUrls:
    """Safe to share between threads: while one asks, the others wait for what it gets.

    When a URL ends is not reckoned here, since clocks differ: who is refused one says so.
    """

    def __init__(self, ask: Ask) -> None:
        self._ask = ask
        self._lock = threading.Lock()
        self._held: OrderedDict[str, SignedBlock] = OrderedDict()
        self._snapshot_id: str | None = None
        self._order: Sequence[str] = ()
        self._places: dict[str, int] = {}
        self._turn = 0

    def begin(self, snapshot_id: str, locations: Sequence[str]) -> None:
        """Which blocks will be read, about in this order."""
        with self._lock:
            self._snapshot_id = snapshot_id
            self._order = locations
            self._places = {location: place for place, location in enumerate(locations)}

    def learn(self, locations: Sequence[str], sizes_bytes: Sequence[int], urls: Sequence[str]) -> None:
        """Take over URLs that came another way."""
        with self._lock:
            self._turn += 1
            for location, size_bytes, url in zip(locations, sizes_bytes, urls, strict=True):
                self._hold(location, SignedBlock(url=url, size_bytes=size_bytes, content_id=None, turn=self._turn))

    def of(self, location: str) -> SignedBlock:
        """A block's URL.

        Raises:
            ObjectNotFound: it is no block of the snapshot.
            LamellaError: what the service answered.
        """
        with self._lock:
            return self._held.get(location) or self._asked(location, older_than=0)

    def renewed(self, location: str, refused: SignedBlock) -> SignedBlock:
        """Another URL than the one that was refused; raises as :meth:`of`."""
        with self._lock:
            held = self._held.get(location)
            if held is not None and held.turn > refused.turn:
                return held  # another thread was refused one of these before
            return self._asked(location, older_than=refused.turn + 1)

    def _asked(self, location: str, *, older_than: int) -> SignedBlock:
        """Ask for this one and for those behind it that are not here, or came with an earlier request."""
        place = self._places.get(location)
        following = (location,) if place is None else self._order[place : place + AT_ONCE]
        wanted = [each for each in following if (held := self._held.get(each)) is None or held.turn < older_than]
        answer = self._ask(wanted, self._snapshot_id)
        self._turn += 1
        for block in answer.blocks:
            if block.url is None:
                raise LamellaError("the service signed no URLs: it is an older release than this client")
            self._hold(
                block.location,
                SignedBlock(url=block.url, size_bytes=block.file_size, content_id=block.content_id, turn=self._turn),
            )
        found = self._held.get(location)
        if found is None:
            raise ObjectNotFound(f"{location} is no block of the snapshot", location=location)
        return found

    def _hold(self, location: str, block: SignedBlock) -> None:
        self._held[location] = block
        self._held.move_to_end(location)
        while len(self._held) > _MOST_HELD:
            self._held.popitem(last=False)


def asking(lake: Runs, name: TableName) -> Ask:
    """Asks a table of a service."""

    def ask(locations: Sequence[str], snapshot_id: str | None) -> BlocksAnswer:
        return joined([lake.run(call) for call in blocks_calls(name, locations, snapshot_id, sign_urls=True)])

    return ask
