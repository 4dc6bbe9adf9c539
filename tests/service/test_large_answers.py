"""Answers that are made as a whole: so many blocks, and those that are large in a turn."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from lamella.service.http import responses
from lamella.service.http.streaming import LargeAnswers, Turn
from support.own_app import NewOwn, OwnApp
from support.race import TABLE
from support.service_api import read_problem


def filled(own: OwnApp, blocks: int) -> list[str]:
    """The ids of the snapshots before and after so many blocks were added."""
    before = own.info()["snapshot_id"]
    added = msgspec.to_builtins(own.blocks(blocks))
    answer = own.app.post(f"{TABLE}/commits", json={"added": added})
    assert answer.status_code == 200, answer.text
    return [before, answer.json()["snapshot_id"]]


def test_what_is_large_waits_for_a_turn_whatever_was_requested(
    new_own: NewOwn, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A batch, a difference, changes, the blocks of a segment: the same bytes, sent in pieces; small ones wait not."""
    own = new_own()
    before, _ = filled(own, 30)
    runs = own.app.post(f"{TABLE}/prune", json={"shape": "ranges"}).json()["block_ranges"]
    requests: list[tuple[str, str, Any]] = [
        ("POST", "prune/batch", {"filters": ["a > 1"]}),
        ("POST", "diff", {"from_snapshot_id": before}),
        ("GET", f"changes?since={before}", None),
        ("GET", f"segments/{runs['segment_id'][0]}/blocks", None),
    ]
    turns: list[str] = []
    wait = LargeAnswers.turn

    async def turn(self: LargeAnswers, owner: str) -> Turn:
        turns.append(owner)
        return await wait(self, owner)

    monkeypatch.setattr(LargeAnswers, "turn", turn)
    for method, path, body in requests:
        whole = own.app.request(method, f"{TABLE}/{path}", json=body)
        assert (whole.status_code, turns) == (200, [])
        assert "content-length" in whole.headers
        with monkeypatch.context() as patched:
            patched.setattr(responses, "WHOLE_BYTES", 1_000)
            pieces = own.app.request(method, f"{TABLE}/{path}", json=body)
        assert [len(turns), "content-length" in pieces.headers] == [1, False]
        turns.clear()
        assert len(pieces.content) == pytest.approx(len(whole.content), abs=50)
        assert pieces.headers["content-type"] == whole.headers["content-type"]
        assert pieces.headers.get("etag") == whole.headers.get("etag")
        assert pieces.json().keys() == whole.json().keys()


@pytest.mark.slow
def test_answers_that_are_made_as_a_whole_have_so_many_blocks(new_own: NewOwn) -> None:
    """Beyond that they are refused by name; changes come on more pages instead."""
    own = new_own(answer_blocks_max=20)
    before, _ = filled(own, 15)
    assert own.app.post(f"{TABLE}/prune/batch", json={"filters": ["a > 1"]}).status_code == 200
    problem = read_problem(own.app.post(f"{TABLE}/prune/batch", json={"filters": ["a > 1", "a > 2"]}))
    assert (problem.status, problem.code) == (400, "limit_exceeded")
    assert problem.details == {"limit": "answer_blocks", "maximum": 20, "filter": 1}
    filled(own, 15)
    problem = read_problem(own.app.post(f"{TABLE}/diff", json={"from_snapshot_id": before}))
    assert (problem.status, problem.code) == (400, "limit_exceeded")
    assert problem.details == {"limit": "answer_blocks", "maximum": 20}
    query = {"since": before, "net": "true", "page_size": "1000"}
    first = own.app.get(f"{TABLE}/changes", params=query).json()
    last = own.app.get(f"{TABLE}/changes", params={**query, "page_token": first["next_page_token"]}).json()
    assert [sum(len(each["added"]) for each in page["changes"]) for page in (first, last)] == [20, 10]
    assert last["next_page_token"] is None
