import asyncio
import contextlib
import logging
import os
import stat
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from unittest.mock import AsyncMock, Mock

import msgspec
import pytest
import redis

from contract import redis_keys
from contract.routing_table import FORMAT, Endpoint, Instance, RoutingTable, Strategy, Variant, decode, encode
from dataplane.routing.routes import Routes
from dataplane.state.redis_client import RedisClient
from dataplane.state.routes import FILE, RouteWatcher
from tests.services import PrivateServer
from tests.waiting import wait_until_async

NEVER = 30.0
"""A resync time that no test waits for."""


def table(generation: int, *, epoch: str = "one", names: tuple[str, ...] = (), url: str = "http://h:1") -> RoutingTable:
    variant = Variant("v", 1.0, (Instance("h", 1, url),), Strategy.RANDOM)
    endpoints = tuple(Endpoint(name, f"id-{name}", 1, (variant,)) for name in names)
    return RoutingTable(epoch, generation, "000000000000", "us-east-1", endpoints)


class Publisher:
    """Writes tables as the control plane does."""

    def __init__(self, url: str) -> None:
        self.redis = redis.Redis.from_url(url)
        self.url = url

    def write(self, table: RoutingTable, data: bytes | None = None, *, notice: bool = False) -> None:
        fields = {"epoch": table.epoch, "generation": table.generation, "table": data or encode(table)}
        self.redis.hset(redis_keys.ROUTES, mapping=fields)  # type: ignore[arg-type]
        if notice:
            self.redis.publish(redis_keys.ROUTES_NOTICE, b"")

    def lose(self) -> None:
        self.redis.delete(redis_keys.ROUTES, redis_keys.WORKERS, redis_keys.WORKERS_APPLIED)

    def reports(self) -> dict[str, str]:
        found: dict[bytes, bytes] = self.redis.hgetall(redis_keys.WORKERS_APPLIED)  # type: ignore[assignment]
        return {name.decode(): said.decode() for name, said in found.items()}


@pytest.fixture
def publisher(redis_url: str) -> Iterator[Publisher]:
    publisher = Publisher(redis_url)
    publisher.lose()
    yield publisher
    publisher.redis.close()


class Watching:
    """A watcher and what it has applied."""

    def __init__(self, url: str, directory: Path | None, resync: float, lease: float) -> None:
        self.client = RedisClient(url)
        self.applied: list[int] = []
        self.watcher = RouteWatcher(self.client, "w1", resync, lease, directory, self._applied)

    def _applied(self, routes: Routes) -> None:
        assert self.watcher.current is routes
        self.applied.append(routes.table.generation)

    @property
    def names(self) -> list[str]:
        return list(self.watcher.current.endpoints) if self.watcher.current else []


@contextlib.asynccontextmanager
async def watching(
    url: str, directory: Path | None = None, *, resync: float = NEVER, lease: float = 10.0
) -> AsyncIterator[Watching]:
    watching = Watching(url, directory, resync, lease)
    await watching.watcher.start()
    try:
        yield watching
    finally:
        await watching.watcher.stop()
        await watching.client.aclose()


# --- in Redis --------------------------------------------------------------------------------------------------------


async def test_a_worker_starts_with_the_table_in_redis(publisher: Publisher) -> None:
    publisher.write(table(7, names=("a", "b")))
    async with watching(publisher.url) as seen:
        assert seen.names == ["a", "b"]
        assert seen.applied == [7]


async def test_a_notice_brings_the_new_table(publisher: Publisher) -> None:
    publisher.write(table(1))
    async with watching(publisher.url) as seen:
        await wait_until_async(lambda: publisher.redis.pubsub_numsub(redis_keys.ROUTES_NOTICE)[0][1] == 1)
        for generation in range(2, 6):
            publisher.write(table(generation), notice=True)
            await wait_until_async(lambda wanted=generation: seen.applied[-1] == wanted, 2.0)  # type: ignore[misc]
        assert seen.applied == [1, 2, 3, 4, 5]


async def test_without_a_notice_the_timer_does(publisher: Publisher) -> None:
    """RESYNC_SECONDS bounds a lost notice, deletion of an endpoint included."""
    publisher.write(table(1, names=("a",)))
    async with watching(publisher.url, resync=1.0) as seen:
        publisher.write(table(2))
        await wait_until_async(lambda: seen.names == [], 1.0)


async def test_a_lost_subscription_is_made_anew(publisher: Publisher) -> None:
    publisher.write(table(1))
    async with watching(publisher.url) as seen:
        await wait_until_async(lambda: publisher.redis.pubsub_numsub(redis_keys.ROUTES_NOTICE)[0][1] == 1)
        publisher.redis.client_kill_filter(_type="pubsub")
        publisher.write(table(2), notice=True)
        await wait_until_async(lambda: seen.applied == [1, 2], 3.0)


