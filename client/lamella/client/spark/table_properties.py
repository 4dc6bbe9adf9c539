"""Properties of tables, as Spark SQL gives them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from lamella.client.spark.lake import CLUSTER_KEY, CLUSTER_KIND, SNAPSHOT_ID
from lamella.snapshot.errors import InvalidRequest
from lamella.snapshot.manifest import ClusterKind

_KINDS: Final[tuple[ClusterKind, ...]] = ("linear", "zorder", "hilbert")
#: What Spark says of a table by properties, and why it cannot be had.
_REFUSED: Final = {
    "location": "the service decides where a table is",
    "external": "the service decides where a table is",
    "collation": "a table has no collation",
    CLUSTER_KEY: "it is set by CLUSTER BY",
    SNAPSHOT_ID: "it is shown and not set",
}
#: The formats of a table that SQL may name: blocks are Parquet files.
_PROVIDERS: Final = ("lamella", "parquet")
#: USING, STORED AS, STORED AS INPUTFORMAT ... OUTPUTFORMAT, ROW FORMAT SERDE.
_FORMATS: Final = ("provider", "hive.stored-as", "hive.input-format", "hive.output-format", "hive.serde")
_SILENT: Final = (*_FORMATS, "owner", "is_managed_location", "table_type")


def own_properties(properties: Mapping[str, str]) -> tuple[dict[str, str], ClusterKind | None]:
    """Those that the table keeps, and the kind of its cluster key if it is named.

    Raises:
        InvalidRequest: one that cannot be had.
    """
    for name, reason in _REFUSED.items():
        if name in properties:
            raise InvalidRequest(f"{name} {properties[name]!r}: {reason}")
    for format_key in _FORMATS:
        given_format = properties.get(format_key, _PROVIDERS[0])
        if given_format.lower() not in _PROVIDERS:
            raise InvalidRequest(f"a Lamella table is made of Parquet files, not of {given_format}")
    options = sorted(name for name in properties if name.startswith("option."))
    if options:
        raise InvalidRequest(f"a table has no options: {options[0].removeprefix('option.')}")
    own = {name: text for name, text in properties.items() if name not in _SILENT}
    given = own.pop(CLUSTER_KIND, None)
    kind = next((known for known in _KINDS if known == (given or "").lower()), None)
    if given is not None and kind is None:
        raise InvalidRequest(f"{CLUSTER_KIND} is one of {', '.join(_KINDS)}, not {given!r}")
    return own, kind


def namespace_properties(properties: Mapping[str, str]) -> dict[str, str]:
    """Those that a namespace keeps; raises InvalidRequest for one that cannot be had."""
    if "location" in properties:
        raise InvalidRequest(f"location {properties['location']!r}: {_REFUSED['location']}")
    return {name: text for name, text in properties.items() if name not in _SILENT}


def namespace_changes(changes: Iterable[Any]) -> tuple[dict[str, str], list[str]]:
    """Properties that Spark's ``NamespaceChange`` objects set, and those that they remove; raises InvalidRequest."""
    given: dict[str, str] = {}
    removed = []
    for change in changes:
        if str(change.getClass().getSimpleName()) == "RemoveProperty":
            removed.append(str(change.property()))
        else:
            given[str(change.property())] = str(change.value())
    return namespace_properties(given), removed
