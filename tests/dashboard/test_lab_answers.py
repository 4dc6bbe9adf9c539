"""What the prune lab says, without a browser: its numbers are those of prunes, what it lets copy runs."""

from __future__ import annotations

import datetime as dt
import html
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx2
import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import sqlglot

from lamella.client import Lamella
from lamella.service.app import create_app
from lamella.service.config.settings import Settings
from lamella.service.dashboard import words
from lamella.service.dashboard.lab_answer import readable
from lamella.service.dashboard.lab_question import FORMS, MAX_CHARACTERS, filter_error
from lamella.snapshot.errors import InvalidRequest
from lamella.snapshot.expression import bind, read_filter
from lamella.snapshot.expression.bound import Anything, leaves_of
from lamella.snapshot.expression.text import sql_of
from lamella.snapshot.manifest import FEATURES
from lamella.snapshot.schema import Column, Schema
from lamella.snapshot.wire import PruneAnswer
from support.app_client import AppClient
from support.dashboard_tables import EVENTS, LINEITEM
from support.folder_tables import HIVE_NULL, FolderTable
from support.kept_connections import LIMITS
from support.ready_pages import when_ready

LAB = "/ui/tables/shop/lineitem/lab"
MAX_BYTES = 500_000
FILTERS = (
    "l_shipdate >= DATE '1994-03-01' AND l_shipdate < DATE '1994-06-01'",
    "l_partkey = 1552",
    "l_quantity < 100",
    "l_shipdate < DATE '1990-01-01'",
    "upper(reverse(l_comment)) = 'X' AND l_orderkey < 3000",
)
NASTY = (
    "l_comment <> 'it''s' AND l_shipdate < DATE '1992-06-01'",
    """l_shipmode = "a 'quoted' `text` $(echo no) $HOME !x" OR l_orderkey < 100""",
    r"l_comment <> 'back\\slash \' and \n' AND l_orderkey < 900",
    "l_comment = 'grüße — “x” 😀 %20+&amp;<b>' OR l_orderkey < 900",
    "l_orderkey < 900 -- up to here\nAND l_comment <> 'two\nlines'",
    "l_comment LIKE '100\\%{7*7}' ESCAPE '\\\\' OR l_orderkey BETWEEN 100 AND 200 /* so */",
)
SCHEMA = Schema.assign(
    [
        *(Column(name=name, type="int64") for name in ("a", "b")),
        Column(name="x", type="float64"),
        Column(name="s", type="string"),
        Column(name="day", type="date"),
        Column(name="t", type="timestamp_ntz(us)"),
    ]
)
Get = Callable[..., str]


@pytest.fixture
def get(server_url: str) -> Iterator[Get]:
    """The markup of a page by its path and query, once all of it is there."""
    with httpx2.Client(base_url=server_url, timeout=60, limits=LIMITS) as http:

        def fetched(path: str, **query: str | int) -> str:
            answer = when_ready(http, path, query)
            assert answer.status_code == 200, answer.text
            assert len(answer.content) < MAX_BYTES
            return answer.text

        yield fetched


def text_in(page: str) -> str:
    """What a reader without a script sees, with single spaces."""
    return " ".join(html.unescape(re.sub(r"<[^>]*>", " ", page)).split())


def copied(page: str, name: str) -> str:
    """One of the texts to be copied."""
    found = re.search(rf'<pre id="copy-{name}"[^>]*>(.*?)</pre>', page, re.DOTALL)
    assert found is not None
    return html.unescape(found[1])


@pytest.mark.parametrize("text", FILTERS)
def test_the_numbers_are_those_of_a_prune(get: Get, lake: Lamella, text: str) -> None:
    """Blocks, rows, bytes, verdicts and stages are what the REST API answers for the same filter."""
    answer = lake.table(LINEITEM).prune(text)
    shown = text_in(get(LAB, filter=text))
    columns = answer.block_columns
    assert columns is not None
    assert f"{answer.block_count} of {answer.report.blocks_total} blocks must be read" in shown
    assert f"Rows in these blocks {sum(columns.row_count):,} of {answer.report.rows_total:,}" in shown
    assert f"Requests saved {answer.report.blocks_total - answer.block_count} at least" in shown
    for verdict in ("ALL", "SOME", "UNKNOWN"):
        assert re.search(rf"\b{verdict} {columns.verdict.count(verdict)} ", shown)
    for stage in answer.report.stages:
        if stage.stage == "block":
            assert f"{stage.considered} blocks {stage.kept} " in shown


