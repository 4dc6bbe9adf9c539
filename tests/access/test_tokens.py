"""Tokens of an issuer: which ones count, and whom they are about. The keys are real ones."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import time
from typing import Any

import pytest
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from hypothesis import given
from hypothesis import strategies as st

from lamella.service.access.oidc import ALGORITHMS, Issuer
from lamella.snapshot.errors import InvalidRequest, Unauthenticated
from support.offline_issuer import AUDIENCE, URL, OfflineIssuer, encoded, private_key, published


class FromNow(float):
    """Seconds from when a test runs: what tests are called must not change from one moment to the next."""


def timed(claims: dict[str, Any]) -> dict[str, Any]:
    """The claims, with times for what is counted from now."""
    now_s = int(time.time())
    return {name: now_s + float(each) if isinstance(each, FromNow) else each for name, each in claims.items()}


@pytest.fixture
def offline() -> OfflineIssuer:
    """An issuer with one RSA key."""
    return OfflineIssuer()


@pytest.fixture
def issuer(offline: OfflineIssuer) -> Issuer:
    """Who checks its tokens."""
    return offline.issuer()


def refused(issuer: Issuer, token: str) -> str:
    """Why a token is refused; whoever showed it learns only that it is."""
    with pytest.raises(Unauthenticated) as caught:
        issuer.identity(token, AUDIENCE)
    assert caught.value.message == "the token is not valid"
    return str(caught.value.details["reason"])


@pytest.mark.parametrize("algorithm", sorted(ALGORITHMS))
@pytest.mark.parametrize("is_named", [True, False], ids=["with alg", "without alg"])
def test_a_token_of_every_algorithm_counts_where_it_is_allowed(algorithm: str, is_named: bool) -> None:
    """Whether or not the issuer says with its key which algorithm that is for; and nowhere else."""
    offline = OfflineIssuer()
    offline.add("k", algorithm, 0, **({"alg": algorithm} if is_named else {}))
    token = offline.token("k")
    found = offline.issuer(algorithms=(algorithm,)).identity(token, AUDIENCE)
    assert found.names == ("user:ann",)
    others = tuple(ALGORITHMS - {algorithm})
    assert refused(offline.issuer(algorithms=others), token)


def test_a_key_for_one_algorithm_checks_no_other(offline: OfflineIssuer) -> None:
    """Where the issuer names it: a token cannot choose."""
    offline.keys["k"] = ("PS256", private_key("RS256", 7))
    offline.listed.append(published("RS256", private_key("RS256", 7), kid="k", alg="RS256"))
    assert refused(offline.issuer(algorithms=("RS256", "PS256")), offline.token("k")) == "key"


def forged(header: dict[str, Any], claims: dict[str, Any], secret: bytes | None) -> str:
    """A token that anybody could make: signed with a ``secret`` that is none, or not at all."""
    signed = f"{encoded(header)}.{encoded(claims)}"
    signature = b"" if secret is None else hmac.digest(secret, signed.encode(), hashlib.sha256)
    return f"{signed}.{encoded(signature)}"


def test_a_public_key_is_no_secret(offline: OfflineIssuer, issuer: Issuer) -> None:
    """A token with ``HS256``, whose secret is the issuer's public key in any form, is not taken."""
    public = offline.keys["key0"][1].public_key()
    secrets = [
        public.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo),
        public.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo),
        public.public_bytes(Encoding.PEM, PublicFormat.PKCS1),
        json.dumps(offline.listed[0]).encode(),
        b"",
    ]
    for secret in secrets:
        assert refused(issuer, forged({"alg": "HS256", "kid": "key0"}, offline.claims(), secret)) == "key"
    assert offline.fetched == []


@pytest.mark.parametrize("algorithm", ["none", "None", "NONE", "nOnE", "", None, 0, ["RS256"]])
def test_a_token_that_nobody_signed_is_refused(offline: OfflineIssuer, issuer: Issuer, algorithm: Any) -> None:
    """Whatever it calls that, and with the signature of another token too."""
    signature = offline.token().rpartition(".")[2]
    header = {"kid": "key0"} if algorithm is None else {"alg": algorithm, "kid": "key0"}
    token = forged(header, offline.claims(), None)
    assert refused(issuer, token)
    assert refused(issuer, token + signature)


