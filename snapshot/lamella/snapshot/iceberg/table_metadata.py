"""Table metadata that Iceberg clients write: new tables, requirements and updates of commits.

Metadata is a JSON object as the table specification describes it (appendix C), so that members and types that Lamella
does not know stay as they are. What an update does, and when it is refused, follows the REST specification (1.11) and
``TableMetadata.Builder`` of Iceberg's Java library, which clients were written against.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from lamella.snapshot.errors import CommitRequirementFailed, InvalidRequest
from lamella.snapshot.iceberg.metadata import MAIN

Json = dict[str, Any]

#: The format versions that tables may have, and the one of new tables.
FORMAT_VERSIONS: Final = (1, 2, 3)
DEFAULT_VERSION: Final = 2
_FORMAT_PROPERTY: Final = "format-version"
#: The first ones whose snapshots have sequence numbers, and whose rows have ids.
WITH_SEQUENCE_NUMBERS: Final = 2
WITH_ROW_IDS: Final = 3
#: Those of tables that Lamella's own writers may change.
WRITTEN_VERSIONS: Final = (WITH_SEQUENCE_NUMBERS, WITH_ROW_IDS)
#: Iceberg numbers partition fields from here on.
_FIRST_PARTITION_ID: Final = 1000
_MAX_PREVIOUS: Final = "write.metadata.previous-versions-max"
_DEFAULT_PREVIOUS: Final = 100
#: The first version that has a type.
_TYPE_VERSIONS: Final = {
    **dict.fromkeys(("timestamp_ns", "timestamptz_ns", "variant", "unknown", "geometry", "geography"), 3)
}
_NONE: Final = -1


# New tables.


def new_metadata(
    schema: Json,
    *,
    spec: Json | None,
    order: Json | None,
    properties: Mapping[str, str],
    location: str,
    table_uuid: str,
    now_ms: int,
) -> Json:
    """Returns the metadata of a table without snapshots. Columns and partition fields get new ids.

    Raises:
        InvalidRequest: the schema, the partition spec or the sort order is not valid.
    """
    version = _version_of(properties.get(_FORMAT_PROPERTY, str(DEFAULT_VERSION)))
    ids: dict[int, int] = {}
    fresh = _fresh_schema(schema, ids)
    fields = [
        {**field, "source-id": _mapped(ids, field), "field-id": _FIRST_PARTITION_ID + at}
        for at, field in enumerate(() if spec is None else _members(spec, "fields"))
    ]
    keys = [{**key, "source-id": _mapped(ids, key)} for key in (() if order is None else _members(order, "fields"))]
    change = MetadataChange(None, now_ms=now_ms)
    updates: list[Json] = [
        {"action": "assign-uuid", "uuid": table_uuid},
        {"action": "upgrade-format-version", "format-version": version},
        {"action": "add-schema", "schema": fresh},
        {"action": "set-current-schema", "schema-id": _NONE},
        {"action": "add-spec", "spec": {"fields": fields}},
        {"action": "set-default-spec", "spec-id": _NONE},
        {"action": "add-sort-order", "sort-order": {"fields": keys}},
        {"action": "set-default-sort-order", "sort-order-id": _NONE},
        {"action": "set-location", "location": location},
        {"action": "set-properties", "updates": {k: v for k, v in properties.items() if k != _FORMAT_PROPERTY}},
    ]
    for update in updates:
        change.apply(update)
    return change.finished(None)


def _fresh_schema(schema: Json, ids: dict[int, int]) -> Json:
    """Returns the schema with ids from 1 on, those of a level before those below it, as Java's library numbers them.

    ``ids`` takes the new ids by the old ones.
    """
    last = 0

    def next_id(old: Any) -> int:
        nonlocal last
        last += 1
        if not isinstance(old, int) or old in ids:
            raise InvalidRequest(f"the schema has the field id {old!r} twice, or a field without an id")
        ids[old] = last
        return last

    def struct(fields: Sequence[Json]) -> list[Json]:
        numbers = [next_id(field.get("id")) for field in fields]
        return [
            {**field, "id": number, "type": fresh(field.get("type"))}
            for number, field in zip(numbers, fields, strict=True)
        ]

    def fresh(kind: Any) -> Any:
        if not isinstance(kind, dict):
            return kind
        name = kind.get("type")
        if name == "struct":
            return {**kind, "fields": struct(_members(kind, "fields"))}
        if name == "list":
            return {**kind, "element-id": next_id(kind.get("element-id")), "element": fresh(kind.get("element"))}
        if name == "map":
            numbers = {"key-id": next_id(kind.get("key-id")), "value-id": next_id(kind.get("value-id"))}
            return {**kind, **numbers, "key": fresh(kind.get("key")), "value": fresh(kind.get("value"))}
        raise InvalidRequest(f"the schema has an unknown type {name!r}")

    found = {**schema, "type": "struct", "schema-id": 0, "fields": struct(_members(schema, "fields"))}
    identifiers = schema.get("identifier-field-ids")
    if identifiers:
        found["identifier-field-ids"] = [_mapped(ids, {"source-id": each}) for each in identifiers]
    return found


def _mapped(ids: Mapping[int, int], field: Json) -> int:
    source = field.get("source-id")
    if not isinstance(source, int) or source not in ids:
        raise InvalidRequest(f"there is no column with the field id {source!r}")
    return ids[source]


# Requirements.


def check_requirements(requirements: Iterable[Json], current: Json | None) -> None:
    """Raise CommitRequirementFailed if the table is not as a commit requires; ``current``: None if there is no table.

    Raises:
        InvalidRequest: an unknown requirement.
    """
    for each in requirements:
        kind = each.get("type")
        if kind == "assert-create":
            if current is not None:
                raise CommitRequirementFailed("Requirement failed: table already exists")
            continue
        check = _REQUIREMENTS.get(str(kind))
        if check is None:
            raise InvalidRequest(f"unknown requirement {kind!r}")
        if current is None:
            raise CommitRequirementFailed(f"Requirement failed: there is no table, for {kind}")
        check(each, current)


def _require_uuid(each: Json, current: Json) -> None:
    wanted, found = str(each.get("uuid")), str(current["table-uuid"])
    if wanted.lower() != found.lower():
        raise CommitRequirementFailed(f"Requirement failed: UUID does not match: expected {wanted} != {found}")


def _require_ref(each: Json, current: Json) -> None:
    name, wanted = str(each.get("ref")), each.get("snapshot-id")
    ref = current.get("refs", {}).get(name)
    kind = "branch" if ref is None else ref["type"]
    if ref is None:
        if wanted is not None:
            raise CommitRequirementFailed(f"Requirement failed: branch or tag {name} is missing, expected {wanted}")
    elif wanted is None:
        raise CommitRequirementFailed(f"Requirement failed: {kind} {name} was created concurrently")
    elif ref["snapshot-id"] != wanted:
        found = ref["snapshot-id"]
        raise CommitRequirementFailed(f"Requirement failed: {kind} {name} has changed: expected id {wanted} != {found}")


def _require_equal(member: str, in_metadata: str, text: str) -> Callable[[Json, Json], None]:
    def check(each: Json, current: Json) -> None:
        wanted, found = each.get(member), current.get(in_metadata)
        if wanted != found:
            raise CommitRequirementFailed(f"Requirement failed: {text}: expected {wanted} != {found}")

    return check


_REQUIREMENTS: Final[dict[str, Callable[[Json, Json], None]]] = {
    "assert-table-uuid": _require_uuid,
    "assert-ref-snapshot-id": _require_ref,
    "assert-last-assigned-field-id": _require_equal(
        "last-assigned-field-id", "last-column-id", "last assigned field id changed"
    ),
    "assert-current-schema-id": _require_equal("current-schema-id", "current-schema-id", "current schema changed"),
    "assert-last-assigned-partition-id": _require_equal(
        "last-assigned-partition-id", "last-partition-id", "last assigned partition id changed"
    ),
    "assert-default-spec-id": _require_equal("default-spec-id", "default-spec-id", "default partition spec changed"),
    "assert-default-sort-order-id": _require_equal(
        "default-sort-order-id", "default-sort-order-id", "default sort order changed"
    ),
}


# Updates.


class MetadataChange:
    """Applies the updates of one commit. ``current``: None for a new table. ``now_ms``: Unix milliseconds."""

    def __init__(self, current: Json | None, *, now_ms: int) -> None:
        self._base = current
        self._now_ms = now_ms
        self._is_changed = current is None
        self._updated_ms: int | None = None
        self._added: dict[str, int] = {}
        self._added_snapshots: set[int] = set()
        self._removed_snapshots = False
        self._set_main: list[int] = []
        self._metadata: Json = copy.deepcopy(current) if current is not None else _empty()

    def apply(self, update: Json) -> None:
        """Apply an update.

        Raises:
            InvalidRequest: an unknown update, or one that the specification forbids.
            CommitRequirementFailed: a snapshot that was made before another branch got one.
        """
        action = update.get("action")
        method = _UPDATES.get(str(action))
        if method is None:
            raise InvalidRequest(f"unknown update {action!r}")
        try:
            method(self, update)
        except (KeyError, TypeError, AttributeError) as error:
            raise InvalidRequest(
                f"the update {action!r} lacks a member, or has one of another type: {error}"
            ) from error

    @property
    def is_changed(self) -> bool:
        """Returns whether the updates changed anything."""
        return self._is_changed

    def finished(self, previous_location: str | None) -> Json:
        """Returns the new metadata. ``previous_location``: the file of the current one, None for a new table.

        Raises:
            InvalidRequest: a new table without a schema, or a partition spec or sort order without its column.
        """
        metadata = self._metadata
        if metadata.get("current-schema-id", _NONE) == _NONE or not metadata["schemas"]:
            raise InvalidRequest("the table has no schema")
        if "location" not in metadata:
            raise InvalidRequest("the table has no location")
        if not metadata["partition-specs"]:
            self._add_spec({"spec": {"fields": []}})
            self._set_default_spec({"spec-id": _NONE})
        if not metadata["sort-orders"]:
            self._add_order({"sort-order": {"fields": []}})
            self._set_default_order({"sort-order-id": _NONE})
        self._check_columns()
        metadata["snapshot-log"] = self._snapshot_log()
        metadata["last-updated-ms"] = self._now_ms if self._updated_ms is None else self._updated_ms
        if previous_location is not None and self._base is not None:
            entry = {"timestamp-ms": self._base["last-updated-ms"], "metadata-file": previous_location}
            log = [*self._base.get("metadata-log", ()), entry]
            metadata["metadata-log"] = log[-_max_previous(metadata["properties"]) :]
        if metadata["format-version"] == 1:
            schema = self._schema(metadata["current-schema-id"])
            spec = self._spec(metadata["default-spec-id"])
            metadata["schema"], metadata["partition-spec"] = schema, spec["fields"]
        return metadata

    # Table, schemas, specs and orders.

    def _assign_uuid(self, update: Json) -> None:
        uuid = str(update["uuid"])
        known = self._metadata.get("table-uuid")
        if known is not None and known.lower() != uuid.lower() and self._base is not None:
            raise InvalidRequest(f"cannot assign the UUID {uuid}: the table has {known}")
        self._set("table-uuid", uuid)

    def _upgrade(self, update: Json) -> None:
        version = _version_of(update["format-version"])
        known = self._metadata["format-version"]
        if self._base is not None and version < known:
            raise InvalidRequest(f"Cannot downgrade v{known} table to v{version}")
        if version >= WITH_ROW_IDS:
            self._metadata.setdefault("next-row-id", 0)
        self._set("format-version", version)

    def _add_schema(self, update: Json) -> None:
        schema = update["schema"]
        fields = checked_fields(schema, self._metadata["format-version"])
        last = max([self._metadata["last-column-id"], *_field_ids(fields)])
        known = next((each for each in self._metadata["schemas"] if same_schema(each, schema)), None)
        if known is not None:
            self._added["schema"] = known["schema-id"]
        else:
            number = max((each["schema-id"] for each in self._metadata["schemas"]), default=_NONE) + 1
            self._metadata["schemas"].append({**schema, "type": "struct", "schema-id": number})
            self._added["schema"] = number
            self._is_changed = True
        self._set("last-column-id", last)

    def _set_current_schema(self, update: Json) -> None:
        number = self._which(update["schema-id"], "schema")
        if all(each["schema-id"] != number for each in self._metadata["schemas"]):
            raise InvalidRequest(f"Cannot set current schema to unknown schema: {number}")
        self._set("current-schema-id", number)

    def _add_spec(self, update: Json) -> None:
        fields = _members(update["spec"], "fields")
        schema = self._schema(self._metadata["current-schema-id"])
        columns = set(_field_ids(schema["fields"]))
        names: set[str] = set()
        for field in fields:
            if field["source-id"] not in columns and field["transform"] != "void":
                raise InvalidRequest(f"Cannot find source column for partition field: {field['name']}")
            if field["name"] in names:
                raise InvalidRequest(f"the partition spec has the name {field['name']!r} twice")
            names.add(field["name"])
        known = next(
            (each for each in self._metadata["partition-specs"] if _spec_key(each["fields"]) == _spec_key(fields)), None
        )
        if known is not None:
            self._added["spec"] = known["spec-id"]
            return
        last = self._metadata["last-partition-id"]
        given = [field["field-id"] for field in fields if field.get("field-id") is not None]
        last = max([last, *given])
        written = []
        for field in fields:
            number = field.get("field-id")
            if number is None:
                last += 1
                number = last
            written.append({**field, "field-id": number})
        number = max((each["spec-id"] for each in self._metadata["partition-specs"]), default=_NONE) + 1
        self._metadata["partition-specs"].append({"spec-id": number, "fields": written})
        self._added["spec"] = number
        self._is_changed = True
        self._set("last-partition-id", last)

    def _set_default_spec(self, update: Json) -> None:
        number = self._which(update["spec-id"], "spec")
        if all(each["spec-id"] != number for each in self._metadata["partition-specs"]):
            raise InvalidRequest(f"Cannot set default partition spec to unknown spec: {number}")
        self._set("default-spec-id", number)

    def _add_order(self, update: Json) -> None:
        fields = _members(update["sort-order"], "fields")
        known = next((each for each in self._metadata["sort-orders"] if each["fields"] == fields), None)
        if known is not None:
            self._added["order"] = known["order-id"]
            return
        number = 0
        if fields:
            number = max((each["order-id"] for each in self._metadata["sort-orders"]), default=0) + 1
        self._metadata["sort-orders"].append({"order-id": number, "fields": list(fields)})
        self._added["order"] = number
        self._is_changed = True

    def _set_default_order(self, update: Json) -> None:
        number = self._which(update["sort-order-id"], "order")
        if all(each["order-id"] != number for each in self._metadata["sort-orders"]):
            raise InvalidRequest(f"Cannot set default sort order to unknown sort order: {number}")
        self._set("default-sort-order-id", number)

    def _remove_schemas(self, update: Json) -> None:
        self._remove_from("schemas", "schema-id", update["schema-ids"], "current-schema-id", "current schema")

    def _remove_specs(self, update: Json) -> None:
        self._remove_from("partition-specs", "spec-id", update["spec-ids"], "default-spec-id", "default partition spec")

    def _remove_from(self, name: str, key: str, numbers: Iterable[int], in_use: str, text: str) -> None:
        going = set(numbers)
        if self._metadata[in_use] in going:
            raise InvalidRequest(f"Cannot remove the {text}: {self._metadata[in_use]}")
        left = [each for each in self._metadata[name] if each[key] not in going]
        self._is_changed = self._is_changed or len(left) != len(self._metadata[name])
        self._metadata[name] = left

    def _set_location(self, update: Json) -> None:
        self._set("location", str(update["location"]).rstrip("/"))

    def _set_properties(self, update: Json) -> None:
        # "updated" and "removed" are the names of earlier clients.
        updates = update["updates"] if "updates" in update else update["updated"]
        given = {str(key): str(value) for key, value in updates.items()}
        self._set("properties", {**self._metadata["properties"], **given})

    def _remove_properties(self, update: Json) -> None:
        going = set(update["removals"] if "removals" in update else update["removed"])
        self._set("properties", {key: text for key, text in self._metadata["properties"].items() if key not in going})

    # Snapshots and refs.

    def _add_snapshot(self, update: Json) -> None:
        snapshot, version = dict(update["snapshot"]), self._metadata["format-version"]
        number = snapshot["snapshot-id"]
        if any(each["snapshot-id"] == number for each in self._metadata["snapshots"]):
            raise InvalidRequest(f"Snapshot already exists for id: {number}")
        if not isinstance(snapshot["timestamp-ms"], int) or not isinstance(number, int):
            raise InvalidRequest("a snapshot has an id and a time in milliseconds")
        sequence, last = snapshot.get("sequence-number", 0), self._metadata["last-sequence-number"]
        has_parent = snapshot.get("parent-snapshot-id") is not None
        if version >= WITH_SEQUENCE_NUMBERS and has_parent and sequence <= last:
            # Another branch has got a snapshot: the client makes its own anew.
            raise CommitRequirementFailed(
                f"Cannot add snapshot with sequence number {sequence} older than last sequence number {last}"
            )
        if version >= WITH_SEQUENCE_NUMBERS and not isinstance(snapshot.get("manifest-list"), str):
            raise InvalidRequest("a snapshot has a manifest list")
        if version >= WITH_ROW_IDS:
            self._count_rows(snapshot)
        self._metadata["last-sequence-number"] = max(last, sequence)
        self._metadata["snapshots"].append(snapshot)
        self._added_snapshots.add(number)
        self._updated_ms = snapshot["timestamp-ms"]
        self._is_changed = True

    def _count_rows(self, snapshot: Json) -> None:
        """Reserve the row ids of a snapshot's new rows."""
        first, rows, next_id = snapshot.get("first-row-id"), snapshot.get("added-rows"), self._metadata["next-row-id"]
        if not isinstance(first, int) or not isinstance(rows, int) or rows < 0:
            raise InvalidRequest("Cannot add a snapshot: first-row-id and added-rows are required in format version 3")
        if first < next_id:
            raise CommitRequirementFailed(
                f"Cannot add a snapshot with first-row-id {first}: behind table next-row-id {next_id}"
            )
        self._metadata["next-row-id"] = next_id + rows

    def _remove_snapshots(self, update: Json) -> None:
        going = set(update["snapshot-ids"])
        left = [each for each in self._metadata["snapshots"] if each["snapshot-id"] not in going]
        if len(left) == len(self._metadata["snapshots"]):
            return
        self._metadata["snapshots"] = left
        self._removed_snapshots = self._is_changed = True
        for name in ("statistics", "partition-statistics"):
            known = self._metadata.get(name, ())
            self._metadata[name] = [each for each in known if each["snapshot-id"] not in going]
        for name, ref in list(self._metadata["refs"].items()):
            if ref["snapshot-id"] in going:
                self._remove_ref({"ref-name": name})

    def _set_ref(self, update: Json) -> None:
        name, number, kind = str(update["ref-name"]), update["snapshot-id"], update["type"]
        if kind not in ("branch", "tag"):
            raise InvalidRequest(f"a ref is a branch or a tag, not {kind!r}")
        if name == MAIN and kind != "branch":
            raise InvalidRequest("main is a branch")
        snapshot = next((each for each in self._metadata["snapshots"] if each["snapshot-id"] == number), None)
        if snapshot is None:
            raise InvalidRequest(f"Cannot set {name} to unknown snapshot: {number}")
        ref = {"snapshot-id": number, "type": kind}
        for member in ("min-snapshots-to-keep", "max-snapshot-age-ms", "max-ref-age-ms"):
            value = update.get(member)
            if value is None:
                continue
            if not isinstance(value, int) or value <= 0:
                raise InvalidRequest(f"{member} must be greater than 0")
            if kind == "tag" and member != "max-ref-age-ms":
                raise InvalidRequest(f"tags do not support {member}")
            ref[member] = value
        if self._metadata["refs"].get(name) == ref:
            return
        if number in self._added_snapshots:
            self._updated_ms = snapshot["timestamp-ms"]
        if name == MAIN:
            self._metadata["current-snapshot-id"] = number
            at = self._now_ms if self._updated_ms is None else self._updated_ms
            self._updated_ms = at
            self._metadata["snapshot-log"].append({"timestamp-ms": at, "snapshot-id": number})
            self._set_main.append(number)
        self._metadata["refs"][name] = ref
        self._is_changed = True

    def _remove_ref(self, update: Json) -> None:
        name = str(update["ref-name"])
        if self._metadata["refs"].pop(name, None) is None:
            return
        if name == MAIN:
            self._metadata.pop("current-snapshot-id", None)
        self._is_changed = True

    # Statistics and keys.

    def _set_statistics(self, update: Json) -> None:
        self._replace("statistics", "snapshot-id", update["statistics"])

    def _remove_statistics(self, update: Json) -> None:
        self._drop("statistics", "snapshot-id", update["snapshot-id"])

    def _set_partition_statistics(self, update: Json) -> None:
        self._replace("partition-statistics", "snapshot-id", update["partition-statistics"])

    def _remove_partition_statistics(self, update: Json) -> None:
        self._drop("partition-statistics", "snapshot-id", update["snapshot-id"])

    def _add_key(self, update: Json) -> None:
        self._replace("encryption-keys", "key-id", update["encryption-key"])

    def _remove_key(self, update: Json) -> None:
        self._drop("encryption-keys", "key-id", update["key-id"])

    def _replace(self, name: str, key: str, entry: Json) -> None:
        known = self._metadata.get(name, ())
        self._set(name, [*(each for each in known if each[key] != entry[key]), entry])

    def _drop(self, name: str, key: str, value: Any) -> None:
        self._set(name, [each for each in self._metadata.get(name, ()) if each[key] != value])

    # Parts of the above.

    def _set(self, name: str, value: Any) -> None:
        if self._metadata.get(name) != value:
            self._metadata[name] = value
            self._is_changed = True

    def _which(self, number: int, kind: str) -> int:
        """Return the number, or for -1 the one that this commit added last."""
        if number != _NONE:
            return number
        if kind not in self._added:
            raise InvalidRequest(f"Cannot set last added {kind}: no {kind} has been added")
        return self._added[kind]

    def _schema(self, number: int) -> Json:
        return _numbered(self._metadata["schemas"], "schema-id", number, "schema")

    def _spec(self, number: int) -> Json:
        return _numbered(self._metadata["partition-specs"], "spec-id", number, "partition spec")

    def _check_columns(self) -> None:
        """Raise InvalidRequest if the default spec or order uses a column that the current schema does not have."""
        metadata = self._metadata
        columns = set(_field_ids(self._schema(metadata["current-schema-id"])["fields"]))
        for field in self._spec(metadata["default-spec-id"])["fields"]:
            if field["transform"] != "void" and not columns.issuperset(_sources(field)):
                raise InvalidRequest(f"Cannot find source column for partition field: {field['name']}")
        number = metadata["default-sort-order-id"]
        for field in _numbered(metadata["sort-orders"], "order-id", number, "sort order")["fields"]:
            if not columns.issuperset(_sources(field)):
                raise InvalidRequest(f"Cannot find source column for sort field: {_sources(field)}")

    def _snapshot_log(self) -> list[Json]:
        """Return the log without snapshots that were current only within this commit, and from the last gap on."""
        log: list[Json] = self._metadata["snapshot-log"]
        current = self._metadata.get("current-snapshot-id")
        between = self._added_snapshots.intersection(each for each in self._set_main if each != current)
        present = {each["snapshot-id"] for each in self._metadata["snapshots"]}
        found: list[Json] = []
        for entry in log:
            if entry["snapshot-id"] in present:
                if entry["snapshot-id"] not in between:
                    found.append(entry)
            elif self._removed_snapshots:
                found = []
        return found


