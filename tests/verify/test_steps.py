"""A verification can be cut between any two steps, and draws the same sample every time."""

from __future__ import annotations

import msgspec
import pytest

from lamella.snapshot.errors import InvalidRequest, StoreError
from lamella.snapshot.storage import FsspecStore
from lamella.snapshot.verify import Deep, Options, Verification
from lamella.snapshot.verify.checks import LISTED
from lamella.snapshot.verify.reading import chosen
from lamella.snapshot.wire import merged_verification
from support.lying_writer import SCHEMA, TABLE, LyingWriter, columns, parquet
from verify.damage import Refusing, number


def test_parts_together_are_the_whole() -> None:
    """One step at a time, each by another object, finds what one run finds."""
    table = LyingWriter(grouped=True)
    table.store.delete(f"{table.root}/data/3.parquet")
    table.store.delete(table.refs[2].sidecar.location)
    options = Options(history=(4, 100), deep=Deep(sample=0.5, filters=5))

    def fresh() -> Verification:
        return Verification(table.store, table.root, TABLE, table.pointer, options, table.read_history)

    whole = fresh().run()
    parts = []
    done = 0
    while done < whole.steps:
        parts.append(fresh().run(done, until=lambda _: True))
        assert parts[-1].steps_done == done + 1
        assert parts[-1].steps == whole.steps
        done = parts[-1].steps_done
    assert merged_verification(parts) == whole
    assert set(whole.counts) == {"block_missing", "sidecar_missing"}


def test_work_is_reported_as_it_proceeds() -> None:
    """After every step it is asked whether to go on."""
    table = LyingWriter()
    seen: list[int] = []

    def noted(done: int) -> bool:
        seen.append(done)
        return False

    answer = Verification(table.store, table.root, TABLE, table.pointer).run(until=noted)
    assert seen == list(range(1, answer.steps + 1))


def test_a_sample_is_chosen_by_its_seed() -> None:
    """The same seed draws the same blocks, another seed others; never more than there are, never one twice."""
    counts = [10, 0, 7, 1_000]
    samples = [chosen(Deep(blocks=50, seed=seed), counts) for seed in (1, 1, 2)]
    assert samples[0] == samples[1] != samples[2]
    assert len(set(samples[0])) == 50
    assert all(row < counts[segment] for segment, row in samples[0])
    assert len(chosen(Deep(sample=1.0), counts)) == 1_017
    assert len(chosen(Deep(sample=0.0001), counts)) == 1
    assert len(chosen(Deep(), counts)) == 20
    assert len(chosen(Deep(blocks=5_000), counts)) == 1_017
    assert chosen(Deep(sample=0.5), []) == []


@pytest.mark.parametrize(
    "deep", [Deep(sample=0.0), Deep(sample=1.5), Deep(blocks=-1), Deep(sample=0.1, blocks=1), Deep(filters=-1)]
)
def test_what_cannot_be_sampled_is_refused(deep: Deep) -> None:
    """A share outside 0 to 1, a negative number, both at once."""
    table = LyingWriter()
    with pytest.raises(InvalidRequest):
        Verification(table.store, table.root, TABLE, table.pointer, Options(deep=deep))


def test_many_findings_are_counted_and_not_all_listed() -> None:
    """An object with a thousand faults of one kind lists some and counts them all."""
    table = LyingWriter()
    blocks = [
        msgspec.structs.replace(
            table.segment(0).blocks[0],
            location=f"{table.root}/data/x{index:04}.parquet",
            col_stats={1: msgspec.structs.replace(table.segment(0).blocks[0].col_stats[1], min=number(10**6))},
        )
        for index in range(LISTED + 20)
    ]
    (ref,) = table.warehouse.__class__(table.store, table.root).prepare(TABLE, SCHEMA, blocks)
    table.pointer = table.warehouse.commit(table.pointer, added=[ref], now_ms=9_000).pointer
    answer = Verification(table.store, table.root, TABLE, table.pointer, Options(files=False)).run()
    assert answer.counts["stats_invalid"] >= LISTED + 20
    assert sum(finding.code == "stats_invalid" for finding in answer.findings) <= LISTED + 1


def test_a_store_that_fails_at_the_snapshot_is_an_error() -> None:
    """Nothing can be said of the table then."""
    table = LyingWriter()
    with pytest.raises(StoreError):
        Verification(Refusing(table.pointer.manifest.location), table.root, TABLE, table.pointer)


@pytest.mark.parametrize("damage", ["missing", "hash"])
def test_a_snapshot_that_cannot_be_read_is_one_finding(damage: str) -> None:
    """Then there is nothing below it to look at."""
    table = LyingWriter()
    location = table.pointer.manifest.location
    if damage == "missing":
        table.store.delete(location)
    else:
        table.flip(location, 30)
    answer = Verification(table.store, table.root, TABLE, table.pointer).run()
    assert [finding.code for finding in answer.findings] == [f"manifest_{damage}"]
    assert not answer.is_clean


def test_metadata_alone_opens_no_file() -> None:
    """Without files a table whose blocks are all gone is clean."""
    table = LyingWriter()
    for index in range(6):
        table.store.delete(f"{table.root}/data/{index}.parquet")
    answer = table.verify(Options(files=False))
    assert answer.findings == ()
    assert answer.checked.files == 0
    assert table.verify().counts == {"block_missing": 6}


def test_an_empty_table_is_clean() -> None:
    """A table without a segment."""
    table = LyingWriter()
    pointer = table.warehouse.create("empty", SCHEMA, now_ms=5)
    answer = Verification(table.store, table.root, "empty", pointer, Options(deep=Deep())).run()
    assert answer.findings == ()
    assert answer.steps == answer.steps_done == 1


def test_what_is_cached_elsewhere_is_not_believed() -> None:
    """The store is read, whatever a warehouse holds in memory."""
    table = LyingWriter()
    table.warehouse.segment(table.refs[0])
    FsspecStore().delete(table.refs[0].manifest.location)
    assert set(table.verify().counts) == {"manifest_missing"}


def test_a_file_that_was_restored_is_clean_again() -> None:
    """Of the same bytes, though the store gives it another content id: that is a warning, no error."""
    table = LyingWriter()
    location = f"{table.root}/data/0.parquet"
    table.store.delete(location)
    assert set(table.verify().counts) == {"block_missing"}
    table.store.put(location, parquet(columns(0)))
    answer = table.verify()
    assert set(answer.counts) == {"block_touched"}
    assert {finding.severity for finding in answer.findings} == {"warning"}


def test_expired_snapshots_are_no_gap_in_the_chain() -> None:
    """Those that are still there are checked, and time between them; a part of the history begins anywhere."""
    table = LyingWriter()
    for index in range(10, 40):
        refs = table.warehouse.prepare(TABLE, SCHEMA, [table.block(index)])
        table.pointer = table.warehouse.commit(table.pointer, added=refs, now_ms=3_000).pointer
        table.record()
    everything = list(table.history)
    table.history = [record for record in everything if record.seq not in (5, 6, 20)]
    answer = table.verify(Options(files=False))
    assert answer.findings == ()
    assert answer.checked.snapshots == len(everything) - 3
    relinked = msgspec.structs.replace(everything[14], prev_snapshot_id=everything[2].pointer.snapshot_id)
    table.history = [relinked if record is everything[14] else record for record in table.history]
    assert set(table.verify(Options(files=False)).counts) == {"history_chain", "history_row"}
    options = Options(files=False, history=(everything[-1].seq, 12))
    some = Verification(table.store, table.root, TABLE, table.pointer, options, table.read_history).run()
    assert some.findings == ()
    assert some.checked.snapshots == 12
