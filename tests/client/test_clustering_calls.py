"""The layout of tables through either client, and the commands: what is sent, and what comes back."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner

from lamella.client.cli.app import cli
from lamella.client.cli.connection import Target
from lamella.client.http import Lamella
from lamella.client.http.fake_transport import FakeTransport, json_response
from lamella.snapshot import wire
from lamella.snapshot.schema import Column, Schema
from support.both_clients import ClientFor

KEY = wire.ClusterKeyInfo(snapshot_id="s", columns=("a", "b"), kind="zorder", key_id=3)
NO_KEY = wire.ClusterKeyInfo(snapshot_id="s")
DEPTH = wire.DepthFigures(
    average_depth=1.5,
    average_overlaps=2.0,
    p50_depth=1,
    p95_depth=3,
    p99_depth=20,
    max_depth=30,
    histogram={1: 900, 2: 90, 32: 10},
)
FIGURES = wire.ClusteringAnswer(
    snapshot_id="s",
    timestamp_ms=1,
    columns=("a", "b"),
    kind="zorder",
    key_id=3,
    blocks_total=2_000,
    segments_total=4,
    blocks=1_000,
    row_count=10,
    file_size_bytes=5_000_000,
    depth=DEPTH,
    segment_depth=DEPTH,
    segments_opened=1.25,
    constant_blocks=10,
    unclustered_blocks=500,
    unimprovable_blocks=0,
    unknown_blocks=1,
    small_blocks=20,
    perfect_blocks=900,
    large_blocks=30,
    levels={0: 300, 1: 200},
    look_ups=(
        wire.LookUpFigures(share=0.0, blocks=1.5, bytes=1000.0, ideal_blocks=1.0, ideal_bytes=500.0, column="a"),
        wire.LookUpFigures(share=0.001, blocks=2.5, bytes=2000.0, ideal_blocks=2.0, ideal_bytes=600.0),
    ),
    recorded=(wire.RecordedCost(filter="a = '?'", times=7, cost=wire.Cost(blocks=3.5, bytes=1e6, skip=0.9)),),
    left_out={"gone = 1": "no such column"},
)


def part(**changes: Any) -> wire.RegroupAnswer:
    """A part of a regrouping."""
    answer = wire.RegroupAnswer(
        snapshot_id="s1",
        groups=1,
        replaced=3,
        made=2,
        blocks=2_000,
        predicted_before=9.0,
        predicted_after=5.0,
        reason="the limit max_segments is reached",
        remaining=4,
        measured_before=9.5,
        measured_after=5.5,
    )
    return msgspec.structs.replace(answer, **changes)


NOTHING_LEFT = part(
    snapshot_id="s2",
    replaced=2,
    made=1,
    blocks=900,
    predicted_before=5.0,
    predicted_after=2.0,
    reason="no others are worth rewriting",
    remaining=0,
    measured_before=5.5,
    measured_after=2.5,
)
CALLS: list[tuple[str, Callable[[Any], Any], str, str, Any, Any]] = [
    ("cluster key", lambda table: table.cluster_key(), "GET", "cluster-key", None, KEY),
    (
        "cluster by",
        lambda table: table.cluster_by(["a", "b"], "zorder", base_snapshot_id="s"),
        "PUT",
        "cluster-key",
        {"columns": ["a", "b"], "kind": "zorder", "base_snapshot_id": "s"},
        KEY,
    ),
    ("cluster by nothing", lambda table: table.cluster_by([]), "PUT", "cluster-key", {}, NO_KEY),
    ("clustering", lambda table: table.clustering(), "GET", "clustering", None, FIGURES),
    (
        "clustering of another key",
        lambda table: table.clustering(
            ["a", "b c"],
            "zorder",
            snapshot_id="s",
            where="a > 1",
            time_zone="Europe/Berlin",
            case_sensitive=True,
            recorded=0,
        ),
        "GET",
        "clustering?key=a&key=b+c&kind=zorder&snapshot_id=s&where=a+%3E+1&recorded=0&time_zone=Europe%2FBerlin"
        "&case_sensitive=true",
        None,
        FIGURES,
    ),
    ("regroup", lambda table: table.regroup(), "POST", "regroup", {}, NOTHING_LEFT),
    (
        "regroup by another key",
        lambda table: table.regroup(
            ["a"], "hilbert", max_segments=8, max_ms=5.0, target_depth=1, min_gain=0.1, dry_run=True
        ),
        "POST",
        "regroup",
        {
            "key": ["a"],
            "kind": "hilbert",
            "max_segments": 8,
            "max_ms": 5.0,
            "target_depth": 1,
            "min_gain": 0.1,
            "dry_run": True,
        },
        part(measured_before=None, measured_after=None),
    ),
]


@pytest.mark.parametrize(
    ("use", "method", "path", "body", "answer"), [each[1:] for each in CALLS], ids=[c[0] for c in CALLS]
)
def test_a_call_sends_its_request_and_reads_its_answer(
    client_for: ClientFor, use: Callable[[Any], Any], method: str, path: str, body: Any, answer: Any
) -> None:
    """Members that are not given are not sent; the answer comes back as the wire's own value."""
    lake = client_for(lambda _: json_response(answer))
    assert lake.run(lambda client: use(client.table("db.t"))) == answer
    (request,) = lake.requests
    assert (request.method, request.target) == (method, f"/v1/namespaces/db/tables/t/{path}")
    assert (json.loads(request.body) if request.body else None) == body
    assert (request.header("idempotency-key") is None) == (method == "GET")


