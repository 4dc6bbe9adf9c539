"""Ranges of blocks become addresses; what a segment holds is asked for once."""

from __future__ import annotations

from typing import Any

import pytest

from lamella.client.http.blocks import AddressCache
from lamella.client.http.fake_transport import json_response
from lamella.client.http.transport import HttpRequest, HttpResponse
from lamella.snapshot import wire
from lamella.snapshot.errors import InvalidRequest
from support.both_clients import ClientFor, RecordingClient

RANGES = wire.BlockRanges(
    segment_id=["s0", "s 1"],
    schema_id=2,
    segment=[0, 0, 1],
    first=[0, 3, 1],
    block_count=[2, 1, 1],
    verdict=["ALL", "SOME", "SOME"],
)


def blocks(segment_id: str) -> wire.SegmentBlocks:
    """Four blocks of a segment, the last of them written with an older schema."""
    return wire.SegmentBlocks(
        segment_id=segment_id,
        location=[f"memory://{segment_id}/{number}" for number in range(4)],
        row_count=[1, 2, 3, 4],
        file_size=[10, 20, 30, 40],
        schema_id=[2, 2, 2, 1],
    )


def service(request: HttpRequest) -> HttpResponse:
    """Answers with ranges, and with the blocks of segments of that snapshot."""
    if request.method == "POST":
        report = wire.Report(stages=(), blocks_total=8, rows_total=20, bytes_total=200)
        return json_response(
            wire.PruneAnswer(snapshot_id="snap/shot", timestamp_ms=1, report=report, block_ranges=RANGES)
        )
    assert request.target.endswith("/blocks?snapshot_id=snap%2Fshot")
    return json_response(blocks("s0" if "/segments/s0/" in request.target else "s 1"))


def resolve(client: RecordingClient, ranges: Any) -> Any:
    """The answer with its blocks."""
    return client.run(lambda lake: lake.table("db.t").resolve(ranges))


def test_ranges_become_columns(client_for: ClientFor) -> None:
    """Locations, sizes, verdicts and older schemas; the second answer needs no request but its own."""
    client = client_for(service)
    for asks in (3, 4):
        ranges = client.run(lambda lake: lake.table("db.t").prune("a = 1", shape="ranges"))
        found = resolve(client, ranges)
        assert found.block_ranges is None
        assert found.block_columns == wire.BlockColumns(
            location=["memory://s0/0", "memory://s0/1", "memory://s0/3", "memory://s 1/1"],
            row_count=[1, 2, 4, 2],
            file_size=[10, 20, 40, 20],
            verdict=["ALL", "ALL", "SOME", "SOME"],
            schema_id=[None, None, 1, None],
        )
        assert (found.block_count, found.size_bytes) == (4, 90)
        assert len(client.requests) == asks


def test_ranges_are_not_mistaken_for_no_blocks(client_for: ClientFor) -> None:
    """Who asks them for blocks is told to resolve them; and only ranges can be resolved."""
    client = client_for(service)
    ranges = client.run(lambda lake: lake.table("db.t").prune("a = 1", shape="ranges"))
    assert ranges.block_count == 4
    for look in (lambda: ranges.locations, lambda: list(ranges.records()), lambda: ranges.size_bytes):
        with pytest.raises(InvalidRequest, match="resolve"):
            look()
    found = client.run(lambda lake: lake.table("db.t").resolve(ranges))
    with pytest.raises(InvalidRequest, match="ranges"):
        client.run(lambda lake: lake.table("db.t").resolve(found))


def test_so_many_addresses_are_cached() -> None:
    """The segments that were not used for longest are forgotten first."""
    cache = AddressCache(max_blocks=9)
    for name in ("a", "b"):
        cache.put(blocks(name))
    assert cache.get("a") is not None
    cache.put(blocks("c"))
    assert cache.get("b") is None
    assert cache.get("a") == blocks("a")
    assert cache.get("c") == blocks("c")
