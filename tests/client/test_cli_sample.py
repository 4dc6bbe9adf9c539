"""`lamella sample`: its request, and what it prints."""

from __future__ import annotations

import json
from typing import Any

import msgspec
from click.testing import CliRunner, Result

from lamella.client.cli.app import cli
from lamella.client.cli.connection import Target
from lamella.client.http import NO_RETRY, Lamella
from lamella.client.http.fake_transport import FakeTransport, json_response
from lamella.snapshot.wire import SampleAnswer, SampleColumn

ANSWER = SampleAnswer(
    snapshot_id="s1",
    timestamp_ms=1,
    columns=(SampleColumn(name="id", type="int64"), SampleColumn(name="s", type="struct<x: float64>")),
    rows=[[2**60, {"x": "NaN"}], [None, None]],
    complete=False,
    stopped="blocks",
    blocks_total=9_000,
    blocks_selected=1_200,
    blocks_read=16,
    bytes_read=2_500_000,
    left_out={"i": "it has no form"},
)


def run(answer: Any, *args: str) -> tuple[Result, Any]:
    """The command against a service that has one answer; what was requests."""
    fake = FakeTransport(lambda _: json_response(answer))

    def connect(target: Target) -> Lamella:
        return Lamella(target.url, transport=fake, policy=NO_RETRY)

    result = CliRunner().invoke(cli, args, obj=connect)
    return result, [json.loads(request.body or b"null") for request in fake.requests]


def test_rows_are_shown_with_what_was_read() -> None:
    """Values as they are, and that these are not all rows."""
    result, requests = run(
        ANSWER, "sample", "db.t", "id > 1", "--limit", "3", "--columns", "id, s", "--max-blocks", "2"
    )
    assert result.exit_code == 0, result.output
    assert requests == [{"filter": "id > 1", "rows": 3, "columns": ["id", "s"], "max_blocks": 2}]
    lines = [line.rstrip() for line in result.output.splitlines()]
    assert any(str(2**60) in line and '{"x":"NaN"}' in line for line in lines)
    assert sum("null" in line for line in lines) == 1
    assert lines[-3:] == [
        "2 rows; 16 of 1,200 blocks that may have rows were read, of 9,000 in the table, 2.5 MB",
        "not all rows: more blocks may have rows (--max-blocks)",
        "left out: i (it has no form)",
    ]


def test_a_complete_sample_says_so() -> None:
    """Also one without rows; `--json` prints the answer."""
    whole = msgspec.structs.replace(ANSWER, rows=[], complete=True, stopped=None, blocks_selected=16, left_out={})
    result, requests = run(whole, "sample", "db.t")
    assert requests == [{"rows": 20}]
    assert result.output.splitlines()[-1] == "these are all rows"
    as_json, _ = run(whole, "sample", "db.t", "--json", "--snapshot", "7")
    assert msgspec.json.decode(as_json.output, type=SampleAnswer) == whole
