"""Limit, order, join keys, pages, budgets, batches and differences over HTTP."""

from __future__ import annotations

from typing import Any

import pytest

from support.service_api import TableApi, World


@pytest.fixture(scope="module")
def table(world: World) -> TableApi:
    """Ten blocks; ``a`` runs from 0 to 99."""
    table = world.table()
    table.register(*world.numbers(world.folder(), 10))
    return table


def numbers(blocks: list[dict[str, Any]]) -> list[int]:
    """The numbers in blocks' names."""
    return [int(block["location"].rpartition("/")[2].removesuffix(".parquet")) for block in blocks]


def test_a_limit_an_order_and_join_keys_leave_few_blocks(table: TableApi) -> None:
    """Each says in the report what it did."""
    limited = table.prune("a >= 20", limit=5)
    assert len(limited["blocks"]) == 1
    assert limited["report"]["limit"] == {"limit": 5, "certain_rows": 80, "decided": True}
    ordered = table.prune(None, limit=15, order_by=[{"column": "a", "descending": True}])
    assert numbers(ordered["blocks"]) == [9, 8]
    assert ordered["blocks"][0]["order_bound"] == {"first": "value", "bound": {"Int64": 99}}
    joined = table.prune(None, join=[{"column": "a", "values": [5, 95]}])
    assert numbers(joined["blocks"]) == [0, 9]
    assert [stage["stage"] for stage in joined["report"]["stages"]][-1] == "join"


def test_residuals_say_what_is_left_of_the_filter(table: TableApi) -> None:
    """One of three blocks needs a look at its rows."""
    answer = table.prune("a >= 75", residuals=True)
    assert [(residual["sql"], residual["blocks"]) for residual in answer["residuals"]] == [
        ("true", 2),
        ("`a` >= 75", 1),
    ]
    assert [block["residual"] for block in answer["blocks"]] == [1, 0, 0]


def test_pages_of_one_answer_survive_commits(world: World) -> None:
    """Whatever is appended meanwhile, the pages are of the first one's snapshot, complete and without doubles."""
    table = world.table()
    table.register(*world.numbers(world.folder(), 7))
    page = table.prune("a >= 10", page_size=2)
    found, snapshot_id = numbers(page["blocks"]), page["snapshot_id"]
    while page["next_page_token"] is not None:
        table.register(*world.numbers(world.folder(), 1))
        page = table.prune("a >= 10", page_size=2, page_token=page["next_page_token"])
        assert page["snapshot_id"] == snapshot_id
        found += numbers(page["blocks"])
    assert found == [1, 2, 3, 4, 5, 6]


def test_a_token_that_does_not_fit_is_a_clear_error(table: TableApi, world: World) -> None:
    """Altered, of another filter, of another table, or without a page size."""
    token = table.prune("a >= 10", page_size=2)["next_page_token"]
    path = f"{table.path}/prune"
    altered = ("A" if token[0] != "A" else "B") + token[1:]
    for body in ({"filter": "a >= 10", "page_token": altered}, {"filter": "a >= 11", "page_token": token}):
        problem = table.api.problem("POST", path, {**body, "page_size": 2})
        assert (problem.status, problem.code) == (400, "invalid_page_token")
    other = world.table()
    problem = table.api.problem(
        "POST", f"{other.path}/prune", {"filter": "a >= 10", "page_size": 2, "page_token": token}
    )
    assert (problem.status, problem.code) == (404, "snapshot_not_found")
    problem = table.api.problem("POST", path, {"filter": "a >= 10", "page_token": token})
    assert (problem.status, problem.code) == (400, "invalid_request")


def test_a_budget_of_nothing_still_makes_progress(table: TableApi) -> None:
    """One segment at least is resolved, so asking on comes to an end."""
    answer = table.prune("a >= 10", max_ms=0)
    assert answer["complete"]
    assert len(answer["blocks"]) == 9
    problem = table.api.problem("POST", f"{table.path}/prune", {"segments": ["another"]})
    assert (problem.status, problem.code) == (404, "segment_not_found")


def test_many_filters_have_one_answer_each(table: TableApi) -> None:
    """In their order; a wrong one is named by its number."""
    path = f"{table.path}/prune/batch"
    answer = table.api.call("POST", path, {"filters": ["a < 10", "a > 1000", None]})
    assert [len(each["blocks"]) for each in answer["answers"]] == [1, 0, 10]
    problem = table.api.problem("POST", path, {"filters": ["a < 10", "nowhere = 1"]})
    assert (problem.code, problem.details["filter"]) == ("unknown_column", 1)


def test_a_difference_names_the_blocks_that_were_added_and_removed(world: World) -> None:
    """Between two snapshots, for one filter."""
    table = world.table()
    paths = world.numbers(world.folder(), 4)
    first = table.register(*paths[:3])["snapshot_id"]
    table.commit(removed=[paths[0]], base_snapshot_id=first, operation="delete")
    last = table.register(paths[3])["snapshot_id"]
    body = {"from_snapshot_id": first, "filter": "a >= 5"}
    answer = table.api.call("POST", f"{table.path}/diff", body)
    assert (numbers(answer["added"]), numbers(answer["removed"])) == ([3], [0])
    assert (answer["to_snapshot_id"], answer["unchanged_blocks"]) == (last, 2)
    problem = table.api.problem("POST", f"{table.path}/diff", {"from_snapshot_id": "nothing"})
    assert (problem.status, problem.code) == (404, "snapshot_not_found")
