"""Branches: what they show, what they share with their table, and what moves commits between them."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import Any

import pytest

from branches.conftest import rows
from lamella.client import Lamella
from lamella.client.http import Table
from lamella.snapshot.errors import (
    AlreadyExists,
    BranchNotFound,
    CommitConflict,
    InvalidRequest,
    LamellaError,
    NewMatches,
    SchemaConflict,
    SnapshotNotFound,
    TableNotFound,
)
from lamella.snapshot.schema.evolution import AddColumn


def test_a_branch_has_the_rows_of_its_snapshot_and_changes_alone(table: Table) -> None:
    """Commits to one of the two are not seen in the other; every way to write works."""
    audit = table.branch("audit")
    assert rows(audit) == [1, 2, 3]
    audit.append({"x": [4]})
    audit.upsert({"x": [5]}, on=["x"])
    audit.delete("x = 1")
    audit.upsert({"x": [2, 12]}, on=["x"])
    table.append({"x": [9]})
    assert rows(audit) == [2, 3, 4, 5, 12]
    assert rows(table) == [1, 2, 3, 9]
    assert rows(audit, "x > 3") == [4, 5, 12]
    assert table.info().table_id == audit.info().table_id
    assert audit.info().name == "t@audit"


def test_branches_are_listed_with_their_table_first(table: Table) -> None:
    """With the number at which the own history begins, and whether the table can be fast-forwarded."""
    table.branch("audit").append({"x": [4]})
    table.branch("audit").create_branch("second", max_idle=dt.timedelta(days=2))
    main, audit, second = table.branches()
    assert (main.name, main.fork_number, main.can_fast_forward) == ("main", None, False)
    assert (audit.name, audit.fork_number, audit.number, audit.can_fast_forward) == ("audit", 2, 3, True)
    assert (second.name, second.fork_number, second.number, second.max_idle_ms) == ("second", 2, 3, 172_800_000)
    assert table.branch("second").branches() == table.branches()


def test_a_branch_does_not_show_up_as_a_table(lake: Lamella, table: Table) -> None:
    """Not in the listing, and not in the count of what a namespace has."""
    assert lake.tables("n") == ("t",)
    assert table.branch("main").info() == table.info()


def test_a_branch_begins_at_any_snapshot(table: Table) -> None:
    """At an id, a number, a tag, a time, another branch, and at one that only another branch has."""
    first = table.info()
    table.append({"x": [4]})
    table.tag("four")
    table.append({"x": [5]})
    audit = table.branch("audit")
    audit.append({"x": [7]})
    inner = audit.info().snapshot_id
    audit.append({"x": [8]})
    cases: dict[str, tuple[dict[str, Any], list[int]]] = {
        "a": ({"snapshot_id": first.snapshot_id}, [1, 2, 3]),
        "b": ({"snapshot_id": "3"}, [1, 2, 3, 4]),
        "c": ({"snapshot_id": "four"}, [1, 2, 3, 4]),
        "d": ({"timestamp": first.timestamp_ms}, [1, 2, 3]),
        "e": ({"snapshot_id": "audit"}, [1, 2, 3, 7, 8]),
        "f": ({"snapshot_id": inner}, [1, 2, 3, 7]),
        "g": ({}, [1, 2, 3, 4, 5]),
    }
    for name, (where, expected) in cases.items():
        made = table.create_branch(name, **where)
        assert made in table.branches()
        assert rows(table.branch(name)) == expected, name
        table.branch(name).append({"x": [100]})
        assert rows(table.branch(name)) == [*expected, 100], name


def test_a_branch_is_a_name_for_its_current_snapshot(table: Table) -> None:
    """Wherever a snapshot is named; its earlier ones have ids and numbers."""
    audit = table.branch("audit")
    audit.append({"x": [4]})
    before = audit.info().snapshot_id
    audit.append({"x": [5]})
    assert rows(table, snapshot_id="audit") == [1, 2, 3, 4, 5]
    assert rows(table, snapshot_id=before) == [1, 2, 3, 4]
    assert rows(audit, snapshot_id="3") == [1, 2, 3, 4]
    assert rows(audit, snapshot_id="main") == [1, 2, 3]
    with pytest.raises(SnapshotNotFound):
        rows(table, snapshot_id="3")


def test_the_history_of_a_branch_goes_back_to_that_of_its_table(table: Table) -> None:
    """Numbers continue, and nothing of what came to the table after the branch is in it."""
    audit = table.branch("audit")
    audit.append({"x": [4]})
    table.append({"x": [9]})
    assert [each.number for each in audit.snapshots()] == [3, 2, 1]
    ids = [each.snapshot_id for each in audit.snapshots()]
    assert ids[1:] == [each.snapshot_id for each in table.snapshots()][1:]
    assert ids[0] != next(iter(table.snapshots())).snapshot_id
    first = list(table.snapshots())[-1]
    assert rows(audit, timestamp=first.timestamp_ms) == []


def test_tags_belong_to_the_table_and_all_its_branches(table: Table) -> None:
    """A tag and a branch never have one name."""
    audit = table.branch("audit")
    audit.append({"x": [4]})
    audit.tag("checked")
    assert rows(table, snapshot_id="checked") == [1, 2, 3, 4]
    assert [each.name for each in table.tags()] == ["checked"]
    with pytest.raises(AlreadyExists):
        table.create_branch("checked")
    for name in ("audit", "main"):
        with pytest.raises(AlreadyExists):
            table.tag(name)
    table.tag("checked", move=True)
    assert rows(audit, snapshot_id="checked") == [1, 2, 3]
    audit.drop_tag("checked")
    assert table.tags() == ()


def test_a_fast_forward_brings_the_snapshots_with_their_ids(table: Table) -> None:
    """A reader of changes sees each of them once."""
    audit = table.branch("audit")
    before = table.info().snapshot_id
    audit.append({"x": [4]})
    audit.delete("x = 1")
    done = table.fast_forward("audit")
    assert (done.snapshots, done.prev_snapshot_id) == (2, before)
    assert table.info().snapshot_id == audit.info().snapshot_id == done.snapshot_id
    assert rows(table) == [2, 3, 4]
    assert [change.operation for change in table.changes(before)] == ["append", "delete"]
    again = table.fast_forward("audit")
    assert (again.snapshots, again.snapshot_id) == (0, done.snapshot_id)
    table.append({"x": [5]})
    audit.append({"x": [6]})
    assert rows(table) == [2, 3, 4, 5]
    assert rows(audit) == [2, 3, 4, 6]


def test_a_time_selects_what_the_table_had_then(table: Table) -> None:
    """Not what a branch had that the table got by a fast-forward later."""
    audit = table.branch("audit")
    audit.append({"x": [4]})
    made_ms = audit.info().timestamp_ms
    while int(dt.datetime.now(dt.UTC).timestamp() * 1000) <= made_ms:
        pass
    table.fast_forward("audit")
    assert rows(table, timestamp=made_ms) == [1, 2, 3]
    assert rows(audit, timestamp=made_ms) == [1, 2, 3, 4]
    assert rows(table, timestamp=(1 << 60)) == [1, 2, 3, 4]
    assert rows(table) == [1, 2, 3, 4]


def test_a_branch_that_the_table_has_left_behind_is_not_published(table: Table) -> None:
    """The table's commit would be lost."""
    audit = table.branch("audit")
    audit.append({"x": [4]})
    table.append({"x": [9]})
    assert not table.branches()[1].can_fast_forward
    with pytest.raises(CommitConflict):
        table.fast_forward("audit")
    with pytest.raises(CommitConflict):
        audit.fast_forward("main")
    assert rows(table) == [1, 2, 3, 9]


