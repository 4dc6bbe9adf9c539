"""A Spark Connect server that was started with a catalog of Lamella: SQL works for clients that have only PySpark."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lamella.client.spark.connect_server import main
from spark.lakes import fresh
from support.connect_server import connect_server
from support.spark_environment import spark_environment

pytestmark = [pytest.mark.soak, pytest.mark.spark]

PROGRAM = Path(__file__).with_name("connect_sql_program.py")


@pytest.fixture(scope="module")
def remote(lake_url: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a server."""
    with connect_server(lake_url, tmp_path_factory.mktemp("server")) as address:
        yield address


@pytest.fixture(scope="module")
def answers(remote: str, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What the client found."""
    folder = tmp_path_factory.mktemp("client")
    done = subprocess.run(
        [sys.executable, PROGRAM],
        input=json.dumps({"remote": remote, "namespace": fresh("served"), "folder": str(folder)}),
        capture_output=True,
        text=True,
        env=spark_environment() | {"SPARK_CONNECT_MODE_ENABLED": "1"},
        cwd=folder,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr[:3000] + "\n...\n" + done.stderr[-1000:]
    found: dict[str, Any] = json.loads(done.stdout.strip().rsplit("\n", 1)[-1])
    return found


def test_queries_prune(answers: dict[str, Any]) -> None:
    """By SQL and frames, in each session."""
    assert answers["count"] == [[50]]
    assert answers["frame"] == 7
    assert "blocks=1/10" in answers["explain"]
    assert answers["subquery"] == [[10]]
    assert answers["other session"] == 1010


def test_statements_change_rows_and_layout(answers: dict[str, Any]) -> None:
    """As on a classic session."""
    assert answers["changed"] == [[5, 50, "changed"], [5000, 51, "merged"]]
    assert answers["appended"] == 10
    assert answers["call"] == 1


def test_history_views_and_lists(answers: dict[str, Any]) -> None:
    """Metadata tables, time travel, changes, stored views, the catalog's lists."""
    assert answers["snapshots"] >= 5
    assert answers["changes"] == 10
    assert answers["before"] == [[1000]]
    assert answers["view"]
    assert answers["cached"]
    assert sorted(row[1] for row in answers["tables"]) == ["copy", "t", "v"]
    assert [row[1] for row in answers["left"]] == ["copy"]


def test_streams_run_on_the_server(answers: dict[str, Any]) -> None:
    """From a table into another, each row once."""
    assert answers["stream"]


def test_errors_have_codes(answers: dict[str, Any]) -> None:
    """No traceback of Python reaches the client."""
    errors = answers["errors"]
    assert "TABLE_OR_VIEW_NOT_FOUND" in errors["missing"]
    assert "UNRESOLVED_COLUMN" in errors["column"]
    assert "CHECK" in errors["generated"]
    assert "lamella." in errors["call"]
    assert not [each for each in errors.values() if "Traceback" in each or "Py4J" in each]


@pytest.mark.parametrize("catalog", ["lake", "=http://127.0.0.1:1", "lake=ftp://127.0.0.1"])
def test_a_catalog_that_cannot_be_meant_is_refused(catalog: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Before Spark starts."""
    with pytest.raises(SystemExit) as ended:
        main(["--catalog", catalog])
    assert ended.value.code == 2
    assert "--catalog" in capsys.readouterr().err