async def test_a_lost_table_is_kept(publisher: Publisher) -> None:
    publisher.write(table(3, names=("a",)))
    async with watching(publisher.url, resync=0.1) as seen:
        publisher.lose()
        await wait_until_async(lambda: publisher.redis.info("stats")["total_commands_processed"] > 0)
        publisher.write(table(2, names=("old",)))
        publisher.write(table(3, names=("same",)))
        publisher.write(table(4, names=("new",)))
        await wait_until_async(lambda: seen.names == ["new"])
        assert seen.applied == [3, 4]


async def test_only_newer_tables_of_one_epoch_are_taken(publisher: Publisher) -> None:
    publisher.write(table(5))
    async with watching(publisher.url, resync=0.05) as seen:
        for generation in (4, 5):
            publisher.write(table(generation, names=("wrong",)), notice=True)
        looks = publisher.redis.info("commandstats")["cmdstat_hmget"]["calls"]
        await wait_until_async(lambda: publisher.redis.info("commandstats")["cmdstat_hmget"]["calls"] > looks + 3)
        assert seen.applied == [5]


async def test_a_table_of_another_database_is_taken(publisher: Publisher) -> None:
    """Generations of different epochs do not compare: the operator has begun anew."""
    publisher.write(table(500))
    async with watching(publisher.url, resync=0.05) as seen:
        publisher.write(table(1, epoch="two", names=("a",)))
        await wait_until_async(lambda: seen.names == ["a"])
        assert seen.applied == [500, 1]


