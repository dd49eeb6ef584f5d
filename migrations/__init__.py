"""Alembic migrations. They build the only schema there is; runner.py applies them, at start and for ``migrate``."""