def test_columns_and_a_limit_count(get: Get, lake: Lamella) -> None:
    """The bytes of the columns that will be read are added up, and a limit leaves out what is not needed."""
    answer = lake.table(LINEITEM).prune("l_quantity < 1000", ["l_tax"], limit=10)
    shown = text_in(get(LAB, filter="l_quantity < 1000", columns="l_tax", limit=10))
    assert answer.block_columns is not None
    assert answer.block_columns.column_size_bytes is not None
    assert f"requested columns {words.size(sum(answer.block_columns.column_size_bytes))}" in shown
    assert "They suffice for the limit of 10" in shown
    assert f"{answer.block_count} of 60 blocks" in shown


def test_any_snapshot_can_be_queried(get: Get, lake: Lamella) -> None:
    """By a tag, an id, or a time, which is in the form's time zone unless it has one; the answer is that snapshot's."""
    first = next(each for each in lake.table(LINEITEM).snapshots() if "first-load" in each.tags)
    moment = dt.datetime.fromtimestamp(first.timestamp_ms / 1000, dt.timezone(dt.timedelta(hours=2)))
    there = moment.replace(tzinfo=None).isoformat(timespec="milliseconds")
    for at, zone in (("first-load", ""), (first.snapshot_id, ""), (moment.isoformat(), ""), (there, "+02:00")):
        assert "10 of 10 blocks must be read" in text_in(get(LAB, filter="true", at=at, zone=zone))


@pytest.mark.parametrize("text", NASTY)
def test_what_is_copied_asks_the_same(get: Get, lake: Lamella, server_url: str, text: str) -> None:
    """The Python program and the shell command run as they stand, and get the answer of the filter that was typed."""
    wanted = lake.table(LINEITEM).prune(text, ["l_tax"], snapshot_id="first-load")
    page = get(LAB, filter=text, columns="l_tax", at="first-load")
    curl = copied(page, "curl")
    assert server_url in curl
    done = subprocess.run(["sh", "-c", curl], check=True, capture_output=True)
    answer = msgspec.json.decode(done.stdout, type=PruneAnswer)
    assert [block.location for block in answer.blocks or ()] == wanted.locations
    assert answer.snapshot_id == wanted.snapshot_id
    program = copied(page, "python")
    printed = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
    assert printed.stdout.splitlines() == [f"{len(wanted.locations)} of 10 blocks", *wanted.locations]


@pytest.mark.parametrize("text", NASTY)
def test_the_query_for_spark_is_read_as_it_was_meant(get: Get, text: str) -> None:
    """A parser of Spark's dialect finds the table, the snapshot, the columns, the limit, and the very same filter."""
    page = get(LAB, filter=text, columns="l_tax", at="first-load", limit=7)
    sql = copied(page, "sql")
    (tree,) = sqlglot.parse(sql, dialect="spark")
    assert tree is not None
    table = tree.find(sqlglot.exp.Table)
    assert table is not None
    assert [part.name for part in table.parts] == ["lake", "shop", "lineitem"]
    assert "VERSION AS OF 'first-load'" in sql
    assert [each.name for each in tree.args["expressions"]] == ["l_tax"]
    assert tree.args["limit"].expression.name == "7"
    where = sql.split("\nWHERE ", 1)[1].rsplit("\nLIMIT ", 1)[0]
    assert sql_of(read_filter(where)) == sql_of(read_filter(text))


def test_a_time_is_copied_with_its_offset(get: Get) -> None:
    """A time without a zone is in that of the form; Spark is told the instant, since its session may be elsewhere."""
    sql = copied(get(LAB, filter="true", at="2999-01-01 12:00", zone="Europe/Paris"), "sql")
    assert sql.splitlines()[1] == "FROM lake.shop.lineitem TIMESTAMP AS OF '2999-01-01 11:00:00.000+00:00'"


