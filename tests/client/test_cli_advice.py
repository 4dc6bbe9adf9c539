"""`lamella advise`, `what-if`, `why-not` and `recorded`: what they ask, and what they print."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner, Result

from lamella.client.advice.commands import forecast_sentence, scores_sentence
from lamella.client.cli.app import cli
from lamella.client.cli.connection import Target
from lamella.client.http import NO_RETRY, Lamella
from lamella.client.http.fake_transport import FakeTransport, json_response
from lamella.snapshot import wire

SIZE = wire.IndexSize(
    options={"false_positives": 0.01},
    parts=1,
    distinct_per_block=50.0,
    is_counted=True,
    size_bytes=12_000.0,
    fits=False,
)
SCORES = wire.AdviceAnswer(
    snapshot_id="s1",
    blocks_total=1000,
    blocks_seen=1000,
    scores=(
        wire.Score(
            column="a", layer="block", score=12.4, min_score=12.4, max_score=12.4, skip_present=0.12, skip_absent=0.13
        ),
        wire.Score(
            column="a", kind="bloom", layer="block", min_score=10, max_score=80, size=SIZE, reason="not counted"
        ),
        wire.Score(column="a", kind="ngram", layer="block", min_score=0, max_score=100, reason="not in manifests"),
    ),
    rests_on={"a": "counts of distinct values"},
    left_out={"l": "a row can have several values"},
)
NOW, THEN = wire.Cost(blocks=900, bytes=9e6, skip=0.1), wire.Cost(blocks=10.5, bytes=1e5, skip=0.9895)
FORECAST = wire.WhatIfAnswer(
    snapshot_id="s1",
    blocks_total=1000,
    bytes_total=10_000_000,
    now=NOW,
    then=THEN,
    filters=(wire.Forecast(filter="a = 1", now=NOW, then=THEN, times=7, if_absent=THEN),),
    rests_on=("statistics of 1,000 of 1,000 blocks",),
    left_out={"b = '?'": "there is no column 'b'"},
)
REASONS = wire.WhyNotAnswer(
    snapshot_id="s1",
    blocks_total=1000,
    after_bounds=900,
    after_indexes=900,
    answers=(
        wire.Why(
            index="i", kind="bloom", expression="a", code="not_answered", reason="only = and IN", predicate="a > 1"
        ),
    ),
    predicates=("a > 1",),
)
CANDIDATES = wire.CandidatesAnswer(
    snapshot_id="s1",
    blocks_total=1000,
    bytes_total=10_000_000,
    candidates=(
        wire.Candidate(
            kind="index",
            text="An index of kind bloom on a: a filter reads 10.5 blocks",
            command="lamella index create --refresh -- db.t a_bloom bloom a",
            gain=wire.CandidateGain(before=NOW, after=THEN, filters=2, times=9),
            cost=wire.CandidateCost(read_bytes=10_000_000, index_bytes=12_000.0),
            rests_on=("statistics", "2 recorded filters"),
        ),
    ),
    unpredicted=(
        wire.Candidate(
            kind="compact", text="Compacting 9 blocks", command="lamella compact -- db.t", missing="no filters"
        ),
    ),
    tried=12,
    filters=2,
    reported_blocks=40,
    empty_blocks=30,
    left_out={"b = '?'": "there is no column 'b'"},
)
RECORDED = wire.RecordedList(
    mode="shape",
    filters=(
        wire.RecordedInfo(
            filter="a = '?'", mode="shape", times=3, considered=30, kept=6, kept_bytes=60, first_ms=0, last_ms=1
        ),
    ),
)


def run(answer: Any, *args: str) -> tuple[Result, list[Any]]:
    """A command against a service that has one answer; what was asked."""
    fake = FakeTransport(lambda _: json_response(answer))

    def connect(target: Target) -> Lamella:
        return Lamella(target.url, transport=fake, policy=NO_RETRY)

    result = CliRunner().invoke(cli, args, obj=connect)
    return result, [
        (request.method, request.path.partition("/tables/")[2], json.loads(request.body) if request.body else None)
        for request in fake.requests
    ]


def test_advise_asks_and_shows_scores() -> None:
    """What is not known is a question mark or limits; a size that does not fit is marked."""
    result, requests = run(SCORES, "advise", "db.t", "--columns", "a, b", "--kinds", "bloom", "--share", "0.01")
    assert result.exit_code == 0, result.output
    assert requests == [("POST", "t/advice", {"columns": ["a", "b"], "kinds": ["bloom"], "budget_share": 0.01})]
    for piece in ("bounds", " 12 ", "10 to 80", "12.0 kB, too large", "12.0 %", "l left out: a row can have"):
        assert piece in result.output


def test_advise_top_says_what_to_do() -> None:
    """In words, each with its command on a line of its own; what cannot be predicted stands apart."""
    result, requests = run(CANDIDATES, "advise", "db.t", "--top", "3", "--recorded", "9", "--sample", "4")
    assert result.exit_code == 0, result.output
    assert requests == [("POST", "t/candidates", {"top": 3, "recorded": 9, "sample_blocks": 4})]
    lines = [line.strip() for line in result.output.splitlines()]
    assert "1. An index of kind bloom on a: a filter reads 10.5 blocks." in lines
    assert "cost: blocks of 10.0 MB are read, the index takes 12.0 kB" in lines
    assert "lamella index create --refresh -- db.t a_bloom bloom a" in lines
    assert "readers reported no row in 30 of the 40 blocks that their filters read" in lines
    assert lines[lines.index("cannot tell:") :] == [
        "cannot tell:",
        "- Compacting 9 blocks: no filters",
        "lamella compact -- db.t",
        "left out: b = '?': there is no column 'b'",
    ]
    result, _ = run(CANDIDATES, "advise", "db.t", "--top", "3", "--json")
    assert msgspec.json.decode(result.output, type=wire.CandidatesAnswer) == CANDIDATES
    nothing = msgspec.structs.replace(CANDIDATES, candidates=(), unpredicted=())
    assert "no change is known to help" in run(nothing, "advise", "db.t", "--top", "3")[0].output
    assert run(CANDIDATES, "advise", "db.t", "--top", "3", "--columns", "a")[0].exit_code == 2


@pytest.mark.parametrize(
    ("given", "change"),
    [
        (
            ["--index", "bloom", "--on", "lower(a)", "--option", "false_positives=0.1"],
            {"index": {"kind": "bloom", "expression": "lower(a)", "options": {"false_positives": 0.1}}},
        ),
        (["--cluster-by", "a, b"], {"cluster_key": ["a", "b"]}),
        (["--rows-per-block", "5000"], {"rows_per_block": 5000}),
    ],
)
def test_what_if_asks_for_one_change(given: list[str], change: dict[str, Any]) -> None:
    """The filters, the sample and the change travel; the answer has now and then, filter by filter."""
    result, requests = run(FORECAST, "what-if", "db.t", *given, "--filter", "a = 1", "--sample", "9")
    assert result.exit_code == 0, result.output
    assert requests == [("POST", "t/what-if", {**change, "filters": ["a = 1"], "sample_blocks": 9})]
    for piece in ("900.0", "10.5", "99.0 %", "based on statistics of 1,000", "left out: b = '?'"):
        assert piece in result.output


def test_what_cannot_be_estimated_is_a_question_mark() -> None:
    """Never the figures of now; the reason stands beside the filter, and how many filters are left out above."""
    reason = "the number of distinct values is not known; repeat the request with sample_blocks"
    unknown = wire.Forecast(filter="b = 1", now=NOW, reason=reason)
    partly = msgspec.structs.replace(FORECAST, filters=(*FORECAST.filters, unknown), unknown=1)
    result, _ = run(partly, "what-if", "db.t", "--index", "bloom", "--on", "b")
    assert result.exit_code == 0, result.output
    assert "1 of 2 filters" in result.output
    assert "10.5" in result.output
    (line,) = [line for line in result.output.splitlines() if "b = 1" in line]
    assert line.split()[:4] == ["1", "10.0", "%", "?"]
    assert line.endswith("the number of distinct values is not known; repeat the command with --sample")
    blind = msgspec.structs.replace(FORECAST, filters=(unknown,), then=None, unknown=1)
    result, _ = run(blind, "what-if", "db.t", "--index", "bloom", "--on", "b")
    assert result.exit_code == 0, result.output
    (line,) = [line for line in result.output.splitlines() if line.startswith("then")]
    assert line.split() == ["then", "?", "?", "?"]


@pytest.mark.parametrize("given", [["--index", "bloom"], ["--index", "bloom", "--on", "a", "--option", "[1]"]])
def test_half_an_index_is_wrong_usage(given: list[str]) -> None:
    """Nothing is asked of the service then."""
    result, requests = run(FORECAST, "what-if", "db.t", *given)
    assert result.exit_code == 2
    assert requests == []


def test_why_not_shows_a_line_for_each_reason() -> None:
    """And says so when there is no index at all."""
    result, requests = run(REASONS, "why-not", "db.t", "a > 1", "--index", "i")
    assert requests == [("POST", "t/why-not", {"filter": "a > 1", "index": "i"})]
    assert "not_answered" in result.output
    assert "min/max bounds leave 900" in result.output
    nothing = wire.WhyNotAnswer(
        snapshot_id="s1", blocks_total=1, after_bounds=1, after_indexes=1, answers=(), predicates=()
    )
    assert "the table has no index" in run(nothing, "why-not", "db.t", "a > 1")[0].output


def test_recorded_filters_are_listed_and_forgotten() -> None:
    """With how often they were asked, and how much they skipped."""
    result, requests = run(RECORDED, "recorded", "list", "db.t")
    assert requests == [("GET", "t/recorded", None)]
    assert "80.0 %" in result.output
    assert "a = '?'" in result.output
    result, requests = run(wire.RecordedCleared(filters=4), "recorded", "clear", "db.t")
    assert requests == [("DELETE", "t/recorded", None)]
    assert "4 recorded filters deleted" in result.output


@pytest.mark.parametrize(
    ("answer", "args"),
    [
        (SCORES, ["advise", "db.t"]),
        (FORECAST, ["what-if", "db.t", "--rows-per-block", "5"]),
        (REASONS, ["why-not", "db.t", "a > 1"]),
        (RECORDED, ["recorded", "list", "db.t"]),
        (wire.RecordedCleared(filters=4), ["recorded", "clear", "db.t"]),
    ],
)
def test_json_is_the_services_answer(answer: Any, args: list[str]) -> None:
    """One line, and nothing else."""
    result, _ = run(answer, *args, "--json")
    assert msgspec.json.decode(result.output, type=type(answer)) == answer


def test_a_forecast_begins_with_what_is_known() -> None:
    """How it is known, of how many filters, and of how many nothing is; no number stands for one that is not known."""
    known, unknown = FORECAST.filters[0], wire.Forecast(filter="b = 1", now=NOW, reason="no counts")
    said = "1 filter would read 10.5 of 1,000 blocks on average, now 900.0"
    assert forecast_sentence(FORECAST) == f"estimated from statistics: {said}"
    measured = msgspec.structs.replace(FORECAST, measured=True, blocks_read=16)
    assert forecast_sentence(measured) == f"measured in 16 blocks: {said}"
    part = msgspec.structs.replace(FORECAST, filters=(known, unknown, unknown), unknown=2)
    assert forecast_sentence(part) == f"estimated from statistics: {said}; nothing is known of 2 of 3 filters"
    none = msgspec.structs.replace(FORECAST, filters=(unknown, unknown), unknown=2, then=None)
    assert forecast_sentence(none) == (
        "nothing is known: what 2 filters would read after the change cannot be predicted"
    )
    empty = msgspec.structs.replace(FORECAST, filters=())
    assert forecast_sentence(empty) == "nothing is known: there is no filter to try"


def test_scores_begin_with_what_is_known() -> None:
    """Scores between limits and unknown ones are told from those that are known."""
    assert scores_sentence(SCORES) == (
        "of 3 scores, by statistics of 1,000 of 1,000 blocks: 1 known, 1 only between limits, 1 unknown (?); "
        "columns without one: 1"
    )
    none = msgspec.structs.replace(SCORES, scores=(), blocks_seen=0)
    assert scores_sentence(none) == "nothing is known: statistics of 0 of 1,000 blocks give no column a score"


def test_advice_names_the_option_of_the_command() -> None:
    """Where the service names the member of its request; data stays what the service says."""
    reason = "blocks are assumed to be unsorted; repeat the request with sample_blocks"
    unsure = msgspec.structs.replace(CANDIDATES, unpredicted=(CANDIDATES.unpredicted[0],), left_out={"b": reason})
    shown = run(unsure, "advise", "db.t", "--top", "3")[0].output
    assert "left out: b: blocks are assumed to be unsorted; repeat the command with --sample" in shown
    assert "sample_blocks" not in shown
    assert reason in run(unsure, "advise", "db.t", "--top", "3", "--json")[0].output


def test_a_plan_without_recorded_filters_says_what_records_them() -> None:
    """With both names of the setting."""
    budget = wire.AutoBudget(rewritten_bytes=0, rewritten_bytes_limit=1, index_bytes=0, index_bytes_limit=1)
    plan = wire.AutoPlan(snapshot_id="s1", rule=wire.AutoRule(), has_policy=True, budget=budget, verdicts=())
    ledger: dict[str, Any] = {"actions": []}  # the command asks for it, too
    shown = run({**msgspec.to_builtins(plan), **ledger}, "auto", "explain", "db.t")[0].output
    assert "the setting record_prunes or the table's property lamella.record_prunes" in " ".join(shown.split())
    known = msgspec.structs.replace(plan, filters=3)
    shown = run({**msgspec.to_builtins(known), **ledger}, "auto", "explain", "db.t")[0].output
    assert "3 filters" in shown
    assert "record_prunes" not in shown
