from collections import Counter
from dataclasses import replace

import pytest

from benchmarks.fleet.closed_loop import Change, Clients, Conversations, Plan, Routing, run
from benchmarks.fleet.conversations import Api, Chats, Documents, Lengths
from benchmarks.fleet.figures import figures, hit_rates, host_shares, spread
from dataplane.routing.admission import Outcome
from simulator.calibration import LLAMA_3_1_70B_8XH100 as PROFILE

KIND = Documents(per_prefix=(3, 4), shared_tokens=800, own_tokens=50, output_tokens=20)
HOSTS = ("a", "b", "c", "d")
PLAN = Plan(
    start=KIND.start,
    api=Api.NATIVE,
    clients=Clients(number=8, open=4, ramp_seconds=1.0),
    routing=Routing("PREFIX_AWARE", 3_200, 100),
    hosts=HOSTS,
    seconds=60.0,
    profile=PROFILE,
)


def test_the_same_seed_gives_the_same_answers_and_another_one_others() -> None:
    assert run(PLAN, 1) == run(PLAN, 1)
    assert run(PLAN, 1) != run(PLAN, 2)


@pytest.mark.parametrize("strategy", ["RANDOM", "LEAST_OUTSTANDING_REQUESTS", "PREFIX_AWARE"])
def test_so_many_requests_are_under_way_as_there_are_clients(strategy: str) -> None:
    answered = run(replace(PLAN, routing=Routing(strategy, 3_200, 100)), 1)
    assert answered == sorted(answered, key=lambda one: one.finished_at)
    changes = sorted([(one.submitted_at, 1) for one in answered] + [(one.finished_at, -1) for one in answered])
    under_way = most = 0
    for _, change in changes:
        under_way += change
        most = max(most, under_way)
    assert most == 8
    # A client never waits: the next request comes when the answer ends.
    ends = Counter(one.finished_at for one in answered)
    later = [one for one in answered if one.submitted_at > 1.0]
    assert all(one.submitted_at in ends for one in later)


def test_a_home_finds_all_that_is_reachable_and_random_hosts_do_not() -> None:
    home = run(PLAN, 1)
    assert all(one.cached_tokens == one.reusable_tokens for one in home)
    assert {one.outcome for one in home} == {Outcome.HOME}
    random = run(replace(PLAN, routing=Routing("RANDOM", 3_200, 100)), 1)
    assert sum(one.cached_tokens for one in random) < 0.6 * sum(one.reusable_tokens for one in random)


def test_a_freed_client_does_not_go_on_with_what_its_host_has_cached() -> None:
    """With one set of conversations for each client, the least outstanding host would be the one it came from."""
    least = figures(run(replace(PLAN, routing=Routing("LEAST_OUTSTANDING_REQUESTS", 3_200, 100)), 1), HOSTS, 10, 60)
    scattered = figures(run(replace(PLAN, routing=Routing("RANDOM", 3_200, 100)), 1), HOSTS, 10, 60)
    assert least.hit_rate == pytest.approx(scattered.hit_rate, abs=0.06)


def test_one_key_is_one_document_in_both_apis() -> None:
    for api in Api:
        answered = run(replace(PLAN, api=api), 1)
        by_key = Counter(one.key for one in answered)
        assert set(by_key.values()) <= {1, 2, 3, 4}
        homes = {(one.key, one.host) for one in answered}
        assert len(homes) == len(by_key)


def test_a_low_threshold_spills() -> None:
    answered = run(replace(PLAN, routing=Routing("PREFIX_AWARE", 3_200, 2)), 1)
    outcomes = {one.outcome for one in answered}
    assert outcomes >= {Outcome.HOME, Outcome.OVERFLOW}
    assert sum(one.cached_tokens for one in answered) < sum(one.reusable_tokens for one in answered)


def test_hosts_join_and_leave() -> None:
    changes = (Change(20.0, (*HOSTS, "e")), Change(40.0, HOSTS[1:]))
    answered = run(replace(PLAN, changes=changes), 1)
    first = {one.host for one in answered if one.submitted_at < 20}
    second = {one.host for one in answered if 20 <= one.submitted_at < 40}
    third = {one.host for one in answered if one.submitted_at >= 40}
    assert (first, second, third) == (set(HOSTS), {*HOSTS, "e"}, set(HOSTS[1:]))
    # What was under way on the host that left was answered all the same.
    assert any(one.host == "a" and one.submitted_at < 40 < one.finished_at for one in answered)


def test_what_is_said_does_not_depend_on_when() -> None:
    one, other = (Conversations(KIND.start, PLAN.clients, 5) for _ in range(2))
    held = one.take()
    first = [one.take()[1].messages[0]["content"] for _ in range(20)]
    one.give(held[0])
    second = [other.take()[1].messages[0]["content"] for _ in range(25)]
    assert set(first) < set(second) | {held[1].messages[0]["content"]}


def test_a_conversation_has_one_request_under_way() -> None:
    chats = Chats(turns=3.0, user=Lengths(30, 0.5, 100), answer=Lengths(30, 0.5, 100))
    conversations = Conversations(chats.start, Clients(2, 2), 1)
    taken = [conversations.take()[0] for _ in range(4)]
    assert len({id(one) for one in taken}) == 4
    conversations.give(taken[2])
    again, turn = conversations.take()
    assert again is taken[2] or turn.reusable_tokens == 0


def test_figures_are_of_what_ended_in_time() -> None:
    answered = run(PLAN, 1)
    whole, half = figures(answered, HOSTS, 0, 60), figures(answered, HOSTS, 30, 60)
    assert whole.requests == len(answered)
    assert half.requests == sum(one.finished_at >= 30 for one in answered)
    assert half.requests_per_s == pytest.approx(half.requests / 30)
    assert half.output_tokens_per_s == pytest.approx(20 * half.requests_per_s)
    assert whole.hit_rate == whole.reachable
    assert whole.ttft_p50_ms <= whole.ttft_p90_ms <= whole.ttft_p99_ms
    assert whole.share_least <= 0.25 <= whole.share_most
    assert sum(host_shares(answered, HOSTS)) == pytest.approx(1)
    assert whole.overflow == whole.saturated == 0
    mean, least, most = spread([whole, half])["hit_rate"]
    assert least <= mean <= most
    assert {least, most} == {whole.hit_rate, half.hit_rate}
    with pytest.raises(ValueError, match="no answer ended between 61 and 90 s"):
        figures(answered, HOSTS, 61, 90)


def test_a_host_that_got_nothing_has_a_share_of_nothing() -> None:
    assert host_shares(run(PLAN, 1), (*HOSTS, "idle"))[-1] == 0


def test_hit_rates_are_by_window() -> None:
    answered = run(PLAN, 1)
    rates = hit_rates(answered, 10, 60)
    assert len(rates) == 6
    assert rates[0] < rates[-1]
    assert hit_rates([], 10, 60) == [0.0] * 6
