"""API keys and grants in the catalog, over SQLite and PostgreSQL."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import msgspec
import pytest

from lamella.service.catalog import KeyRecord, SqlCatalog, open_catalog
from lamella.snapshot.errors import AlreadyExists, KeyNotFound
from lamella.snapshot.wire import GrantInfo

BACKENDS = ("sqlite", pytest.param("postgres", marks=pytest.mark.postgres))
#: Makes keys, gives them something and ends them again; another one's turn may come between any two of these.
CHURNS = """
import sys
from lamella.service.catalog import KeyRecord, open_catalog
from lamella.snapshot.errors import AlreadyExists, KeyNotFound
from lamella.snapshot.wire import GrantInfo

catalog, own, rounds = open_catalog(sys.argv[1]), sys.argv[2], int(sys.argv[3])
for number in range(rounds):
    name = f"k{number % 3}"
    def grant(namespace):
        return GrantInfo(principal=f"key:{name}", role="read", namespace=namespace, created_ms=1, created_by=own)
    try:
        catalog.add_key(KeyRecord(name=name, sha256=f"{own}{number:063}", created_ms=1, created_by=own), [grant("a")])
    except AlreadyExists:
        pass
    for act in (lambda: catalog.put_grant(grant(own)), lambda: catalog.drop_key(name)):
        try:
            act()
        except KeyNotFound:
            pass
