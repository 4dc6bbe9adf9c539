"""Which places a table may use, judged by readers that take a location in the worst way that any program does."""

from __future__ import annotations

import posixpath
from collections.abc import Iterator
from urllib.parse import unquote

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lamella.snapshot.errors import InvalidRequest, LocationRefused, ObjectNotFound
from lamella.snapshot.storage import AllLocations, FsspecStore, TableLocations, check_prefix
from lamella.snapshot.storage.location import parse

OWN, OTHER = "01920000-0000-7000-8000-000000000001", "01920000-0000-7000-8000-000000000002"
ROOTS = ("s3://b", "file://", "memory://b")

#: Parts of paths that lead elsewhere for one program or another, among honest ones.
PARTS = (
    *("..", ".", "...", "..x", "%2e", "%2e%2e", "%2E.", ".%2e", "%252e%252e", "%25252e%25252e", "%2525252e%2525252e"),
    *("..%2f..", "%", "%zz", "100%25", "*", "**", "[a]", "?", "_b", "a", "A", "x.parquet"),
    *("sales", "Sales", "SALES", "%73ales", "sales-secret", "sales%2f..%2fsecret", "lake", "LAKE", "%6cake", "lake%2f"),
)
SEGMENTS = st.one_of(
    st.sampled_from(["", OWN, OTHER, OTHER.upper(), *PARTS]), st.text(alphabet="a.%2/eE~ ", max_size=4)
)
TAILS = st.lists(SEGMENTS, max_size=7).map("/".join)
SPELLINGS = st.sampled_from(
    ["{}", "S3A://b", "s3n://b", "S3://b", "s3://B", "s3://b%2f..", "FILE://", "", "s3://b/sales"]
)


def locations_below(root: str, *prefixes: str) -> TableLocations:
    """A table of a warehouse ``lake`` below a root, which may also use ``sales``."""
    return TableLocations(f"{root}/lake", f"{root}/lake/{OWN}", prefixes or (f"{root}/sales",))


def readings(location: str) -> Iterator[str]:
    """The path of a location as programs take it that decode it so often, and resolve what leads up."""
    at = parse(location)
    path = at.path
    for _ in range(8):
        yield f"{at.scheme}:{posixpath.normpath('/' + path)}"
        path = unquote(path)


def in_folder(path: str, folder: str) -> bool:
    """Strictly below."""
    return path.startswith(folder + "/")


@settings(max_examples=1_000)
@given(root=st.sampled_from(ROOTS), spelling=SPELLINGS, tail=TAILS)
def test_what_is_allowed_stays_inside_however_it_is_read(root: str, spelling: str, tail: str) -> None:
    """No spelling leads out: not by ``..``, by percent signs, by case, by doubled slashes, nor by another scheme."""
    location = f"{spelling.format(root)}/{tail}"
    own, lake, sales = (next(readings(f"{root}/{path}")) for path in (f"lake/{OWN}", "lake", "sales"))
    try:
        allowed = locations_below(root).allows(location)
    except InvalidRequest:
        return
    if not allowed:
        return
    for path in readings(location):
        assert in_folder(path, own) or (
            in_folder(path, sales) and not in_folder(path.casefold() + "/", lake.casefold())
        ), (location, path)


@settings(max_examples=1_000)
@given(root=st.sampled_from(ROOTS), tail=TAILS)
def test_tables_of_others_stay_theirs_under_a_prefix_that_holds_the_warehouse(root: str, tail: str) -> None:
    """With everything allowed, the warehouse is still not, in any reading; but for the table's own folder."""
    location = f"{root}/{tail}"
    own, lake = (next(readings(f"{root}/{path}")) for path in (f"lake/{OWN}", "lake"))
    try:
        allowed = locations_below(root, f"{root}/").allows(location)
    except InvalidRequest:
        return
    if not allowed:
        return
    for path in readings(location):
        assert in_folder(path, own) or not in_folder(path.casefold() + "/", lake.casefold()), (location, path)


@given(tail=st.lists(st.text(min_size=1, max_size=9).filter(lambda text: text[0] not in "./%"), min_size=1, max_size=4))
def test_an_honest_file_below_a_prefix_is_allowed(tail: list[str]) -> None:
    """Whatever letters a name has, rules do not get in its way, as long as it has no part that leads elsewhere."""
    name = "/".join(part.replace("/", "_").replace("%", "_").replace("\0", "_") for part in tail)
    for root in ROOTS:
        rules = locations_below(root)
        assert rules.allows(f"{root}/sales/{name}")
        assert rules.allows(f"{root}/lake/{OWN}/{name}")
        assert not rules.allows(f"{root}/lake/{OTHER}/{name}")
        assert not rules.allows(f"{root}/sales-secret/{name}")
        rules.require_all_below(f"{root}/sales/{name}")


