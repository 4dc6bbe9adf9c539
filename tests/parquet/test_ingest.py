"""Many files at once."""

from __future__ import annotations

import importlib
import threading
from collections.abc import Sequence
from pathlib import Path
from unittest.mock import patch

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lamella.snapshot.manifest import Block
from lamella.snapshot.parquet import block_of, ingest, ingest_arrays, read_footer, schema_of
from lamella.snapshot.storage import FsspecStore
from lamella.snapshot.storage.store import ObjectStat
from lamella.snapshot.wire import RefusedFile


@pytest.fixture
def files(tmp_path: Path) -> list[str]:
    """Twenty files of one schema."""
    paths = [f"{tmp_path}/{i:02}.parquet" for i in range(20)]
    for i, path in enumerate(paths):
        pq.write_table(pa.table({"a": [i, i + 1]}), path)
    return paths


def test_blocks_come_in_the_order_of_the_files(files: list[str]) -> None:
    """The same blocks as one after the other, with any number of workers."""
    store = FsspecStore()
    schema = schema_of(read_footer(store, files[0]))
    expected = [block_of(read_footer(store, path), schema) for path in files]
    for workers in (1, 3, 32):
        assert ingest(store, files, schema, workers=workers) == (expected, [])
    assert ingest(store, iter(files[::-1]), schema)[0] == expected[::-1]
    assert ingest(store, [], schema) == ([], [])


def test_every_bad_file_is_reported_and_the_others_are_taken(files: list[str], tmp_path: Path) -> None:
    """With the path as it was given, the code of its error, and a sentence."""
    (tmp_path / "text.parquet").write_text("no")
    (tmp_path / "cut.parquet").write_bytes(Path(files[3]).read_bytes()[:-20])
    pq.write_table(pa.table({"b": [1]}), tmp_path / "other.parquet")
    bad = {
        f"{tmp_path}/text.parquet": "not_parquet",
        f"{tmp_path}/cut.parquet": "truncated_parquet",
        f"{tmp_path}/other.parquet": "schema_mismatch",
        f"{tmp_path}/nothing.parquet": "object_not_found",
        "relative.parquet": "invalid_request",
    }
    store = FsspecStore()
    schema = schema_of(read_footer(store, files[0]))
    paths = [path for pair in zip(files, list(bad) * 4, strict=True) for path in pair][:10]
    blocks, refused = ingest(store, paths, schema)
    assert [block.location for block in blocks] == [f"file://{path}" for path in files[:5]]
    assert [(r.path, r.code) for r in refused] == list(bad.items())
    assert all(r.path.removeprefix("file://").split("/")[-1] in r.reason for r in refused)


def test_progress_is_reported_in_order_in_the_callers_thread(files: list[str], tmp_path: Path) -> None:
    """One call a file, with what became of it."""
    store = FsspecStore()
    schema = schema_of(read_footer(store, files[0]))
    seen: list[Block | RefusedFile] = []
    threads = set()

    def on_done(outcome: Block | RefusedFile) -> None:
        seen.append(outcome)
        threads.add(threading.get_ident())

    blocks, refused = ingest(store, [*files[:3], f"{tmp_path}/no", *files[3:]], schema, on_done=on_done)
    assert seen == [*blocks[:3], refused[0], *blocks[3:]]
    assert threads == {threading.get_ident()}


def test_an_exception_of_the_callback_ends_the_ingest(files: list[str]) -> None:
    """A cancelled registration does not go on reading."""
    store = FsspecStore()
    schema = schema_of(read_footer(store, files[0]))

    def on_done(_: Block | RefusedFile) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        ingest(store, files, schema, on_done=on_done)


class PartlyInMemory(FsspecStore):
    """A store that has in memory as many files of each call as ``counts`` says, one call after the other."""

    def __init__(self, counts: list[int]) -> None:
        super().__init__()
        self._counts = counts
        self.found = 0

    def read_cached_ends(self, locations: Sequence[str], length: int) -> dict[str, tuple[ObjectStat, bytes]]:
        """The first few."""
        some = locations[: self._counts.pop(0) if self._counts else 0]
        self.found += len(some)
        stats = {location: self.stat(location) for location in some}
        return {
            location: (stat, self.read(location)[-min(length, stat.size_bytes) :]) for location, stat in stats.items()
        }


@given(counts=st.lists(st.integers(0, 16), max_size=8), broken=st.integers(0, 199))
def test_files_in_memory_and_others_come_in_order(many: list[str], counts: list[int], broken: int) -> None:
    """Whichever are in memory, also a file that is no Parquet file."""
    store = FsspecStore()
    locations = [*many[:broken], many[-1], *many[broken:-1]]
    schema = schema_of(read_footer(store, many[0]))
    expected = ingest(store, many[:-1], schema)[0]
    partly = PartlyInMemory(list(counts))
    with patch.object(importlib.import_module("lamella.snapshot.parquet.ingest"), "_SLOW", 20):
        blocks, refused = ingest_arrays(partly, locations, schema)
    assert list(blocks) == expected
    assert [(each.path, each.code) for each in refused] == [(many[-1], "not_parquet")]
    assert partly.found >= sum(counts[:3])


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Two hundred files of one schema, and one that is none."""
    folder = tmp_path_factory.mktemp("many")
    locations = [f"file://{folder}/{i:03}.parquet" for i in range(200)]
    for i, location in enumerate(locations):
        pq.write_table(pa.table({"a": [i, i + 1]}), location.removeprefix("file://"))
    (folder / "text.parquet").write_text("no Parquet file")
    return [*locations, f"file://{folder}/text.parquet"]


@pytest.mark.s3
def test_files_in_s3(files: list[str], s3_root: tuple[FsspecStore, str]) -> None:
    """The same blocks from S3, but for where they are and the etag."""
    store, root = s3_root
    locations = [store.put(f"{root}/{Path(path).name}", Path(path).read_bytes()).location for path in files]
    schema = schema_of(read_footer(store, files[0]))
    blocks, refused = ingest(store, store.expand(root), schema, workers=8)
    assert refused == []
    assert [block.location for block in blocks] == locations
    local = ingest(store, files, schema)[0]
    assert [b.col_stats for b in blocks] == [b.col_stats for b in local]
    assert [b.footer_sha256 for b in blocks] == [b.footer_sha256 for b in local]
    assert [b.content_id for b in blocks] == [store.stat(location).content_id for location in locations]
