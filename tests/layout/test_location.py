"""Locations, and the names of a table's objects."""

from __future__ import annotations

import pytest

from lamella.snapshot.errors import InvalidRequest
from lamella.snapshot.storage import FsspecStore, TableLayout, normal, table_root


@pytest.mark.parametrize(
    ("typed", "location"),
    [
        ("/a b/x.parquet", "file:///a b/x.parquet"),
        ("file:/a/b", "file:///a/b"),
        ("file:///a/./b//c/../d/", "file:///a/b/d"),
        ("FILE:///a", "file:///a"),
        ("//a/b", "file:///a/b"),
        ("/a:b", "file:///a:b"),
        ("/", "file:///"),
        ("memory://x/y/", "memory://x/y"),
        ("memory:///x/y", "memory://x/y"),
        ("s3://bucket/a//b/../c%20d?e#f", "s3://bucket/a//b/../c%20d?e#f"),
        ("s3a://bucket/key", "s3://bucket/key"),
    ],
)
def test_a_location_has_one_spelling(typed: str, location: str) -> None:
    """What users type becomes the same text for the same object, and that text stays as it is."""
    assert normal(typed) == location
    assert normal(location) == location


@pytest.mark.parametrize(
    "typed",
    ["", "a/b", "x.parquet", "file://host/a", "file:a", "http://x/y", "s3:bucket/key", "s3://", "s3:///k", "/a\0b"],
)
def test_what_is_no_location_is_refused(typed: str) -> None:
    """Relative paths, hosts, unknown schemes and missing buckets are the caller's mistake."""
    with pytest.raises(InvalidRequest):
        normal(typed)
    with pytest.raises(InvalidRequest):
        FsspecStore().stat(typed)


def test_the_names_of_a_tables_objects() -> None:
    """Object names are part of the format: they may not change."""
    layout = TableLayout(table_root("s3://bucket/lake/", "0192"))
    assert layout.root == "s3://bucket/lake/0192"
    assert layout.snapshot("7") == "s3://bucket/lake/0192/_ss/7_v3.json"
    assert layout.snapshot_sidecar("7") == "s3://bucket/lake/0192/_ss/7_v3.arrow"
    assert layout.group("7") == "s3://bucket/lake/0192/_sl/7_v3.json"
    assert layout.group_sidecar("7") == "s3://bucket/lake/0192/_sl/7_v3.arrow"
    assert layout.group_locations("7") == "s3://bucket/lake/0192/_sl/7_v3.loc"
    assert layout.segment("7") == "s3://bucket/lake/0192/_sg/7_v3.json"
    assert layout.segment_sidecar("7") == "s3://bucket/lake/0192/_sg/7_v3.arrow"
    assert layout.block("7") == "s3://bucket/lake/0192/_b/7_v1.parquet"
    assert layout.block("7").startswith(layout.blocks + "/")
    assert table_root("/data", "1") == "file:///data/1"
