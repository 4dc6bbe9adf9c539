"""The routes: each reads a request, calls one thing, and writes its answer."""

from __future__ import annotations

from lamella.service.api import Operation
from lamella.service.routes.access import AccessRoutes
from lamella.service.routes.advice import AdviceRoutes
from lamella.service.routes.aggregate import AggregateRoutes
from lamella.service.routes.changes import ChangesRoutes
from lamella.service.routes.clustering import ClusteringRoutes
from lamella.service.routes.commits import CommitRoutes
from lamella.service.routes.config import ConfigRoutes
from lamella.service.routes.dropped import DroppedRoutes
from lamella.service.routes.external import ExternalRoutes
from lamella.service.routes.feedback import FeedbackRoutes
from lamella.service.routes.health import HealthRoutes
from lamella.service.routes.history import HistoryRoutes
from lamella.service.routes.iceberg_catalog import IcebergCatalogRoutes
from lamella.service.routes.iceberg_scans import IcebergScanRoutes
from lamella.service.routes.iceberg_tokens import IcebergTokenRoutes
from lamella.service.routes.indexes import IndexRoutes
from lamella.service.routes.jobs import JobRoutes
from lamella.service.routes.maintenance import MaintenanceRoutes
from lamella.service.routes.namespaces import NamespaceRoutes
from lamella.service.routes.prune import PruneRoutes
from lamella.service.routes.prune_many import PruneManyRoutes
from lamella.service.routes.rewriting import RewritingRoutes
from lamella.service.routes.rollback import RollbackRoutes
from lamella.service.routes.schema import SchemaRoutes
from lamella.service.routes.shared_tables import SharedTableRoutes
from lamella.service.routes.shares import ShareRoutes
from lamella.service.routes.tables import TableRoutes
from lamella.service.routes.tags import TagRoutes
from lamella.service.routes.upkeep import UpkeepRoutes
from lamella.service.routes.verify import VerifyRoutes
from lamella.service.routes.watching import WatchRoutes
from lamella.service.routes.workers import WorkerRoutes
from lamella.service.services import Services


def operations(services: Services) -> tuple[Operation, ...]:
    """Every operation of the API. The prune route comes first: routes are tried in this order."""
    return (
        *PruneRoutes(services).operations(),
        *PruneManyRoutes(services).operations(),
        *AggregateRoutes(services).operations(),
        *HealthRoutes(services).operations(),
        *CommitRoutes(services).operations(),
        *ExternalRoutes(services).operations(),
        *TableRoutes(services).operations(),
        *SchemaRoutes(services).operations(),
        *NamespaceRoutes(services).operations(),
        *HistoryRoutes(services).operations(),
        *TagRoutes(services).operations(),
        *RollbackRoutes(services).operations(),
        *ChangesRoutes(services).operations(),
        *DroppedRoutes(services).operations(),
        *IndexRoutes(services).operations(),
        *ClusteringRoutes(services).operations(),
        *RewritingRoutes(services).operations(),
        *AdviceRoutes(services).operations(),
        *FeedbackRoutes(services).operations(),
        *VerifyRoutes(services).operations(),
        *MaintenanceRoutes(services).operations(),
        *JobRoutes(services).operations(),
        *WorkerRoutes(services).operations(),
        *UpkeepRoutes(services).operations(),
        *WatchRoutes(services).operations(),
        *AccessRoutes(services).operations(),
        *ConfigRoutes(services).operations(),
        *ShareRoutes(services).operations(),
        *SharedTableRoutes(services).operations(),
        *IcebergCatalogRoutes(services).operations(),
        *IcebergScanRoutes(services).operations(),
        *IcebergTokenRoutes(services, services.clock).operations(),
    )
