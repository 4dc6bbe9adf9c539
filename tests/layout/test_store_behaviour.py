"""What every store must do, run over each that ships."""

from __future__ import annotations

import pickle
from concurrent.futures import ThreadPoolExecutor

import pytest

from lamella.snapshot.errors import AlreadyExists, InvalidRequest, LamellaError, ObjectNotFound
from lamella.snapshot.ids import unix_ms
from lamella.snapshot.storage import (
    BatchStatStore,
    EndReadingStore,
    ObjectStat,
    ReplacingStore,
    Store,
    check_create_only,
)

StoreRoot = tuple[Store, str]

ODD_NAMES = ["a b.parquet", "100%25.parquet", "a#b?c=d.parquet", "naïve-日本.parquet", "a+b&c.parquet", "[x].parquet"]


def names(store: Store, root: str, url: str) -> list[str]:
    """What a URL below ``root`` expands to, relative to it."""
    return [location.removeprefix(root + "/") for location in store.expand(f"{root}{url}")]


def fill(store_root: StoreRoot, *paths: str) -> None:
    """Create small objects."""
    store, root = store_root
    for path in paths:
        store.put(f"{root}/{path}", path.encode())


def test_what_is_put_can_be_read(store_root: StoreRoot) -> None:
    """Bytes come back as they went in, whole and in ranges, and stat knows their number."""
    store, root = store_root
    data = bytes(range(256)) * 300
    put = store.put(f"{root}/deep/er/x", data)
    assert put == store.stat(f"{root}/deep/er/x")
    assert put.location == f"{root}/deep/er/x"
    assert put.size_bytes == len(data)
    assert store.read(put.location) == data
    assert store.read_range(put.location, 1000, 24) == data[1000:1024]


def test_a_range_is_cut_at_the_end_of_the_object(store_root: StoreRoot) -> None:
    """A range may reach over the end, start behind it, or be empty."""
    store, root = store_root
    location = store.put(f"{root}/x", b"0123456789").location
    assert store.read_range(location, 8, 100) == b"89"
    assert store.read_range(location, 10, 5) == b""
    assert store.read_range(location, 500, 5) == b""
    assert store.read_range(location, 3, 0) == b""
    with pytest.raises(InvalidRequest):
        store.read_range(location, -1, 5)


def test_the_end_of_an_object_comes_with_its_stat(store_root: StoreRoot) -> None:
    """Stores on S3 read the end in one request, and say of which version it is; the others offer no such request."""
    store, root = store_root
    assert isinstance(store, EndReadingStore)
    assert store.reads_ends(f"{root}/x") is root.startswith("s3://")
    for name, data in (("empty", b""), ("short", b"0123456789"), ("long", bytes(range(256)) * 512)):
        stat = store.put(f"{root}/{name}", data)
        if store.reads_ends(stat.location):
            for length in (4, 10, 65_536):
                assert store.read_end(stat.location, length) == (stat, data[-length:])
        else:
            with pytest.raises(InvalidRequest):
                store.read_end(stat.location, 4)
    if store.reads_ends(root):
        with pytest.raises(ObjectNotFound):
            store.read_end(f"{root}/missing", 4)


def test_many_stats_are_those_of_one_call_each(store_root: StoreRoot) -> None:
    """What is asked for together has the same answers, and what is missing or no location is left out."""
    store, root = store_root
    assert isinstance(store, BatchStatStore)
    put = {f"{root}/{name}": store.put(f"{root}/{name}", name.encode()) for name in [*ODD_NAMES, "deep/er/x", "empty"]}
    others = [f"{root}/missing", f"{root}/deep", f"{root}/empty/x", "", "no location", f"{root}/a\0b"]
    found = store.stat_many([*others, *put, *put])
    assert found.items() <= put.items()
    assert not root.startswith("file://") or found == put
    assert store.stat_many([]) == {}


