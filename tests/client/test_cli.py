"""The `lamella` command: what it asks the service, what it prints, how it fails."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner, Result

from lamella.client.cli.app import cli
from lamella.client.cli.connection import DEFAULT_URL, Target
from lamella.client.cli.failure import caret
from lamella.client.cli.output import percent, time_text
from lamella.client.http import NO_RETRY, Lamella
from lamella.client.http.fake_transport import FakeTransport, Handler, json_response, problem_response
from lamella.client.http.transport import HttpRequest, HttpResponse, TransportFailure
from lamella.snapshot import wire
from lamella.snapshot.manifest import DeleteFile
from lamella.snapshot.schema import Column, Schema
from lamella.snapshot.stats import Bound
from support.scripted_http import Reply, ScriptedServer, answer

INFO = wire.TableInfo(
    namespace="db",
    name="t",
    table_id="x",
    location="memory://w/x",
    snapshot_id="s1",
    timestamp_ms=1_700_000_000_123,
    schema=Schema.assign(
        [
            Column(name="a", type="int64", nullable=False),
            Column(name="p", type="struct", fields=(Column(name="[x]", type="string"),)),
        ]
    ),
    cluster_key=("a",),
    row_count=1_234_567,
    block_count=1_000,
    segment_count=2,
    file_size_bytes=5_000_000,
)


class Run:
    """Runs commands against a handler; ``requests`` has what the service was asked, ``target`` how."""

    def __init__(self, handler: Handler) -> None:
        self.fake = FakeTransport(handler)
        self.target: Target | None = None

    def _connect(self, target: Target) -> Lamella:
        self.target = target
        return Lamella(target.url, token=target.token, transport=self.fake, policy=NO_RETRY)

    def __call__(self, *args: str, env: dict[str, str] | None = None) -> Result:
        return CliRunner().invoke(cli, args, obj=self._connect, env=env)

    @property
    def bodies(self) -> list[Any]:
        """The bodies that were sent, decoded."""
        return [json.loads(request.body) for request in self.fake.requests]


def always(value: Any, status: int = 200) -> Run:
    """A service that has one answer."""
    return Run(lambda _: json_response(value, status))


def failing(response: HttpResponse | TransportFailure) -> Run:
    """A service with one trouble."""
    return Run(lambda _: response)


def pruned(**changes: Any) -> wire.PruneAnswer:
    """An answer with two of a thousand blocks."""
    answer = wire.PruneAnswer(
        snapshot_id="s1",
        timestamp_ms=1_700_000_000_123,
        report=wire.Report(
            stages=(
                wire.Stage(stage="snapshot", considered=1, kept=1, bytes=5_000_000, ms=0.1),
                wire.Stage(stage="segment", considered=2, kept=1, bytes=2_500_000, ms=0.25),
                wire.Stage(stage="block", considered=500, kept=2, bytes=10_000, ms=1.5),
            ),
            not_used=(wire.NotUsed(predicate="upper(s) = 'X'", reason="a function"),),
            blocks_total=1_000,
            rows_total=100_000,
            bytes_total=5_000_000,
            filter="a > 4",
        ),
        block_columns=wire.BlockColumns(
            location=["memory://b/1", "memory://b/[red]2"],
            row_count=[100, 50],
            file_size=[6_000, 4_000],
            verdict=["ALL", "SOME"],
        ),
    )
    return msgspec.structs.replace(answer, **changes)


COMMANDS: list[tuple[tuple[str, ...], Any]] = [
    (("namespaces", "list"), wire.NamespaceList(namespaces=(wire.NamespaceInfo(name="db", properties={"k": "v"}),))),
    (("namespaces", "create", "db"), wire.NamespaceInfo(name="db")),
    (("tables", "list", "db"), wire.TableList(tables=("t", "u"))),
    (("tables", "create", "db.t", "--column", "a:bigint"), INFO),
    (("tables", "show", "db.t"), INFO),
    (
        ("snapshots", "db.t"),
        wire.SnapshotList(
            snapshots=(
                wire.SnapshotInfo(
                    snapshot_id="s1",
                    prev_snapshot_id=None,
                    timestamp_ms=1_700_000_000_123,
                    operation="create",
                    row_count=0,
                    block_count=0,
                    segment_count=0,
                    file_size_bytes=0,
                ),
            )
        ),
    ),
    (
        ("register", "db.t", "memory://d/"),
        wire.RegisterAnswer(
            snapshot_id="s2",
            registered=3,
            row_count=30,
            file_size_bytes=300,
            refused=(wire.RefusedFile(path="memory://d/x", code="not_parquet", reason="no magic"),),
        ),
    ),
    (("prune", "db.t", "a > 4"), pruned()),
]


@pytest.mark.parametrize(("args", "value"), COMMANDS, ids=[" ".join(c[0][:2]) for c in COMMANDS])
def test_json_is_the_wire_answer_and_nothing_else(args: tuple[str, ...], value: Any) -> None:
    """With --json stdout is one line: the answer as the service sent it."""
    result = always(value)(*args, "--json")
    assert result.exit_code == (1 if getattr(value, "refused", ()) else 0)
    assert result.stdout.count("\n") == 1
    assert json.loads(result.stdout) == json.loads(msgspec.json.encode(value))


@pytest.mark.parametrize("args", [("namespaces", "drop", "db"), ("tables", "drop", "db.t")])
def test_a_drop_has_an_empty_answer(args: tuple[str, ...]) -> None:
    """What has no answer on the wire is an empty object, so that a reader of JSON gets some."""
    run = failing(HttpResponse(status=204))
    assert run(*args, "--json").stdout == "{}\n"
    assert run(*args).stdout.strip().startswith(args[0].rstrip("s"))
    assert [request.method for request in run.fake.requests] == ["DELETE", "DELETE"]


@pytest.mark.parametrize(("args", "value"), COMMANDS, ids=[" ".join(c[0][:2]) for c in COMMANDS])
def test_text_shows_what_matters(args: tuple[str, ...], value: Any) -> None:
    """Each command says in words what the answer holds, unclipped and without markup being read."""
    shown = {
        "namespaces list": ["db", "k=v"],
        "namespaces create": ["db"],
        "tables list": ["t", "u"],
        "tables create": ["db.t", "memory://w/x"],
        "tables show": ["1,234,567", "1,000 in 2 segments", "5.0 MB", "2023-11-14T22:13:20.123Z", "[x]", "int64", "no"],
        "snapshots db.t": ["s1", "create", "2023-11-14T22:13:20.123Z"],
        "register db.t": ["3 files with 30 rows (300 bytes)", "s2"],
        "prune db.t": [
            "a > 4",
            "segment",
            "50.0 %",
            "0.4 %",
            "1.50",
            "read 2 of 1,000 blocks (0.2 %), 10.0 kB of 5.0 MB (0.2 %)",
            "upper(s) = 'X'",
            "a function",
            "ALL",
            "memory://b/[red]2",
        ],
    }
    result = always(value)(*args)
    assert result.exit_code == (1 if getattr(value, "refused", ()) else 0)
    for text in shown[" ".join(args[:2])]:
        assert text in result.stdout


#: They are shown beside the blocks, so a person sees them; a program must say that it applies them.
_FOR_PEOPLE = {"reader_features": ["constants", "deletes"]}


def test_prune_sends_its_options() -> None:
    """Every option of prune reaches the service."""
    run = always(pruned())
    run("prune", "db.t", "a > 4", "--columns", "a, b", "--timestamp", "1700000000123", "--time-zone", "Asia/Tokyo",
        "--case-sensitive", "--explain", "--level", "segment")  # fmt: skip
    run("prune", "db.t", "--snapshot", "s1")
    run("prune", "db.t", "--timestamp", "2024-05-01T00:00:00Z", "--json")
    run("prune", "db.t", "--limit", "5", "--order-by", "a desc, b nulls last", "--residuals", "--max-ms", "7")
    assert run.bodies == [
        {
            "filter": "a > 4",
            "columns": ["a", "b"],
            "timestamp": 1700000000123,
            "time_zone": "Asia/Tokyo",
            "case_sensitive": True,
            "level": "segment",
            "shape": "columns",
            "explain": True,
            **_FOR_PEOPLE,
        },
        {
            "snapshot_id": "s1",
            "shape": "columns",
            **_FOR_PEOPLE,
        },
        {
            "timestamp": "2024-05-01T00:00:00Z",
        },
        {
            "shape": "columns",
            **_FOR_PEOPLE,
            "limit": 5,
            "order_by": [{"column": "a", "descending": True}, {"column": "b", "nulls_first": False}],
            "residuals": True,
            "max_ms": 7.0,
        },
    ]


def test_prune_shows_predicates_segments_and_only_so_many_blocks() -> None:
    """--explain adds a table of predicates, --level segment lists segments, --limit cuts the list and says so."""
    report = msgspec.structs.replace(
        pruned().report,
        predicates=(wire.PredicateUse(predicate="a > 4", column="a", considered=500, ruled_out=498, unknown=1),),
    )
    out = always(pruned(report=report))("prune", "db.t", "a > 4", "--explain", "--show", "1").stdout
    assert "498" in out
    assert "the first 1 of 2" in out
    assert "memory://b/1" in out
    assert "[red]2" not in out
    segment = wire.PrunedSegment(
        segment_id="g1", location="m", block_count=3, row_count=30, file_size_bytes=300, verdict="SOME"
    )
    out = always(pruned(block_columns=None, segments=(segment,)))("prune", "db.t", "--level", "segment").stdout
    assert "g1" in out
    assert "read 3 of 1,000 blocks" in out
    assert "memory://b" not in always(pruned())("prune", "db.t", "--show", "0").stdout


def test_a_prune_whose_time_ran_out_is_no_answer_that_looks_whole() -> None:
    """What was not looked at counts as read, the way on is said, and the exit status is 1; in JSON as well."""
    unresolved = wire.PrunedSegment(
        segment_id="g1", location="m", block_count=300, row_count=30, file_size_bytes=1_000, verdict="SOME"
    )
    run = always(pruned(complete=False, unresolved=(unresolved,)))
    found = run("prune", "db.t", "a > 4", "--max-ms", "1")
    assert found.exit_code == 1
    assert "read at most 302 of 1,000 blocks" in found.stdout
    assert "1 segment with 300 blocks were not checked" in found.stderr
    assert "repeat with more time" in found.stderr
    found = run("prune", "db.t", "a > 4", "--max-ms", "1", "--json")
    assert found.exit_code == 1
    assert json.loads(found.stdout)["complete"] is False
    found = always(pruned())("prune", "db.t", "a > 4", "--max-ms", "1")
    assert (found.exit_code, found.stderr) == (0, "")
    assert "read 2 of 1,000 blocks" in found.stdout


def test_an_error_is_one_line_with_its_code() -> None:
    """An error of the service goes to stderr as one line, and the exit status is 1."""
    result = failing(problem_response(404, "table_not_found", "there is no\ntable db.t"))("tables", "show", "db.t")
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr == "error: there is no table db.t [table_not_found]\n"


def test_an_error_leaves_stdout_to_json() -> None:
    """With --json an error writes nothing to stdout either."""
    result = failing(problem_response(404, "table_not_found", "gone"))("tables", "show", "db.t", "--json")
    assert (result.exit_code, result.stdout) == (1, "")


def test_a_service_that_is_not_there_gets_a_hint() -> None:
    """The line names the URL and says how to start a service or name another."""
    result = failing(TransportFailure("Connection refused", sent=False))("namespaces", "list", "--url", "http://h:1")
    assert result.exit_code == 1
    assert "http://h:1: Connection refused" in result.stderr
    assert "lamella serve" in result.stderr
    assert "LAMELLA_URL" in result.stderr


def test_an_unknown_outcome_says_to_look_first() -> None:
    """After a lost change the line does not suggest that nothing happened."""
    result = failing(TransportFailure("reset", sent=True))("namespaces", "create", "db")
    assert result.exit_code == 1
    assert "[outcome_unknown]" in result.stderr
    assert "check the state before" in result.stderr


def test_a_bad_filter_is_pointed_at() -> None:
    """An error with a position shows the filter with a caret below the place."""
    run = failing(problem_response(400, "invalid_filter", "expected a value", position=4))
    result = run("prune", "db.t", "a > )")
    assert result.exit_code == 1
    assert result.stderr.splitlines() == ["error: expected a value [invalid_filter]", "  a > )", "      ^"]


@pytest.mark.parametrize(
    ("source", "position", "lines"),
    [
        ("a = ", 4, ["  a = ", "      ^"]),
        ("a = 1\nAND b >", 13, ["  AND b >", "         ^"]),
        ("a\n\nb", 2, ["  ", "  ^"]),
        ("名 = ?", 4, ["  名 = ?", "       ^"]),
        ("a\t= ?", 4, ["  a = ?", "      ^"]),
        ("a", 99, ["  a", "   ^"]),
        ("a", -1, ["  a", "  ^"]),
    ],
)
def test_the_caret_is_below_the_position(source: str, position: int, lines: list[str]) -> None:
    """Also in the middle of several lines, after wide characters and tabs, at the end, and for a place outside."""
    assert caret(source, position) == lines


@pytest.mark.parametrize(
    "args",
    [
        ("nothing",),
        ("prune",),
        ("prune", "db.t", "--snapshot", "s", "--timestamp", "1"),
        ("prune", "db.t", "--level", "row"),
        ("tables", "create", "db.t"),
        ("tables", "create", "db.t", "--column", "a:int", "--schema-from", "memory://x"),
        ("tables", "create", "db.t", "--column", "a"),
        ("tables", "create", "db.t", "--column", "a:int", "--property", "x"),
        ("register", "db.t"),
        ("register", "db.t", "x", "--batch", "0"),
        ("snapshots", "db.t", "--limit", "0"),
        ("completion", "tcsh"),
        ("namespaces", "list", "--timeout", "0"),
    ],
)
def test_wrong_usage_has_status_2_and_asks_nothing(args: tuple[str, ...]) -> None:
    """Usage errors are told apart from failures, and the service is left alone."""
    run = always({})
    result = run(*args)
    assert (result.exit_code, result.stdout) == (2, "")
    assert run.fake.requests == []


def test_the_service_and_the_token_come_from_options_or_the_environment() -> None:
    """--url and --token win over LAMELLA_URL and LAMELLA_TOKEN; without either it is the default address."""
    run = always(wire.NamespaceList(namespaces=()))
    run("namespaces", "list", env={"LAMELLA_URL": "http://env:1", "LAMELLA_TOKEN": "t1"})
    assert run.target == Target(url="http://env:1", token="t1", timeout_s=60.0)
    run(
        "namespaces",
        "list",
        "--url",
        "http://opt:1",
        "--token",
        "t2",
        "--timeout",
        "5",
        env={"LAMELLA_URL": "http://env:1"},
    )
    assert run.target == Target(url="http://opt:1", token="t2", timeout_s=5.0)
    run("namespaces", "list")
    assert run.target == Target(url=DEFAULT_URL, token=None, timeout_s=60.0)


def test_tables_are_made_of_a_file_of_columns(tmp_path: Path) -> None:
    """--schema-file holds columns in the wire's own form, nested ones too; another file is an error."""
    run = always(INFO)
    columns = [{"name": "l", "type": "list", "fields": [{"name": "element", "type": "int64"}], "nullable": False}]
    file = tmp_path / "columns.json"
    file.write_text(json.dumps(columns))
    args = ("tables", "create", "db.t", "--schema-file", str(file), "--cluster-by", "l", "--property", "k=v=w")
    assert run(*args).exit_code == 0
    assert run.bodies[0] == {
        "name": "t",
        "schema": columns,
        "schema_from": None,
        "cluster_key": ["l"],
        "properties": {"k": "v=w"},
    }
    file.write_text('{"name": "a"}')
    result = run(*args)
    assert (result.exit_code, len(run.fake.requests)) == (1, 1)
    assert "[invalid_schema]" in result.stderr


