"""The tables. Migrations build them; ``alembic check`` in the tests finds any difference.

What the API echoes is kept as it was sent (``sent``); typed columns beside it are what routing and lists need.
Enumerations are text with a check that holds the API's own values. Times are UTC with time zone, weights float8.
A resource's name is one whatever its case, since ARNs are lower case: unique on lower(name).
"""

from datetime import datetime
from typing import Any

from sqlalchemy import BigInteger, CheckConstraint, Column, DateTime, Double, ForeignKey, Identity, Index, Text, text
from sqlalchemy.dialects.postgresql import BYTEA, JSONB
from sqlmodel import Field, SQLModel

STATUSES = (
    "OutOfService",
    "Creating",
    "Updating",
    "SystemUpdating",
    "RollingBack",
    "InService",
    "Deleting",
    "Failed",
    "UpdateRollbackFailed",
)
STRATEGIES = ("RANDOM", "LEAST_OUTSTANDING_REQUESTS", "PREFIX_AWARE")
STAGES = ("ACTIVE", "PENDING")
"""ACTIVE serves, or did last; PENDING is being deployed."""
DEPLOYMENT_KINDS = ("CREATE", "UPDATE", "CAPACITY")
HOST_SOURCES = ("Environment", "Registration")
KEY_KINDS = ("access-key", "api-key")
ROLES = ("admin", "operator", "reader", "invoke")


def _one_of(column: str, values: tuple[str, ...]) -> str:
    return f"{column} IN ({', '.join(repr(value) for value in values)})"


def _number() -> Column[int]:
    return Column(BigInteger, Identity(always=True), primary_key=True)


def _time(*, null: bool = False) -> Column[datetime]:
    return Column(DateTime(timezone=True), nullable=null)


def _text(*, null: bool = False) -> Column[str]:
    return Column(Text, nullable=null)


def _tenant() -> Column[str]:
    """Whose row it is; empty: the installation's. The default lets an older build beside this one insert rows."""
    return Column(Text, nullable=False, server_default="")


def _json(*, null: bool = False) -> Column[Any]:
    return Column(JSONB(none_as_null=True), nullable=null)


def _of(target: str, *, cascade: bool = True, primary_key: bool = True) -> Column[Any]:
    kind = Text if target == "endpoint.id" else BigInteger
    rule = "CASCADE" if cascade else None
    return Column(kind, ForeignKey(target, ondelete=rule), primary_key=primary_key, nullable=False)


class Model(SQLModel, table=True):
    """One CreateModel. An endpoint remembers ``id``, so that another model under the same name is not taken for it."""

    __tablename__ = "model"
    __table_args__ = (Index("model_name_key", text("lower(name)"), unique=True),)

    id: int = Field(default=None, sa_column=_number())
    name: str = Field(sa_column=_text())
    tenant: str = Field(default="", sa_column=_tenant())
    ping_path: str = Field(sa_column=_text())
    sent: dict[str, Any] = Field(sa_column=_json())
    """The request, without its tags, and with asterisks for the host's own credential."""
    host_authorization: bytes | None = Field(default=None, sa_column=Column(BYTEA))
    """WARMROUTE_HOST_AUTHORIZATION of the Environment, sealed."""
    created_at: datetime = Field(sa_column=_time())


class Host(SQLModel, table=True):
    """One model host, whatever pools it is in. ``id`` is the instance's number in the routing table."""

    __tablename__ = "host"
    __table_args__ = (Index("host_identity_key", "identity", unique=True), Index("host_base_url", "base_url"))

    id: int = Field(default=None, sa_column=_number())
    identity: str = Field(sa_column=_text())
    tenant: str = Field(default="", sa_column=_tenant())
    """Whoever put it into a pool; nobody else may, or one tenant could move another's host to an address of its own."""
    base_url: str = Field(sa_column=_text())
    seen_at: datetime = Field(sa_column=_time())
    """When it was last put into a pool or taken from an endpoint."""


class ModelHost(SQLModel, table=True):
    """A host's place in a model's pool."""

    __tablename__ = "model_host"
    __table_args__ = (
        CheckConstraint(_one_of("source", HOST_SOURCES), name="model_host_source_check"),
        Index("model_host_host", "host_id"),
    )

    model_id: int = Field(sa_column=_of("model.id"))
    host_id: int = Field(sa_column=_of("host.id", cascade=False))
    source: str = Field(sa_column=_text())
    ttl_seconds: int | None = None
    registered_at: datetime = Field(sa_column=_time())
    expires_at: datetime | None = Field(default=None, sa_column=_time(null=True))


class EndpointConfig(SQLModel, table=True):
    """One CreateEndpointConfig; its variants are rows of their own."""

    __tablename__ = "endpoint_config"
    __table_args__ = (Index("endpoint_config_name_key", text("lower(name)"), unique=True),)

    id: int = Field(default=None, sa_column=_number())
    name: str = Field(sa_column=_text())
    tenant: str = Field(default="", sa_column=_tenant())
    sent: dict[str, Any] = Field(sa_column=_json())
    """The request, without its variants and tags."""
    created_at: datetime = Field(sa_column=_time())


