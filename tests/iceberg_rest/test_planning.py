"""Plans over HTTP: complete, each file once, in parts that any replica serves, with nothing said that is not exact."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lamella.snapshot.columnar import Sidecar
from lamella.snapshot.iceberg import scan_plan as planning
from lamella.snapshot.prune.paging import Position
from lamella.snapshot.prune.result import SegmentSelection
from support.app_client import AppClient

TABLE: Final = "/v1/namespaces/db/tables/t"
REST: Final = f"/iceberg{TABLE}"
ROWS: Final = 10


class Files:
    """A table whose block ``i`` has the values from ``10 i`` on, and a column ``n`` with nulls in every other one."""

    def __init__(self, app: AppClient, folder: Path) -> None:
        self.app = app
        self.folder = folder
        self.count = 0
        assert app.post("/v1/namespaces", json={"name": "db"}).status_code == 201
        columns = [{"name": "a", "type": "int64"}, {"name": "s", "type": "string"}, {"name": "n", "type": "float64"}]
        assert app.post("/v1/namespaces/db/tables", json={"name": "t", "schema": columns}).status_code == 201

    def add(self, blocks: int) -> list[str]:
        """Append so many blocks in one snapshot."""
        found = []
        for at in range(self.count, self.count + blocks):
            file = self.folder / f"{at:04}.parquet"
            first = at * ROWS
            numbers = range(first, first + ROWS)
            cells = [None if at % 2 and number % 3 == 0 else number / 4 for number in numbers]
            pq.write_table(pa.table({"a": list(numbers), "s": [f"s{n:05}" for n in numbers], "n": cells}), file)
            found.append(f"file://{file}")
        self.count += blocks
        answer = self.app.post(f"{TABLE}/register", json={"paths": found})
        assert answer.status_code == 200, answer.text
        return found

    def plan(self, **request: Any) -> dict[str, Any]:
        """A plan, with what its parts have."""
        answer = self.app.post(f"{REST}/plan", json=request)
        assert answer.status_code == 200, answer.text
        return dict(answer.json())

    def tasks(self, app: AppClient, plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
        """All files of a plan, its parts and their parts among them."""
        yield from plan["file-scan-tasks"]
        for token in plan.get("plan-tasks", ()):
            answer = app.post(f"{REST}/tasks", json={"plan-task": token})
            assert answer.status_code == 200, answer.text
            yield from self.tasks(app, answer.json())


@pytest.fixture
def files(new_replica: Callable[[], AppClient], tmp_path: Path) -> Files:
    """An empty table."""
    return Files(new_replica(), tmp_path)


def locations(tasks: Any) -> list[str]:
    """Where the files of tasks are."""
    return [task["data-file"]["file-path"] for task in tasks]


def error(answer: Any) -> tuple[int, str]:
    """The status of an answer that failed, and the name of the exception."""
    body = answer.json()["error"]
    assert body["code"] == answer.status_code
    assert body["message"]
    return answer.status_code, body["type"]


def test_a_plan_is_complete_at_once(files: Files) -> None:
    """Its state, its files as the specification has them, and what is left of the filter in each."""
    made = files.add(4)
    filter = {"type": "gt-eq", "term": "a", "value": 15}
    plan = files.plan(filter=filter)
    assert (plan["status"], bool(plan["plan-id"])) == ("completed", True)
    assert locations(plan["file-scan-tasks"]) == made[1:]
    assert [task["residual-filter"] for task in plan["file-scan-tasks"]] == [filter, True, True]
    size = Path(made[1].removeprefix("file://")).stat().st_size
    assert plan["file-scan-tasks"][0]["data-file"] == {
        "spec-id": 0,
        "partition": [],
        "content": "data",
        "file-path": made[1],
        "file-format": "parquet",
        "file-size-in-bytes": size,
        "record-count": ROWS,
    }
    assert "plan-tasks" not in plan


@pytest.mark.slow
@pytest.mark.parametrize(("max_tasks", "max_tokens"), [(1, 100), (3, 100), (2, 3), (5, 1), (100, 8)])
def test_the_parts_of_a_plan_are_the_plan(
    files: Files,
    new_replica: Callable[[], AppClient],
    monkeypatch: pytest.MonkeyPatch,
    max_tasks: int,
    max_tokens: int,
) -> None:
    """However it is cut, in parts of parts too, another replica serves them, and each file comes once."""
    made = files.add(9) + files.add(8)
    monkeypatch.setattr("lamella.service.iceberg.scans.part_sizes", lambda *_: (max_tasks, max_tokens))
    other = new_replica()
    plan = files.plan()
    assert len(plan["file-scan-tasks"]) == min(max_tasks, 17)
    assert len(plan.get("plan-tasks", ())) <= max_tokens
    assert sorted(locations(files.tasks(other, plan))) == made
    few = files.plan(filter={"type": "lt", "term": "a", "value": 100})
    files.add(3)
    assert sorted(locations(files.tasks(other, few))) == made[:10]


def test_sizes_of_parts_go_by_the_filter() -> None:
    """A short filter has 5,000 files in a part; of a long one so many that its residuals fit, and fewer tokens."""
    assert planning.part_sizes(planning.task_bytes(40, 2), 400) == (5_000, (4 << 20) // 400)
    assert planning.part_sizes(planning.task_bytes(1 << 20, 0), 200_000) == (15, 20)
    assert planning.part_sizes(planning.task_bytes(100 << 20, 0), 10 << 20) == (1, 8)
    assert planning.part_sizes(planning.task_bytes(40, 1_000), 400)[0] < 100


def test_a_filter_that_is_too_long_for_tokens_has_few_files(files: Files, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each file would repeat it, so beyond a budget it is refused, for ranges of snapshots too."""
    files.add(3)
    filter = {"type": "in", "term": "a", "values": list(range(-1_000, 1_000, 7))}
    monkeypatch.setattr("lamella.service.iceberg.scans.MAX_CHARACTERS", 10)
    assert len(files.plan(filter=filter)["file-scan-tasks"]) == 3
    monkeypatch.setattr("lamella.service.iceberg.scans.MAX_BYTES", 3_000)
    for request in ({}, {"start-snapshot-id": 1, "end-snapshot-id": 2}):
        answer = files.app.post(f"{REST}/plan", json={"filter": filter, **request})
        assert error(answer) == (400, "BadRequestException")
        assert "plan" in answer.json()["error"]["message"]


