"""Advice through either client: what is sent, and what comes back."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Callable
from typing import Any

import pytest

from lamella.client.http.fake_transport import json_response
from lamella.snapshot import wire
from support.both_clients import ClientFor

COST = wire.Cost(blocks=1.5, bytes=2.5, skip=0.5)
CALLS: list[tuple[str, Callable[[Any], Any], str, str, Any, Any, Any]] = [
    (
        "advise",
        lambda table: table.advise(
            ["a"], ["bloom"], options={"bloom": {"false_positives": 0.1}}, budget_bytes=5.0, snapshot_id="s"
        ),
        "POST",
        "advice",
        {
            "columns": ["a"],
            "kinds": ["bloom"],
            "options": {"bloom": {"false_positives": 0.1}},
            "budget_bytes": 5.0,
            "snapshot_id": "s",
        },
        wire.AdviceAnswer(snapshot_id="s", blocks_total=1, blocks_seen=1, scores=()),
        None,
    ),
    (
        "candidates",
        lambda table: table.candidates(3, recorded=7, sample_blocks=2, seed=1),
        "POST",
        "candidates",
        {"top": 3, "recorded": 7, "sample_blocks": 2, "seed": 1},
        wire.CandidatesAnswer(snapshot_id="s", blocks_total=1, bytes_total=1, candidates=()),
        None,
    ),
    (
        "what if, an index",
        lambda table: table.what_if(
            index=wire.IndexChange(kind="keys", expression="a"),
            filters=["a = 1"],
            sample_blocks=3,
            timestamp=dt.datetime(2026, 1, 1, tzinfo=dt.UTC),
        ),
        "POST",
        "what-if",
        {
            "index": {"kind": "keys", "expression": "a"},
            "filters": ["a = 1"],
            "sample_blocks": 3,
            "timestamp": "2026-01-01T00:00:00+00:00",
        },
        wire.WhatIfAnswer(snapshot_id="s", blocks_total=1, bytes_total=1, now=COST, then=COST, filters=()),
        None,
    ),
    (
        "what if, a key",
        lambda table: table.what_if(cluster_key=["a", "b"], recorded=7, seed=3, case_sensitive=True),
        "POST",
        "what-if",
        {"cluster_key": ["a", "b"], "recorded": 7, "seed": 3, "case_sensitive": True},
        wire.WhatIfAnswer(snapshot_id="s", blocks_total=1, bytes_total=1, now=COST, then=COST, filters=()),
        None,
    ),
    (
        "why not",
        lambda table: table.why_not("a > 1", "i", time_zone="Europe/Berlin"),
        "POST",
        "why-not",
        {"filter": "a > 1", "index": "i", "time_zone": "Europe/Berlin"},
        wire.WhyNotAnswer(
            snapshot_id="s", blocks_total=1, after_bounds=1, after_indexes=1, answers=(), predicates=("a > 1",)
        ),
        None,
    ),
    (
        "recorded filters",
        lambda table: table.recorded_filters(),
        "GET",
        "recorded",
        None,
        wire.RecordedList(mode="shape", filters=()),
        None,
    ),
    (
        "clear recorded filters",
        lambda table: table.clear_recorded_filters(),
        "DELETE",
        "recorded",
        None,
        wire.RecordedCleared(filters=4),
        4,
    ),
]


@pytest.mark.parametrize(
    ("use", "method", "path", "body", "answer", "expected"), [each[1:] for each in CALLS], ids=[c[0] for c in CALLS]
)
def test_advice_sends_its_request_and_reads_its_answer(
    client_for: ClientFor, use: Callable[[Any], Any], method: str, path: str, body: Any, answer: Any, expected: Any
) -> None:
    """Members that are not given are not sent; the answer comes back as the wire's own value."""
    lake = client_for(lambda _: json_response(answer))
    found = lake.run(lambda client: use(client.table("db.t")))
    assert found == (answer if expected is None else expected)
    (request,) = lake.requests
    assert (request.method, request.target) == (method, f"/v1/namespaces/db/tables/t/{path}")
    assert (json.loads(request.body) if request.body else None) == body
