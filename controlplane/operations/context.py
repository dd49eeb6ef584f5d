"""What every operation is given besides its request."""

from dataclasses import dataclass
from datetime import datetime

from sqlalchemy.ext.asyncio import AsyncSession

from controlplane import arn as arns


@dataclass(frozen=True)
class Context:
    """One call: its transaction, whose account it concerns, and the moment it happens (aware, UTC)."""

    session: AsyncSession
    account_id: str
    region: str
    now: datetime

    def arn(self, kind: arns.Kind, name: str) -> str:
        """Return the ARN of a resource of this account and region."""
        return arns.arn(kind, name, self.region, self.account_id)
