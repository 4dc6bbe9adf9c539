"""Figures of the console that are bounds, samples or parts say so; without a browser."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from lamella.service.app import create_app
from lamella.service.config.settings import Settings
from lamella.service.dashboard import words
from lamella.snapshot.cluster import depth
from support.app_client import AppClient
from support.ready_pages import when_ready
from support.service_api import parquet_bytes

PAGE = "/ui/tables/db/t"
TABLE = "/v1/namespaces/db/tables/t"
LONG = "x" * 100


@pytest.fixture
def app(tmp_path: Path) -> Iterator[AppClient]:
    """A service with a table of two columns."""
    with AppClient(create_app(Settings(warehouse=f"{tmp_path}/warehouse"))) as app:
        columns = [{"name": "a", "type": "int64"}, {"name": "s", "type": "string"}]
        assert app.post("/v1/namespaces", json={"name": "db"}).status_code == 201
        assert app.post("/v1/namespaces/db/tables", json={"name": "t", "schema": columns}).status_code == 201
        yield app


def file(folder: Path, name: str) -> str:
    """A file whose texts are longer than statistics keep them, with nulls."""
    path = folder / f"{name}.parquet"
    path.write_bytes(parquet_bytes({"a": pa.array([1, 2, None]), "s": [LONG + "a", LONG + "b", None]}))
    return f"file://{path}"


def text_of(app: AppClient, path: str, **query: str | int) -> str:
    """What a page says, in one line, once all of it is there."""
    answer = when_ready(app, path, query)
    assert answer.status_code == 200, answer.text
    return re.sub(r"\s+", " ", re.sub(r"<[^>]*>", " ", answer.text))


def fact(page: str, name: str, following: str) -> str:
    """What stands between two words of a page."""
    return page.split(name, 1)[1].split(following, 1)[0].strip()


def commit(app: AppClient, *blocks: dict[str, Any]) -> None:
    """Add blocks as a program does."""
    answer = app.post(f"{TABLE}/commits", json={"added": blocks})
    assert answer.status_code == 200, answer.text


def test_bytes_of_columns_that_not_all_blocks_report_are_a_lower_bound(app: AppClient, tmp_path: Path) -> None:
    """A block without sizes of columns counts as no byte: the sum is a bound as soon as one is among those kept."""
    assert app.post(f"{TABLE}/register", json={"paths": [file(tmp_path, "x")]}).status_code == 200
    page = text_of(app, f"{PAGE}/lab", filter="a > 0", columns="a")
    assert re.fullmatch(r"\d+ B", fact(page, "Of it, requested columns", "Rows in these blocks"))
    commit(app, {"location": file(tmp_path, "y"), "row_count": 3, "file_size": 0})
    page = text_of(app, f"{PAGE}/lab", filter="a > 0", columns="a")
    assert re.fullmatch(r"at least \d+ B", fact(page, "Of it, requested columns", "Rows in these blocks"))


def test_what_no_statistics_say_is_no_number(app: AppClient, tmp_path: Path) -> None:
    """Nulls, distinct values, least and greatest: of a block without statistics, and of its table."""
    assert app.post(f"{TABLE}/register", json={"paths": [file(tmp_path, "x")]}).status_code == 200
    commit(app, {"location": file(tmp_path, "y"), "row_count": 3, "file_size": 0})
    page = text_of(app, f"{PAGE}/columns")
    row = fact(page, " a int64", "s string")
    assert row.split()[:4] == [words.NOTHING] * 4
    page = text_of(app, f"{PAGE}/map", zoom="1.0")
    assert fact(page.split("Source", 1)[1], " a int64", "s string").split()[:4] == [words.NOTHING] * 4


def test_bounds_that_may_not_occur_are_marked(app: AppClient, tmp_path: Path) -> None:
    """Of texts that statistics cut, in tables and blocks; of pages all bounds are said to be bounds."""
    assert app.post(f"{TABLE}/register", json={"paths": [file(tmp_path, "x")]}).status_code == 200
    data = app.get(f"{TABLE}/snapshots/{app.get(TABLE).json()['snapshot_id']}").json()
    assert data["summary"]["row_count"] == 3
    page = text_of(app, f"{PAGE}/map", zoom="0.0", column="s")
    pages = page.split("Pages of s", 1)[1].split("Columns", 1)[0]
    assert "Minima and maxima are bounds" in pages
    for path, query in ((f"{PAGE}/columns", {}), (f"{PAGE}/map", {"zoom": "0.0"})):
        page = text_of(app, path, **query)
        row = page.split("Source", 1)[1].split("s string", 1)[1]
        assert ("≥" in row) == ("xa" not in row)


@pytest.mark.parametrize("is_sample", [False, True])
def test_depths_of_a_sample_are_said_to_be_of_one(
    app: AppClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_sample: bool
) -> None:
    """Of a key over several columns only some blocks of a large table are looked at."""
    if is_sample:  # a table of five blocks is large
        for name, number in (("EXACT", 2), ("PAIRS", 1), ("_MIN_SAMPLE", 2)):
            monkeypatch.setattr(depth, name, number)
    files = [file(tmp_path, f"x{number}") for number in range(5)]
    assert app.post(f"{TABLE}/register", json={"paths": files}).status_code == 200
    key = {"columns": ["a", "s"], "kind": "hilbert"}
    answer = app.put(f"{TABLE}/cluster-key", json=key)
    assert answer.status_code == 200, answer.text
    page = text_of(app, PAGE)
    for _ in range(600):
        if "Measuring" not in page:
            break
        time.sleep(0.1)
        page = text_of(app, PAGE)
    assert fact(page, "Average depth", "95th").startswith("≈") == is_sample
    assert fact(page, "Most", "Segments").startswith("≥") == is_sample
    assert ("of a sample" in page) == is_sample
