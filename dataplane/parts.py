"""What a worker lends to each request that it serves. One owner each; a request owns nothing but itself."""

import asyncio
import random
from dataclasses import dataclass
from typing import Protocol

from contract.settings import Settings
from dataplane.access_log import AccessLog
from dataplane.host_credentials import HostCredentials
from dataplane.metrics import Metrics
from dataplane.record import Record
from dataplane.state.budget import RetryBudget
from dataplane.state.health import Health
from dataplane.state.inflight import InFlight
from dataplane.state.rates import Rates
from dataplane.wire.pool import Pool


class Timed(Protocol):
    """A request under way, to the sweep that keeps its time limits."""

    def check(self, now: float) -> None: ...
    def cut(self, reason: str) -> None: ...


class Client(Protocol):
    """What an exchange asks of the client's connection."""

    peer: str

    def respond(self, status: int, headers: bytes, body: bytes) -> None: ...
    def start(self, status: int, headers: bytes, content_length: int | None) -> None: ...
    def send(self, data: bytes) -> None: ...
    def flush(self) -> None: ...
    def finish(self) -> None: ...
    def abort(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Parts:
    """See the module."""

    loop: asyncio.AbstractEventLoop
    settings: Settings
    in_flight: InFlight
    pool: Pool
    health: Health
    host_credentials: HostCredentials
    budget: RetryBudget
    rates: Rates
    metrics: Metrics
    log: AccessLog
    record: Record
    exchanges: dict[Timed, None]
    dice: random.Random
