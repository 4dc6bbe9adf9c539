"""Commits of more blocks than a request holds: the client puts them into lists by itself, and removes these again."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec
import pyarrow as pa
import pytest

from fixtures_server import ServerProcess, StartServer
from lamella.client.http import Lamella, RetryPolicy
from lamella.client.http.transport import HttpRequest, HttpResponse, PooledTransport, TransportFailure
from lamella.client.rewrite.block_writer import BlockWriter, WrittenBlocks
from lamella.client.rewrite.commit import TableState, commit_blocks, commit_result
from lamella.client.rewrite.sort import Scratch
from lamella.snapshot.errors import BodyTooLarge, DuplicateBlock, OutcomeUnknown, StoreError
from lamella.snapshot.ids import Ids
from lamella.snapshot.manifest import Block
from lamella.snapshot.schema import Column
from lamella.snapshot.storage import FsspecStore
from lamella.snapshot.wire import CommitRequest
from support.watched_store import WatchedStore

MAX_BYTES = 16_384
COLUMNS = [Column(name="id", type="int64"), Column(name="name", type="string"), Column(name="x", type="float64")]


class RecordingTransport(PooledTransport):
    """Remembers the commits that are sent; ``lost``: how many of their answers never come."""

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self.commits: list[HttpRequest] = []
        self.lost = 0

    def send(self, request: HttpRequest) -> HttpResponse:
        """As the transport does."""
        answer = super().send(request)
        if request.path.endswith("/commits"):
            self.commits.append(request)
            if self.lost:
                self.lost -= 1
                raise TransportFailure("lost", sent=True)
        return answer

    @property
    def last(self) -> CommitRequest:
        """What the last commit asked for."""
        return msgspec.json.decode(self.commits[-1].body, type=CommitRequest)


class Writing:
    """A table of a service whose requests are small, and a client of it."""

    def __init__(self, url: str) -> None:
        self.transport = RecordingTransport(url)
        self.lake = Lamella(url, transport=self.transport, policy=RetryPolicy(attempts=1))
        self.lake.create_namespace("db")
        self.lake.create_table("db.t", schema=COLUMNS)
        self.lake.table("db.t").create_index("by_id", "value_set", "id")
        self.state = TableState.read(self.lake, "db.t")
        self.target = self.state.target()
        self.scratch = Scratch(self.target.layout.scratch)

    def written(self, count: int) -> WrittenBlocks:
        """So many new blocks."""
        writer = BlockWriter(self.target, FsspecStore(), self.scratch, Ids())
        for number in range(count):
            rows = {"id": [number, number + 7], "name": [f"n{number}", None], "x": [number / 3, -1.0]}
            writer.write(
                pa.table(rows).cast(pa.schema([("id", pa.int64()), ("name", pa.string()), ("x", pa.float64())]))
            )
        return writer.finish()

    def commit(self, written: WrittenBlocks, key: str | None = None) -> int:
        """As a job does; how many blocks it added."""
        answer = commit_result(self.lake, self.state, self.target, [written], operation="append", idempotency_key=key)
        assert answer.left_out_parts == {}
        return answer.added

    def lists(self) -> list[str]:
        """Those that are there."""
        found = FsspecStore().list(self.target.layout.scratch)
        return [each.location for each in found if each.location.endswith(".blocks")]


@pytest.fixture
def writing(start_server: StartServer, tmp_path: Path) -> Iterator[Writing]:
    """See there."""
    server: ServerProcess = start_server(warehouse=tmp_path / "warehouse", max_body_bytes=MAX_BYTES)
    made = Writing(server.url)
    with made.lake:
        yield made


def encoded_bytes(blocks: Sequence[Block]) -> int:
    """What they take in a request."""
    return sum(len(msgspec.json.encode(block)) for block in blocks)


def test_a_commit_changes_to_lists_where_a_request_would_be_too_large(writing: Writing) -> None:
    """One commit, with the entries of the indexes; no request is too large, and no list is left over."""
    written = writing.written(60)
    assert encoded_bytes(written.blocks) > 2 * MAX_BYTES
    with pytest.raises((BodyTooLarge, OutcomeUnknown)):
        writing.lake.table("db.t").commit(written.blocks)
    assert writing.commit(written) == 60
    request = writing.transport.last
    assert request.added == ()
    assert isinstance(request.added_from, tuple)
    assert len(request.added_from) >= 3
    assert all(each.size_bytes <= MAX_BYTES for each in request.added_from)
    assert len(writing.transport.commits[-1].body) <= MAX_BYTES
    assert writing.lists() == []
    table = writing.lake.table("db.t")
    assert sorted(table.prune().locations) == sorted(block.location for block in written.blocks)
    coverage = table.index("by_id").coverage
    assert coverage is not None
    assert (coverage.indexed, coverage.not_indexed) == (60, 0)
    assert table.verify(deep=True, sample=1.0).is_clean


def test_a_small_commit_brings_its_blocks_itself(writing: Writing) -> None:
    """No object is written for what fits."""
    written = writing.written(2)
    assert encoded_bytes(written.blocks) < MAX_BYTES // 2
    assert writing.commit(written) == 2
    request = writing.transport.last
    assert (len(request.added), request.added_from) == (2, msgspec.UNSET)


def test_lists_of_a_refused_commit_are_removed(writing: Writing) -> None:
    """Nobody will ask for them again."""
    written = writing.written(60)
    writing.commit(written)
    with pytest.raises(DuplicateBlock):
        writing.commit(msgspec.structs.replace(written, parts=()))
    assert writing.lists() == []


def test_the_same_call_with_the_same_key_is_the_same_commit(writing: Writing) -> None:
    """When the answer is lost the lists stay, and asking again gets the stored answer, and takes them away."""
    written = msgspec.structs.replace(writing.written(60), parts=())
    writing.transport.lost = 1
    with pytest.raises(OutcomeUnknown):
        writing.commit(written, "k")
    left = writing.lists()
    assert len(left) >= 3
    assert writing.commit(written, "k") == 60
    assert writing.transport.commits[0].body == writing.transport.commits[1].body
    assert writing.lists() == []
    assert len(writing.lake.table("db.t").prune().locations) == 60


def test_blocks_are_taken_as_they_are_wanted(writing: Writing) -> None:
    """Blocks that come one by one are put away list by list: there is never more than one list of them in memory."""
    written = writing.written(60)
    taken = 0
    taken_at_put: list[int] = []

    def one_by_one() -> Iterator[Block]:
        nonlocal taken
        for block in written.blocks:
            taken += 1
            yield block

    store = WatchedStore(FsspecStore(), lambda _: taken_at_put.append(taken))
    assert commit_blocks(writing.lake, "db.t", one_by_one(), store=store).added == 60
    request = writing.transport.last
    assert isinstance(request.added_from, tuple)
    counts = [each.block_count for each in request.added_from]
    put = [sum(counts[: number + 1]) for number in range(len(counts))]
    assert all(at <= done + 1 for at, done in zip(taken_at_put, put, strict=True))


def test_a_client_without_a_right_to_write_there_changes_nothing(writing: Writing) -> None:
    """When a list cannot be put, the error says so, and no commit is sent."""
    written = writing.written(60)
    with pytest.raises(StoreError):
        commit_blocks(writing.lake, "db.t", written.blocks, store=WatchedStore(FsspecStore(), _refuse))
    assert writing.transport.commits == []
    assert writing.lake.table("db.t").info().block_count == 0


def _refuse(location: str) -> None:
    raise StoreError(f"{location} may not be written", location=location)