_UPDATES: Final[dict[str, Callable[[MetadataChange, Json], None]]] = {
    "assign-uuid": MetadataChange._assign_uuid,
    "upgrade-format-version": MetadataChange._upgrade,
    "add-schema": MetadataChange._add_schema,
    "set-current-schema": MetadataChange._set_current_schema,
    "add-spec": MetadataChange._add_spec,
    "set-default-spec": MetadataChange._set_default_spec,
    "add-sort-order": MetadataChange._add_order,
    "set-default-sort-order": MetadataChange._set_default_order,
    "remove-schemas": MetadataChange._remove_schemas,
    "remove-partition-specs": MetadataChange._remove_specs,
    "set-location": MetadataChange._set_location,
    "set-properties": MetadataChange._set_properties,
    "remove-properties": MetadataChange._remove_properties,
    "add-snapshot": MetadataChange._add_snapshot,
    "remove-snapshots": MetadataChange._remove_snapshots,
    "set-snapshot-ref": MetadataChange._set_ref,
    "remove-snapshot-ref": MetadataChange._remove_ref,
    "set-statistics": MetadataChange._set_statistics,
    "remove-statistics": MetadataChange._remove_statistics,
    "set-partition-statistics": MetadataChange._set_partition_statistics,
    "remove-partition-statistics": MetadataChange._remove_partition_statistics,
    "add-encryption-key": MetadataChange._add_key,
    "remove-encryption-key": MetadataChange._remove_key,
}


