"""The real Delta Sharing client reads, through signed URLs alone, what full scans of the same files read."""

from __future__ import annotations

import datetime as dt
import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest

from lamella.snapshot.schema.evolution import AddColumn, DropColumn, RenameColumn, WidenColumn
from lamella.snapshot.wire import Grant
from support import sharing_client
from support.service_api import fresh_name
from support.shared_lake import FILES, ROWS, SharedLake, rows, shared_lake
from support.sharing_client import Refused

pytestmark = pytest.mark.s3

ALL = pa.concat_tables([rows(number) for number in range(FILES)])


def same(found: pd.DataFrame, wanted: pa.Table) -> bool:
    """Whether a frame has the rows of a table, in any order."""
    frame = found.sort_values("id").reset_index(drop=True)
    assert list(frame.columns) == wanted.schema.names
    # pandas has no integer that is null, and its client no zone of its own
    made = pa.Table.from_pandas(frame, schema=wanted.schema, preserve_index=False, safe=False)
    return bool(made.sort_by("id").equals(wanted.sort_by("id")))


def hint(op: str, column: str, kind: str, value: str) -> str:
    """A JSON hint of one comparison."""
    sides = [
        {"op": "column", "name": column, "valueType": kind},
        {"op": "literal", "value": value, "valueType": kind},
    ]
    return json.dumps({"op": op, "children": sides})


def test_a_recipient_sees_what_it_may_read(lake: SharedLake) -> None:
    """Shares, schemas and tables in both ways of listing; the other tenant's are not there, and not to be had."""
    assert "lamella.sales.orders" in lake.recipient.names()
    assert not [name for name in lake.recipient.names() if ".other." in name]
    other = lake.invite(Grant(role="read", namespace="other", table="secret"))
    assert other.names() == ["lamella.other.secret"]
    with pytest.raises(Refused, match=r"404(.|\n)*TABLE_NOT_FOUND|404(.|\n)*NAMESPACE_NOT_FOUND"):
        other.load("sales.orders")
    assert other.ids("other.secret") == list(range(ROWS))
    assert lake.invite().names() == []


@pytest.mark.parametrize("is_delta", [None, False, True])
def test_all_rows_are_read(lake: SharedLake, is_delta: bool | None) -> None:
    """In the form that the client chooses, in that of Parquet and in that of Delta's kernel; signed, each of them."""
    lake.proxy.seen.clear()
    assert same(lake.recipient.load("sales.orders", use_delta_format=is_delta), ALL)
    assert len({path.split("?")[0] for path, _, status in lake.proxy.seen if status in (200, 206)}) == FILES


@pytest.mark.soak
def test_a_real_server_takes_the_urls_as_the_client_sends_them(
    pytestconfig: pytest.Config, real_s3: Any, tmp_path: Path
) -> None:
    """It quotes them anew, names with blanks and umlauts too, and the signature still holds."""
    with shared_lake(pytestconfig, real_s3, tmp_path, needs_login=False) as real:
        for is_delta in (False, True):
            assert same(real.recipient.load("sales.orders", use_delta_format=is_delta), ALL)


def test_the_schema_is_sparks(lake: SharedLake) -> None:
    """Names, types and order of the columns."""
    found = lake.recipient.call(sharing_client.metadata, "sales.orders")
    fields = json.loads(found.schema_string)["fields"]
    kinds = [(field["name"], field["type"]) for field in fields]
    assert kinds[:5] == [
        ("id", "long"),
        ("name", "string"),
        ("price", "double"),
        ("at", "timestamp"),
        ("day", "date"),
    ]
    assert fields[5]["type"]["type"] == "array"
    assert found.num_files == FILES


