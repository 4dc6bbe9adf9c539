"""Properties of tables, as Spark SQL gives them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

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
_SILENT: Final = ("owner", "is_managed_location", "provider", "table_type")


def own_properties(properties: Mapping[str, str]) -> tuple[dict[str, str], ClusterKind | None]:
    """Those that the table keeps, and the kind of its cluster key if it is named.

    Raises:
        InvalidRequest: one that cannot be had.
    """
    for name, reason in _REFUSED.items():
        if name in properties:
            raise InvalidRequest(f"{name} {properties[name]!r}: {reason}")
    provider = properties.get("provider", _PROVIDERS[0])
    if provider.lower() not in _PROVIDERS:
        raise InvalidRequest(f"a Lamella table is made of Parquet files, not of {provider}")
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