def _empty() -> Json:
    return {
        "format-version": DEFAULT_VERSION,
        "last-sequence-number": 0,
        "last-column-id": 0,
        "schemas": [],
        "current-schema-id": _NONE,
        "partition-specs": [],
        "last-partition-id": _FIRST_PARTITION_ID - 1,
        "sort-orders": [],
        "properties": {},
        "refs": {},
        "snapshots": [],
        "snapshot-log": [],
        "metadata-log": [],
    }


def changed(
    current: Json | None, updates: Iterable[Json], previous_location: str | None, *, now_ms: int
) -> Json | None:
    """Returns the metadata after the updates of a commit; None if they change nothing.

    Raises:
        InvalidRequest: an update that the specification forbids.
        CommitRequirementFailed: a snapshot that was made before another branch got one.
    """
    change = MetadataChange(current, now_ms=now_ms)
    for update in updates:
        change.apply(update)
    return change.finished(previous_location) if change.is_changed else None


# Reading metadata.


def current_snapshot(metadata: Json) -> Json | None:
    """Returns the entry of the snapshot that the branch ``main`` is at."""
    number = metadata.get("current-snapshot-id", _NONE)
    return next((each for each in metadata["snapshots"] if each["snapshot-id"] == number), None)


def completed(metadata: Json) -> Json:
    """Returns the metadata of a file with the members that older writers left out.

    Raises:
        InvalidRequest: it lacks what the metadata of a table needs.
    """
    found = {name: value for name, value in metadata.items() if value is not None}
    for name in ("format-version", "location", "last-column-id"):
        if name not in found:
            raise InvalidRequest(f"it has no {name}")
    _version_of(found["format-version"])
    if "schemas" not in found and isinstance(found.get("schema"), dict):
        found["schemas"] = [{"schema-id": 0, **found["schema"]}]
    if not found.get("schemas"):
        raise InvalidRequest("it has no schemas")
    found.setdefault("current-schema-id", found["schemas"][0].get("schema-id", 0))
    if "partition-specs" not in found:
        fields = [
            {"field-id": _FIRST_PARTITION_ID + at, **field} for at, field in enumerate(found.get("partition-spec", ()))
        ]
        found["partition-specs"] = [{"spec-id": 0, "fields": fields}]
    found.setdefault("default-spec-id", 0)
    given = [field["field-id"] for spec in found["partition-specs"] for field in spec["fields"] if "field-id" in field]
    found.setdefault("last-partition-id", max([_FIRST_PARTITION_ID - 1, *given]))
    found.setdefault("sort-orders", [{"order-id": 0, "fields": []}])
    found.setdefault("default-sort-order-id", 0)
    found.setdefault("last-sequence-number", 0)
    found.setdefault("last-updated-ms", 0)
    for name in ("snapshots", "snapshot-log", "metadata-log"):
        found.setdefault(name, [])
    found.setdefault("properties", {})
    if found.get("current-snapshot-id") == _NONE:
        del found["current-snapshot-id"]
    refs = found.setdefault("refs", {})
    if "current-snapshot-id" in found and MAIN not in refs:
        refs[MAIN] = {"snapshot-id": found["current-snapshot-id"], "type": "branch"}
    current_schema(found)
    return found


