"""How the run of Iceberg's REST compatibility kit is told of; the kit itself is run by hand (`make rck`)."""

from __future__ import annotations

from pathlib import Path

import pytest

from iceberg_rck import outcome_of, summary

_REFUSED = "java.lang.UnsupportedOperationException"
_ENDPOINT = "Server does not support endpoint: POST /v1/{prefix}/namespaces"


def report(folder: Path, *cases: str) -> Path:
    """A report as JUnit writes it."""
    file = folder / "report.xml"
    file.write_text(f"<testsuite>{''.join(cases)}</testsuite>", "utf-8")
    return file


def failed(name: str, kind: str, message: str, tag: str = "failure") -> str:
    """A test that failed."""
    return f'<testcase name="{name}"><{tag} type="{kind}" message="{message}">trace</{tag}></testcase>'


def test_what_a_read_only_face_refuses_is_counted_apart(tmp_path: Path) -> None:
    """A refusal is one too where a test expected another exception; any other failure is named with its reason."""
    outcome = outcome_of(
        report(
            tmp_path,
            '<testcase name="listed"><system-out>text</system-out></testcase>',
            '<testcase name="nested"><skipped>not for this catalog</skipped></testcase>',
            failed("created", _REFUSED, _ENDPOINT, tag="error"),
            failed(
                "no namespace", "java.lang.AssertionError", f"Expecting:&#10; X&#10;but was: {_REFUSED}: {_ENDPOINT}"
            ),
            failed("text", "java.lang.AssertionError", "Expecting message&#10;  to be: a"),
            failed("crash", "java.lang.NullPointerException", "null", tag="error"),
        )
    )
    assert (outcome.passed, outcome.refused, outcome.left_out) == (["listed"], ["created", "no namespace"], ["nested"])
    assert outcome.failed == {"text": "Expecting message to be: a", "crash": "null"}
    assert summary(outcome).splitlines() == [
        "passed 1",
        "refused by the rules 2",
        "left out by the kit 1",
        "other failures 2",
        "  crash: null",
        "  text: Expecting message to be: a",
    ]


def test_a_kit_that_did_not_run_is_no_success(tmp_path: Path) -> None:
    """Where its own set-up fails, every test has that error, and none says anything of the service."""
    with pytest.raises(SystemExit, match="no test of the kit ran"):
        outcome_of(report(tmp_path, failed("created", "java.lang.NoClassDefFoundError", "Foo", tag="error")))
