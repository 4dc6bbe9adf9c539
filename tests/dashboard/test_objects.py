"""Namespaces and tables in the console: created, renamed, dropped, restored, and filled from files."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from playwright.sync_api import Page, expect

from fixtures_server import ServerProcess, start_shared
from lamella.client import Lamella
from lamella.service.dashboard.objects import read_columns
from lamella.snapshot.errors import InvalidRequest
from lamella.snapshot.schema import Column
from support.posted_forms import Form, Screens

Check = Callable[[Page], None]
Take = Callable[[Page, str], None]
NEW = "/ui/new"
COLUMNS = "order_id bigint not null\n`two words` string,\n\nprice decimal(10, 2)"


@pytest.fixture(scope="module")
def shared_server(pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """A service of this file's own, which begins with one empty namespace."""
    folder = tmp_path_factory.mktemp("dashboard-objects")
    server = start_shared(pytestconfig, folder, {"warehouse": folder / "warehouse"})
    with Lamella(server.url) as lake:
        lake.create_namespace("sales")
    yield server
    server.stop()


@pytest.fixture(autouse=True)
def nothing_left(shared_server: ServerProcess) -> Iterator[None]:
    """No table outlives its test, also not as a dropped one."""
    yield
    with Lamella(shared_server.url) as lake:
        for namespace in lake.namespaces():
            for name in lake.tables(namespace.name):
                lake.drop_table(f"{namespace.name}.{name}", purge=True)


def make(screens: Screens, name: str = "orders", *, expect: int = 303, **fields: str) -> Form:
    """Send the form of a new table; the page that it leads to."""
    form = screens.get(NEW, namespace="sales")
    form.fields |= {"namespace": "sales", "table": name, "columns": COLUMNS, **fields}
    answer = screens.post(f"{NEW}/table", form, expect=expect)
    return Form(answer.text) if expect != 303 else screens.get(answer.headers["location"].partition("?")[0])


def file(folder: Path, name: str, **columns: list[object]) -> str:
    """A Parquet file."""
    path = folder / name
    pq.write_table(pa.table(columns), path)
    return str(path)


def test_a_table_is_made_of_columns_as_they_are_typed(screens: Screens, lake: Lamella) -> None:
    """Names in backticks, types with arguments, not null, a comma at the end, empty lines."""
    make(screens, cluster_key="order_id, two words")
    info = lake.table("sales.orders").info()
    assert [(each.name, each.type, each.nullable) for each in info.schema.columns] == [
        ("order_id", "int64", False),
        ("two words", "string", True),
        ("price", "decimal(10,2)", True),
    ]
    assert info.cluster_key == ("order_id", "two words")


def test_a_table_is_made_of_the_columns_of_a_file(screens: Screens, lake: Lamella, tmp_path: Path) -> None:
    """The file itself is not registered."""
    path = file(tmp_path, "x.parquet", a=[1], b=["x"])
    make(screens, columns="", schema_from=path)
    info = lake.table("sales.orders").info()
    assert [each.name for each in info.schema.columns] == ["a", "b"]
    assert info.block_count == 0


@pytest.mark.parametrize(
    ("fields", "status", "text"),
    [
        ({"table": "not a name"}, 400, "not a table name"),
        ({"columns": "order_id"}, 400, "Line 1 is not a name and a type"),
        ({"columns": "a bigint\na bigint"}, 400, "not unique"),
        ({"columns": "a wrong_type"}, 400, "wrong_type"),
        ({"columns": ""}, 400, "Give the columns"),
        ({"schema_from": "/x.parquet"}, 400, "not both"),
        ({"cluster_key": "nope"}, 400, "nope"),
    ],
)
def test_a_table_that_cannot_be_made_comes_back_with_its_input(
    screens: Screens, lake: Lamella, fields: dict[str, str], status: int, text: str
) -> None:
    """The reason stands above the fields, which are as they were."""
    name = fields.pop("table", "orders")
    answer = make(screens, name, expect=status, **fields)
    assert text in " ".join(answer.alerts)
    assert answer.fields["table"] == name
    assert lake.tables("sales") == ()


def test_a_namespace_is_made_and_dropped(screens: Screens, lake: Lamella) -> None:
    """A name that exists is refused beside its field."""
    form = screens.get(NEW)
    form.fields["name"] = "fresh.eu"
    screens.post(f"{NEW}/namespace", form)
    assert "fresh.eu" in [each.name for each in lake.namespaces()]
    again = screens.get(NEW)
    again.fields["name"] = "fresh.eu"
    assert "exists" in Form(screens.post(f"{NEW}/namespace", again, expect=409).text).text
    screens.post("/ui/namespaces/fresh.eu/drop", screens.get("/ui/namespaces/fresh.eu/drop"))
    assert "fresh.eu" not in [each.name for each in lake.namespaces()]


