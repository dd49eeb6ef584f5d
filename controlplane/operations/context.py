"""What every operation is given besides its request."""

from dataclasses import dataclass
from datetime import datetime

from sqlalchemy.ext.asyncio import AsyncSession


@dataclass(frozen=True)
class Context:
    """One call: its transaction, whose account it concerns, and the moment it happens (aware, UTC)."""

    session: AsyncSession
    account_id: str
    region: str
    now: datetime
