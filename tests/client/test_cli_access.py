"""`lamella keys`, `grants` and `whoami`: what they ask, what they show, and the whole way against a service."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from click.shell_completion import ShellComplete
from click.testing import CliRunner, Result

from fixtures_server import ServerProcess, StartServer
from lamella.client.cli.app import cli
from lamella.client.cli.connection import Target
from lamella.client.http import NO_RETRY, Lamella
from lamella.client.http.fake_transport import FakeTransport, json_response, problem_response
from lamella.client.http.transport import HttpRequest, HttpResponse, TransportFailure
from lamella.snapshot import wire
from lamella.snapshot.tokens import is_key, key_sha256, key_text

AT_MS = 1_700_000_000_000
READ = wire.GrantInfo(principal="key:etl", role="read", namespace="db", created_ms=AT_MS, created_by="user:ann")
WRITE = msgspec.structs.replace(READ, role="write", namespace="a.b", table="t")
ADMIN = msgspec.structs.replace(READ, role="admin", namespace=None)
MAY_READ, MAY_ALL = wire.Grant(role="read", namespace="db"), wire.Grant(role="admin")
ETL = wire.KeyInfo(
    name="etl",
    grants=(READ, WRITE, ADMIN),
    created_ms=AT_MS,
    created_by="user:ann",
    expires_ms=AT_MS + 1_000,
    used_ms=AT_MS + 2_000,
    old_until_ms=AT_MS + 3_000,
    requests_per_s=0.5,
)
BARE = wire.KeyInfo(name="bare", grants=(), created_ms=AT_MS, created_by="root")
NEW = wire.NewKey(key="lamella_text", info=ETL)
ME = wire.WhoAmI(principal="user:ann", kind="token", groups=("a", "b"), grants=(MAY_READ, MAY_ALL), expires_ms=AT_MS)


class Run:
    """Runs commands against a service that has one answer; ``target`` is how it was asked."""

    def __init__(self, answer: Any) -> None:
        given = answer if isinstance(answer, HttpResponse | TransportFailure) else json_response(answer)
        self.fake = FakeTransport(lambda _: given)
        self.target: Target | None = None

    def connect(self, target: Target) -> Lamella:
        """The client, which asks nobody."""
        self.target = target
        return Lamella(target.url, transport=self.fake, policy=NO_RETRY)

    def __call__(self, *args: str, env: dict[str, str | None] | None = None) -> Result:
        wide = {"COLUMNS": "200", "LAMELLA_TOKEN": None, "LAMELLA_TOKEN_FILE": None, **(env or {})}
        return CliRunner().invoke(cli, args, obj=self.connect, env=wide)

    @property
    def request(self) -> HttpRequest:
        """The last one."""
        return self.fake.requests[-1]

    @property
    def body(self) -> Any:
        """Of the last request."""
        return json.loads(self.request.body)


@pytest.mark.parametrize(
    ("args", "value"),
    [
        (("keys", "create", "etl"), NEW),
        (("keys", "list"), wire.KeyList(keys=(BARE, ETL))),
        (("keys", "show", "etl"), ETL),
        (("keys", "rotate", "etl"), NEW),
        (("grants", "list"), wire.GrantList(grants=(READ, WRITE))),
        (("grants", "give", "user:ann", "read", "*"), READ),
        (("whoami",), ME),
    ],
    ids=lambda value: " ".join(value[:2]) if isinstance(value, tuple) else "",
)
def test_json_is_the_wire_answer_and_nothing_else(args: tuple[str, ...], value: Any) -> None:
    """On one line of stdout."""
    result = Run(value)(*args, "--json")
    assert (result.exit_code, result.stdout.count("\n"), result.stderr) == (0, 1, "")
    assert json.loads(result.stdout) == json.loads(msgspec.json.encode(value))


@pytest.mark.parametrize(
    "args", [("keys", "revoke", "etl"), ("grants", "take", "user:ann", "*")], ids=lambda args: " ".join(args)
)
def test_an_answer_without_a_body_is_an_empty_object(args: tuple[str, ...]) -> None:
    """As with other commands."""
    assert Run(HttpResponse(status=204))(*args, "--json").stdout == "{}\n"


def test_a_new_key_can_be_sent_into_a_file() -> None:
    """Its text alone is on stdout; what is said about it is not."""
    for args in (("keys", "create", "etl"), ("keys", "rotate", "etl")):
        result = Run(NEW)(*args)
        assert result.stdout == "lamella_text\n"
        assert "key etl" in result.stderr
        assert "lamella_text" not in result.stderr


def test_a_key_is_requested_with_its_grants() -> None:
    """A role and a place each: everything, a namespace, or a table, whose namespace may have levels."""
    run = Run(NEW)
    grants = ("read:sales.*", "write:a.b.t", "maintain:a.b.*", "admin:*")
    given = [word for grant in grants for word in ("--grant", grant)]
    assert run("keys", "create", "etl", *given, "--expires", "90d", "--requests-per-s", "2.5").exit_code == 0
    assert run.body == {
        "name": "etl",
        "grants": [
            {"role": "read", "namespace": "sales", "table": None},
            {"role": "write", "namespace": "a.b", "table": "t"},
            {"role": "maintain", "namespace": "a.b", "table": None},
            {"role": "admin", "namespace": None, "table": None},
        ],
        "expires_s": 90 * 86_400,
        "requests_per_s": 2.5,
    }


def test_a_rotation_says_how_long_both_texts_hold() -> None:
    """A day, where nobody says otherwise."""
    run = Run(NEW)
    assert run("keys", "rotate", "etl").exit_code == 0
    assert run.body == {"overlap_s": 86_400, "expires_s": None}
    result = run("keys", "rotate", "etl", "--overlap", "0", "--expires", "12h")
    assert run.body == {"overlap_s": 0, "expires_s": 43_200}
    assert "2023-11-14T22:13:23.000Z" in result.stderr  # until then the old one holds


def test_a_profile_of_delta_sharing_has_the_text_of_the_key() -> None:
    """On stdout, and nothing else; with the key's end, when it has one."""
    made = Run(NEW)("keys", "create", "etl", "--share-profile", "https://lake.example.com/")
    assert json.loads(made.stdout) == {
        "shareCredentialsVersion": 1,
        "endpoint": "https://lake.example.com/delta-sharing",
        "bearerToken": "lamella_text",
        "expirationTime": "2023-11-14T22:13:21.000Z",
    }
    assert "lamella_text" not in made.stderr
    bare = Run(msgspec.structs.replace(NEW, info=BARE))
    rotated = bare("keys", "rotate", "etl", "--share-profile", "http://lake:8181/under")
    assert json.loads(rotated.stdout) == {
        "shareCredentialsVersion": 1,
        "endpoint": "http://lake:8181/under/delta-sharing",
        "bearerToken": "lamella_text",
    }