def test_a_dropped_table_is_restored_under_another_name(screens: Screens, lake: Lamella, tmp_path: Path) -> None:
    """With its rows; dropping asks first, and says how many there are."""
    make(screens, columns="a bigint")
    lake.table("sales.orders").register([file(tmp_path, "x.parquet", a=[1, 2, 3])])
    table_id = lake.table("sales.orders").info().table_id
    question = screens.get("/ui/tables/sales/orders/drop")
    assert "Rows3" in question.text.replace("\n", "")
    screens.post("/ui/tables/sales/orders/drop", question)
    assert lake.tables("sales") == ()
    page = screens.get("/ui/namespaces/sales")
    page.fields |= {"table_id": table_id, "as_name": "back"}
    screens.post("/ui/namespaces/sales/undrop", page)
    assert lake.table("sales.back").info().row_count == 3


def test_a_table_that_changed_since_the_question_is_not_dropped(
    screens: Screens, lake: Lamella, tmp_path: Path
) -> None:
    """What is confirmed is what was shown."""
    make(screens, columns="a bigint")
    question = screens.get("/ui/tables/sales/orders/drop")
    lake.table("sales.orders").register([file(tmp_path, "x.parquet", a=[1])])
    screens.post("/ui/tables/sales/orders/drop", question, expect=409)
    assert lake.tables("sales") == ("orders",)


def test_a_table_is_renamed(screens: Screens, lake: Lamella) -> None:
    """A name that is taken is refused with the input."""
    make(screens)
    make(screens, "other")
    form = screens.get("/ui/tables/sales/orders/rename")
    form.fields["name"] = "other"
    answer = Form(screens.post("/ui/tables/sales/orders/rename", form, expect=409).text)
    assert answer.fields["name"] == "other"
    answer.fields["name"] = "renamed"
    screens.post("/ui/tables/sales/orders/rename", answer)
    assert sorted(lake.tables("sales")) == ["other", "renamed"]


def test_files_are_registered_and_refused_ones_are_named(screens: Screens, lake: Lamella, tmp_path: Path) -> None:
    """Good files are taken, unless the form says all or nothing."""
    make(screens, columns="a bigint")
    good, bad = file(tmp_path, "good.parquet", a=[1, 2]), file(tmp_path, "bad.parquet", other=["x"])
    address = "/ui/tables/sales/orders/register"
    form = screens.get(address)
    form.fields["paths"] = f"{good}\n{bad}\n"
    strict = Form(screens.post(address, form, expect=422, strict="on").text)
    assert "bad.parquet" in strict.text
    assert lake.table("sales.orders").info().block_count == 0
    answer = Form(screens.post(address, screens.get(address), expect=200, paths=f"{good}\n{bad}\n").text)
    assert "1 file with 2 rows registered, 1 refused" in answer.text
    assert "bad.parquet" in answer.text
    assert lake.table("sales.orders").info().row_count == 2
    screens.post(address, screens.get(address), paths=file(tmp_path, "more.parquet", a=[3]))
    assert lake.table("sales.orders").info().row_count == 3


def test_a_table_is_made_by_clicks(page: Page, lake: Lamella, axe: Check, screenshot: Take) -> None:
    """From the home page: New table, the fields, the button; then its files."""
    page.goto("/ui")
    page.get_by_role("link", name="New table").click()
    axe(page)
    page.get_by_label("Name (needed)").fill("orders")
    page.get_by_label("Columns", exact=True).fill(COLUMNS)
    screenshot(page, "new-table")
    page.get_by_role("button", name="Create the table").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("orders")
    expect(page.get_by_role("status").filter(has_text="The table is created")).to_be_visible()
    page.get_by_role("link", name="Register files").click()
    axe(page)
    screenshot(page, "register")
    page.get_by_role("navigation", name="Table").get_by_role("link", name="Summary").click()
    page.get_by_role("link", name="Rename").click()
    axe(page)
    page.get_by_role("link", name="Go back").click()
    page.get_by_role("link", name="Drop …").click()
    axe(page)
    page.get_by_role("button", name="Drop the table").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("sales")
    axe(page)
    screenshot(page, "namespace")
    page.get_by_role("button", name="Restore orders").click()
    expect(page.get_by_role("status").filter(has_text="The table is restored")).to_be_visible()
    assert lake.tables("sales") == ("orders",)


NAMES = st.text(st.characters(exclude_categories=["C", "Z"]), min_size=1, max_size=12)


@given(st.lists(st.tuples(NAMES, st.sampled_from(["bigint", "decimal(10,2)", "timestamp_ntz"]), st.booleans())))
def test_columns_in_backticks_are_read_whatever_their_names(columns: list[tuple[str, str, bool]]) -> None:
    """A backtick in a name is written twice, as in Spark."""
    lines = [f"`{name.replace('`', '``')}` {kind}{'' if nullable else ' NOT NULL'}" for name, kind, nullable in columns]
    assert read_columns("\r\n".join(lines)) == tuple(
        Column(name=name, type=kind, nullable=nullable) for name, kind, nullable in columns
    )


@pytest.mark.parametrize("text", ["a", "`a bigint", "a\nb bigint", "` ` "])
def test_other_lines_are_refused_with_their_number(text: str) -> None:
    """No guess is made."""
    with pytest.raises(InvalidRequest, match="line 1 is not"):
        read_columns(text)
