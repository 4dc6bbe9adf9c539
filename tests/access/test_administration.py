"""Making keys and giving grants: nobody can give what is not theirs to give."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lamella.service.access.administration import AccessAdministration
from lamella.service.access.credentials import CredentialCache
from lamella.service.access.principal import Principal, Rights, root
from lamella.service.catalog import SqlCatalog, open_catalog
from lamella.snapshot.errors import (
    AlreadyExists,
    InvalidRequest,
    KeyNotFound,
    LamellaError,
    NamespaceNotFound,
    NotFound,
    PermissionDenied,
    QuotaExceeded,
    TableNotFound,
    Unauthenticated,
)
from lamella.snapshot.tokens import is_key, key_sha256
from lamella.snapshot.wire import ROLES, CreateKey, Grant, GrantRequest, Role, RotateKey

ROOT = root("root")
NOW_MS = 1_700_000_000_000
FAR_FUTURE_MS = 1 << 50
NAMESPACES, TABLES = ("a", "b"), ("t", "u")
SCOPES: tuple[tuple[str | None, str | None], ...] = (
    (None, None),
    *((namespace, table) for namespace in NAMESPACES for table in (None, *TABLES)),
)
#: Who may be given something: users and groups, and the keys that are made.
USERS = ("user:ann", "user:bob", "group:all")
KEYS = ("k0", "k1", "k2")

grants = st.builds(lambda role, scope: on(role, *scope), st.sampled_from(ROLES), st.sampled_from(SCOPES))
lists = st.lists(grants, max_size=4)


def on(role: Role, namespace: str | None = None, table: str | None = None) -> Grant:
    """A role on a scope."""
    return Grant(role=role, namespace=namespace, table=table)


def of(name: str, *granted: Grant) -> Principal:
    """One with these rights."""
    return Principal(names=(name,), kind="key", rights=Rights(granted))


class House:
    """A catalog with nothing in it, and who administers it."""

    def __init__(self, catalog: SqlCatalog) -> None:
        self.catalog = catalog
        for key in catalog.api_keys():
            catalog.drop_key(key.name)
        for each in catalog.grants():
            catalog.drop_grant(each.principal, each.namespace, each.table)
        self._authenticator = CredentialCache(
            catalog,
            issuer=None,
            audience="lamella",
            root_key_sha256=None,
            cache_s=0,
            clock=lambda: NOW_MS,
            monotonic=lambda: NOW_MS / 1000,
        )
        self.admin = AccessAdministration(catalog, self._authenticator, lambda: NOW_MS)

    def create(self, by: Principal, name: str, *granted: Grant, **more: Any) -> str:
        """A new key's text."""
        return self.admin.create_key(by, CreateKey(name=name, grants=granted, **more)).key

    def rotate(self, by: Principal, name: str, **more: Any) -> str:
        """A key's new text."""
        return self.admin.rotate_key(by, name, RotateKey(**more)).key

    def give(self, by: Principal, principal: str, grant: Grant) -> None:
        """A role."""
        self.admin.give(by, GrantRequest(principal=principal, **msgspec.structs.asdict(grant)))

    def take(self, by: Principal, principal: str, scope: tuple[str | None, str | None]) -> None:
        """Whatever role it has there."""
        self.admin.take(by, GrantRequest(principal=principal, role="read", namespace=scope[0], table=scope[1]))

    def holder(self, text: str) -> Principal | None:
        """Who shows a key; None: it does not hold."""
        try:
            return self._authenticator.find(text)
        except Unauthenticated:
            return None

    def user(self, name: str) -> Principal:
        """A user who is in the group of all."""
        return self._authenticator.by_names((name, "group:all"), FAR_FUTURE_MS)


@pytest.fixture(scope="module")
def catalog(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SqlCatalog]:
    """One for all tests, which is emptied before each."""
    catalog = open_catalog(str(tmp_path_factory.mktemp("access") / "catalog.db"))
    yield catalog
    catalog.close()


@pytest.fixture
def house(catalog: SqlCatalog) -> House:
    """With nothing in it."""
    return House(catalog)


def may(principal: Principal, role: Role, scope: tuple[str | None, str | None]) -> bool:
    """Whether the principal has the role on a scope."""
    return principal.rights.may(role, *scope)