@pytest.mark.parametrize(
    ("answers", "request_count"),
    [
        ([part(), NOTHING_LEFT], 2),
        ([part(replaced=0, groups=0, given_up=1), part(), NOTHING_LEFT], 3),
        ([part(replaced=0, groups=0, given_up=1)], 3),
        ([part(replaced=0, groups=0, given_up=0)], 1),
    ],
    ids=["to the end", "once given up", "given up again and again", "nothing to do"],
)
def test_a_regrouping_is_requested_part_by_part(
    client_for: ClientFor, answers: list[wire.RegroupAnswer], request_count: int
) -> None:
    """Until nothing is left, or nothing comes of it; the parts are one answer."""
    left = list(answers)
    seen: list[wire.RegroupAnswer] = []
    lake = client_for(lambda _: json_response(left.pop(0) if len(left) > 1 else left[0]))
    found = lake.run(lambda client: client.table("db.t").regroup(on_part=seen.append))
    assert len(lake.requests) == len(seen) == request_count
    assert len({request.header("idempotency-key") for request in lake.requests}) == request_count
    assert found == wire.merged_regroup(seen)
    assert (found.predicted_before, found.predicted_after) == (9.0, seen[-1].predicted_after)
    assert found.replaced == sum(each.replaced for each in seen)


def test_a_table_is_made_with_a_kind_where_one_is_given(client_for: ClientFor) -> None:
    """Without one nothing is said of it, so that older services take the request."""
    info = wire.TableInfo(
        namespace="db",
        name="t",
        table_id="x",
        location="memory://x",
        snapshot_id="s",
        timestamp_ms=1,
        schema=Schema.assign([Column(name="a", type="int64")]),
        cluster_kind="hilbert",
        cluster_key_id=0,
    )
    lake = client_for(lambda _: json_response(info))
    columns = [Column(name="a", type="int64")]
    made = lake.run(lambda c: c.create_table("db.t", schema=columns, cluster_key=["a"], cluster_kind="hilbert"))
    assert made == info
    lake.run(lambda c: c.create_table("db.t", schema=columns, cluster_key=["a"]))
    assert [json.loads(each.body).get("cluster_kind") for each in lake.requests] == ["hilbert", None]


def run(answer: Any, *args: str) -> tuple[Any, list[tuple[str, str, Any]]]:
    """A command against a service with one answer, and what it was asked."""
    fake = FakeTransport(lambda _: json_response(answer))
    result = CliRunner().invoke(cli, args, obj=lambda target: _lake(target, fake))
    return result, [
        (each.method, each.target.partition("/tables/")[2], json.loads(each.body) if each.body else None)
        for each in fake.requests
    ]


