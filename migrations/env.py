"""What Alembic runs. The connection comes from runner.py, which holds the lock; there is no other way in."""

from alembic import context
from sqlalchemy import Connection
from sqlmodel import SQLModel

from controlplane.store import tables

connection: Connection = context.config.attributes["connection"]
# A migration that waits for a lock makes everybody behind it wait too; better to fail, and to be started again.
connection.exec_driver_sql("SET lock_timeout = '5s'")
connection.commit()
context.configure(
    connection=connection,
    target_metadata=SQLModel.metadata,
    include_name=lambda name, kind, _: kind != "table" or name in tables.NAMES,
    transaction_per_migration=True,
    compare_server_default=True,
)
with context.begin_transaction():
    context.run_migrations()
