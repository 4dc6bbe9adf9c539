"""What is special to local files."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from lamella.snapshot.errors import AlreadyExists, ObjectNotFound, StoreError
from lamella.snapshot.storage import FsspecStore


def test_a_put_leaves_nothing_else_behind(tmp_path: Path) -> None:
    """Neither a success nor a conflict leaves a temporary file."""
    store = FsspecStore()
    store.put(f"{tmp_path}/d/x", b"1")
    with pytest.raises(AlreadyExists):
        store.put(f"{tmp_path}/d/x", b"2")
    assert os.listdir(tmp_path / "d") == ["x"]


def test_a_folder_where_an_object_should_be_is_a_conflict(tmp_path: Path) -> None:
    """A put onto a folder changes nothing."""
    (tmp_path / "x").mkdir()
    with pytest.raises(AlreadyExists):
        FsspecStore().put(f"{tmp_path}/x", b"1")
    assert list((tmp_path / "x").iterdir()) == []


def test_a_file_where_a_folder_is_needed_is_a_store_error(tmp_path: Path) -> None:
    """A put below a file cannot work, and that is not a conflict of objects."""
    (tmp_path / "x").write_bytes(b"1")
    with pytest.raises(StoreError):
        FsspecStore().put(f"{tmp_path}/x/y/z", b"1")


def test_links_are_followed_once(tmp_path: Path) -> None:
    """A linked folder's files belong to the folder; a link to a parent does not make listing endless."""
    (tmp_path / "real").mkdir()
    (tmp_path / "real" / "a.parquet").write_bytes(b"1")
    (tmp_path / "t").mkdir()
    (tmp_path / "t" / "link").symlink_to(tmp_path / "real")
    (tmp_path / "t" / "loop").symlink_to(tmp_path / "t")
    (tmp_path / "t" / "broken.parquet").symlink_to(tmp_path / "nothing")
    assert FsspecStore().expand(f"{tmp_path}/t") == [f"file://{tmp_path}/t/link/a.parquet"]


def test_many_stats_are_those_of_files_alone(tmp_path: Path) -> None:
    """A folder, a pipe and a link to nothing are no files; a link to a file has the stat of the file."""
    store = FsspecStore()
    store.put(f"{tmp_path}/x", b"123")
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to(tmp_path / "x")
    (tmp_path / "broken").symlink_to(tmp_path / "nothing")
    names = [f"file://{tmp_path}/{name}" for name in ("folder", "pipe", "link", "broken", "x")]
    found = store.stat_many(names)
    assert found == {name: store.stat(name) for name in (names[2], names[4])}


def test_a_path_that_the_system_refuses_leaves_the_stats_to_single_calls(tmp_path: Path) -> None:
    """A name too long or not UTF-8 is an error of that file alone, so none is answered together."""
    store = FsspecStore()
    store.put(f"{tmp_path}/x", b"123")
    for name in ("y" * 300, "\udcff"):
        assert store.stat_many([f"file://{tmp_path}/x", f"file://{tmp_path}/{name}"]) == {}


def test_the_ends_of_files_in_memory_are_those_that_are_read_one_by_one(tmp_path: Path) -> None:
    """Up to the first location that is no file with bytes; its error is left to the calls for one file."""
    store = FsspecStore()
    names = [store.put(f"{tmp_path}/{size}", bytes(range(size))).location for size in (1, 5, 200)]
    (tmp_path / "link").symlink_to(tmp_path / "5")
    names.append(f"file://{tmp_path}/link")
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "empty").touch()
    ends = {}
    for name in names:
        stat = store.stat(name)
        ends[name] = stat, store.read_range(name, max(0, stat.size_bytes - 8), min(8, stat.size_bytes))
    found = store.read_cached_ends(names, 8)
    assert found in (ends, {})  # not every file system says what is in memory
    for other in "folder", "pipe", "empty", "nothing", "y" * 300, "\udcff", "x\0":
        location = f"file://{tmp_path}/{other}"
        assert store.read_cached_ends([names[0], location, names[1]], 8).items() <= {names[0]: ends[names[0]]}.items()
    assert store.read_cached_ends(["s3://bucket/x", names[0]], 8) == {}
    assert store.read_cached_ends([], 8) == {}


