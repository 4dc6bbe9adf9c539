"""The cache on disk: restarts, damage, room, and what the disk and other processes may do to it."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest

from lamella.snapshot.cache import Buffer, DiskCache, FileMaps
from lamella.snapshot.errors import InvalidRequest
from support.cache_folder import Heard, copied, plain

ROOMY = 64 << 20


def made(*buffers: Buffer) -> Callable[[], Sequence[Buffer]]:
    return lambda: buffers


def never() -> Sequence[Buffer]:
    raise AssertionError("the cache has it")


def never_read() -> bytes:
    raise AssertionError("the cache has it")


def files(folder: Path) -> list[Path]:
    """The cache's files, those that are being written not among them."""
    return sorted(path for path in folder.glob("v1/??/*") if path.is_file())


def size_bytes(folder: Path) -> int:
    """What all files of the cache take, in whole pages."""
    return sum(-(-path.stat().st_size // 4096) * 4096 for path in folder.glob("v1/*/*"))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "some" / "cache"


def test_a_restart_finds_what_was_there(folder: Path, heard: Heard) -> None:
    """Another cache on the same folder makes nothing anew."""
    first = DiskCache(folder, ROOMY)
    first.derived("x", made(b"abc", b"", b"d" * 1000))
    first.content("00ff", lambda: b"content")
    second = DiskCache(folder, ROOMY, heard)
    assert plain(second.derived("x", never)) == (b"abc", b"", b"d" * 1000)
    assert copied(second.content("00ff", never_read)) == (b"content", True)
    assert second.has_content("00ff")
    assert not second.has_content("00fe")
    assert heard.files == {"hit": 2}


def test_content_and_derived_columns_have_names_of_their_own(folder: Path) -> None:
    """A key that looks like a hash is not taken for one."""
    cache = DiskCache(folder, ROOMY)
    cache.content("aa", lambda: b"content")
    assert plain(cache.derived("aa", made(b"derived"))) == (b"derived",)
    assert plain(cache.derived("content aa", made(b"derived"))) == (b"derived",)


def test_buffers_lie_on_whole_cache_lines(folder: Path) -> None:
    """Mapped buffers start at multiples of 64, so that arrays over them are aligned."""
    views = DiskCache(folder, ROOMY).derived("x", made(b"a", b"b" * 65, b"c" * 64, b"d"))
    assert [np.frombuffer(view, dtype=np.uint8).ctypes.data % 64 for view in views] == [0, 0, 0, 0]


def damaged_once(folder: Path, damage: Callable[[bytes], bytes]) -> None:
    """Damage the only file, and see that a fresh process of it throws it away and makes it anew."""
    (path,) = files(folder)
    good = path.read_bytes()
    path.write_bytes(damage(good))
    heard = Heard()
    cache = DiskCache(folder, ROOMY, heard)
    assert plain(cache.derived("x", made(b"abc" * 30, b"z"))) == (b"abc" * 30, b"z")
    assert heard.files == {"damaged": 1, "miss": 1}
    assert path.read_bytes() == good
    assert plain(DiskCache(folder, ROOMY).derived("x", never)) == (b"abc" * 30, b"z")


def test_any_damaged_byte_is_found(folder: Path) -> None:
    """Each byte of a file, whatever it is there for."""
    DiskCache(folder, ROOMY).derived("x", made(b"abc" * 30, b"z"))
    (path,) = files(folder)
    for position in range(path.stat().st_size):
        flip = 1 << position % 8

        def damage(data: bytes, position: int = position, flip: int = flip) -> bytes:
            return data[:position] + bytes([data[position] ^ flip]) + data[position + 1 :]

        damaged_once(folder, damage)


def test_a_torn_file_is_found(folder: Path) -> None:
    """Cut anywhere, empty, longer than it was, or with zeros where the rest had not reached the disk."""
    DiskCache(folder, ROOMY).derived("x", made(b"abc" * 30, b"z"))
    (path,) = files(folder)
    for length in range(path.stat().st_size):
        damaged_once(folder, lambda data, length=length: data[:length])  # type: ignore[misc]  # bound by default
    for start in range(0, path.stat().st_size - 64, 16):
        damaged_once(folder, lambda data, start=start: data[:start] + bytes(len(data) - start))  # type: ignore[misc]  # as above
    damaged_once(folder, lambda data: data + b"\0")


def test_a_file_under_anothers_name_is_found(folder: Path) -> None:
    """A file says which key it is of."""
    cache = DiskCache(folder, ROOMY)
    cache.derived("x", made(b"x"))
    (x,) = files(folder)
    cache.derived("y", made(b"y"))
    (y,) = set(files(folder)) - {x}
    os.replace(y, x)
    assert plain(DiskCache(folder, ROOMY).derived("x", made(b"x"))) == (b"x",)


def test_the_bound_holds_and_what_was_not_opened_for_longest_goes_first(folder: Path, heard: Heard) -> None:
    """After each file that is added, and the files that are opened stay."""
    limit = 40 * 4096
    for number in range(100):
        cache = DiskCache(folder, limit, heard)  # as after a restart, so that nothing counts as mapped
        cache.derived(f"x{number}", made(bytes([number]) * 5000))
        for path in files(folder):
            stat = path.stat()
            os.utime(path, ns=(stat.st_mtime_ns - 10**9, stat.st_mtime_ns - 10**9))
        DiskCache(folder, limit).derived("x0", never)
        assert size_bytes(folder) <= limit
    assert heard.files["evicted"] >= 80
    assert 0 < heard.size_bytes <= limit
    remaining = [number for number in range(100) if _has(folder, f"x{number}")]
    assert remaining[0] == 0
    assert remaining[1:] == list(range(100 - len(remaining) + 1, 100))


def _has(folder: Path, key: str) -> bool:
    calls: list[int] = []
    DiskCache(folder, 0).derived(key, lambda: calls.append(1) or [b""])  # type: ignore[func-returns-value]  # None
    return not calls


def test_a_smaller_bound_takes_effect_with_the_next_file(folder: Path) -> None:
    """A restart with another setting needs nobody to delete anything."""
    large = DiskCache(folder, ROOMY)
    for number in range(50):
        large.derived(f"x{number}", made(bytes(8192)))
    DiskCache(folder, 10 * 4096).derived("y", made(b"y"))
    assert size_bytes(folder) <= 10 * 4096


def test_a_mapped_file_may_be_evicted(folder: Path) -> None:
    """By this process or another: what was handed out stays as it is, and is found without its file."""
    cache = DiskCache(folder, 10 * 4096)
    (view,) = cache.derived("x", made(b"x" * 20_000))
    (path,) = files(folder)
    for number in range(20):
        DiskCache(folder, 10 * 4096).derived(f"other{number}", made(bytes(8000)))
    assert not path.exists()
    assert bytes(view) == b"x" * 20_000
    assert plain(cache.derived("x", never)) == (b"x" * 20_000,)
    del view
    calls: list[int] = []
    cache.derived("x", lambda: [calls.append(1) or b"x"])  # type: ignore[func-returns-value]  # None
    assert calls


def test_what_is_mapped_counts_as_used(folder: Path) -> None:
    """A file that was opened long ago and is still held goes after those that nobody holds."""
    limit = 12 * 4096
    cache = DiskCache(folder, limit)
    pinned = cache.derived("held", made(b"h"))
    (path,) = files(folder)
    os.utime(path, (1, 1))
    for number in range(40):
        cache.derived(f"x{number}", made(b"x"))
    assert path.exists()
    assert plain(pinned) == (b"h",)


def test_unfinished_files_are_cleared_away(folder: Path) -> None:
    """What a process that died was writing is gone after the next sweep, and was never a file of the cache."""
    DiskCache(folder, ROOMY).derived("x", made(b"x"))
    left = folder / "v1" / "tmp" / "left"
    left.write_bytes(bytes(10_000))
    DiskCache(folder, ROOMY).derived("y", made(b"y"))
    assert not left.exists()
    assert len(files(folder)) == 2


def test_no_more_files_are_mapped_than_may_be(folder: Path) -> None:
    """Beyond the bound files are read instead, and nothing else changes; maps that nobody holds do not count."""
    cache = DiskCache(folder, ROOMY, maps=FileMaps(3))
    opened = [cache.content(f"{number:02}", lambda number=number: b"%d" % number) for number in range(6)]  # type: ignore[misc]  # bound by default
    assert [(bytes(view), mapped) for view, mapped in opened] == [(b"%d" % n, n < 3) for n in range(6)]
    assert copied(cache.content("05", never_read)) == (b"5", False)
    opened.clear()
    assert copied(cache.content("05", never_read)) == (b"5", True)


def test_open_files_do_not_add_up(folder: Path) -> None:
    """A map holds no descriptor: a process may have thousands."""
    cache = DiskCache(folder, ROOMY)
    cache.derived("first", made(b""))
    before = len(os.listdir("/proc/self/fd"))
    opened = [cache.derived(f"x{number}", made(b"x")) for number in range(50)]
    assert len(os.listdir("/proc/self/fd")) == before
    assert len(opened) == 50


def test_a_folder_that_is_deleted_is_made_again(folder: Path) -> None:
    """Deleting the cache under a running process costs time and nothing else."""
    cache = DiskCache(folder, ROOMY)
    view = cache.derived("x", made(b"x"))
    subprocess.run(["rm", "-r", str(folder / "v1")], check=True)
    assert plain(cache.derived("y", made(b"y"))) == (b"y",)
    assert plain(cache.derived("x", never)) == plain(view)
    assert plain(DiskCache(folder, ROOMY).derived("y", never)) == (b"y",)


def test_a_disk_that_fails_fails_no_request(folder: Path, heard: Heard) -> None:
    """The answer is right, on the heap, and the failure is heard of."""
    cache = DiskCache(folder, ROOMY, heard)
    subprocess.run(["rm", "-r", str(folder / "v1")], check=True)
    (folder / "v1").write_text("in the way")
    assert plain(cache.derived("x", made(b"x"))) == (b"x",)
    assert copied(cache.content("aa", lambda: b"content")) == (b"content", False)
    assert heard.files["failed"] >= 2
    assert heard.files["miss"] == 2


def test_a_writer_that_never_ends_stops_nobody(folder: Path) -> None:
    """While another process keeps the lock, what is made is handed out and not written."""
    cache = DiskCache(folder, ROOMY, lock_wait_s=0.01)
    cache.derived("x", made(b"x"))
    with open(folder / "v1" / "room", "rb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert plain(cache.derived("y", made(b"y"))) == (b"y",)
        assert len(files(folder)) == 1
        assert plain(DiskCache(folder, ROOMY).derived("x", never)) == (b"x",)
    cache.derived("y", made(b"y"))
    assert len(files(folder)) == 2


def test_a_sum_that_was_lost_is_counted_anew(folder: Path) -> None:
    """The lock's file may be cut or hold nonsense."""
    limit = 10 * 4096
    for nonsense in (b"", b"xyz", b"\xff" * 8, bytes(8)):
        cache = DiskCache(folder, limit)
        for number in range(8):
            cache.derived(f"{nonsense!r}{number}", made(b"x"))
        (folder / "v1" / "room").write_bytes(nonsense)
        for number in range(8):
            DiskCache(folder, limit).derived(f"{nonsense!r}{number}b", made(b"x"))
            assert size_bytes(folder) <= limit


def test_a_folder_that_others_may_write_to_is_refused(folder: Path) -> None:
    """Derived columns are believed, so nobody else may put any there."""
    DiskCache(folder, ROOMY)
    assert (folder / "v1").stat().st_mode & 0o777 == 0o700
    (folder / "v1").chmod(0o770)
    with pytest.raises(InvalidRequest, match="must not be writable by others"):
        DiskCache(folder, ROOMY)


def test_a_folder_that_cannot_be_made_is_refused(tmp_path: Path) -> None:
    """When the service starts, not with the first request."""
    (tmp_path / "file").write_text("x")
    with pytest.raises(InvalidRequest, match="a cache cannot be created"):
        DiskCache(tmp_path / "file" / "cache", ROOMY)


FILLER = """
import sys
from lamella.snapshot.cache import DiskCache
folder, limit, seed = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
cache = DiskCache(folder, limit)
print("ready", flush=True)
sys.stdin.readline()
for turn in range(3):
    for number in range(40):
        number = (number * 7 + seed) % 40
        key = f"k{number}"
        views = cache.derived(key, lambda: [key.encode() * 500, bytes([number]) * 3000])
        assert [bytes(v) for v in views] == [key.encode() * 500, bytes([number]) * 3000], key
        if (number + seed) % 3 == 0:
            cache.content(f"{number:04x}", lambda: b"c%d" % number)
print("done", flush=True)
"""


@pytest.fixture
def started() -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Starts Python programs that end with the test."""
    running: list[subprocess.Popen[str]] = []

    def start(program: str, *arguments: object) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-c", program, *map(str, arguments)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        running.append(process)
        return process

    yield start
    for process in running:
        with process:
            process.kill()


def line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


@pytest.mark.parametrize("limit", [ROOMY, 20 * 8192])
def test_processes_fill_a_cache_at_once(
    folder: Path, limit: int, started: Callable[..., subprocess.Popen[str]]
) -> None:
    """Three that want the same files, with room and without: each gets the right bytes, and the bound holds."""
    processes = [started(FILLER, folder, limit, seed) for seed in (0, 1, 13)]
    for process in processes:
        assert line(process) == "ready"
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("\n")
        process.stdin.flush()
    largest = 0
    while any(process.poll() is None for process in processes):
        largest = max(largest, _size_now(folder))
        time.sleep(0.01)  # writers want the lock, too
    assert [line(process) for process in processes] == ["done"] * 3
    assert largest <= limit
    assert size_bytes(folder) <= limit
    cache = DiskCache(folder, limit)
    for number in range(40):
        key = f"k{number}"
        views = cache.derived(key, made(key.encode() * 500, bytes([number]) * 3000))
        assert plain(views) == (key.encode() * 500, bytes([number]) * 3000)
    if limit == ROOMY:
        assert not list((folder / "v1" / "tmp").iterdir())


def _size_now(folder: Path) -> int:
    """As :func:`size_bytes`, at a moment when nobody writes."""
    try:
        with open(folder / "v1" / "room", "rb") as lock:
            fcntl.flock(lock, fcntl.LOCK_SH)
            return size_bytes(folder)
    except FileNotFoundError:
        return 0


ENDLESS = """
import sys
from lamella.snapshot.cache import DiskCache
cache = DiskCache(sys.argv[1], int(sys.argv[2]))
print("ready", flush=True)
number = 0
while True:
    number += 1
    cache.derived(f"k{number % 60}", lambda: [bytes([number % 60]) * 30_000])
"""


def test_a_process_that_is_killed_leaves_a_cache_that_is_right(
    folder: Path, started: Callable[..., subprocess.Popen[str]]
) -> None:
    """At any moment: what is there afterwards is whole, the bound holds, and others can write."""
    limit = 300_000
    for turn in range(6):
        process = started(ENDLESS, folder, limit)
        assert line(process) == "ready"
        time.sleep(0.01 * turn)
        process.kill()
        process.wait()
        assert size_bytes(folder) <= limit + 32_768  # the file that it was writing
        heard = Heard()
        cache = DiskCache(folder, limit, heard)
        cache.derived(f"after {turn}", made(b"x"))
        assert len(files(folder)) >= 1
        assert size_bytes(folder) <= limit
        for number in range(60):
            assert plain(cache.derived(f"k{number}", made(bytes([number]) * 30_000))) == (bytes([number]) * 30_000,)
        assert heard.files["damaged"] == 0
