"""Initial schema.

Revises: nothing.
"""

from collections.abc import Sequence

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision: str = "0001"
down_revision: str | None = None
branch_labels: str | Sequence[str] | None = None
depends_on: str | Sequence[str] | None = None

STATUSES = (
    "'OutOfService', 'Creating', 'Updating', 'SystemUpdating', 'RollingBack', 'InService', 'Deleting', 'Failed',"
    " 'UpdateRollbackFailed'"
)
STRATEGIES = "'RANDOM', 'LEAST_OUTSTANDING_REQUESTS', 'PREFIX_AWARE'"
PREFIX_CHECK = (
    "(routing_strategy = 'PREFIX_AWARE') = (prefix_length IS NOT NULL)"
    " AND (routing_strategy = 'PREFIX_AWARE') = (concurrency_threshold IS NOT NULL)"
)


def upgrade() -> None:
    _models_and_hosts()
    _configs()
    _endpoints()
    _endpoint_variants()
    _routes_and_tags()


def downgrade() -> None:
    op.drop_table("published_endpoint")
    op.drop_table("publication")
    op.drop_table("heartbeat")
    op.drop_table("tag")
    op.drop_table("host_health")
    op.drop_table("binding")
    op.drop_table("deployment")
    op.drop_table("endpoint_variant")
    op.drop_table("endpoint")
    op.drop_table("production_variant")
    op.drop_table("endpoint_config")
    op.drop_table("model_host")
    op.drop_table("host")
    op.drop_table("model")


