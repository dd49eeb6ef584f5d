"""Probes: of bound hosts only, each by one replica, and never by way of a proxy or a redirect."""

import asyncio
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import redis as redis_library
from sqlalchemy import select, text

from access.files import host_tls, listener_tls
from access.sealing import Sealing
from contract.settings import Settings
from controlplane.background import probe_hosts
from controlplane.background.probe_hosts import ProbeHosts, ping
from controlplane.snapshot import Limits
from controlplane.store.session import Database
from controlplane.store.tables import HostHealth
from tests.controlplane.stage import Call, Replica, create_config, create_model
from tests.fakes.answers import Answer, Gate
from tests.fakes.certificates import Authority
from tests.fakes.model_host import Hosts, ModelHost


@pytest.fixture
async def replica(database: Database, redis: redis_library.Redis, redis_url: str) -> AsyncIterator[Replica]:
    """One that probes when it is told to only."""
    replica = Replica(database, redis_url, Limits(60, 60), probe_seconds=60)
    yield replica
    await replica.close()


async def bound(call: Call, replica: Replica, *hosts: ModelHost, **environment: str) -> None:
    """An endpoint that holds these hosts, not yet probed."""
    await create_model(call, "m", *(host.url for host in hosts), **environment)
    await create_config(call, "c", {"InitialInstanceCount": len(hosts)})
    await call("CreateEndpoint", EndpointName="e", EndpointConfigName="c")
    await replica.settle.run()


async def health(database: Database) -> list[HostHealth]:
    async with database.transaction() as session:
        return list((await session.execute(select(HostHealth).order_by(text("host_id")))).scalars())


async def due(database: Database) -> None:
    async with database.transaction() as session:
        await session.execute(text("UPDATE host_health SET next_probe_at = now()"))


async def probe_again(replica: Replica, database: Database) -> HostHealth:
    await due(database)
    await replica.probe()
    (row,) = await health(database)
    return row


async def test_only_hosts_in_an_endpoints_hands_are_probed(
    call: Call, replica: Replica, hosts: Hosts, database: Database
) -> None:
    taken, spare = hosts.make(2)
    await create_model(call, "other", spare.url)
    await replica.probe()
    assert await health(database) == []
    await bound(call, replica, taken)
    await replica.probe()
    assert len(taken.pings) == 1
    assert not spare.pings


async def test_three_failures_in_a_row_make_unhealthy_and_one_success_healthy(
    call: Call, replica: Replica, hosts: Hosts, database: Database
) -> None:
    host = hosts.one()
    await bound(call, replica, host)
    (row,) = await health(database)
    assert (row.healthy, row.error) == (False, None)
    assert (await probe_again(replica, database)).healthy
    host.ping = Answer(status=500)
    seen = [await probe_again(replica, database) for _ in range(3)]
    assert [row.healthy for row in seen] == [True, True, False]
    assert {row.error for row in seen} == {"answered 500"}
    assert seen[2].changed_at > seen[1].changed_at == seen[0].changed_at
    host.ping = Answer()
    row = await probe_again(replica, database)
    assert (row.healthy, row.failures, row.error) == (True, 0, None)


async def test_the_models_ping_path_is_asked(call: Call, replica: Replica, hosts: Hosts, database: Database) -> None:
    host = hosts.one()
    host.ping_path = "/health"
    await bound(call, replica, host, WARMROUTE_PING_PATH="/health")
    await replica.probe()
    assert [delivery.target for delivery in host.pings] == ["/health"]
    assert not host.deliveries
    assert (await health(database))[0].healthy


async def test_a_probe_is_made_by_one_replica(
    call: Call, replica: Replica, hosts: Hosts, database: Database, redis_url: str
) -> None:
    made = hosts.make(4)
    await bound(call, replica, *made)
    others = [Replica(database, redis_url, replica.limits, probe_seconds=60) for _ in range(2)]
    await asyncio.gather(*(each.probe() for each in (replica, *others)))
    assert [len(host.pings) for host in made] == [1, 1, 1, 1]
    assert all(row.healthy for row in await health(database))
    for each in others:
        await each.close()


async def test_a_replica_that_dies_during_a_probe_is_made_up_for(
    call: Call, replica: Replica, hosts: Hosts, database: Database, redis_url: str
) -> None:
    await bound(call, replica, hosts.one())
    dying = Replica(database, redis_url, replica.limits, probe_seconds=60)
    await dying.prober.run()
    await dying.close()
    (row,) = await health(database)
    assert not row.healthy
    # Due again when an answer could have come no more.
    assert 0 < row.next_probe_at.timestamp() - time.time() <= probe_hosts.TIMEOUT_SECONDS + 1
    assert (await probe_again(replica, database)).healthy


