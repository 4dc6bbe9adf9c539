"""Answers of prunes as containers and tables, and what notebooks show."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from html.parser import HTMLParser

import msgspec
import pyarrow as pa
import pytest

from fixtures_server import ServerProcess
from lamella.client import Lamella, col
from lamella.client.http import Table
from lamella.client.http.results import PruneResult
from lamella.snapshot.errors import InvalidRequest
from lamella.snapshot.html_tables import MAX_ROWS, html_facts, html_table
from lamella.snapshot.schema import Column, Schema
from lamella.snapshot.wire import PruneAnswer
from lamella.snapshot.wire.prune import Shape


@pytest.fixture
def table(server: ServerProcess) -> Iterator[Table]:
    """Three blocks of ten rows."""
    with Lamella(server.url) as lake:
        found = lake.table("db.t")
        for first in (0, 10, 20):
            found.append({"a": list(range(first, first + 10))}, create=True, cluster_by=["a"])
        yield found


SHAPES: list[Shape] = ["records", "columns", "ranges"]


def pruned(table: Table, shape: Shape, **options: object) -> PruneResult:
    """An answer with blocks."""
    found = table.prune(col("a") >= 15, shape=shape, **options)  # type: ignore[arg-type]
    return table.resolve(found) if shape == "ranges" else found


@pytest.mark.parametrize("shape", SHAPES)
def test_an_answer_is_a_container_of_blocks_in_any_shape(table: Table, shape: Shape) -> None:
    """Iteration, length, blocks and tables have the same."""
    found = pruned(table, shape)
    assert found
    assert len(found) == found.block_count == 2
    assert list(found) == list(found.blocks) == list(found.records())
    assert found.blocks is found.blocks
    assert [block.location for block in found] == found.locations
    rows = found.to_arrow()
    assert rows.column_names == ["location", "row_count", "live_row_count", "file_size", "verdict"]
    assert rows["location"].to_pylist() == found.locations
    assert rows["row_count"].to_pylist() == rows["live_row_count"].to_pylist() == [10, 10]
    assert sorted(rows["verdict"].to_pylist()) == ["ALL", "SOME"]
    assert found.to_pandas().equals(rows.to_pandas())
    assert repr(found) == f"PruneResult(2 of 3 blocks, snapshot_id={found.snapshot_id!r})"


@pytest.mark.parametrize("shape", SHAPES)
def test_a_result_is_the_answer_that_the_service_sent(table: Table, shape: Shape) -> None:
    """What is computed from it is not part of it: in JSON, copies and other processes."""
    found = table.prune("a >= 15", shape=shape)
    before = msgspec.json.encode(found)
    if shape != "ranges":
        assert found.blocks
    assert msgspec.json.encode(found) == before
    assert msgspec.json.encode(msgspec.json.decode(before, type=PruneAnswer)) == before
    again = pickle.loads(pickle.dumps(found))  # noqa: S301  # our own
    assert again == found
    assert msgspec.structs.replace(found, complete=False).block_count == 2


def test_an_empty_answer_is_false(table: Table) -> None:
    """As other containers."""
    found = table.prune("a > 100")
    assert not found
    assert (len(found), list(found), found.blocks) == (0, [], ())
    assert found.to_arrow().schema.field("location").type == pa.string()
    assert "0 of 3 blocks" in found._repr_html_()


def test_what_has_no_blocks_says_so(table: Table) -> None:
    """Ranges name blocks by numbers, and segments are something else."""
    ranges = table.prune("a >= 15", shape="ranges")
    segments = table.prune("a >= 15", level="segment")
    for found, part in ((ranges, "resolve"), (segments, "segments")):
        assert found
        for use in (list, lambda each: each.blocks, lambda each: each.to_arrow()):
            with pytest.raises(InvalidRequest, match=part):
                use(found)
        assert "<table>" in found._repr_html_()
        assert "blocks, snapshot_id" in repr(found)
    assert len(ranges) == 2
    with pytest.raises(InvalidRequest, match="segments"):
        len(segments)


def test_residuals_and_sizes_of_columns_are_columns(table: Table) -> None:
    """If they were requested."""
    found = table.prune("a >= 15", columns=["a"], residuals=True)
    rows = found.to_arrow().to_pylist()
    assert {row["verdict"]: row["residual"] for row in rows} == {"ALL": "true", "SOME": "`a` >= 15"}
    assert all(row["column_size_bytes"] > 0 for row in rows)


def test_merged_pages_are_one_container(table: Table) -> None:
    """In both shapes."""
    for shape in ("records", "columns"):
        found = table.prune("a >= 15", shape=shape, page_size=1)
        assert len(found.blocks) == 2


class Elements(HTMLParser):
    """The elements of a text, and that each is closed."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.names: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.open: list[str] = []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Keep it."""
        self.names.append(tag)
        self.attributes += attrs
        self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        """It is the one that was opened last."""
        assert self.open.pop() == tag


def test_notebooks_show_tables_without_scripts_or_hosts(table: Table) -> None:
    """The answer with its funnel, tables, a table, a schema and a snapshot."""
    lake = Lamella(table._lake.url)
    info = table.info()
    shown = {
        "2 of 3 blocks": table.prune("a >= 15 AND rand() < 2")._repr_html_(),
        "Tables": lake.tables("db")._repr_html_(),  # type: ignore[attr-defined]
        "Table db.t": table._repr_html_(),
        "Schema 0": table.schema()._repr_html_(),
        f"Snapshot {info.snapshot_id}": table.snapshot(info.snapshot_id)._repr_html_(),
    }
    for part, text in shown.items():
        assert part in text
        found = Elements(text)
        assert set(found.names) <= {"table", "caption", "tr", "th", "td"}
        assert {name for name, _ in found.attributes} <= {"style", "colspan"}
    assert "rand()" in shown["2 of 3 blocks"]
    assert table.prune("a >= 15").locations[0] in shown["2 of 3 blocks"]
    lake.close()


def test_text_in_html_is_escaped_and_cut() -> None:
    """Names and comments come from anyone."""
    wrong = '<script>alert("&")</script>'
    schema = Schema.assign([Column(name=wrong, type="int64", doc=wrong)])
    for text in (
        html_table(wrong, [wrong], [[wrong]]),
        html_facts(wrong, [(wrong, wrong), ("none", None)]),
        schema._repr_html_(),
    ):
        assert "script" not in Elements(text).names
        assert "&lt;script&gt;" in text
        assert "none" not in text
    assert len(html_table("", ["x"], [["y" * 10_000]])) < 1_000
    many = html_table("", ["x"], [[n] for n in range(MAX_ROWS + 5)])
    assert "and 5 more" in many
    assert f">{MAX_ROWS}<" not in many


def test_a_table_that_is_not_there_is_shown_with_the_reason(server: ServerProcess) -> None:
    """A notebook shows it instead of a traceback; its text is escaped."""
    with Lamella(server.url) as lake:
        shown = lake.table("db.<b>")._repr_html_()
    assert "namespace_not_found" in shown
    assert "<b>" not in shown
    assert "&lt;b&gt;" in shown