def test_the_prunes_of_the_lab_are_nobodys(tmp_path: Path) -> None:
    """Neither what is recorded of a table nor what is measured of its prunes changes by looking at the lab."""
    pq.write_table(pa.table({"a": [1, 2, 3]}), tmp_path / "a.parquet")
    table, lab = "/v1/namespaces/db/tables/t", "/ui/tables/db/t/lab"
    with AppClient(create_app(Settings(warehouse=str(tmp_path / "warehouse")))) as app:
        # one process: what it was to note is noted when it is asked for it
        def noted() -> tuple[object, ...]:
            lines = app.get("/metrics").text.splitlines()
            measured = sorted(each for each in lines if each.startswith("lamella_prune_"))
            return measured, app.get(f"{table}/recorded").json(), app.get(f"{table}/prune-rates").json()["total"]

        app.post("/v1/namespaces", json={"name": "db"})
        app.post("/v1/namespaces/db/tables", json={"name": "t", "schema": [{"name": "a", "type": "int64"}]})
        assert app.post(f"{table}/register", json={"paths": [f"file://{tmp_path}/a.parquet"]}).status_code == 200
        assert app.post(f"{table}/prune", json={"filter": "a < 3"}).status_code == 200
        before = noted()
        for path in (lab, f"{lab}/block?block=0.0", f"{lab}/compare?with=snapshot", f"{lab}/compare?with=rows&rows=1"):
            page = app.get(f"{path}{'&' if '?' in path else '?'}filter=a+%3C+3")
            assert page.status_code == 200
            assert "a &lt; 3" in page.text
        assert noted() == before
        assert app.post(f"{table}/prune", json={"filter": "a < 3"}).status_code == 200
        assert [was != now for was, now in zip(before, noted(), strict=True)] == [True, True, True]


def test_every_block_has_its_reason(get: Get, lake: Lamella) -> None:
    """Of kept and of skipped blocks alike the page says the verdict, the deciding line, and what each part decides."""
    text = "l_shipdate >= DATE '1994-03-01' AND l_partkey = 1552"
    selected = set(lake.table(LINEITEM).prune(text).locations)
    pages = [get(f"{LAB}/block", filter=text, block=f"{segment}.{number}") for segment in (0, 5) for number in (0, 9)]
    shown = [text_in(page) for page in pages]
    assert {"Why is this block read?" in page for page in shown} == {True, False}
    for page in shown:
        location = re.search(r"file://\S+", page)
        assert location is not None
        assert ("Why is this block read?" in page) == (location[0] in selected)
        assert ("Kept: " in page) == (location[0] in selected)
        assert "l_partkey = 1552" in page
        assert "DATE '1994-03-01'" in page
    assert "Skipped: l_shipdate lies in" in shown[0]
    by_index = text_in(get(f"{LAB}/block", filter="l_partkey = 1552", block="0.0"))
    assert "does not cover the block" in text_in(get(f"{LAB}/block", filter="l_partkey = 1552", block="5.0"))
    assert "index by_part" in by_index


def test_constants_and_deleted_rows_are_shown(get: Get, lake: Lamella, tmp_path: Path) -> None:
    """Why a block is read or skipped, and the block's own page."""
    lake.create_namespace("ice")
    table = FolderTable(lake, tmp_path, ("d",))
    table.add({"d": "2024-02-29"}, {"d": HIVE_NULL}, {"d": "2019-01-01"})
    [entry] = table.delete({0: [1]})
    path = f"/ui/tables/ice/{table.name.partition('.')[2]}"
    positions: dict[str, str] = {}
    for number, segment in enumerate(table.table.snapshot(table.table.info().snapshot_id).segments):
        blocks = table.table.segment(segment.segment_id, reader_features=FEATURES).blocks
        positions |= {block.location: f"{number}.{at}" for at, block in enumerate(blocks)}
    day, null, other = (positions[file] for file in table.files)

    def why(block: str, filter: str) -> str:
        return text_in(get(f"{path}/lab/block", filter=filter, block=block))

    skipped = why(other, "d = DATE '2024-02-29' OR d IS NULL")
    assert "d is '2019-01-01', a constant of the block" in skipped
    assert "Skipped: d is '2019-01-01' in every row (a constant of the block), so" in skipped
    read = why(day, "d = DATE '2024-02-29'")
    assert "Kept: every row that is not deleted matches, as d is '2024-02-29' in every row" in read
    assert "Deleted rows 1" in read
    assert "d is null, a constant of the block" in why(null, "d IS NULL")
    page = text_in(get(f"{path}/map", zoom=day))
    assert "Deleted rows 1" in page
    assert entry.location in page
    assert "constant of the block, not in its file" in page
    assert "Deleted rows" not in text_in(get(f"{path}/map", zoom=other))