def test_a_branch_is_brought_up_to_date_by_a_fast_forward(table: Table) -> None:
    """In the other direction, while it has no commit of its own."""
    table.append({"x": [9]})
    audit = table.branch("audit")
    assert audit.fast_forward("main").snapshots == 1
    audit.append({"x": [10]})
    assert table.fast_forward("audit").snapshots == 1
    assert rows(table) == [1, 2, 3, 9, 10]
    with pytest.raises(InvalidRequest):
        table.fast_forward("main")


def test_a_cherry_pick_repeats_one_commit(table: Table) -> None:
    """Appends, deleted rows and rewritten blocks; the others of the branch stay there."""
    audit = table.branch("audit")
    audit.append({"x": [4]})
    four = audit.info().snapshot_id
    audit.append({"x": [5]})
    audit.delete("x = 1", mode="merge-on-read")
    table.append({"x": [9]})
    assert table.cherry_pick("audit").changed == 1
    assert rows(table) == [2, 3, 9]
    picked = table.cherry_pick(four)
    assert (picked.added, picked.removed, picked.picked_snapshot_id) == (1, 0, four)
    assert rows(table) == [2, 3, 4, 9]
    assert rows(audit) == [2, 3, 4, 5]
    assert next(iter(table.snapshots())).operation == f"cherry_pick {four}"
    table.delete("x = 4")
    with pytest.raises(InvalidRequest, match="already"):
        table.cherry_pick(four)
    assert rows(audit) == [2, 3, 4, 5]


