"""Text of limited length: stored as Spark stores it, or refused, by every writer."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lamella.client import Lamella
from lamella.client.http import Table
from lamella.client.jobs.context import JobContext
from lamella.client.jobs.rewrite import compact
from lamella.client.rewrite.engine import SerialEngine
from lamella.snapshot.errors import (
    InvalidRequest,
    InvalidSchema,
    NotProven,
    SchemaConflict,
    SchemaMismatch,
    WriterFeatureMissing,
)
from lamella.snapshot.schema import Column
from lamella.snapshot.schema.evolution import AddColumn, SetDefault, WidenColumn
from write.conftest import MakeTable
from write.test_checks import name_of


def stored(text: str | None, kind: str) -> str | None:
    """The text as Spark stores it in a column of that type; raises ValueError for one that is too long."""
    name, _, count = kind.rstrip(")").partition("(")
    if text is None or name == "string":
        return text
    while len(text) > int(count):
        if not text.endswith(" "):
            raise ValueError(text)
        text = text[:-1]
    return text + " " * (int(count) - len(text)) if name == "char" else text


def values(table: Table, column: str = "c") -> list[Any]:
    """The values of a column in all rows, in order."""
    return sorted(table.scan().to_arrow()[column].to_pylist(), key=lambda value: (value is None, str(value)))


TEXTS = st.one_of(st.none(), st.text(st.sampled_from("a \u00e4\u20ac\U0001f600\t"), max_size=6))
KINDS = st.sampled_from(["varchar(1)", "varchar(3)", "char(1)", "char(3)", "char(5)"])


@settings(max_examples=200, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(kind=KINDS, key_kind=KINDS, texts=st.lists(TEXTS, max_size=4), is_clustered=st.booleans())
def test_text_is_stored_as_spark_stores_it_or_refused(
    make_table: MakeTable, kind: str, key_kind: str, texts: list[str | None], is_clustered: bool
) -> None:
    """Characters are Unicode code points; blanks at the end are cut and added, also in structs, lists and maps."""
    pair = (Column(name="key", type=key_kind, nullable=False), Column(name="value", type=kind))
    table = make_table(
        Column(name="s", type="struct", fields=(Column(name="x", type=kind), Column(name="n", type="int32"))),
        Column(name="l", type="list", fields=(Column(name="element", type=kind),)),
        Column(name="m", type="map", fields=pair),
        c=kind,
        cluster_key=("c",) if is_clustered else (),
    )
    rows: list[dict[str, Any]] = [
        {
            "c": text,
            "s": None if text == "a" else {"x": text, "n": 1},
            "l": [text, None],
            "m": [(text, text)] if text else None,
        }
        for text in texts
    ]
    given_rows = pa.Table.from_pylist(
        rows,
        pa.schema(
            [
                ("c", pa.string()),
                ("s", pa.struct([("x", pa.string()), ("n", pa.int32())])),
                ("l", pa.list_(pa.string())),
                ("m", pa.map_(pa.string(), pa.string())),
            ]
        ),
    )
    try:
        expected = [
            {
                "c": stored(row["c"], kind),
                "s": row["s"] and {"x": stored(row["c"], kind), "n": 1},
                "l": [stored(row["c"], kind), None],
                "m": row["m"] and [(stored(row["c"], key_kind), stored(row["c"], kind))],
            }
            for row in rows
        ]
    except ValueError:
        for data in (given_rows, rows):
            with pytest.raises(SchemaMismatch, match=r"has [0-9]+ characters"):
                table.append(data)
        assert table.info().row_count == 0
        return
    for data in (given_rows, rows):
        table.overwrite(data)
        found = table.scan().to_arrow().select(["c", "s", "l", "m"]).to_pylist()
        assert sorted(found, key=str) == sorted(expected, key=str)


def test_every_way_of_writing_from_python_refuses_text_that_is_too_long(make_table: MakeTable) -> None:
    """Nothing is committed; the message names the column, its type and the text."""
    table = make_table(c="varchar(3)", k="char(2)")
    table.append([{"c": "a", "k": "x"}])
    before = table.info()
    bad = [{"c": "b", "k": "y"}, {"c": "long", "k": "z"}]
    for write in (
        lambda: table.append(bad),
        lambda: table.append(pa.Table.from_pylist(bad)),
        lambda: table.append(bad, idempotency_key="once"),
        lambda: table.overwrite(bad),
        lambda: table.overwrite(bad, "c = 'a'"),
        lambda: table.overwrite(bad, read_snapshot_id=before.snapshot_id),
        lambda: table.upsert(bad, on=["k"]),
    ):
        with pytest.raises(SchemaMismatch, match=r"column 'c' is varchar\(3\), and 'long' has 4 characters"):
            write()
    with pytest.raises(SchemaMismatch, match=r"'c' is varchar\(3\), and 'x{60}\.\.\.' has 5000 characters"):
        table.append([{"c": "x" * 5_000, "k": "y"}])
    assert table.info() == before


def test_padded_text_is_a_key_of_an_upsert(make_table: MakeTable) -> None:
    """Rows are found by the text as it is stored, whatever blanks were given."""
    table = make_table(k="char(3)", v="int32")
    table.append([{"k": "a", "v": 1}, {"k": "b", "v": 2}])
    answer = table.upsert([{"k": "a", "v": 3}, {"k": "b     ", "v": 4}, {"k": "c  ", "v": 5}], on=["k"])
    assert (answer.rows_updated, answer.rows_inserted) == (2, 1)
    assert [(row["k"], row["v"]) for row in table.scan("k = 'a  '").to_arrow().to_pylist()] == [("a  ", 3)]
    assert values(table, "v") == [3, 4, 5]


@pytest.mark.parametrize(
    ("before", "after", "is_possible"),
    [
        ("varchar(3)", "varchar(5)", True),
        ("varchar(3)", "string", True),
        ("varchar(3)", "varchar(2)", False),
        ("varchar(3)", "char(3)", False),
        ("char(3)", "varchar(3)", True),
        ("char(3)", "varchar(2)", False),
        ("char(3)", "string", True),
        ("char(3)", "char(4)", False),
        ("string", "varchar(100)", False),
        ("string", "char(3)", False),
        ("int32", "varchar(3)", False),
    ],
)
def test_text_may_only_become_longer(make_table: MakeTable, before: str, after: str, is_possible: bool) -> None:
    """Rows that exist need no look; the text of a column that was padded stays padded."""
    table = make_table(Column(name="s", type="struct", fields=(Column(name="x", type=before),)), c=before)
    for column in ("c", "s.x"):
        change = WidenColumn(column=column, type=after)
        if not is_possible:
            with pytest.raises(InvalidSchema, match="cannot become"):
                table.evolve([change])
            continue
        if column == "c":
            table.append([{"c": "ab", "s": {"x": "ab"}}])
        table.evolve([change])
    if is_possible:
        unchanged = stored("ab", before)
        assert (values(table), values(table, "s")) == ([unchanged], [{"x": unchanged}])
        table.append([{"c": "abc  ", "s": None}])
        assert values(table) == sorted([unchanged, stored("abc  ", after)], key=str)


def test_lengths_that_no_column_can_have_are_refused(make_table: MakeTable) -> None:
    """No text would fit, or every row would be padded to a length that nobody wants."""
    for kind in ("varchar(0)", "char(0)", "char(65536)", "varchar(1234567890)", "varchar(a)"):
        with pytest.raises(InvalidSchema):
            make_table(c=kind)
    assert make_table(c="VARCHAR( 7 )").info().schema.columns[0].type == "varchar(7)"
    assert make_table(c="varchar").info().schema.columns[0].type == "string"


def test_defaults_have_the_length_of_their_column(make_table: MakeTable) -> None:
    """Also the rows that were there before the column; filters find them by the padded text."""
    table = make_table(a="int64")
    table.append([{"a": 1}])
    with pytest.raises(InvalidSchema, match=r"'c': 'long' is too long for char\(3\)"):
        table.evolve([AddColumn(name="c", type="char(3)", default="long")])
    table.evolve([AddColumn(name="c", type="char(3)", default="x"), AddColumn(name="v", type="varchar(2)")])
    table.append([{"a": 2}, {"a": 3, "c": "y   "}])
    assert values(table) == ["x  ", "x  ", "y  "]
    assert len(table.prune("c = 'x  '").locations) == 2
    assert len(table.prune("c = 'x'").locations) == 0
    with pytest.raises(InvalidSchema, match="too long"):
        table.evolve([SetDefault(column="c", default="long")])
    table.evolve([SetDefault(column="c", default="z")])
    table.append([{"a": 4}])
    assert values(table) == ["x  ", "x  ", "y  ", "z  "]


def test_rows_of_writers_that_knew_a_greater_length_are_refused(make_table: MakeTable) -> None:
    """The length became smaller by a rollback while they wrote; a greater length that comes meanwhile is no reason."""
    table = make_table(c="varchar(2)")
    table.append([{"c": "a"}])
    first = table.info().snapshot_id

    def rows(change: Any) -> Iterator[pa.Table]:
        yield pa.table({"c": ["b"]})
        change()
        yield pa.table({"c": ["c"]})

    table.append(rows(lambda: table.evolve([WidenColumn(column="c", type="varchar(4)")])))
    assert values(table) == ["a", "b", "c"]
    with pytest.raises(SchemaConflict, match="write the rows again"):
        table.append(rows(lambda: table.rollback(first)))
    assert values(table) == ["a"]
    with pytest.raises(SchemaMismatch):
        table.append([{"c": "abc"}])


def test_writers_that_do_not_know_lengths_are_refused(make_table: MakeTable, tmp_path: Any) -> None:
    """As for constraints: a commit says that its writer checks, and nothing is registered unread."""
    table, other = make_table(c="varchar(2)"), make_table(c="string")
    table.append([{"c": "a"}])
    other.append([{"c": "long"}])
    segment = other.snapshot(other.info().snapshot_id).segments[0].segment_id
    (block,) = other.segment(segment).blocks
    path = f"{table.info().location.removeprefix('file://')}/_b/foreign.parquet"
    pq.write_table(pa.table({"c": ["long"]}), path)
    foreign = msgspec.structs.replace(block, location=f"file://{path}", schema_id=None, content_id=None)
    with pytest.raises(InvalidRequest) as refused:
        table.commit([foreign])
    codes = {refused.value.code, *(each["code"] for each in refused.value.details.get("refused", ()))}
    assert WriterFeatureMissing.code in codes
    with pytest.raises(NotProven, match="text of limited length"):
        table.register([f"file://{tmp_path}/any.parquet"])
    assert table.info().row_count == 1


def test_rewrites_keep_text_as_it_is(lake: Lamella, make_table: MakeTable) -> None:
    """Compaction, deletes and updates of rows that were written by earlier lengths."""
    table = make_table(k="int64", c="char(3)", v="varchar(2)")
    for number in range(4):
        table.append([{"k": number, "c": str(number), "v": "x "}])
    table.evolve([WidenColumn(column="c", type="varchar(3)"), WidenColumn(column="v", type="varchar(4)")])
    compact(JobContext(lake=lake, table=name_of(table), engine=SerialEngine()))
    table.delete("k = 1", mode="copy-on-write")
    assert (values(table), values(table, "v")) == (["0  ", "2  ", "3  "], ["x "] * 3)
    assert table.info().block_count == 1


def test_commands_show_and_change_lengths(lake: Lamella, make_table: MakeTable) -> None:
    """The type of a column is what it was given, in the schema and in messages."""
    table = make_table(c="char(3)")
    table.evolve([AddColumn(name="v", type="VARCHAR(5)")])
    assert [column.type for column in lake.table(name_of(table)).info().schema.columns] == ["char(3)", "varchar(5)"]
    refuse = partial(table.evolve, [WidenColumn(column="v", type="varchar(4)")])
    with pytest.raises(InvalidSchema, match=r"column 'v' of type varchar\(5\) cannot become varchar\(4\)"):
        refuse()
