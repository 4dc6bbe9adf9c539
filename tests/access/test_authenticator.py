"""From a key or a token to who shows it, and how soon that changes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from lamella.service.access.administration import AccessAdministration
from lamella.service.access.credentials import CredentialCache
from lamella.service.access.principal import Principal, root
from lamella.service.catalog import SqlCatalog, open_catalog
from lamella.snapshot.errors import Unauthenticated, Unavailable
from lamella.snapshot.tokens import key_sha256, key_text
from lamella.snapshot.wire import CreateKey, Grant, GrantInfo, GrantRequest, RotateKey
from support.faulty_catalog import CatalogFaults
from support.offline_issuer import AUDIENCE, OfflineIssuer

ROOT_KEY = key_text(b"\x07" * 32)
READ_A = Grant(role="read", namespace="a")


class Clock:
    """Unix milliseconds, and the same time in seconds."""

    def __init__(self) -> None:
        self.now_ms = 1_700_000_000_000

    def __call__(self) -> int:
        return self.now_ms

    def seconds(self) -> float:
        """For what measures time."""
        return self.now_ms / 1000

    def go_on(self, seconds: float) -> None:
        """Let time pass."""
        self.now_ms += int(seconds * 1000)


class World:
    """A catalog, and services that use it: ``here`` is where keys are made, ``there`` another replica."""

    def __init__(self, catalog: SqlCatalog, cache_s: float = 5.0, issuer: OfflineIssuer | None = None) -> None:
        self.catalog = catalog
        self.clock = Clock()
        self._cache_s = cache_s
        self._issuer = issuer
        self.here, self.there = self.replica(), self.replica()
        self._admin = AccessAdministration(catalog, self.here, self.clock)

    def replica(self) -> CredentialCache:
        """One more."""
        return CredentialCache(
            self.catalog,
            issuer=None if self._issuer is None else self._issuer.issuer(self.clock.seconds),
            audience=AUDIENCE,
            root_key_sha256=key_sha256(ROOT_KEY),
            cache_s=self._cache_s,
            clock=self.clock,
            monotonic=self.clock.seconds,
        )

    def create(self, name: str = "etl", *grants: Grant, **more: Any) -> str:
        """A key's text."""
        return self._admin.create_key(root("root"), CreateKey(name=name, grants=grants or (READ_A,), **more)).key

    def rotate(self, name: str = "etl", overlap_s: int = 60, expires_s: int | None = None) -> str:
        """Its new text."""
        rotation = RotateKey(overlap_s=overlap_s, expires_s=expires_s)
        return self._admin.rotate_key(root("root"), name, rotation).key

    def revoke(self, name: str = "etl") -> None:
        """End it."""
        self._admin.revoke_key(root("root"), name)

    def give(self, principal: str, grant: Grant) -> None:
        """Give a role."""
        self._admin.give(root("root"), GrantRequest(principal=principal, **msgspec.structs.asdict(grant)))

    def take(self, principal: str, namespace: str | None = None) -> None:
        """Take one away."""
        self._admin.take(root("root"), GrantRequest(principal=principal, role="read", namespace=namespace))


@pytest.fixture
def catalog(tmp_path: Path) -> Iterator[SqlCatalog]:
    """An empty one."""
    catalog = open_catalog(str(tmp_path / "catalog.db"))
    yield catalog
    catalog.close()


@pytest.fixture
def world(catalog: SqlCatalog) -> World:
    """Two replicas that keep what they found for five seconds."""
    return World(catalog)


def authenticate(authenticator: CredentialCache, shown: str) -> Principal | None:
    """Who shows it, as a request finds out; None: nobody."""
    found = authenticator.cached(shown)
    if found is not None:
        return found
    try:
        return authenticator.find(shown)
    except Unauthenticated:
        return None


def test_a_key_is_of_its_principal_with_its_grants_and_its_rate(world: World) -> None:
    """On every replica; nobody has more than was granted to the key."""
    key = world.create("etl", READ_A, Grant(role="write", namespace="b", table="t"), requests_per_s=2.5)
    for authenticator in (world.here, world.there):
        found = authenticator.find(key)
        assert (found.names, found.kind, found.requests_per_s) == (("key:etl",), "key", 2.5)
        assert found.rights.may("read", "a", "x")
        assert found.rights.may("write", "b", "t")
        assert not found.rights.may("write", "a", "x")
        assert authenticator.cached(key) is found


