"""By which names a service that asks nobody who they are may be asked for."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.requests import Request

from lamella.service.access.authenticator import AllowedHosts
from lamella.snapshot.errors import PermissionDenied


def is_taken(hosts: AllowedHosts, host: str | None) -> bool:
    """Whether a request with that ``Host`` is let in, each time that it comes."""
    headers = [] if host is None else [(b"host", host.encode("latin-1"))]
    found = []
    for _ in range(2):  # what was let in is remembered
        try:
            hosts.check(Request({"type": "http", "headers": headers}))
        except PermissionDenied:
            found.append(False)
        else:
            found.append(True)
    assert found[0] == found[1]
    return found[0]


@pytest.fixture
def hosts() -> AllowedHosts:
    """Of a service without authentication."""
    return AllowedHosts((), check_all=True)


@pytest.mark.parametrize(
    "host",
    [
        "localhost",
        "localhost:8181",
        "LocalHost:8181",
        "127.0.0.1",
        "127.0.0.1:8181",
        "127.1.2.3:80",
        "192.168.1.7:8181",
        "[::1]",
        "[::1]:8181",
        "[2001:db8::7]:8181",
        "[fe80::1%eth0]:8181",
        "::1",
        "lamella:8181",
        "lamella",
        "",
        None,
    ],
)
def test_addresses_and_names_of_the_house_are_taken(hosts: AllowedHosts, host: str | None) -> None:
    """Nobody out there can have them point somewhere else; what says no name is no browser."""
    assert is_taken(hosts, host)


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "evil.example:8181",
        "EVIL.EXAMPLE",
        "evil.example.",
        "localhost.evil.example",
        "127.0.0.1.evil.example:8181",
        "127.0.0.1.nip.io",
        "localhost.",
        "127.0.0.1.",
        "127.0.0.1:8181.evil.example",
        "evil.example:80:8181",
        "evil.example:",
        "user@evil.example",
        "localhost@evil.example:80",
        "[::1].evil.example",
        "[::1]:8181.evil.example",
        "[evil.example]",
        "::1.evil.example",
        "127.0.0.256",
        "127.0.0.1/24",
        "0x7f.1",
        "127.1",
        "xn--evil-7qa.example",
        "evil.example, localhost",
        "evil.example localhost",
        "evil.example\tlocalhost",
    ],
)
def test_names_that_anybody_can_give_out_are_refused(hosts: AllowedHosts, host: str) -> None:
    """A web page at such a name could read what a browser on this machine may see ("DNS rebinding")."""
    assert not is_taken(hosts, host)


@given(st.from_regex(r"[a-z0-9-]{1,10}(\.[a-z0-9-]{1,10}){1,4}\.[a-z]{2,6}", fullmatch=True), st.integers(0, 65_535))
def test_no_name_with_a_dot_is_taken_that_is_no_address(name: str, port: int) -> None:
    """With a port or without, before and after others were taken."""
    hosts = AllowedHosts((), check_all=True)
    assert is_taken(hosts, f"localhost:{port}")
    assert not is_taken(hosts, name)
    assert not is_taken(hosts, f"{name}:{port}")


def test_the_settings_can_allow_more() -> None:
    """By whole names, in any case of letters; neither what is above nor what is below."""
    hosts = AllowedHosts(("Lake.Example.com",), check_all=True)
    assert is_taken(hosts, "lake.example.com")
    assert is_taken(hosts, "LAKE.example.com:8443")
    assert is_taken(hosts, "localhost")
    for host in ("example.com", "x.lake.example.com", "lake.example.com.evil.example", "lake.example.comm"):
        assert not is_taken(hosts, host)


def test_names_are_checked_where_keys_are_required_only_if_some_are_listed() -> None:
    """A page that has no key reads nothing by any name."""
    assert is_taken(AllowedHosts((), check_all=False), "evil.example")
    listed = AllowedHosts(("lake.example.com",), check_all=False)
    assert is_taken(listed, "lake.example.com")
    assert not is_taken(listed, "evil.example")


def test_only_so_many_names_are_remembered(hosts: AllowedHosts) -> None:
    """Whoever sends a thousand of them has each looked at, and takes no memory."""
    for port in range(1_000):
        assert is_taken(hosts, f"localhost:{port}")
    assert len(hosts._seen) == 100
    assert is_taken(hosts, "127.0.0.1:8181")
    assert not is_taken(hosts, "evil.example:8181")