def test_an_empty_object_is_an_object(store_root: StoreRoot) -> None:
    """Zero bytes can be put, read, and not put again."""
    store, root = store_root
    location = store.put(f"{root}/empty", b"").location
    assert store.read(location) == b""
    assert store.read_range(location, 0, 10) == b""
    with pytest.raises(AlreadyExists):
        store.put(location, b"x")


def test_put_never_replaces(store_root: StoreRoot) -> None:
    """A second put, even of the same bytes, is AlreadyExists and leaves the first object alone."""
    store, root = store_root
    first = store.put(f"{root}/x", b"first")
    for data in (b"second", b"first"):
        with pytest.raises(AlreadyExists) as caught:
            store.put(f"{root}/x", data)
        assert caught.value.details["location"] == f"{root}/x"
    assert store.read(f"{root}/x") == b"first"
    assert store.stat(f"{root}/x") == first


def test_one_of_many_writers_wins(store_root: StoreRoot) -> None:
    """Of several puts at the same time exactly one succeeds, and its bytes are what stays."""
    store, root = store_root
    writers = 8
    for turn in range(4):
        location = f"{root}/race{turn}"

        def attempt(i: int, location: str = location) -> bytes | None:
            data = b"%d" % i * 10_000
            try:
                store.put(location, data)
            except AlreadyExists:
                return None
            return data

        with ThreadPoolExecutor(writers) as pool:
            won = [data for data in pool.map(attempt, range(writers)) if data is not None]
        assert won == [store.read(location)]


def test_a_new_content_has_a_new_content_id(store_root: StoreRoot) -> None:
    """Replacing an object by other bytes of the same length shows in its content id."""
    store, root = store_root
    first = store.put(f"{root}/x", b"aaaa")
    store.delete(f"{root}/x")
    second = store.put(f"{root}/x", b"bbbb")
    assert first.content_id != second.content_id


def test_what_is_not_there_is_not_found(store_root: StoreRoot) -> None:
    """Absent objects and folders are ObjectNotFound for every read."""
    store, root = store_root
    fill(store_root, "folder/x.parquet")
    for location in (f"{root}/nope", f"{root}/nope/deeper", f"{root}/folder", f"{root}/folder/x.parquet/below"):
        with pytest.raises(ObjectNotFound):
            store.read(location)
        with pytest.raises(ObjectNotFound):
            store.read_range(location, 0, 4)
        with pytest.raises(ObjectNotFound):
            store.stat(location)
    for url in (f"{root}/nope", f"{root}/nope/*.parquet", f"{root}/folder/*.csv"):
        with pytest.raises(ObjectNotFound):
            store.expand(url)


def test_delete_is_idempotent(store_root: StoreRoot) -> None:
    """Deleting removes the object; deleting again is no error."""
    store, root = store_root
    fill(store_root, "x")
    store.delete(f"{root}/x")
    store.delete(f"{root}/x")
    store.delete(f"{root}/never/there")
    with pytest.raises(ObjectNotFound):
        store.stat(f"{root}/x")


def test_list_gives_everything_below_a_folder(store_root: StoreRoot) -> None:
    """Hidden objects are listed too, as stat knows them, in order; a sibling with the same prefix is not."""
    store, root = store_root
    fill(store_root, "t/_ss/b", "t/_ss/a", "t/.hidden", "t/z/y/x.parquet", "t2/x")
    found = list(store.list(f"{root}/t"))
    assert [f.location.removeprefix(root) for f in found] == ["/t/.hidden", "/t/_ss/a", "/t/_ss/b", "/t/z/y/x.parquet"]
    stats = [store.stat(f.location) for f in found]
    assert [(f.size_bytes, f.content_id) for f in found] == [(s.size_bytes, s.content_id) for s in stats]
    assert list(store.list(f"{root}/t/")) == found
    assert list(store.list(f"{root}/nothing")) == []