def test_limits_read_no_more_files_than_they_need(lake: SharedLake) -> None:
    """So many rows, whatever they are; beside a hint the limit is the client's alone."""
    for limit in (0, 1, ROWS, ROWS + 1, FILES * ROWS, 10_000):
        found = lake.recipient.load("sales.orders", limit=limit)
        assert len(found) == min(limit, FILES * ROWS)
        files = [line for line in lake.recipient.lines("sales.orders", limitHint=limit) if "file" in line]
        assert len(files) == min(-(-limit // ROWS), FILES)
    both = lake.recipient.lines("sales.orders", limitHint=1, jsonPredicateHints=hint("greaterThan", "id", "long", "-1"))
    assert len([line for line in both if "file" in line]) == FILES


def test_versions_and_times_are_those_of_snapshots(lake: SharedLake) -> None:
    """Version n + 1 has n files; a time has the snapshot of then, and a time to start from the first one since."""
    snapshots = list(lake.operator.table("sales.orders").snapshots())[::-1]
    assert lake.recipient.version("sales.orders") == len(snapshots) == FILES + 1
    for number, info in enumerate(snapshots, 1):
        at = dt.datetime.fromtimestamp(info.timestamp_ms / 1000, dt.UTC).isoformat(timespec="milliseconds")
        at = at.replace("+00:00", "Z")
        wanted = list(range((number - 1) * ROWS))
        assert lake.recipient.ids("sales.orders", version=number) == wanted
        assert lake.recipient.ids("sales.orders", timestamp=at) == wanted
        assert lake.recipient.version("sales.orders", at) == number
        answer = lake.recipient.query("sales.orders", version=number)
        assert answer.headers["delta-table-version"] == str(number)
    for wrong, code in (
        ({"version": 0}, "SNAPSHOT_NOT_FOUND"),
        ({"version": 99}, "SNAPSHOT_NOT_FOUND"),
        ({"timestamp": "2001-01-01T00:00:00Z"}, "SNAPSHOT_NOT_FOUND"),
        ({"timestamp": "then"}, "INVALID_REQUEST"),
        ({"version": 1, "timestamp": "2031-01-01T00:00:00Z"}, "INVALID_REQUEST"),
    ):
        answer = lake.recipient.query("sales.orders", **wrong)
        assert 400 <= answer.status_code < 500
        assert answer.json()["errorCode"] == code
        assert set(answer.json()) == {"errorCode", "message"}
    with pytest.raises(Refused, match="404"):
        lake.recipient.version("sales.orders", "2099-01-01T00:00:00Z")


@pytest.mark.parametrize(
    ("predicate", "condition", "files"),
    [
        (hint("greaterThanOrEqual", "id", "long", "270"), lambda r: r["id"] >= 270, 1),
        (hint("equal", "id", "long", "120"), lambda r: r["id"] == 120, 1),
        (hint("lessThan", "price", "double", "12.5"), lambda r: r["price"] < 12.5, 2),
        (hint("equal", "day", "date", "2026-01-03"), lambda r: r["day"] == dt.date(2026, 1, 3), 1),
        (hint("greaterThan", "at", "timestamp", "2026-01-01T05:00:00Z"), lambda _r: False, 0),
        (hint("equal", "name", "string", "zz"), lambda _r: False, 0),
        (hint("equal", "id", "int", "120"), lambda r: r["id"] == 120, FILES),
        ("{", lambda _r: True, FILES),
    ],
)
def test_hints_leave_out_files_and_no_rows(lake: SharedLake, predicate: str, condition: Any, files: int) -> None:
    """What the client reads has every row that matches, from few files where the hint says enough."""
    found = lake.recipient.load("sales.orders", jsonPredicateHints=predicate)
    wanted = {row["id"] for row in ALL.to_pylist() if condition(row)}
    assert wanted <= set(found["id"].tolist())
    assert len(found) == files * ROWS


def test_pages_are_of_one_version(lake: SharedLake) -> None:
    """Page after page each file comes once, with the version of the first page, whatever is committed meanwhile."""
    name = f"sales.{fresh_name('paged')}"
    table = lake.table(name, [rows(number) for number in range(5)])
    seen: list[str] = []
    token = None
    for page in range(3):
        more: dict[str, Any] = {} if token is None else {"pageToken": token}
        answer = lake.recipient.query(name, maxFiles=2, **more)
        assert answer.headers["delta-table-version"] == "6"
        *_, end = lines = [json.loads(line) for line in answer.content.splitlines()]
        assert "protocol" in lines[0]
        assert "metaData" in lines[1]
        seen += [line["file"]["id"] for line in lines[2:-1]]
        token = end["endStreamAction"].get("nextPageToken")
        assert (token is None) == (page == 2)
        assert end["endStreamAction"]["minUrlExpirationTimestamp"] > 0
        table.register([lake.put(rows(10 + page))])
    whole = [line["file"]["id"] for line in lake.recipient.lines(name, version=6)[2:]]
    assert len(set(seen)) == 5
    assert sorted(seen) == sorted(whole)
    first = lake.recipient.lines(name, maxFiles=2)[-1]["endStreamAction"]["nextPageToken"]
    for wrong in (
        {"pageToken": first, "maxFiles": 2, "predicateHints": ["id > 3"]},
        {"pageToken": first[:-2] + "xx", "maxFiles": 2},
        {"pageToken": "é", "maxFiles": 2},
    ):
        answer = lake.recipient.query(name, **wrong)
        assert (answer.status_code, answer.json()["errorCode"]) == (400, "INVALID_PAGE_TOKEN")
    assert lake.recipient.query("sales.orders", pageToken=first, maxFiles=2).status_code == 404
    table_of_other = lake.invite(Grant(role="read", namespace="other"))
    assert table_of_other.query(name, pageToken=first, maxFiles=2).status_code == 404


def test_refreshing_keeps_the_version(lake: SharedLake) -> None:
    """A refresh token has the same files' URLs signed anew, after commits too; another table's is not taken."""
    name = f"sales.{fresh_name('refreshed')}"
    table = lake.table(name, [rows(0), rows(1)])
    before = lake.recipient.lines(name, includeRefreshToken=True)
    token = before[-1]["endStreamAction"]["refreshToken"]
    table.register([lake.put(rows(2))])
    after = lake.recipient.lines(name, includeRefreshToken=True, refreshToken=token)
    assert [line["file"]["id"] for line in after[2:-1]] == [line["file"]["id"] for line in before[2:-1]]
    assert len(lake.recipient.lines(name)) == 5
    for other, wrong in (("sales.orders", token), (name, token[:-1] + ("A" if token[-1] != "A" else "B"))):
        answer = lake.recipient.query(other, refreshToken=wrong)
        assert (answer.status_code, answer.json()["errorCode"]) == (400, "INVALID_PAGE_TOKEN")


def test_ends_are_said_to_who_asks(lake: SharedLake) -> None:
    """The Python client takes every line for a file, so a line that ends the answer is only for who wants it."""
    plain = lake.recipient.query("sales.orders")
    assert "endStreamAction" not in plain.text
    assert plain.headers["delta-sharing-capabilities"] == "responseformat=parquet"
    assert plain.headers["cache-control"] == "no-store"
    ended = lake.recipient.query("sales.orders", able="responseFormat=Parquet;includeEndStreamAction=true")
    assert ended.headers["delta-sharing-capabilities"] == "responseformat=parquet;includeendstreamaction=true"
    assert "endStreamAction" in json.loads(ended.content.splitlines()[-1])


def test_files_say_what_is_exact(lake: SharedLake) -> None:
    """Sizes, and statistics that a reader may take for the values themselves."""
    name = f"sales.{fresh_name('stats')}"
    table = pa.table(
        {
            "id": pa.array([3, None, 2**60], pa.int64()),
            "small": pa.array([1, 2, 3], pa.int32()),
            "nan": [float("nan"), 1.0, 2.0],
            "zero": [0.0, 1.5, 2.0],
            "text": ["a", "b", "\U0001f600"],
            "at": pa.array([0, 1_500, 2_000_000], pa.timestamp("us", "UTC")),
        }
    )
    location = lake.put(table)
    lake.operator.create_table(name, schema_from=location)
    lake.operator.table(name).register([location], verify=True)
    *_, line = lake.recipient.lines(name)
    file = line["file"]
    assert file["size"] == lake.store.stat(location).size_bytes
    stats = json.loads(file["stats"])
    assert stats["numRecords"] == 3
    assert stats["nullCount"] == {"id": 1, "small": 0, "nan": 0, "zero": 0, "text": 0, "at": 0}
    assert stats["minValues"] == {"id": 3, "small": 1, "zero": -0.0, "text": "a", "at": "1970-01-01T00:00:00.000Z"}
    assert stats["maxValues"] == {"small": 3, "zero": 2.0, "at": "1970-01-01T00:00:02.000Z"}
    assert str(stats["minValues"]["zero"]) == "-0.0"


def test_a_column_that_was_added_afterwards_is_null_before(lake: SharedLake) -> None:
    """In files from before; also in one that a hint names, and in both forms."""
    name = f"sales.{fresh_name('added')}"
    table = lake.table(name, [rows(0)])
    table.evolve([AddColumn(name="more", type="int32")])
    table.register([lake.put(rows(1).append_column("more", pa.array(range(ROWS), pa.int32())))])
    for is_delta in (None, True):
        found = lake.recipient.load(name, use_delta_format=is_delta)
        more = [None if pd.isna(each) else int(each) for each in found.sort_values("id")["more"]]
        assert more == [None] * ROWS + list(range(ROWS))
        assert list(found.columns) == [*ALL.schema.names, "more"]
    assert lake.recipient.ids(name, jsonPredicateHints=hint("equal", "more", "int", "7")) == list(range(ROWS, 2 * ROWS))


def test_a_wider_type_is_read_in_both(lake: SharedLake) -> None:
    """Numbers of a file from before a column was widened are the same values, in both forms."""
    name = f"sales.{fresh_name('wider')}"
    money = [Decimal("1.25"), Decimal("-7.50"), Decimal("123456.7891")]
    old = pa.table(
        {
            "id": pa.array([1, 2], pa.int32()),
            "x": pa.array([0.1, 0.2], pa.float32()),
            "money": pa.array(money[:2], pa.decimal128(5, 2)),
        }
    )
    new = pa.table(
        {
            "id": pa.array([2**40], pa.int64()),
            "x": pa.array([0.3], pa.float64()),
            "money": pa.array(money[2:], pa.decimal128(12, 4)),
        }
    )
    table = lake.table(name, [old])
    table.evolve(
        [
            WidenColumn(column="id", type="int64"),
            WidenColumn(column="x", type="float64"),
            WidenColumn(column="money", type="decimal(12,4)"),
        ]
    )
    table.register([lake.put(new)])
    wanted = [*old["x"].cast(pa.float64()).to_pylist(), 0.3]
    for is_delta in (None, True):
        found = lake.recipient.load(name, use_delta_format=is_delta).sort_values("id")
        assert found["id"].tolist() == [1, 2, 2**40]
        assert found["x"].tolist() == wanted
        assert found["money"].tolist() == money


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ([RenameColumn(column="name", name="called")], "has the name 'name'"),
        ([DropColumn(column="name"), AddColumn(name="NAME", type="string")], "another column"),
        ([AddColumn(name="more", type="int32", default="5")], "default"),
        ([AddColumn(name="more", type="float16")], "float16"),
        ([AddColumn(name="more", type="time(us)")], "time"),
        ([AddColumn(name="more", type="variant")], "is a variant"),
    ],
)
def test_tables_whose_files_cannot_be_read_by_name_are_refused(lake: SharedLake, changes: Any, why: str) -> None:
    """The client would read nulls, or another column's values, and say nothing."""
    name = f"sales.{fresh_name('renamed')}"
    table = lake.table(name, [rows(0)])
    table.evolve(changes)
    for action in ("metadata", "query"):
        answer = (
            lake.recipient.query(name)
            if action == "query"
            else lake.recipient.http.get(f"/shares/lamella/schemas/sales/tables/{name[6:]}/metadata")
        )
        assert (answer.status_code, answer.json()["errorCode"]) == (406, "NOT_EXPRESSIBLE")
        assert why in answer.json()["message"]
    with pytest.raises(Refused, match="NOT_EXPRESSIBLE"):
        lake.recipient.load(name)
    assert lake.recipient.ids(name, version=2, use_delta_format=False) == list(range(ROWS))