@given(granted=lists, requested=lists)
def test_a_key_may_do_nothing_that_its_maker_does_not_administer(
    catalog: SqlCatalog, granted: list[Grant], requested: list[Grant]
) -> None:
    """It is made just when each of its grants is on a place of which the maker is admin."""
    house, maker = House(catalog), of("user:ann", *granted)
    scopes = [(grant.namespace, grant.table) for grant in requested]
    is_right = all(may(maker, "admin", scope) for scope in scopes or [(None, None)])
    if len(set(scopes)) < len(scopes):
        with pytest.raises(InvalidRequest, match="same resource"):
            house.create(maker, "k0", *requested)
    elif not is_right:
        with pytest.raises((PermissionDenied, NotFound)):
            house.create(maker, "k0", *requested)
    else:
        made = house.holder(house.create(maker, "k0", *requested))
        assert made is not None
        for scope in SCOPES:
            for role in ROLES:
                assert may(made, role, scope) == may(of("x", *requested), role, scope)
                assert not may(made, role, scope) or may(maker, "admin", scope)
        return
    assert catalog.api_keys() == []
    assert catalog.grants() == []


actions = st.one_of(
    st.tuples(st.just("create"), st.sampled_from(KEYS), lists),
    st.tuples(st.just("rotate"), st.sampled_from(KEYS)),
    st.tuples(st.just("revoke"), st.sampled_from(KEYS)),
    st.tuples(st.just("give"), st.sampled_from((*USERS, *(f"key:{name}" for name in KEYS))), grants),
    st.tuples(st.just("take"), st.sampled_from((*USERS, *(f"key:{name}" for name in KEYS))), st.sampled_from(SCOPES)),
)


def act(house: House, by: Principal, action: Any, texts: list[str]) -> None:
    """Do it, or be refused; a key's text that comes of it is known from then on."""
    try:
        match action:
            case ("create", name, granted):
                texts.append(house.create(by, name, *granted))
            case ("rotate", name):
                texts.append(house.rotate(by, name))
            case ("revoke", name):
                house.admin.revoke_key(by, name)
            case ("give", principal, grant):
                house.give(by, principal, grant)
            case ("take", principal, scope):
                house.take(by, principal, scope)
    except LamellaError:
        pass


@given(
    setup=st.lists(st.tuples(st.sampled_from(USERS), grants), max_size=4),
    theirs=st.lists(st.tuples(st.sampled_from(KEYS), lists), max_size=2, unique_by=lambda each: each[0]),
    steps=st.lists(st.tuples(st.integers(0, 9), actions), max_size=12),
)
def test_nobody_gains_rights_whatever_all_of_them_do_together(
    catalog: SqlCatalog,
    setup: list[tuple[str, Grant]],
    theirs: list[tuple[str, list[Grant]]],
    steps: list[tuple[int, Any]],
) -> None:
    """Users and keys that work together, and share every text, reach no place with a role that none of them had.

    Beside them are keys of the root's, whose texts they do not have.
    """
    house = House(catalog)
    for principal, grant in setup:
        house.give(ROOT, principal, grant)
    for name, granted in theirs:
        act(house, ROOT, ("create", name, granted), [])
    texts: list[str] = []

    def everybody() -> list[Principal]:
        users = [house.user(name) for name in USERS[:2]]
        return users + [found for found in map(house.holder, texts) if found is not None]

    def reach() -> set[tuple[Role, tuple[str | None, str | None]]]:
        return {(r, p) for r in ROLES for p in SCOPES if any(may(each, r, p) for each in everybody())}

    before = reach()
    for who, action in steps:
        actors = everybody()
        act(house, actors[who % len(actors)], action, texts)
        assert reach() <= before


def test_who_made_a_key_rotates_it_only_while_admin_of_all_that_it_may_do(house: House) -> None:
    """Whoever rotates a key gets its text; to end it, it is enough to have made it."""
    house.give(ROOT, "user:ann", on("admin", "a"))
    house.give(ROOT, "user:ann", on("admin", "b"))
    house.create(house.user("user:ann"), "k0", on("read", "a"), on("read", "b", "t"))
    assert house.rotate(house.user("user:ann"), "k0")
    house.give(ROOT, "user:ann", on("maintain", "b"))
    with pytest.raises(PermissionDenied):
        house.rotate(house.user("user:ann"), "k0")
    house.take(ROOT, "user:ann", ("b", None))
    with pytest.raises(NamespaceNotFound):
        house.rotate(house.user("user:ann"), "k0")
    assert house.admin.key(house.user("user:ann"), "k0").name == "k0"
    house.admin.revoke_key(house.user("user:ann"), "k0")
    assert house.catalog.api_keys() == []