def _lake(target: Target, fake: FakeTransport) -> Lamella:
    return Lamella(target.url, transport=fake)


def test_cluster_by_says_what_the_key_is_now() -> None:
    """Columns, kind and id; or that there is none."""
    result, requests = run(KEY, "tables", "cluster-by", "db.t", "a", "b", "--kind", "zorder")
    assert result.exit_code == 0, result.output
    assert requests == [("PUT", "t/cluster-key", {"columns": ["a", "b"], "kind": "zorder"})]
    assert result.output == "table db.t is clustered by a, b (zorder), key 3\n"
    result, requests = run(NO_KEY, "tables", "cluster-by", "db.t", "--none")
    assert requests == [("PUT", "t/cluster-key", {})]
    assert result.output == "table db.t has no cluster key\n"


@pytest.mark.parametrize("given", [[], ["a", "--none"]])
def test_neither_or_both_of_columns_and_none_is_wrong_usage(given: list[str]) -> None:
    """A key is not taken away by leaving something out."""
    result, requests = run(NO_KEY, "tables", "cluster-by", "db.t", *given)
    assert result.exit_code == 2
    assert requests == []


def test_figures_are_shown_with_a_histogram() -> None:
    """The key, how deep, a bar for each depth, look-ups beside the best layout, recorded filters."""
    result, requests = run(FIGURES, "clustering", "db.t", "--by", "a, b", "--kind", "zorder", "--where", "a > 1")
    assert result.exit_code == 0, result.output
    ((method, target, body),) = requests
    assert (method, body) == ("GET", None)
    assert target == "t/clustering?key=a&key=b&kind=zorder&where=a+%3E+1&recorded=20"
    for piece in (
        "a, b (zorder), key 3 of the table",
        "1.50 on average, 3 at 95 %, 20 at 99 %, 30 at most",
        "1,000 of 2,000",
        "50.0 %",
        "0: 300, 1: 200",
        "1.2 by a look-up of 0.1 %",
        "one value of a",
        "0.1 % of the rows by a, b",
        "a = '?'",
        "90.0 %",
        "left out: gone = 1",
    ):
        assert piece in result.output, piece
    bars = [line for line in result.output.splitlines() if "#" in line]
    assert [line.count("#") for line in bars] == [40, 4, 1]
    assert "to 32" in bars[2]


def test_regroup_says_what_was_predicted_and_measured() -> None:
    """And what a dry run would do."""
    result, requests = run(NOTHING_LEFT, "regroup", "db.t", "--by", "a", "--max-segments", "8")
    assert requests == [("POST", "t/regroup", {"key": ["a"], "max_segments": 8})]
    for piece in (
        "2 segments with 900 blocks were replaced by 1",
        "predicted: a look-up opens 5.0 segments before, 2.0 after",
        "before, 2.5 now",
    ):
        assert piece in result.output, piece
    result, requests = run(part(measured_before=None, measured_after=None), "regroup", "db.t", "--dry-run")
    assert requests == [("POST", "t/regroup", {"dry_run": True})]
    assert "would be replaced by 2" in result.output
    assert "measured" not in result.output


@pytest.mark.parametrize("command", ["clustering", "regroup"])
def test_a_kind_without_columns_is_wrong_usage(command: str) -> None:
    """It would be of no key."""
    result, requests = run(FIGURES, command, "db.t", "--kind", "zorder")
    assert result.exit_code == 2
    assert requests == []


@pytest.mark.parametrize(
    ("answer", "args"),
    [
        (KEY, ["tables", "cluster-by", "db.t", "a"]),
        (FIGURES, ["clustering", "db.t"]),
        (NOTHING_LEFT, ["regroup", "db.t"]),
    ],
)
def test_json_is_the_services_answer(answer: Any, args: list[str]) -> None:
    """One line, and nothing else."""
    result, _ = run(answer, *args, "--json")
    assert msgspec.json.decode(result.output, type=type(answer)) == answer