def test_local_times_take_the_form_of_delta(lake: SharedLake) -> None:
    """The client takes that form by itself; who reads only the other one is told."""
    name = f"sales.{fresh_name('local')}"
    at = dt.datetime(2026, 3, 29, 2, 30)  # noqa: DTZ001  # a wall clock's
    lake.table(name, [pa.table({"id": [1], "at": pa.array([at], pa.timestamp("us"))})])
    assert lake.recipient.load(name)["at"].tolist() == [pd.Timestamp(at)]
    answer = lake.recipient.query(name)
    assert (answer.status_code, answer.json()["errorCode"]) == (406, "NOT_EXPRESSIBLE")
    assert "timestampntz" in answer.json()["message"]


def test_a_renamed_column_is_read_once_no_file_from_before_is_left(lake: SharedLake) -> None:
    """The version that is asked for counts, with all of its files, whatever a hint leaves of them."""
    name = f"sales.{fresh_name('rewritten')}"
    old = lake.put(rows(0))
    lake.operator.create_table(name, schema_from=old)
    table = lake.operator.table(name)
    table.register([old])
    table.evolve([RenameColumn(column="name", name="called")])
    table.register([lake.put(rows(1).rename_columns(["id", "called", *ALL.schema.names[2:]]))])
    assert lake.recipient.query(name, jsonPredicateHints=hint("greaterThan", "id", "long", "60")).status_code == 406
    table.commit(removed=[old])
    found = lake.recipient.load(name)
    assert found["id"].tolist() == list(range(ROWS, 2 * ROWS))
    assert found["called"].tolist() == rows(1)["name"].to_pylist()