def registering(refuse: Callable[[str], bool] = lambda _: False, break_at: int | None = None) -> Run:
    """A service that registers paths of ten rows each, unless ``refuse`` says otherwise."""

    def handler(request: HttpRequest) -> HttpResponse | TransportFailure:
        paths = json.loads(request.body)["paths"]
        if break_at is not None and len(run.fake.requests) > break_at:
            return problem_response(503, "unavailable", "busy")
        refused = tuple(wire.RefusedFile(path=p, code="not_parquet", reason="no magic") for p in paths if refuse(p))
        if len(refused) == len(paths):
            return problem_response(422, "blocks_refused", "none", refused=msgspec.to_builtins(refused))
        taken = len(paths) - len(refused)
        return json_response(
            wire.RegisterAnswer(
                snapshot_id=f"s{len(run.fake.requests)}",
                registered=taken,
                row_count=taken * 10,
                file_size_bytes=taken * 100,
                refused=refused,
            )
        )

    run = Run(handler)
    return run


def test_many_files_are_registered_in_batches() -> None:
    """Batches are separate requests, and their answers are added up."""
    run = registering()
    paths = [f"memory://{n}" for n in range(25)]
    result = run("register", "db.t", *paths, "--batch", "10", "--json")
    assert [body["paths"] for body in run.bodies] == [paths[:10], paths[10:20], paths[20:]]
    assert json.loads(result.stdout) == {
        "snapshot_id": "s3",
        "registered": 25,
        "row_count": 250,
        "file_size_bytes": 2500,
        "refused": [],
        "notes": [],
    }