def test_a_listing_says_when_an_object_was_put(store_root: StoreRoot) -> None:
    """The time of the last change lies around the put; stores round it, to a second at worst."""
    store, root = store_root
    before_ms = unix_ms()
    fill(store_root, "t/x")
    (found,) = store.list(f"{root}/t")
    assert before_ms - 2_000 <= found.modified_ms <= unix_ms() + 2_000


def test_a_listing_goes_on_where_another_ended(store_root: StoreRoot) -> None:
    """``start_after`` leaves out what sorts up to it, whether it is there or not, and nothing else."""
    store, root = store_root
    fill(store_root, "t/a", "t/b/c", "t/b/d", "t/e")

    def behind(name: str) -> list[str]:
        return [f.location.removeprefix(f"{root}/t/") for f in store.list(f"{root}/t", start_after=f"{root}/{name}")]

    assert behind("t/a") == ["b/c", "b/d", "e"]
    assert behind("t/b/cc") == ["b/d", "e"]
    assert behind("t/e") == []
    assert behind("a") == ["a", "b/c", "b/d", "e"]
    assert behind("z") == []


@pytest.mark.parametrize("name", ["x", *ODD_NAMES, "del\x7f.parquet"])
@pytest.mark.few(3)
def test_many_objects_are_deleted_at_once(store_root: StoreRoot, name: str) -> None:
    """What is named is gone, whatever it is called; what is not there is no failure; the rest stays."""
    store, root = store_root
    fill(store_root, f"t/{name}", "t/y", "t/z", "t2/y")
    assert store.delete_many([f"{root}/t/{name}", f"{root}/t/y", f"{root}/t/never there"]) == {}
    assert [found.location for found in store.list(root)] == [f"{root}/t/z", f"{root}/t2/y"]
    assert store.delete_many([]) == {}


def test_more_objects_than_one_request_takes(store_root: StoreRoot) -> None:
    """Batches are the store's own affair: the first and the last of many are gone."""
    store, root = store_root
    names = [f"t/{number:04}" for number in range(2_005)]
    fill(store_root, names[0], names[1_000], names[-1])
    assert store.delete_many(f"{root}/{name}" for name in names) == {}
    assert list(store.list(root)) == []


def test_nothing_is_deleted_when_a_location_cannot_be_read(store_root: StoreRoot) -> None:
    """A mistake in the list is found before the first object goes."""
    store, root = store_root
    fill(store_root, "t/x")
    with pytest.raises(InvalidRequest):
        store.delete_many([f"{root}/t/x", "not/absolute"])
    assert store.stat(f"{root}/t/x").size_bytes == 3


def test_a_file_expands_to_itself(store_root: StoreRoot) -> None:
    """A file is taken whatever it is called, also when its name holds glob characters."""
    store, root = store_root
    fill(store_root, "data.bin", "part[0].parquet", "part0.parquet")
    assert names(store, root, "/data.bin") == ["data.bin"]
    assert names(store, root, "/part[0].parquet") == ["part[0].parquet"]


def test_a_folder_expands_to_its_data_files(store_root: StoreRoot) -> None:
    """Parquet files at any depth, sorted; hidden files and folders are left out, partition folders are not."""
    store, root = store_root
    fill(
        store_root,
        "t/b.parquet",
        "t/a.snappy.parquet",
        "t/_SUCCESS",
        "t/_metadata.parquet",
        "t/.b.parquet.crc",
        "t/_temporary/0/c.parquet",
        "t/_p=1/d.parquet",
        "t/day=2024-01-01/e.parquet",
        "t/readme.txt",
        "t2/f.parquet",
    )
    expected = ["t/_p=1/d.parquet", "t/a.snappy.parquet", "t/b.parquet", "t/day=2024-01-01/e.parquet"]
    assert names(store, root, "/t") == expected
    assert names(store, root, "/t/") == expected