def test_keys_and_grants_are_shown_to_people() -> None:
    """With names of places as they are given on the command line."""
    listed = Run(wire.KeyList(keys=(BARE, ETL)))("keys", "list").stdout
    assert "read:db.*, write:a.b.t, admin:*" in listed
    assert "never" in listed
    shown = Run(ETL)("keys", "show", "etl").stdout
    for text in ("user:ann", "2023-11-14T22:13:21.000Z", "2023-11-14T22:13:23.000Z", "0.5"):
        assert text in shown
    assert "nothing" in Run(BARE)("keys", "show", "bare").stdout
    assert "a.b.t" in Run(wire.GrantList(grants=(WRITE,)))("grants", "list").stdout
    me = Run(ME)("whoami").stdout
    assert all(text in me for text in ("user:ann", "a, b", "db.*", "*", "admin"))
    open_ = Run(wire.WhoAmI(principal="anonymous", kind="open", grants=(MAY_ALL,)))("whoami").stdout
    assert "does not authenticate" in open_


def test_grants_are_given_and_taken_by_scope() -> None:
    """And listed of one principal, or of all."""
    run = Run(READ)
    assert "key:etl has the role read on db.*" in run("grants", "give", "key:etl", "read", "db.*").stdout
    assert run.body == {"principal": "key:etl", "role": "read", "namespace": "db", "table": None}
    assert run("grants", "take", "group:a b", "a.b.t").exit_code == 0
    assert (run.body["principal"], run.body["namespace"], run.body["table"]) == ("group:a b", "a.b", "t")
    run = Run(wire.GrantList(grants=()))
    run("grants", "list", "--principal", "user:ann")
    assert run.request.target == "/v1/grants?principal=user%3Aann"