@pytest.mark.parametrize(
    "data",
    [
        b"no msgpack",
        encode(msgspec.structs.replace(table(2), format=FORMAT + 1)),
        encode(table(2, names=("a",), url="http://h:99999")),
        encode(table(2, names=("a",), url="http://[::1")),
    ],
    ids=["damaged", "another format", "no port", "no host"],
)
async def test_a_table_that_cannot_be_used_is_not_taken(
    publisher: Publisher, data: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    """What is served stays, the operator is told, and the next good table is taken."""
    assert data != encode(table(2))
    publisher.write(table(1, names=("good",)))
    async with watching(publisher.url, resync=0.1) as seen:
        publisher.write(table(2), data)
        await wait_until_async(lambda: any(record.levelno >= logging.ERROR for record in caplog.records), 2.0)
        assert seen.names == ["good"]
        publisher.write(table(3, names=("better",)))
        await wait_until_async(lambda: seen.names == ["better"])


@pytest.mark.parametrize(("member", "value"), [("generation", b"many"), ("epoch", b"\xff\xfe")])
async def test_a_mangled_entry_ends_no_watch(publisher: Publisher, member: str, value: bytes) -> None:
    """Were the watch to end, routes would be stale in silence for ever."""
    publisher.write(table(1))
    async with watching(publisher.url, resync=0.1) as seen:
        publisher.redis.hset(redis_keys.ROUTES, member, value)
        looks = publisher.redis.info("commandstats")["cmdstat_hmget"]["calls"]
        await wait_until_async(lambda: publisher.redis.info("commandstats")["cmdstat_hmget"]["calls"] > looks)
        publisher.write(table(2))
        await wait_until_async(lambda: seen.applied == [1, 2], 2.0)


# --- Redis away ------------------------------------------------------------------------------------------------------


async def test_while_redis_is_away_the_last_table_is_served(
    private_redis: Callable[..., PrivateServer], caplog: pytest.LogCaptureFixture
) -> None:
    """One line at each change of state; the newest table as soon as it is back."""
    caplog.set_level(logging.INFO, "dataplane.state.routes")
    server = private_redis()
    publisher = Publisher(server.url)
    publisher.write(table(1, names=("a",)))
    async with watching(server.url, resync=0.1) as seen:
        server.kill()
        await wait_until_async(lambda: "cannot be read" in caplog.text, 3.0)
        assert seen.names == ["a"]
        server.start()
        await wait_until_async(lambda: "can be read from Redis again" in caplog.text, 3.0)
        assert seen.names == ["a"], "Redis has lost it; the control plane will write it again"
        Publisher(server.url).write(table(2, names=("b",)))
        await wait_until_async(lambda: seen.names == ["b"])
        assert caplog.text.count("cannot be read") == 1
        assert caplog.text.count("can be read") == 1


async def test_a_connection_that_stopped_forwarding_is_noticed(private_redis: Callable[..., PrivateServer]) -> None:
    server = private_redis()
    publisher = Publisher(server.url)
    publisher.write(table(1))
    async with watching(server.url, resync=0.3) as seen:
        server.pause()
        watcher = seen.watcher
        await wait_until_async(lambda: not watcher._reachable, 3.0)
        server.resume()
        publisher.write(table(2))
        await wait_until_async(lambda: seen.applied == [1, 2], 1.0)


async def test_the_looking_survives_what_nobody_expects(
    publisher: Publisher, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In reading as well as in applying; it is said once, not at each look."""
    publisher.write(table(1))
    async with watching(publisher.url, resync=0.1) as seen:
        with monkeypatch.context() as patch:
            broken = AsyncMock(side_effect=ZeroDivisionError("nobody expects this"))
            patch.setattr(seen.client, "hmget", broken)
            await wait_until_async(lambda: broken.await_count >= 3)
        publisher.write(table(2))
        await wait_until_async(lambda: seen.applied == [1, 2], 1.0)
        with monkeypatch.context() as patch:
            broken = Mock(side_effect=ZeroDivisionError("nor this"))
            patch.setattr(seen.watcher, "_applied", broken)
            publisher.write(table(3))
            await wait_until_async(lambda: broken.called)
        publisher.write(table(4))
        await wait_until_async(lambda: seen.applied == [1, 2, 4], 1.0)
    assert caplog.text.count("nobody expects this") == caplog.text.count("nor this") == 1


# --- on disk ---------------------------------------------------------------------------------------------------------


async def test_the_last_table_is_kept_on_disk(publisher: Publisher, tmp_path: Path) -> None:
    publisher.write(table(1, names=("a",)))
    async with watching(publisher.url, tmp_path, resync=0.1) as seen:
        assert decode((tmp_path / FILE).read_bytes()) == table(1, names=("a",))
        publisher.write(table(2))
        await wait_until_async(lambda: seen.applied == [1, 2])
        assert decode((tmp_path / FILE).read_bytes()) == table(2)
    assert os.listdir(tmp_path) == [FILE]
    assert stat.S_IMODE((tmp_path / FILE).stat().st_mode) == 0o600


@pytest.mark.parametrize("is_away", [True, False])
async def test_a_worker_starts_from_disk(
    private_redis: Callable[..., PrivateServer], tmp_path: Path, is_away: bool
) -> None:
    """Redis is away, or it is there and has lost the table."""
    (tmp_path / FILE).write_bytes(encode(table(9, names=("kept",))))
    server = private_redis()
    if is_away:
        server.stop()
    async with watching(server.url, tmp_path, resync=0.2) as seen:
        assert seen.names == ["kept"]
        if is_away:
            server.start()
        Publisher(server.url).write(table(10, names=("new",)))
        await wait_until_async(lambda: seen.names == ["new"], 3.0)


async def test_the_table_in_redis_beats_the_one_on_disk(publisher: Publisher, tmp_path: Path) -> None:
    (tmp_path / FILE).write_bytes(encode(table(9, names=("disk",))))
    publisher.write(table(2, names=("redis",)))
    async with watching(publisher.url, tmp_path) as seen:
        assert seen.names == ["redis"]
        assert seen.applied == [2]


async def test_a_damaged_file_is_said_and_not_served(
    publisher: Publisher, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / FILE).write_bytes(encode(table(9))[:-5])
    async with watching(publisher.url, tmp_path) as seen:
        assert seen.watcher.current is None
        assert "cannot be used" in caplog.text


async def test_a_directory_that_is_gone_stops_no_worker(
    publisher: Publisher, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    publisher.write(table(1))
    async with watching(publisher.url, tmp_path / "gone") as seen:
        assert seen.applied == [1]
        assert "cannot be kept" in caplog.text


# --- reports ---------------------------------------------------------------------------------------------------------


async def test_a_worker_says_what_it_serves_and_withdraws(publisher: Publisher) -> None:
    publisher.write(table(4))
    async with watching(publisher.url, resync=0.1, lease=5.0) as seen:
        assert publisher.reports() == {"w1": "one:4"}
        end: float = publisher.redis.zscore(redis_keys.WORKERS, "w1")  # type: ignore[assignment]
        seconds, _ = publisher.redis.time()
        assert 3 <= end / 1000 - seconds <= 6
        publisher.write(table(5))
        await wait_until_async(lambda: publisher.reports() == {"w1": "one:5"}, 1.0)
        assert seen.applied == [4, 5]
    assert publisher.reports() == {}
    assert publisher.redis.zcard(redis_keys.WORKERS) == 0


async def test_the_report_is_renewed_within_each_lease(publisher: Publisher) -> None:
    publisher.write(table(1))
    async with watching(publisher.url, lease=1.0):
        publisher.redis.delete(redis_keys.WORKERS, redis_keys.WORKERS_APPLIED)
        await wait_until_async(lambda: publisher.reports() == {"w1": "one:1"}, 1.0)


async def test_a_worker_without_a_table_reports_nothing(publisher: Publisher) -> None:
    async with watching(publisher.url, lease=0.1) as seen:
        calls = publisher.redis.info("stats")["total_commands_processed"]
        await wait_until_async(lambda: publisher.redis.info("stats")["total_commands_processed"] > calls)
        assert seen.watcher.current is None
        assert publisher.reports() == {}


async def test_stopping_does_not_wait_for_redis(private_redis: Callable[..., PrivateServer]) -> None:
    server = private_redis()
    Publisher(server.url).write(table(1))
    seen = Watching(server.url, None, 0.5, 1.0)
    await seen.watcher.start()
    server.pause()
    began = asyncio.get_running_loop().time()
    await seen.watcher.stop()
    assert asyncio.get_running_loop().time() - began < 3.0
    server.resume()
    await seen.client.aclose()
