"""When an issuer's keys are read, and which of them are used."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lamella.service.access.oidc import Issuer, exchange_json, fetch_json
from lamella.snapshot.errors import Unauthenticated, Unavailable
from support.offline_issuer import AUDIENCE, KEYS_URL, URL, Monotonic, OfflineIssuer, private_key, published
from support.scripted_http import Reply, ScriptedServer, answer, ok

DISCOVERY_URL = URL + "/.well-known/openid-configuration"


@pytest.fixture
def offline() -> OfflineIssuer:
    """An issuer with one key."""
    return OfflineIssuer()


@pytest.fixture
def clock() -> Monotonic:
    """The service's clock."""
    return Monotonic()


@pytest.fixture
def issuer(offline: OfflineIssuer, clock: Monotonic) -> Issuer:
    """Who checks its tokens."""
    return offline.issuer(clock)


def outcome(issuer: Issuer, token: str) -> str:
    """Whether a token counts: "yes", "no", or "unknown" while nobody can tell."""
    try:
        issuer.identity(token, AUDIENCE)
    except Unauthenticated:
        return "no"
    except Unavailable:
        return "unknown"
    return "yes"


def test_keys_are_read_once_where_the_description_says(offline: OfflineIssuer, issuer: Issuer) -> None:
    """However many tokens there are."""
    for _ in range(20):
        assert outcome(issuer, offline.token()) == "yes"
    assert offline.fetched == [DISCOVERY_URL, KEYS_URL]


def test_keys_may_be_elsewhere(offline: OfflineIssuer, clock: Monotonic) -> None:
    """Where the settings say so, the description is not asked for."""
    keys_url = "https://elsewhere.test/keys.json"
    offline.documents[keys_url] = offline.documents.pop(KEYS_URL)
    issuer = offline.issuer(clock, keys_url=keys_url)
    token = OfflineIssuer().token()
    assert outcome(issuer, token) == "yes"
    assert offline.fetched == [keys_url]


def test_a_new_key_is_found_when_a_token_names_it(offline: OfflineIssuer, issuer: Issuer, clock: Monotonic) -> None:
    """Not for ten seconds after the keys were read, and then at once."""
    assert outcome(issuer, offline.token()) == "yes"
    offline.add("fresh", "ES256")
    clock.now += 9.9
    assert outcome(issuer, offline.token("fresh")) == "no"
    clock.now += 0.2
    assert outcome(issuer, offline.token("fresh")) == "yes"
    assert offline.fetched.count(KEYS_URL) == 2


def test_a_key_that_is_withdrawn_does_not_count_for_longer_than_five_minutes(
    offline: OfflineIssuer, issuer: Issuer, clock: Monotonic
) -> None:
    """Though nobody names another."""
    offline.add("other", "ES256")
    assert outcome(issuer, offline.token()) == "yes"
    offline.withdraw("key0")
    clock.now += 299
    assert outcome(issuer, offline.token()) == "yes"
    clock.now += 2
    assert outcome(issuer, offline.token()) == "no"
    assert outcome(issuer, offline.token("other")) == "yes"


def test_a_name_that_gets_another_key_is_checked_with_that_one(
    offline: OfflineIssuer, issuer: Issuer, clock: Monotonic
) -> None:
    """What was signed with the one before does not count any more."""
    before = offline.token()
    assert outcome(issuer, before) == "yes"
    offline.withdraw("key0")
    offline.add("key0", "RS256", 5)
    clock.now += 301
    assert [outcome(issuer, each) for each in (before, offline.token())] == ["no", "yes"]


@given(st.lists(st.tuples(st.floats(0, 30), st.sampled_from(["key0", "made up", "none"])), max_size=60), st.booleans())
def test_made_up_names_have_keys_read_every_ten_seconds_at_most(
    attempts: list[tuple[float, str]], is_down: bool
) -> None:
    """Whatever tokens come, and whether or not the issuer answers."""
    clock, offline = Monotonic(), OfflineIssuer()
    offline.is_down = is_down
    issuer = offline.issuer(clock, keys_url=KEYS_URL)
    times: list[float] = []
    offline.before = lambda: times.append(clock.now)
    for pause, name in attempts:
        clock.now += pause
        outcome(issuer, offline.token(headers={"kid": None if name == "none" else name}))
    assert all(following - earlier >= 10 for earlier, following in pairwise(times))


