from random import Random

import pytest

from tests.endurance.exchange import Route, Run, cut, digest, draw


def served(run: Run) -> Run:
    run.deliveries, run.arrived = 1, digest(run.request)
    return run


def a_run(route: Route = Route.INVOKE) -> Run:
    return served(draw(Random(1), "a", route, "e", ((500, 900),)))


def test_what_arrived_as_it_left_is_no_difference() -> None:
    run = a_run()
    assert run.differences(200, run.answer) == []


@pytest.mark.parametrize("change", ["byte", "end", "status", "request", "twice", "never"])
def test_every_difference_is_seen(change: str) -> None:
    run = a_run()
    status, body = 200, bytearray(run.answer)
    if change == "byte":
        body[len(body) // 2] ^= 1
    elif change == "end":
        del body[-1]
    elif change == "status":
        status = 206
    elif change == "request":
        run.arrived = digest(run.request + b" ")
    else:
        run.deliveries = 2 if change == "twice" else 0
    assert len(run.differences(status, bytes(body))) == 1


def test_pieces_are_the_whole() -> None:
    dice = Random(1)
    for size in (0, 1, 2, 100):
        for _ in range(50):
            pieces = cut(dice, data := dice.randbytes(size), 9)
            assert b"".join(pieces) == data
            assert all(pieces)
            assert len(pieces) <= 9


@pytest.mark.parametrize("route", Route)
def test_runs_differ_and_are_repeated_by_their_dice(route: Route) -> None:
    dice = Random(5)
    first, second = (draw(dice, str(number), route, "e", ((0, 50), (900, 9_000))) for number in range(2))
    assert first.request != second.request
    assert first.request_bytes() == draw(Random(5), "0", route, "e", ((0, 50), (900, 9_000))).request_bytes()


def test_dice_reach_every_framing() -> None:
    dice = Random(2)
    found = [draw(dice, str(number), Route.CHAT, "e", ((0, 0), (1, 2_000))) for number in range(200)]
    assert {run.framing for run in found} == {"length", "chunked", "close"}
    assert {bool(run.request_chunks) for run in found} == {True, False}
    assert {bool(run.answer) for run in found} == {True, False}