@pytest.mark.parametrize("link", ["_latest", ".current", "a", "z", "a/_b", "z/y"])
def test_a_link_beside_a_folder_changes_none_of_its_files(tmp_path: Path, link: str) -> None:
    """A folder's files keep their own names whatever links to it are there, also hidden ones and links to a parent."""
    names = [f"month={month}/x.parquet" for month in range(4)] + ["_log/0.json", "month=1/_old/x.parquet"]
    for name in names:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(b"1")
    (tmp_path / link).parent.mkdir(exist_ok=True)
    for number, target in enumerate(["month=2", "_log", "."]):
        (tmp_path / f"{link}{number}").symlink_to(tmp_path / target)
    store = FsspecStore()
    assert store.expand(str(tmp_path)) == [f"file://{tmp_path}/{name}" for name in names[:4]]
    listed = {found.location for found in store.list(str(tmp_path))}
    assert listed >= {f"file://{tmp_path}/{name}" for name in names}


@pytest.mark.parametrize("hidden", ["_a", ".a", "_z"])
def test_a_hidden_link_does_not_hide_the_files_of_another(tmp_path: Path, hidden: str) -> None:
    """Of several links to a folder elsewhere, one that is not hidden names its files; real folders keep theirs."""
    for name in ("elsewhere/x.parquet", "t/.versions/3/y.parquet"):
        (tmp_path / name).parent.mkdir(parents=True)
        (tmp_path / name).write_bytes(b"1")
    for name, target in ((hidden, "elsewhere"), ("b", "elsewhere"), ("c", "elsewhere"), ("now", "t/.versions/3")):
        (tmp_path / "t" / name).symlink_to(tmp_path / target)
    store = FsspecStore()
    assert store.expand(f"{tmp_path}/t") == [f"file://{tmp_path}/t/b/x.parquet", f"file://{tmp_path}/t/now/y.parquet"]
    assert f"file://{tmp_path}/t/.versions/3/y.parquet" in {found.location for found in store.list(f"{tmp_path}/t")}


def test_a_link_to_itself_leads_nowhere(tmp_path: Path) -> None:
    """It is no object and holds none, as any link whose target is missing; the files beside it are listed."""
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "loop.parquet").symlink_to("loop.parquet")
    (tmp_path / "x.parquet").write_bytes(b"1")
    store = FsspecStore()
    assert store.expand(str(tmp_path)) == [f"file://{tmp_path}/x.parquet"]
    for read in (store.stat, store.read, store.expand):
        with pytest.raises(ObjectNotFound):
            read(f"{tmp_path}/loop.parquet")


def test_a_name_that_json_cannot_hold_is_an_error(tmp_path: Path) -> None:
    """A file name that is not UTF-8 is reported instead of left out."""
    with open(os.fsencode(tmp_path) + b"/\xff.parquet", "wb") as file:
        file.write(b"1")
    with pytest.raises(StoreError, match="UTF-8"):
        FsspecStore().expand(str(tmp_path))


def test_what_is_no_regular_file_is_no_object(tmp_path: Path) -> None:
    """A pipe is not an object: reading it would wait for ever."""
    os.mkfifo(tmp_path / "pipe.parquet")
    store = FsspecStore()
    with pytest.raises(ObjectNotFound):
        store.stat(f"{tmp_path}/pipe.parquet")
    with pytest.raises(ObjectNotFound):
        store.expand(str(tmp_path))


def test_without_the_right_to_write_it_is_a_store_error() -> None:
    """What the system refuses is a StoreError with its words."""
    with pytest.raises(StoreError, match="/proc"):
        FsspecStore().put("/proc/lamella/x", b"1")


def test_a_file_of_this_machine_can_be_mapped(tmp_path: Path) -> None:
    """Its path is told, whether it is there or not; what the kernel makes up is none, and no other scheme has any."""
    store = FsspecStore()
    assert store.local_path(f"file://{tmp_path}/a b.arrow") == f"{tmp_path}/a b.arrow"
    assert store.local_path(f"{tmp_path}/not/there.arrow") == f"{tmp_path}/not/there.arrow"
    assert store.local_path("file:///proc/self/status") is None
    assert store.local_path("memory://x/y") is None
    assert store.local_path("s3://bucket/key") is None
