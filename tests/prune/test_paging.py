"""Pages: whatever their size, they are the whole answer once; a token serves its own request only."""

from __future__ import annotations

import base64
from random import Random
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lamella.snapshot.errors import InvalidPageToken, InvalidRequest
from lamella.snapshot.prune.paging import PageTokens, Position
from lamella.snapshot.wire import JoinKeys, OrderBy, PruneAnswer, PrunedBlock, PruneRequest
from support import generate, stages

SEEDS = st.integers(0, 2**48)


def pages(lake: stages.Lake, predicate: Any, request: PruneRequest) -> list[PruneAnswer]:
    """All pages of a request."""
    found: list[PruneAnswer] = []
    while not found or found[-1].next_page_token is not None:
        token = found[-1].next_page_token if found else None
        page_request = msgspec.structs.replace(request, page_token=token)
        found.append(lake.warehouse.prune_predicate(lake.pointer, predicate, page_request))
        assert len(found) < 100
    return found


def plain(block: PrunedBlock) -> PrunedBlock:
    """A block without the number of its residual, which counts within one page."""
    return msgspec.structs.replace(block, residual=None)


@settings(max_examples=80, deadline=None)
@given(SEEDS)
def test_pages_are_the_answer_in_parts(seed: int) -> None:
    """Nothing is missing, nothing doubled, the order is kept, and so is each block's residual."""
    rng = Random(seed)
    lake = stages.lake(rng)
    for _ in range(4):
        predicate = generate.predicate(rng, lake.schema, lake.seen, depth=2)
        leaf = rng.choice(lake.schema.leaves())
        order = (OrderBy(column=leaf.name),) if rng.random() < 0.3 else ()
        request = PruneRequest(order_by=order, limit=rng.choice([None, None, 3]), residuals=True)
        whole = lake.warehouse.prune_predicate(lake.pointer, predicate, request)
        paged = pages(lake, predicate, msgspec.structs.replace(request, page_size=rng.randint(1, 4)))
        found = [(plain(block), page.residuals[block.residual].sql) for page in paged for block in page.blocks]  # type: ignore[union-attr,index]
        assert found == [(plain(block), whole.residuals[block.residual].sql) for block in whole.blocks]  # type: ignore[union-attr,index]
        if not order and request.limit is None:
            considered = [stage.considered for page in paged for stage in page.report.stages if stage.stage == "block"]
            assert sum(considered) == sum(s.considered for s in whole.report.stages if s.stage == "block")


def test_pages_stop_at_segments_and_open_no_other() -> None:
    """A page opens only the segments that its blocks are in."""
    lake = stages.counting(blocks=12, rows=10, segment_blocks=3)
    paged = pages(lake, stages.everything(), PruneRequest(page_size=3))
    assert [len(page.blocks or ()) for page in paged] == [3, 3, 3, 3]
    assert [page.report.stages[-1].considered for page in paged] == [3, 3, 3, 3]


def test_join_keys_are_applied_before_a_page_is_filled() -> None:
    """A page has as many blocks as were asked for, however many were ruled out between them."""
    lake = stages.counting(blocks=12, rows=10, segment_blocks=6)
    join = (JoinKeys(column="a", values=(5, 25, 45, 65, 85)),)
    paged = pages(lake, stages.everything(), PruneRequest(page_size=2, join=join))
    assert [[stages.number_of(b.location) for b in page.blocks or ()] for page in paged] == [[0, 2], [4, 6], [8]]


TOKENS = PageTokens(b"0123456789abcdef")
REQUEST = PruneRequest(filter={"type": "eq", "term": "a", "value": 1}, page_size=10)


def test_a_token_is_read_by_every_replica_with_the_secret() -> None:
    """It names the snapshot and the place; another page size and another order of JSON members do not matter."""
    token = TOKENS.write("snapshot", REQUEST, Position(3, 4))
    again = PruneRequest(filter={"value": 1, "term": "a", "type": "eq"}, page_size=99, page_token=token)
    assert PageTokens(b"0123456789abcdef").read(again) == ("snapshot", Position(3, 4))
    assert TOKENS.position(again, "snapshot") == Position(3, 4)


@pytest.mark.parametrize(
    "change",
    [
        {"filter": {"type": "eq", "term": "a", "value": 2}},
        {"limit": 5},
        {"residuals": True},
        {"order_by": (OrderBy(column="a"),)},
        {"time_zone": "Europe/Berlin"},
        {"snapshot_id": "another"},
    ],
)
def test_a_token_of_another_request_is_refused(change: dict[str, Any]) -> None:
    """Whatever differs that decides on the blocks."""
    token = TOKENS.write("snapshot", REQUEST, Position(3, 4))
    with pytest.raises(InvalidPageToken, match="another"):
        TOKENS.read(msgspec.structs.replace(REQUEST, page_token=token, **change))


def test_an_altered_or_foreign_token_is_refused() -> None:
    """Each byte of it counts, and so does the secret."""
    token = TOKENS.write("snapshot", REQUEST, Position(3, 4))
    data = bytearray(base64.urlsafe_b64decode(token + "=" * (-len(token) % 4)))
    for position in range(len(data)):
        data[position] ^= 1
        altered = base64.urlsafe_b64encode(bytes(data)).decode()
        data[position] ^= 1
        with pytest.raises(InvalidPageToken):
            TOKENS.read(msgspec.structs.replace(REQUEST, page_token=altered))
    for text in ("", "x", "é", "A" * 2000, "****", token[:-4]):
        with pytest.raises(InvalidPageToken):
            TOKENS.read(msgspec.structs.replace(REQUEST, page_token=text))
    with pytest.raises(InvalidPageToken):
        PageTokens(b"another secret of it").read(msgspec.structs.replace(REQUEST, page_token=token))


def test_a_token_of_another_snapshot_is_refused_by_the_warehouse() -> None:
    """The warehouse is asked for one snapshot; a page of another one does not fit."""
    lake = stages.counting(blocks=2)
    token = lake.warehouse.page_tokens.write("another", PruneRequest(page_size=1), Position(0, 1))
    with pytest.raises(InvalidPageToken, match="another snapshot"):
        lake.warehouse.prune(lake.pointer, PruneRequest(page_size=1, page_token=token))


@pytest.mark.parametrize(
    "request_",
    [
        PruneRequest(page_size=0),
        PruneRequest(page_size=10_000_000),
        PruneRequest(page_token="x"),
        PruneRequest(page_size=1, max_ms=5),
        PruneRequest(page_size=1, level="segment"),
        PruneRequest(max_ms=5, level="segment"),
        PruneRequest(max_ms=-1),
    ],
)
def test_options_that_exclude_each_other_are_refused(request_: PruneRequest) -> None:
    """By name, and before anything is opened."""
    lake = stages.counting(blocks=1)
    with pytest.raises(InvalidRequest):
        lake.warehouse.prune(lake.pointer, request_)


def test_a_short_secret_is_refused() -> None:
    """Sixteen bytes at least."""
    with pytest.raises(InvalidRequest, match="16 bytes"):
        PageTokens(b"short")
