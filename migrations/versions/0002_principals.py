"""Keys of principals, the audit, whose each resource is, and sealed credentials of hosts.

Revises: 0001.
"""

from collections.abc import Sequence

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision: str = "0002"
down_revision: str | None = "0001"
branch_labels: str | Sequence[str] | None = None
depends_on: str | Sequence[str] | None = None

OWNED = ("model", "host", "endpoint_config", "endpoint")
SEALED = ("model", "endpoint_variant")


def upgrade() -> None:
    for table in OWNED:
        op.add_column(table, sa.Column("tenant", sa.Text(), server_default="", nullable=False))
    for table in SEALED:
        op.add_column(table, sa.Column("host_authorization", postgresql.BYTEA(), nullable=True))
    op.create_table(
        "access_key",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("tenant", sa.Text(), server_default="", nullable=False),
        sa.Column("role", sa.Text(), nullable=False),
        sa.Column("endpoints", postgresql.JSONB(), nullable=False),
        sa.Column("secret", postgresql.BYTEA(), nullable=False),
        sa.Column("enabled", sa.Boolean(), nullable=False),
        sa.Column("description", sa.Text(), nullable=True),
        sa.Column("requests_per_second", sa.Double(), nullable=True),
        sa.Column("concurrent_requests", sa.Integer(), nullable=True),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("expires_at", sa.DateTime(timezone=True), nullable=True),
        sa.CheckConstraint("kind IN ('access-key', 'api-key')", name="access_key_kind_check"),
        sa.CheckConstraint("role IN ('admin', 'operator', 'reader', 'invoke')", name="access_key_role_check"),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_table(
        "audit_record",
        sa.Column("id", sa.BigInteger(), sa.Identity(always=True), nullable=False),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("request_id", sa.Text(), nullable=False),
        sa.Column("principal", sa.Text(), nullable=False),
        sa.Column("tenant", sa.Text(), server_default="", nullable=False),
        sa.Column("source", sa.Text(), nullable=False),
        sa.Column("operation", sa.Text(), nullable=False),
        sa.Column("resource", sa.Text(), nullable=False),
        sa.Column("outcome", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index("audit_record_at", "audit_record", ["at"], unique=False)


def downgrade() -> None:
    op.drop_table("audit_record")
    op.drop_table("access_key")
    for table in SEALED:
        op.drop_column(table, "host_authorization")
    for table in OWNED:
        op.drop_column(table, "tenant")