def test_what_others_give_a_key_does_not_keep_its_maker_from_rotating_it(house: House) -> None:
    """Else anybody could have a key stay as it is for ever, by giving it something; whoever made it had its text."""
    ann = of("user:ann", on("admin", "a"))
    house.create(ann, "k0", on("read", "a"))
    house.give(ROOT, "key:k0", on("write", "b"))
    assert is_key(house.rotate(ann, "k0"))
    with pytest.raises(NamespaceNotFound):
        house.rotate(of("user:ann", on("admin", "b")), "k0")


def test_a_key_is_theirs_who_rotated_it_last(house: House) -> None:
    """Whoever made it cannot have its text again, with all that it was given for others to use since."""
    ann = of("user:ann", on("admin", "a"))
    first = house.create(ann, "k0", on("read", "a"))
    house.rotate(ROOT, "k0", overlap_s=0)
    house.give(ROOT, "key:k0", on("write", "b"))
    for use in (lambda: house.rotate(ann, "k0"), lambda: house.admin.key(ann, "k0")):
        with pytest.raises(KeyNotFound):
            use()
    assert house.holder(first) is None
    assert house.admin.key(ROOT, "k0").created_by == "root"


def test_nobody_is_burdened_with_grants_without_end(house: House) -> None:
    """Of one principal there are so many on tables of one namespace; and it can give back what it does not want."""
    ann, bob = of("user:ann", on("admin", "a")), of("user:bob")
    for number in range(100):
        house.give(ann, "user:bob", on("read", "a", f"t{number}"))
    with pytest.raises(QuotaExceeded):
        house.give(ann, "user:bob", on("read", "a", "one-more"))
    house.give(ann, "user:bob", on("write", "a", "t7"))  # in place of one that is there
    house.take(bob, "user:bob", ("a", "t0"))
    house.give(ann, "user:bob", on("read", "a", "one-more"))
    with pytest.raises(NamespaceNotFound):
        house.take(bob, "user:cid", ("a", "t1"))


def test_a_key_makes_none_that_may_be_used_oftener(house: House) -> None:
    """Nor more than a hundred."""
    limited = msgspec.structs.replace(of("key:k", on("admin", "a")), requests_per_s=1.0)
    for number in range(100):
        house.create(limited, f"c{number}", on("read", "a"))
    assert {key.requests_per_s for key in house.admin.keys(limited).keys} == {1.0}
    with pytest.raises(QuotaExceeded):
        house.create(limited, "one-more", on("read", "a"))


def test_a_key_without_grants_is_for_an_admin_of_everything(house: House) -> None:
    """To make, and to rotate: what it is given later is for whoever has its text now."""
    ann = of("user:ann", on("admin", "a"))
    with pytest.raises(PermissionDenied):
        house.create(ann, "k0")
    house.create(ann, "k0", on("read", "a"))
    house.take(ROOT, "key:k0", ("a", None))
    with pytest.raises(PermissionDenied):
        house.rotate(ann, "k0")
    assert is_key(house.rotate(ROOT, "k0"))
    assert is_key(house.create(ROOT, "k1"))


def test_how_often_a_key_may_be_used_is_for_an_admin_of_everything_to_say(house: House) -> None:
    """Else the admin of one table could lift the limits of the service."""
    with pytest.raises(PermissionDenied):
        house.create(of("user:ann", on("admin", "a")), "k0", on("read", "a"), requests_per_s=1e6)
    house.create(ROOT, "k0", on("read", "a"), requests_per_s=0.5)
    assert house.catalog.key("k0").requests_per_s == 0.5


def test_the_keys_of_others_are_as_if_they_were_not_there(house: House) -> None:
    """For whoever is not admin of everything, admins of the places that the keys are for among them."""
    house.create(ROOT, "theirs", on("read", "a"))
    ann = of("user:ann", on("admin", "a"), on("admin", "b"))
    house.create(ann, "own", on("read", "a"))
    for use in (
        lambda name: house.admin.key(ann, name),
        lambda name: house.rotate(ann, name),
        lambda name: house.admin.revoke_key(ann, name),
    ):
        said = []
        for name in ("theirs", "nothing"):
            with pytest.raises(KeyNotFound) as caught:
                use(name)
            assert caught.value.details == {"key": name}
            said.append(caught.value.message.replace(name, "..."))
        assert said[0] == said[1]
    assert [key.name for key in house.admin.keys(ann).keys] == ["own"]
    assert [key.name for key in house.admin.keys(ROOT).keys] == ["own", "theirs"]
    house.admin.revoke_key(ROOT, "own")