@pytest.mark.parametrize(
    "args",
    [
        ("keys", "create"),
        ("keys", "create", "x", "--grant", "read"),
        ("keys", "create", "x", "--grant", "sales.*"),
        ("keys", "create", "x", "--grant", "own:sales.*"),
        ("keys", "create", "x", "--grant", "read:"),
        ("keys", "create", "x", "--grant", "read:sales"),
        ("keys", "create", "x", "--grant", "read:.*"),
        ("keys", "create", "x", "--grant", "read:.t"),
        ("keys", "create", "x", "--grant", "Read:*"),
        ("keys", "create", "x", "--expires", "soon"),
        ("keys", "create", "x", "--requests-per-s", "0"),
        ("keys", "create", "x", "--share-profile", "lake.example.com"),
        ("keys", "create", "x", "--share-profile", "ftp://lake.example.com"),
        ("keys", "rotate", "x", "--share-profile", "https://lake.example.com?a=b"),
        ("keys", "rotate", "x", "--overlap", "-1"),
        ("grants", "give", "user:ann", "owner", "*"),
        ("grants", "give", "user:ann", "read", "sales"),
        ("grants", "give", "user:ann", "read"),
        ("grants", "take", "user:ann", ""),
        ("whoami", "--token", "a", "--token-file", "b"),
    ],
    ids=lambda args: " ".join(args),
)
def test_wrong_usage_asks_nothing(args: tuple[str, ...]) -> None:
    """A role without a place, or a place that is none, is told at once."""
    run = Run(NEW)
    result = run(*args)
    assert (result.exit_code, result.stdout) == (2, "")
    assert run.fake.requests == []


def test_a_scope_that_is_none_is_explained() -> None:
    """With the three forms that there are."""
    result = Run(NEW)("grants", "give", "user:ann", "read", "sales")
    assert "NAMESPACE.*" in result.stderr
    assert "NAMESPACE.TABLE" in result.stderr


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (problem_response(401, "unauthenticated", "no"), ("LAMELLA_TOKEN", "--token-file")),
        (problem_response(403, "permission_denied", "no"), ("lamella whoami",)),
        (problem_response(429, "rate_limited", "too often"), ("[rate_limited]",)),
        (problem_response(404, "key_not_found", "no"), ("[key_not_found]",)),
        (TransportFailure("reset", sent=True), ("[outcome_unknown]", "revoke the key", "check the state before")),
    ],
    ids=["401", "403", "429", "404", "lost"],
)
def test_a_failure_says_what_helps(answer: HttpResponse | TransportFailure, words: tuple[str, ...]) -> None:
    """In one line, with exit status 1."""
    result = Run(answer)("keys", "create", "etl", "--grant", "read:*")
    assert (result.exit_code, result.stdout, result.stderr.count("\n")) == (1, "", 1)
    assert all(word in result.stderr for word in words)


def test_an_option_for_the_token_wins_over_a_variable() -> None:
    """Of the token and of its file; two options, or two variables, are one too many."""
    run = Run(ME)

    def shown(*args: str, **env: str) -> tuple[int, str | None, str | None]:
        done = run("whoami", *args, env=dict(env))
        assert run.target is not None
        return done.exit_code, run.target.token, run.target.token_file

    assert shown(LAMELLA_TOKEN="t") == (0, "t", None)
    assert shown(LAMELLA_TOKEN_FILE="f") == (0, None, "f")
    assert shown("--token", "o", LAMELLA_TOKEN_FILE="f") == (0, "o", None)
    assert shown("--token-file", "o", LAMELLA_TOKEN="t") == (0, None, "o")
    assert shown("--token-file", "o", LAMELLA_TOKEN_FILE="f", LAMELLA_TOKEN="") == (0, None, "o")
    assert shown(LAMELLA_TOKEN="t", LAMELLA_TOKEN_FILE="f")[0] == 2
    assert shown("--token", "t", "--token-file", "f")[0] == 2