def test_a_block_is_named_by_its_segment_too(get: Get, lake: Lamella) -> None:
    """The address that the block's own page leads to, with the segment's id, shows the same block."""
    segment = lake.table(LINEITEM).snapshot(lake.table(LINEITEM).info().snapshot_id).segments[1].segment_id
    page = text_in(get(f"{LAB}/block", filter="l_partkey = 1552", segment=segment, number=3))
    assert "Block 4 of 10 in segment 2" in page


def test_the_list_has_pages_of_selected_and_of_skipped_blocks(get: Get, lake: Lamella) -> None:
    """All blocks are there, each once: the kept ones in one list, the others in the other, in the snapshot's order."""
    text = "l_shipdate < DATE '1995-06-01'"
    found: dict[str, list[str]] = {"kept": [], "skipped": []}
    for which, locations in found.items():
        start, is_last = 0, False
        while not is_last:
            page = get(LAB, filter=text, list=which, row=start)
            listed = page[page.index("list-heading") : page.index("compare-heading")]
            locations += re.findall(r"file://[^<]+", listed)
            start, is_last = start + 25, ">Next<" not in listed
    assert found["kept"] == lake.table(LINEITEM).prune(text).locations
    assert len(found["kept"]) + len(found["skipped"]) == len({*found["kept"], *found["skipped"]}) == 60


def test_behind_the_end_of_the_list_is_its_last_page(get: Get) -> None:
    """An address whose snapshot has fewer blocks than it counts on shows the last ones."""
    assert "51 to 60 of 60 blocks" in text_in(get(LAB, filter="true", row=10_000))


def test_a_block_that_is_not_there_is_not_found(server_url: str) -> None:
    """The page says what there is, and its status is that of something missing."""
    for block, said in (("9.0", "6 segments"), ("0.99", "no block 99")):
        answer = httpx2.get(f"{server_url}{LAB}/block", params={"filter": "true", "block": block})
        assert answer.status_code == 404
        assert said in text_in(answer.text)


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ({"with": "snapshot", "at": "first-load"}, "10 of 10"),
        ({"with": "snapshot", "other_table": EVENTS}, "(in shop.events)"),
        ({"with": "snapshot", "other_table": "shop.nothing"}, "nothing"),
        ({"with": "snapshot", "other_at": "no-such-tag"}, "no-such-tag"),
        ({"with": "index", "kind": "bloom", "expression": "l_suppkey"}, "Size of the index"),
        (
            {"with": "index", "kind": "bloom", "expression": "l_partkey", "filter": "l_partkey = 9", "sample": "3"},
            "Measured on 3 blocks",
        ),
        ({"with": "index", "kind": "bloom", "expression": "no_column"}, "no_column"),
        ({"with": "key", "key": "l_partkey"}, "After the change"),
        ({"with": "rows", "rows": "100"}, "After the change"),
        ({"with": "rows", "rows": "none"}, "Enter a number from 1"),
        ({"with": "key"}, "This field is required"),
    ],
)
def test_two_answers_stand_side_by_side(get: Get, query: dict[str, str], said: str) -> None:
    """Snapshots, tables and changes that might be made are compared, and what is wrong is said beside its field."""
    assert said in text_in(get(f"{LAB}/compare", **{"filter": "l_partkey < 900", **query}))


def test_a_cluster_key_that_helps_is_foretold_to_help(get: Get) -> None:
    """Sorted by it, the table would read fewer bytes, in the numbers and in words."""
    shown = text_in(get(f"{LAB}/compare", filter="l_partkey = 900", key="l_partkey", **{"with": "key"}))
    assert "fewer (9" in shown
    assert "The filter would read" in shown


@pytest.mark.parametrize(
    ("query", "field", "said"),
    [
        ({"at": "no-such-tag"}, "at", "no-such-tag"),
        ({"at": "1994-01-01"}, "at", "did not exist at that time"),
        ({"at": "2024-99-99"}, "at", "2024-99-99"),
        ({"columns": "l_tax, l_taxx"}, "columns", "Did you mean l_tax"),
        ({"limit": "-1"}, "limit", "A number of rows"),
        ({"zone": "Mars/Base"}, "zone", "Mars/Base"),
        ({"filter": "x" * (MAX_CHARACTERS + 1)}, "filter", "8,000"),
        ({"filter": "l_shipdate = 'someday'"}, "filter", "of type date"),
    ],
)
def test_what_is_wrong_is_said_beside_its_field(get: Get, query: dict[str, str], field: str, said: str) -> None:
    """The field is marked as wrong and described by the message; nothing is answered."""
    page = get(LAB, **{"filter": "true", **query})
    assert said in text_in(page)
    assert re.search(rf'name="{field}"[^>]*aria-invalid="true" aria-describedby="{field}-trouble', page)
    assert "must be read" not in page


