"""Which service a client without a URL talks to, and with which key."""

from __future__ import annotations

import asyncio
from pathlib import Path

import click
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from lamella.client import AsyncLamella, Lamella
from lamella.client.cli.app import cli
from lamella.client.cli.connection import DEFAULT_URL, Target
from lamella.client.http.fake_transport import AsyncFakeTransport, FakeTransport, json_response
from lamella.client.http.profiles import Service, service_of
from lamella.snapshot.errors import InvalidRequest
from lamella.snapshot.wire import NamespaceList

TOKEN = "sesame-0123456789"
FILE = f"""
[default]
url = "http://default:1"

[lake]
url = "http://lake:2"
token = "{TOKEN}"

[files]
url = "http://files:3"
token_file = "key"
"""


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """Variables that name a file of three profiles."""
    path = tmp_path / "profiles.toml"
    path.write_text(FILE, "utf-8")
    return {"LAMELLA_PROFILES_FILE": str(path)}


def test_a_url_is_used_as_it_is(environment: dict[str, str]) -> None:
    """The environment and the profiles have no say: a key of another service is not sent."""
    variables = environment | {"LAMELLA_URL": "http://env:4", "LAMELLA_TOKEN": "env", "LAMELLA_PROFILE": "lake"}
    assert service_of("http://given:5", None, None, None, variables) == Service(url="http://given:5")


def test_the_order_is_profile_url_variable_profile_variable_default(environment: dict[str, str]) -> None:
    """Each has the key that belongs to it."""
    env = environment | {"LAMELLA_TOKEN": "env"}
    lake = Service(url="http://lake:2", token=TOKEN)
    assert service_of(None, None, None, "lake", env | {"LAMELLA_URL": "http://env:4"}) == lake
    both = env | {"LAMELLA_URL": "http://env:4", "LAMELLA_PROFILE": "lake"}
    assert service_of(None, None, None, None, both) == Service(url="http://env:4", token="env")
    assert service_of(None, None, None, None, env | {"LAMELLA_PROFILE": "lake"}) == lake
    assert service_of(None, None, None, None, env) == Service(url="http://default:1", token="env")
    assert service_of(None, None, None, None, environment) == Service(url="http://default:1")


def test_a_key_that_is_given_replaces_that_of_the_profile(environment: dict[str, str]) -> None:
    """A token, or a file."""
    assert service_of(None, "mine", None, "lake", environment) == Service(url="http://lake:2", token="mine")
    assert service_of(None, None, "f", "lake", environment) == Service(url="http://lake:2", token_file="f")


def test_a_token_file_is_found_beside_the_profiles(environment: dict[str, str], tmp_path: Path) -> None:
    """Whatever the working directory is."""
    assert service_of(None, None, None, "files", environment).token_file == tmp_path / "key"


def test_the_file_is_below_the_home_folder(tmp_path: Path) -> None:
    """Or the folder for configuration."""
    folder = tmp_path / ".config" / "lamella"
    folder.mkdir(parents=True)
    (folder / "profiles.toml").write_text('default.url = "http://home:6"', "utf-8")
    assert service_of(None, None, None, None, {"HOME": str(tmp_path)}).url == "http://home:6"
    assert service_of(None, None, None, None, {"XDG_CONFIG_HOME": str(tmp_path / ".config")}).url == "http://home:6"


def test_an_error_names_all_that_was_looked_at(tmp_path: Path) -> None:
    """Variables, profiles and the file."""
    with pytest.raises(InvalidRequest) as error:
        service_of(None, None, None, None, {"HOME": str(tmp_path)})
    for part in ("LAMELLA_URL", "LAMELLA_PROFILE", "'default'", f"{tmp_path}/.config/lamella/profiles.toml"):
        assert part in error.value.message


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("[other]\nurl = 'http://x'", "has no profile 'lake'; it has other"),
        ("", "it has none"),
        (f"[lake]\ntoken = '{TOKEN}'", "has no url"),
        (f"[lake]\nurl = 5\ntoken = '{TOKEN}'", "has no url"),
        (f"[lake]\nurl = 'http://x'\nkey = '{TOKEN}'", "has key: its members are url, token, token_file"),
        (f"[lake]\nurl = 'http://x'\ntoken = ['{TOKEN}']", "are texts"),
        (f"[lake]\nurl = 'http://x'\ntoken = '{TOKEN} x'", "printable ASCII"),
        (f"[lake]\nurl = 'http://x'\ntoken = '{TOKEN}'\ntoken_file = 'f'", "keep one of them"),
        (f"[lake]\nurl = 'http://x'\ntoken = '{TOKEN}", "not valid TOML"),
        (f"[lake]\nurl = 'http://x'\n{TOKEN}", "not valid TOML"),
        ("lake = 'http://x'", "has no url"),
    ],
)
def test_a_wrong_profile_is_refused_without_showing_its_key(text: str, part: str, tmp_path: Path) -> None:
    """What is wrong, and where."""
    path = tmp_path / "p.toml"
    path.write_text(text, "utf-8")
    with pytest.raises(InvalidRequest) as error:
        service_of(None, None, None, "lake", {"LAMELLA_PROFILES_FILE": str(path)})
    assert part in error.value.message
    assert str(path) in error.value.message
    shown = f"{error.value!r} {error.value.details} {error.value.__cause__!r}"
    assert TOKEN not in shown