def with_snapshots_of_refs(metadata: Json) -> Json:
    """Returns the metadata with only those snapshots that a branch or a tag is at."""
    named = {ref["snapshot-id"] for ref in metadata.get("refs", {}).values()}
    return {**metadata, "snapshots": [each for each in metadata["snapshots"] if each["snapshot-id"] in named]}


def current_schema(metadata: Json) -> Json:
    """Returns the current schema."""
    return _numbered(metadata["schemas"], "schema-id", metadata["current-schema-id"], "schema")


def fields_of(schema: Json) -> Iterator[tuple[str, Json]]:
    """Yields the path and the definition of each field, those of structs in other types included."""

    def below(kind: Any, name: str) -> Iterator[tuple[str, Json]]:
        if not isinstance(kind, dict):
            return
        if kind["type"] == "struct":
            for field in kind["fields"]:
                path = f"{name}.{field['name']}" if name else field["name"]
                yield path, field
                yield from below(field["type"], path)
        for part in ("element", "key", "value"):
            if part in kind:
                yield from below(kind[part], f"{name}.{part}")

    yield from below({**schema, "type": "struct"}, "")


def ids_of(schema: Json) -> Iterator[int]:
    """Yields the ids of all fields and parts."""
    return _field_ids(schema["fields"])


class RequiredFields(NamedTuple):
    """``names``: fields that must have a value in each row, by id; a count of nulls tells whether they have.
    ``unproven``: the path of one of which no count tells, None if there is none."""

    names: dict[int, str]
    unproven: str | None