def test_strict_sends_all_paths_at_once() -> None:
    """All or nothing is one request, whatever the batch size."""
    run = registering()
    assert run("register", "db.t", "memory://1", "memory://2", "--strict", "--batch", "1").exit_code == 0
    assert run.bodies == [{"paths": ["memory://1", "memory://2"], "strict": True, "verify": False}]


def test_verify_is_requested() -> None:
    """The service reads the values only when told to."""
    run = registering()
    assert run("register", "db.t", "memory://1", "--verify").exit_code == 0
    assert run.bodies == [{"paths": ["memory://1"], "strict": False, "verify": True}]


def test_a_batch_of_bad_files_does_not_stop_the_others() -> None:
    """Refused files are listed with their reasons on stderr; the good ones are registered."""
    run = registering(lambda path: path in ("memory://0", "memory://1", "memory://3"))
    result = run("register", "db.t", *(f"memory://{n}" for n in range(4)), "--batch", "2")
    assert result.exit_code == 1
    assert "1 file with 10 rows" in result.stdout
    assert "3 refused" in result.stderr
    for refused in (0, 1, 3):
        assert result.stderr.count(f"memory://{refused}: no magic [not_parquet]") == 1


def test_a_partly_refused_registration_fails_in_json_too() -> None:
    """The answer stands on stdout once, nothing on stderr, and the exit status says that files were refused."""
    run = registering(lambda path: path == "memory://1")
    result = run("register", "db.t", "memory://0", "memory://1", "--json")
    assert (result.exit_code, result.stderr) == (1, "")
    answer = json.loads(result.stdout)
    assert answer["registered"] == 1
    assert [entry["path"] for entry in answer["refused"]] == ["memory://1"]


