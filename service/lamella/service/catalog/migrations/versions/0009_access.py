"""API keys, and who may do what."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Forward. There is no way back: restore a backup instead."""
    op.create_table(
        "api_keys",
        sa.Column("name", sa.String(128), primary_key=True),
        sa.Column("sha256", sa.String(64), nullable=False),
        sa.Column("old_sha256", sa.String(64)),
        sa.Column("old_until_ms", sa.BigInteger()),
        sa.Column("created_ms", sa.BigInteger(), nullable=False),
        sa.Column("created_by", sa.String(255), nullable=False),
        sa.Column("expires_ms", sa.BigInteger()),
        sa.Column("rotated_ms", sa.BigInteger()),
        sa.Column("used_ms", sa.BigInteger()),
        sa.Column("requests_per_s", sa.Double()),
    )
    op.create_index("ix_api_keys_sha256", "api_keys", ["sha256"], unique=True)
    op.create_index("ix_api_keys_old_sha256", "api_keys", ["old_sha256"], unique=True)
    op.create_table(
        "grants",
        sa.Column("principal", sa.String(255), primary_key=True),
        # Empty: on all of them.
        sa.Column("namespace", sa.String(128), primary_key=True),
        sa.Column("table_name", sa.String(128), primary_key=True),
        sa.Column("role", sa.String(16), nullable=False),
        sa.Column("created_ms", sa.BigInteger(), nullable=False),
        sa.Column("created_by", sa.String(255), nullable=False),
    )