_ROUTING_CHECKS = (
    ("routing_strategy_check", _one_of("routing_strategy", STRATEGIES)),
    (
        "prefix_check",
        "(routing_strategy = 'PREFIX_AWARE') = (prefix_length IS NOT NULL)"
        " AND (routing_strategy = 'PREFIX_AWARE') = (concurrency_threshold IS NOT NULL)",
    ),
)


class ProductionVariant(SQLModel, table=True):
    """One variant of an endpoint configuration, in the order sent."""

    __tablename__ = "production_variant"
    __table_args__ = (
        *(CheckConstraint(rule, name=f"production_variant_{name}") for name, rule in _ROUTING_CHECKS),
        Index("production_variant_name_key", "config_id", "name", unique=True),
    )

    config_id: int = Field(sa_column=_of("endpoint_config.id"))
    position: int = Field(primary_key=True)
    name: str = Field(sa_column=_text())
    model_name: str = Field(sa_column=_text())
    instance_count: int
    weight: float = Field(sa_column=Column(Double, nullable=False))
    routing_strategy: str = Field(sa_column=_text())
    prefix_length: int | None = None
    concurrency_threshold: int | None = None
    sent: dict[str, Any] = Field(sa_column=_json())


class Endpoint(SQLModel, table=True):
    """One endpoint. ``id`` is new with every creation, so a name used again starts from nothing."""

    __tablename__ = "endpoint"
    __table_args__ = (
        CheckConstraint(_one_of("status", STATUSES), name="endpoint_status_check"),
        Index("endpoint_name_key", text("lower(name)"), unique=True),
    )

    id: str = Field(sa_column=Column(Text, primary_key=True))
    name: str = Field(sa_column=_text())
    tenant: str = Field(default="", sa_column=_tenant())
    status: str = Field(sa_column=_text())
    config_name: str = Field(sa_column=_text())
    sent_config: dict[str, Any] = Field(sa_column=_json())
    """EndpointConfig.sent of the configuration in force; the configuration itself may be deleted meanwhile."""
    deployment_config: dict[str, Any] | None = Field(default=None, sa_column=_json(null=True))
    """The last DeploymentConfig given, for RetainDeploymentConfig and LastDeploymentConfig."""
    failure_reason: str | None = Field(default=None, sa_column=_text(null=True))
    revision: int = Field(default=0, sa_column=Column(BigInteger, nullable=False))
    """Grows with every change of this endpoint that its routes must follow. See PublishedEndpoint."""
    created_at: datetime = Field(sa_column=_time())
    modified_at: datetime = Field(sa_column=_time())


class Deployment(SQLModel, table=True):
    """What an endpoint is on its way to, while it is. Its variants are the endpoint's PENDING ones."""

    __tablename__ = "deployment"
    __table_args__ = (CheckConstraint(_one_of("kind", DEPLOYMENT_KINDS), name="deployment_kind_check"),)

    endpoint_id: str = Field(sa_column=_of("endpoint.id"))
    kind: str = Field(sa_column=_text())
    config_name: str = Field(sa_column=_text())
    sent_config: dict[str, Any] = Field(sa_column=_json())
    deployment_config: dict[str, Any] | None = Field(default=None, sa_column=_json(null=True))
    """Becomes Endpoint.deployment_config when it is done."""
    promoted: bool = False
    """True: routes lead to the PENDING variants; the old ones go once every worker follows."""
    started_at: datetime = Field(sa_column=_time())


class EndpointVariant(SQLModel, table=True):
    """One variant of an endpoint in one stage, with all it needs once model and configuration are gone."""

    __tablename__ = "endpoint_variant"
    __table_args__ = (
        *(CheckConstraint(rule, name=f"endpoint_variant_{name}") for name, rule in _ROUTING_CHECKS),
        CheckConstraint(_one_of("stage", STAGES), name="endpoint_variant_stage_check"),
    )

    endpoint_id: str = Field(sa_column=_of("endpoint.id"))
    stage: str = Field(sa_column=Column(Text, primary_key=True))
    name: str = Field(sa_column=Column(Text, primary_key=True))
    position: int
    model_id: int = Field(sa_column=Column(BigInteger, nullable=False))
    """Model.id; the model may be gone."""
    model_name: str = Field(sa_column=_text())
    ping_path: str = Field(sa_column=_text())
    instance_count: int
    weight: float = Field(sa_column=Column(Double, nullable=False))
    routing_strategy: str = Field(sa_column=_text())
    prefix_length: int | None = None
    concurrency_threshold: int | None = None
    sent: dict[str, Any] = Field(sa_column=_json())
    """The variant as its configuration was sent."""
    host_authorization: bytes | None = Field(default=None, sa_column=Column(BYTEA))
    """The model's, sealed."""
    started_at: datetime = Field(sa_column=_time())