def test_the_root_key_may_do_everything_and_needs_no_catalog(world: World, catalog: SqlCatalog) -> None:
    """It is there before any other, and when the database is not."""
    CatalogFaults(catalog).is_down = True
    found = world.here.find(ROOT_KEY)
    assert (found.name, found.kind) == ("root", "root")
    assert found.rights.may("admin")
    assert world.here.by_key(key_sha256(ROOT_KEY)) == found


def test_a_catalog_that_does_not_answer_is_no_refusal(world: World, catalog: SqlCatalog) -> None:
    """Whoever has a key is told to ask again, not that it does not hold; what was found a moment ago still counts."""
    key, other = world.create(), world.create("other")
    world.here.find(key)
    CatalogFaults(catalog).is_down = True
    assert authenticate(world.here, key) is not None
    for shown in (other, key_text(b"x" * 32)):
        with pytest.raises(Unavailable):
            world.here.find(shown)


@pytest.mark.parametrize(
    "shown",
    ["", "x", "lamella_", "lamella_" + "A" * 49, ROOT_KEY[:-1], ROOT_KEY + "A", ROOT_KEY.upper(), "Bearer " + ROOT_KEY],
)
def test_what_has_not_the_form_of_a_key_is_refused_without_a_look(
    world: World, catalog: SqlCatalog, shown: str
) -> None:
    """So mistyped keys, and whatever strangers send, cost the database nothing."""
    CatalogFaults(catalog).is_down = True
    with pytest.raises(Unauthenticated):
        world.here.find(shown)


def test_a_key_that_nobody_made_is_refused(world: World) -> None:
    """However well it is formed, and by its hash as well."""
    world.create()
    unknown = key_text(b"x" * 32)
    assert authenticate(world.here, unknown) is None
    with pytest.raises(Unauthenticated):
        world.here.by_key(key_sha256(unknown))


def test_a_revoked_key_dies_here_at_once_and_elsewhere_in_time(world: World) -> None:
    """Elsewhere when what was found there is five seconds old, at the latest."""
    key = world.create()
    assert all(authenticate(each, key) for each in (world.here, world.there))
    world.revoke()
    assert authenticate(world.here, key) is None
    assert authenticate(world.there, key) is not None
    world.clock.go_on(4.9)
    assert authenticate(world.there, key) is not None
    world.clock.go_on(0.2)
    assert authenticate(world.there, key) is None


def test_grants_change_here_at_once_and_elsewhere_in_time(world: World) -> None:
    """Those that are given, and those that are taken away."""
    key = world.create("etl", READ_A)

    def may(authenticator: CredentialCache) -> tuple[bool, bool]:
        found = authenticate(authenticator, key)
        assert found is not None
        return found.rights.may("read", "a"), found.rights.may("read", "b")

    assert (may(world.here), may(world.there)) == ((True, False), (True, False))
    world.take("key:etl", "a")
    world.give("key:etl", Grant(role="read", namespace="b"))
    assert (may(world.here), may(world.there)) == ((False, True), (True, False))
    world.clock.go_on(5.1)
    assert (may(world.here), may(world.there)) == ((False, True), (False, True))


def test_asking_all_the_time_keeps_nothing_alive(world: World) -> None:
    """The five seconds count from when it was looked up, and not from when it was last used."""
    key = world.create()
    authenticate(world.there, key)
    world.revoke()
    for _ in range(20):
        world.clock.go_on(0.25)
        authenticate(world.there, key)
    world.clock.go_on(0.1)
    assert authenticate(world.there, key) is None


def test_nothing_is_cached_where_the_settings_say_so(catalog: SqlCatalog) -> None:
    """With ``auth_cache_s`` 0 a change holds everywhere at once."""
    world = World(catalog, cache_s=0)
    key = world.create()
    assert authenticate(world.there, key) is not None
    assert world.there.cached(key) is None
    world.revoke()
    assert authenticate(world.there, key) is None


