"""View metadata that Iceberg clients write: new views, requirements and updates of commits.

Metadata is a JSON object as the view specification describes it. What an update does, and when it is refused, follows
the REST specification (1.11) and ``ViewMetadata.Builder`` of Iceberg's Java library, which clients were written
against. One rule is wider: -1 stands for the schema or version of the last ``add-schema`` or ``add-view-version`` also
if an equal one was there before, since some clients send it without knowing.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from lamella.snapshot.errors import CommitRequirementFailed, InvalidRequest
from lamella.snapshot.iceberg.table_metadata import FORMAT_VERSIONS, Json, checked_fields, same_schema

#: The only format version of views.
FORMAT_VERSION: Final = 1
#: How many versions of a view are kept.
HISTORY_SIZE: Final = "version.history.num-entries"
_DEFAULT_HISTORY: Final = 10
#: Whether a new version may lack a dialect that the current one has.
DROPS_DIALECTS: Final = "replace.drop-dialect.allowed"
_LAST: Final = -1
_FIRST_VERSION: Final = 1
_MAX_ID: Final = (1 << 31) - 1
#: The schemas of views may have the types of every format version of tables.
_TYPES_OF: Final = FORMAT_VERSIONS[-1]
#: Members of a version by which two versions behave the same.
_MEANING: Final = ("summary", "representations", "default-catalog", "default-namespace", "schema-id")


def new_view(
    schema: Json, version: Json, *, properties: Mapping[str, str], location: str, view_uuid: str, now_ms: int
) -> Json:
    """Returns the metadata of a view with one version, which gets the id 1, and the operation ``create``.

    Raises:
        InvalidRequest: the schema or the version is not valid.
    """
    summary = version.get("summary")
    if isinstance(summary, dict):
        version = {**version, "summary": {"operation": "create", **summary}}
    change = ViewChange(None, now_ms=now_ms)
    updates: list[Json] = [
        {"action": "assign-uuid", "uuid": view_uuid},
        {"action": "set-location", "location": location},
        {"action": "set-properties", "updates": dict(properties)},
        {"action": "add-schema", "schema": schema},
        {"action": "add-view-version", "view-version": {**version, "version-id": _FIRST_VERSION, "schema-id": _LAST}},
        {"action": "set-current-view-version", "view-version-id": _LAST},
    ]
    for update in updates:
        change.apply(update)
    return change.finished()


def check_view_requirements(requirements: Iterable[Json], current: Json) -> None:
    """Raise CommitRequirementFailed if the view is not as a commit requires.

    Raises:
        InvalidRequest: an unknown requirement.
    """
    for each in requirements:
        if each.get("type") != "assert-view-uuid":
            raise InvalidRequest(f"unknown requirement {each.get('type')!r}")
        wanted, found = str(each.get("uuid")), str(current["view-uuid"])
        if wanted.lower() != found.lower():
            raise CommitRequirementFailed(f"Requirement failed: view UUID does not match: expected {wanted} != {found}")


def changed_view(current: Json, updates: Iterable[Json], *, now_ms: int) -> Json | None:
    """Returns the metadata after the updates of a commit; None if they change nothing.

    Raises:
        InvalidRequest: an update that the specification forbids.
    """
    change = ViewChange(current, now_ms=now_ms)
    for update in updates:
        change.apply(update)
    found = change.finished()
    return None if found == current else found


def check_view_metadata(metadata: Json) -> None:
    """Raise InvalidRequest unless a value is the metadata of a view."""
    try:
        if metadata["format-version"] != FORMAT_VERSION:
            raise InvalidRequest(f"Unsupported format version: {metadata['format-version']}")
        schemas = {_id(each["schema-id"], "schema-id") for each in metadata["schemas"]}
        for schema in metadata["schemas"]:
            checked_fields(schema, _TYPES_OF)
        versions = [_checked_version(each) for each in metadata["versions"]]
        if not schemas.issuperset(each["schema-id"] for each in versions):
            raise InvalidRequest("a version of the view has an unknown schema")
        ids = {each["version-id"] for each in versions}
        if metadata["current-version-id"] not in ids or len(ids) != len(versions):
            raise InvalidRequest("the ids of the view's versions are not unique, or the current one is not there")
        for entry in metadata["version-log"]:
            _id(entry["version-id"], "version-id")
            _time(entry["timestamp-ms"])
        if not isinstance(metadata["location"], str):
            raise InvalidRequest("the view has no location")
        _texts(metadata.get("properties", {}), "properties")
    except (KeyError, TypeError, AttributeError) as error:
        raise InvalidRequest(f"the metadata of the view lacks a member, or has one of another type: {error}") from error


def current_view_version(metadata: Json) -> Json:
    """Returns the current version."""
    return _numbered(metadata["versions"], "version-id", metadata["current-version-id"], "version")


def current_view_schema(metadata: Json) -> Json:
    """Returns the schema of the current version."""
    return _numbered(metadata["schemas"], "schema-id", current_view_version(metadata)["schema-id"], "schema")


def last_version_id(metadata: Json) -> int:
    """Returns the highest id of a version."""
    return max(int(each["version-id"]) for each in metadata["versions"])


class ViewChange:
    """Applies the updates of one commit. ``current``: None for a new view. ``now_ms``: Unix milliseconds."""

    def __init__(self, current: Json | None, *, now_ms: int) -> None:
        self._base = current
        self._now_ms = now_ms
        self._added: dict[str, int] = {}
        self._added_versions: set[int] = set()
        self._entry: Json | None = None
        self._metadata: Json = copy.deepcopy(current) if current is not None else _empty()

    def apply(self, update: Json) -> None:
        """Apply an update.

        Raises:
            InvalidRequest: an unknown update, or one that the specification forbids.
        """
        action = update.get("action")
        method = _UPDATES.get(str(action))
        if method is None:
            raise InvalidRequest(f"unknown update {action!r} of a view")
        try:
            method(self, update)
        except (KeyError, TypeError, AttributeError) as error:
            raise InvalidRequest(
                f"the update {action!r} lacks a member, or has one of another type: {error}"
            ) from error

    def finished(self) -> Json:
        """Returns the new metadata, with as many versions as are kept.

        Raises:
            InvalidRequest: a view without a location or a version, or a version that drops a dialect.
        """
        metadata = self._metadata
        if "location" not in metadata:
            raise InvalidRequest("Invalid location: null")
        if not metadata["versions"] or "current-version-id" not in metadata:
            raise InvalidRequest("Invalid view: no versions were added")
        if self._entry is not None:
            metadata["version-log"].append(self._entry)
        self._check_dialects()
        self._expire()
        return metadata

    def _check_dialects(self) -> None:
        """Raise InvalidRequest if the current version lacks a dialect that the one before the commit has."""
        if self._base is None or self._metadata["properties"].get(DROPS_DIALECTS, "false").lower() == "true":
            return
        before, after = _dialects(current_view_version(self._base)), _dialects(current_view_version(self._metadata))
        if not before <= after:
            raise InvalidRequest(
                f"Cannot replace view due to loss of view dialects ({DROPS_DIALECTS}=false):\n"
                f"Previous dialects: {sorted(before)}\nNew dialects: {sorted(after)}"
            )

    def _expire(self) -> None:
        """Remove old versions, but none that the commit added, nor the current one."""
        metadata = self._metadata
        current = metadata["current-version-id"]
        retained = max(len(self._added_versions | {current}), _history_size(metadata["properties"]))
        if len(metadata["versions"]) <= retained:
            return
        others = sorted((each["version-id"] for each in metadata["versions"]), reverse=True)
        others.remove(current)
        ids = {current, *others[: retained - 1]}
        metadata["versions"] = [each for each in metadata["versions"] if each["version-id"] in ids]
        log: list[Json] = []
        for entry in metadata["version-log"]:
            if entry["version-id"] in ids:
                log.append(entry)
            else:
                log = []  # the log begins after the last gap
        metadata["version-log"] = log

    # Updates.

    def _assign_uuid(self, update: Json) -> None:
        uuid, known = str(update["uuid"]), self._metadata.get("view-uuid")
        if known is not None and known.lower() != uuid.lower():
            raise InvalidRequest("Cannot reassign uuid")
        self._metadata.setdefault("view-uuid", uuid)

    def _upgrade(self, update: Json) -> None:
        version, known = update["format-version"], self._metadata["format-version"]
        if not isinstance(version, int) or version > FORMAT_VERSION:
            raise InvalidRequest(f"Unsupported format version: {version}")
        if version < known:
            raise InvalidRequest(f"Cannot downgrade v{known} view to v{version}")

    def _set_location(self, update: Json) -> None:
        location = update["location"]
        if not isinstance(location, str) or not location:
            raise InvalidRequest(f"Invalid location: {location!r}")
        self._metadata["location"] = location.rstrip("/")

    def _set_properties(self, update: Json) -> None:
        # "updated" and "removed" are the names of earlier clients.
        given = _texts(update["updates"] if "updates" in update else update["updated"], "updates")
        self._metadata["properties"] = {**self._metadata["properties"], **given}

    def _remove_properties(self, update: Json) -> None:
        going = set(update["removals"] if "removals" in update else update["removed"])
        known = self._metadata["properties"]
        self._metadata["properties"] = {key: text for key, text in known.items() if key not in going}

    def _add_schema(self, update: Json) -> None:
        schema, schemas = update["schema"], self._metadata["schemas"]
        checked_fields(schema, _TYPES_OF)
        known = next((each for each in schemas if same_schema(each, schema)), None)
        if known is None:
            number = max((each["schema-id"] for each in schemas), default=_LAST) + 1
            known = {**schema, "type": "struct", "schema-id": number}
            schemas.append(known)
        self._added["schema"] = known["schema-id"]

    def _add_version(self, update: Json) -> None:
        version, versions = _checked_version(update["view-version"]), self._metadata["versions"]
        version = {**version, "schema-id": self._which(version["schema-id"], "schema")}
        known = next((each for each in versions if _meaning(each) == _meaning(version)), None)
        if known is not None:
            self._added["version"] = known["version-id"]
            return
        _numbered(self._metadata["schemas"], "schema-id", version["schema-id"], "schema")
        number = max(version["version-id"], *(each["version-id"] + 1 for each in versions), 0)
        version["version-id"] = _id(number, "version-id")
        versions.append(version)
        self._added["version"] = number
        self._added_versions.add(number)

    def _set_current(self, update: Json) -> None:
        number = self._which(update["view-version-id"], "version")
        if self._metadata.get("current-version-id") == number:
            return
        version = _numbered(self._metadata["versions"], "version-id", number, "version")
        # an older version becomes current again now
        at = version["timestamp-ms"] if number in self._added_versions else self._now_ms
        self._metadata["current-version-id"] = number
        self._entry = {"timestamp-ms": at, "version-id": number}

    def _which(self, number: int, kind: str) -> int:
        """Return the number, or for -1 the one that this commit added last."""
        if number != _LAST:
            return number
        if kind not in self._added:
            raise InvalidRequest(f"Cannot set last added {kind}: no {kind} has been added")
        return self._added[kind]


_UPDATES: Final[dict[str, Callable[[ViewChange, Json], None]]] = {
    "assign-uuid": ViewChange._assign_uuid,
    "upgrade-format-version": ViewChange._upgrade,
    "add-schema": ViewChange._add_schema,
    "set-location": ViewChange._set_location,
    "set-properties": ViewChange._set_properties,
    "remove-properties": ViewChange._remove_properties,
    "add-view-version": ViewChange._add_version,
    "set-current-view-version": ViewChange._set_current,
}


def _empty() -> Json:
    return {"format-version": FORMAT_VERSION, "schemas": [], "versions": [], "version-log": [], "properties": {}}


def _checked_version(version: Json) -> Json:
    """Returns a copy of a version. Raises InvalidRequest if it is not valid."""
    if not isinstance(version, dict):
        raise InvalidRequest("a view version is an object")
    _id(version["version-id"], "version-id")
    if version["schema-id"] != _LAST:
        _id(version["schema-id"], "schema-id")
    _time(version["timestamp-ms"])
    _texts(version["summary"], "summary")
    namespace = version["default-namespace"]
    if not isinstance(namespace, list) or not all(isinstance(each, str) for each in namespace):
        raise InvalidRequest("default-namespace is an array of strings")
    if not isinstance(version.get("default-catalog"), str | None):
        raise InvalidRequest("default-catalog is a string")
    dialects: set[str] = set()
    for each in version["representations"]:
        if each["type"] != "sql":
            continue
        if not isinstance(each["sql"], str) or not isinstance(each["dialect"], str):
            raise InvalidRequest("an SQL representation has the strings sql and dialect")
        dialect = each["dialect"].lower()
        if dialect in dialects:
            raise InvalidRequest(
                f"Invalid view version: Cannot add multiple queries for dialect {dialect}",
                iceberg_type="IllegalArgumentException",  # Java's client raises this one
            )
        dialects.add(dialect)
    if not dialects:
        raise InvalidRequest("Invalid view version: it has no SQL representation")
    return dict(version)


def _meaning(version: Json) -> list[Any]:
    return [version.get(member) for member in _MEANING]


def _dialects(version: Json) -> set[str]:
    return {each["dialect"].lower() for each in version["representations"] if each["type"] == "sql"}


def _history_size(properties: Mapping[str, str]) -> int:
    text = properties.get(HISTORY_SIZE, str(_DEFAULT_HISTORY))
    try:
        size = int(text)
    except ValueError as error:
        raise InvalidRequest(f"{HISTORY_SIZE} must be a number, not {text!r}") from error
    if size <= 0:
        raise InvalidRequest(f"{HISTORY_SIZE} must be positive but was {size}")
    return size


def _numbered(entries: Iterable[Json], key: str, number: int, text: str) -> Json:
    found = next((each for each in entries if each[key] == number), None)
    if found is None:
        raise InvalidRequest(f"the view has no {text} with the id {number}")
    return found


def _id(value: Any, name: str) -> int:
    if type(value) is not int or not 0 <= value <= _MAX_ID:
        raise InvalidRequest(f"{name} must be a number from 0 to {_MAX_ID}, not {value!r}")
    return value


def _time(value: Any) -> None:
    if type(value) is not int or not 0 <= value < 1 << 63:
        raise InvalidRequest(f"timestamp-ms must be a time in milliseconds, not {value!r}")


def _texts(value: Any, name: str) -> dict[str, str]:
    if not isinstance(value, dict) or not all(isinstance(each, str) for each in value.values()):
        raise InvalidRequest(f"{name} must be an object of strings")
    return value
