"""Candidates of tables of real files: what is missing is said, reports are used, unused indexes are found."""

from __future__ import annotations

import datetime as dt
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from lamella.client.cli.app import cli
from lamella.snapshot.advice.candidates import Candidates, Upkeep
from lamella.snapshot.advice.predictions import gain_of, read_bytes
from lamella.snapshot.advice.workload import Reported, terms_in
from lamella.snapshot.expression import bind, read_filter
from lamella.snapshot.expression.text import term_text, tree_of
from lamella.snapshot.manifest.block_key import block_keys, bytes_of
from lamella.snapshot.warehouse.finder import IndexAccess
from lamella.snapshot.warehouse.manifests import Manifests
from lamella.snapshot.wire.advice import Candidate, CandidatesAnswer, CandidatesRequest, Cost, Forecast
from lamella.snapshot.workload.recorded_filters import Recorded, masked
from support.real_tables import RealTable

ROWS, BLOCKS = 4_000, 40


def rows() -> pa.Table:
    """Codes in no order, of which each is in one row; few states."""
    rng = np.random.default_rng(3)
    code = rng.permutation(ROWS) * 7
    return pa.table({"code": code, "state": [f"s{value}" for value in rng.integers(0, 30, ROWS)], "seq": range(ROWS)})


def cut(table: pa.Table) -> list[pa.Table]:
    """The table as consecutive blocks of one size."""
    size = ROWS // BLOCKS
    return [table.slice(at * size, size) for at in range(BLOCKS)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where tables are."""
    return tmp_path_factory.mktemp("tables")


@pytest.fixture(scope="module")
def counted(folder: Path) -> RealTable:
    """With counts of distinct values."""
    return RealTable(folder, cut(rows()), segment_blocks=15)


@pytest.fixture(scope="module")
def uncounted(folder: Path) -> RealTable:
    """With what the footers say alone."""
    return RealTable(folder, cut(rows()), segment_blocks=15, verify=False)


def recorded(text: str, times: int = 1, *, is_full: bool = True, selected: int = BLOCKS) -> Recorded:
    """A filter as the service records it."""
    predicate = read_filter(text)
    tree = tree_of(predicate if is_full else masked(predicate))
    return Recorded(
        tree=msgspec.json.encode(tree).decode(),
        text=text,
        is_full=is_full,
        times=times,
        considered=BLOCKS * times,
        selected=selected * times,
    )


def candidates(
    table: RealTable,
    filters: Sequence[Recorded] = (),
    reported: Sequence[Reported] = (),
    upkeep: Upkeep = Upkeep(expired_snapshots=0),  # noqa: B008  # a frozen value
    **request: Any,
) -> CandidatesAnswer:
    """The answer for a table."""
    manifests = Manifests(table.store, 64 << 20)
    advising = Candidates(manifests, IndexAccess(manifests), table.warehouse.planning, table.store)
    return advising.of(table.pointer, "db.t", CandidatesRequest(**({"top": 100} | request)), filters, reported, upkeep)


def only(found: Sequence[Candidate], kind: str, expression: str | None = None) -> Candidate:
    """The one candidate of a kind, on an expression."""
    (one,) = (
        each
        for each in found
        if each.kind == kind and (expression is None or (each.index and each.index.expression == expression))
    )
    return one


def test_a_key_is_tried_in_coarser_steps_before_a_second_column(folder: Path) -> None:
    """Ranges of weeks, and look-ups of a code within a week: rows of a week sorted by code answer both, rows sorted by
    time or by code alone one of them. The prediction is that of the files written so."""
    rng = np.random.default_rng(4)
    monday = dt.datetime(2023, 11, 13, tzinfo=dt.UTC)
    moments = np.sort(rng.integers(0, 28 * 86_400, ROWS)) * 1_000_000 + int(monday.timestamp()) * 1_000_000
    given = pa.table(
        {"at": pa.array(moments, pa.timestamp("us", "UTC")), "code": pa.array(rng.integers(0, 1_000, ROWS))}
    )
    shuffled = cut(given.take(rng.permutation(ROWS)))
    table = RealTable(folder, shuffled, segment_blocks=15, properties={"target_block_rows": "100"})
    weeks = [(monday + dt.timedelta(days=7 * n), monday + dt.timedelta(days=7 * n + 7)) for n in range(4)]
    ranges = [f"at >= TIMESTAMP '{low:%F %T}' AND at < TIMESTAMP '{high:%F %T}'" for low, high in weeks]
    filters = [*ranges, *(f"{text} AND code = {code}" for text in ranges for code in rng.integers(0, 1_000, 3))]
    key = only(candidates(table, [recorded(text) for text in filters]).candidates, "cluster_key")
    assert key.cluster_key == ("date_trunc('WEEK', at)", "code")
    assert shlex.split(key.command.partition(" && ")[0])[-2:] == list(key.cluster_key)
    assert key.gain is not None
    skipped = {}
    for name, columns in {"week": ("week", "code"), "time": ("at",), "code": ("code",)}.items():
        by_week = given.append_column("week", pc.floor_temporal(given["at"], unit="week"))
        order = pc.sort_indices(by_week, sort_keys=[(column, "ascending") for column in columns])
        done = RealTable(folder, cut(given.take(order)), segment_blocks=15)
        skipped[name] = float(np.mean([done.skipped(text) for text in filters]))
    assert key.gain.after.skip == pytest.approx(skipped["week"], abs=0.05)
    assert skipped["week"] > max(skipped["time"], skipped["code"])


def test_a_condition_that_filters_share_is_tried_before_the_best_column(folder: Path) -> None:
    """Filters that only read what is not deleted, a third of the rows, by ranges of numbers."""
    rng = np.random.default_rng(7)
    deleted = pa.array([None if rng.random() < 0.3 else 1 for _ in range(ROWS)], pa.int64())
    given = pa.table({"seq": pa.array(rng.permutation(ROWS)), "deleted": deleted})
    table = RealTable(folder, cut(given), segment_blocks=15, properties={"target_block_rows": "100"})
    filters = [f"deleted IS NULL AND seq BETWEEN {low} AND {low + 1_000}" for low in range(0, 3_000, 300)]
    key = only(candidates(table, [recorded(text) for text in filters]).candidates, "cluster_key")
    assert key.cluster_key == ("deleted IS NULL", "seq")
    assert key.gain is not None
    order = pc.sort_indices(
        given.append_column("there", given["deleted"].is_null()),
        sort_keys=[("there", "ascending"), ("seq", "ascending")],
    )
    done = RealTable(folder, cut(given.take(order)), segment_blocks=15)
    assert key.gain.after.skip == pytest.approx(float(np.mean([done.skipped(text) for text in filters])), abs=0.05)


def test_an_expression_of_the_filters_is_tried_as_a_key(folder: Path) -> None:
    """Named as the filter names it; one that does not follow a column is not."""
    table = RealTable(folder, cut(rows()), segment_blocks=15)
    filters = [recorded(f"code DIV 700 = {n}") for n in range(0, 40, 4)] + [recorded("code % 5 = 3")]
    key = only(candidates(table, filters).candidates, "cluster_key")
    assert key.cluster_key in (("code",), ("(code DIV 700)",))
    assert not any("%" in each for each in key.cluster_key)


def report(table: RealTable, text: str) -> Reported:
    """What a reader reports that read every block that the filter needs: those without a matching row."""
    predicate = read_filter(text)
    snapshot = table.warehouse.snapshot(table.pointer)
    bind(predicate, snapshot.schema)
    code = int(text.rpartition(" ")[2])
    blocks = [block for ref in table.warehouse.segments(table.pointer) for block in table.warehouse.segment(ref).blocks]
    empty = [
        block
        for block in blocks
        if code not in pq.read_table(block.location.removeprefix("file://"))["code"].to_pylist()
    ]
    return Reported(filter=text, blocks=bytes_of(block_keys(empty)))


def test_without_filters_nothing_is_said_to_gain_nothing(counted: RealTable) -> None:
    """What depends on filters cannot be told, and the filters are what is missing."""
    found = candidates(counted)
    assert found.candidates == ()
    assert {each.kind for each in found.unpredicted} >= {"cluster_key", "compact"}
    assert all("no filters are recorded" in each.missing for each in found.unpredicted)
    assert all(each.gain is None for each in found.unpredicted)


def test_look_ups_get_an_index_or_a_key(counted: RealTable) -> None:
    """The best first; an index of one block for each value, and the table sorted by the column."""
    filters = [recorded(f"code = {7 * value}", times=5) for value in range(10, 3_900, 300)]
    found = candidates(counted, filters)
    assert found.filters == len(filters)
    index, key = only(found.candidates, "index"), only(found.candidates, "cluster_key")
    assert key.cluster_key == ("code",)
    for each in (index, key):
        assert each.gain is not None
        assert each.gain.times == 5 * len(filters)
        assert each.gain.before.blocks > 30
        assert each.gain.after.blocks == pytest.approx(1, abs=0.5)
    saved = [
        read_bytes(each.gain.before) - read_bytes(each.gain.after) for each in found.candidates if each.gain is not None
    ]
    assert saved == sorted(saved, reverse=True)
    assert index.index_name == f"code_{index.index.kind}" if index.index is not None else False
    assert index.cost.index_bytes is not None
    assert index.cost.index_bytes > 0
    assert key.cost.rewritten_bytes == found.bytes_total
    top = candidates(counted, filters, top=1)
    assert top.candidates == found.candidates[:1]


@pytest.mark.parametrize("is_full", [True, False])
def test_values_that_nobody_counted_are_not_taken_for_no_gain(uncounted: RealTable, *, is_full: bool) -> None:
    """An index of such a column cannot be told from manifests, and a sample tells."""
    filters = [recorded(f"code = {7 * value}", is_full=is_full) for value in range(10, 3_900, 300)]
    blind = only(candidates(uncounted, filters).unpredicted, "index", "code")
    assert blind.gain is None
    assert "sample_blocks" in blind.missing
    seen = only(candidates(uncounted, filters, sample_blocks=BLOCKS).candidates, "index", "code")
    assert seen.gain is not None
    assert seen.gain.after.blocks == pytest.approx(1, abs=1)


def test_expressions_are_candidates_for_indexes(counted: RealTable) -> None:
    """Nothing in manifests tells what they gain; a sample does, and the command has the expression."""
    filters = [recorded(f"upper(state) = 'S{value}'") for value in range(5)]
    blind = only(candidates(counted, filters).unpredicted, "index", "upper(state)")
    assert "expression" in blind.missing
    words = shlex.split(blind.command)
    assert words[-1] == "upper(state)"
    absent = [recorded(f"upper(state) = 'S{value}x'") for value in range(5)]
    seen = only(candidates(counted, absent, sample_blocks=BLOCKS).candidates, "index", "upper(state)")
    assert seen.gain is not None
    assert seen.gain.after.blocks == pytest.approx(0, abs=1)


def test_reports_stand_for_what_was_not_counted(uncounted: RealTable) -> None:
    """Of a reported filter the blocks without a row are known, so a Bloom filter is told to leave the others."""
    texts = [f"code = {7 * value}" for value in range(10, 3_900, 300)]
    reported = [report(uncounted, text) for text in texts]
    found = candidates(uncounted, [], reported)
    assert found.filters == len(texts)
    assert found.reported_blocks - found.empty_blocks == len(texts), "each value is in one block"
    index = only(found.candidates, "index", "code")
    assert index.gain is not None
    assert index.gain.after.blocks == pytest.approx(1, abs=0.6)
    absent = "code = 8"
    found = candidates(uncounted, [], [report(uncounted, absent)])
    index = only(found.candidates, "index", "code")
    assert index.gain is not None
    assert index.gain.after.blocks == pytest.approx(0, abs=0.6)


def test_a_report_of_a_recorded_filter_is_not_counted_twice(uncounted: RealTable) -> None:
    """It says where the recorded one has no row."""
    text = "code = 700"
    found = candidates(uncounted, [recorded(text, times=9)], [report(uncounted, text)])
    assert found.filters == 1
    index = only(found.candidates, "index", "code")
    assert index.gain is not None
    assert index.gain.times == 9


def test_indexes_that_no_filter_uses_may_be_dropped(folder: Path) -> None:
    """One of use stays; one that is not filled, and one of a filter whose constants are gone, cannot be told."""
    table = RealTable(folder, cut(rows()), segment_blocks=15)
    table.add_index("by_code", "bloom", "code")
    table.add_index("by_state", "value_set", "lower(state)")
    table.pointer = table.warehouse.indexing.create(
        table.pointer, name="empty", kind="bloom", expression="seq", options=None, now_ms=9
    ).pointer
    filters = [recorded(f"code = {7 * value}") for value in range(10, 3_900, 300)]
    found = candidates(table, filters)
    drop = only(found.candidates, "drop_index")
    assert drop.index_name == "by_state"
    assert drop.gain is not None
    assert drop.gain.before == drop.gain.after
    assert drop.freed_bytes
    empty = only(found.unpredicted, "drop_index")
    assert (empty.index_name, "no block" in empty.missing) == ("empty", True)
    gone = recorded("lower(state) = 's3'", is_full=False)
    found = candidates(table, [*filters, gone])
    assert all(each.kind != "drop_index" for each in found.candidates)
    unpredicted = {each.index_name for each in found.unpredicted if each.kind == "drop_index"}
    assert unpredicted == {"by_state", "empty"}


def test_an_index_that_covers_a_part_of_the_blocks_is_refreshed(folder: Path) -> None:
    """What it leaves of the blocks that it covers is expected of the others; a refresh leaves about that."""
    table = RealTable(folder, cut(rows()), segment_blocks=15)
    table.add_index("by_code", "bloom", "code", segments=1)
    filters = [recorded(f"code = {7 * value}", times=5) for value in range(10, 3_900, 100)]
    refresh = only(candidates(table, filters).candidates, "index_refresh")
    assert refresh.command == "lamella index refresh -- db.t by_code"
    assert refresh.cost.blocks == BLOCKS - 15
    assert refresh.cost.read_bytes > 0
    assert refresh.cost.index_bytes
    whole = RealTable(folder, cut(rows()), segment_blocks=15)
    whole.add_index("by_code", "bloom", "code")
    manifests = Manifests(whole.store, 64 << 20)
    advising = Candidates(manifests, IndexAccess(manifests), whole.warehouse.planning, whole.store)
    assert all(each.kind != "index_refresh" for each in candidates(whole, filters).candidates)
    measured, _ = advising.measured(whole.pointer, whole.pointer, filters)
    assert measured is not None
    assert refresh.gain is not None
    assert refresh.gain.after.blocks == pytest.approx(measured.after.blocks, abs=0.6)
    assert refresh.gain.at_least is not None
    assert refresh.gain.at_least.blocks <= measured.after.blocks
    others = [recorded(f"seq = {value}") for value in (5, 999)]
    assert all(each.kind != "index_refresh" for each in candidates(table, others).candidates)


def test_an_index_that_covers_nothing_is_predicted_as_a_new_one(folder: Path, counted: RealTable) -> None:
    """It was created and never refreshed."""
    table = RealTable(folder, cut(rows()), segment_blocks=15)
    table.add_index("by_code", "bloom", "code", segments=0)
    filters = [recorded(f"code = {7 * value}", times=5) for value in range(10, 3_900, 300)]
    refresh = only(candidates(table, filters).candidates, "index_refresh")
    new = [each for each in candidates(counted, filters).candidates if each.index and each.index.expression == "code"]
    assert refresh.gain is not None
    assert new[0].gain is not None
    assert refresh.gain.after.blocks == pytest.approx(new[0].gain.after.blocks, abs=0.5)
    assert only(candidates(table).unpredicted, "index_refresh").missing.startswith("no filters are recorded")


def test_a_second_index_on_an_expression_is_expected_to_gain_nothing(folder: Path) -> None:
    """What the first one leaves mostly has the value; other predicates of the column may still gain."""
    table = RealTable(folder, cut(rows()), segment_blocks=15)
    filters = [recorded(f"code = {7 * value}", times=5) for value in range(10, 3_900, 300)]
    assert any(each.kind == "index" for each in candidates(table, filters).candidates)
    table.add_index("by_code", "bloom", "code")
    found = candidates(table, filters)
    assert all(each.kind != "index" for each in (*found.candidates, *found.unpredicted))


def test_the_same_filters_are_measured_on_two_snapshots(folder: Path) -> None:
    """As prunes read them; a filter that cannot be replayed on both is left out."""
    table = RealTable(folder, cut(rows()), segment_blocks=15)
    before = table.pointer
    table.add_index("by_code", "bloom", "code", {"false_positives": 0.001})
    manifests = Manifests(table.store, 64 << 20)
    advising = Candidates(manifests, IndexAccess(manifests), table.warehouse.planning, table.store)
    filters = [recorded(f"code = {7 * value}", times=value) for value in (10, 500, 3_900)]
    gain, missing = advising.measured(before, table.pointer, [*filters, recorded("gone = 5")])
    assert (missing, gain is not None) == ("", True)
    assert gain is not None
    assert (gain.filters, gain.times) == (3, 4_410)
    assert gain.before.blocks > 20
    assert gain.after.blocks == pytest.approx(1.0, abs=0.1)
    assert advising.measured(before, table.pointer, []) == (None, "no filter is recorded any more")
    assert advising.measured(before, table.pointer, [recorded("gone = 5")])[0] is None


def test_filters_that_cannot_be_predicted_are_counted_apart(counted: RealTable) -> None:
    """They are in neither of the two averages."""
    filters = [recorded(f"code = {7 * value}") for value in range(10, 3_900, 600)] + [recorded("code < 500")]
    index = only(candidates(counted, filters).candidates, "index", "code")
    assert index.gain is not None
    assert (index.gain.filters, index.gain.unknown) == (len(filters) - 1, 1)
    assert "look-ups" in index.gain.reason
    assert "cannot be predicted" in index.text


def test_a_vacuum_is_predicted_by_what_is_known_of_the_history(counted: RealTable) -> None:
    """Nothing expires, nothing is known, or so many bytes are freed."""
    assert all(each.kind != "vacuum" for each in candidates(counted).unpredicted)
    unknown = only(candidates(counted, upkeep=Upkeep(reason="being measured")).unpredicted, "vacuum")
    assert unknown.missing == "being measured"
    known = Upkeep(snapshots=9, expired_snapshots=4, min_bytes=1_500_000, max_bytes=1_500_000)
    vacuum = only(candidates(counted, upkeep=known).candidates, "vacuum")
    assert vacuum.text == "A vacuum expires 4 of 9 snapshots and frees 1.5 MB"
    assert vacuum.freed_bytes == 1_500_000
    assert vacuum.command == "lamella vacuum --execute -- db.t"
    limits = {None: "at least 1.5 MB", 2_000_000: "1.5 MB to 2.0 MB"}
    for max_bytes, text in limits.items():
        upkeep = msgspec.structs.replace(known, max_bytes=max_bytes, earlier_snapshot_id="s7")
        found = only(candidates(counted, upkeep=upkeep).candidates, "vacuum")
        assert found.text == f"A vacuum expires 4 of 9 snapshots and frees {text}, as of snapshot s7"


def test_names_are_quoted_in_commands(folder: Path) -> None:
    """A column with a space or a quote is one word of the command."""
    data = rows().rename_columns(["the code", "it's", "seq"])
    table = RealTable(folder, cut(data), segment_blocks=15)
    found = candidates(table, [recorded(f"`the code` = {7 * value}") for value in range(10, 3_900, 300)])
    for each in found.candidates:
        for command in each.command.split(" && "):
            words = shlex.split(command)
            cli.make_context("lamella", words[1:], resilient_parsing=True)
    assert "the code" in shlex.split(only(found.candidates, "index").command)[-1]


@pytest.mark.parametrize(
    ("text", "terms"),
    [
        ("a = 1", {"a"}),
        ("1 < a OR NOT (b LIKE 'x%' AND c.d IS NULL)", {"a", "b", "c.d"}),
        ("lower(a) IN ('x', 'y') AND b <=> c", {"lower(a)", "b", "c"}),
        ("5 = 5", set()),
    ],
)
def test_the_terms_of_a_filter_are_what_an_index_can_be_on(text: str, terms: set[str]) -> None:
    """Operands that are no literals, whatever is around them."""
    assert {term_text(term) for term in terms_in(read_filter(text))} == terms


def test_averages_count_each_filter_as_often_as_it_was_used() -> None:
    """And a limit where the prediction is one."""
    now, then, absent = (Cost(blocks=each, bytes=10 * each, skip=1 - each / 100) for each in (100.0, 20.0, 0.0))
    gain = gain_of(
        [
            Forecast(filter="a", times=3, now=now, then=then, if_absent=absent),
            Forecast(filter="b", times=1, now=now, then=now, reason="or fewer: not known"),
            Forecast(filter="c", times=50, now=now, reason="not known"),
        ]
    )
    assert gain is not None
    assert (gain.after.blocks, gain.before.blocks) == (40, 100)
    assert gain.at_least is not None
    assert gain.at_most is not None
    assert (gain.at_least.blocks, gain.at_most.blocks) == (0, 40)
    assert (gain.filters, gain.times, gain.unknown, gain.reason) == (2, 4, 1, "not known")
    assert gain_of([Forecast(filter="c", now=now, reason="not known")]) is None
