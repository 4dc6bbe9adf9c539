"""Directories that are listed: files that are still written, files that change, and programs that are killed."""

from __future__ import annotations

import json
import random
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest

from arrivals.conftest import environment, run, values_of, watch_command
from fixtures_server import ServerProcess
from lamella.client.arrivals.directory import DirectorySource, require_directory
from lamella.client.arrivals.watch import Batch
from lamella.client.http import Table
from lamella.snapshot.errors import InvalidRequest, ObjectNotFound
from lamella.snapshot.schema.evolution import AddCheck
from lamella.snapshot.storage import FsspecStore
from lamella.snapshot.storage.store import ListedObject
from lamella.snapshot.wire import ArrivalsAnswer, RefusedFile
from support.service_api import parquet_bytes

_WAIT_S = 120
LocalTable = tuple[Table, Path]


class ListedFolder(FsspecStore):
    """A store whose only listing is the test's. ``files``: content and age in milliseconds by name."""

    def __init__(self) -> None:
        super().__init__()
        self.files: dict[str, tuple[str, int]] = {}
        self.now_s = 1_000.0

    def list(self, prefix: str, *, start_after: str | None = None) -> Iterator[ListedObject]:
        """The files of the test."""
        for name, (content, modified_ms) in sorted(self.files.items()):
            location = f"{prefix}{name}"
            if start_after is None or location > start_after:
                yield ListedObject(location=location, size_bytes=1, content_id=content, modified_ms=modified_ms)

    def sleep(self, seconds: float) -> None:
        """Let the time pass."""
        self.now_s += seconds

    @property
    def now_ms(self) -> int:
        """Unix milliseconds."""
        return int(self.now_s * 1_000)

    def source(self, location: str = "file:///landing", **options: object) -> DirectorySource:
        """A source over the listing."""
        given: dict[str, object] = {"max_files": 100, "poll_s": 1.0, "min_age_s": 3.0, **options}
        return DirectorySource(
            self,
            location,
            self.sleep,
            monotonic=lambda: self.now_s,
            clock=lambda: self.now_ms,
            **given,  # type: ignore[arg-type]
        )


def taken(source: DirectorySource, *refused: tuple[str, str]) -> tuple[list[str], list[str]]:
    """The names of the next new files and of those that are gone; the service refuses some."""
    batch = source.take()
    if batch is None:
        return [], []
    answer = ArrivalsAnswer(
        snapshot_id="s",
        changed=True,
        refused=tuple(RefusedFile(path=source.location + name, code=code, reason="") for name, code in refused),
    )
    source.done(batch, answer)
    files, removed = ([each.removeprefix(source.location) for each in part] for part in (batch.files, batch.removed))
    return files, removed


def test_a_file_is_taken_when_it_has_not_changed_for_some_time() -> None:
    """By its own time of modification, or by two listings; a file that grows is not."""
    folder = ListedFolder()
    source = folder.source()
    folder.files = {"old.parquet": ("1", 0), "new.parquet": ("1", folder.now_ms), "ahead.parquet": ("1", 10**13)}
    assert taken(source) == (["old.parquet"], [])
    for turn in range(4):
        folder.files["new.parquet"] = (f"grows {turn}", folder.now_ms)
        expected = ["ahead.parquet"] if turn == 2 else []
        assert taken(source) == (expected, [])
    assert taken(source) == ([], [])
    assert taken(source) == (["new.parquet"], [])
    assert taken(source) == ([], [])


def test_an_object_of_a_bucket_is_whole_at_once() -> None:
    """S3 shows no object before it is complete; neither does a folder whose writers rename their files."""
    folder = ListedFolder()
    folder.files = {"new.parquet": ("1", folder.now_ms)}
    assert taken(folder.source("s3://b/landing")) == (["new.parquet"], [])
    assert taken(folder.source(min_age_s=0.0)) == (["new.parquet"], [])


def test_hidden_files_and_others_are_not_taken() -> None:
    """Spark's rule, below the directory; folders above it may have any names."""
    folder = ListedFolder()
    folder.files = dict.fromkeys(["a.parquet.tmp", "_x/a.parquet", ".a.parquet", "a.csv", "d=1/a.parquet"], ("1", 0))
    assert taken(folder.source("/.hidden/_x")) == (["d=1/a.parquet"], [])


