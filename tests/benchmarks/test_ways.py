import asyncio
from collections.abc import Callable

import pytest
import redis

from benchmarks.admission.study import NOTHING, WAYS, measure, plan
from benchmarks.admission.ways import KEYS, Clients, Orders, Product, Setting, Way


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    "setting",
    [Setting(3, 4), Setting(12, 4), Setting(3, 4, by_prefix=False), Setting(3, 2, hold_seconds=0.001)],
    ids=str,
)
async def test_a_way_serves_all_and_leaves_no_count(way: str, setting: Setting, redis_url: str) -> None:
    (cost,) = await measure(redis_url, WAYS[way](), setting, 50, 1)
    assert cost.worker_us > 0
    if way == NOTHING:
        assert cost.calls == 0
    elif way != "warmroute":
        assert cost.calls == 1
    else:
        assert 0 < cost.calls <= 2


async def test_requests_of_one_turn_share_a_call(redis_url: str) -> None:
    (cost,) = await measure(redis_url, Product(), Setting(3, 32), 640, 1)
    assert cost.calls == pytest.approx(1 / 32, rel=0.3)


async def test_a_way_that_forgets_a_release_is_not_measured(redis_url: str) -> None:
    class Forgetful(Product):
        def release(self, client: int, number: int) -> None:
            pass

    with pytest.raises(RuntimeError, match="requests in flight after the last release"):
        await measure(redis_url, Forgetful(), Setting(3, 1), 10, 1)


async def test_clients_are_never_more_than_the_concurrency() -> None:
    class Watched(Way):
        inside = most = served = 0

        async def start(self, url: str, setting: Setting) -> None: ...

        def admit(self, client: int, admitted: Callable[[int], None]) -> None:
            self.inside += 1
            self.most = max(self.most, self.inside)
            asyncio.get_running_loop().call_soon(admitted, 0)

        def release(self, client: int, number: int) -> None:
            self.inside -= 1
            self.served += 1

        async def stop(self) -> None: ...

    way = Watched()
    await Clients(way, Setting(3, 5)).serve(100)
    assert (way.most, way.served, way.inside) == (5, 100, 0)


def test_orders_are_a_workers() -> None:
    first, dice, everything = Orders(Setting(30, 1)).next()
    assert len(first) == 8
    assert dice == 0
    assert everything is not None
    assert tuple(everything()[:8]) == first
    every, _, nothing = Orders(Setting(30, 1, by_prefix=False)).next()
    assert every == tuple(range(30))
    assert nothing is None


def test_the_plan_has_every_way_strategy_and_size() -> None:
    listed = plan(quick=False)
    assert {way for way, _ in listed} == set(WAYS)
    for by_prefix in (True, False):
        assert {(setting.instances, setting.concurrency) for way, setting in listed if way == "warmroute"
                and setting.by_prefix is by_prefix and not setting.hold_seconds} == {
                    (n, level) for n in (3, 30, 300, 1_000) for level in (1, 32, 256)}  # fmt: skip
    assert len(set(listed)) == len(listed)


def test_keys_are_the_products(redis_url: str) -> None:
    with redis.Redis.from_url(redis_url) as server:
        server.flushdb()
    asyncio.run(measure(redis_url, Product(), Setting(3, 1), 5, 1))
    with redis.Redis.from_url(redis_url, decode_responses=True) as server:
        assert set(server.keys()) <= set(KEYS)
