"""Forgets what has had its time: keys whose grace after a rotation is over, and audit records."""

import logging
from datetime import UTC, datetime, timedelta

from controlplane.store import audit, keys
from controlplane.store.session import Database

log = logging.getLogger(__name__)

_INTERVAL_SECONDS = 60.0
_BUDGET_SECONDS = 10.0


class KeepRecords:
    name = "keep_records"

    def __init__(self, database: Database, audit_days: int) -> None:
        self._database = database
        self._audit_time = timedelta(days=audit_days)

    async def run(self) -> float:
        now = datetime.now(UTC)
        async with self._database.transaction(budget_seconds=_BUDGET_SECONDS) as session:
            expired = await keys.remove_expired(session, now)
            await audit.forget(session, now - self._audit_time)
        if expired:
            log.info("%d keys are gone whose grace after a rotation is over", expired)
        return _INTERVAL_SECONDS