def test_the_answer_is_unknown_while_the_issuer_was_never_heard_of(
    offline: OfflineIssuer, issuer: Issuer, clock: Monotonic
) -> None:
    """That is not "no": the client may ask again, and is told when; meanwhile the issuer is not asked at each token."""
    offline.is_down = True
    for _ in range(5):
        with pytest.raises(Unavailable) as caught:
            issuer.identity(offline.token(), AUDIENCE)
        assert caught.value.details["retry_after_s"] > 0
    assert len(offline.fetched) == 1
    offline.is_down = False
    clock.now += 10.1
    assert outcome(issuer, offline.token()) == "yes"


def test_known_keys_outlast_an_issuer_that_is_out_for_a_day_and_no_longer(
    offline: OfflineIssuer, issuer: Issuer, clock: Monotonic
) -> None:
    """After that each token is refused until it answers, not only the one that has it asked."""
    assert outcome(issuer, offline.token()) == "yes"
    offline.is_down = True
    for _ in range(23):
        clock.now += 3_600
        assert [outcome(issuer, offline.token()) for _ in range(3)] == ["yes"] * 3
        assert outcome(issuer, offline.token(headers={"kid": "made up"})) == "no"
    clock.now += 3_601
    assert [outcome(issuer, offline.token()) for _ in range(3)] == ["unknown"] * 3
    clock.now += 5
    assert outcome(issuer, offline.token()) == "unknown"
    offline.is_down = False
    clock.now += 10
    assert outcome(issuer, offline.token()) == "yes"


@pytest.mark.parametrize("document", [[], {}, {"keys": None}, {"keys": {"kid": "x"}}, "keys", None, 7])
def test_a_document_that_is_none_of_keys_withdraws_none(
    offline: OfflineIssuer, issuer: Issuer, clock: Monotonic, document: Any
) -> None:
    """It is as if the issuer had not answered; one that lists none withdraws all."""
    assert outcome(issuer, offline.token()) == "yes"
    offline.documents[KEYS_URL] = document
    clock.now += 400
    token = OfflineIssuer().token()
    assert outcome(issuer, token) == "yes"
    offline.documents[KEYS_URL] = {"keys": []}
    clock.now += 11
    assert outcome(issuer, token) == "no"


@pytest.mark.parametrize("document", [{"issuer": "https://other.test", "jwks_uri": KEYS_URL}, {}, [], None])
def test_the_description_of_another_issuer_is_not_believed(
    offline: OfflineIssuer, issuer: Issuer, document: Any
) -> None:
    """Its keys are not even asked for (OpenID Connect Discovery, section 4.3)."""
    offline.documents[DISCOVERY_URL] = document
    assert outcome(issuer, offline.token()) == "unknown"
    assert KEYS_URL not in offline.fetched


def test_keys_that_cannot_be_used_take_nothing_from_the_others(clock: Monotonic) -> None:
    """Those of unknown kinds, for encryption, with a secret, too short, or damaged."""
    offline = OfflineIssuer()
    good = offline.listed.pop()
    short = published("RS256", private_key("RS256", 3, 1_024), kid="short")
    secret = {"kty": "oct", "k": "c2VjcmV0", "kid": "secret", "alg": "RS256"}
    odd: list[Any] = ["none", "HS256", 5, None, []]
    offline.listed[:] = [
        *(None, 7, "key", [], {}, {"kty": "XYZ", "kid": "unknown"}, {"kty": [], "alg": {}}, secret, short),
        *({"kty": "RSA", "alg": alg, "kid": "odd"} for alg in odd),
        {**good, "kid": "damaged", "n": "AA"},
        {**good, "kid": "for encryption", "use": "enc"},
        {**good, "kid": 7},
        {"kty": "EC", "crv": "P-256", "x": "AQ", "y": "Ag", "kid": "point"},
        {"kty": "OKP", "crv": "Ed25519", "x": "AA", "kid": "edwards"},
        good,
    ]
    issuer = offline.issuer(clock, algorithms=("RS256", "ES256", "EdDSA"))
    assert outcome(issuer, offline.token()) == "yes"
    offline.keys["short"] = ("RS256", private_key("RS256", 3, 1_024))
    for name in ("short", "for encryption", "7", "odd", "secret", "8"):
        offline.keys.setdefault(name, offline.keys["key0"])
        assert outcome(issuer, offline.token(name)) == "no"