async def test_what_was_found_at_an_old_url_says_nothing_about_the_new_one(
    call: Call, replica: Replica, hosts: Hosts, database: Database
) -> None:
    before, after = hosts.make(2)
    gate = Gate()
    before.ping = Answer(before=gate)
    await create_model(call, "m")
    await call("RegisterModelHost", ModelName="m", BaseUrl=before.url, HostName="pod")
    await create_config(call, "c")
    await call("CreateEndpoint", EndpointName="e", EndpointConfigName="c")
    await replica.settle.run()
    await replica.prober.run()
    after.ping = Answer(status=503)
    await call("RegisterModelHost", ModelName="m", BaseUrl=after.url, HostName="pod")
    gate.open()
    await asyncio.gather(*replica.prober.under_way)
    await replica.prober.run()
    assert not (await health(database))[0].healthy


@pytest.fixture
async def client() -> Any:
    async with httpx.AsyncClient(trust_env=False, follow_redirects=False) as client:
        yield client


async def test_what_an_answer_means(client: httpx.AsyncClient, hosts: Hosts, monkeypatch: pytest.MonkeyPatch) -> None:
    host, other = hosts.make(2)
    url = f"{host.url}/ping"
    assert await ping(client, url) is None
    for status in (201, 204, 404, 503):
        host.ping = Answer(status=status)
        assert await ping(client, url) == f"answered {status}"
    host.ping = Answer(status=302, headers=[("Location", f"{other.url}/ping")])
    assert await ping(client, url) == "answered 302"
    assert not other.pings
    host.ping = Answer(before=Gate())
    with monkeypatch.context() as patch:
        patch.setattr(probe_hosts, "TIMEOUT_SECONDS", 0.3)
        assert await ping(client, url) == "no answer within 0.3 s"
    host.ping = Answer(body=b"x", ending="reset", before=0.0)
    assert await ping(client, "http://127.0.0.1:1/ping") == "no connection (Connection refused)"
    assert "no-such-host.invalid" not in str(await ping(client, "http://no-such-host.invalid/ping"))


async def test_proxies_of_the_environment_are_not_asked(
    call: Call, hosts: Hosts, monkeypatch: pytest.MonkeyPatch, database: Database, redis_url: str
) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
    monkeypatch.setenv("ALL_PROXY", "http://127.0.0.1:1")
    replica = Replica(database, redis_url, Limits(60, 60), probe_seconds=60)
    await bound(call, replica, hosts.one())
    await replica.probe()
    assert (await health(database))[0].healthy
    await replica.close()


# --- what a host is shown, and where nothing is sent -----------------------------------------------------------------


async def test_a_credential_that_does_not_open_fails_the_probe_and_is_not_sent(
    call: Call, replica: Replica, hosts: Hosts, database: Database
) -> None:
    host = hosts.one()
    replica.prober._sealing = Sealing([b"another installation's key, 32 b"])
    await bound(call, replica, host, WARMROUTE_HOST_AUTHORIZATION="Bearer canary")
    await replica.probe()
    (row,) = await health(database)
    assert not row.healthy
    assert "WARMROUTE_HOST_AUTHORIZATION does not open" in (row.error or "")
    assert host.pings == []


async def test_a_host_without_a_credential_is_shown_none(call: Call, replica: Replica, hosts: Hosts) -> None:
    host = hosts.one()
    await bound(call, replica, host)
    await replica.probe()
    assert [ping.header("authorization") for ping in host.pings] == [None]


async def test_a_name_that_leads_to_a_metadata_service_is_sent_nothing(
    call: Call, replica: Replica, hosts: Hosts, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A name is good when it is registered and may lead elsewhere a moment later."""
    host = hosts.one()
    monkeypatch.setattr(probe_hosts, "is_metadata_address", lambda address: address == "127.0.0.1")
    await bound(call, replica, host)
    await replica.probe()
    (row,) = await health(database)
    assert row.error == "its name leads to 127.0.0.1, a link-local or metadata address"
    assert host.pings == []


async def test_metadata_addresses_are_probed_where_they_are_allowed(hosts: Hosts, database: Database) -> None:
    prober = ProbeHosts(database, 60, lambda: None, metadata_hosts=True)
    assert prober._extensions == {}
    await prober.close()


async def test_https_hosts_are_checked_against_the_authorities_given(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    certificate, key = authority.issue()
    tls = listener_tls(Settings(tls_cert_file=str(certificate), tls_key_file=str(key)))
    server = await asyncio.start_server(answer_once, "127.0.0.1", 0, ssl=tls)
    url = f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}/ping"
    async with server:
        async with httpx.AsyncClient(verify=host_tls(Settings(tls_ca_file=str(authority.ca)))) as client:
            assert await ping(client, url) is None
        async with httpx.AsyncClient(verify=host_tls(Settings())) as client:
            assert "its certificate is not accepted" in (await ping(client, url) or "")


async def answer_once(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.readuntil(b"\r\n\r\n")
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
    await writer.drain()
    writer.close()
