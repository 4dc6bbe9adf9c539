"""The cookie of a log-in: what it holds, and which ones are believed."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.requests import Request
from starlette.responses import Response

from lamella.service.access.authenticator import COOKIE, Session, Sessions
from lamella.snapshot.tokens import SignedTokens

SECRET = b"s" * 32
NOW_MS = 1_700_000_000_000
BY_KEY = Session(expires_ms=NOW_MS + 60_000, key_sha256="ab" * 32)
BY_NAMES = Session(expires_ms=NOW_MS + 60_000, names=("user:ann", "group:a"))
#: What browsers take of one cookie, with its name and all that follows it (RFC 6265, section 6.1).
MAX_BYTES = 4_096


def sessions(now_ms: int = NOW_MS, secret: bytes = SECRET) -> Sessions:
    """Of a service that knows the secret."""
    return Sessions(secret, lambda: now_ms)


def cookie_of(session: Session, *, secure: bool = True) -> str:
    """The header that a browser gets."""
    response = Response()
    sessions().start(response, session, secure=secure)
    return response.headers["set-cookie"]


def text_of(session: Session) -> str:
    """What the browser sends back."""
    return cookie_of(session).partition(";")[0].partition("=")[2]


def shown(text: str) -> Request:
    """A request with a cookie."""
    headers = [(b"cookie", f"other=1; {COOKIE}={text}".encode("latin-1", "replace"))]
    return Request({"type": "http", "headers": headers})


@pytest.mark.parametrize("session", [BY_KEY, BY_NAMES], ids=["key", "names"])
def test_a_cookie_says_who_logged_in_to_every_replica(session: Session) -> None:
    """Whatever process reads it, as long as it has the secret."""
    assert sessions().of(shown(text_of(session))) == session
    assert sessions(secret=b"t" * 32).of(shown(text_of(session))) is None


def test_a_request_without_a_cookie_is_of_nobody() -> None:
    """And so is one with another's."""
    assert sessions().of(Request({"type": "http", "headers": []})) is None
    assert sessions().of(Request({"type": "http", "headers": [(b"cookie", b"other=1")]})) is None


def test_a_session_ends_to_the_millisecond() -> None:
    """The browser is told so too, but what counts is what is signed."""
    text = text_of(BY_KEY)
    assert sessions(BY_KEY.expires_ms - 1).of(shown(text)) == BY_KEY
    assert sessions(BY_KEY.expires_ms).of(shown(text)) is None
    assert "Max-Age=60;" in cookie_of(BY_KEY)
    assert "Max-Age=0;" in cookie_of(msgspec.structs.replace(BY_KEY, expires_ms=1))


@given(st.data())
def test_a_cookie_that_was_altered_is_not_believed(data: st.DataObject) -> None:
    """One character of it, or its length."""
    text = text_of(BY_NAMES)
    at = data.draw(st.integers(0, len(text) - 1))
    other = data.draw(st.sampled_from("abcXYZ019-_=").filter(lambda character: character != text[at]))
    altered = text[:at] + other + text[at + 1 :]
    assert sessions().of(shown(altered)) in (None, BY_NAMES)
    if at < len(text) - 1:  # the last one has bits that say nothing
        assert sessions().of(shown(altered)) is None
    assert sessions().of(shown(text[:at])) is None


@given(st.text(max_size=300) | st.binary(max_size=100).map(lambda data: data.decode("latin-1")))
def test_whatever_is_no_cookie_of_ours_is_of_nobody(text: str) -> None:
    """And breaks nothing."""
    assert sessions().of(shown(text)) is None


def test_what_was_signed_for_something_else_is_no_log_in() -> None:
    """The service signs page tokens and the way to an issuer too; and a signature alone says nothing."""
    body = msgspec.json.encode(BY_NAMES)
    for purpose in ("", "page", "lamella way to the issuer", "lamella change token"):
        assert sessions().of(shown(SignedTokens(SECRET, purpose, max_characters=4_000).write(body))) is None
    own = SignedTokens(SECRET, "lamella log-in", max_characters=4_000)
    assert sessions().of(shown(own.write(body))) == BY_NAMES
    for other in (b"", b"{}", b"[]", b"\xff", b'{"expires_ms": "x"}', b'{"expires_ms": null, "names": 5}'):
        assert sessions().of(shown(own.write(other))) is None


def test_scripts_and_other_sites_do_not_get_it() -> None:
    """Over HTTPS it is not sent in clear either; it goes to the dashboard alone."""
    parts = {part.strip().lower() for part in cookie_of(BY_KEY).split(";")}
    assert {"httponly", "samesite=strict", "secure", "path=/ui"} <= parts
    assert not any(part.startswith("domain") for part in parts)
    assert "secure" not in cookie_of(BY_KEY, secure=False).lower()


def test_logging_out_has_the_browser_forget_it() -> None:
    """At the same path, without which it would stay."""
    response = Response()
    sessions().end(response)
    said = response.headers["set-cookie"].lower()
    assert said.startswith(f'{COOKIE}="";')
    assert "max-age=0" in said
    assert "path=/ui" in said


@given(st.integers(0, 1_000), st.sampled_from(["g", "group-of-people", "ä" * 60, "\U0001f600" * 60]))
def test_very_many_groups_still_fit_into_a_cookie(count: int, name: str) -> None:
    """Those that do not fit are left out from the end; who it is stays, and nobody is in a group that was not said."""
    names = ("user:ann", *(f"group:{name}{number}" for number in range(count)))
    session = Session(expires_ms=NOW_MS + 60_000, names=names)
    cookie = cookie_of(session)
    assert len(cookie.encode()) <= MAX_BYTES
    found = sessions().of(shown(text_of(session)))
    assert found is not None
    assert found.names == names[: len(found.names)]
    assert found.names[0] == "user:ann"
    assert len(found.names) == len(names) or len(found.names) >= 3


def test_the_longest_name_fits() -> None:
    """One user of 240 characters that take the most bytes."""
    session = Session(expires_ms=NOW_MS + 60_000, names=("user:" + "\U0001f600" * 240, "group:a"))
    assert sessions().of(shown(text_of(session))) == session