def test_a_key_expires_to_the_millisecond_also_where_it_is_cached(catalog: SqlCatalog) -> None:
    """On every replica, however long answers are kept."""
    world = World(catalog, cache_s=300)
    key = world.create(expires_s=10)
    authenticate(world.here, key)
    world.clock.now_ms += 9_999
    assert authenticate(world.here, key) is not None
    assert authenticate(world.there, key) is not None
    world.clock.now_ms += 1
    assert [authenticate(each, key) for each in (world.here, world.there, world.replica())] == [None] * 3


def test_after_a_rotation_both_texts_hold_until_the_overlap_is_over(catalog: SqlCatalog) -> None:
    """And then the old one does not, not even where it was kept."""
    world = World(catalog, cache_s=300)
    old = world.create()
    new = world.rotate(overlap_s=60)
    assert old != new
    world.clock.now_ms += 59_999
    for each in (world.here, world.there):
        assert [found is not None and found.name for found in (authenticate(each, old), authenticate(each, new))] == [
            "key:etl"
        ] * 2
    world.clock.now_ms += 1
    for each in (world.here, world.there, world.replica()):
        assert authenticate(each, old) is None
        assert authenticate(each, new) is not None


def test_a_rotation_without_overlap_ends_the_old_text_at_once(world: World) -> None:
    """As when a key has leaked."""
    old = world.create()
    authenticate(world.here, old)
    new = world.rotate(overlap_s=0)
    assert authenticate(world.here, old) is None
    assert authenticate(world.here, new) is not None


def test_only_the_last_text_but_one_ever_holds(world: World) -> None:
    """A second rotation ends the text from before the first, whatever overlap that one was given."""
    first = world.create()
    second = world.rotate(overlap_s=3_600)
    third = world.rotate(overlap_s=3_600)
    assert [authenticate(world.here, each) is not None for each in (first, second, third)] == [False, True, True]


def test_a_rotation_gives_a_text_that_has_expired_no_more_time(world: World) -> None:
    """Nor more than it had left; only the new text has what the rotation says."""
    old = world.create(expires_s=100)
    world.clock.go_on(90)
    new = world.rotate(overlap_s=3_600, expires_s=1_000)
    world.clock.go_on(9)
    assert authenticate(world.here, old) is not None
    world.clock.go_on(1)
    assert [authenticate(world.here, each) is not None for each in (old, new)] == [False, True]
    world.clock.go_on(2_000)
    newest = world.rotate(overlap_s=3_600)
    assert [authenticate(world.here, each) is not None for each in (old, new, newest)] == [False, False, True]


def test_a_key_that_was_to_end_still_is_after_a_rotation(world: World) -> None:
    """As long after it as it was to last when it was made; one without an end gets none."""
    world.create(expires_s=100)
    world.clock.go_on(30)
    key = world.rotate()
    world.clock.go_on(99)
    assert authenticate(world.here, key) is not None
    world.clock.go_on(1)
    assert authenticate(world.here, key) is None
    world.create("endless")
    endless = world.rotate("endless")
    world.clock.go_on(10**9)
    assert authenticate(world.here, endless) is not None


def test_a_key_of_a_name_that_was_free_has_nothing_of_the_one_before(world: World) -> None:
    """Neither its text, nor what was granted to it."""
    old = world.create("etl", Grant(role="admin"))
    world.give("key:etl", Grant(role="write", namespace="b"))
    world.revoke()
    new = world.create("etl", READ_A)
    assert authenticate(world.here, old) is None
    found = authenticate(world.here, new)
    assert found is not None
    assert [(grant.role, grant.namespace) for grant in found.rights.grants] == [("read", "a")]


def test_names_of_one_kind_are_not_those_of_another(catalog: SqlCatalog) -> None:
    """A key, a user and a group that are called alike share nothing."""
    issuer = OfflineIssuer()
    world = World(catalog, issuer=issuer)
    key = world.create("ann", Grant(role="read", namespace="of-key"))
    world.give("user:ann", Grant(role="read", namespace="of-user"))
    world.give("group:ann", Grant(role="read", namespace="of-group"))
    holders = {
        "of-key": key,
        "of-user": issuer.token(sub="ann"),
        "of-group": issuer.token(sub="bob", groups=["ann"]),
    }
    for own, shown in holders.items():
        found = authenticate(world.here, shown)
        assert found is not None
        assert [name for name in holders if found.rights.sees(name)] == [own]