@pytest.mark.parametrize("where", ["", " (block 3 of memory://list)"])
def test_the_first_refused_file_is_shown_once(where: str) -> None:
    """The message names it for readers of the message alone; the list below it has it as well."""
    refused = [{"path": "memory://it's", "code": "not_parquet", "reason": "no magic"}]
    message = f"1 file was refused, first {refused[0]['path']!r}{where}: no magic"
    result = failing(problem_response(422, "blocks_refused", message, refused=refused))("register", "db.t", "d")
    assert result.exit_code == 1
    assert result.stderr.splitlines() == [
        "error: 1 file was refused [blocks_refused]",
        "  memory://it's: no magic [not_parquet]",
    ]


def test_path_columns_and_replaced_files_are_requested() -> None:
    """What is not asked for is not sent, so that services of earlier releases understand it."""
    run = registering()
    assert run("register", "db.t", "memory://1", "--ignore-path-columns", "--take-replaced").exit_code == 0
    assert run("register", "db.t", "memory://1").exit_code == 0
    assert run.bodies == [
        {
            "paths": ["memory://1"],
            "strict": False,
            "verify": False,
            "path_columns": "ignore",
            "take_replaced": True,
        },
        {"paths": ["memory://1"], "strict": False, "verify": False},
    ]


def test_nothing_registered_is_a_failure() -> None:
    """When every file of every batch is refused the exit status is 1 and the first reasons are listed."""
    result = registering(lambda _: True)("register", "db.t", *(f"memory://{n}" for n in range(12)), "--batch", "6")
    assert (result.exit_code, result.stdout) == (1, "")
    assert "[blocks_refused]" in result.stderr
    assert "memory://9: no magic" in result.stderr
    assert "and 2 more" in result.stderr
    result = registering(lambda _: True)("register", "db.t", "memory://1")
    assert (result.exit_code, result.stdout) == (1, "")
    assert "memory://1: no magic" in result.stderr