def required_fields(schema: Json) -> RequiredFields:
    """Returns the fields that must have a value.

    A field of a struct has a null wherever the struct is null. So counts are about rows only if all structs around it
    are required, and a required struct needs such a field.
    """
    names: dict[int, str] = {}
    unproven: list[str] = []

    def below(fields: Iterable[Json], above: str, *, in_rows: bool) -> None:
        for field in fields:
            path, kind, is_required = f"{above}{field['name']}", field["type"], bool(field.get("required"))
            if isinstance(kind, str):
                if is_required and in_rows:
                    names[field["id"]] = path
                elif is_required:
                    unproven.append(path)
            elif kind["type"] == "struct":
                known = len(names)
                below(kind["fields"], f"{path}.", in_rows=in_rows and is_required)
                if is_required and len(names) == known:
                    unproven.append(path)
            elif is_required or _requires_parts(kind):
                unproven.append(path)

    below(schema["fields"], "", in_rows=True)
    return RequiredFields(names, unproven[0] if unproven else None)


def _requires_parts(kind: Any) -> bool:
    """Returns whether a part of a type must have a value; keys of maps have one anyway."""
    if not isinstance(kind, dict):
        return False
    if kind["type"] == "struct":
        return any(field.get("required") or _requires_parts(field["type"]) for field in kind["fields"])
    parts = [part for part in ("element", "key", "value") if part in kind]
    return any(kind.get(f"{part}-required") or _requires_parts(kind[part]) for part in parts)


