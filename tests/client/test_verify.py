"""`lamella verify`: what it asks, what it prints, its exit status."""

from __future__ import annotations

import json

from client.test_cli import Run, failing
from lamella.client.http.fake_transport import json_response, problem_response
from lamella.client.http.transport import TransportFailure
from lamella.snapshot.wire import Checked, Finding, VerifyAnswer

FINDING = Finding(
    code="block_missing",
    severity="error",
    object="s3://b/[x].parquet",
    block="s3://b/[x].parquet",
    message="no such object",
    advice="restore the file",
    segment_id="g",
)


def answer(*findings: Finding, **changes: object) -> VerifyAnswer:
    """A whole verification."""
    counts = {finding.code: 1 for finding in findings}
    made = {"snapshot_id": "s1", "steps": 4, "steps_done": 4, "findings": findings, "counts": counts, **changes}
    return VerifyAnswer(**made)  # type: ignore[arg-type]  # by name


def answering(value: VerifyAnswer) -> Run:
    """A service that answers so."""
    return Run(lambda _: json_response(value))


def test_a_clean_table_ends_with_status_0() -> None:
    """And says how much was looked at."""
    run = answering(answer(checked=Checked(segments=3, blocks=1_200, files=1_200, snapshots=5)))
    result = run("verify", "db.t")
    assert result.exit_code == 0
    assert "3 segments, 1,200 blocks, 1,200 files and 5 snapshots checked" in result.stdout
    assert "nothing is wrong" in result.stdout
    (body,) = run.bodies
    assert body == {}


def test_findings_are_a_table_and_status_1() -> None:
    """Each with its object, and what to do."""
    result = answering(answer(FINDING))("verify", "db.t")
    assert result.exit_code == 1
    for text in ("error", "block_missing", "s3://b/[x].parquet", "no such object", "restore the file", "1 finding"):
        assert text in result.stdout


def test_what_was_repaired_or_is_only_worth_knowing_is_no_failure() -> None:
    """Status 0, and it is shown all the same."""
    mended = Finding(
        code="sidecar_hash", severity="error", object="c", message="bits", advice="run repair", repaired=True
    )
    known = Finding(code="sidecar_older", severity="info", object="d", message="other bytes", advice="nothing")
    result = answering(answer(mended, known))("verify", "db.t", "--repair")
    assert result.exit_code == 0
    assert "repaired" in result.stdout
    assert "sidecar_older" in result.stdout


def test_why_something_was_not_repaired_is_said() -> None:
    """In the place of the advice."""
    not_repaired = Finding(
        code="sidecar_hash", severity="error", object="c", message="m", advice="a", not_repaired="an older release"
    )
    result = answering(answer(not_repaired))("verify", "db.t", "--repair")
    assert result.exit_code == 1
    assert "not repaired: an older release" in result.stdout


def test_json_is_one_answer_of_all_parts() -> None:
    """The parts are asked for one after another, each with the token of the one before."""
    replies = [
        answer(FINDING, steps_done=2, next_page_token="more", checked=Checked(blocks=3)),
        answer(checked=Checked(blocks=4)),
    ]
    run = Run(lambda request: json_response(replies[1 if b"page_token" in request.body else 0]))
    result = run("verify", "db.t", "--json")
    assert result.exit_code == 1
    found = json.loads(result.stdout)
    assert [finding["code"] for finding in found["findings"]] == ["block_missing"]
    assert found["checked"]["blocks"] == 7
    assert found["next_page_token"] is None
    assert [body.get("page_token") for body in run.bodies] == [None, "more"]


def test_options_are_sent() -> None:
    """Each by its name; a seed is drawn and told when none is given."""
    run = answering(answer())
    run("verify", "db.t", "--deep", "--sample", "0.5", "--seed", "7", "--filters", "3", "--pages", "--history", "9")
    (body,) = run.bodies
    assert body == {"deep": True, "sample": 0.5, "seed": 7, "filters": 3, "pages": True, "history": 9}
    run = answering(answer())
    result = run("verify", "db.t", "--deep", "--blocks", "4", "--snapshot", "s0")
    (body,) = run.bodies
    assert (body["blocks"], body["snapshot_id"]) == (4, "s0")
    assert f"seed {body['seed']}" in result.stdout
    run = answering(answer())
    run("verify", "db.t", "--no-files", "--repair")
    assert run.bodies == [{"files": False, "repair": True}]


def test_what_could_not_be_carried_out_is_status_2() -> None:
    """No table, no service, wrong options: none of them says anything about the table."""
    refused = problem_response(404, "table_not_found", "no table")
    for trouble in (refused, TransportFailure("connection refused", sent=False)):
        result = failing(trouble)("verify", "db.t")
        assert result.exit_code == 2
        assert "error:" in result.stderr
    assert answering(answer())("verify", "db.t", "--sample", "3").exit_code == 2