def test_a_first_key_is_made_without_a_service() -> None:
    """Another one each time, with the hash that the service is told."""
    run = Run(TransportFailure("nobody is there", sent=False))
    texts = []
    for _ in range(3):
        found = re.fullmatch(r"key: (\S+)\nLAMELLA_ROOT_KEY_SHA256=([0-9a-f]{64})\n", run("keys", "new").stdout)
        assert found is not None
        assert is_key(found[1])
        assert key_sha256(found[1]) == found[2]
        texts.append(found[1])
    made = json.loads(run("keys", "new", "--json").stdout)
    assert key_sha256(made["key"]) == made["sha256"]
    assert len({*texts, made["key"]}) == 4
    assert run.fake.requests == []


def completions(run: Run, *words: str) -> list[str]:
    """What a shell would offer for the last word."""
    shell = ShellComplete(cli, {"obj": run.connect}, "lamella", "_LAMELLA_COMPLETE")
    return [str(item.value) for item in shell.get_completions(list(words[:-1]), words[-1])]


def test_a_shell_completes_names_of_keys_roles_and_principals() -> None:
    """Names are those that the service knows."""
    run = Run(wire.KeyList(keys=(BARE, ETL)))
    for command in ("show", "rotate", "revoke"):
        assert completions(run, "keys", command, "") == ["bare", "etl"]
    assert completions(run, "keys", "show", "e") == ["etl"]
    assert completions(run, "keys", "show", "--url", "http://other", "b") == ["bare"]
    assert run.target is not None
    assert run.target.url == "http://other"
    assert completions(run, "keys", "create", "x", "--grant", "") == ["read:", "write:", "maintain:", "admin:"]
    assert completions(run, "keys", "create", "x", "--grant", "m") == ["maintain:"]
    assert completions(run, "grants", "give", "") == ["key:", "user:", "group:"]
    assert completions(run, "grants", "give", "key:e") == ["key:etl"]
    assert completions(run, "grants", "give", "user:ann", "m") == ["maintain"]
    assert completions(run, "grants", "list", "--principal", "key:") == ["key:bare", "key:etl"]


def test_a_shell_is_offered_nothing_where_the_service_does_not_answer() -> None:
    """And shows no error while one types."""
    for answer in (TransportFailure("nobody is there", sent=False), problem_response(401, "unauthenticated")):
        assert completions(Run(answer), "keys", "show", "") == []
    assert completions(Run(BARE), "keys", "show", "--token", "a", "--token-file", "b", "") == []


ROOT_KEY = key_text(b"r" * 32)


@pytest.fixture
def guarded(start_server: StartServer, tmp_path: Path) -> ServerProcess:
    """A service that asks for keys."""
    return start_server(warehouse=tmp_path / "warehouse", auth="true", root_key_sha256=key_sha256(ROOT_KEY))


Command = Callable[..., Result]


@pytest.fixture
def lamella(guarded: ServerProcess) -> Command:
    """The command, with a key's text."""

    def run(token: str | None, *words: str) -> Result:
        env = {"LAMELLA_URL": guarded.url, "LAMELLA_TOKEN": token, "LAMELLA_TOKEN_FILE": None, "COLUMNS": "200"}
        return CliRunner().invoke(cli, words, env=env)

    return run