catalog.close()
"""


@pytest.fixture(params=BACKENDS)
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """An empty database."""
    sqlite = request.param == "sqlite"
    return str(tmp_path / "catalog.db") if sqlite else str(request.getfixturevalue("postgres_database"))


@pytest.fixture
def catalog(url: str) -> Iterator[SqlCatalog]:
    """A catalog without keys."""
    catalog = open_catalog(url)
    yield catalog
    catalog.close()


def key(name: str = "etl", **values: Any) -> KeyRecord:
    """A key whose hash follows from its name."""
    given: dict[str, Any] = {"sha256": f"{name:_>64}"[:64], "created_ms": 5, "created_by": "root"}
    return KeyRecord(name=name, **{**given, **values})


def grant(principal: str, namespace: str | None = None, table: str | None = None, **values: Any) -> GrantInfo:
    """A role on a place."""
    given = {"role": "read", "created_ms": 5, "created_by": "root", **values}
    return GrantInfo(principal=principal, namespace=namespace, table=table, **given)


def test_a_key_is_given_back_as_it_was_added(catalog: SqlCatalog) -> None:
    """By its name and by its hash, with all that it has, and with nothing that it has not."""
    plain = key("plain")
    full = key(
        "full",
        old_sha256="f" * 64,
        old_until_ms=1 << 45,
        expires_ms=1 << 46,
        rotated_ms=6,
        used_ms=7,
        requests_per_s=0.1,
    )
    catalog.add_key(plain, [])
    catalog.add_key(full, [])
    assert catalog.key("plain") == plain
    assert catalog.key("full") == full
    assert catalog.api_keys() == [full, plain]
    assert [catalog.key_of(each) for each in (plain.sha256, full.sha256, "f" * 64)] == [plain, full, full]
    for sha256 in ("", "0" * 64, "f" * 63, "\0"):
        assert catalog.key_of(sha256) is None
    for name in ("", "Plain", "nothing", "plain\0", "é"):
        with pytest.raises(KeyNotFound):
            catalog.key(name)


def test_a_name_is_taken_until_its_key_is_dropped(catalog: SqlCatalog) -> None:
    """A second key of that name changes nothing of the first, nor of what it was granted."""
    catalog.add_key(key(), [grant("key:etl", "a")])
    with pytest.raises(AlreadyExists):
        catalog.add_key(key(sha256="1" * 64), [grant("key:etl", "b")])
    assert catalog.key("etl") == key()
    assert catalog.grants(["key:etl"]) == [grant("key:etl", "a")]
    catalog.drop_key("etl")
    catalog.add_key(key(sha256="1" * 64), [grant("key:etl", "b")])
    assert catalog.key_of(key().sha256) is None
    assert catalog.grants(["key:etl"]) == [grant("key:etl", "b")]


def test_a_key_that_is_dropped_leaves_nothing_behind(catalog: SqlCatalog) -> None:
    """Neither grants nor keys that are its own; those of names that begin alike stay."""
    catalog.add_key(key(), [grant("key:etl", "a"), grant("key:etl")])
    catalog.add_key(key("etl2", created_by="key:etl"), [grant("key:etl2", "a", created_by="key:etl")])
    catalog.add_key(key("etl3", created_by="key:etl2"), [])
    catalog.put_grant(grant("user:etl", "a"))
    catalog.put_grant(grant("group:key:etl", "a"))
    catalog.drop_key("etl")
    assert [each.principal for each in catalog.grants()] == ["group:key:etl", "key:etl2", "user:etl"]
    assert [(each.name, each.created_by) for each in catalog.api_keys()] == [
        ("etl2", "key:etl (revoked)"),
        ("etl3", "key:etl2"),
    ]
    for use in (lambda: catalog.drop_key("etl"), lambda: catalog.key("etl")):
        with pytest.raises(KeyNotFound):
            use()


def test_a_rotation_keeps_the_text_before_and_no_other(catalog: SqlCatalog) -> None:
    """It is theirs from then on who rotated it; what else is known of it stays."""
    catalog.add_key(key(requests_per_s=2.0, used_ms=9), [grant("key:etl", "a")])
    first = catalog.rotate_key("etl", sha256="1" * 64, old_until_ms=100, expires_ms=None, now_ms=50, by="user:ann")
    assert first == key(
        sha256="1" * 64,
        old_sha256=key().sha256,
        old_until_ms=100,
        created_by="user:ann",
        rotated_ms=50,
        requests_per_s=2.0,
        used_ms=9,
    )
    second = catalog.rotate_key("etl", sha256="2" * 64, old_until_ms=200, expires_ms=900, now_ms=60, by="root")
    assert (second.sha256, second.old_sha256, second.expires_ms) == ("2" * 64, "1" * 64, 900)
    assert catalog.key("etl") == second
    assert catalog.key_of(key().sha256) is None
    assert catalog.grants(["key:etl"]) == [grant("key:etl", "a")]
    with pytest.raises(KeyNotFound):
        catalog.rotate_key("nothing", sha256="3" * 64, old_until_ms=1, expires_ms=None, now_ms=1, by="root")


@pytest.mark.parametrize(("ends_ms", "old_until_ms"), [(None, 100), (100, 100), (99, 99), (101, 100), (1, 1)])
def test_the_text_before_ends_when_it_would_have(catalog: SqlCatalog, ends_ms: int | None, old_until_ms: int) -> None:
    """Whatever the rotation says."""
    catalog.add_key(key(expires_ms=ends_ms), [])
    rotated = catalog.rotate_key("etl", sha256="1" * 64, old_until_ms=100, expires_ms=None, now_ms=50, by="root")
    assert rotated.old_until_ms == old_until_ms


def test_the_use_of_a_key_is_noted(catalog: SqlCatalog) -> None:
    """Of that key alone; of one that is gone it is nothing."""
    catalog.add_key(key(), [])
    catalog.add_key(key("other"), [])
    catalog.note_key_use("etl", 77)
    catalog.note_key_use("nothing", 78)
    assert [each.used_ms for each in catalog.api_keys()] == [77, None]


def test_grants_are_given_back_by_principal_and_scope(catalog: SqlCatalog) -> None:
    """Those of some principals, however many are asked for, or all."""
    given = [
        grant("group:g", None, None, role="admin"),
        grant("group:g", "a", None, role="write"),
        grant("group:g", "a", "t", role="maintain", created_ms=1 << 45, created_by="é"),
        grant("user:ann", "a.b", "t"),
        grant("user:Ann", "a", "t"),
        grant("user:O'Hara \U0001f600", "a"),
    ]
    for each in reversed(given):
        catalog.put_grant(each)
    assert catalog.grants() == sorted(given, key=lambda g: (g.principal, g.namespace or "", g.table or ""))
    assert catalog.grants(["group:g"]) == given[:3]
    assert catalog.grants(["user:ann", "user:O'Hara \U0001f600", "user:\0"]) == [given[5], given[3]]
    assert catalog.grants([]) == []
    assert catalog.grants([*(f"user:{number}" for number in range(1_700)), "user:Ann"]) == [given[4]]


def test_one_role_stands_on_a_scope(catalog: SqlCatalog) -> None:
    """A new one takes the place of the one before; dropping says whether there was one."""
    catalog.put_grant(grant("user:ann", "a", role="admin"))
    newer = grant("user:ann", "a", role="read", created_ms=6, created_by="user:bob")
    catalog.put_grant(newer)
    assert catalog.grants() == [newer]
    assert not catalog.drop_grant("user:ann", "a", "t")
    assert not catalog.drop_grant("user:ann", None, None)
    assert not catalog.drop_grant("user:bob", "a", None)
    assert catalog.drop_grant("user:ann", "a", None)
    assert not catalog.drop_grant("user:ann", "a", None)
    assert catalog.grants() == []


def test_nothing_is_given_to_a_key_that_is_not_there(catalog: SqlCatalog) -> None:
    """Users and groups need not be known."""
    for name in ("nothing", "", "nothing "):
        with pytest.raises(KeyNotFound):
            catalog.put_grant(grant(f"key:{name}", "a"))
    catalog.put_grant(grant("user:nothing", "a"))
    assert [each.principal for each in catalog.grants()] == ["user:nothing"]


def at_once(*acts: Callable[[], object]) -> list[Exception | None]:
    """Do them in as many threads; what each of them raised."""
    barrier = threading.Barrier(len(acts))

    def run(act: Callable[[], object]) -> Exception | None:
        barrier.wait(60)
        try:
            act()
        except Exception as error:
            return error
        return None

    with ThreadPoolExecutor(len(acts)) as threads:
        return list(threads.map(run, acts))


def test_a_grant_and_the_end_of_its_key_happen_one_after_the_other(url: str, catalog: SqlCatalog) -> None:
    """Whichever comes first, in the end there is neither: another key of that name would have what it was not given."""
    other = open_catalog(url)
    for number in range(40):
        catalog.add_key(key(sha256=f"{number:064}"), [])
        put, drop = at_once(
            lambda: other.put_grant(grant("key:etl", "a", role="admin")), lambda: catalog.drop_key("etl")
        )
        assert put is None or type(put) is KeyNotFound
        assert drop is None
        assert catalog.grants() == []
    other.close()


def test_one_of_many_makes_the_key_of_a_name(url: str, catalog: SqlCatalog) -> None:
    """The others are told, and the key has the grants that it was made with, and none of theirs."""
    others = [open_catalog(url) for _ in range(3)]
    for number in range(10):
        records = [key(sha256=f"{at}{number:063}", created_by=f"user:{at}") for at in range(4)]
        raised = at_once(
            *(
                lambda at=at, each=each, record=record: each.add_key(record, [grant("key:etl", f"n{at}")])
                for at, (each, record) in enumerate(zip([catalog, *others], records, strict=True))
            )
        )
        assert [type(each) for each in raised if each is not None] == [AlreadyExists] * 3
        made = catalog.key("etl")
        assert [each.namespace for each in catalog.grants()] == [f"n{made.created_by.removeprefix('user:')}"]
        catalog.drop_key("etl")
    for each in others:
        each.close()


def test_rotations_at_once_follow_one_another(url: str, catalog: SqlCatalog) -> None:
    """Each one's old text is the new text of the one before it, so that none of them is lost on the way."""
    others = [open_catalog(url) for _ in range(3)]
    catalog.add_key(key(sha256="0" * 64), [])
    found: list[KeyRecord] = []
    lock = threading.Lock()

    def rotate(each: SqlCatalog, at: int) -> None:
        for number in range(10):
            made = each.rotate_key("etl", sha256=f"{at}{number:063}", old_until_ms=9, expires_ms=None, now_ms=5, by="x")
            with lock:
                found.append(made)

    assert at_once(*(lambda at=at, each=each: rotate(each, at) for at, each in enumerate(others, 1))) == [None] * 3
    before = {made.old_sha256 for made in found}
    after = {made.sha256 for made in found}
    assert len(before) == len(after) == 30
    assert before - after == {"0" * 64}
    assert after - before == {catalog.key("etl").sha256}
    for each in others:
        each.close()


def test_processes_that_make_and_end_keys_leave_no_grants_of_none(url: str, catalog: SqlCatalog) -> None:
    """Whatever they do at once to keys of the same names."""
    running = [subprocess.Popen([sys.executable, "-c", CHURNS, url, own, "60"]) for own in "xyz"]
    assert [process.wait(timeout=120) for process in running] == [0, 0, 0]
    there = {each.principal for each in catalog.api_keys()}
    assert {each.principal for each in catalog.grants()} <= there


def test_keys_and_grants_are_there_for_the_next_process(url: str, catalog: SqlCatalog) -> None:
    """They are in the database, and in no process's memory."""
    catalog.add_key(key(), [grant("key:etl", "a")])
    again = open_catalog(url)
    assert (again.key("etl"), again.grants()) == (key(), [grant("key:etl", "a")])
    again.drop_key("etl")
    assert catalog.key_of(key().sha256) is None
    assert msgspec.to_builtins(catalog.grants()) == []
    again.close()
