"""What stands before every request: who shows what, and how often."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest

from lamella.service.access import authenticator
from lamella.service.access.credentials import CredentialCache
from lamella.service.access.principal import Principal
from lamella.service.app import create_app
from lamella.service.config.settings import Settings
from lamella.snapshot.tokens import key_sha256, key_text
from support.app_client import AppClient
from support.offline_issuer import OfflineIssuer
from support.scripted_http import Reply, ScriptedServer

ROOT_KEY = key_text(b"g" * 32)
GRANTS = [{"role": "read", "namespace": "db"}]


class Guarded:
    """A service that asks for keys."""

    def __init__(self, app: AppClient) -> None:
        self._app = app

    def ask(
        self, shown: str | None, *, scheme: str = "Bearer ", address: str = "192.0.2.1", **more: Any
    ) -> httpx2.Response:
        """Who one is, as somebody at an address asks it."""
        client = AppClient(self._app.app, client=(address, 1))
        client.portal = self._app.portal  # one event loop for all of them, as in a process
        headers = {} if shown is None else {"Authorization": scheme + shown}
        answer: httpx2.Response = client.get("/v1/whoami", headers={**headers, **more})
        return answer

    def key(self, name: str, **more: Any) -> str:
        """A new key's text."""
        made = self._app.post(
            "/v1/keys",
            json={"name": name, "grants": GRANTS, **more},
            headers={"Authorization": f"Bearer {ROOT_KEY}"},
        )
        assert made.status_code == 201, made.text
        return str(made.json()["key"])

    def revoke(self, name: str) -> None:
        """The key holds no longer."""
        headers = {"Authorization": f"Bearer {ROOT_KEY}"}
        assert self._app.delete(f"/v1/keys/{name}", headers=headers).status_code == 204


@contextmanager
def guarding(folder: Path, **settings: Any) -> Iterator[Guarded]:
    """One with settings."""
    chosen = {"auth": True, "root_key_sha256": key_sha256(ROOT_KEY), **settings}
    with AppClient(create_app(Settings(warehouse=str(folder / "warehouse"), **chosen))) as app:
        yield Guarded(app)


Make = Callable[..., Guarded]


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Make]:
    """Makes one with settings."""
    with ExitStack() as opened:
        yield lambda **settings: opened.enter_context(guarding(tmp_path, **settings))


@pytest.mark.parametrize("scheme", ["Bearer ", "bearer ", "BEARER ", "Bearer   "])
def test_a_key_is_shown_as_a_bearer_token(make: Make, scheme: str) -> None:
    """The name of the scheme may be written in any case (RFC 9110, section 11.1)."""
    assert make().ask(ROOT_KEY, scheme=scheme).json()["principal"] == "root"


@pytest.mark.parametrize("scheme", ["", "Basic ", "Bearer", "Bearer\t", "Token "])
def test_another_scheme_shows_nothing(make: Make, scheme: str) -> None:
    """As if there were no header; the answer says which one is meant."""
    answer = make().ask(ROOT_KEY, scheme=scheme)
    assert (answer.status_code, answer.headers["WWW-Authenticate"]) == (401, "Bearer")


