"""Jobs, their logs, and the schedules and policies that ask for them."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Forward. There is no way back: restore a backup instead."""
    op.create_table(
        "jobs",
        sa.Column("job_id", sa.String(36), primary_key=True),
        sa.Column("table_id", sa.String(36)),
        sa.Column("namespace", sa.String(128)),
        sa.Column("table_name", sa.String(128)),
        sa.Column("kind", sa.String(64), nullable=False),
        sa.Column("arguments", sa.Text(), nullable=False),
        sa.Column("state", sa.String(16), nullable=False),
        sa.Column("origin", sa.String(16), nullable=False),
        sa.Column("origin_name", sa.String(255)),
        sa.Column("priority", sa.Integer(), nullable=False),
        sa.Column("attempts", sa.Integer(), nullable=False),
        sa.Column("max_attempts", sa.Integer(), nullable=False),
        sa.Column("timeout_s", sa.Integer()),
        sa.Column("not_before_ms", sa.BigInteger(), nullable=False),
        sa.Column("created_ms", sa.BigInteger(), nullable=False),
        sa.Column("started_ms", sa.BigInteger()),
        sa.Column("finished_ms", sa.BigInteger()),
        sa.Column("heartbeat_ms", sa.BigInteger()),
        sa.Column("worker", sa.String(255)),
        sa.Column("lease_token", sa.String(36)),
        sa.Column("lease_expires_ms", sa.BigInteger()),
        sa.Column("cancel_requested", sa.Boolean(), nullable=False),
        sa.Column("progress", sa.Text()),
        sa.Column("checkpoint", sa.Text()),
        sa.Column("result", sa.Text()),
        sa.Column("error", sa.Text()),
        sa.Column("twin", sa.String(64)),
        sa.Column("log_lines", sa.BigInteger(), nullable=False),
    )
    op.create_index("ix_jobs_state_lease_expires_ms", "jobs", ["state", "lease_expires_ms"])
    op.create_index("ix_jobs_finished_ms", "jobs", ["finished_ms"])
    op.create_index("ix_jobs_table_id", "jobs", ["table_id"])
    op.create_index("uq_jobs_lease_token", "jobs", ["lease_token"], unique=True)
    _index_some("uq_jobs_running_table", "table_id", "state = 'running'")
    _index_some("uq_jobs_pending_twin", "twin", "finished_ms IS NULL")
    op.create_table(
        "job_log",
        sa.Column("job_id", sa.String(36), primary_key=True),
        sa.Column("number", sa.BigInteger(), primary_key=True, autoincrement=False),
        sa.Column("at_ms", sa.BigInteger(), nullable=False),
        sa.Column("level", sa.String(16), nullable=False),
        sa.Column("text", sa.Text(), nullable=False),
    )
    op.create_table(
        "schedules",
        sa.Column("table_id", sa.String(36), primary_key=True),
        sa.Column("name", sa.String(128), primary_key=True),
        sa.Column("kind", sa.String(64), nullable=False),
        sa.Column("arguments", sa.Text(), nullable=False),
        sa.Column("every_s", sa.BigInteger()),
        sa.Column("cron", sa.String(255)),
        sa.Column("time_zone", sa.String(64), nullable=False),
        sa.Column("enabled", sa.Boolean(), nullable=False),
        sa.Column("priority", sa.Integer(), nullable=False),
        sa.Column("max_attempts", sa.Integer()),
        sa.Column("timeout_s", sa.Integer()),
        sa.Column("created_ms", sa.BigInteger(), nullable=False),
        sa.Column("next_ms", sa.BigInteger()),
        sa.Column("last_ms", sa.BigInteger()),
        sa.Column("last_job_id", sa.String(36)),
    )
    op.create_index("ix_schedules_next_ms", "schedules", ["next_ms"])
    op.create_table(
        "policies",
        sa.Column("table_id", sa.String(36), primary_key=True),
        sa.Column("policy", sa.Text(), nullable=False),
        sa.Column("updated_ms", sa.BigInteger(), nullable=False),
        sa.Column("checked_ms", sa.BigInteger(), nullable=False),
        sa.Column("findings", sa.Text(), nullable=False),
        sa.Column("fired", sa.Text(), nullable=False),
    )
    op.create_index("ix_policies_checked_ms", "policies", ["checked_ms"])


def _index_some(index: str, column: str, where: str) -> None:
    some = sa.text(where)
    op.create_index(index, "jobs", [column], unique=True, sqlite_where=some, postgresql_where=some)