def test_a_file_that_changes_is_taken_again_and_one_that_is_gone_is_reported() -> None:
    """The service decides what both mean for the table."""
    folder = ListedFolder()
    source = folder.source()
    folder.files = {"a.parquet": ("1", 0), "b.parquet": ("1", 0)}
    assert taken(source) == (["a.parquet", "b.parquet"], [])
    folder.files = {"a.parquet": ("2", 0)}
    assert taken(source) == (["a.parquet"], ["b.parquet"])
    folder.files = {"a.parquet": ("2", 0), "b.parquet": ("1", 0)}
    assert taken(source) == (["b.parquet"], [])


def test_a_refused_file_comes_again_less_and_less_often_or_when_it_changes() -> None:
    """One that the store failed for comes with the next listing."""
    folder = ListedFolder()
    source = folder.source()
    folder.files = {"a.parquet": ("1", 0)}
    assert taken(source, ("a.parquet", "store_error")) == (["a.parquet"], [])
    sent_s = [folder.now_s for _ in range(250) if taken(source, ("a.parquet", "not_parquet"))[0]]
    assert [round(after - before) for before, after in pairwise(sent_s)] == [60, 120]
    folder.files = {"a.parquet": ("2", 0)}
    assert taken(source) == (["a.parquet"], [])
    folder.sleep(10_000)
    assert taken(source) == ([], [])


def test_batches_have_a_maximum_of_files() -> None:
    """A directory of many files is listed once for all of them."""
    folder = ListedFolder()
    folder.files = {f"{number}.parquet": ("1", 0) for number in range(5)}
    source = folder.source(max_files=2)
    assert [len(taken(source)[0]) for _ in range(4)] == [2, 2, 1, 0]


def test_once_waits_for_young_files_but_not_forever() -> None:
    """A file that stops changing is taken; one that goes on changing is left for the next time."""
    folder = ListedFolder()
    folder.files = {"young.parquet": ("1", folder.now_ms)}
    source = folder.source(once=True)
    assert taken(source) == (["young.parquet"], [])
    assert source.take() is None

    class Growing(ListedFolder):
        """Its file changes with every listing."""

        def sleep(self, seconds: float) -> None:
            super().sleep(seconds)
            self.files = {"x.parquet": (str(self.now_s), self.now_ms)}

    growing = Growing()
    growing.sleep(0)
    before_s = growing.now_s
    assert growing.source(once=True).take() is None
    assert growing.now_s - before_s < 10


def test_what_is_no_directory_is_an_error(tmp_path: Path) -> None:
    """A mistyped path would otherwise be watched forever."""
    with pytest.raises(InvalidRequest):
        ListedFolder().source("/landing/*")
    with pytest.raises(ObjectNotFound):
        require_directory(f"{tmp_path}/none")
    require_directory(str(tmp_path))
    require_directory("s3://b/none")
    assert Batch() == Batch()


def test_the_command_takes_what_is_there(local_service: ServerProcess, local_table: LocalTable) -> None:
    """And what is refused stays where it is: exit status 1, and the reason."""
    table, folder = local_table
    (folder / "day=1").mkdir()
    (folder / "a.parquet").write_bytes(parquet_bytes({"a": [1, 2]}))
    command = watch_command(table, "--directory", str(folder), "--once", "--min-age-s", "0")
    done = run(local_service, command)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("1 file with 2 rows (")
    assert f"registered in {table}, snapshot " in done.stdout
    (folder / "bad.parquet").write_bytes(b"x")
    done = run(local_service, command)
    assert done.returncode == 1
    assert "bad.parquet" in done.stderr
    assert done.stdout.startswith("1 in the table already; 1 refused")
    assert values_of(table) == {1: 1, 2: 1}