def test_versions_that_expired_are_distinguished_from_those_that_never_were(lake: SharedLake) -> None:
    """By number and by a page's token; a time from which to start finds the first one that is still there."""
    name = f"sales.{fresh_name('expired')}"
    table = lake.table(name, [rows(0)])
    token = lake.recipient.lines(name, maxFiles=1, version=1)[-1]["endStreamAction"]
    assert "nextPageToken" not in token
    table.register([lake.put(rows(1))])
    first = lake.recipient.lines(name, maxFiles=1)[-1]["endStreamAction"]["nextPageToken"]
    began = table.info().timestamp_ms
    table.register([lake.put(rows(2))])
    table.vacuum(execute=True, older_than="0s")
    for body in ({"version": 2}, {"version": 3}, {"pageToken": first, "maxFiles": 1}):
        answer = lake.recipient.query(name, **body)
        assert (answer.status_code, answer.json()["errorCode"]) == (410, "SNAPSHOT_EXPIRED")
    assert lake.recipient.query(name, version=4).status_code == 200
    at = dt.datetime.fromtimestamp(began / 1000, dt.UTC).isoformat().replace("+00:00", "Z")
    assert lake.recipient.version(name, at) == 4


def test_changes_are_refused(lake: SharedLake) -> None:
    """By their route, and as a query from a version on."""
    path = "/shares/lamella/schemas/sales/tables/orders/changes"
    assert lake.recipient.got(path, startingVersion=1)[1]["errorCode"] == "NOT_EXPRESSIBLE"
    assert lake.recipient.query("sales.orders", startingVersion=1).json()["errorCode"] == "NOT_EXPRESSIBLE"


