"""Kinds of jobs: their arguments, and the commands that they become."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import msgspec
import pytest

from lamella.client.cli.app import cli
from lamella.client.jobs.program import environment_of, program_of
from lamella.client.jobs.report import ATTEMPT, CHECKPOINT, JOB_ID, LEASE
from lamella.snapshot.errors import InvalidRequest
from lamella.snapshot.job_kinds import BUILTIN, JobKind, check_arguments, command_line, job_kind_named, job_kinds
from lamella.snapshot.wire import ClaimAnswer, JobInfo
from support.job_kinds import install_pretend


def claimed(kind: str, table: str | None = "db.t", checkpoint: Any = None, **arguments: Any) -> ClaimAnswer:
    """A job that a worker got."""
    job = JobInfo(
        job_id="j",
        kind=kind,
        state="running",
        origin="request",
        arguments=arguments,
        priority=0,
        attempts=2,
        max_attempts=3,
        created_ms=1,
        not_before_ms=0,
        cancel_requested=False,
    )
    return ClaimAnswer(job=job, table=table, checkpoint=checkpoint)


def commands(kind: JobKind) -> Iterator[click.Command]:
    """The command of the command line that a kind becomes, if it is there."""
    found: click.Command = cli
    for word in kind.command:
        if isinstance(found, click.Group):
            if word not in found.commands:
                return
            found = found.commands[word]
    yield found


@pytest.mark.parametrize("kind", BUILTIN, ids=lambda kind: str(kind.name))
def test_every_argument_is_an_option_of_the_kinds_command(kind: JobKind) -> None:
    """What the service takes, the command takes, in the place and under the name that the worker gives it."""
    for command in commands(kind):
        options = {option for parameter in command.params for option in parameter.opts + parameter.secondary_opts}
        positional = [p for p in command.params if isinstance(p, click.Argument)]
        for field in msgspec.structs.fields(kind.arguments):
            if field.name in kind.positional:
                assert field.name in [p.name for p in positional] or len(positional) > 1
            else:
                assert "--" + field.name.replace("_", "-") in options, (kind.name, field.name)
        assert len(positional) >= kind.needs_table + len(kind.positional)
        assert "--json" in options


@pytest.mark.parametrize(
    ("kind", "arguments", "words"),
    [
        ("vacuum", {}, ["vacuum", "--", "db.t"]),
        ("vacuum", {"execute": True, "older_than": "7d"}, ["vacuum", "--execute", "--older-than=7d", "--", "db.t"]),
        ("vacuum", {"execute": False}, ["vacuum", "--", "db.t"]),
        ("index_refresh", {"index": "-i", "mode": "full"}, ["index", "refresh", "--mode=full", "--", "db.t", "-i"]),
        (
            "analyze",
            {"columns": "a, -b", "max_blocks": 3},
            ["analyze", "--columns=a, -b", "--max-blocks=3", "--", "db.t"],
        ),
        ("delete", {"where": "--a = 1"}, ["delete", "--where=--a = 1", "--", "db.t"]),
        ("update", {"set": {"a": "b = c"}, "all": True}, ["update", "--set=a=b = c", "--all", "--", "db.t"]),
        ("update", {"set": {"a": "1"}, "where": "b = 2"}, ["update", "--set=a=1", "--where=b = 2", "--", "db.t"]),
        ("recluster", {"min_gain": 0.5}, ["recluster", "--min-gain=0.5", "--", "db.t"]),
    ],
)
def test_arguments_become_options(kind: str, arguments: dict[str, Any], words: list[str]) -> None:
    """Flags without a value, values behind an equals sign, names last, so that no value is taken for an option."""
    assert command_line(job_kind_named(kind), "db.t", arguments) == words


def test_a_kind_without_a_table_is_a_command_without_one() -> None:
    """And one that needs a table is none without."""
    assert command_line(job_kind_named("vacuum_dropped"), None, {"execute": True}) == [
        "vacuum",
        "--dropped",
        "--execute",
    ]
    with pytest.raises(InvalidRequest, match="requires a table"):
        command_line(job_kind_named("vacuum"), None, {})


@pytest.mark.parametrize(
    ("kind", "arguments", "path"),
    [
        ("compact", {"max_bites": 1}, "$.arguments"),
        ("compact", {"max_bytes": 0}, "$.arguments.max_bytes"),
        ("compact", {"where": ""}, "$.arguments.where"),
        ("compact", {"where": "a\0b"}, "$.arguments.where"),
        ("delete", {}, "$.arguments"),
        ("update", {"set": {}}, "$.arguments.set"),
        ("update", {"set": {"a": 1}}, "$.arguments.set[...]"),
        ("update", {"set": {"a": "1"}}, "$.arguments"),
        ("update", {"set": {"a": "1"}, "all": False}, "$.arguments"),
        ("update", {"set": {"a": "1"}, "where": "b = 2", "all": True}, "$.arguments"),
        ("index_refresh", {"index": "i", "mode": "all"}, "$.arguments.mode"),
        ("verify", {"sample": 2}, "$.arguments.sample"),
    ],
)
def test_wrong_arguments_are_refused_with_their_position(kind: str, arguments: dict[str, Any], path: str) -> None:
    """An unknown name, a missing one, a wrong type, a number out of its range."""
    with pytest.raises(InvalidRequest) as refused:
        check_arguments(job_kind_named(kind), arguments)
    assert refused.value.details["path"] == path


def test_a_kind_that_is_not_there_is_refused_by_name() -> None:
    """The answer says which kinds there are."""
    with pytest.raises(InvalidRequest, match=r"no job kind 'compat'; there are analyze, auto, compact, delete"):
        job_kind_named("compat")


def test_other_packages_bring_kinds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An entry point is enough; a name that is taken is refused."""
    install_pretend(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    job_kinds.cache_clear()
    assert set(job_kinds()) == {*(kind.name for kind in BUILTIN), "pretend"}
    assert program_of(claimed("pretend", ledger="/x"), ["spark-submit"])[1].endswith("job_program.py")
    second = tmp_path / "other-1.0.dist-info"
    second.mkdir()
    (second / "METADATA").write_text("Metadata-Version: 2.1\nName: other\nVersion: 1.0\n", "utf-8")
    (second / "entry_points.txt").write_text("[lamella.job_kinds]\nx = pretended_jobs:KIND\n", "utf-8")
    job_kinds.cache_clear()
    with pytest.raises(InvalidRequest, match="two job kinds have the name 'pretend'"):
        job_kinds()
    job_kinds.cache_clear()


def test_a_prefix_stands_before_programs_for_a_cluster_only() -> None:
    """There the program is a file, as `spark-submit` wants it; what needs no Spark is started as ever."""
    submit = ["spark-submit", "--master", "spark://host:7077"]
    words = program_of(claimed("compact"), submit)
    assert words[:3] == submit
    assert Path(words[3]).is_file()
    assert words[4:] == ["compact", "--json", "--", "db.t"]
    plain = program_of(claimed("vacuum"), submit)
    assert plain[1:] == ["-m", "lamella.client.cli", "vacuum", "--json", "--", "db.t"]
    assert program_of(claimed("compact"), [])[1:4] == ["-m", "lamella.client.cli", "compact"]


def test_a_program_knows_its_job_and_its_service() -> None:
    """By variables, which come through whatever starts it; another job's checkpoint is not among them."""
    base = {"PATH": "/bin", CHECKPOINT: "[1]"}
    found = environment_of(claimed("vacuum"), "lease", "http://x", "secret", base)
    assert found["PATH"] == "/bin"
    assert (found[JOB_ID], found[LEASE], found[ATTEMPT]) == ("j", "lease", "2")
    assert (found["LAMELLA_URL"], found["LAMELLA_TOKEN"]) == ("http://x", "secret")
    assert CHECKPOINT not in found
    resumed = environment_of(claimed("vacuum", checkpoint={"at": 3}), "lease", "http://x", None, base)
    assert resumed[CHECKPOINT] == '{"at":3}'
    assert "LAMELLA_TOKEN" not in resumed
    with pytest.raises(InvalidRequest, match="too long"):
        environment_of(claimed("vacuum", checkpoint="x" * 200_000), "lease", "http://x", None, base)


def test_a_program_is_given_one_key() -> None:
    """The worker's own, or the file that holds it, whatever this process was given; of two it could not choose."""
    base = {"LAMELLA_TOKEN": "t", "LAMELLA_TOKEN_FILE": "/f"}

    def tokens(token: str | None, token_file: str | None, given: dict[str, str]) -> tuple[str | None, str | None]:
        found = environment_of(claimed("vacuum"), "lease", "http://x", token, given, token_file=token_file)
        return found.get("LAMELLA_TOKEN"), found.get("LAMELLA_TOKEN_FILE")

    assert tokens("own", None, base) == ("own", None)
    assert tokens(None, "/own", base) == (None, "/own")
    assert tokens(None, None, {"LAMELLA_TOKEN_FILE": "/f"}) == (None, "/f")
