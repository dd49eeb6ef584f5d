import asyncio
import contextlib

import pytest

from simulator.calibration import LAPTOP
from simulator.engine import Engine
from simulator.generation import Generation, plan
from simulator.live import Answer, HostStopping, LiveEngine
from simulator.metrics import Metrics


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def generation(tokens: int, prompt: bytes = b"hello") -> Generation:
    return plan(prompt, context_tokens=30_000, max_tokens=tokens, default_tokens=64)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def live(clock: Clock) -> LiveEngine:
    return LiveEngine(Engine(LAPTOP), Metrics("m", 2.0), 2.0, clock)


def success(live: LiveEngine) -> dict[str, int]:
    lines = [line for line in live.metrics.render(live.engine).splitlines() if "request_success_total{" in line]
    return {line.split('finished_reason="')[1].split('"')[0]: int(line.rsplit(" ", 1)[1]) for line in lines}


async def test_speed_divides_every_time(live: LiveEngine, clock: Clock) -> None:
    with live.generate(generation(3)) as answer:
        for _ in range(3):
            step_ends = live.engine.next_step_at()
            assert step_ends is not None
            clock.now = 100.0 + step_ends / 2 - 1e-6
            live.catch_up()
            before = answer.ready
            clock.now += 2e-6
            live.catch_up()
            assert answer.ready == before + 1
    assert "vllm:e2e_request_latency_seconds_sum" in live.metrics.render(live.engine)
    assert success(live) == {"stop": 0, "length": 1, "abort": 0}


async def test_a_client_that_leaves_frees_the_engine_at_once(live: LiveEngine, clock: Clock) -> None:
    with contextlib.suppress(ConnectionError), live.generate(generation(1000)) as answer:
        clock.now += 1
        live.catch_up()
        assert answer.ready > 10
        assert live.engine.running == 1
        raise ConnectionError
    assert live.engine.running == 0
    assert live.engine.cache.usage == 0
    assert success(live) == {"stop": 0, "length": 0, "abort": 1}


async def test_what_was_complete_when_the_client_left_counts_as_complete(live: LiveEngine, clock: Clock) -> None:
    with live.generate(generation(2)):
        clock.now += 1
    assert success(live) == {"stop": 0, "length": 1, "abort": 0}


async def test_what_ends_in_the_moment_its_client_leaves_does_no_harm(clock: Clock) -> None:
    readings = iter([100.0, 100.0, 100.004, 100.01, 100.02, 100.03])
    live = LiveEngine(Engine(LAPTOP), Metrics("m", 2.0), 2.0, lambda: next(readings))
    with live.generate(generation(1)):
        pass
    live.catch_up()
    assert live.engine.running == 0
    assert sum(success(live).values()) == 1


async def collect(answer: Answer) -> list[str]:
    return [part async for part in answer.parts()]


async def test_a_late_reader_gets_all_tokens_in_one_part(live: LiveEngine, clock: Clock) -> None:
    planned = generation(40)
    with live.generate(planned) as answer:
        clock.now += 5
        live.catch_up()
        assert await collect(answer) == [planned.text]
        await answer.start()
        await answer.finish()


async def test_stopping_ends_what_waits_and_takes_no_more(live: LiveEngine) -> None:
    with live.generate(generation(100)) as answer, live.generate(generation(100)) as other:
        waiting = [asyncio.create_task(collect(answer)), asyncio.create_task(other.finish())]
        await asyncio.sleep(0)
        live.stop()
        for task in waiting:
            with pytest.raises(HostStopping):
                await task
    with pytest.raises(HostStopping), live.generate(generation(1)):
        pass


async def test_when_the_driver_ends_nobody_is_left_waiting(live: LiveEngine) -> None:
    driving = asyncio.create_task(live.run())
    await asyncio.sleep(0)
    with live.generate(generation(100)) as answer:
        driving.cancel()
        with pytest.raises(HostStopping):
            await answer.finish()
    assert live.stopping