def test_who_shows_no_key_is_refused_in_the_protocols_words(lake: SharedLake) -> None:
    """As are those who ask for what there is not."""
    answer = lake.recipient.http.get("/shares", headers={"Authorization": "Bearer lamella_no"})
    assert (answer.status_code, answer.json()["errorCode"]) == (401, "UNAUTHENTICATED")
    assert answer.headers["www-authenticate"] == "Bearer"
    for path in ("/shares/none", "/shares/none/schemas", "/shares/none/all-tables", "/none", "/shares/lamella/none"):
        status, error = lake.recipient.got(path)
        assert (status, error["errorCode"]) == (404, "NOT_FOUND")
    assert lake.recipient.got("/shares/lamella")[1] == {"share": {"name": "lamella"}}
    head = lake.recipient.http.head("/shares/lamella/schemas/sales/tables/orders")
    assert (head.status_code, head.headers["delta-table-version"], head.content) == (200, str(FILES + 1), b"")
    head = lake.recipient.http.head("/shares/none/schemas/sales/tables/orders")
    assert head.status_code == 404


def test_listings_have_pages(lake: SharedLake) -> None:
    """Each item once, in order, and no page longer than was asked."""
    reader = lake.invite(Grant(role="read"))
    for path in ("/shares/lamella/all-tables", "/shares/lamella/schemas", "/shares/lamella/schemas/sales/tables"):
        _, whole = reader.got(path)
        found: list[Any] = []
        token: dict[str, str] = {}
        while True:
            _, page = reader.got(path, maxResults=1, **token)
            assert len(page["items"]) == 1
            found += page["items"]
            if "nextPageToken" not in page:
                break
            token = {"pageToken": page["nextPageToken"]}
        assert found == whole["items"]
        assert "nextPageToken" not in whole
        for wrong in ({"pageToken": "x"}, {"maxResults": "0"}, {"maxResults": "-1"}, {"maxResults": "many"}):
            assert reader.got(path, **wrong)[0] == 400