def test_why_a_key_does_not_hold_is_not_revealed(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """To the one who tries; it stands in the log, without the key."""
    with guarding(tmp_path) as guarded:
        key = guarded.key("old")
        wrong = [key_text(b"x" * 32), key[:-1], key + "x", "lamella_", "eyJh.e30.AA"]
        answers = [guarded.ask(each) for each in wrong]
    assert {each.status_code for each in answers} == {401}
    assert {each.json()["detail"] for each in answers} == {"the key is not valid"}
    assert all("details" not in each.json() for each in answers)
    logged = "".join(capfd.readouterr())
    assert '"reason":"unknown"' in logged
    assert not any(each in logged for each in (key, *wrong) if len(each) > 10)


def test_an_address_that_tries_many_keys_has_to_wait(make: Make) -> None:
    """Others do not, and what was good a moment ago still is."""
    guarded = make(auth_failures_per_minute=5)
    good, other = guarded.key("good"), guarded.key("other")
    assert guarded.ask(good).status_code == 200
    wrong = [guarded.ask(key_text(bytes([number]) * 32)) for number in range(6)]
    assert [each.status_code for each in wrong] == [401] * 5 + [429]
    assert wrong[5].json()["code"] == "rate_limited"
    assert int(wrong[5].headers["Retry-After"]) >= 1
    assert guarded.ask(other).status_code == 429
    assert guarded.ask(good).status_code == 200
    assert guarded.ask(other, address="192.0.2.2").status_code == 200


def test_a_network_of_one_client_counts_as_one(make: Make) -> None:
    """Whoever has a /64 of IPv6 has more addresses than there are keys to try."""
    guarded = make(auth_failures_per_minute=3)
    tried = [guarded.ask(key_text(b"y" * 32), address=f"2001:db8::{number:x}").status_code for number in range(1, 6)]
    assert tried == [401, 401, 401, 429, 429]
    assert guarded.ask(key_text(b"y" * 32), address="2001:db8:0:1::1").status_code == 401


def test_who_shows_nothing_is_not_counted(make: Make) -> None:
    """Health checks and browsers do that; it tries nothing."""
    guarded = make(auth_failures_per_minute=2)
    assert {guarded.ask(None).status_code for _ in range(20)} == {401}
    assert guarded.ask(ROOT_KEY).status_code == 200


def test_each_principal_may_ask_so_often(make: Make) -> None:
    """Whatever address it asks from; a key with a rate of its own by that one."""
    guarded = make(requests_per_s=0.001, requests_burst_s=3_000)
    plain, rare, often = guarded.key("plain"), guarded.key("rare", requests_per_s=0.0005), guarded.key("often")
    assert [guarded.ask(plain, address=f"192.0.2.{number}").status_code for number in range(4)] == [200] * 3 + [429]
    assert [guarded.ask(rare).status_code for _ in range(2)] == [200, 429]
    answer = guarded.ask(plain)
    assert (answer.json()["code"], answer.json()["details"]["limit"]) == ("rate_limited", "rate")
    assert guarded.ask(often).status_code == 200


class SlowCatalog:
    """Look-ups of keys wait for ``go``; ``look_ups`` counts them."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.go = threading.Event()
        self.holds = False
        self.look_ups = 0
        real = CredentialCache._of_key

        def slow(authenticator: CredentialCache, sha256: str) -> Principal:
            if self.holds:
                self.look_ups += 1
                self.go.wait(60)
            return real(authenticator, sha256)

        monkeypatch.setattr(CredentialCache, "_of_key", slow)


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch) -> Iterator[SlowCatalog]:
    """A catalog that takes its time once it holds."""
    catalog = SlowCatalog(monkeypatch)
    yield catalog
    catalog.go.set()


def test_many_at_once_with_one_new_key_are_one_try(make: Make, slow: SlowCatalog) -> None:
    """None of them is refused, one look-up serves them all, and nothing is left counted against their address."""
    guarded = make(auth_failures_per_minute=3, auth_cache_s=60, request_wait_s=30)
    key, other = guarded.key("new"), guarded.key("other")
    slow.holds = True
    with ThreadPoolExecutor(12) as threads:
        asking = [threads.submit(guarded.ask, key) for _ in range(12)]
        while not slow.look_ups:
            assert not any(each.done() for each in asking)
        slow.go.set()
        assert [each.result().status_code for each in asking] == [200] * 12
    assert slow.look_ups == 1
    slow.holds = False
    wrong = [guarded.ask(key_text(bytes([number]) * 32)).status_code for number in range(4)]
    assert wrong == [401] * 3 + [429]
    assert guarded.ask(other).status_code == 429


def test_each_that_tries_one_wrong_key_is_answered(make: Make, slow: SlowCatalog) -> None:
    """They share the look-up, and each has an answer of its own."""
    guarded = make(request_wait_s=30)
    slow.holds = True
    with ThreadPoolExecutor(5) as threads:
        asking = [threads.submit(guarded.ask, key_text(b"w" * 32)) for _ in range(5)]
        while not slow.look_ups:
            assert not any(each.done() for each in asking)
        slow.go.set()
        answers = [each.result() for each in asking]
    assert [each.status_code for each in answers] == [401] * 5
    assert all("details" not in each.json() for each in answers)


def test_a_slow_catalog_is_said_in_time(make: Make, slow: SlowCatalog) -> None:
    """503 after a while, 429 at once where too many wait, and what was looked up all the same is known afterwards."""
    guarded = make(auth_failures_per_minute=1_000, auth_cache_s=60, request_wait_s=0.3)
    capacity = authenticator._THREADS + authenticator._MAX_WAITING
    keys = [guarded.key("good"), *(key_text(number.to_bytes(32, "big")) for number in range(capacity))]
    slow.holds = True
    with ThreadPoolExecutor(len(keys)) as threads:
        answers = list(threads.map(guarded.ask, keys))
        more = [guarded.ask(key_text(bytes([200 + number]) * 32)) for number in range(20)]
    refused = answers[0]
    assert (refused.status_code, refused.json()["code"]) == (503, "unavailable")
    assert refused.json()["details"]["limit"] == "look_up"
    assert int(refused.headers["Retry-After"]) >= 1
    assert {each.status_code for each in answers} <= {429, 503}
    assert {(each.status_code, each.json()["code"]) for each in more[-10:]} == {(429, "overloaded")}
    slow.go.set()
    while guarded.ask(keys[0]).status_code == 503:
        pass
    assert guarded.ask(keys[0]).status_code == 200


def test_a_look_up_from_before_a_key_was_revoked_serves_nobody_after_it(make: Make, slow: SlowCatalog) -> None:
    """Whoever asks once the answer to the revocation is there is looked up anew."""
    guarded = make(auth_cache_s=60, request_wait_s=30)
    key = guarded.key("short")
    found = threading.Event()
    real = CredentialCache._of_key

    def stale(authenticator: CredentialCache, sha256: str) -> Principal:
        principal = real(authenticator, sha256)
        if sha256 == key_sha256(key) and not found.is_set():
            found.set()
            slow.go.wait(60)
        return principal

    with pytest.MonkeyPatch.context() as patch, ThreadPoolExecutor(1) as threads:
        patch.setattr(CredentialCache, "_of_key", stale)
        before = threads.submit(guarded.ask, key)
        assert found.wait(60)
        guarded.revoke("short")
        assert guarded.ask(key).status_code == 401
        slow.go.set()
        assert before.result().status_code == 200


def test_an_issuer_that_hangs_does_not_hold_up_keys(make: Make) -> None:
    """However many tokens wait for it: keys are looked up by threads of their own."""
    server = ScriptedServer([Reply(hold=True)])
    try:
        guarded = make(oidc_issuer=server.url, auth_cache_s=0, auth_failures_per_minute=1_000)
        key = guarded.key("etl")
        tokens = [OfflineIssuer().token(sub=f"u{number}") for number in range(3 * authenticator._THREADS)]
        with ThreadPoolExecutor(len(tokens)) as threads:
            waiting: list[Future[httpx2.Response]] = [threads.submit(guarded.ask, each) for each in tokens]
            while not server.received:
                assert not any(each.done() for each in waiting)
            assert [guarded.ask(key).status_code for _ in range(5)] == [200] * 5
            assert not any(each.done() for each in waiting)
            server.stop()
            assert {each.result().status_code for each in waiting} == {503}
    finally:
        server.stop()