def test_a_change_is_taken_over_once_by_whatever_way(table: Table) -> None:
    """Also as the copy of a copy, and after the block was rewritten."""
    audit = table.branch("audit")
    table.create_branch("other")
    other = table.branch("other")
    audit.append({"x": [4, 5]})
    four = audit.info().snapshot_id
    other.cherry_pick(four)
    table.cherry_pick(other.info().snapshot_id)
    table.delete("x = 5", mode="copy-on-write")
    for again in (four, "other", "audit"):
        with pytest.raises(InvalidRequest, match="already"):
            table.cherry_pick(again)
    assert rows(table) == [1, 2, 3, 4]


def test_a_cherry_pick_conflicts_where_a_block_has_changed(table: Table) -> None:
    """Two updates of one row do not both happen."""
    audit = table.branch("audit")
    audit.upsert({"x": [2, 12]}, on=["x"])
    table.upsert({"x": [2, 22]}, on=["x"])
    with pytest.raises(CommitConflict):
        table.cherry_pick("audit")
    assert rows(table) == [1, 2, 3, 22]
    with pytest.raises(InvalidRequest, match="already"):
        table.cherry_pick(table.info().snapshot_id)


def test_deletes_of_other_rows_of_a_block_are_both_made(table: Table) -> None:
    """The rule of two commits that run at once."""
    audit = table.branch("audit")
    audit.delete("x = 1", mode="merge-on-read")
    table.delete("x = 3", mode="merge-on-read")
    assert table.cherry_pick("audit").changed == 1
    assert rows(table) == [2]


def test_a_strict_cherry_pick_has_seen_all_rows(table: Table) -> None:
    """An upsert that did not find a key is not repeated where it would."""
    audit = table.branch("audit")
    audit.upsert({"x": [3, 7]}, on=["x"])
    table.append({"x": [7]})
    with pytest.raises(NewMatches):
        table.cherry_pick("audit", strict=True)
    table.cherry_pick("audit")
    assert rows(table) == [1, 2, 3, 7, 7]


def test_columns_belong_to_the_table(table: Table) -> None:
    """A branch follows the table's columns, so that both mean the same by an id."""
    audit = table.branch("audit")
    add = [AddColumn(name="y", type="string")]
    with pytest.raises(SchemaConflict):
        audit.evolve([AddColumn(name="y", type="int64")])
    table.evolve(add)
    with pytest.raises(SchemaConflict):
        audit.evolve([AddColumn(name="y", type="int64")])
    audit.evolve(add)
    assert audit.info().schema == table.info().schema
    audit.append({"x": [4], "y": ["a"]})
    table.cherry_pick("audit")
    assert rows(table, "y = 'a'") == [4]
    with pytest.raises(SchemaConflict):
        audit.cluster_by(["x"])


def test_a_commit_of_newer_columns_is_not_picked_by_a_branch_without_them(table: Table) -> None:
    """Its rows could not be read there."""
    table.evolve([AddColumn(name="y", type="string")])
    table.append({"x": [4], "y": ["a"]})
    with pytest.raises(SchemaConflict):
        table.branch("audit").cherry_pick("main")


