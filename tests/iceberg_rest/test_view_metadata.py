"""View metadata after the updates of commits: ids, the log, dialects, and what is refused."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyiceberg.view.metadata import ViewMetadata

from lamella.snapshot.errors import CommitRequirementFailed, InvalidRequest
from lamella.snapshot.iceberg.view_metadata import (
    changed_view,
    check_view_metadata,
    check_view_requirements,
    current_view_version,
    new_view,
)

NOW_MS = 1_795_000_000_000


def schema(*names: str) -> dict[str, Any]:
    """Columns of type long."""
    fields = [{"id": at, "name": name, "type": "long", "required": False} for at, name in enumerate(names, 1)]
    return {"type": "struct", "schema-id": 0, "fields": fields}


def version(sql: str = "select 1", *dialects: str, **more: Any) -> dict[str, Any]:
    """A version; its dialect is spark by default."""
    found = {
        "version-id": 1,
        "schema-id": 0,
        "timestamp-ms": NOW_MS,
        "summary": {},
        "representations": [{"type": "sql", "sql": sql, "dialect": each} for each in dialects or ("spark",)],
        "default-namespace": ["ns"],
    }
    return found | {key.replace("_", "-"): value for key, value in more.items()}


def view(**more: Any) -> dict[str, Any]:
    """The metadata of a new view."""
    given = {"properties": {}, "location": "s3://b/v", "view_uuid": "u-1", **more}
    return new_view(given.pop("schema", schema("a")), given.pop("version", version()), now_ms=NOW_MS, **given)


def add(sql: str, *dialects: str, **more: Any) -> list[dict[str, Any]]:
    """The updates that replace the query."""
    return [
        {"action": "add-view-version", "view-version": version(sql, *dialects, **more)},
        {"action": "set-current-view-version", "view-version-id": -1},
    ]


def after(metadata: dict[str, Any], *updates: dict[str, Any]) -> dict[str, Any]:
    """The metadata after updates that change something."""
    found = changed_view(metadata, updates, now_ms=NOW_MS + 1_000)
    assert found is not None
    return found


def set_property(key: str, text: str) -> dict[str, Any]:
    """The update that sets a property."""
    return {"action": "set-properties", "updates": {key: text}}


def test_a_new_view_has_version_1_and_schema_0() -> None:
    """Whatever numbers the client gave; pyiceberg can read it."""
    made = view(version=version(version_id=7, schema_id=5))
    assert (made["current-version-id"], [each["version-id"] for each in made["versions"]]) == (1, [1])
    assert (made["versions"][0]["schema-id"], made["schemas"][0]["schema-id"]) == (0, 0)
    assert made["versions"][0]["summary"] == {"operation": "create"}
    assert made["version-log"] == [{"timestamp-ms": NOW_MS, "version-id": 1}]
    check_view_metadata(made)
    ViewMetadata.model_validate({**made, "view-uuid": "01a224e8-77fc-71c9-9149-3f181d78de96"})


def test_equal_versions_and_schemas_are_used_again() -> None:
    """Their numbers, times and operations do not count; one that is current again is in the log with that time."""
    first = view()
    second = after(first, {"action": "add-schema", "schema": schema("a", "b")}, *add("select 2", schema_id=-1))
    assert (second["current-version-id"], current_view_version(second)["schema-id"]) == (2, 1)
    back = [{"action": "add-schema", "schema": schema("a")}, *add("select 1", schema_id=-1, version_id=9)]
    back[1]["view-version"]["summary"] = {"operation": "create"}
    third = after(second, *back)
    assert (third["current-version-id"], len(third["versions"]), len(third["schemas"])) == (1, 2, 2)
    assert third["version-log"][-1] == {"timestamp-ms": NOW_MS + 1_000, "version-id": 1}
    assert changed_view(third, [{"action": "set-current-view-version", "view-version-id": 1}], now_ms=NOW_MS) is None
    assert changed_view(third, [{"action": "assign-uuid", "uuid": "U-1"}], now_ms=NOW_MS) is None


def test_old_versions_are_removed_but_none_that_the_commit_added() -> None:
    """By default ten are kept; the log begins after the last version that is gone."""
    made = view()
    for number in range(2, 14):
        made = after(made, *add(f"select {number}"))
    assert [each["version-id"] for each in made["versions"]] == list(range(4, 14))
    assert [each["version-id"] for each in made["version-log"]] == list(range(4, 14))
    short = after(made, set_property("version.history.num-entries", "1"))
    assert [each["version-id"] for each in short["versions"]] == [13]
    several = after(short, *add("select 20"), *add("select 21"), *add("select 22"))
    assert [each["version-id"] for each in several["versions"]] == [14, 15, 16]
    assert several["version-log"] == [{"timestamp-ms": NOW_MS, "version-id": 16}]
    old = after(made, {"action": "set-current-view-version", "view-version-id": 4}, *add("select 1", version_id=1)[:1])
    assert [each["version-id"] for each in old["versions"]] == [4, *range(6, 15)]


def test_a_dialect_is_dropped_only_if_a_property_allows_it() -> None:
    """Compared with the version before the commit, without regard to case."""
    made = view(version=version("select 1", "spark", "trino"))
    with pytest.raises(InvalidRequest, match="loss of view dialects"):
        after(made, *add("select 2", "Trino"))
    assert current_view_version(after(made, *add("select 2", "TRINO", "Spark")))["version-id"] == 2
    allowed = set_property("replace.drop-dialect.allowed", "true")
    assert current_view_version(after(made, allowed, *add("select 2", "trino")))["version-id"] == 2


@pytest.mark.parametrize(
    ("update", "text"),
    [
        ({"action": "assign-uuid", "uuid": "u-2"}, "Cannot reassign uuid"),
        ({"action": "upgrade-format-version", "format-version": 2}, "Unsupported format version"),
        ({"action": "upgrade-format-version", "format-version": 0}, "Cannot downgrade"),
        ({"action": "set-location", "location": None}, "Invalid location"),
        ({"action": "set-properties", "updates": {"a": 1}}, "object of strings"),
        ({"action": "set-current-view-version", "view-version-id": -1}, "no version has been added"),
        ({"action": "set-current-view-version", "view-version-id": 5}, "no version with the id 5"),
        ({"action": "add-view-version", "view-version": version(schema_id=4)}, "no schema with the id 4"),
        ({"action": "add-view-version", "view-version": version(schema_id=-1)}, "no schema has been added"),
        ({"action": "add-view-version", "view-version": version("x", "spark", "Spark")}, "multiple queries"),
        ({"action": "add-view-version", "view-version": version(representations=[])}, "no SQL representation"),
        ({"action": "add-view-version", "view-version": version(representations=["x"])}, "another type"),
        ({"action": "add-view-version", "view-version": version("x", version_id=1 << 31)}, "must be a number"),
        ({"action": "add-view-version", "view-version": version("x", timestamp_ms="now")}, "timestamp-ms"),
        ({"action": "add-view-version", "view-version": version("x", default_namespace="ns")}, "array of strings"),
        ({"action": "add-view-version", "view-version": None}, "is an object"),
        ({"action": "add-view-version"}, "lacks a member"),
        ({"action": "add-schema", "schema": {"type": "struct", "fields": [{"id": 1}]}}, "lacks a member"),
        ({"action": "add-schema", "schema": {**schema("a"), "fields": schema("a")["fields"] * 2}}, "twice"),
        ({"action": "set-properties", "updates": {"version.history.num-entries": "0"}}, "must be positive"),
        ({"action": "set-properties", "updates": {"version.history.num-entries": "x"}}, "must be a number"),
        ({"action": "add-snapshot"}, "unknown update"),
    ],
)
def test_other_updates_are_refused(update: dict[str, Any], text: str) -> None:
    """With the reason, and without a change of what was read."""
    made = view()
    before = copy.deepcopy(made)
    with pytest.raises(InvalidRequest, match=text):
        changed_view(made, [update], now_ms=NOW_MS)
    assert made == before


def test_requirements_are_checked() -> None:
    """The id is the only one that views have."""
    check_view_requirements([{"type": "assert-view-uuid", "uuid": "U-1"}], view())
    with pytest.raises(CommitRequirementFailed, match="does not match"):
        check_view_requirements([{"type": "assert-view-uuid", "uuid": "u-2"}], view())
    with pytest.raises(InvalidRequest, match="unknown requirement"):
        check_view_requirements([{"type": "assert-create"}], view())


@pytest.mark.parametrize(
    "damage",
    [
        {"format-version": 2},
        {"current-version-id": 4},
        {"versions": []},
        {"versions": [version(), version()]},
        {"schemas": []},
        {"schemas": 1},
        {"location": None},
        {"properties": {"a": 1}},
        {"version-log": [{}]},
    ],
)
def test_other_metadata_is_refused(damage: dict[str, Any]) -> None:
    """Of a file that is registered."""
    check_view_metadata(view())
    with pytest.raises(InvalidRequest):
        check_view_metadata({**view(), **damage})


_UPDATES = st.one_of(
    st.builds(
        lambda sql, number, dialects, numbered: {
            "action": "add-view-version",
            "view-version": version(sql, *dialects, version_id=number, schema_id=numbered),
        },
        st.sampled_from(["select 1", "select 2", "select 3"]),
        st.integers(0, 20),
        st.lists(st.sampled_from(["spark", "trino"]), min_size=1, max_size=2),
        st.integers(-1, 2),
    ),
    st.builds(lambda names: {"action": "add-schema", "schema": schema(*names)}, st.sampled_from(["a", "ab", "abc"])),
    st.builds(lambda n: {"action": "set-current-view-version", "view-version-id": n}, st.integers(-1, 6)),
    st.builds(lambda n: set_property("version.history.num-entries", str(n)), st.integers(0, 4)),
    st.builds(lambda text: set_property("replace.drop-dialect.allowed", text), st.sampled_from(["true", "false"])),
    st.just({"action": "remove-properties", "removals": ["version.history.num-entries"]}),
    st.builds(lambda text: {"action": "set-location", "location": f"s3://b/{text}"}, st.sampled_from("xy")),
)


@settings(max_examples=300, deadline=None)
@given(st.lists(st.lists(_UPDATES, min_size=1, max_size=5), max_size=12))
def test_random_commits_keep_what_metadata_must_be(commits: list[list[dict[str, Any]]]) -> None:
    """What has a number keeps it, the current version is there, and the log is of versions that are."""
    current = view()
    for at, updates in enumerate(commits):
        before = copy.deepcopy(current)
        try:
            found = changed_view(current, updates, now_ms=NOW_MS + at)
        except InvalidRequest:
            assert current == before
            continue
        assert current == before
        if found is None:
            continue
        check_view_metadata(found)
        assert found["view-uuid"] == before["view-uuid"]
        ids = [each["version-id"] for each in found["versions"]]
        retained = int(found["properties"].get("version.history.num-entries", "10"))
        added = sum(update["action"] == "add-view-version" for update in updates)
        assert len(ids) <= max(retained, added + 1)
        assert {each["version-id"] for each in found["version-log"]} <= set(ids)
        assert not found["version-log"] or found["version-log"][-1]["version-id"] == found["current-version-id"]
        for name, key in (("versions", "version-id"), ("schemas", "schema-id")):
            known = {each[key]: each for each in before[name]}
            assert all(known.get(each[key], each) == each for each in found[name])
        assert len(found["schemas"]) >= len(before["schemas"])
        current = found
