"""The wake-up between control planes. It carries no data: whoever hears it looks at the tables."""

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncSession

CHANNEL = "warmroute"


async def notify(session: AsyncSession) -> None:
    """Wake the reconcilers of every replica when this transaction commits, and not if it does not."""
    await session.execute(text(f"SELECT pg_notify('{CHANNEL}', '')"))