def test_branches_follow_their_table(lake: Lamella, table: Table) -> None:
    """When it is renamed, dropped and restored."""
    table.branch("audit").append({"x": [4]})
    table.create_branch("gone")
    table.drop_branch("gone")
    lake.rename_table("n.t", "n.u")
    assert rows(lake.table("n.u@audit")) == [1, 2, 3, 4]
    with pytest.raises(TableNotFound):
        table.branch("audit").info()
    lake.drop_table("n.u")
    with pytest.raises(TableNotFound):
        lake.table("n.u@audit").info()
    assert [each.name for each in lake.dropped_tables("n")] == ["u"]
    lake.undrop_table("n.u")
    assert rows(lake.table("n.u@audit")) == [1, 2, 3, 4]
    assert [each.name for each in lake.table("n.u").branches()] == ["main", "audit"]


def test_a_branch_is_replaced_and_dropped(table: Table) -> None:
    """A dropped one can be created again from the id of its last snapshot."""
    audit = table.branch("audit")
    audit.append({"x": [4]})
    last = audit.info().snapshot_id
    with pytest.raises(AlreadyExists):
        table.create_branch("audit")
    table.create_branch("audit", replace=True)
    assert rows(audit) == [1, 2, 3]
    table.drop_branch("audit")
    with pytest.raises(BranchNotFound):
        audit.info()
    with pytest.raises(BranchNotFound):
        audit.append({"x": [5]})
    with pytest.raises(BranchNotFound):
        table.drop_branch("audit")
    assert rows(table, snapshot_id=last) == [1, 2, 3, 4]
    table.create_branch("back", last)
    table.branch("back").append({"x": [5]})
    assert rows(table.branch("back")) == [1, 2, 3, 4, 5]
    assert [each.number for each in table.branch("back").snapshots()] == [4, 3, 2, 1]


@pytest.mark.parametrize("name", ["", "a.b", "a@b", "-a", "a b", "7", "main", "x" * 200])
def test_a_branch_has_a_name_that_names_nothing_else(table: Table, name: str) -> None:
    """Numbers and ids name snapshots."""
    with pytest.raises(InvalidRequest):
        table.create_branch(name)


def test_what_belongs_to_the_table_is_not_done_to_a_branch(lake: Lamella, table: Table) -> None:
    """Dropping, renaming, policies; nor is a table created with such a name."""
    attempts = (
        lambda: lake.drop_table("n.t@audit"),
        lambda: lake.rename_table("n.t@audit", "n.u"),
        lambda: lake.create_table("n.new@audit", schema=table.info().schema.columns),
    )
    for attempt in attempts:
        with pytest.raises(LamellaError):
            attempt()
    assert rows(table.branch("audit")) == [1, 2, 3]


def test_changes_lead_from_the_table_into_a_branch(table: Table) -> None:
    """From a snapshot that both have; between two branches there is only the difference."""
    start = table.info().snapshot_id
    audit = table.branch("audit")
    audit.append({"x": [4]})
    table.append({"x": [9]})
    side = table.info().snapshot_id
    assert [len(change.added) for change in audit.changes(start)] == [1]
    with pytest.raises(InvalidRequest):
        list(audit.changes(side))
    (net,) = audit.changes(side, net=True)
    assert (len(net.added), len(net.removed)) == (1, 1)
    assert audit.row_changes(start).to_arrow().column("x").to_pylist() == [4]


def test_a_branch_takes_part_in_a_transaction(lake: Lamella, table: Table) -> None:
    """Together with its table, as two tables do."""
    with lake.transaction() as tx:
        tx.table("n.t").append({"x": [9]})
        tx.table("n.t@audit").append({"x": [4]})
    assert (rows(table), rows(table.branch("audit"))) == ([1, 2, 3, 9], [1, 2, 3, 4])


def test_a_branch_is_rolled_back_to_a_snapshot_of_its_table(table: Table) -> None:
    """From before it was created, too."""
    audit = table.branch("audit")
    audit.append({"x": [4]})
    audit.rollback("1")
    assert rows(audit) == []
    audit.rollback("3")
    assert rows(audit) == [1, 2, 3, 4]


def test_branches_survive_a_restart(tmp_path: Path) -> None:
    """They are in the catalog."""
    with Lamella.embedded(tmp_path / "lake") as lake:
        lake.table("n.t").append({"x": [1]}, create=True)
        lake.table("n.t").create_branch("audit")
        lake.table("n.t@audit").append({"x": [2]})
    with Lamella.embedded(tmp_path / "lake") as lake:
        assert rows(lake.table("n.t@audit")) == [1, 2]