@pytest.mark.parametrize("algorithms", [("HS256",), ("RS256", "none"), ()])
def test_a_service_does_not_start_with_algorithms_that_anybody_could_use(
    offline: OfflineIssuer, algorithms: tuple[str, ...]
) -> None:
    """Those with a shared secret, and none at all."""
    with pytest.raises(InvalidRequest, match="are not taken"):
        offline.issuer(algorithms=algorithms)


@given(st.data())
def test_a_token_that_was_altered_anywhere_is_refused(data: st.DataObject) -> None:
    """One bit of its header, its claims or its signature."""
    offline = OfflineIssuer("ES256")
    issuer = offline.issuer()
    token = offline.token()
    issuer.identity(token, AUDIENCE)
    parts = [decoded(part) for part in token.split(".")]
    which = data.draw(st.integers(0, 2))
    at = data.draw(st.integers(0, len(parts[which]) * 8 - 1))
    changed = bytearray(parts[which])
    changed[at // 8] ^= 1 << at % 8
    parts[which] = bytes(changed)
    refused(issuer, ".".join(encoded(part) for part in parts))


def decoded(part: str) -> bytes:
    """The bytes of a part of a token."""
    return base64.urlsafe_b64decode(part + "=" * (-len(part) % 4))


@given(st.text(max_size=200) | st.text("eyJ.-_A0", max_size=200))
def test_whatever_is_no_token_is_refused(text: str) -> None:
    """And nothing else happens, whatever the text."""
    refused(OfflineIssuer().issuer(), text)


@pytest.mark.parametrize(
    "header",
    [b"[" * 6_000, b'{"a":' * 2_000, b"[]", b"5", b'"x"', b"null", b"\xff", b"{", b'{"alg":"RS256","kid":{}}'],
    ids=["deep list", "deep object", "list", "number", "text", "null", "no text", "half", "odd kid"],
)
def test_a_header_that_is_none_is_refused(issuer: Issuer, header: bytes) -> None:
    """Also one that is made to be dear to read."""
    refused(issuer, f"{encoded(header)}.{encoded({})}.AA")


def test_a_token_of_any_length_costs_little(offline: OfflineIssuer, issuer: Issuer) -> None:
    """One over 16 KiB is not looked at, though its signature is right."""
    assert issuer.identity(offline.token(padding="x" * 10_000), AUDIENCE).names == ("user:ann",)
    assert refused(issuer, offline.token(padding="x" * 12_500)) == "too long"


@pytest.mark.parametrize(
    "claims",
    [
        {"aud": "other"},
        {"aud": ["other", "another"]},
        {"aud": None},
        {"aud": []},
        {"aud": {"lamella": 1}},
        {"aud": "lamella2"},
        {"aud": "Lamella"},
        {"iss": URL + "/"},
        {"iss": "https://issuer.test"},
        {"iss": None},
        {"iss": [URL]},
        {"exp": None},
        {"exp": FromNow(-2_000)},
        {"exp": 0},
        {"exp": -1},
        {"exp": "soon"},
        {"exp": float("inf")},
        {"exp": float("nan")},
        {"exp": []},
        {"nbf": FromNow(2_000)},
        {"nbf": "soon"},
        {"iat": FromNow(2_000)},
        {"sub": None},
        {"sub": ""},
        {"sub": 7},
        {"sub": ["ann"]},
        {"sub": {"name": "ann"}},
        {"sub": True},
        {"sub": "x" * 241},
        {"sub": "ann\ngroup:admins"},
        {"sub": "ann\x00"},
        {"sub": "\ud800"},
        {"sub": "\u200bann"},
    ],
    ids=repr,
)
def test_a_token_for_another_by_another_of_another_time_or_of_nobody_is_refused(
    offline: OfflineIssuer, issuer: Issuer, claims: dict[str, Any]
) -> None:
    """Signed or not; what it lacks is not made up for."""
    refused(issuer, offline.token(**timed(claims)))


@pytest.mark.parametrize(
    "claims",
    [
        {"aud": ["other", "lamella"]},
        {"exp": FromNow(-60)},
        {"exp": FromNow(100.5)},
        {"nbf": FromNow(60)},
        {"iat": FromNow(60)},
        {"exp": 10**30},
        {"sub": "x" * 240},
        {"sub": "Ann O'Hara <ann@example.com>"},
        {"sub": "a:b.c*"},
    ],
    ids=repr,
)
def test_a_token_within_the_leeway_counts(offline: OfflineIssuer, issuer: Issuer, claims: dict[str, Any]) -> None:
    """Clocks differ, audiences may be several, and names may have any character that can be seen."""
    found = issuer.identity(offline.token(**timed(claims)), AUDIENCE)
    assert found.names == (f"user:{claims.get('sub', 'ann')}",)
    assert 0 < found.expires_ms < 2**53


def test_what_is_found_holds_until_the_token_ends(offline: OfflineIssuer, issuer: Issuer) -> None:
    """With the leeway, which the check of a token gives it too."""
    until_s = int(time.time()) + 1_234
    assert issuer.identity(offline.token(exp=until_s), AUDIENCE).expires_ms == (until_s + 600) * 1000


def test_a_token_for_the_dashboard_has_its_own_audience(offline: OfflineIssuer, issuer: Issuer) -> None:
    """One audience does not stand for another."""
    token = offline.token(aud="dashboard")
    assert issuer.identity(token, "dashboard").names == ("user:ann",)
    assert refused(issuer, token)


def test_a_token_brings_no_key_of_its_own(offline: OfflineIssuer, issuer: Issuer) -> None:
    """Keys and addresses of keys in a token's header are its maker's word, and no more (RFC 8725, section 3.10)."""
    stranger = OfflineIssuer()
    stranger.keys = {"key0": ("RS256", private_key("RS256", 99))}
    own = published("RS256", private_key("RS256", 99), kid="key0")
    addresses = {"jku": "https://evil.test/keys", "x5u": "https://evil.test/x"}
    for name in ("key0", "stranger", None):
        for headers in ({"jwk": own}, addresses, {"x5c": ["AA"]}, {"jwk": own, **addresses}):
            refused(issuer, stranger.token(headers={"kid": name, **headers}))
    assert not any("evil" in url for url in offline.fetched)


def test_what_must_be_understood_and_is_not_is_refused(offline: OfflineIssuer, issuer: Issuer) -> None:
    """A critical header that nobody here knows (RFC 7515, section 4.1.11)."""
    refused(issuer, offline.token(headers={"crit": ["exp"], "exp": 1}))


def test_a_token_need_not_name_the_only_key(offline: OfflineIssuer) -> None:
    """Where there are two, it has to: nobody tries one after another."""
    token = offline.token(headers={"kid": None})
    assert offline.issuer().identity(token, AUDIENCE).names == ("user:ann",)
    offline.add("second", "ES256")
    assert refused(offline.issuer(), token) == "key"


@pytest.mark.parametrize("claim", ["groups", "realm_access.roles", "https://example.com/groups"])
def test_groups_are_read_from_the_claim_that_the_settings_name(offline: OfflineIssuer, claim: str) -> None:
    """At the top, inside of another, or with dots in its name. What is no name in it takes nothing from the others."""
    listed = ["a", "b b", "a", 7, None, ["c"], "", "x" * 241, "new\nline", "é", "user:ann"]
    claims = {"realm_access": {"roles": listed}} if claim == "realm_access.roles" else {claim: listed}
    found = offline.issuer(groups_claim=claim).identity(offline.token(**claims), AUDIENCE)
    assert found.names == ("user:ann", "group:a", "group:b b", "group:é", "group:user:ann")


@pytest.mark.parametrize("groups", [None, 7, True, {"a": 1}, {"roles": 7}, [], ""])
def test_a_token_without_groups_is_of_its_user_alone(offline: OfflineIssuer, groups: Any) -> None:
    """Also where the claim is of another form."""
    for claim in ("groups", "groups.roles", "groups.roles.names"):
        found = offline.issuer(groups_claim=claim).identity(offline.token(groups=groups), AUDIENCE)
        assert found.names == ("user:ann",)


def test_one_group_may_stand_alone_and_very_many_are_cut(offline: OfflineIssuer, issuer: Issuer) -> None:
    """Fewer groups never allow more."""
    assert issuer.identity(offline.token(groups="a"), AUDIENCE).names == ("user:ann", "group:a")
    many = [f"{number}" for number in range(1_500)]
    assert len(issuer.identity(offline.token(groups=many), AUDIENCE).names) == 1_001


def test_the_user_may_be_named_by_another_claim(offline: OfflineIssuer) -> None:
    """By one that the issuer vouches for; a token without it is of nobody."""
    issuer = offline.issuer(subject_claim="email")
    assert issuer.identity(offline.token(email="ann@example.com"), AUDIENCE).names == ("user:ann@example.com",)
    refused(issuer, offline.token())