class Binding(SQLModel, table=True):
    """A host in an endpoint's hands: one endpoint at a time, which the primary key enforces.

    ``active_variant`` sends it traffic, ``pending_variant`` waits for it; both when an update carries it over. Neither:
    it has left the routes and is released once every worker knows.
    """

    __tablename__ = "binding"
    __table_args__ = (Index("binding_endpoint", "endpoint_id"),)

    host_id: int = Field(sa_column=_of("host.id", cascade=False))
    endpoint_id: str = Field(sa_column=_of("endpoint.id", cascade=False, primary_key=False))
    active_variant: str | None = Field(default=None, sa_column=_text(null=True))
    pending_variant: str | None = Field(default=None, sa_column=_text(null=True))


class HostHealth(SQLModel, table=True):
    """What probes of a bound host found, for one ping path. Made when a host is bound, gone when it is released."""

    __tablename__ = "host_health"
    __table_args__ = (Index("host_health_next_probe", "next_probe_at"),)

    host_id: int = Field(sa_column=_of("host.id"))
    path: str = Field(sa_column=Column(Text, primary_key=True))
    healthy: bool = False
    failures: int = 0
    """In a row, counted no further than makes it unhealthy."""
    changed_at: datetime = Field(sa_column=_time())
    """Since when it is as ``healthy`` says."""
    error: str | None = Field(default=None, sa_column=_text(null=True))
    next_probe_at: datetime = Field(sa_column=_time())


class Tag(SQLModel, table=True):
    """One tag. ``resource`` is ``kind:id`` of the row, so that a name used again has none of the old tags."""

    __tablename__ = "tag"

    resource: str = Field(sa_column=Column(Text, primary_key=True))
    key: str = Field(sa_column=Column(Text, primary_key=True))
    value: str = Field(sa_column=_text())


class Publication(SQLModel, table=True):
    """The routing table as last numbered. One row, made by the migration with this database's epoch."""

    __tablename__ = "publication"
    __table_args__ = (CheckConstraint("id = 1", name="publication_one_row_check"),)

    id: int = Field(default=1, primary_key=True, sa_column_kwargs={"autoincrement": False})
    epoch: str = Field(sa_column=_text())
    generation: int = Field(sa_column=Column(BigInteger, nullable=False))
    routes: bytes | None = Field(default=None, sa_column=Column(BYTEA))
    """contract.routing_table.encode of that generation."""
    published_at: datetime | None = Field(default=None, sa_column=_time(null=True))


class PublishedEndpoint(SQLModel, table=True):
    """Which revision of an endpoint the routes hold, and since which generation. Written by the publisher alone."""

    __tablename__ = "published_endpoint"

    endpoint_id: str = Field(sa_column=Column(Text, primary_key=True))
    revision: int = Field(sa_column=Column(BigInteger, nullable=False))
    generation: int = Field(sa_column=Column(BigInteger, nullable=False))


class Heartbeat(SQLModel, table=True):
    """When a control plane was last alive. One row: registrations do not run out while nobody could renew them."""

    __tablename__ = "heartbeat"
    __table_args__ = (CheckConstraint("id = 1", name="heartbeat_one_row_check"),)

    id: int = Field(default=1, primary_key=True, sa_column_kwargs={"autoincrement": False})
    beat_at: datetime = Field(sa_column=_time())


class AccessKey(SQLModel, table=True):
    """One key of a principal: who may do what, and how it proves that it is the one."""

    __tablename__ = "access_key"
    __table_args__ = (
        CheckConstraint(_one_of("kind", KEY_KINDS), name="access_key_kind_check"),
        CheckConstraint(_one_of("role", ROLES), name="access_key_role_check"),
    )

    id: str = Field(sa_column=Column(Text, primary_key=True))
    kind: str = Field(sa_column=_text())
    tenant: str = Field(default="", sa_column=_tenant())
    role: str = Field(sa_column=_text())
    endpoints: list[str] = Field(sa_column=_json())
    """Patterns of endpoint names; none: all of the tenant's."""
    secret: bytes = Field(sa_column=Column(BYTEA, nullable=False))
    """Of an access key the sealed secret, of an API key its SHA-256."""
    enabled: bool = True
    description: str | None = Field(default=None, sa_column=_text(null=True))
    requests_per_second: float | None = Field(default=None, sa_column=Column(Double))
    concurrent_requests: int | None = None
    created_at: datetime = Field(sa_column=_time())
    expires_at: datetime | None = Field(default=None, sa_column=_time(null=True))
    """Set when it is rotated: until then both it and its successor are valid."""


class AuditRecord(SQLModel, table=True):
    """One attempt to change something: kept when its resource and its key are gone, so it refers to neither."""

    __tablename__ = "audit_record"
    __table_args__ = (Index("audit_record_at", "at"),)

    id: int = Field(default=None, sa_column=_number())
    at: datetime = Field(sa_column=_time())
    request_id: str = Field(sa_column=_text())
    principal: str = Field(sa_column=_text())
    """Id of the key; empty while AUTH is off, ``command line`` for the command line's own."""
    tenant: str = Field(default="", sa_column=_tenant())
    source: str = Field(sa_column=_text())
    """Address that the request came from."""
    operation: str = Field(sa_column=_text())
    resource: str = Field(sa_column=_text())
    outcome: str = Field(sa_column=_text())
    """OK, or the error's code."""


NAMES = frozenset(table.name for table in SQLModel.metadata.sorted_tables)