def test_a_key_without_a_name_is_used_only_where_it_is_the_only_one(offline: OfflineIssuer, clock: Monotonic) -> None:
    """And by no name that a token gives."""
    del offline.listed[0]["kid"]
    issuer = offline.issuer(clock)
    assert outcome(issuer, offline.token(headers={"kid": None})) == "yes"
    assert outcome(issuer, offline.token(headers={"kid": "0"})) == "no"


def test_one_reads_the_keys_for_all_who_wait(offline: OfflineIssuer, issuer: Issuer) -> None:
    """Eight threads with tokens, and no keys yet."""
    everybody = threading.Barrier(8)
    tokens = [offline.token(sub=f"user{number}") for number in range(8)]

    def ask(token: str) -> str:
        everybody.wait(30)
        return outcome(issuer, token)

    with ThreadPoolExecutor(8) as threads:
        assert list(threads.map(ask, tokens)) == ["yes"] * 8
    assert offline.fetched == [DISCOVERY_URL, KEYS_URL]


def test_an_issuer_that_hangs_holds_up_nobody_whose_key_is_known(
    offline: OfflineIssuer, issuer: Issuer, clock: Monotonic
) -> None:
    """One waits for it; the others go on with the keys that are known, until a day is over."""
    assert outcome(issuer, offline.token()) == "yes"
    requested, go_on = threading.Event(), threading.Event()

    def hang() -> None:
        requested.set()
        assert go_on.wait(60)

    offline.before = hang
    clock.now += 301
    with ThreadPoolExecutor(1) as threads:
        first = threads.submit(outcome, issuer, offline.token())
        assert requested.wait(60)
        assert [outcome(issuer, offline.token()) for _ in range(5)] == ["yes"] * 5
        assert not first.done()
        clock.now += 60  # so long it takes
        go_on.set()
        assert first.result(60) == "yes"


@pytest.fixture
def serve() -> Any:
    """Starts servers that answer in one way; they end with the test."""
    servers: list[ScriptedServer] = []

    def start(reply: Reply) -> str:
        servers.append(ScriptedServer([reply]))
        return servers[-1].url

    yield start
    for server in servers:
        server.stop()


Serve = Callable[[Reply], str]


def test_documents_are_fetched_over_http(serve: Serve) -> None:
    """With a form, or without."""
    url = serve(Reply(raw=ok(b'{"keys": []}')))
    assert fetch_json(url) == {"keys": []}
    assert exchange_json(url, b"code=1") == {"keys": []}


@pytest.mark.parametrize(
    "reply",
    [
        Reply(raw=answer("404 Not Found", b"{}")),
        Reply(raw=answer("500 Internal Server Error")),
        Reply(raw=ok(b"<html>")),
        Reply(raw=ok(b"\xff\xfe")),
        Reply(raw=ok(b"[" * 100_000)),
        Reply(raw=ok(json.dumps("x" * (1 << 20)).encode())),
        Reply(raw=b"\r\n\r\nhello", close=True),
        Reply(raw=b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{}", close=True),
        Reply(raw=answer("302 Found", headers="Location: file:///etc/hostname\r\n")),
        Reply(reset=True),
        Reply(close=True),
    ],
    ids=["404", "500", "html", "bytes", "deep", "large", "no http", "cut off", "to a file", "reset", "closed"],
)
def test_an_answer_that_is_no_document_is_an_issuer_that_does_not_answer(serve: Serve, reply: Reply) -> None:
    """Whatever is wrong with it, whoever asks is told to come back, and nothing breaks."""
    url = serve(reply)
    issuer = Issuer(url=url, algorithms=("RS256",), leeway_s=0, monotonic=Monotonic())
    with pytest.raises(Unavailable):
        issuer.document()


@pytest.mark.parametrize("url", ["file:///etc/hostname", "ftp://127.0.0.1/x", "data:,{}", "", "None"])
def test_nothing_but_the_web_is_fetched(url: str) -> None:
    """A description may name any address."""
    with pytest.raises(ValueError, match="not an http or https address"):
        fetch_json(url)
