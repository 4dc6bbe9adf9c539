"""Why an index does not help: every reason there is, from the real thing."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from lamella.snapshot.advice.why_not import WhyNot
from lamella.snapshot.errors import IndexNotFound
from lamella.snapshot.expression import read_filter
from lamella.snapshot.warehouse.finder import IndexAccess
from lamella.snapshot.warehouse.manifests import Manifests
from lamella.snapshot.wire.advice import Why, WhyNotAnswer, WhyNotRequest
from support.real_tables import RealTable


@pytest.fixture
def table(tmp_path: Path) -> RealTable:
    """20 blocks; ``a`` ascends, ``b`` and ``s`` are in no order."""
    rng = np.random.default_rng(4)
    blocks = [
        pa.table(
            {
                "a": pa.array(np.arange(50) + 50 * number),
                "b": pa.array(rng.integers(0, 500, 50) * 2),
                "s": pa.array([f"text {value}" for value in rng.integers(0, 900, 50)]),
            }
        )
        for number in range(20)
    ]
    return RealTable(tmp_path, blocks, verify=False)


def ask(table: RealTable, text: str, index: str | None = None) -> WhyNotAnswer:
    """The whole answer."""
    manifests = Manifests(table.store, 64 << 20)
    why_not = WhyNot(manifests, IndexAccess(manifests))
    return why_not.answer(table.pointer, WhyNotRequest(index=index), read_filter(text))


def only(table: RealTable, text: str, index: str) -> Why:
    """The one line of an index over a filter of one predicate."""
    (found,) = ask(table, text, index).answers
    return found


def test_what_keeps_an_index_from_helping(table: RealTable) -> None:
    """The term, the predicate, the bounds, the blocks: each has its own code and sentence."""
    table.add_index("by_b", "bloom", "b", {"false_positives": 1e-6})
    cases = {
        "a = 3": ("other_term", "the predicate is not on b"),
        "a = b": ("other_term", "the predicate compares two terms of a row; an index covers one"),
        "b > 7": ("not_answered", "only = and IN test whether a value exists"),
        "b = 5000": ("nothing_left", "bounds skip all blocks"),
        "b = 501": ("helps", "it rules out 20 of 20 blocks that remain after bounds"),
        "b & 2 = 0": ("not_answered", None),
    }
    for text, (code, reason) in cases.items():
        found = only(table, text, "by_b")
        assert found.code == code, text
        assert reason is None or found.reason == reason
        assert found.reason


def test_a_filter_of_several_predicates_has_a_line_for_each_and_one_for_all(table: RealTable) -> None:
    """A negated predicate may be decided on its own, and still rule out nothing."""
    table.add_index("by_b", "bloom", "b", {"false_positives": 1e-6})
    found = ask(table, "NOT (b = 501) AND a < 500", "by_b")
    assert [(each.predicate, each.code) for each in found.answers] == [
        ("b = 501", "helps"),
        ("a < 500", "other_term"),
        (None, "may_match"),
    ]
    assert (found.blocks_total, found.after_bounds, found.after_indexes) == (20, 10, 10)
    assert found.predicates == ("b = 501", "a < 500")


def test_all_indexes_are_explained_at_once(table: RealTable) -> None:
    """Without a name, each index has its lines; together they leave what a prune leaves."""
    table.add_index("by_b", "bloom", "b", {"false_positives": 1e-6})
    table.add_index("by_s", "keys", "s")
    found = ask(table, "b = 501 OR s = 'text 9999'")
    assert {each.index for each in found.answers} == {"by_b", "by_s"}
    assert found.after_indexes == 0
    with pytest.raises(IndexNotFound):
        ask(table, "b = 501", "by_c")


def test_the_state_of_an_index_comes_first(table: RealTable) -> None:
    """An index that was dropped, or knows no block, says so whatever the filter."""
    indexing = table.warehouse.indexing
    table.pointer = indexing.create(table.pointer, name="i", kind="bloom", expression="b", now_ms=5).pointer
    assert only(table, "b = 501", "i").code == "empty"
    table.pointer = indexing.drop(table.pointer, "i", now_ms=6).pointer
    assert only(table, "b = 501", "i").code == "dropped"


def test_blocks_that_match_as_a_whole_leave_nothing_to_rule_out(table: RealTable) -> None:
    """Where bounds prove that every row matches, no index is asked."""
    table.add_index("by_a", "keys", "a")
    found = ask(table, "a IN (0, 1) OR a >= 0", "by_a").answers[0]
    assert (found.code, found.reason) == ("nothing_left", "every row of the remaining blocks matches")


def test_damage_is_distinguished_from_uselessness(table: RealTable) -> None:
    """A part that cannot be read is named; the blocks stay."""
    table.add_index("by_b", "bloom", "b")
    index = table.warehouse.snapshot(table.pointer).skip_indexes[0]
    manifests = Manifests(table.store, 1 << 20)
    for ref in manifests.directory(index.directories[0].object).parts:
        table.store.delete(ref.location)
    found = ask(table, "b = 501", "by_b")
    assert found.answers[0].code == "unreadable"
    assert found.after_indexes == found.after_bounds == 20