def test_globs_choose_files_and_folders(store_root: StoreRoot) -> None:
    """``*``, ``?`` and ``[...]`` stay within one part of the path, ``**`` crosses; a folder stands for its data."""
    store, root = store_root
    fill(
        store_root, "t/y=1/a1.parquet", "t/y=1/a2.parquet", "t/y=2/b1.parquet", "t/y=2/m/c1.parquet", "t/_x/d1.parquet"
    )
    assert names(store, root, "/t/y=1/*.parquet") == ["t/y=1/a1.parquet", "t/y=1/a2.parquet"]
    assert names(store, root, "/t/y=?/?1.parquet") == ["t/y=1/a1.parquet", "t/y=2/b1.parquet"]
    assert names(store, root, "/t/y=[!1]") == ["t/y=2/b1.parquet", "t/y=2/m/c1.parquet"]
    assert names(store, root, "/t/**/[a-b]1.parquet") == ["t/y=1/a1.parquet", "t/y=2/b1.parquet"]
    assert names(store, root, "/t/*") == [
        "t/y=1/a1.parquet",
        "t/y=1/a2.parquet",
        "t/y=2/b1.parquet",
        "t/y=2/m/c1.parquet",
    ]
    assert names(store, root, "/t/_*/*.parquet") == ["t/_x/d1.parquet"]


@pytest.mark.parametrize("name", ODD_NAMES)
@pytest.mark.few(2)
def test_names_are_taken_as_they_are(store_root: StoreRoot, name: str) -> None:
    """Nothing in a location is escaped, unescaped or cut off."""
    store, root = store_root
    location = store.put(f"{root}/dir {name}/{name}", b"data").location
    assert location == f"{root}/dir {name}/{name}"
    assert store.read(location) == b"data"
    assert store.expand(root) == [location]
    assert store.expand(location) == [location]
    assert [found.location for found in store.list(root)] == [location]


def test_create_only_holds(store_root: StoreRoot) -> None:
    """Every shipped store passes its own probe, which leaves nothing behind."""
    store, root = store_root
    check_create_only(store, root)
    assert list(store.list(root)) == []


def test_a_store_can_be_sent_to_another_process(store_root: StoreRoot) -> None:
    """A pickled store has the same options, and works."""
    store, root = store_root
    fill(store_root, "x")
    assert pickle.loads(pickle.dumps(store)).read(f"{root}/x") == b"x"  # noqa: S301  # what was pickled just before


def test_errors_carry_the_location(store_root: StoreRoot) -> None:
    """Whatever fails names the place in its details, so that a registration can report each file."""
    store, root = store_root
    for call in (store.read, store.stat, store.expand):
        with pytest.raises(LamellaError) as caught:
            call(f"{root}/nope")
        assert caught.value.details["location"] == f"{root}/nope"


def test_stats_are_values(store_root: StoreRoot) -> None:
    """Two stats of an object that has not changed are equal."""
    store, root = store_root
    fill(store_root, "x")
    first, second = store.stat(f"{root}/x"), store.stat(f"{root}/x")
    assert isinstance(first, ObjectStat)
    assert first == second


def test_an_object_is_replaced_as_a_whole(store_root: StoreRoot) -> None:
    """It is made where there is none; readers see one of both, never a part, and nothing else is left behind."""
    store, root = store_root
    if not isinstance(store, ReplacingStore):
        pytest.skip("the service's own stores replace nothing")
    texts = [bytes([letter]) * 50_000 for letter in b"ab"]
    store.replace(f"{root}/deep/x", texts[0])

    def write(number: int) -> None:
        store.replace(f"{root}/deep/x", texts[number % 2])

    with ThreadPoolExecutor(4) as pool:
        writes = [pool.submit(write, number) for number in range(20)]
        seen = {store.read(f"{root}/deep/x") for _ in range(20)}
        for each in writes:
            each.result()
    assert seen <= set(texts)
    assert [found.location for found in store.list(f"{root}/deep")] == [f"{root}/deep/x"]
    with pytest.raises(AlreadyExists):
        store.put(f"{root}/deep/x", b"c")
