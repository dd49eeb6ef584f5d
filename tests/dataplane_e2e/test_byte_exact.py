"""Many exchanges at once on every route, cut anywhere by clients and hosts: SHA-256 of all that left and arrived."""

import asyncio
import os
from random import Random

import pytest

from tests.dataplane_e2e.stage import Fleet, Stage, chat_body
from tests.endurance.client import Client, Pieces
from tests.endurance.exchange import Route, Run, Runs, draw
from tests.fakes.answers import SSE, Answer
from tests.fakes.data_plane import DataPlane

CONCURRENT = 200
PIECES = 15
SIZES = ((0, 0), (1, 300), (1_000, 9_000), (1_000, 9_000), (10_000, 120_000), (60_000, 140_000))
SEED = int(os.environ.get("BYTE_EXACT_SEED", "0")) or Random().randrange(1, 1_000_000)
"""A new one each time; a failure says which, and BYTE_EXACT_SEED repeats it."""


@pytest.fixture(scope="module")
def plane(stage: Stage) -> DataPlane:
    """A data plane that waits for hosts of this very process, which is busy with clients, too."""
    return stage.start(settings={"STORE_BUDGET_SECONDS": 0.5, "CONNECT_TIMEOUT_SECONDS": 20})


@pytest.mark.parametrize("route", Route)
def test_all_bytes_arrive_as_they_left(plane: DataPlane, fleet: Fleet, route: Route) -> None:
    print(f"BYTE_EXACT_SEED={SEED}")
    dice = Random(f"{SEED} {route}")
    deployed = fleet.deploy(5, threshold=1_000)
    runs = Runs()
    for host in deployed.hosts:
        host.answer = runs.serve
    sizes = SIZES[1:] if route.is_chat else SIZES
    for number in range(CONCURRENT):
        run = draw(dice, f"run-{number}", route, deployed.name, sizes)
        runs.open[run.id] = run
    found = asyncio.run(_exchange_all(plane.port, list(runs.open.values()), dice))
    assert found == []
    different = {run.arrived for run in runs.open.values() if run.request}
    assert len(different) > CONCURRENT / 2
    assert max(host.peak for host in deployed.hosts) > 1


@pytest.mark.parametrize("ending", ["cut", "reset"])
def test_an_error_of_ours_never_fills_up_a_length(plane: DataPlane, fleet: Fleet, ending: str) -> None:
    """An event stream of known length that its host breaks off stays too short."""
    deployed = fleet.deploy(1)
    deployed.hosts[0].answer = Answer(body=[b"data: 1\n\n", 0.05], headers=SSE, framing="length", ending=ending)
    with plane.client() as client:
        head = client.ask(deployed.chat, chat_body("x", stream=True)).read_head()
        assert client.rest() == b"data: 1\n\n"
        assert head.header("content-length") == "10"


async def _exchange_all(port: int, runs: list[Run], dice: Random) -> list[str]:
    """Make all exchanges at once, each on a connection of its own; return what went wrong."""
    together = asyncio.Barrier(len(runs))
    found = await asyncio.gather(*(_exchange(port, run, _pieces(run, dice), together) for run in runs))
    return [line for lines in found for line in lines]


def _pieces(run: Run, dice: Random) -> Pieces:
    """As small as a byte, and so many that a test takes a second or two."""
    write = dice.choice((0, 7, 70_000))
    return Pieces(
        write and max(write, len(run.request) // PIECES),
        max(dice.choice((7, 900, 70_000)), len(run.answer) // PIECES),
        0.001,
        Random(dice.random()),
    )


async def _exchange(port: int, run: Run, pieces: Pieces, together: asyncio.Barrier) -> list[str]:
    client = await Client.open(port, pieces, receive_buffer=16_384)
    try:
        await together.wait()
        await client.send(run.request_bytes())
        head, body = await run.read(client)
    finally:
        client.close()
    return run.differences(head.status, body)