def test_a_token_has_the_grants_of_its_user_and_all_its_groups(catalog: SqlCatalog) -> None:
    """They are looked up anew as those of a key are."""
    issuer = OfflineIssuer()
    world = World(catalog, issuer=issuer)
    world.give("user:ann", READ_A)
    world.give("group:writers", Grant(role="write", namespace="b"))
    token = issuer.token(groups=["readers", "writers"])
    found = world.here.find(token)
    assert (found.names, found.kind) == (("user:ann", "group:readers", "group:writers"), "token")
    assert found.rights.may("read", "a")
    assert found.rights.may("write", "b", "t")
    world.take("group:writers", "b")
    again = authenticate(world.here, token)
    assert again is not None
    assert not again.rights.sees("b")


def test_a_token_ends_though_it_was_cached(catalog: SqlCatalog) -> None:
    """Also for a session that rests on what it said."""
    issuer = OfflineIssuer()
    world = World(catalog, cache_s=300, issuer=issuer)
    token = issuer.token()
    found = world.here.find(token)
    assert found.expires_ms is not None
    names, until_ms = found.names, found.expires_ms
    assert world.here.by_names(names, until_ms).names == names
    world.clock.now_ms = until_ms - 1
    assert world.here.cached_names(names, until_ms) is None  # too old to be kept
    assert world.here.by_names(names, until_ms).names == names
    world.clock.now_ms = until_ms
    assert world.here.cached(token) is None
    assert world.here.cached_names(names, until_ms) is None
    with pytest.raises(Unauthenticated):
        world.here.by_names(names, until_ms)


def test_tokens_are_refused_where_there_is_no_issuer(world: World) -> None:
    """As anything else that is no key."""
    with pytest.raises(Unauthenticated):
        world.here.find(OfflineIssuer().token())


class Interrupted(SqlCatalog):
    """A catalog in which something happens after grants were read, and before anybody has them."""

    then: Callable[[], None] = staticmethod(lambda: None)

    def grants(self, principals: Any = None) -> list[GrantInfo]:
        found = super().grants(principals)
        then, self.then = self.then, lambda: None
        then()
        return found


@pytest.mark.parametrize("change", ["revoke", "take"])
def test_a_look_up_that_a_change_overtakes_is_not_cached(tmp_path: Path, change: str) -> None:
    """What was read before the change was acknowledged is out of date afterwards, however late it comes."""
    opened = open_catalog(str(tmp_path / "catalog.db"))
    catalog = Interrupted(opened._engine)
    world = World(catalog, cache_s=300)
    key = world.create()
    catalog.then = world.revoke if change == "revoke" else lambda: world.take("key:etl", "a")
    outdated = world.here.find(key)
    assert outdated.rights.may("read", "a")  # it was asked before
    after = authenticate(world.here, key)
    assert after is None or not after.rights.may("read", "a")
    assert (after is None) == (change == "revoke")
    opened.close()


def test_the_use_of_a_key_is_noted_about_once_a_minute(world: World, catalog: SqlCatalog) -> None:
    """Not at each request, and never at the cost of one."""
    key = world.create()
    start_ms = world.clock.now_ms
    noted = []
    for _ in range(14):
        authenticate(world.here, key)
        noted.append(catalog.key("etl").used_ms)
        world.clock.go_on(10)
    assert set(noted) == {start_ms, start_ms + 60_000, start_ms + 120_000}


def test_a_key_holds_though_its_use_cannot_be_noted(tmp_path: Path) -> None:
    """As while the database takes no changes."""

    class ReadOnly(SqlCatalog):
        def note_key_use(self, name: str, at_ms: int) -> None:
            raise Unavailable(f"{name} cannot be noted at {at_ms}")

    opened = open_catalog(str(tmp_path / "catalog.db"))
    world = World(ReadOnly(opened._engine))
    assert world.here.find(world.create()).name == "key:etl"
    opened.close()
