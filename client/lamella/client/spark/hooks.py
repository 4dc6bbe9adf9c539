"""The hooks of Spark that a catalog can do without. Each is probed by itself, and falls back by itself.

Spark's versions add such interfaces and classes, rename them, and move them. Without one, our objects leave out its
interfaces: Spark then does that work itself, or refuses the statements for which it is needed. What a catalog cannot do
without is probed in ``attachment``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from lamella.client.spark.gateway import CONNECTOR, SQL

if TYPE_CHECKING:
    from lamella.client.spark.gateway import Gateway

_CATALOG: Final = CONNECTOR + "catalog."
_READ: Final = CONNECTOR + "read."
_WRITE: Final = CONNECTOR + "write."
_PROCEDURES: Final = CONNECTOR + "catalog.procedures."


class Hook(msgspec.Struct, frozen=True, kw_only=True):
    """Something of Spark that only some feature needs.

    ``without``: what that means for a user. ``interfaces``: our objects leave them out. ``classes``: what else of Spark
    is needed. ``compiles``: a class of our own for Spark's JVM, by its name in ``JvmClasses``. ``needs``: names
    of other hooks.
    """

    name: str
    without: str
    interfaces: tuple[str, ...] = ()
    classes: tuple[str, ...] = ()
    compiles: str = ""
    needs: tuple[str, ...] = ()


HOOKS: Final = (
    Hook(
        name="namespaces",
        without="SHOW, CREATE and DROP NAMESPACE are refused",
        interfaces=(_CATALOG + "SupportsNamespaces",),
    ),
    Hook(
        name="staged tables",
        without="CREATE TABLE AS is two commits, and REPLACE TABLE drops the table first",
        interfaces=(_CATALOG + "StagingTableCatalog", _CATALOG + "StagedTable"),
    ),
    Hook(
        name="views",
        without="there are no stored views, and tables with deleted rows are read by Python workers",
        interfaces=(_CATALOG + "RelationCatalog",),
        classes=(_CATALOG + "View$Builder",),
    ),
    Hook(
        name="changes",
        without="CHANGES, and changes as a frame, are refused",
        classes=(_CATALOG + "Changelog",),
        needs=("views",),
    ),
    Hook(
        name="procedures",
        without="CALL is refused",
        interfaces=(_CATALOG + "ProcedureCatalog",),
        classes=(_PROCEDURES + "UnboundProcedure", _PROCEDURES + "BoundProcedure"),
    ),
    Hook(
        name="constraints",
        without="CHECK is refused in DDL",
        classes=(_CATALOG + "constraints.Check",),
    ),
    Hook(
        name="schema evolution",
        without="WITH SCHEMA EVOLUTION is refused",
        interfaces=(_CATALOG + "SupportsSchemaEvolution",),
    ),
    Hook(
        name="metadata columns",
        without="there is no _metadata",
        interfaces=(_CATALOG + "SupportsMetadataColumns",),
        classes=(_CATALOG + "MetadataColumn",),
    ),
    Hook(
        name="indexes",
        without="CREATE INDEX and DROP INDEX are refused",
        interfaces=(_CATALOG + "index.SupportsIndex",),
    ),
    Hook(
        name="writes",
        without="INSERT and other writes are refused",
        interfaces=(_CATALOG + "SupportsWrite",),
        classes=(
            *(_WRITE + "SupportsOverwriteV2", _WRITE + "SupportsDynamicOverwrite", _WRITE + "V1Write"),
            SQL + "sources.InsertableRelation",
        ),
    ),
    Hook(
        name="deletes by filter",
        without="a DELETE whose condition the service can decide runs in Spark",
        interfaces=(_CATALOG + "SupportsDeleteV2",),
    ),
    Hook(
        name="row-level operations",
        without="UPDATE, MERGE, and a DELETE that runs in Spark, are refused",
        interfaces=(_CATALOG + "SupportsRowLevelOperations",),
        classes=(
            *(_WRITE + "RowLevelOperationBuilder", _WRITE + "RowLevelOperation"),
            *(_WRITE + "WriteBuilder", _WRITE + "Write", _WRITE + "BatchWrite"),
        ),
        needs=("metadata columns", "writes"),
    ),
    Hook(
        name="streaming reads",
        without="readStream.table is refused",
        classes=(_READ + "streaming.MicroBatchStream", _READ + "streaming.SupportsTriggerAvailableNow"),
    ),
    Hook(
        name="streaming writes",
        without="writeStream.toTable is refused",
        classes=(_WRITE + "streaming.StreamingWrite",),
        needs=("writes",),
    ),
    Hook(
        name="limits",
        without="LIMIT leaves out no blocks",
        interfaces=(_READ + "SupportsPushDownLimit",),
    ),
    Hook(
        name="top n",
        without="ORDER BY ... LIMIT leaves out no blocks",
        interfaces=(_READ + "SupportsPushDownTopN",),
    ),
    Hook(
        name="aggregates",
        without="Spark computes all aggregates itself",
        interfaces=(_READ + "SupportsPushDownAggregates",),
    ),
    Hook(
        name="join keys",
        without="join keys leave out no blocks",
        interfaces=(_READ + "SupportsRuntimeV2Filtering",),
        compiles="keys",
    ),
    Hook(
        name="subqueries",
        without="conditions with subqueries leave out no blocks",
        compiles="subqueries",
        needs=("join keys",),
    ),
    Hook(
        name="statistics of scans",
        without="Spark guesses how much a scan reads",
        interfaces=(_READ + "SupportsReportStatistics",),
    ),
    Hook(
        name="statistics of columns",
        without="Spark's optimiser has no statistics of columns",
        classes=(_READ + "colstats.ColumnStatistics",),
        needs=("statistics of scans",),
    ),
    Hook(
        name="expressions as text",
        without="long filters take longer to plan",
        compiles="expressions",
    ),
)


def probe_hooks(gateway: Gateway) -> dict[Hook, str]:
    """Return the hooks that this version of Spark lacks, each with the reason. From then on the gateway's proxies do
    without them."""
    missing: dict[Hook, str] = {}
    names: set[str] = set()
    for hook in HOOKS:
        reasons = [
            *(f"needs {each}" for each in hook.needs if each in names),
            *(f"no {each}" for each in (*hook.interfaces, *hook.classes) if not gateway.has_class(each)),
        ]
        if not reasons and hook.compiles and (error := gateway.compile_error(hook.compiles)) is not None:
            reasons.append(error)
        if reasons:
            missing[hook] = reasons[0]
            names.add(hook.name)
    gateway.missing_hooks = frozenset(names)
    gateway.missing_interfaces = frozenset(each for hook in missing for each in hook.interfaces)
    return missing
