"""``lamella doctor``: each thing that can be wrong is found, and named with what to do about it."""

from __future__ import annotations

import json
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pytest
from click.testing import CliRunner

from fixtures_server import StartServer
from lamella.client import Lamella
from lamella.client.cli.app import cli
from lamella.client.cli.doctor import java_finding
from lamella.snapshot.tokens import key_sha256, key_text
from support.scripted_http import Reply, ScriptedServer, answer

Findings = dict[str, dict[str, str]]


def findings(url: str, status: int, *words: str, environment: Mapping[str, str] | None = None) -> Findings:
    """What the command finds, by name."""
    done = CliRunner().invoke(cli, ["doctor", "--json", "--url", url, *words], env=dict(environment or {}))
    assert done.exit_code == status, (done.output, done.exception)
    return {each["name"]: each for each in json.loads(done.stdout)}


def a_java(folder: Path, text: str) -> Path:
    """A JAVA_HOME whose java says this of its version."""
    program = folder / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(f"#!/bin/sh\necho '{text}' >&2\n")
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    return folder


@pytest.mark.parametrize(
    ("text", "state", "shown"),
    [
        ('openjdk version "17.0.11" 2024-04-16', "ok", "Java 17"),
        ('openjdk version "21" 2023-09-19', "ok", "Java 21"),
        ('java version "1.8.0_392"', "failure", "Java 8"),
        ('openjdk version "11.0.2" 2019-01-15', "failure", "Java 11"),
        ("no such thing", "failure", "tells no version"),
    ],
)
def test_the_java_that_spark_would_start_is_found(tmp_path: Path, text: str, state: str, shown: str) -> None:
    """Of JAVA_HOME before the path; Spark 4 needs 17."""
    home = a_java(tmp_path, text)
    found = java_finding({"JAVA_HOME": str(home), "PATH": ""}, needed=True)
    assert (found.state, shown in found.text) == (state, True)
    assert bool(found.remedy) == (state != "ok")
    assert java_finding({"PATH": str(home / "bin")}, needed=True) == found


def test_without_spark_a_missing_java_is_a_warning(tmp_path: Path) -> None:
    """With it, it is a failure; so is a JAVA_HOME that has none."""
    assert java_finding({"PATH": str(tmp_path)}, needed=False).state == "warning"
    assert java_finding({"PATH": str(tmp_path)}, needed=True).state == "failure"
    assert "does not run" in java_finding({"JAVA_HOME": str(tmp_path)}, needed=True).text


def test_a_service_that_is_not_there_fails(tmp_path: Path) -> None:
    """With how to start one; a folder without a lake, too."""
    found = findings("http://127.0.0.1:9", 1)
    assert found["service"]["state"] == "failure"
    assert "lamella serve" in found["service"]["remedy"]
    assert "no lake in" in findings(str(tmp_path), 1)["service"]["text"]


def test_a_lake_in_a_folder_is_fit(tmp_path: Path) -> None:
    """Its service, the releases, the client's name, and the first file of a table."""
    with Lamella.embedded(tmp_path) as lake:
        lake.create_namespace("db")
        lake.table("db.empty").append(pa.table({"a": pa.array([], pa.int64())}), create=True)
        lake.table("db.t").append(pa.table({"a": [1, 2]}), create=True)
        java = a_java(tmp_path / "java", 'openjdk version "17.0.1"')
        found = findings(str(tmp_path), 0, environment={"JAVA_HOME": str(java)})
        assert {found[name]["state"] for name in ("python", "java", "service", "version", "key", "store")} == {"ok"}
        (location,) = lake.table("db.t").prune().locations
        assert location in found["store"]["text"]
        Path(location.removeprefix("file://")).unlink()
        lost = findings(str(tmp_path), 1, environment={"JAVA_HOME": str(java)})["store"]
    assert (lost["state"], location in lost["text"], "signed URLs" in lost["remedy"]) == ("failure", True, True)


@contextmanager
def answering(status: str, body: Any, *, ahead: timedelta = timedelta()) -> Iterator[str]:
    """A service with this answer to all requests, whose clock is ahead."""
    date = format_datetime(datetime.now(UTC) + ahead, usegmt=True)
    raw = answer(status, msgspec.json.encode(body), f"Date: {date}\r\nContent-Type: application/json\r\n")
    server = ScriptedServer([Reply(raw=raw, close=True)])
    try:
        yield server.url
    finally:
        server.stop()


@pytest.mark.parametrize(
    ("status", "body", "text", "remedy"),
    [
        (
            "503 Service Unavailable",
            {"type": "x", "title": "x", "status": 503, "detail": "migrate it", "code": "catalog_outdated"},
            "migrate it [catalog_outdated]",
            "lamella catalog migrate",
        ),
        (
            "503 Service Unavailable",
            {"type": "x", "title": "x", "status": 503, "detail": "the warehouse did not answer", "code": "unavailable"},
            "the warehouse did not answer [unavailable]",
            "log",
        ),
        ("404 Not Found", ["not ours"], "not as a service of Lamella", "proxies"),
    ],
)
def test_a_service_that_is_not_ready_fails(status: str, body: Any, text: str, remedy: str) -> None:
    """With its own words, and nothing more is asked of it."""
    with answering(status, body) as url:
        found = findings(url, 1)
    assert text in found["service"]["text"]
    assert remedy in found["service"]["remedy"]
    assert "key" not in found


@pytest.mark.parametrize(
    ("ahead", "state", "shown"),
    [
        (timedelta(), "ok", "within 5 s"),
        (timedelta(minutes=2), "warning", "behind the service"),
        (timedelta(minutes=-2), "warning", "ahead of the service"),
        (timedelta(hours=1), "failure", "behind the service"),
    ],
)
def test_clocks_that_differ_are_named(ahead: timedelta, state: str, shown: str) -> None:
    """By the date of the answer: signed URLs and tokens go by them."""
    body = {"type": "x", "title": "x", "status": 503, "detail": "later", "code": "unavailable"}
    with answering("503 Service Unavailable", body, ahead=ahead) as url:
        clock = findings(url, 1)["clock"]
    assert (clock["state"], shown in clock["text"]) == (state, True)


def test_a_key_that_is_missing_is_named(start_server: StartServer, tmp_path: Path) -> None:
    """By a service over HTTP that requires one; with it, all is well."""
    key = key_text(b"r" * 32)
    server = start_server(warehouse=tmp_path / "warehouse", auth="true", root_key_sha256=key_sha256(key))
    java = {"JAVA_HOME": str(a_java(tmp_path / "java", 'openjdk version "17.0.1"'))}
    refused = findings(server.url, 1, environment=java)
    assert (refused["key"]["state"], "--token" in refused["key"]["remedy"]) == ("failure", True)
    found = findings(server.url, 0, "--token", key, environment=java)
    assert {found[name]["state"] for name in ("service", "clock", "version", "key", "store")} == {"ok"}


def test_people_read_a_table() -> None:
    """A line for each finding, with what to do."""
    done = CliRunner().invoke(cli, ["doctor", "--url", "http://127.0.0.1:9"], env={"COLUMNS": "200"})
    assert done.exit_code == 1
    assert "FAILURE" in done.stdout
    assert "lamella serve" in done.stdout