@pytest.mark.parametrize(
    ("arguments", "status", "text"),
    [
        ((), 2, "give one of --queue and --directory"),
        (("--queue", "http://x/1/q", "--directory", "/"), 2, "give one of --queue and --directory"),
        (("--directory", "/", "--refused", "x"), 2, "--refused is for --queue"),
        (("--directory", "/no/such/directory"), 1, "[object_not_found]"),
        (("--queue", "http://x"), 1, "[invalid_request]"),
    ],
)
def test_wrong_usage(
    local_service: ServerProcess, local_table: LocalTable, arguments: tuple[str, ...], status: int, text: str
) -> None:
    """Nothing is sent but the question for the table."""
    done = run(local_service, watch_command(local_table[0], *arguments))
    assert done.returncode == status
    assert text in done.stderr


def test_a_table_that_takes_no_files_is_an_error_at_once(local_service: ServerProcess, local_table: LocalTable) -> None:
    """Before anything is taken from a queue, whose messages count how often they were received."""
    table, folder = local_table
    table.evolve([AddCheck(name="positive", condition="a > 0")])
    done = run(local_service, watch_command(table, "--directory", str(folder), "--once"))
    assert (done.returncode, "[not_proven]" in done.stderr) == (1, True)


def test_files_that_are_written_slowly_are_registered_whole(
    local_service: ServerProcess, local_table: LocalTable
) -> None:
    """Two writers write in pieces, one of them longer than the age that counts as complete; SIGTERM ends it at once."""
    table, folder = local_table
    command = watch_command(table, "--directory", str(folder), "--poll-s", "0.1", "--min-age-s", "0.3", "--json")
    process = subprocess.Popen(
        command, env=environment(local_service), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    written = {name: parquet_bytes({"a": list(range(start, start + 3))}) for start, name in ((0, "a"), (10, "b"))}
    files = {name: (folder / f"{name}.parquet").open("wb") for name in written}
    for piece in range(10):
        for name, file in files.items():
            size = len(written[name]) // 10
            file.write(written[name][piece * size : (piece + 1) * size if piece < 9 else None])
            file.flush()
        time.sleep(0.1 if piece != 5 else 1.0)
    for file in files.values():
        file.close()
    (folder / "c.tmp").write_bytes(parquet_bytes({"a": [20]}))
    (folder / "c.tmp").rename(folder / "c.parquet")
    give_up_s = time.monotonic() + _WAIT_S
    while table.info().block_count < 3:
        assert time.monotonic() < give_up_s, "the files are registered"
        time.sleep(0.05)
    process.send_signal(signal.SIGTERM)
    output, _ = process.communicate(timeout=_WAIT_S)
    assert process.returncode == 0
    assert values_of(table) == Counter([0, 1, 2, 10, 11, 12, 20])
    assert sum(json.loads(line)["registered"] for line in output.splitlines()) == 3


def killed_at_random(service: ServerProcess, local_table: LocalTable, kills: int, seed: int) -> None:
    """Two programs that watch one directory are killed again and again while files arrive; one finishes."""
    table, folder = local_table
    rng = random.Random(seed)
    command = watch_command(table, "--directory", str(folder), "--poll-s", "0.1", "--min-age-s", "0.1", "--batch", "3")
    running: list[subprocess.Popen[bytes]] = []
    number = 0
    try:
        for _ in range(kills):
            while len(running) < 2:
                running.append(
                    subprocess.Popen(
                        command, env=environment(service), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
                    )
                )
            for _ in range(rng.randint(1, 8)):
                (folder / f"{number}.parquet").write_bytes(parquet_bytes({"a": [number]}))
                number += 1
                time.sleep(rng.random() * 0.1)
            time.sleep(rng.random() * 1.5)
            victim = running.pop(rng.randrange(len(running)))
            victim.kill()
            victim.wait(timeout=_WAIT_S)
    finally:
        for each in running:
            each.kill()
            each.wait(timeout=_WAIT_S)
    done = run(service, [*command, "--once"])
    assert done.returncode == 0, done.stderr
    assert values_of(table) == Counter(range(number))


@pytest.mark.slow
def test_programs_that_are_killed_lose_and_double_nothing(
    local_service: ServerProcess, local_table: LocalTable
) -> None:
    """A few kills at random moments."""
    killed_at_random(local_service, local_table, 4, 1)


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(2))
def test_programs_that_are_killed_often_lose_and_double_nothing(
    local_service: ServerProcess, local_table: LocalTable, seed: int
) -> None:
    """Fifty kills in all."""
    killed_at_random(local_service, local_table, 25, 10 + seed)