def test_registering_again_says_that_all_is_there() -> None:
    """When every file of every batch is in the table already, the error is that, not a refusal of bad files."""
    refused = [{"path": "memory://x", "code": "duplicate_block", "reason": "it is there"}]
    run = failing(problem_response(409, "duplicate_block", "all are there", refused=refused))
    for args in (("memory://1",), ("memory://1", "memory://2", "--batch", "1")):
        result = run("register", "db.t", *args)
        assert (result.exit_code, result.stdout) == (1, "")
        assert "[duplicate_block]" in result.stderr
        assert "memory://x: it is there" in result.stderr


def test_a_failure_between_batches_says_how_much_was_done() -> None:
    """What is registered stays registered, and the person is told."""
    result = registering(break_at=2)("register", "db.t", *(f"memory://{n}" for n in range(6)), "--batch", "2")
    assert result.exit_code == 1
    assert "[unavailable]" in result.stderr
    assert "4 files of earlier batches registered" in result.stderr


def test_paths_are_made_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A path without a scheme is taken from the working directory of the command; URLs stay as they are."""
    monkeypatch.chdir(tmp_path)
    run = registering()
    run("register", "db.t", "a b.parquet", "dir/", "s3://b/k", "/abs/*.parquet", "file:/a/b")
    local = [f"{tmp_path}/a b.parquet", f"{tmp_path}/dir/"]
    assert run.bodies[0]["paths"] == [*local, "s3://b/k", "/abs/*.parquet", "file:/a/b"]
    run = always(INFO)
    run("tables", "create", "db.t", "--schema-from", "x.parquet")
    assert run.bodies[0]["schema_from"] == f"{tmp_path}/x.parquet"


@pytest.mark.parametrize(
    ("part", "whole", "text"),
    [(0, 0, "-"), (0, 5, "0.0 %"), (1, 100_000, "<0.1 %"), (1, 3, "33.3 %"), (5, 5, "100.0 %")],
)
def test_a_small_share_is_not_shown_as_nothing(part: int, whole: int, text: str) -> None:
    """One block of many is never 0.0 %."""
    assert percent(part, whole) == text


@pytest.mark.parametrize(("ms", "text"), [(-1, "1969-12-31T23:59:59.999Z"), (1, "1970-01-01T00:00:00.001Z")])
def test_times_are_exact(ms: int, text: str) -> None:
    """Milliseconds are shown as they are, also before 1970."""
    assert time_text(ms) == text


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_prints_the_shells_script(shell: str) -> None:
    """The script asks this command for candidates."""
    result = CliRunner().invoke(cli, ["completion", shell])
    assert result.exit_code == 0
    assert f"_LAMELLA_COMPLETE={shell}_complete" in result.stdout


def module(*args: str, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    """The command as a process of its own."""
    return subprocess.run(
        [sys.executable, "-m", "lamella.client.cli", *args],
        check=False,
        capture_output=True,
        text=True,
        env={**os.environ, **(env or {})},
    )


def test_the_command_runs_as_a_process(scripted: Callable[..., ScriptedServer]) -> None:
    """Over a real socket: the answer on stdout, the exit status 0."""
    server = scripted(Reply(raw=answer("200 OK", b'{"tables": ["t"]}')))
    done = module("tables", "list", "db", "--json", "--url", server.url)
    assert (done.returncode, done.stdout, done.stderr) == (0, '{"tables":["t"]}\n', "")


@pytest.mark.parametrize("args", [("--version",), ("prune", "--help"), ("tables", "list", "db")])
def test_an_output_without_a_reader_ends_the_command_quietly(
    scripted: Callable[..., ScriptedServer], args: tuple[str, ...]
) -> None:
    """As `head` leaves it: no message, and the status of a program that SIGPIPE ended."""
    server = scripted(Reply(raw=answer("200 OK", b'{"tables": ["t"]}')))
    read_end, write_end = os.pipe()
    os.close(read_end)
    try:
        done = subprocess.run(
            [sys.executable, "-m", "lamella", *args],
            stdout=write_end,
            stderr=subprocess.PIPE,
            env=os.environ | {"LAMELLA_URL": server.url},
            check=False,
        )
    finally:
        os.close(write_end)
    assert (done.returncode, done.stderr) == (141, b"")


def test_the_shell_gets_candidates() -> None:
    """What the completion script calls answers with the names of commands."""
    done = module(env={"_LAMELLA_COMPLETE": "bash_complete", "COMP_WORDS": "lamella na", "COMP_CWORD": "1"})
    assert done.stdout == "plain,namespaces\n"


@pytest.mark.parametrize(
    ("args", "block", "named"),
    [
        (("serve", "--warehouse", "w"), "fastapi", "lamella[service]"),
        (("serve", "--warehouse", "w"), "psycopg", "lamella[postgres]"),
        (("update", "n.t", "--set", "a=1", "--all"), "pyspark", "lamella[spark]"),
    ],
)
@pytest.mark.few(1)
def test_a_missing_extra_is_named(args: tuple[str, ...], block: str, named: str, tmp_path: Path) -> None:
    """A command whose libraries are not installed says in one line which extra brings them."""
    # A module that cannot be found is what an install without the extra has.
    catalog = ("--catalog", "postgresql+psycopg://127.0.0.1:1/x") if block == "psycopg" else ()
    program = (
        f"import sys; sys.modules[{block!r}] = None; from lamella.client.cli.app import cli; "
        f"cli.main({[*args, *catalog]!r}, prog_name='lamella')"
    )
    done = subprocess.run([sys.executable, "-c", program], check=False, capture_output=True, text=True, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (1, "")
    assert named in done.stderr.splitlines()[-1]
    assert "Traceback" not in done.stderr


def test_settings_that_cannot_be_used_are_wrong_usage(tmp_path: Path) -> None:
    """serve names the option and the variable of a setting that is missing or out of range."""
    env = {name: "" for name in os.environ if name.startswith("LAMELLA_")}
    done = module("serve", "--warehouse", str(tmp_path), "--port", "99999", env=env)
    assert done.returncode == 2
    assert "--port: must be at most 65535" in done.stderr
    done = module("serve", env={"LAMELLA_WAREHOUSE": ""})
    assert done.returncode == 2
    assert "LAMELLA_WAREHOUSE: must not be empty" in done.stderr


def test_serve_refuses_an_open_address(tmp_path: Path) -> None:
    """An address that others can reach needs --insecure; the refusal is one line with status 1."""
    done = module("serve", "--warehouse", str(tmp_path), "--host", "192.0.2.1")
    assert done.returncode == 1
    assert "--insecure" in done.stderr
    assert "Traceback" not in done.stderr


def test_the_default_address_is_where_serve_listens() -> None:
    """A command without --url finds a service that was started without --port."""
    from lamella.service.config.settings import Settings

    settings = Settings(warehouse="w", host=Settings.model_fields["host"].default)
    port = Settings.model_fields["port"].default
    assert f"http://{settings.host}:{port}" == DEFAULT_URL


def test_diff_shows_what_was_added_and_removed() -> None:
    """Counts, and the blocks with their sign; as JSON the answer itself."""
    block = wire.PrunedBlock(location="memory://new", row_count=5, file_size=100, verdict="SOME")
    found = wire.DiffAnswer(
        from_snapshot_id="s1",
        to_snapshot_id="s2",
        added=(block,),
        removed=(msgspec.structs.replace(block, location="memory://old"),),
        unchanged_blocks=7,
        segments_skipped=3,
        segments_read=2,
    )
    run = always(found)
    out = run("diff", "db.t", "s1", "--where", "a > 4").stdout
    assert "1 block added, 1 removed, 7 unchanged" in out
    assert [line.split()[0] for line in out.splitlines() if "memory://" in line] == ["+", "-"]
    assert "memory://" not in run("diff", "db.t", "s1", "s2", "--show", "0").stdout
    assert json.loads(run("diff", "db.t", "s1", "--json").stdout) == msgspec.to_builtins(found, str_keys=True) | {
        "added": [msgspec.to_builtins(block)],
        "removed": [msgspec.to_builtins(found.removed[0])],
    }
    assert run.bodies[0] == {"from_snapshot_id": "s1", "filter": "a > 4", **_FOR_PEOPLE}


def test_constants_are_shown_beside_the_blocks() -> None:
    """By name; with --json by column id, and only to a program that declares that it applies them."""
    blocks = (
        wire.PrunedBlock(
            location="memory://1", row_count=5, file_size=100, verdict="ALL", constants={1: Bound(int64=2024), 8: None}
        ),
        wire.PrunedBlock(location="memory://2", row_count=5, file_size=100, verdict="ALL"),
    )
    answer = msgspec.structs.replace(pruned(), blocks=blocks, block_columns=None)
    run = Run(lambda request: json_response(answer if request.body else INFO))
    assert "a=2024, column 8" in run("prune", "db.t").stdout
    found = json.loads(run("prune", "db.t", "--json", "--reader-features", "constants, deletes").stdout)
    assert found["blocks"][0]["constants"] == {"1": {"Int64": 2024}, "8": None}
    bodies = [json.loads(request.body) for request in run.fake.requests if request.body]
    assert [body.get("reader_features") for body in bodies] == [["constants", "deletes"]] * 2


def test_deleted_rows_are_counted_beside_the_blocks() -> None:
    """Of each block, and of the table; a question mark where the number is not known."""
    known = DeleteFile(kind="deletion_vector", location="memory://v", offset=4, length=40, cardinality=3)
    unknown = msgspec.structs.replace(known, cardinality=None)
    blocks = tuple(
        wire.PrunedBlock(location=f"memory://{number}", row_count=5, file_size=100, verdict="ALL", deletes=deletes)
        for number, deletes in enumerate(((known,), (unknown,), None))
    )
    answer = msgspec.structs.replace(pruned(), blocks=blocks, block_columns=None)
    lines = [line.split() for line in always(answer)("prune", "db.t").stdout.splitlines() if "memory://" in line]
    assert [line[:3] for line in lines] == [["ALL", "5", "3"], ["ALL", "5", "?"], ["ALL", "5", "0"]]
    info = msgspec.structs.replace(INFO, row_count=1_000, deletes_count=2, live_row_count=990)
    assert "990 (10 deleted in 2 blocks)" in always(info)("tables", "show", "db.t").stdout
    info = msgspec.structs.replace(info, live_row_count=None)
    assert "1,000 in the files" in always(info)("tables", "show", "db.t").stdout


def test_prune_shows_what_its_stages_did() -> None:
    """The limit, the time that ran out, the residuals, and each predicate layer by layer."""
    segment = wire.PrunedSegment(
        segment_id="g", location="memory://g", block_count=12, row_count=1, file_size_bytes=1, verdict="SOME"
    )
    use = wire.LayerUse(
        predicate="a > 4", layer="block", considered=3, none=1, some=0, all=1, unknown=1, reasons={"no bounds": 1}
    )
    plain = pruned()
    report = msgspec.structs.replace(
        plain.report, limit=wire.LimitUse(limit=5, certain_rows=1_200, decided=True), layers=(use,)
    )
    found = msgspec.structs.replace(
        plain,
        report=report,
        complete=False,
        unresolved=(segment,),
        residuals=(wire.Residual(sql="`a` > 4", tree=True, blocks=3),),
    )
    out = always(found)("prune", "db.t", "a > 4").stdout
    assert "1,200 rows are proven to match, enough for the limit of 5" in out
    assert "ran out: 1 segment with 12 blocks" in out
    assert "`a` > 4" in out
    assert "no bounds (1)" in out
