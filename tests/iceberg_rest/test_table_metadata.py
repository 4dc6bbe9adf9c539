"""Table metadata after the updates of commits: ids, references, logs, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyiceberg.table.metadata import TableMetadataUtil

from lamella.snapshot.errors import CommitRequirementFailed, InvalidRequest
from lamella.snapshot.iceberg.table_metadata import changed, check_requirements, new_metadata, required_fields

NOW_MS = 1_795_000_000_000


def field(number: int, name: str, kind: Any = "long", **more: Any) -> dict[str, Any]:
    """A column."""
    return {"id": number, "name": name, "type": kind, "required": False, **more}


def struct(*fields: dict[str, Any], **more: Any) -> dict[str, Any]:
    """A schema."""
    return {"type": "struct", "fields": list(fields), **more}


def table(schema: dict[str, Any] | None = None, **more: Any) -> dict[str, Any]:
    """The metadata of a new table."""
    given = {"spec": None, "order": None, "properties": {}, "location": "s3://b/t", "table_uuid": "u-1", **more}
    schema = struct(field(7, "a"), field(9, "b", "string")) if schema is None else schema
    return new_metadata(schema, now_ms=NOW_MS, **given)


def snapshot(number: int, sequence: int, parent: int | None = None, **more: Any) -> dict[str, Any]:
    """The update that adds a snapshot."""
    found = {
        "snapshot-id": number,
        "sequence-number": sequence,
        "timestamp-ms": NOW_MS + sequence,
        "manifest-list": f"s3://b/t/{number}.avro",
        "summary": {"operation": "append"},
        **more,
    }
    if parent is not None:
        found["parent-snapshot-id"] = parent
    return {"action": "add-snapshot", "snapshot": found}


def ref(name: str, number: int, kind: str = "branch", /, **more: Any) -> dict[str, Any]:
    """The update that sets a reference."""
    return {"action": "set-snapshot-ref", "ref-name": name, "snapshot-id": number, "type": kind, **more}


def after(metadata: dict[str, Any], *updates: dict[str, Any]) -> dict[str, Any]:
    """The metadata after updates that change something."""
    found = changed(metadata, updates, "s3://b/t/m.json", now_ms=NOW_MS + 1_000)
    assert found is not None
    return found


def test_columns_of_a_new_table_are_numbered_by_level() -> None:
    """Those of a struct before those below it, whatever ids the client gave; specs and orders follow."""
    inner = struct(field(5, "x"), field(6, "y"))
    made = table(
        struct(
            field(3, "s", inner),
            field(4, "l", {"type": "list", "element-id": 10, "element": "string", "element-required": False}),
            field(8, "m", {"type": "map", "key-id": 11, "key": "int", "value-id": 12, "value": inner_of(20)}),
            **{"identifier-field-ids": [4]},
        ),
        spec={"fields": [{"source-id": 5, "name": "px", "transform": "identity"}]},
        order={"fields": [{"source-id": 6, "transform": "identity", "direction": "asc", "null-order": "nulls-last"}]},
    )
    [schema] = made["schemas"]
    first, second, third = schema["fields"]
    assert [first["id"], second["id"], third["id"]] == [1, 2, 3]
    assert [each["id"] for each in first["type"]["fields"]] == [4, 5]
    assert second["type"]["element-id"] == 6
    assert (third["type"]["key-id"], third["type"]["value-id"]) == (7, 8)
    assert schema["identifier-field-ids"] == [2]
    assert made["partition-specs"] == [
        {"spec-id": 0, "fields": [{"source-id": 4, "name": "px", "transform": "identity", "field-id": 1000}]}
    ]
    assert made["sort-orders"][0]["fields"][0]["source-id"] == 5
    assert (made["last-column-id"], made["last-partition-id"]) == (9, 1000)


def inner_of(number: int) -> dict[str, Any]:
    """A struct of one column."""
    return struct(field(number, "z"))


def test_an_equal_schema_spec_or_order_is_used_again() -> None:
    """-1 is the last added one, also if it existed; another one gets the next id."""
    first = table()
    columns = first["schemas"][0]["fields"]
    same = {"action": "add-schema", "schema": struct(*columns, **{"schema-id": 5})}
    current = {"action": "set-current-schema", "schema-id": -1}
    assert changed(first, [same, current], None, now_ms=NOW_MS) is None
    wider = after(first, {"action": "add-schema", "schema": struct(*columns, field(3, "c"))}, current)
    assert (wider["current-schema-id"], wider["last-column-id"]) == (1, 3)
    back = after(wider, same, current)
    assert (back["current-schema-id"], back["last-column-id"], len(back["schemas"])) == (0, 3, 2)
    parted = after(
        wider,
        {"action": "add-spec", "spec": {"fields": [{"source-id": 1, "name": "p", "transform": "bucket[4]"}]}},
        {"action": "set-default-spec", "spec-id": -1},
    )
    assert (parted["default-spec-id"], parted["last-partition-id"]) == (1, 1000)
    with pytest.raises(InvalidRequest, match="no schema has been added"):
        after(first, current)


def test_snapshots_advance_main_and_the_log() -> None:
    """The last sequence number grows; a snapshot that was current only inside of a commit is not in the log."""
    one = after(table(), snapshot(11, 1), ref("main", 11))
    assert (one["current-snapshot-id"], one["last-sequence-number"]) == (11, 1)
    assert one["snapshot-log"] == [{"timestamp-ms": NOW_MS + 1, "snapshot-id": 11}]
    two = after(one, snapshot(12, 2, 11), ref("main", 12), snapshot(13, 3, 12), ref("main", 13))
    assert [each["snapshot-id"] for each in two["snapshot-log"]] == [11, 13]
    assert two["metadata-log"][-1]["metadata-file"] == "s3://b/t/m.json"
    gone = after(two, {"action": "remove-snapshots", "snapshot-ids": [11]})
    assert [each["snapshot-id"] for each in gone["snapshot-log"]] == [13]
    with pytest.raises(CommitRequirementFailed, match="older than last sequence number 3"):
        after(two, snapshot(14, 3, 13))
    with pytest.raises(InvalidRequest, match="already exists"):
        after(two, snapshot(13, 4, 13))


def test_references_have_rules() -> None:
    """Main is a branch, tags have no retention of snapshots, and a reference needs its snapshot."""
    one = after(table(), snapshot(11, 1), ref("main", 11))
    tagged = after(one, ref("v1", 11, "tag", **{"max-ref-age-ms": 5}))
    assert tagged["refs"]["v1"] == {"snapshot-id": 11, "type": "tag", "max-ref-age-ms": 5}
    assert changed(tagged, [ref("v1", 11, "tag", **{"max-ref-age-ms": 5})], None, now_ms=NOW_MS) is None
    for update in (
        ref("main", 11, "tag"),
        ref("x", 12),
        ref("x", 11, "twig"),
        ref("x", 11, "tag", **{"min-snapshots-to-keep": 1}),
        ref("x", 11, "branch", **{"min-snapshots-to-keep": 0}),
    ):
        with pytest.raises(InvalidRequest):
            after(one, update)
    gone = after(tagged, {"action": "remove-snapshots", "snapshot-ids": [11]})
    assert gone["refs"] == {}
    assert "current-snapshot-id" not in gone


def test_row_ids_are_reserved_in_format_version_3() -> None:
    """A snapshot begins at or after the next row id, and moves it on."""
    made = table(properties={"format-version": "3"})
    assert (made["format-version"], made["next-row-id"], made["properties"]) == (3, 0, {})
    rows = {"first-row-id": 0, "added-rows": 10}
    one = after(made, snapshot(11, 1, **rows), ref("main", 11))
    assert one["next-row-id"] == 10
    for more in ({}, {"first-row-id": 10, "added-rows": -1}):
        with pytest.raises(InvalidRequest):
            after(one, snapshot(12, 2, 11, **more))
    with pytest.raises(CommitRequirementFailed, match="behind table next-row-id 10"):  # the client tries again
        after(one, snapshot(12, 2, 11, **{"first-row-id": 9, "added-rows": 1}))


@pytest.mark.parametrize(
    "update",
    [
        {"action": "fly"},
        {"action": "add-schema"},
        {"action": "add-schema", "schema": {"type": "struct", "fields": "x"}},
        {"action": "add-schema", "schema": struct(field(1, "a", "timestamp_ns"))},
        {"action": "add-schema", "schema": struct(field(1, "a", "number"))},
        {"action": "add-schema", "schema": struct(field(1, "a"), field(2, "a"))},
        {"action": "set-current-schema", "schema-id": 9},
        {"action": "add-spec", "spec": {"fields": [{"source-id": 99, "name": "p", "transform": "identity"}]}},
        {"action": "set-default-spec", "spec-id": 9},
        {"action": "set-default-sort-order", "sort-order-id": 9},
        {"action": "upgrade-format-version", "format-version": 1},
        {"action": "upgrade-format-version", "format-version": 9},
        {"action": "assign-uuid", "uuid": "another"},
        {"action": "remove-schemas", "schema-ids": [0]},
        {"action": "remove-partition-specs", "spec-ids": [0]},
        {"action": "set-properties", "updates": 5},
        {"action": "add-snapshot", "snapshot": {"snapshot-id": 1}},
    ],
)
def test_updates_that_cannot_be_meant_are_refused(update: dict[str, Any]) -> None:
    """As bad requests, and the metadata that they were for is as it was."""
    metadata = table()
    before = repr(metadata)
    with pytest.raises(InvalidRequest):
        changed(metadata, [update], None, now_ms=NOW_MS)
    assert repr(metadata) == before


def test_a_column_of_the_partition_spec_cannot_be_dropped() -> None:
    """Readers would not find it."""
    made = table(spec={"fields": [{"source-id": 7, "name": "p", "transform": "identity"}]})
    [_, second] = made["schemas"][0]["fields"]
    with pytest.raises(InvalidRequest, match="Cannot find source column for partition field: p"):
        after(
            made,
            {"action": "add-schema", "schema": struct(second)},
            {"action": "set-current-schema", "schema-id": -1},
        )


def test_requirements_name_what_has_changed() -> None:
    """Each of the specification's, met and not met; a table that is not there meets only that it is not."""
    one = after(table(), snapshot(11, 1), ref("main", 11))
    met: list[dict[str, Any]] = [
        {"type": "assert-table-uuid", "uuid": "U-1"},
        {"type": "assert-ref-snapshot-id", "ref": "main", "snapshot-id": 11},
        {"type": "assert-ref-snapshot-id", "ref": "other", "snapshot-id": None},
        {"type": "assert-last-assigned-field-id", "last-assigned-field-id": 2},
        {"type": "assert-current-schema-id", "current-schema-id": 0},
        {"type": "assert-last-assigned-partition-id", "last-assigned-partition-id": 999},
        {"type": "assert-default-spec-id", "default-spec-id": 0},
        {"type": "assert-default-sort-order-id", "default-sort-order-id": 0},
    ]
    check_requirements(met, one)
    check_requirements([{"type": "assert-create"}], None)
    broken: list[dict[str, Any]] = [
        {"type": "assert-create"},
        {"type": "assert-table-uuid", "uuid": "u-2"},
        {"type": "assert-ref-snapshot-id", "ref": "main", "snapshot-id": 12},
        {"type": "assert-ref-snapshot-id", "ref": "main", "snapshot-id": None},
        {"type": "assert-ref-snapshot-id", "ref": "other", "snapshot-id": 11},
        *({**each, next(name for name in each if name != "type"): 77} for each in met[3:]),
    ]
    for each in broken:
        with pytest.raises(CommitRequirementFailed, match="Requirement failed"):
            check_requirements([each], one)
    for each in met:
        with pytest.raises(CommitRequirementFailed):
            check_requirements([each], None)
    with pytest.raises(InvalidRequest, match="unknown requirement"):
        check_requirements([{"type": "assert-luck"}], one)