@given(st.integers(0, 2**32))
def test_ranges_cover_every_block_once(seed: int) -> None:
    """Over random kept blocks, also when fewer are kept by the time that a part is fetched."""
    rng = Random(seed)
    rows = {segment: sorted(rng.sample(range(40), rng.randint(1, 12))) for segment in rng.sample(range(30), 6)}
    parts = [selection(segment, rows[segment]) for segment in sorted(rows)]
    start, end = Position(0, 0), Position(1 << 62, 0)
    cuts = planning.ranges(parts, start, end, rng.randint(1, 9))
    for spread in (cuts, planning.spread(cuts, rng.randint(1, 5))):
        assert (spread[0][0], spread[-1][1]) == (start, end)
        assert all(one[1] == other[0] for one, other in itertools.pairwise(spread))
        narrower = [
            selection(part.segment, [row for row in part.rows.tolist() if rng.random() < 0.8]) for part in parts
        ]
        for those in (parts, narrower):
            found = [
                (part.segment, row) for cut in spread for part in planning.within(those, *cut) for row in part.rows
            ]
            assert found == [(part.segment, row) for part in those for row in part.rows]


def selection(segment: int, rows: list[int]) -> SegmentSelection:
    """SegmentSelection blocks of a segment that nobody opens."""
    return SegmentSelection(segment, _unopened, np.array(rows, dtype=np.int64), np.ones(len(rows), dtype=np.uint8))


def _unopened(segment: int) -> Sidecar:
    raise AssertionError(f"nobody opens segment {segment} here")


def test_a_plan_is_fetched_again_and_given_up(files: Files) -> None:
    """By its id it is the same; giving it up is taken; other ids are none."""
    files.add(3)
    plan = files.plan(filter={"type": "eq", "term": "a", "value": 12})
    path = f"{REST}/plan/{plan['plan-id']}"
    assert files.app.get(path).json() == plan
    assert files.app.delete(path).status_code == 204
    for method in ("GET", "DELETE"):
        assert error(files.app.request(method, f"{REST}/plan/nope")) == (404, "NoSuchPlanIdException")