def _numbered(entries: Iterable[Json], key: str, number: int, text: str) -> Json:
    found = next((each for each in entries if each[key] == number), None)
    if found is None:
        raise InvalidRequest(f"the table has no {text} with the id {number}")
    return found


def _members(value: Any, name: str) -> list[Json]:
    found = value.get(name) if isinstance(value, dict) else None
    if not isinstance(found, list) or not all(isinstance(each, dict) for each in found):
        raise InvalidRequest(f"{name} must be an array of objects")
    return found


def _sources(field: Json) -> list[int]:
    """Returns the columns of a partition field or a sort key; a transform of several has ``source-ids``."""
    return field["source-ids"] if field.get("source-ids") else [field["source-id"]]


def _version_of(given: Any) -> int:
    try:
        version = int(given)
    except (TypeError, ValueError) as error:
        raise InvalidRequest(f"format-version must be a number, not {given!r}") from error
    if version not in FORMAT_VERSIONS:
        raise InvalidRequest(f"Unsupported format version: v{version} (supported: v{FORMAT_VERSIONS[-1]})")
    return version


def _max_previous(properties: Mapping[str, str]) -> int:
    text = properties.get(_MAX_PREVIOUS, "")
    return max(1, int(text)) if text.isdigit() else _DEFAULT_PREVIOUS


