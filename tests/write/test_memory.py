"""Streams that are larger than memory: what is held at a time, counted in bytes that Arrow has allocated."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from lamella.client.rewrite.engine import ThreadEngine, scratch_space
from lamella.client.rewrite.sort import Order
from lamella.client.rewrite.stages import Stage
from lamella.client.rewrite.target import Target, arrow_schema
from lamella.client.write.rows import KeySample, write_rows
from lamella.snapshot.errors import StoreError
from lamella.snapshot.manifest import ClusterKind
from lamella.snapshot.schema import Column, Schema
from write.conftest import MakeTable

MEMORY_BYTES = 110_000
BATCHES = 120
BATCH_ROWS = 500
SCHEMA = Schema.assign(
    [Column(name="k", type="int64"), Column(name="x", type="float64"), Column(name="t", type="string")]
)


class Watched:
    """A stream of batches; ``peak_bytes``: the most that Arrow held while it was read and merged."""

    def __init__(self) -> None:
        self._before = pa.total_allocated_bytes()
        self._rng = np.random.default_rng(0)
        self.peak_bytes = 0
        self.sent_bytes = 0

    def look(self, *_: object) -> None:
        """Compare what is held now."""
        self.peak_bytes = max(self.peak_bytes, pa.total_allocated_bytes() - self._before)

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        for _ in range(BATCHES):
            keys = self._rng.integers(0, 2**60, BATCH_ROWS)
            texts = [f"{key:020}" for key in keys]
            batch = pa.record_batch([keys, self._rng.random(BATCH_ROWS), texts], schema=arrow_schema(SCHEMA))
            self.sent_bytes += batch.nbytes
            yield batch
            del batch
            self.look()


@pytest.mark.parametrize(
    ("keys", "kind", "workers"),
    [
        ((), "linear", 1),
        (("k",), "linear", 1),
        (("k",), "linear", 4),
        (("k", "x"), "zorder", 4),
        (("t", "k"), "hilbert", 1),
    ],
)
@pytest.mark.few(2)
def test_a_stream_may_be_larger_than_memory(
    tmp_path: Path, keys: tuple[str, ...], kind: ClusterKind, workers: int
) -> None:
    """However the rows are sorted, and with any number of workers: a few times the memory, a fraction of the rows."""
    target = Target(
        location=f"file://{tmp_path}/t",
        history=(SCHEMA,),
        order=Order(keys=keys, kind=kind),
        block_rows=1_500,
        memory_bytes=MEMORY_BYTES,
    )
    watched = Watched()
    with scratch_space(target, is_near=True) as space:
        written = write_rows(watched, target, space, workers=workers, progress=watched.look)
    assert sum(each.row_count for each in written) == BATCHES * BATCH_ROWS
    assert watched.sent_bytes > 20 * MEMORY_BYTES
    assert watched.peak_bytes < 6 * MEMORY_BYTES


def test_a_generator_is_read_as_rows_are_needed(make_table: MakeTable) -> None:
    """Through the whole of an append: batches that were given are not held."""
    table = make_table(id="int64", t="string", cluster_key=["id"])
    before, peak_bytes, sent_bytes = pa.total_allocated_bytes(), 0, 0

    def rows() -> Iterator[pa.RecordBatch]:
        nonlocal peak_bytes, sent_bytes
        for n in range(100):
            ids = np.arange(2_000) * 100 + n
            batch = pa.record_batch({"ID": ids, "t": [f"{id:050}" for id in ids]})
            sent_bytes += batch.nbytes
            yield batch
            del batch
            peak_bytes = max(peak_bytes, pa.total_allocated_bytes() - before)

    assert table.append(rows(), memory_bytes=500_000, target_block_rows=10_000).rows == 200_000
    assert sent_bytes > 10_000_000
    assert peak_bytes < 3_000_000


def test_a_sample_is_even_and_bounded() -> None:
    """It doubles its step whenever it is full, and goes on where it was."""
    order = Order(keys=("k",))
    for size in (1, 7, 100):
        sample = KeySample(order, SCHEMA, max_rows=50, max_bytes=10**9)
        for start in range(0, 1_000, size):
            ids = np.arange(start, min(start + size, 1_000))
            batch = pa.record_batch([ids, ids.astype(float), [""] * len(ids)], schema=arrow_schema(SCHEMA))
            sample.add(batch)
            assert sample.rows().num_rows <= 50
        wide = KeySample(order, SCHEMA, max_bytes=1_000)
        wide.add(pa.record_batch([np.arange(3_000), np.zeros(3_000), [""] * 3_000], schema=arrow_schema(SCHEMA)))
        assert wide.rows()["k0"].to_pylist() == list(range(0, 3_000, 4))
        assert sample.rows()["k0"].to_pylist() == list(range(0, 1_000, 32))


class Failing(Stage, frozen=True, kw_only=True):
    """A task that fails in the store, as often as its number says."""

    failures: dict[int, int]

    task_type = int
    result_type = int

    def __call__(self, task: int) -> int:
        if self.failures.get(task, 0):
            self.failures[task] -= 1
            raise StoreError("the disk is full")
        return 10 * task


@pytest.mark.parametrize("threads", [1, 3])
def test_threads_run_all_tasks_and_try_again_when_storage_fails(tmp_path: Path, threads: int) -> None:
    """A task that fails too often is an error of the whole."""
    target = Target(location=f"file://{tmp_path}", history=(SCHEMA,))
    with scratch_space(target, is_near=True) as space:
        stage = Failing(target=target, scratch=space.scratch, failures={2: 2})
        assert sorted(ThreadEngine(threads).run(stage, range(6))) == [(n, 10 * n) for n in range(6)]
        with pytest.raises(StoreError):
            list(ThreadEngine(threads).run(Failing(target=target, scratch=space.scratch, failures={2: 3}), range(6)))
