"""The snapshots that audited requests committed."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0012"
down_revision = "0011"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Forward. There is no way back: restore a backup instead."""
    op.add_column("audit", sa.Column("snapshot_id", sa.String(36)))
    op.create_index("ix_audit_snapshot_id", "audit", ["snapshot_id"])