def _field_ids(fields: Iterable[Json]) -> Iterator[int]:
    """Yields the ids of fields, and of all parts below them."""
    for field in fields:
        yield field["id"]
        yield from _part_ids(field["type"])


def _part_ids(kind: Any) -> Iterator[int]:
    if not isinstance(kind, dict):
        return
    if kind["type"] == "struct":
        yield from _field_ids(kind["fields"])
    elif kind["type"] == "list":
        yield kind["element-id"]
        yield from _part_ids(kind["element"])
    else:
        yield from (kind["key-id"], kind["value-id"])
        yield from _part_ids(kind["key"])
        yield from _part_ids(kind["value"])


def _types(fields: Iterable[Json]) -> Iterator[str]:
    """Yields the names of all primitive types."""

    def below(kind: Any) -> Iterator[str]:
        if isinstance(kind, str):
            yield kind
        elif kind["type"] == "struct":
            yield from _types(kind["fields"])
        else:
            for part in ("element", "key", "value"):
                if part in kind:
                    yield from below(kind[part])

    for field in fields:
        yield from below(field["type"])


_PRIMITIVE: Final = re.compile(
    r"boolean|int|long|float|double|date|time|timestamp|timestamptz|timestamp_ns|timestamptz_ns|string|uuid|binary"
    r"|variant|unknown|fixed\[\d+\]|decimal\(\s*\d+\s*,\s*\d+\s*\)|(?:geometry|geography)(?:\(.*\))?"
)