def test_a_key_goes_its_way_from_the_first_one_to_its_end(lamella: Command, tmp_path: Path) -> None:
    """Made by the root, used for what it may, given more, rotated while it is in use, and revoked."""

    def done(token: str | None, *words: str) -> str:
        result = lamella(token, *words)
        assert result.exit_code == 0, result.output
        return result.stdout

    def refused(token: str | None, *words: str) -> str:
        result = lamella(token, *words)
        assert result.exit_code == 1, result.output
        return str(re.findall(r"\[(\w+)\]", result.stderr)[0])

    assert refused(None, "namespaces", "list") == "unauthenticated"
    assert refused(key_text(b"x" * 32), "namespaces", "list") == "unauthenticated"
    for namespace in ("db", "other"):
        done(ROOT_KEY, "namespaces", "create", namespace)
        done(ROOT_KEY, "tables", "create", f"{namespace}.t", "--column", "a:bigint")
    etl = done(ROOT_KEY, "keys", "create", "etl", "--grant", "read:db.*", "--expires", "1d").strip()
    assert is_key(etl)
    assert json.loads(done(etl, "whoami", "--json"))["principal"] == "key:etl"
    assert json.loads(done(etl, "namespaces", "list", "--json")) == {"namespaces": [{"name": "db", "properties": {}}]}
    done(etl, "tables", "show", "db.t")
    assert refused(etl, "tables", "show", "other.t") == "namespace_not_found"
    assert refused(etl, "tables", "create", "db.u", "--column", "a:bigint") == "permission_denied"
    assert refused(etl, "keys", "create", "more", "--grant", "read:db.*") == "permission_denied"
    assert refused(etl, "grants", "give", "key:etl", "admin", "db.*") == "permission_denied"
    done(ROOT_KEY, "grants", "give", "key:etl", "admin", "db.*")
    helper = done(etl, "keys", "create", "helper", "--grant", "write:db.t").strip()
    assert "helper" in done(etl, "keys", "list")
    assert refused(helper, "keys", "show", "etl") == "key_not_found"
    assert "key:helper" in done(etl, "grants", "list")
    file = tmp_path / "etl.key"
    file.write_text(done(ROOT_KEY, "keys", "rotate", "etl", "--overlap", "1h"))
    done(etl, "tables", "show", "db.t")
    done(None, "tables", "show", "db.t", "--token-file", str(file))
    file.write_text(done(ROOT_KEY, "keys", "rotate", "etl", "--overlap", "0"))
    assert refused(etl, "tables", "show", "db.t") == "unauthenticated"
    done(None, "tables", "show", "db.t", "--token-file", str(file))
    done(ROOT_KEY, "grants", "take", "key:etl", "db.*")
    assert refused(file.read_text().strip(), "tables", "show", "db.t") == "namespace_not_found"
    done(ROOT_KEY, "keys", "revoke", "etl")
    assert refused(file.read_text().strip(), "tables", "show", "db.t") == "unauthenticated"
    assert refused(ROOT_KEY, "keys", "revoke", "etl") == "key_not_found"
    trail = done(ROOT_KEY, "audit", "--limit", "100")
    assert "key:etl" in trail
    assert not any(text in trail for text in (etl, helper, ROOT_KEY))


def test_a_worker_and_its_programs_show_the_key_of_a_file(
    lamella: Command, guarded: ServerProcess, tmp_path: Path
) -> None:
    """Its programs are told the file, and not what is in it."""
    for words in (("namespaces", "create", "db"), ("tables", "create", "db.t", "--column", "a:bigint")):
        assert lamella(ROOT_KEY, *words).exit_code == 0
    file = tmp_path / "worker.key"
    file.write_text(lamella(ROOT_KEY, "keys", "create", "worker", "--grant", "maintain:*").stdout)
    submitted = json.loads(lamella(ROOT_KEY, "job", "submit", "verify", "db.t", "--json").stdout)
    ended = lamella(None, "worker", "--once", "--poll-s", "0.1", "--token-file", str(file))
    assert ended.exit_code == 0, ended.output
    job = json.loads(lamella(ROOT_KEY, "job", "show", submitted["job_id"], "--json").stdout)
    assert (job["state"], job["attempts"]) == ("succeeded", 1)
    assert file.read_text().strip() not in guarded.log_text()
