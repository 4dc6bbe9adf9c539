"""The clients put pages together, or hand them out one by one."""

from __future__ import annotations

from typing import Any

import msgspec

from lamella.client.http.fake_transport import json_response
from lamella.client.http.transport import HttpRequest, HttpResponse
from lamella.snapshot import wire
from support.both_clients import ClientFor


def page(number: int, request: wire.PruneRequest) -> wire.PruneAnswer:
    """Page 0, 1 or 2 of an answer: two blocks each, of changing residuals."""
    columns = wire.BlockColumns(
        location=[f"memory://{number}a", f"memory://{number}b"],
        row_count=[1, 2],
        file_size=[10, 20],
        verdict=["ALL", "SOME"],
        residual=[0, 1],
    )
    residuals = (
        wire.Residual(sql="true", tree=True, blocks=1),
        wire.Residual(sql=f"a = {number}", tree=False, blocks=1),
    )
    stage_rows = [("snapshot", 1, 1), ("segment", 3, 3), ("block", 5, 2)]
    stages = tuple(wire.Stage(stage=n, considered=c, kept=k, bytes=30, ms=1.0) for n, c, k in stage_rows)
    use = wire.IndexUse(
        name="i",
        kind="bloom",
        expression="a",
        considered=4,
        ruled_out=number,
        not_indexed=1,
        parts=1,
        bytes=100,
        ms=0.5,
        failure="part 1 is gone" if number == 1 else None,
    )
    pages = wire.PageUse(cells_cached=1, cells_from_sidecars=2, files_read=number, reasons={"no statistics": 2})
    report = wire.Report(stages=stages, blocks_total=9, rows_total=9, bytes_total=90, indexes=(use,), pages=pages)
    return wire.PruneAnswer(
        snapshot_id="s",
        timestamp_ms=1,
        report=report,
        block_columns=columns if request.shape == "columns" else None,
        residuals=residuals,
        next_page_token=f"after {number}" if number < 2 else None,
    )


def service(request: HttpRequest) -> HttpResponse:
    """Serves the page that the token asks for."""
    prune_request = msgspec.json.decode(request.body, type=wire.PruneRequest)
    number = 0 if prune_request.page_token is None else int(prune_request.page_token.removeprefix("after ")) + 1
    return json_response(page(number, prune_request))


def test_a_page_size_changes_nothing_but_the_requests(client_for: ClientFor) -> None:
    """Three requests, one answer: blocks in order, residuals numbered anew, blocks of the report added up."""
    client = client_for(service)
    answer = client.run(lambda lake: lake.table("db.t").prune("a > 4", page_size=2, residuals=True))
    assert answer.locations == [f"memory://{n}{which}" for n in range(3) for which in "ab"]
    assert [residual.sql for residual in answer.residuals] == ["true", "a = 0", "a = 1", "a = 2"]
    assert [residual.blocks for residual in answer.residuals] == [3, 1, 1, 1]
    assert answer.block_columns.residual == [0, 1, 0, 2, 0, 3]
    counted = {stage.stage: (stage.considered, stage.kept) for stage in answer.report.stages}
    assert counted == {"snapshot": (1, 1), "segment": (3, 3), "block": (15, 6)}
    (use,) = answer.report.indexes
    assert (use.considered, use.ruled_out, use.not_indexed, use.parts, use.bytes) == (12, 3, 3, 3, 300)
    assert use.failure == "part 1 is gone"
    pages = answer.report.pages
    assert (pages.cells_cached, pages.cells_from_sidecars, pages.files_read) == (3, 6, 3)
    assert pages.reasons == {"no statistics": 6}
    assert answer.next_page_token is None
    assert len(client.requests) == 3


def test_pages_come_one_by_one_on_request(client_for: ClientFor) -> None:
    """Each is asked for when it is wanted, with the request of the first."""
    client = client_for(service)
    pages = client.run(lambda lake: lake.table("db.t").prune_pages("a > 4", page_size=2, limit=7))
    assert [one.locations[0] for one in pages] == ["memory://0a", "memory://1a", "memory://2a"]
    bodies: list[dict[str, Any]] = [msgspec.json.decode(request.body) for request in client.requests]
    assert [body.pop("page_token", None) for body in bodies] == [None, "after 0", "after 1"]
    assert bodies[0] == bodies[1] == bodies[2]
    assert bodies[0] == {"filter": "a > 4", "shape": "columns", "limit": 7, "page_size": 2}