def test_the_keys_of_a_key_go_to_nobody_when_it_is_revoked(house: House) -> None:
    """Not to another one that gets its name: it could end them, and see what they may do."""
    maker = house.holder(house.create(ROOT, "maker", on("admin", "a")))
    assert maker is not None
    text = house.create(maker, "made", on("read", "a"))
    house.admin.revoke_key(ROOT, "maker")
    assert house.holder(text) is not None
    again = house.holder(house.create(ROOT, "maker", on("admin", "a")))
    assert again is not None
    with pytest.raises(KeyNotFound):
        house.admin.revoke_key(again, "made")
    assert house.admin.keys(again).keys == ()
    assert house.admin.key(ROOT, "made").created_by == "key:maker (revoked)"


def test_a_name_is_had_by_one_key_at_a_time(house: House) -> None:
    """Names differ by their case too; the one that is there stays as it is."""
    first = house.create(ROOT, "etl", on("read", "a"))
    with pytest.raises(AlreadyExists):
        house.create(ROOT, "etl", on("admin", "b"))
    found = house.holder(first)
    assert found is not None
    assert not found.rights.sees("b")
    assert house.create(ROOT, "ETL")


def test_the_text_of_a_key_is_shown_and_not_stored(tmp_path: Path) -> None:
    """The database has its hash alone, of every text that it ever had."""
    catalog = open_catalog(str(tmp_path / "catalog.db"))
    house = House(catalog)
    texts = [house.create(ROOT, "etl", on("read", "a")), house.rotate(ROOT, "etl"), house.rotate(ROOT, "etl")]
    assert len(set(texts)) == 3
    assert all(is_key(text) for text in texts)
    record = catalog.key("etl")
    assert (record.sha256, record.old_sha256) == (key_sha256(texts[2]), key_sha256(texts[1]))
    catalog.close()
    stored = b"".join(file.read_bytes() for file in tmp_path.iterdir())
    assert key_sha256(texts[2]).encode() in stored
    for text in texts:
        assert text.removeprefix("lamella_").encode() not in stored


@pytest.mark.parametrize(
    "requested",
    [
        {"name": ""},
        {"name": "a b"},
        {"name": "-a"},
        {"name": "a/b"},
        {"name": "x" * 129},
        {"name": "a\0"},
        {"grants": (Grant(role="read", table="t"),)},
        {"grants": (Grant(role="read", namespace="a b"),)},
        {"grants": (Grant(role="read", namespace=""),)},
        {"grants": (Grant(role="read", namespace="*"),)},
        {"grants": (Grant(role="read", namespace="a", table="*"),)},
        {"grants": (Grant(role="read", namespace="a"), Grant(role="admin", namespace="a"))},
        {"grants": tuple(Grant(role="read", namespace=f"n{number}") for number in range(1_001))},
        {"expires_s": 0},
        {"expires_s": -1},
        {"expires_s": 10**12},
        {"requests_per_s": 0},
        {"requests_per_s": -1},
        {"requests_per_s": float("nan")},
        {"requests_per_s": float("inf")},
        {"requests_per_s": 1e7},
    ],
    ids=lambda requested: repr(requested)[:60],
)
def test_a_key_that_makes_no_sense_is_not_made(house: House, requested: dict[str, Any]) -> None:
    """Names that cannot stand in a path, places that are none, times and rates out of bounds."""
    with pytest.raises(InvalidRequest):
        house.admin.create_key(ROOT, CreateKey(**{"name": "k0", "grants": (), **requested}))
    assert house.catalog.api_keys() == []


@pytest.mark.parametrize(
    "requested", [{"overlap_s": -1}, {"overlap_s": 31 * 86_400}, {"expires_s": 0}, {"expires_s": 10**12}]
)
def test_a_rotation_out_of_bounds_changes_nothing(house: House, requested: dict[str, int]) -> None:
    """The text that is in use goes on."""
    text = house.create(ROOT, "etl", on("read", "a"))
    with pytest.raises(InvalidRequest):
        house.rotate(ROOT, "etl", **requested)
    assert house.holder(text) is not None


