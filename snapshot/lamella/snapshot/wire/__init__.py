"""What travels over HTTP: requests and answers, shared by the service and the clients (no HTTP library here).

Requests forbid members that are not known, so that a spelling mistake is an error and not silently nothing.
"""

from __future__ import annotations

from lamella.snapshot.wire.aggregate import (
    AggregateAnswer,
    AggregateColumn,
    AggregateFunction,
    AggregateGroup,
    AggregateMode,
    AggregateRequest,
    AggregateValue,
)
from lamella.snapshot.wire.catalog import (
    CreateNamespace,
    CreateTable,
    EvolveRequest,
    NamespaceInfo,
    NamespaceList,
    SchemaInfo,
    SnapshotInfo,
    SnapshotList,
    TableInfo,
    TableList,
)
from lamella.snapshot.wire.commit import (
    CommitAnswer,
    CommitRequest,
    RefusedFile,
    Register,
    RegisterAnswer,
)
from lamella.snapshot.wire.many import (
    BatchAnswer,
    BatchRequest,
    DiffAnswer,
    DiffRequest,
)
from lamella.snapshot.wire.problem import (
    Problem,
)
from lamella.snapshot.wire.prune import (
    BlockColumns,
    ColumnRanges,
    JoinKeys,
    Level,
    OrderBound,
    OrderBy,
    PruneAnswer,
    PrunedBlock,
    PrunedPages,
    PrunedSegment,
    PruneRequest,
    Residual,
    Shape,
    Verdict,
)
from lamella.snapshot.wire.report import (
    LayerUse,
    LimitUse,
    NotUsed,
    PageUse,
    PredicateUse,
    Report,
    Stage,
)

__all__ = [
    "AggregateAnswer",
    "AggregateColumn",
    "AggregateFunction",
    "AggregateGroup",
    "AggregateMode",
    "AggregateRequest",
    "AggregateValue",
    "BatchAnswer",
    "BatchRequest",
    "BlockColumns",
    "ColumnRanges",
    "CommitAnswer",
    "CommitRequest",
    "CreateNamespace",
    "CreateTable",
    "DiffAnswer",
    "DiffRequest",
    "EvolveRequest",
    "JoinKeys",
    "LayerUse",
    "Level",
    "LimitUse",
    "NamespaceInfo",
    "NamespaceList",
    "NotUsed",
    "OrderBound",
    "OrderBy",
    "PageUse",
    "PredicateUse",
    "Problem",
    "PruneAnswer",
    "PruneRequest",
    "PrunedBlock",
    "PrunedPages",
    "PrunedSegment",
    "RefusedFile",
    "Register",
    "RegisterAnswer",
    "Report",
    "Residual",
    "SchemaInfo",
    "Shape",
    "SnapshotInfo",
    "SnapshotList",
    "Stage",
    "TableInfo",
    "TableList",
    "Verdict",
]
