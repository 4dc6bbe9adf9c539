"""What clients do to the tables of a :class:`~commit.subject.Subject`, with what should come of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from commit.subject import COLUMNS, TABLES, Blocks, Model, Subject


def create(subject: Subject, name: str) -> None:
    """A table of that name, unless there is one."""

    def happen(answer: Any) -> None:
        subject.tables[name] = Model({answer["snapshot_id"]: {}})

    expected = 409 if name in subject.tables else 201
    subject.mutate("POST", TABLES, {"name": name, "schema": COLUMNS}, happen, expected)


def drop(subject: Subject, name: str) -> None:
    """The table of that name, if there is one."""

    def happen(_: Any) -> None:
        del subject.tables[name]

    expected = 204 if name in subject.tables else 404
    subject.mutate("DELETE", f"{TABLES}/{name}", None, happen, expected)


def register(subject: Subject, name: str, new: int, doubled: Sequence[str] = ()) -> None:
    """New files, and some that are in the table already and are refused."""
    model = subject.tables[name]
    files = dict(subject.file() for _ in range(new))

    def happen(answer: Any) -> None:
        refused = {entry["path"] for entry in answer["refused"]}
        assert set(doubled) <= refused
        taken: Blocks = {location: bounds for location, bounds in files.items() if location not in refused}
        assert answer["registered"] == len(taken)
        model.add(answer["snapshot_id"], {**model.now, **taken})

    body = {"paths": [*files, *doubled]}
    subject.mutate("POST", f"{TABLES}/{name}/register", body, happen, 200 if files else 409)


def replace(subject: Subject, name: str, removed: Sequence[str], new: int, base: str | None) -> None:
    """Blocks for others: a delete, a compaction, a write of blocks without statistics.

    It conflicts when a removed block is not there, or was not at the base.
    """
    model = subject.tables[name]
    added: Blocks = {subject.file()[0]: None for _ in range(new)}
    known = model.now.keys() & (model.snapshots[base].keys() if base is not None else model.now.keys())

    def happen(answer: Any) -> None:
        remaining = {location: bounds for location, bounds in model.now.items() if location not in removed}
        assert (answer["added"], answer["removed"]) == (len(added), len(removed))
        assert answer["prev_snapshot_id"] == next(reversed(model.snapshots))
        model.add(answer["snapshot_id"], {**remaining, **added})

    body: dict[str, Any] = {
        "added": [{"location": location, "row_count": 10, "file_size": 0} for location in added],
        "removed": list(removed),
        "operation": "compact" if removed and added else "delete" if removed else "append",
    }
    if base is not None:
        body["base_snapshot_id"] = base
    expected = 200 if set(removed) <= known else 409
    subject.mutate("POST", f"{TABLES}/{name}/commits", body, happen, expected)


def add_column(subject: Subject, name: str, column: str) -> None:
    """A column more, unless there is one of that name."""
    model = subject.tables[name]

    def happen(answer: Any) -> None:
        model.columns.append(column)
        assert [each["name"] for each in answer["schema"]["columns"]] == model.columns
        model.add(answer["snapshot_id"], model.now)

    body = {"changes": [{"change": "add", "name": column, "type": "string"}]}
    expected = 400 if column in model.columns else 200
    subject.mutate("POST", f"{TABLES}/{name}/schema", body, happen, expected)