def test_the_log_of_metadata_files_has_a_limit() -> None:
    """The newest stay."""
    metadata = table(properties={"write.metadata.previous-versions-max": "2"})
    for number in range(5):
        update = {"action": "set-properties", "updates": {"n": str(number)}}
        found = changed(metadata, [update], f"m{number}", now_ms=NOW_MS)
        assert found is not None
        metadata = found
    assert [each["metadata-file"] for each in metadata["metadata-log"]] == ["m3", "m4"]


_STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.sampled_from(["main", "dev"])),
        st.tuples(st.just("tag"), st.integers(0, 3)),
        st.tuples(st.just("drop ref"), st.sampled_from(["main", "dev", "t0", "t1"])),
        st.tuples(st.just("expire"), st.integers(0, 5)),
        st.tuples(st.just("add column"), st.integers(0, 99)),
        st.tuples(st.just("property"), st.integers(0, 3)),
    ),
    max_size=12,
)


@given(_STEPS)
@settings(max_examples=150, deadline=None)
def test_any_commits_leave_metadata_that_another_library_reads(steps: list[tuple[str, Any]]) -> None:
    """pyiceberg accepts it; every reference and log entry names a snapshot, and no id is given twice."""
    metadata = table()
    for number, (what, which) in enumerate(steps):
        snapshots = [each["snapshot-id"] for each in metadata["snapshots"]]
        updates: list[dict[str, Any]] = []
        if what == "append":
            parent = metadata["refs"].get(which, {}).get("snapshot-id")
            sequence = metadata["last-sequence-number"] + 1
            updates = [snapshot(100 + number, sequence, parent), ref(which, 100 + number)]
        elif what == "tag" and snapshots:
            updates = [ref(f"t{which}", snapshots[which % len(snapshots)], "tag")]
        elif what == "drop ref":
            updates = [{"action": "remove-snapshot-ref", "ref-name": which}]
        elif what == "expire" and snapshots:
            updates = [{"action": "remove-snapshots", "snapshot-ids": [snapshots[which % len(snapshots)]]}]
        elif what == "add column":
            last = metadata["last-column-id"] + 1
            fields = metadata["schemas"][-1]["fields"]
            updates = [
                {"action": "add-schema", "schema": struct(*fields, field(last, f"c{last}"))},
                {"action": "set-current-schema", "schema-id": -1},
            ]
        elif what == "property":
            updates = [{"action": "set-properties", "updates": {"p": str(which)}}]
        found = changed(metadata, updates, f"m{number}", now_ms=NOW_MS + number)
        metadata = metadata if found is None else found
        present = {each["snapshot-id"] for each in metadata["snapshots"]}
        assert {each["snapshot-id"] for each in metadata["refs"].values()} <= present
        main = metadata["refs"].get("main", {}).get("snapshot-id")
        assert metadata.get("current-snapshot-id") == main
        assert len({each["schema-id"] for each in metadata["schemas"]}) == len(metadata["schemas"])
        TableMetadataUtil.parse_obj({**metadata, "table-uuid": "9c12d441-03fe-4693-9a96-a0705ddf69c1"})