def test_a_token_is_for_its_table_only(files: Files, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another table's, and one that was altered, are no plan tasks; nor is anything once the snapshot is gone."""
    files.add(4)
    monkeypatch.setattr("lamella.service.iceberg.scans.part_sizes", lambda *_: (2, 10))
    [token] = files.plan()["plan-tasks"]
    columns = [{"name": "a", "type": "int64"}]
    assert files.app.post("/v1/namespaces/db/tables", json={"name": "u", "schema": columns}).status_code == 201
    none = (404, "NoSuchPlanTaskException")
    assert error(files.app.post("/iceberg/v1/namespaces/db/tables/u/tasks", json={"plan-task": token})) == none
    altered = token[:-2] + ("A" if token[-2] != "A" else "B") + token[-1]
    assert error(files.app.post(f"{REST}/tasks", json={"plan-task": altered})) == none
    assert error(files.app.post(f"{REST}/tasks", json={"plan-task": "x" * (2 << 20)}))[0] in (400, 413)
    assert files.app.post(f"{REST}/tasks", json={"plan-task": token}).status_code == 200


def test_statistics_are_those_that_were_requested_and_exact(files: Files) -> None:
    """None unasked; hexadecimal in Iceberg's binary form; columns that nobody named are not there."""
    files.add(2)
    assert "lower-bounds" not in files.plan()["file-scan-tasks"][0]["data-file"]
    first, second = (task["data-file"] for task in files.plan(**{"stats-fields": ["a", "n"]})["file-scan-tasks"])
    assert first["value-counts"] == {"keys": [1, 3], "values": [10, 10]}
    assert first["null-value-counts"] == {"keys": [1, 3], "values": [0, 0]}
    assert first["lower-bounds"]["values"][0] == (0).to_bytes(8, "little").hex()
    assert second["upper-bounds"]["values"][0] == (19).to_bytes(8, "little").hex()
    assert second["null-value-counts"]["values"] == [0, 3]
    assert first["lower-bounds"]["keys"] in ([1], [1, 3])


def test_fewer_files_are_enough_where_rows_are_proven(files: Files) -> None:
    """Blocks that match wholly give the rows that are wanted; where too few are proven, all files are there."""
    files.add(8)
    request = {"type": "gt-eq", "term": "a", "value": 15}
    few = files.plan(filter=request, **{"min-rows-requested": 12})["file-scan-tasks"]
    assert [task["residual-filter"] for task in few] == [True, True]
    assert len(files.plan(filter=request, **{"min-rows-requested": 1_000})["file-scan-tasks"]) == 7
    assert len(files.plan(filter=request, **{"min-rows-requested": 0})["file-scan-tasks"]) == 7
    unproven = {"type": "eq", "term": "n", "value": 3.0}
    assert files.plan(filter=unproven, **{"min-rows-requested": 1}) | {"plan-id": ""} == files.plan(filter=unproven) | {
        "plan-id": ""
    }


def test_rows_that_are_enough_do_not_make_a_plan_without_parts(
    files: Files, new_replica: Callable[[], AppClient], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where they need more files than a part has, the plan has parts as ever."""
    made = files.add(9)
    monkeypatch.setattr("lamella.service.iceberg.scans.part_sizes", lambda *_: (3, 10))
    assert len(files.plan(**{"min-rows-requested": 25})["file-scan-tasks"]) == 3
    plan = files.plan(**{"min-rows-requested": 85})
    assert len(plan["file-scan-tasks"]) == 3
    assert sorted(locations(files.tasks(new_replica(), plan))) == made


def test_what_was_appended_is_planned(files: Files) -> None:
    """Between two snapshots: the files that came, as far as they match."""
    first, second, third = files.add(2), files.add(2), files.add(3)
    ends = {"start-snapshot-id": 2, "end-snapshot-id": 4}
    assert locations(files.plan(**ends)["file-scan-tasks"]) == second + third
    filter = {"type": "lt-eq", "term": "a", "value": 45}
    tasks = files.plan(**ends, filter=filter)["file-scan-tasks"]
    assert locations(tasks) == [*second, third[0]]
    assert [task["residual-filter"] for task in tasks] == [True, True, filter]
    assert locations(files.plan(**{"start-snapshot-id": 3, "end-snapshot-id": 3})["file-scan-tasks"]) == []
    removed = files.app.post(f"{TABLE}/commits", json={"removed": [first[0]]})
    assert removed.status_code == 200, removed.text
    assert locations(files.plan(**{"start-snapshot-id": 4, "end-snapshot-id": 5})["file-scan-tasks"]) == []
    for wrong in (
        {"start-snapshot-id": 2},
        {"end-snapshot-id": 4},
        {"start-snapshot-id": 4, "end-snapshot-id": 2},
        {"start-snapshot-id": 2, "end-snapshot-id": 99},
        {**ends, "snapshot-id": 3},
    ):
        assert error(files.app.post(f"{REST}/plan", json=wrong)) == (400, "BadRequestException"), wrong


def test_a_snapshot_that_adds_and_removes_is_no_append(files: Files) -> None:
    """Nobody knows which of its rows are new; a compaction has none."""
    first = files.add(2)
    extra = files.folder / "both.parquet"
    pq.write_table(pa.table({"a": [1], "s": ["x"], "n": [0.5]}), extra)
    made = files.app.post(f"{TABLE}/register", json={"paths": [f"file://{extra}"]})
    assert made.status_code == 200
    blocks = files.app.post(f"{TABLE}/prune", json={}).json()["blocks"]
    assert len(blocks) == 3
    twin = files.folder / "twin.parquet"
    pq.write_table(pa.table({"a": list(range(20)), "s": ["y"] * 20, "n": [0.5] * 20}), twin)
    block = {"location": f"file://{twin}", "row_count": 20, "file_size": twin.stat().st_size}
    changed = {"added": [block], "removed": first, "operation": "overwrite"}
    answer = files.app.post(f"{TABLE}/commits", json=changed)
    assert answer.status_code == 200, answer.text
    ends = {"start-snapshot-id": 3, "end-snapshot-id": 4}
    assert error(files.app.post(f"{REST}/plan", json=ends)) == (400, "BadRequestException")
    back = {"location": f"file://{extra}", "row_count": 1, "file_size": extra.stat().st_size}
    moved = files.folder / "moved.parquet"
    moved.write_bytes(extra.read_bytes())
    answer = files.app.post(
        f"{TABLE}/commits",
        json={
            "added": [{**back, "location": f"file://{moved}"}],
            "removed": [f"file://{extra}"],
            "operation": "compact",
        },
    )
    assert answer.status_code == 200, answer.text
    assert files.plan(**{"start-snapshot-id": 4, "end-snapshot-id": 5})["file-scan-tasks"] == []


def test_names_are_those_of_the_schema_that_is_meant(files: Files) -> None:
    """Of an earlier snapshot a filter names the columns of today, or with ``use-snapshot-schema`` those of then."""
    files.add(3)
    change = {"changes": [{"change": "rename", "column": "s", "name": "t"}]}
    answer = files.app.post(f"{TABLE}/schema", json=change)
    assert answer.status_code == 200, answer.text
    then = {"type": "eq", "term": "s", "value": "s00012"}
    now = {"type": "eq", "term": "t", "value": "s00012"}
    assert len(files.plan(filter=then, **{"snapshot-id": 2, "use-snapshot-schema": True})["file-scan-tasks"]) == 1
    today = files.plan(filter=now, **{"snapshot-id": 2})["file-scan-tasks"]
    assert len(today) == 3
    assert all(task["residual-filter"] == now for task in today)
    assert error(files.app.post(f"{REST}/plan", json={"filter": then, "snapshot-id": 2}))[0] == 400
    assert len(files.plan(filter=now)["file-scan-tasks"]) == 1


def test_bad_plans_say_why(files: Files) -> None:
    """A snapshot, a column, a filter and a body that are none, by Iceberg's names."""
    files.add(1)
    bad: list[Any] = [
        {"snapshot-id": 77},
        {"snapshot-id": (1 << 63) - 1},
        {"start-snapshot-id": 1, "end-snapshot-id": (1 << 63) - 1},
        {"filter": {"type": "eq", "term": "nope", "value": 1}},
        {"filter": {"type": "whatever"}},
        {"stats-fields": ["nope"]},
        {"snapshot-id": "1"},
        [],
    ]
    for body in bad:
        assert error(files.app.post(f"{REST}/plan", json=body)) == (400, "BadRequestException"), body
    assert error(files.app.post("/iceberg/v1/namespaces/db/tables/nope/plan", json={})) == (404, "NoSuchTableException")
    assert files.app.post(f"{REST}/metrics", json={"report-type": "scan-report"}).status_code == 204