def test_a_role_replaces_another_on_the_same_scope(house: House) -> None:
    """It is not added to it; on other places nothing changes."""
    house.give(ROOT, "user:ann", on("admin", "a"))
    house.give(ROOT, "user:ann", on("write", "a", "t"))
    house.give(ROOT, "user:ann", on("read", "a"))
    found = [(each.role, each.namespace, each.table) for each in house.admin.grants(ROOT, "user:ann").grants]
    assert found == [("read", "a", None), ("write", "a", "t")]
    house.take(ROOT, "user:ann", ("a", None))
    house.take(ROOT, "user:ann", ("a", None))
    assert [(each.role, each.table) for each in house.admin.grants(ROOT, None).grants] == [("write", "t")]


def test_a_grant_says_who_gave_it_and_when(house: House) -> None:
    """So that one can ask why."""
    given_ = house.admin.give(
        of("user:bob", on("admin", "a")), GrantRequest(principal="user:ann", role="read", namespace="a")
    )
    assert (given_.created_by, given_.created_ms) == ("user:bob", NOW_MS)
    assert house.admin.grants(ROOT, "user:ann").grants == (given_,)


def test_nothing_is_given_to_a_key_that_is_not_there(house: House) -> None:
    """It would be a surprise for whoever makes one of that name."""
    with pytest.raises(KeyNotFound):
        house.give(ROOT, "key:nothing", on("read", "a"))
    house.take(ROOT, "key:nothing", ("a", None))
    assert house.catalog.grants() == []


@pytest.mark.parametrize(
    "principal",
    [
        "",
        "ann",
        "user:",
        ":ann",
        "root",
        "anonymous",
        "User:ann",
        "role:x",
        "user:a\nb",
        "user:\0",
        "user:" + "x" * 246,
    ],
)
def test_grants_are_to_keys_users_and_groups(house: House, principal: str) -> None:
    """What is none of these is nobody, and cannot become somebody."""
    with pytest.raises(InvalidRequest):
        house.give(ROOT, principal, on("read", "a"))
    with pytest.raises(InvalidRequest):
        house.take(ROOT, principal, ("a", None))


@given(granted=lists, grant=grants)
def test_grants_are_given_and_taken_by_admins_of_the_scope_alone(
    catalog: SqlCatalog, granted: list[Grant], grant: Grant
) -> None:
    """Whoever may not even see it hears what would be said if it were not there."""
    house, ann = House(catalog), of("user:ann", *granted)
    house.give(ROOT, "user:bob", grant)
    before = house.catalog.grants()
    scope = (grant.namespace, grant.table)
    if may(ann, "admin", scope):
        house.give(ann, "user:bob", grant)
        house.take(ann, "user:bob", scope)
        assert house.catalog.grants() == []
        return
    wanted: type[LamellaError] = PermissionDenied
    if grant.namespace is not None and not ann.rights.sees(grant.namespace):
        wanted = NamespaceNotFound
    elif grant.table is not None and not may(ann, "read", scope):
        wanted = TableNotFound
    uses: list[Callable[[], None]] = [
        lambda: house.give(ann, "user:bob", grant),
        lambda: house.take(ann, "user:bob", scope),
    ]
    for use in uses:
        with pytest.raises(LamellaError) as caught:
            use()
        assert type(caught.value) is wanted
    assert house.catalog.grants() == before


@given(granted=lists, others=st.lists(st.tuples(st.sampled_from(USERS), grants), max_size=6))
def test_one_is_shown_ones_own_grants_and_those_on_what_one_administers(
    catalog: SqlCatalog, granted: list[Grant], others: list[tuple[str, Grant]]
) -> None:
    """And no others, with a principal named or without."""
    house = House(catalog)
    ann = Principal(names=("user:ann", "group:all"), kind="token", rights=Rights(granted))
    for principal, grant in others:
        house.give(ROOT, principal, grant)
    shown = house.admin.grants(ann, None).grants
    for each in house.catalog.grants():
        is_own = each.principal in ("user:ann", "group:all")
        assert (each in shown) == (is_own or may(ann, "admin", (each.namespace, each.table)))
    for principal in USERS:
        assert house.admin.grants(ann, principal).grants == tuple(g for g in shown if g.principal == principal)
    assert house.admin.grants(ann, "user:no\0body").grants == ()
