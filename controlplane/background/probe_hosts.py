"""Probes the hosts that endpoints hold, no others, and keeps in Postgres what it found.

A probe is claimed by a row lock and a later due time, so replicas share the work and a killed one is made up for.
What changes here: the probes under way and the results not yet stored, by this task alone.
"""

import asyncio
import logging
import os
import socket
import ssl
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx

from access.addresses import is_metadata_address
from access.sealing import Sealing, Unsealable
from controlplane.host_health import HostState, after_probe
from controlplane.store import probes
from controlplane.store.notices import notify
from controlplane.store.probes import Target
from controlplane.store.session import Database
from controlplane.store.tables import HostHealth

log = logging.getLogger(__name__)

TIMEOUT_SECONDS = 2.0
"""A host that takes longer to answer a ping is of no use to a caller either."""
CLAIMED_SECONDS = 0.5
"""Between probes of a host that an endpoint waits for."""
_UNDER_WAY_MAX = 500
"""Probes at a time; each takes a file descriptor, of which a process has 1,024 by default."""
_LOOK_SECONDS = 1.0
_SOON_SECONDS = 0.02
_BUDGET_SECONDS = 10.0


class ProbeHosts:
    """``wake`` is called when a probe has ended, so that the next run comes soon and stores it."""

    name = "probe_hosts"

    def __init__(
        self,
        database: Database,
        probe_seconds: float,
        wake: Callable[[], None],
        *,
        sealing: Sealing | None = None,
        tls: ssl.SSLContext | None = None,
        metadata_hosts: bool = False,
    ) -> None:
        self._database = database
        self._probe_seconds = probe_seconds
        self.wake = wake
        self._sealing = sealing
        self._extensions = {} if metadata_hosts else {"trace": _refuse_metadata}
        self._client = httpx.AsyncClient(
            verify=tls or ssl.create_default_context(),
            trust_env=False,
            follow_redirects=False,
            timeout=TIMEOUT_SECONDS,
            # No connection is kept: whether a new one can be made is part of the question. Nor is one waited for here:
            # a host must not pass for silent because others are.
            limits=httpx.Limits(max_connections=None, max_keepalive_connections=0),
        )
        self.under_way: set[asyncio.Task[None]] = set()
        self._results: list[tuple[Target, str | None]] = []

    async def run(self) -> float:
        await self._store()
        now = datetime.now(UTC)
        async with self._database.transaction(budget_seconds=_BUDGET_SECONDS) as session:
            limit = _UNDER_WAY_MAX - len(self.under_way)
            targets = await probes.claim_due(session, now, now + timedelta(seconds=TIMEOUT_SECONDS + 1), limit)
            due = await probes.next_due(session)
        for target in targets:
            task = asyncio.create_task(self._probe(target), name=f"probe {target.base_url}")
            self.under_way.add(task)
            task.add_done_callback(self.under_way.discard)
        if due is None:
            return _LOOK_SECONDS
        return min(max((due - datetime.now(UTC)).total_seconds(), _SOON_SECONDS), _LOOK_SECONDS)

    async def close(self) -> None:
        for task in self.under_way:
            task.cancel()
        await asyncio.gather(*self.under_way, return_exceptions=True)
        await self._client.aclose()

    async def _probe(self, target: Target) -> None:
        self._results.append((target, await self._answer(target)))
        self.wake()

    async def _answer(self, target: Target) -> str | None:
        headers = {}
        if target.authorization is not None:
            try:
                if self._sealing is None:
                    raise Unsealable
                headers = {"authorization": self._sealing.open(target.authorization)}
            except Unsealable:
                return "its WARMROUTE_HOST_AUTHORIZATION does not open under this installation's secret key"
        return await ping(self._client, target.base_url + target.path, headers, self._extensions)

    async def _store(self) -> None:
        results, self._results = dict(self._results), []
        if not results:
            return
        changed = []
        now = datetime.now(UTC)
        async with self._database.transaction(budget_seconds=_BUDGET_SECONDS) as session:
            for health, target, claimed in await probes.lock_probed(session, list(results)):
                was, error = health.healthy, results[target]
                _note(health, error, now)
                fast = claimed and not health.healthy
                interval = min(CLAIMED_SECONDS, self._probe_seconds) if fast else self._probe_seconds
                health.next_probe_at = now + timedelta(seconds=interval)
                if health.healthy != was:
                    changed.append((target, error))
            if changed:
                await notify(session)
        for target, error in changed:
            log.info("host %s is %s", target.base_url, f"unhealthy: {error}" if error else "healthy")


def _note(health: HostHealth, error: str | None, now: datetime) -> None:
    state = after_probe(HostState(health.healthy, health.failures), succeeded=error is None)
    if state.healthy != health.healthy:
        health.changed_at = now
    health.healthy, health.failures, health.error = state.healthy, state.failures, error


async def ping(
    client: httpx.AsyncClient,
    url: str,
    headers: Mapping[str, str] | None = None,
    extensions: dict[str, Any] | None = None,
) -> str | None:
    """Return None if ``url`` answers 200, else what happened in a few words. The answer's body is not read."""
    try:
        async with (
            asyncio.timeout(TIMEOUT_SECONDS),
            client.stream("GET", url, headers=headers, extensions=extensions) as response,
        ):
            return None if response.status_code == 200 else f"answered {response.status_code}"
    except Metadata as refused:
        return str(refused)
    except (TimeoutError, httpx.TimeoutException):
        return f"no answer within {TIMEOUT_SECONDS:g} s"
    except httpx.ConnectError as error:
        return f"no connection ({_cause(error)})"
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        return f"{type(error).__name__} ({_cause(error)})"


class Metadata(Exception):
    """A name led to an address that hosts must not have."""


async def _refuse_metadata(event: str, info: Mapping[str, Any]) -> None:
    """Look at the address that a connection was made to, before anything is sent over it."""
    if event != "connection.connect_tcp.complete":
        return
    stream = info["return_value"]
    address = str(stream.get_extra_info("server_addr")[0])
    if is_metadata_address(address):
        await stream.aclose()
        raise Metadata(f"its name leads to {address}, a link-local or metadata address")


def _cause(error: BaseException) -> str:
    """Return the innermost reason: the outer ones say "All connection attempts failed"."""
    while error.__cause__ is not None or error.__context__ is not None:
        error = error.__cause__ or error.__context__ or error
    text = str(error)
    if isinstance(error, ssl.SSLCertVerificationError):
        text = f"its certificate is not accepted: {error.verify_message}"
    elif isinstance(error, ssl.SSLError):
        # Its errno is OpenSSL's, not the system's.
        text = f"TLS: {error.reason or error}"
    elif isinstance(error, OSError):
        # asyncio puts the address in place of the reason; names that do not resolve have codes of their own.
        is_system = not isinstance(error, socket.gaierror) and error.errno is not None
        text = os.strerror(error.errno or 0) if is_system else error.strerror or text
    return (text or type(error).__name__)[:200]