def _models_and_hosts() -> None:
    op.create_table(
        "model",
        sa.Column("id", sa.BigInteger(), sa.Identity(always=True), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("ping_path", sa.Text(), nullable=False),
        sa.Column("sent", postgresql.JSONB(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index("model_name_key", "model", [sa.literal_column("lower(name)")], unique=True)
    op.create_table(
        "host",
        sa.Column("id", sa.BigInteger(), sa.Identity(always=True), nullable=False),
        sa.Column("identity", sa.Text(), nullable=False),
        sa.Column("base_url", sa.Text(), nullable=False),
        sa.Column("seen_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index("host_base_url", "host", ["base_url"], unique=False)
    op.create_index("host_identity_key", "host", ["identity"], unique=True)
    op.create_table(
        "model_host",
        sa.Column("model_id", sa.BigInteger(), nullable=False),
        sa.Column("host_id", sa.BigInteger(), nullable=False),
        sa.Column("source", sa.Text(), nullable=False),
        sa.Column("ttl_seconds", sa.Integer(), nullable=True),
        sa.Column("registered_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("expires_at", sa.DateTime(timezone=True), nullable=True),
        sa.CheckConstraint("source IN ('Environment', 'Registration')", name="model_host_source_check"),
        sa.ForeignKeyConstraint(
            ["host_id"],
            ["host.id"],
        ),
        sa.ForeignKeyConstraint(["model_id"], ["model.id"], ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("model_id", "host_id"),
    )
    op.create_index("model_host_host", "model_host", ["host_id"], unique=False)


def _configs() -> None:
    op.create_table(
        "endpoint_config",
        sa.Column("id", sa.BigInteger(), sa.Identity(always=True), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("sent", postgresql.JSONB(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index("endpoint_config_name_key", "endpoint_config", [sa.literal_column("lower(name)")], unique=True)
    op.create_table(
        "production_variant",
        sa.Column("config_id", sa.BigInteger(), nullable=False),
        sa.Column("position", sa.Integer(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("model_name", sa.Text(), nullable=False),
        sa.Column("instance_count", sa.Integer(), nullable=False),
        sa.Column("weight", sa.Double(), nullable=False),
        sa.Column("routing_strategy", sa.Text(), nullable=False),
        sa.Column("prefix_length", sa.Integer(), nullable=True),
        sa.Column("concurrency_threshold", sa.Integer(), nullable=True),
        sa.Column("sent", postgresql.JSONB(), nullable=False),
        sa.CheckConstraint(
            PREFIX_CHECK,
            name="production_variant_prefix_check",
        ),
        sa.CheckConstraint(
            f"routing_strategy IN ({STRATEGIES})",
            name="production_variant_routing_strategy_check",
        ),
        sa.ForeignKeyConstraint(["config_id"], ["endpoint_config.id"], ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("config_id", "position"),
    )
    op.create_index("production_variant_name_key", "production_variant", ["config_id", "name"], unique=True)


def _endpoints() -> None:
    op.create_table(
        "endpoint",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("status", sa.Text(), nullable=False),
        sa.Column("config_name", sa.Text(), nullable=False),
        sa.Column("sent_config", postgresql.JSONB(), nullable=False),
        sa.Column("deployment_config", postgresql.JSONB(), nullable=True),
        sa.Column("failure_reason", sa.Text(), nullable=True),
        sa.Column("revision", sa.BigInteger(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("modified_at", sa.DateTime(timezone=True), nullable=False),
        sa.CheckConstraint(
            f"status IN ({STATUSES})",
            name="endpoint_status_check",
        ),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index("endpoint_name_key", "endpoint", [sa.literal_column("lower(name)")], unique=True)
    op.create_table(
        "deployment",
        sa.Column("endpoint_id", sa.Text(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("config_name", sa.Text(), nullable=False),
        sa.Column("sent_config", postgresql.JSONB(), nullable=False),
        sa.Column("deployment_config", postgresql.JSONB(), nullable=True),
        sa.Column("promoted", sa.Boolean(), nullable=False),
        sa.Column("started_at", sa.DateTime(timezone=True), nullable=False),
        sa.CheckConstraint("kind IN ('CREATE', 'UPDATE', 'CAPACITY')", name="deployment_kind_check"),
        sa.ForeignKeyConstraint(["endpoint_id"], ["endpoint.id"], ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("endpoint_id"),
    )
    op.create_table(
        "binding",
        sa.Column("host_id", sa.BigInteger(), nullable=False),
        sa.Column("endpoint_id", sa.Text(), nullable=False),
        sa.Column("active_variant", sa.Text(), nullable=True),
        sa.Column("pending_variant", sa.Text(), nullable=True),
        sa.ForeignKeyConstraint(
            ["endpoint_id"],
            ["endpoint.id"],
        ),
        sa.ForeignKeyConstraint(
            ["host_id"],
            ["host.id"],
        ),
        sa.PrimaryKeyConstraint("host_id"),
    )
    op.create_index("binding_endpoint", "binding", ["endpoint_id"], unique=False)
    op.create_table(
        "host_health",
        sa.Column("host_id", sa.BigInteger(), nullable=False),
        sa.Column("path", sa.Text(), nullable=False),
        sa.Column("healthy", sa.Boolean(), nullable=False),
        sa.Column("failures", sa.Integer(), nullable=False),
        sa.Column("changed_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("error", sa.Text(), nullable=True),
        sa.Column("next_probe_at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(["host_id"], ["host.id"], ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("host_id", "path"),
    )
    op.create_index("host_health_next_probe", "host_health", ["next_probe_at"], unique=False)


def _endpoint_variants() -> None:
    op.create_table(
        "endpoint_variant",
        sa.Column("endpoint_id", sa.Text(), nullable=False),
        sa.Column("stage", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("position", sa.Integer(), nullable=False),
        sa.Column("model_id", sa.BigInteger(), nullable=False),
        sa.Column("model_name", sa.Text(), nullable=False),
        sa.Column("ping_path", sa.Text(), nullable=False),
        sa.Column("instance_count", sa.Integer(), nullable=False),
        sa.Column("weight", sa.Double(), nullable=False),
        sa.Column("routing_strategy", sa.Text(), nullable=False),
        sa.Column("prefix_length", sa.Integer(), nullable=True),
        sa.Column("concurrency_threshold", sa.Integer(), nullable=True),
        sa.Column("sent", postgresql.JSONB(), nullable=False),
        sa.Column("started_at", sa.DateTime(timezone=True), nullable=False),
        sa.CheckConstraint(
            PREFIX_CHECK,
            name="endpoint_variant_prefix_check",
        ),
        sa.CheckConstraint(
            f"routing_strategy IN ({STRATEGIES})",
            name="endpoint_variant_routing_strategy_check",
        ),
        sa.CheckConstraint("stage IN ('ACTIVE', 'PENDING')", name="endpoint_variant_stage_check"),
        sa.ForeignKeyConstraint(["endpoint_id"], ["endpoint.id"], ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("endpoint_id", "stage", "name"),
    )


def _routes_and_tags() -> None:
    op.create_table(
        "publication",
        sa.Column("id", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("epoch", sa.Text(), nullable=False),
        sa.Column("generation", sa.BigInteger(), nullable=False),
        sa.Column("routes", postgresql.BYTEA(), nullable=True),
        sa.Column("published_at", sa.DateTime(timezone=True), nullable=True),
        sa.CheckConstraint("id = 1", name="publication_one_row_check"),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_table(
        "published_endpoint",
        sa.Column("endpoint_id", sa.Text(), nullable=False),
        sa.Column("revision", sa.BigInteger(), nullable=False),
        sa.Column("generation", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("endpoint_id"),
    )
    op.create_table(
        "heartbeat",
        sa.Column("id", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("beat_at", sa.DateTime(timezone=True), nullable=False),
        sa.CheckConstraint("id = 1", name="heartbeat_one_row_check"),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_table(
        "tag",
        sa.Column("resource", sa.Text(), nullable=False),
        sa.Column("key", sa.Text(), nullable=False),
        sa.Column("value", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("resource", "key"),
    )
    # The epoch is this database's identity: generations of another one do not compare.
    op.execute(
        "INSERT INTO publication (id, epoch, generation) VALUES (1, replace(gen_random_uuid()::text, '-', ''), 0)"
    )
    op.execute("INSERT INTO heartbeat (id, beat_at) VALUES (1, now())")