@pytest.mark.parametrize(
    ("text", "mistake"),
    [
        ("a >", ">"),
        ("a > 1 AND bb < 2", "bb"),
        ("'bb' = s AND bb < 2", "bb < 2"),
        ("s = '😀' AND\n  bb < 2", "bb < 2"),
        ("a > 1 AND `bb` < 2", "`bb`"),
        ("s = 'x' AND day = 'someday'", "'someday'"),
        ("a IN (1, 2", "2"),
        ("a = 1 foo", "foo"),
        ("s = 'x", ""),
    ],
)
def test_the_caret_stands_under_the_mistake(text: str, mistake: str) -> None:
    """In the line that has it; the place for a browser counts characters as its scripts do."""
    start = text.rindex(mistake) if mistake else len(text)
    with pytest.raises(InvalidRequest) as raised:
        bind(read_filter(text), SCHEMA)
    trouble = filter_error(raised.value, text, SCHEMA)
    assert trouble.at == len(text[:start].encode("utf-16-le")) // 2
    line, carets = trouble.excerpt.split("\n")
    assert line == text.splitlines()[text.count("\n", 0, start)]
    assert carets.index("^") >= start - (text.rfind("\n", 0, start) + 1)  # wide characters take two columns


def test_a_long_line_is_cut_around_the_mistake() -> None:
    """The excerpt stays short, and the carets stay under the place."""
    text = " AND ".join(f"a <> {number}" for number in range(200)) + " AND bb = 1"
    with pytest.raises(InvalidRequest) as raised:
        bind(read_filter(text), SCHEMA)
    line, carets = filter_error(raised.value, text, SCHEMA).excerpt.split("\n")
    assert len(line) <= 102
    assert line[carets.index("^") :].startswith("bb = 1")


def test_the_help_tells_of_what_prunes() -> None:
    """Every example is a filter that is used, as a whole, over columns of the types that the help names."""
    examples = [example for form in FORMS for example in form.examples]
    for example in examples:
        assert not any(isinstance(leaf, Anything) for leaf in leaves_of(bind(read_filter(example), SCHEMA))), example
    assert len(examples) > 20


def test_the_tables_own_examples_match_rows(get: Get, lake: Lamella) -> None:
    """They can be asked as they are, and each leaves a block."""
    page = get(LAB)
    examples = re.findall(r"<p><noscript><code>(.*?)</code>", page.replace("\n", ""))
    assert len(examples) == 5
    for example in examples:
        assert lake.table(LINEITEM).prune(html.unescape(example)).block_count


def test_dates_are_spelled_as_people_do() -> None:
    """Days and microseconds since 1970 become SQL, but not within a text, nor where no calendar reaches."""
    assert readable("d >= date(8825) AND s = 'date(1)'") == "d >= DATE '1994-03-01' AND s = 'date(1)'"
    assert readable("t < timestamp(1500000)") == "t < TIMESTAMP '1970-01-01 00:00:01.500000+00:00'"
    assert readable("t < timestamp_ntz(-1)") == "t < TIMESTAMP_NTZ '1969-12-31 23:59:59.999999'"
    assert readable("d = date(99999999)") == "d = date(99999999)"
    assert readable("s = 'it''s date(1)' OR d = date(0)") == "s = 'it''s date(1)' OR d = DATE '1970-01-01'"


def test_the_longest_filter_fits_a_page(get: Get) -> None:
    """A page stays small though the filter stands in it several times, each character of it escaped."""
    text = "l_comment <> '" + "<&😀" * ((MAX_CHARACTERS - 15) // 3) + "'"
    page = get(LAB, filter=text)  # which is where the size is held
    assert "<&" not in page
    assert "must be read" in page
    parts = " AND ".join(f"l_orderkey <> {number}" for number in range(300))
    assert "further parts are not listed" in text_in(get(LAB, filter=parts))


def test_nothing_but_reading(server_url: str) -> None:
    """The lab takes no form that changes anything."""
    for path in (LAB, f"{LAB}/block", f"{LAB}/compare"):
        assert httpx2.post(f"{server_url}{path}", data={"filter": "true"}).status_code == 405
    assert httpx2.get(f"{server_url}{LAB}", params={"filter": "true"}).headers["Cache-Control"] == "no-store"