def test_required_fields_are_those_whose_nulls_are_counted() -> None:
    """Columns, and fields of required structs; a required part of which no count tells is named."""

    def needed(number: int, name: str, kind: Any = "long") -> dict[str, Any]:
        return field(number, name, kind, required=True)

    def found(*fields: dict[str, Any]) -> tuple[dict[int, str], str | None]:
        both = required_fields({"fields": list(fields)})
        return both.names, both.unproven

    assert found(needed(1, "a"), field(2, "b")) == ({1: "a"}, None)
    inner = struct(needed(3, "x"), field(4, "y"))
    assert found(needed(2, "s", inner)) == ({3: "s.x"}, None)
    assert found(field(2, "s", inner)) == ({}, "s.x")
    assert found(needed(2, "s", struct(field(3, "x")))) == ({}, "s")
    assert found(needed(2, "s", struct(needed(3, "t", inner), field(9, "u")))) == ({3: "s.t.x"}, None)
    numbers = {"type": "list", "element-id": 3, "element": "long", "element-required": False}
    assert found(field(2, "l", numbers)) == ({}, None)
    assert found(needed(2, "l", numbers)) == ({}, "l")
    assert found(field(2, "l", {**numbers, "element-required": True})) == ({}, "l")
    nested = {"type": "list", "element-id": 5, "element": {**numbers, "element-required": True}}
    assert found(field(2, "l", nested)) == ({}, "l")
    map_type = {"type": "map", "key-id": 3, "key": "string", "value-id": 4, "value": inner, "value-required": False}
    assert found(field(2, "m", map_type)) == ({}, "m")
    assert found(field(2, "m", {**map_type, "value": "long"})) == ({}, None)
