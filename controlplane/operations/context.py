"""What every operation is given besides its request."""

from dataclasses import dataclass, field
from datetime import datetime
from typing import Protocol

from sqlalchemy.ext.asyncio import AsyncSession

from controlplane import arn as arns
from controlplane.errors import ValidationException


class Vault(Protocol):
    """Seals secrets for the database (access.sealing)."""

    def seal(self, secret: str) -> bytes: ...


@dataclass(frozen=True)
class Caller:
    """Who asks. By default nobody in particular, who may do everything: that is AUTH=off."""

    principal: str = ""
    """Id of the key that was shown."""
    tenant: str = ""
    """Sees and touches only what is this tenant's; empty: everything."""
    endpoints: tuple[str, ...] = ()
    """Patterns of the endpoint names that the caller may see and touch; none: all."""
    source: str = ""
    request_id: str = ""


NOBODY = Caller()


@dataclass
class Trail:
    """What an operation tells the audit beyond its request."""

    is_change: bool = True
    """False for a call that left everything as it was."""
    made: str = ""
    """Name of what was made, where the caller did not give one."""


@dataclass(frozen=True)
class Context:
    """One call: its transaction, whose account it concerns, the moment it happens (aware, UTC), and for whom."""

    session: AsyncSession
    account_id: str
    region: str
    now: datetime
    caller: Caller = NOBODY
    vault: Vault | None = None
    metadata_hosts: bool = False
    """True: hosts may have link-local and metadata addresses."""
    trail: Trail = field(default_factory=Trail)

    def arn(self, kind: arns.Kind, name: str) -> str:
        """Return the ARN of a resource of this account and region."""
        return arns.arn(kind, name, self.region, self.account_id)

    def seal(self, secret: str) -> bytes:
        """Return ``secret`` as it may be stored. Raises ValidationException without a key to seal it with."""
        if self.vault is None:
            raise ValidationException(
                "This needs a secret to be kept, and there is no key to seal it with: set WARMROUTE_SECRET_KEY or "
                "WARMROUTE_SECRET_KEY_FILE and restart the control plane."
            )
        return self.vault.seal(secret)