def test_a_profile_that_is_named_must_exist(tmp_path: Path) -> None:
    """By an argument or a variable; only the default one may be missing."""
    for profile, variables in (("lake", {}), (None, {"LAMELLA_PROFILE": "lake"})):
        with pytest.raises(InvalidRequest, match="does not exist"):
            service_of(None, None, None, profile, {"HOME": str(tmp_path), **variables})
    with pytest.raises(InvalidRequest, match="either a url or a profile"):
        service_of("http://x", None, None, "lake", {})


@given(text=st.text(max_size=80))
def test_any_file_is_read_or_refused(text: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    """With an error of ours."""
    path = tmp_path_factory.getbasetemp() / "any.toml"
    path.write_text(text, "utf-8", errors="replace")
    with pytest.raises(InvalidRequest):
        service_of(None, None, None, "lake", {"LAMELLA_PROFILES_FILE": str(path)})


def test_both_clients_find_their_service(environment: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Without arguments, and by a profile; the key is sent, and not shown."""
    for name, value in (environment | {"LAMELLA_PROFILE": "lake"}).items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("LAMELLA_URL", raising=False)
    monkeypatch.delenv("LAMELLA_TOKEN", raising=False)
    transport = FakeTransport(lambda _: json_response(NamespaceList(namespaces=())))
    with Lamella(transport=transport) as lake:
        assert lake.url == "http://lake:2"
        assert lake.namespaces() == ()
        assert TOKEN not in repr(lake)
    assert dict(transport.requests[0].headers)["Authorization"] == f"Bearer {TOKEN}"

    async def go() -> str:
        async with AsyncLamella(
            profile="default", transport=AsyncFakeTransport(lambda _: json_response(NamespaceList(namespaces=())))
        ) as lake:
            return lake.url

    assert asyncio.run(go()) == "http://default:1"
    assert TOKEN not in repr(service_of(None, None, None, "lake", environment))


def target_of(environment: dict[str, str], *words: str) -> Target | str:
    """What the command line makes of options and variables; the text of a refusal."""
    found: list[Target] = []

    def connect(target: Target) -> Lamella:
        found.append(target)
        return Lamella(target.url, transport=FakeTransport(lambda _: json_response(NamespaceList(namespaces=()))))

    unset: dict[str, str | None] = dict.fromkeys(("LAMELLA_URL", "LAMELLA_PROFILE", "LAMELLA_TOKEN"))
    result = CliRunner().invoke(cli, ["namespaces", "list", *words], obj=connect, env={**unset, **environment})
    if not found:
        assert result.exit_code != 0
        assert TOKEN not in result.output
        return result.output
    assert isinstance(result.exception, SystemExit | None | click.ClickException)
    return found[0]


def test_the_command_line_finds_the_same(environment: dict[str, str], tmp_path: Path) -> None:
    """Options override variables, and without any of them there is a default address."""
    lake = Target(url="http://lake:2", token=TOKEN, timeout_s=60.0)
    url = {"LAMELLA_URL": "http://env:4", "LAMELLA_TOKEN": "env"}
    assert target_of(environment, "--profile", "lake") == lake
    assert target_of(environment | url, "--profile", "lake") == lake
    assert target_of(environment | {"LAMELLA_PROFILE": "lake"}) == lake
    assert target_of(environment | {"LAMELLA_PROFILE": "lake"} | url) == Target(
        url="http://env:4", token="env", timeout_s=60.0
    )
    assert target_of(environment | {"LAMELLA_PROFILE": "lake"}, "--url", "http://option:7") == Target(
        url="http://option:7", token=None, timeout_s=60.0
    )
    assert target_of(environment, "--profile", "lake", "--token", "mine") == Target(
        url="http://lake:2", token="mine", timeout_s=60.0
    )
    assert target_of(environment) == Target(url="http://default:1", token=None, timeout_s=60.0)
    assert target_of(environment, "--profile", "files") == Target(
        url="http://files:3", token=None, token_file=str(tmp_path / "key"), timeout_s=60.0
    )
    nothing = {"LAMELLA_PROFILES_FILE": str(tmp_path / "none.toml")}
    assert target_of(nothing) == Target(url=DEFAULT_URL, token=None, timeout_s=60.0)
    assert "does not exist" in str(target_of(nothing, "--profile", "lake"))
    assert "give one of --url and --profile" in str(target_of(environment, "--profile", "lake", "--url", "http://x"))