@given(folder=st.sampled_from(["/sales", "/sal*", "", "/lake", f"/lake/{OWN}", "/sales/**", "/*/d"]), tail=TAILS)
def test_what_a_url_stands_for_is_allowed_when_the_url_is(folder: str, tail: str) -> None:
    """A folder or glob that may be asked for lists only what lies in allowed places, whatever the store has."""
    store = FsspecStore()
    root = "memory://places-test"
    names = [
        f"{prefix}/d/x.parquet" for prefix in ("sales", "sales-secret", f"lake/{OWN}", f"lake/{OTHER}", "lake", "else")
    ]
    for name in names:
        if name not in _made:
            _made.add(name)
            store.put(f"{root}/{name}", b"x")
    rules = locations_below(root)
    url = f"{root}{folder}/{tail}"
    try:
        rules.require_all_below(url)
        found = store.expand(url)
    except (InvalidRequest, ObjectNotFound):
        return
    for location in found:
        assert location.startswith((f"{root}/sales/", f"{root}/lake/{OWN}/")), url


_made: set[str] = set()


@pytest.mark.parametrize(
    "url",
    [
        "s3://b/sales-secret/x",
        "s3://b/sales/../secret/x",
        "s3://b/sales/%2e%2e/secret/x",
        "s3://b//sales/x",
        "s3://B/sales/x",
        "s3://b/Sales/x",
        "s3://b/sal*",
        "s3://*/sales/x",
        "s3://b/sales/*/../../secret",
        "s3://b",
        "s3://b/lake",
        f"s3://b/lake/{OTHER}",
        f"s3://b/lake/{OWN}/../{OTHER}",
        f"s3://b/lake/{OWN}-2/x",
        "file:///sales/x",
    ],
)
def test_a_url_that_leads_out_is_refused_with_its_name(url: str) -> None:
    """The error names the location that was asked for, and has the code by which clients know it."""
    with pytest.raises(LocationRefused) as caught:
        locations_below("s3://b").require_all_below(url)
    assert caught.value.details == {"location": url}
    assert caught.value.code == "location_refused"
    with pytest.raises(LocationRefused):
        locations_below("s3://b").require(url)


def test_a_folder_around_the_warehouse_is_refused_although_its_prefix_is_given() -> None:
    """Listing it would show other tables' files; what lies beside the warehouse can be named."""
    rules = locations_below("s3://b", "s3://b/")
    for url in ("s3://b", "s3://b/", "s3://b/*", "s3://b/l*"):
        with pytest.raises(LocationRefused):
            rules.require_all_below(url)
    rules.require_all_below("s3://b/exports")
    rules.require_all_below("s3://b/lake-2/x")


def test_a_prefix_is_a_folder_with_or_without_its_slash() -> None:
    """``sales`` and ``sales/`` are one rule, and the folder itself can be asked for, but is no file."""
    for prefix in ("s3://b/sales", "s3://b/sales/", "s3a://b/sales//"):
        rules = locations_below("s3://b", prefix)
        rules.require_all_below("s3://b/sales")
        rules.require_all_below("s3://b/sales/")
        assert not rules.allows("s3://b/sales")
        assert rules.allows("s3://b/sales/x")


def test_a_table_without_a_folder_yet_has_only_its_prefixes() -> None:
    """Before a table is made nothing in the warehouse is its own."""
    rules = TableLocations("s3://b/lake", None, ["s3://b/sales"])
    assert rules.allows("s3://b/sales/x")
    assert not rules.allows(f"s3://b/lake/{OWN}/x")


@pytest.mark.parametrize(
    "prefix",
    ["sales", "s3://b/sal*", "s3://b/x/../y", "s3://b/%2e%2e/y", "s3://b/lake", "s3://b/LAKE/landing", "ftp://x"],
)
def test_a_prefix_that_is_no_folder_is_refused(prefix: str) -> None:
    """A relative path, a glob, one that leads up, or one in the warehouse is a mistake that is told at once."""
    with pytest.raises(InvalidRequest):
        check_prefix(prefix, "s3://b/lake")


def test_without_rules_every_location_is_allowed() -> None:
    """That is how a service works that asks nobody who they are."""
    anywhere = AllLocations()
    anywhere.require("s3://b/x")
    anywhere.require_all_below("s3://*")
    assert anywhere.allows("file:///etc/passwd")


def test_a_name_that_two_programs_encoded_is_honest() -> None:
    """Hive encodes a colon in a folder's name, and a log that names the folder encodes the percent sign once more."""
    for name in ("day=2024-01-31 00%3A00", "day=2024-01-31 00%253A00", "100%"):
        assert locations_below("s3://b").allows(f"s3://b/sales/{name}/x.parquet")