def _check_type(kind: str, version: int) -> None:
    if _PRIMITIVE.fullmatch(kind) is None:
        raise InvalidRequest(f"unknown type {kind!r}")
    needed = _TYPE_VERSIONS.get(kind.partition("(")[0], 1)
    if version < needed:
        raise InvalidRequest(f"Invalid type: {kind} is not supported until v{needed}")


def _check_names(fields: Iterable[Json]) -> None:
    names: set[str] = set()
    for field in fields:
        if field["name"] in names:
            raise InvalidRequest(f"the schema has the column {field['name']!r} twice")
        names.add(field["name"])


def checked_fields(schema: Json, format_version: int) -> list[Json]:
    """Returns the fields of a schema.

    Raises:
        InvalidRequest: a name or an id is there twice, or a type is unknown or needs a later format version.
    """
    fields = _members(schema, "fields")
    _check_names(fields)
    ids = list(_field_ids(fields))
    if len(set(ids)) != len(ids) or not all(isinstance(each, int) for each in ids):
        raise InvalidRequest("the schema has a field id twice, or one that is no number")
    for kind in _types(fields):
        _check_type(kind, format_version)
    return fields


def same_schema(one: Json, other: Json) -> bool:
    """Returns whether two schemas have the same fields and identifier fields; their own ids do not count."""
    return _plain(one["fields"]) == _plain(other["fields"]) and sorted(one.get("identifier-field-ids") or ()) == sorted(
        other.get("identifier-field-ids") or ()
    )


def _plain(value: Any) -> Any:
    """Returns a value without members that are null, and types without spaces."""
    if isinstance(value, dict):
        return {
            key: each.replace(" ", "") if key in _TYPE_MEMBERS and isinstance(each, str) else _plain(each)
            for key, each in value.items()
            if each is not None
        }
    return [_plain(each) for each in value] if isinstance(value, list) else value


_TYPE_MEMBERS: Final = ("type", "element", "key", "value")


def _spec_key(fields: Iterable[Json]) -> list[tuple[Any, ...]]:
    return [(tuple(_sources(field)), field["transform"], field["name"]) for field in fields]
